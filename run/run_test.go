package run_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/environment"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/compiler/paths"
	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/internal/test/fake"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/runtime"
)

const (
	secret       = "s3cret-token-value+/ü\"\\&"
	hiddenAnswer = "the hidden answer: <42> & \"more\""
)

// programs are the test's harness, which does what a task's instructions say, and the checkers.
func programs(args []string) fake.Program {
	return map[string]fake.Program{
		"agent": agent,
		"check": func(_ context.Context, p *fake.Proc) fake.Status {
			host, _ := p.Path("/workspace/answer")
			content, err := os.ReadFile(host)
			if err != nil || string(content) != "right" {
				return fake.Status{Code: 1}
			}
			return fake.Status{}
		},
		"tell-checker": func(_ context.Context, p *fake.Proc) fake.Status {
			for _, e := range encoded(hiddenAnswer) {
				_, _ = fmt.Fprintln(p.Stdout, "want", e)
				_, _ = fmt.Fprintln(p.Stderr, "want", e)
			}
			_, _ = fmt.Fprintln(p.Stdout, rot13(hiddenAnswer), p.Args)
			return fake.Status{Code: 1}
		},
	}[args[0]]
}

func agent(ctx context.Context, p *fake.Proc) fake.Status {
	task, _ := p.Path("/workspace/task.json")
	payload, err := os.ReadFile(task)
	if err != nil {
		return fake.Status{Code: 99}
	}
	answer, _ := p.Path("/workspace/answer")
	_, _ = fmt.Fprintln(p.Stdout, "my token is", p.Env["TOKEN"])
	switch text := string(payload); {
	case strings.Contains(text, "leave it right"):
		if err = os.WriteFile(answer, []byte("right"), 0o644); err == nil && strings.Contains(text, "hang") {
			<-ctx.Done()
		}
		return fake.Status{Code: 3}
	case strings.Contains(text, "do it right"):
		err = os.WriteFile(answer, []byte("right"), 0o644)
	case strings.Contains(text, "do it wrong"):
		err = os.WriteFile(answer, []byte("wrong"), 0o644)
	case strings.Contains(text, "exit with 3"):
		return fake.Status{Code: 3}
	case strings.Contains(text, "flood"):
		for range 300_000 {
			_, _ = fmt.Fprint(p.Stdout, p.Env["TOKEN"])
		}
		_ = os.Mkdir(filepath.Join(filepath.Dir(answer), "dir-"+p.Env["TOKEN"]), 0o755)
		if strings.Contains(text, "flood and fail") {
			return fake.Status{Code: 3}
		}
	case strings.Contains(text, "grow"):
		dir := filepath.Dir(answer)
		long := strings.Repeat(p.Env["TOKEN"], 60)[:252]
		_ = os.Mkdir(filepath.Join(dir, long), 0o755)
		_ = os.WriteFile(filepath.Join(dir, long, long), []byte(p.Env["TOKEN"]), 0o644)
		_ = os.WriteFile(filepath.Join(dir, long, "x"+long[:251]), []byte(p.Env["TOKEN"]), 0o644)
		_ = os.Symlink(strings.Repeat(p.Env["TOKEN"], 700)[:4090], filepath.Join(dir, "link"))
		err = os.WriteFile(answer, []byte("right"), 0o644)
	case strings.Contains(text, "too deep"):
		dir := filepath.Dir(answer)
		_ = os.WriteFile(filepath.Join(dir, "aaa"), []byte(p.Env["TOKEN"]), 0o644)
		deep := filepath.Join(append([]string{dir}, strings.Split(strings.Repeat("d", 600), "")...)...)
		err = os.MkdirAll(deep, 0o755)
	case strings.Contains(text, "tell"):
		tell(p, p.Env["TOKEN"])
		err = os.WriteFile(answer, []byte("right"), 0o644)
	case strings.Contains(text, "hang"):
		<-ctx.Done()
		return fake.Status{Signal: 9}
	}
	if err != nil {
		return fake.Status{Code: 98}
	}
	return fake.Status{}
}

// rot13 is an encoding that no redaction knows.
func rot13(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return 'a' + (r-'a'+13)%26
		case r >= 'A' && r <= 'Z':
			return 'A' + (r-'A'+13)%26
		}
		return r
	}, s)
}

