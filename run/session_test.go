package run_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/proxy/domain"
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/run/standin"
	"github.com/securebench/sbench/runtime"
)

func verified(t *testing.T, dir string) record.Verification {
	t.Helper()
	v, err := record.Verify(context.Background(), dir, nil)
	must.Do(t, err)
	if !v.OK() {
		t.Errorf("the records do not verify: %+v", v)
	}
	return v
}

// TestRetry: an attempt that could not be measured is tried again. Every try is recorded,
// and the last one counts.
func TestRetry(t *testing.T) {
	cfg, e := config(t, row("one", "do it right", ""), row("two", "do it wrong", ""))
	cfg.Retries = 1
	e.broken[1] = errors.New("no space")
	summary, err := runs(context.Background(), cfg)
	if err != nil || summary.Passed != 1 || summary.Failed != 1 || summary.Retried != 1 || summary.Errors != 0 || summary.Total != 2 {
		t.Errorf("%+v, %v", summary, err)
	}
	want := []string{"one error producer infrastructure", "one passed", "two failed verifier checker_failed"}
	all := records(t, cfg)
	must.Equal(t, want, outcomes(all))
	if e := all[0]; e.Passed != nil || e.Score != nil || !strings.Contains(e.FailureMessage, "no space") {
		t.Errorf("a try without a measurement: %+v", e)
	}
	if all[0].Try != 1 || all[1].Try != 2 || all[2].Try != 1 {
		t.Errorf("tries %d, %d, %d", all[0].Try, all[1].Try, all[2].Try)
	}
	if waited, since := all[1].Times.Waited, all[1].StartedAt.Sub(all[0].EndedAt).Seconds(); waited < 1 || waited > since {
		t.Errorf("the retry waited for %g s, %g s after the try before it", waited, since)
	}
	verified(t, cfg.Output)
}

// TestResume: what was measured from the same inputs stays. Errors, and what has changed,
// run again.
func TestResume(t *testing.T) {
	rows := []string{row("one", "do it right", ""), row("two", "do it wrong", ""), row("three", "do it right", "")}
	cfg, e := config(t, rows...)
	e.broken[5] = errors.New("no space") // the harness's sandbox of task three
	if _, err := runs(context.Background(), cfg); !errors.Is(err, run.ErrInfrastructure) {
		t.Fatal(err)
	}
	cfg.Resume = true
	plan := func() []string {
		t.Helper()
		attempts, _, err := todo(context.Background(), cfg)
		must.Do(t, err)
		var all []string
		for _, a := range attempts {
			all = append(all, a.Task+": "+a.Why)
		}
		return all
	}
	must.Equal(t, []string{"three: was error"}, plan())
	before, made := len(records(t, cfg)), e.n
	summary, err := runs(context.Background(), cfg)
	if err != nil || summary.Total != 3 || summary.Passed != 2 || summary.Resumed != 2 || e.n != made+2 {
		t.Errorf("%+v, %v, %d sandboxes", summary, err, e.n-made)
	}
	if all := records(t, cfg); len(all) != before+1 || all[before].Try != 2 {
		t.Errorf("records %v", outcomes(all))
	}
	verified(t, cfg.Output)
	if got := plan(); len(got) != 0 {
		t.Errorf("plan %v", got)
	}
	// A row that changed.
	rows[1] = row("two", "do it right", "")
	must.Do(t, os.WriteFile(cfg.Pack.TasksPath, []byte(strings.Join(rows, "\n")), 0o644))
	must.Equal(t, []string{"two: what it is made from has changed"}, plan())
	if summary, err = runs(context.Background(), cfg); err != nil || summary.Passed != 3 {
		t.Errorf("%+v, %v", summary, err)
	}
	verified(t, cfg.Output) // the workspace of the older record of two is still there
	// Other inputs that count.
	for name, change := range map[string]func(*setup){
		"sbench":   func(c *setup) { c.Version.Version = "another" },
		"limits":   func(c *setup) { c.Tester.Runtime.Limits.Memory = 1 << 28 },
		"harness":  func(c *setup) { c.Tester.Harness.Config.Command.Shell = "another" },
		"stand-in": func(c *setup) { c.StandIn = standin.Empty },
	} {
		old := cfg
		tester := *cfg.Tester
		cfg.Tester = &tester
		change(&cfg)
		if got := plan(); len(got) != 3 {
			t.Errorf("another %s: %v", name, got)
		}
		cfg = old
	}
	if got := plan(); len(got) != 0 {
		t.Errorf("plan %v", got)
	}
}

// TestSettings: the chain records the settings without secrets, and a command as a digest. A resumed run begins
// again only after a change of a setting that could change an outcome.
func TestSettings(t *testing.T) {
	cfg, _ := config(t, row("one", "do it right", ""))
	set := func(settings ...testerfile.Setting) {
		t.Helper()
		tester, _, err := testerfile.Load(cfg.Tester.Path, harness.AgentTypes(), settings...)
		must.Do(t, err)
		cfg.Tester = tester
	}
	command := testerfile.Setting{Key: "harness.config.command", Value: "agent " + secret}
	set(command, testerfile.Setting{Key: "run.output_dir", Value: "out-" + secret})
	ran(t, cfg)
	want := map[string]string{"harness.config.command": record.Digest([]byte(command.Value)), "run.output_dir": "out-<redacted>"}
	must.Equal(t, want, records(t, cfg)[0].Provenance.Settings)
	text := must.Read(t, filepath.Join(cfg.Output, record.ManifestFile))
	manifest := must.Decode[record.Manifest](t, text)
	must.Equal(t, want, manifest.Settings)
	verified(t, cfg.Output)
	cfg.Resume = true
	for _, tt := range []struct {
		name     string
		settings []testerfile.Setting
		again    bool
	}{
		{"the same", []testerfile.Setting{command}, false},
		{"more that changes no outcome", []testerfile.Setting{command, {Key: "run.jobs", Value: "2"}}, false},
		{"none", nil, true},
		{"another value", []testerfile.Setting{{Key: command.Key, Value: "other"}}, true},
		{"a limit", []testerfile.Setting{command, {Key: "runtime.limits.pids", Value: "7"}}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			set(tt.settings...)
			attempts, _, err := todo(context.Background(), cfg)
			if err != nil || (len(attempts) > 0) != tt.again {
				t.Errorf("plan %+v, %v", attempts, err)
			}
		})
	}
}

// TestTornRecord: a resumed run cuts off a line that a crash left unfinished, and reports it.
func TestTornRecord(t *testing.T) {
	cfg, _ := config(t, row("one", "do it right", ""), row("two", "do it wrong", ""))
	ran(t, cfg)
	name := filepath.Join(cfg.Output, record.RecordsFile)
	text := must.Read(t, name)
	// After a crash there is no seal.
	must.Do(t, errors.Join(os.WriteFile(name, text[:len(text)-100], 0o644), os.Remove(filepath.Join(cfg.Output, record.SealFile))))
	said := ""
	cfg.Resume, cfg.Progress = true, func(e run.Event) {
		if e.Kind == run.Resume {
			said += e.Detail + "\n"
		}
	}
	summary, err := runs(context.Background(), cfg)
	if err != nil || summary.Resumed != 1 || summary.Total != 2 || !strings.Contains(said, "cut off") {
		t.Errorf("%+v, %v, said %q", summary, err, said)
	}
	verified(t, cfg.Output)
	must.Do(t, os.WriteFile(name, bytes.Replace(text, []byte("one"), []byte("uno"), 1), 0o644))
	_, err = runs(context.Background(), cfg)
	must.Tells(t, err, "damaged") // a damaged line
}

func TestFailFast(t *testing.T) {
	cfg, _ := config(t, row("one", "do it right", ""), row("two", "do it wrong", ""), row("three", "do it right", ""))
	cfg.FailFast = true
	summary, err := runs(context.Background(), cfg)
	if err != nil || summary.Total != 2 || summary.Failed != 1 {
		t.Errorf("%+v, %v", summary, err)
	}
	cfg.Resume = true // and goes on
	summary, err = runs(context.Background(), cfg)
	if err != nil || summary.Total != 3 || summary.Passed != 2 {
		t.Errorf("resumed: %+v, %v", summary, err)
	}
}