// encoded returns encodings of a secret that are easily reversed.
func encoded(s string) []string {
	quoted, _ := json.Marshal(s)
	return []string{
		s, url.QueryEscape(s), url.PathEscape(s), string(quoted), hex.EncodeToString([]byte(s)), base64.StdEncoding.EncodeToString([]byte(s)),
		base64.StdEncoding.EncodeToString([]byte("x" + s + "yz")), base64.URLEncoding.EncodeToString([]byte("xy" + s + "z")),
	}
}

// tell writes a secret to everything that a process in a sandbox can write to.
func tell(p *fake.Proc, s string) {
	work, _ := p.Path("/workspace")
	for i, e := range encoded(s) {
		for half := range slices.Chunk([]byte(e), 5) { // in several writes
			_, _ = p.Stdout.Write(half)
			_, _ = p.Stderr.Write(half)
		}
		_, _ = p.Stdout.Write([]byte("\n"))
		_ = os.WriteFile(filepath.Join(work, fmt.Sprint("file-", i)), []byte("it is "+e+", you know"), 0o444)
		_ = os.Mkdir(filepath.Join(work, "dir-"+strings.ReplaceAll(e, "/", "_")), 0o755)
		_ = os.Symlink("to-"+e, filepath.Join(work, fmt.Sprint("link-", i)))
	}
}

type images struct{}

func (images) Resolve(_ context.Context, env environment.Environment) (runtime.Image, error) {
	ref := env.Image
	if strings.HasPrefix(ref, "missing") {
		return runtime.Image{}, fmt.Errorf("image %s: %w", ref, runtime.ErrNotFound)
	}
	return runtime.Image{Ref: ref, Digest: "sha256:00"}, nil
}

// engine can fail to make certain sandboxes.
type engine struct {
	*fake.Engine
	broken map[int]error // by the number of the sandbox, from 1
	mu     sync.Mutex
	n      int
	last   runtime.Config
	agents runtime.Config // of the last sandbox of a harness
}

func (e *engine) Create(ctx context.Context, cfg runtime.Config) (runtime.Sandbox, error) {
	e.mu.Lock()
	e.n++
	e.last = cfg
	if cfg.Name == harness.SandboxName {
		e.agents = cfg
	}
	err := e.broken[e.n]
	e.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return e.Engine.Create(ctx, cfg)
}

func row(id, instructions, more string) string {
	seconds := 60
	if strings.Contains(instructions, "until its limit") {
		seconds = 1
	}
	return fmt.Sprintf(`{"id": %q, "family": "terminal_task", "input": {"instructions": %q}, "environment": {"image": "base", "timeout_seconds": %d%s}, "eval": {"checker": {"command": ["check"]}}}`, id, instructions, seconds, more)
}

// setup is what a plan and a site are made from.
type setup struct {
	run.Inputs
	run.Options
	run.Site
}

func runs(ctx context.Context, s setup) (run.Summary, error) {
	plan, err := run.NewPlan(ctx, s.Inputs, s.Options)
	if err != nil {
		return run.Summary{}, err
	}
	return run.Run(ctx, plan, s.Site)
}

// ran is runs for a run without an error.
func ran(t *testing.T, s setup) run.Summary {
	t.Helper()
	summary, err := runs(t.Context(), s)
	must.Do(t, err)
	return summary
}

func todo(ctx context.Context, s setup) ([]run.PlannedAttempt, run.Summary, error) {
	plan, err := run.NewPlan(ctx, s.Inputs, s.Options)
	if err != nil {
		return nil, run.Summary{}, err
	}
	return run.Todo(ctx, plan, s.Site)
}

func config(t testing.TB, rows ...string) (setup, *engine) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		must.Do(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	write("manifest.yaml", "id: pack\nversion: 1\n")
	write("tasks.jsonl", strings.Join(rows, "\n")+"\n")
	tester, _, err := testerfile.Load(write("tester.yaml", `
schema_version: "0.2"
run: {id: test, output_dir: out}
benchmark: {manifest: manifest.yaml, tasks: tasks.jsonl}
harness: {type: command, config: {command: [agent]}}
`), nil)
	must.Do(t, err)
	pack, err := family.OpenPack(tester.Benchmark.Manifest, tester.Benchmark.Tasks)
	must.Do(t, err)
	e := &engine{Engine: &fake.Engine{Lookup: programs, Directory: t.TempDir()}, broken: map[int]error{}}
	return setup{
		Inputs:  run.Inputs{Tester: tester, Pack: pack, Env: map[string]string{"TOKEN": secret}},
		Site:    run.Site{Engine: e, Images: images{}, Producer: harness.Command{Args: []string{"agent"}, TaskFile: "task.json"}},
		Options: run.Options{Output: filepath.Join(dir, "out"), Jobs: 1},
	}, e
}

func records(t *testing.T, cfg setup) []record.Record {
	t.Helper()
	text := must.Read(t, filepath.Join(cfg.Output, "candidates.jsonl"))
	var all []record.Record
	for line := range bytes.Lines(text) {
		var r record.Record
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		all = append(all, r)
	}
	return all
}

func outcomes(all []record.Record) []string {
	var lines []string
	for _, r := range all {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", r.TaskID, r.VerificationStatus, r.FailurePhase, r.FailureReason)))
	}
	return lines
}

func TestOutcomes(t *testing.T) {
	cfg, _ := config(t,
		row("right", "do it right", ""),
		row("wrong", "do it wrong", ""),
		row("nothing", "do nothing", ""),
		row("fails", "exit with 3", ""),
		row("hangs", "hang until its limit", ""),
		`{"id": "later", "family": "tool_call", "environment": {"image": "base"}}`,
	)
	var events []string
	cfg.Progress = func(e run.Event) { events = append(events, string(e.Kind)) }
	summary := ran(t, cfg)
	want := []string{
		"right passed",
		"wrong failed verifier checker_failed",
		"nothing failed verifier checker_failed",
		"fails failed producer producer_failed",
		"hangs failed producer producer_timeout",
		"later pending  no_verifier",
	}
	all := records(t, cfg)
	must.Equal(t, want, outcomes(all))
	if got := summary.String(); !strings.HasPrefix(got, "sbench: run_id=test total=6 verification=partial verified=5 passed=1 output=") {
		t.Error(got)
	}
	if p := all[0]; p.Passed == nil || !*p.Passed || p.Score == nil || *p.Score != 1 || p.CandidateWorkspace == nil || p.CandidateDigest == "" {
		t.Errorf("passed record %+v", p)
	}
	if p := all[1]; p.Passed == nil || *p.Passed || *p.Score != 0 {
		t.Errorf("failed record %+v", p)
	}
	if events[0] != "run_start" || events[len(events)-1] != "run_done" {
		t.Errorf("events %v", events)
	}
	must.Equal(t, "right", string(must.Read(t, filepath.Join(cfg.Output, *all[0].CandidateWorkspace, "answer"))))
}

// TestAfterTimeout: the candidate is stored even if the harness ended badly. It is judged if the tester
// file says so or, without a word there, if the task does. A regrading decides anew.
func TestAfterTimeout(t *testing.T) {
	failed := []string{"hangs failed producer producer_timeout", "fails failed producer producer_failed", "wrong failed producer producer_timeout"}
	judged := []string{"hangs passed", "fails passed", "wrong failed verifier checker_failed"}
	for _, tt := range []struct {
		name   string
		row    string
		tester *bool
		want   []string
		again  *bool
		later  []string
	}{
		{"by default", "", nil, failed, new(true), judged},
		{"as the tester file asks", "", new(true), judged, nil, failed},
		{"as the task asks", `, "verify_after_timeout": true`, nil, judged, nil, judged},
		{"against the task", `, "verify_after_timeout": true`, new(false), failed, new(false), failed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg, _ := config(t, row("hangs", "leave it right and hang until its limit", tt.row), row("fails", "leave it right", tt.row), row("wrong", "hang until its limit", tt.row))
			cfg.Tester.Verification.AfterTimeout = tt.tester
			ran(t, cfg)
			all := records(t, cfg)
			must.Equal(t, tt.want, outcomes(all))
			for i, r := range all {
				passed := r.VerificationStatus == record.Passed
				if r.Passed == nil || *r.Passed != passed || r.Score == nil || (*r.Score == 1) != passed || r.CandidateWorkspace == nil || r.ProducerFailure == nil {
					t.Errorf("record %+v", r)
				}
				if want := []string{"producer_timeout", "producer_failed", "producer_timeout"}[i]; r.ProducerFailure.Reason != want || r.ProducerFailure.Message == "" {
					t.Errorf("%+v, want %s", r.ProducerFailure, want)
				}
			}
			old := cfg.Output
			cfg.Output, cfg.Tester.Verification.AfterTimeout = filepath.Join(t.TempDir(), "again"), tt.again
			_, err := judgeAgain(cfg, old)
			must.Do(t, err)
			again := records(t, cfg)
			must.Equal(t, tt.later, outcomes(again)) // judged again
			if again[0].ProducerFailure == nil {
				t.Errorf("judged again: %+v", again[0])
			}
		})
	}
}