// TestStop: verifications in progress finish, harnesses do not, and nothing more starts.
func TestStop(t *testing.T) {
	cfg, _ := config(t, row("verifying", "do it right", ""), row("producing", "hang", ""), row("later", "do it right", ""))
	stop := make(chan struct{})
	cfg.Stop, cfg.Jobs = stop, 2
	ready := 0 // how many of the two are
	producing := make(chan struct{})
	e := &gatedEngine{Engine: cfg.Engine, gate: producing}
	cfg.Engine = e
	cfg.Progress = func(ev run.Event) {
		if ev.Kind == run.SandboxCommand && ev.Task == "producing" || ev.Kind == run.VerifierStart {
			if ready++; ready == 2 {
				close(stop)
			}
		}
		if ev.Kind == run.Stopping {
			close(producing)
		}
	}
	summary, err := runs(context.Background(), cfg)
	if !errors.Is(err, run.ErrStopped) || summary.Total != 1 || summary.Passed != 1 {
		t.Errorf("%+v, %v", summary, err)
	}
	must.Equal(t, []string{"verifying passed"}, outcomes(records(t, cfg)))
	verified(t, cfg.Output)
	cfg.Stop, cfg.Resume, cfg.Progress = nil, true, nil
	cfg.Tester.Harness.Config.Timeout = 0
	if attempts, _, err := todo(context.Background(), cfg); err != nil || len(attempts) != 2 {
		t.Errorf("what is left: %v, %v", attempts, err)
	}
}

// interrupt stops a run in its first try, which has used the network, and lets cfg resume the run.
func interrupt(t *testing.T, cfg *setup) {
	t.Helper()
	stop := make(chan struct{})
	cfg.Stop, cfg.Producer = stop, asker{cfg.Producer, func(ctx context.Context) error {
		close(stop)
		<-ctx.Done()
		return context.Cause(ctx)
	}}
	if _, err := runs(t.Context(), *cfg); !errors.Is(err, run.ErrStopped) {
		t.Fatal(err)
	}
	cfg.Stop, cfg.Resume = nil, true
}

// TestStopNetworked: a try that was interrupted keeps its lines in the log of the network. The next try, of a session
// with network access or without, has another number.
func TestStopNetworked(t *testing.T) {
	for _, later := range []int{0, 1} { // domains of the second session
		cfg, _ := config(t, row("one", "do it right", ""))
		cfg.Egress.Domains = make([]domain.Domain, 1)
		interrupt(t, &cfg)
		log := filepath.Join(cfg.Output, record.EgressFile)
		whole := must.Read(t, log)
		must.Do(t, os.WriteFile(log, append(whole, `{"time":`...), 0o644)) // as a crash leaves it
		cfg.Egress.Domains = cfg.Egress.Domains[:later]
		cfg.Producer = asker{cfg.Producer.(asker).Producer, func(context.Context) error { return nil }}
		ran(t, cfg)
		v := verified(t, cfg.Output)
		if rec := records(t, cfg)[0]; rec.Try != 2 || (rec.EgressDigest != "") != (later > 0) || len(v.Findings) != 1 {
			t.Errorf("try %d, egress %q, %v", rec.Try, rec.EgressDigest, v.Findings)
		}
	}
}

// TestInterruptedCost: what an interrupted try has cost counts when the run is resumed.
func TestInterruptedCost(t *testing.T) {
	cfg, _ := config(t, row("one", "do it right", ""), row("two", "do it right", ""))
	cfg.Egress.Domains, cfg.Tester.Run.MaxCostUSD = make([]domain.Domain, 1), 3
	interrupt(t, &cfg)
	spoil(t, filepath.Join(cfg.Output, record.EgressFile), `"duration_ms"`, `"cost_usd":3,"duration_ms"`)
	var notices []string
	cfg.Progress = func(e run.Event) {
		if e.Kind == run.Notice {
			notices = append(notices, e.Detail)
		}
	}
	_, _, err := todo(t.Context(), cfg)
	must.Do(t, err)
	if summary := ran(t, cfg); summary.Total != 0 || len(notices) != 2 || !strings.Contains(notices[1], "the run has cost 3.0000 USD") {
		t.Errorf("%+v, %q", summary, notices)
	}
}