// TestInterrupted: no incomplete attempt is recorded.
func TestInterrupted(t *testing.T) {
	cfg, _ := config(t, row("one", "do it right", ""), row("two", "hang", ""), row("three", "do it right", ""))
	ctx, cancel := context.WithCancel(context.Background())
	cfg.Progress = func(e run.Event) {
		if e.Kind == run.SandboxCommand && e.Task == "two" {
			cancel()
		}
	}
	_, err := runs(ctx, cfg)
	must.Is(t, err, context.Canceled)
	must.Equal(t, []string{"one passed"}, outcomes(records(t, cfg)))
}

// TestRedactionAtTheCut: if an output is cut within a secret, the remaining part is redacted, too.
func TestRedactionAtTheCut(t *testing.T) {
	cfg, _ := config(t, row("x", "flood", ""))
	ran(t, cfg)
	rec := records(t, cfg)[0]
	if len(rec.Logs) != 1 || !strings.Contains(rec.ProducerStdout, rec.Logs[0].Path) || len(rec.ProducerStdout) > 40<<10 {
		t.Fatalf("logs %+v, %d bytes in the record", rec.Logs, len(rec.ProducerStdout))
	}
	log := must.Read(t, filepath.Join(cfg.Output, rec.Logs[0].Path))
	out := rec.ProducerStdout + string(log)
	if !strings.Contains(out, "bytes cut") {
		t.Fatal("nothing was cut")
	}
	for n := 4; n <= len(secret); n++ {
		if strings.Contains(out, secret[:n]) || strings.Contains(out, secret[len(secret)-n:]) {
			t.Fatalf("%d bytes of the secret are left", n)
		}
	}
}

// TestTesterBoundsTheTask: a pack cannot exceed the limits of the tester file.
func TestTesterBoundsTheTask(t *testing.T) {
	cfg, e := config(t, `{"id": "x", "family": "terminal_task", "input": {"instructions": "do it right"}, "environment": {"image": "base", "resources": {"memory": "64gb", "pids": 100000, "cpus": 0.5, "shm": "2m"}}, "eval": {"checker": {"command": ["check"]}}}`)
	cfg.Tester.Runtime.Limits = testerfile.LimitsSection{Memory: 1 << 28, Pids: 10, CPUs: 2}
	ran(t, cfg)
	if got := e.last.Limits; got.Memory != 1<<28 || got.Pids != 10 || got.CPUs != 0.5 || got.ShmBytes != 2<<20 {
		t.Errorf("limits %+v", got)
	}
	cfg, e = config(t, `{"id": "x", "family": "terminal_task", "input": {"instructions": "do it right"}, "environment": {"image": "base", "resources": {"memory": "64m", "shm": "1t"}}, "eval": {"checker": {"command": ["check"]}}}`)
	ran(t, cfg)
	if got := e.last.Limits; got.ShmBytes != 64<<20 {
		t.Errorf("more in /dev/shm than there is memory: %+v", got)
	}
}

// TestEntrypointUser: the image's entry point runs as the image's user, or the task's, if the harness has another one and the
// task has what that takes.
func TestEntrypointUser(t *testing.T) {
	for more, want := range map[string]string{
		`, "harness_user": "agent", "capabilities": "packages"`:                  "agent [0]",
		`, "harness_user": "agent", "capabilities": "packages", "user": "owner"`: "agent [owner]",
		`, "harness_user": "agent", "capabilities": ["SETUID"]`:                  "agent []",
		`, "user": "owner", "capabilities": "packages"`:                          "owner []",
	} {
		cfg, e := config(t, row("x", "do it right", `, "entrypoint": {"command": ["serve"]}`+more))
		cfg.Tester.Runtime.AllowCapabilities = true
		_, _ = runs(t.Context(), cfg) // nothing starts services in a fake sandbox
		must.Equal(t, want, fmt.Sprint(e.agents.User, " ", e.agents.Become))
	}
}

// TestNothingStarts: all problems of rows are reported together, and then all images that are
// missing. There is no output directory and no sandbox.
func TestNothingStarts(t *testing.T) {
	t.Run("rows", func(t *testing.T) {
		nothingStarts(t, []string{
			row("a", "x", ""),
			`{"id": "b", "family": "terminal_task", "input": {"instructions": "x"}, "eval": {"checker": {"command": "true"}}}`,
			`{"id": "c", "family": "terminal_task", "input": {"instructions": "x"}, "assets": [{"path": "no-such-file"}], "environment": {"image": "base"}, "eval": {"checker": {"command": "true"}}}`,
			`{"id": "a", "family": "nonsense"}`,
			`{"id": "e", "family": "terminal_task", "input": {"instructions": "x"}, "environment": {"image": "base", "workdir": "/proc/self", "resources": {"memory": 1}}, "eval": {"checker": {"command": "true"}}}`,
		}, ":2: $.environment.image", ":3: ", "assets[0]", ":4: ", "nonsense", ":5: $.environment.workdir", ":5: $.environment.resources.memory")
	})
	t.Run("more than a record can hold", func(t *testing.T) {
		many := `"input": {"context": {"x": [` + strings.Repeat("0,", 1<<19) + `0]}, `
		nothingStarts(t, []string{strings.Replace(row("a", "x", ""), `"input": {`, many, 1)}, ":1: ", "JSON values", "assets")
	})
	t.Run("images", func(t *testing.T) {
		of := func(id, image string) string { return strings.Replace(row(id, "x", ""), `"base"`, `"`+image+`"`, 1) }
		nothingStarts(t, []string{of("a", "missing/one"), of("b", "base"), of("c", "missing/two"), of("d", "missing/one")}, ":1: $.environment.image", "missing/one", ":3: $.environment.image", "missing/two")
	})
}

// TestLeaveOut: only planned tasks run. A limit counts those that are left out, too, whenever that is known.
func TestLeaveOut(t *testing.T) {
	without := func(id string) string { return strings.Replace(row(id, "x", ""), `"base"`, `"missing"`, 1) }
	cfg, _ := config(t, row("known", "x", ""), without("image"), row("one", "do it right", ""), row("two", "do it right", ""))
	cfg.LeaveOut, cfg.Limit, cfg.LeftOut = true, new(3), []run.LeftOut{{Task: "known", Reason: "its image could not be built"}}
	summary, err := runs(t.Context(), cfg)
	if !errors.Is(err, run.ErrLeftOut) || summary.Total != 1 || summary.Planned != 1 {
		t.Errorf("%+v, %v", summary, err)
	}
	must.Equal(t, []string{"one passed"}, outcomes(records(t, cfg)))
}

func nothingStarts(t *testing.T, rows []string, wants ...string) {
	t.Helper()
	cfg, e := config(t, rows...)
	_, err := runs(context.Background(), cfg)
	var problems compiler.Problems
	if !errors.As(err, &problems) {
		t.Fatalf("got %v", err)
	}
	must.Contains(t, err.Error(), wants...)
	if _, err := os.Stat(cfg.Output); !errors.Is(err, os.ErrNotExist) || e.n > 0 {
		t.Errorf("something started: %v, %d sandboxes", err, e.n)
	}
}