// TestNetworkEnabled: a record says whether the harness could reach something, whatever the judge may reach.
func TestNetworkEnabled(t *testing.T) {
	for _, tt := range []struct {
		name, more string
		domains    int
		judge      *run.Judge
		want       bool
	}{
		{"nothing", "", 0, nil, false},
		{"a judge", "", 0, &run.Judge{}, false},
		{"a domain", "", 1, nil, true},
		{"a domain, but not for this task", `, "network": "none"`, 1, nil, false},
	} {
		cfg, _ := config(t, row("one", "do it right", tt.more))
		cfg.Egress.Domains, cfg.Judge = make([]domain.Domain, tt.domains), tt.judge
		cfg.Producer = asker{cfg.Producer, func(context.Context) error { return nil }}
		ran(t, cfg)
		if got := records(t, cfg)[0].NetworkEnabled; got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// asker is a producer that writes a line to the log of the network, if there is one, and then calls then.
type asker struct {
	harness.Producer
	then func(context.Context) error
}

func (a asker) Produce(ctx context.Context, e harness.Engine, r harness.Request) (harness.Result, error) {
	if r.Egress.Log != nil {
		r.Egress.Log.Write(proxy.Entry{Task: r.Task.ID, Attempt: r.Attempt, Kind: proxy.KindDNS, Verdict: proxy.Deny})
	}
	if err := a.then(ctx); err != nil {
		return harness.Result{}, err
	}
	r.Egress = harness.Egress{} // the fake has no network
	return a.Producer.Produce(ctx, e, r)
}

// gatedEngine makes no verifier's sandbox before the gate opens.
type gatedEngine struct {
	harness.Engine
	gate chan struct{}
}

func (e *gatedEngine) Create(ctx context.Context, cfg runtime.Config) (runtime.Sandbox, error) {
	if cfg.Name != harness.SandboxName {
		select {
		case <-e.gate:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return e.Engine.Create(ctx, cfg)
}

// TestSideBySide: as many attempts as there are jobs run at a time, and no more.
func TestSideBySide(t *testing.T) {
	var rows []string
	for i := range 12 {
		rows = append(rows, row(fmt.Sprint("task-", i), "do it right", ""))
	}
	cfg, _ := config(t, rows...)
	three := make(chan struct{}) // of the attempts have started
	cfg.Jobs, cfg.Engine = 3, &gatedEngine{cfg.Engine, three}
	cfg.Tester.Runtime.Limits.WorkspaceBytes = 64 << 20 // the disk has room for three
	now, most := 0, 0
	cfg.Progress = func(e run.Event) {
		switch e.Kind {
		case run.TaskStart:
			if now++; now == 3 && most < 3 {
				close(three)
			}
			most = max(most, now)
		case run.TaskDone:
			now--
		}
	}
	ran(t, cfg)
	if most != 3 {
		t.Errorf("%d at a time", most)
	}
	all := records(t, cfg)
	ids := map[string]bool{}
	for _, r := range all {
		ids[r.TaskID] = true
	}
	if len(all) != 12 || len(ids) != 12 {
		t.Errorf("%d records of %d tasks", len(all), len(ids))
	}
	verified(t, cfg.Output)
}

// TestTooLargeForTheHost: attempts that do not fit beside each other wait, and say for what. An attempt
// that never fits runs alone.
func TestTooLargeForTheHost(t *testing.T) {
	var rows []string
	for i := range 3 {
		rows = append(rows, row(fmt.Sprint("task-", i), "do it right", `, "resources": {"memory": "4000g"}`))
	}
	cfg, _ := config(t, rows...)
	waits := make(chan struct{}) // one of them
	cfg.Jobs, cfg.Engine = 3, &gatedEngine{cfg.Engine, waits}
	waited, now := []string{}, 0
	cfg.Progress = func(e run.Event) {
		switch e.Kind {
		case run.Waiting:
			if waited = append(waited, e.Detail); len(waited) == 1 {
				close(waits)
			}
		case run.TaskStart:
			if now++; now > 1 {
				t.Error("two at a time")
			}
		case run.TaskDone:
			now--
		}
	}
	ran(t, cfg)
	if len(waited) == 0 || !slices.ContainsFunc(waited, func(s string) bool { return strings.Contains(s, "memory") }) {
		t.Errorf("waited %q", waited)
	}
}

// TestPlanted: a secret, a hidden answer and an argument of the checker, printed in several encodings, are neither in
// the run's directory nor in the progress. The private part of the run alone has the hidden answer.
func TestPlanted(t *testing.T) {
	hidden := must.JSON(t, hiddenAnswer)
	cfg, _ := config(t, fmt.Sprintf(`{"id": "x", "family": "terminal_task", "input": {"instructions": "tell"}, "environment": {"image": "base"}, "eval": {"checker": {"command": ["tell-checker", "--expect", "the-expected-value"]}, "expected_state": %s}}`, hidden))
	var progress bytes.Buffer
	enc := json.NewEncoder(&progress)
	cfg.Progress = func(e run.Event) { _ = enc.Encode(e) }
	ran(t, cfg)
	rec := records(t, cfg)[0]
	if rec.FailureReason != "checker_failed" || !strings.Contains(rec.ProducerStdout, "my token is <redacted>") || rec.ProducerMetadata["redacted_entries"] == nil {
		t.Fatalf("%+v", rec)
	}
	root := must.OpenRoot(t, cfg.Output)
	private, err := record.ReadPrivate(root, &rec)
	if info, statErr := root.Stat(rec.PrivateFile()); err != nil || statErr != nil || info.Mode() != 0o600 || !strings.Contains(private.Stdout, rot13(hiddenAnswer)) {
		t.Errorf("%v, %v, %+v", err, info, private)
	}
	everything := map[string]string{"the progress": progress.String()}
	err = filepath.WalkDir(cfg.Output, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		text := d.Name()
		if d.Type()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(path)
			text += " " + target
			if err != nil {
				return err
			}
		} else if d.Type().IsRegular() {
			data, err := os.ReadFile(path)
			text += " " + string(data)
			if err != nil {
				return err
			}
		}
		everything[path] = text
		return nil
	})
	must.Do(t, err)
	for where, text := range everything {
		all := encoded(secret)
		if !strings.HasPrefix(where, filepath.Join(cfg.Output, record.PrivateDir)+"/") {
			all = append(append(all, encoded(hiddenAnswer)...), rot13(hiddenAnswer), "the-expected-value")
		}
		for _, planted := range all {
			planted = strings.Trim(planted, `"=`)
			if len(planted) > 12 { // base64 characters that also hold neighboring bytes may stay
				planted = planted[4 : len(planted)-4]
			}
			if strings.Contains(text, planted) || strings.Contains(text, strings.ReplaceAll(planted, `\`, `\\`)) {
				t.Errorf("%s holds %q", where, planted)
			}
		}
	}
	verified(t, cfg.Output)
}

// TestScrubHostile: no secret stays in names and targets that become too long, or in a workspace that is
// too large to be a candidate. Neither makes the attempt an infrastructure error.
func TestScrubHostile(t *testing.T) {
	cfg, _ := config(t, row("grow", "grow", ""), row("deep", "too deep", ""))
	cfg.Env = map[string]string{"TOKEN": "abc123"}
	ran(t, cfg)
	must.Equal(t, []string{"grow passed", "deep failed extraction candidate_too_big"}, outcomes(records(t, cfg)))
	err := filepath.WalkDir(cfg.Output, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target, _ := os.Readlink(path)
		data, _ := os.ReadFile(path) // nothing of a directory or link
		if strings.Contains(d.Name()+target+string(data), "abc123") {
			t.Errorf("%.100s holds the secret", path)
		}
		return nil
	})
	must.Do(t, err)
	verified(t, cfg.Output)
}