// TestGivesUp: a run ends when the first tries all fail for the same cause, and when many in
// a row do later, and can be resumed. Messages may differ in names and numbers.
func TestGivesUp(t *testing.T) {
	refused := func(n int) error {
		return fmt.Errorf("sandbox %q: %w: bad_key, %d times at the end", fmt.Sprint("s-", n), harness.ErrProvider, n)
	}
	always := func(n int) error { return refused(n) }
	for _, tt := range []struct {
		name    string
		retries int
		broken  func(n int) error // of the n-th sandbox
		tasks   int
		records int
		stopped string // part of the error
	}{
		{"the same from the start", 0, always, 24, 3, "stopped after 3 tries failed in a row for the same cause: "},
		{"retries count", 1, always, 24, 3, "stopped after 3 tries"},
		{"no daemon", 0, func(n int) error {
			if n <= 2 {
				return nil
			}
			return fmt.Errorf("create: %w", runtime.ErrUnavailable)
		}, 24, 4, "after 3 failures of the daemon"},
		{"different causes", 0, func(n int) error { return fmt.Errorf("%w: %s", harness.ErrProvider, strings.Repeat("x", n)) }, 5, 5, "in 5 of 5 attempts"},
		{"causes of the tasks' own", 0, func(int) error { return errors.New("the agent does not run in this image") }, 24, 24, "in 24 of 24 attempts"},
		{"the provider's, with others in between", 0, func(n int) error {
			if n%2 == 0 {
				return errors.New("the agent does not run in this image")
			}
			return refused(n)
		}, 24, 5, "stopped after 3 tries"},
		{"in between one that works", 0, func(n int) error {
			if n == 3 || n == 4 {
				return nil
			}
			return refused(n)
		}, 9, 9, "in 8 of 9 attempts"},
		{"the same later", 0, func(n int) error {
			if n <= 2 {
				return nil
			}
			return refused(n)
		}, 24, 11, "stopped after 10 tries"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var rows []string
			for n := range tt.tasks {
				rows = append(rows, row(fmt.Sprint("task-", n), "do it right", ""))
			}
			cfg, e := config(t, rows...)
			cfg.Retries = tt.retries
			for n := 1; n < 200; n++ {
				if err := tt.broken(n); err != nil {
					e.broken[n] = err
				}
			}
			summary, err := runs(t.Context(), cfg)
			if !errors.Is(err, run.ErrInfrastructure) || !strings.Contains(err.Error(), tt.stopped) {
				t.Errorf("got %v", err)
			}
			if got := len(records(t, cfg)); got != tt.records || summary.Planned != tt.tasks {
				t.Errorf("%d records, want %d; %+v", got, tt.records, summary)
			}
			verified(t, cfg.Output)
			e.broken = map[int]error{}
			cfg.Resume = true
			if summary, err = runs(t.Context(), cfg); err != nil || summary.Passed != tt.tasks || summary.Interrupted() {
				t.Errorf("resumed: %+v, %v", summary, err)
			}
		})
	}
}

// TestPlannedCount: run.json and seal.json say how many attempts were planned. The summary of an
// interrupted run says that it is not complete, even if a resumed run is interrupted at its start.
func TestPlannedCount(t *testing.T) {
	cfg, _ := config(t, row("one", "do it wrong", ""), row("two", "hang", ""), row("three", "do it right", ""))
	cfg.Attempts = 2
	stop := make(chan struct{})
	cfg.Stop = stop
	cfg.Progress = func(e run.Event) {
		if e.Kind == run.SandboxCommand && e.Task == "two" {
			close(stop)
		}
	}
	summary, err := runs(t.Context(), cfg)
	if !errors.Is(err, run.ErrStopped) || summary.Total != 2 || summary.Planned != 6 || !summary.Interrupted() {
		t.Fatalf("%+v, %v", summary, err)
	}
	must.Contains(t, summary.String(), "total=2 planned=6 verification=partial verified=2 passed=0 output=")
	planned := func(name string) int {
		t.Helper()
		text := must.Read(t, filepath.Join(cfg.Output, name))
		var file struct{ Planned int }
		must.Do(t, json.Unmarshal(text, &file))
		return file.Planned
	}
	if m, s := planned(record.ManifestFile), planned(record.SealFile); m != 6 || s != 6 {
		t.Errorf("run.json %d, seal.json %d", m, s)
	}
	// Resumed with other rows, and interrupted in the first of them.
	rows := strings.Join([]string{row("zero", "hang", ""), row("one", "do it wrong", ""), row("two", "hang", ""), row("three", "do it right", "")}, "\n")
	must.Do(t, os.WriteFile(cfg.Pack.TasksPath, []byte(rows), 0o644))
	stop = make(chan struct{})
	cfg.Stop, cfg.Resume = stop, true
	cfg.Progress = func(e run.Event) {
		if e.Kind == run.SandboxCommand {
			if s := planned(record.SealFile); s != 8 { // it would stay if sbench were killed now
				t.Errorf("seal.json %d while the resumed run goes on", s)
			}
			close(stop)
		}
	}
	if summary, err = runs(t.Context(), cfg); !errors.Is(err, run.ErrStopped) || summary.Total != 2 || summary.Resumed != 2 || summary.Planned != 8 {
		t.Errorf("%+v, %v", summary, err)
	}
	if m, s := planned(record.ManifestFile), planned(record.SealFile); m != 6 || s != 8 {
		t.Errorf("after the resumption: run.json %d, seal.json %d", m, s)
	}
	verified(t, cfg.Output)
	// Resumed with one more task that is selected alone: what was planned before stays so.
	rows += "\n" + row("four", "do it right", "")
	must.Do(t, os.WriteFile(cfg.Pack.TasksPath, []byte(rows), 0o644))
	cfg.Stop, cfg.Progress, cfg.Select = nil, nil, func(id string) bool { return id == "four" }
	if summary, err = runs(t.Context(), cfg); err != nil || summary.Total != 2 || summary.Planned != 2 {
		t.Errorf("%+v, %v", summary, err)
	}
	must.Equal(t, 8, planned(record.SealFile)) // after one task alone: seal.json
	// A run that judges it again is no more complete.
	old := cfg.Output
	cfg.Output, cfg.Resume, cfg.Select = filepath.Join(t.TempDir(), "again"), false, nil
	_, err = judgeAgain(cfg, old)
	must.Report(t, err)
	if m, s := planned(record.ManifestFile), planned(record.SealFile); m != 8 || s != 8 {
		t.Errorf("judged again: run.json %d, seal.json %d", m, s)
	}
	// Of tasks that are not selected, nothing is missing.
	cfg.Output, cfg.Select = filepath.Join(t.TempDir(), "selected"), func(id string) bool { return id == "one" }
	_, err = judgeAgain(cfg, old)
	must.Report(t, err)
	if m, s := planned(record.ManifestFile), planned(record.SealFile); m != 2 || s != 2 {
		t.Errorf("judged again in part: run.json %d, seal.json %d", m, s)
	}
}

// TestPlannedOfFirst: a run that judges again what ended after its first attempt is no more complete.
func TestPlannedOfFirst(t *testing.T) {
	cfg, _ := config(t, row("one", "do it wrong", ""), row("two", "do it right", ""))
	cfg.Attempts, cfg.Jobs, cfg.FailFast = 2, 1, true
	if summary := ran(t, cfg); summary.Total != 1 || summary.Planned != 4 {
		t.Fatalf("%+v", summary)
	}
	old := cfg.Output
	cfg.Output, cfg.FailFast = filepath.Join(t.TempDir(), "again"), false
	_, err := judgeAgain(cfg, old)
	must.Do(t, err)
	must.Contains(t, string(must.Read(t, filepath.Join(cfg.Output, record.SealFile))), `"planned": 4`)
}

func TestNoTasks(t *testing.T) {
	for name, change := range map[string]func(*setup){
		"a limit of 0":  func(c *setup) { c.Limit = new(0) },
		"an empty pack": func(c *setup) { _ = os.Truncate(c.Pack.TasksPath, 0) },
	} {
		cfg, _ := config(t, row("one", "do it right", ""))
		change(&cfg)
		if summary, err := runs(t.Context(), cfg); err != nil || summary.Total != 0 || summary.Verification() != "complete" {
			t.Errorf("%s: %s, %v", name, summary, err)
		}
		if _, err := judgeAgain(cfg, cfg.Output); err == nil || !strings.Contains(err.Error(), "the run has no records") {
			t.Errorf("%s, judged again: %v", name, err)
		}
	}
}

// TestCausesInTheEvents: the event of a recorded try says why it failed and how long it took. The event
// of the run's end has the summary.
func TestCausesInTheEvents(t *testing.T) {
	cfg, e := config(t, row("broken", "do it right", ""), row("wrong", "do it wrong", ""))
	e.broken[1] = errors.New("no space")
	cfg.Retries = 1
	var done []run.Event
	cfg.Progress = func(e run.Event) {
		if e.Kind == run.TaskDone || e.Kind == run.RunDone {
			done = append(done, e)
		}
	}
	ran(t, cfg)
	if len(done) != 4 || !done[0].Again || done[0].Try != 1 || done[0].FailureMessage != "no space" || done[1].Again || done[1].Try != 2 {
		t.Fatalf("%+v", done)
	}
	wrong := done[2]
	if wrong.Reason != "checker_failed" || wrong.FailureMessage == "" || wrong.Seconds <= 0 || wrong.Seconds > 60 {
		t.Errorf("%+v", wrong)
	}
	if s := done[3].Summary; s == nil || s.Total != 2 || s.Retried != 1 || s.Failed != 1 {
		t.Errorf("%+v", done[3])
	}
}

// TestSteps: each step has its own times and outputs, and a step without a verdict ends the attempt.
func TestSteps(t *testing.T) {
	for _, tt := range []struct {
		name, first string
		broken      int // number of the sandbox that cannot be made
		want        []string
		made        int
	}{
		{"all steps", "work", 0, []string{"t passed"}, 2},
		{"the second cannot be measured", "work", 3, []string{"t error producer infrastructure"}, 2},
		{"the first leaves too much", "too deep", 0, []string{"t failed extraction candidate_too_big"}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rows := ""
			for i, command := range []string{tt.first, "work"} {
				rows += fmt.Sprintf(`{"id": "t/%d", "family": "terminal_task", "step": {"task": "t"}, "input": {"instructions": %q}, "eval": {"checker": {"command": ["check"]}}, "environment": {"image": "base", "workdir": "/workspace", "candidate": "machine"}}`+"\n", i, command)
			}
			cfg, e := config(t, rows)
			e.broken[tt.broken] = errors.New("no space")
			e.Lookup = func([]string) fake.Program {
				return func(_ context.Context, p *fake.Proc) fake.Status {
					task, _ := p.Path(path.Join(paths.TaskMount, "task.json"))
					text, _ := os.ReadFile(task)
					if dir, _ := p.Path("/workspace"); strings.Contains(string(text), "too deep") {
						_ = os.MkdirAll(filepath.Join(dir, strings.Repeat("d/", 600)), 0o755)
					}
					_, _ = fmt.Fprintln(p.Stdout, "I did it", strings.Repeat("x", 80<<10))
					return fake.Status{}
				}
			}
			_, _ = runs(t.Context(), cfg) // the record has the error
			all := records(t, cfg)
			must.Equal(t, tt.want, outcomes(all))
			rec := all[0]
			if n := strings.Count(rec.ProducerStdout, "--- step 0"); len(rec.Steps) != tt.made || n != 1 {
				t.Errorf("%d steps, and %d outputs of the first: %q", len(rec.Steps), n, rec.ProducerStdout)
			}
			if len(rec.Logs) != 1 || rec.Logs[0].Path != record.LogDir("t", 1, 1)+"/harness-stdout.txt" || !strings.Contains(rec.ProducerStdout, rec.Logs[0].Path) {
				t.Errorf("logs %v", rec.Logs)
			}
			verified(t, cfg.Output)
			sum := record.Times{Waited: rec.Times.Waited}
			for _, s := range rec.Steps {
				sum.Producer, sum.Verifier = sum.Producer+s.Times.Producer, sum.Verifier+s.Times.Verifier
				if s.Times.Producer < 0 || s.Status == "" && s.Times.Verifier > 0 {
					t.Errorf("times of step %s: %+v", s.Name, s.Times)
				}
			}
			must.Equal(t, sum, rec.Times)
		})
	}
}
