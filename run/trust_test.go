package run_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/internal/test/fake"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/proxy/domain"
	"github.com/securebench/sbench/proxy/relay"
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/record"
)

func newKey(t *testing.T) *record.Key {
	t.Helper()
	key, err := record.LoadKey(must.KeyFile(t))
	must.Do(t, err)
	return key
}

// forge changes every verdict to passed, with correct digests, and removes the seal and its signature.
func forge(t *testing.T, dir string) {
	t.Helper()
	name := filepath.Join(dir, record.RecordsFile)
	manifest := must.Read(t, filepath.Join(dir, record.ManifestFile))
	text := must.Read(t, name)
	last, forged := record.Digest(manifest), ""
	for line := range strings.Lines(strings.ReplaceAll(string(text), `"verification_status":"failed"`, `"verification_status":"passed"`)) {
		at := strings.LastIndex(line, `"previous":`)
		line = line[:at] + `"previous":"` + last + `","digest":`
		last = record.Digest([]byte(line))
		forged += line + `"` + last + `"}` + "\n"
	}
	must.Do(t, os.WriteFile(name, []byte(forged), 0o644))
	for _, name := range []string{record.SealFile, record.SignatureFile} {
		must.Do(t, os.Remove(filepath.Join(dir, name)))
	}
}

// rewrite changes the records of a run, links them into a chain again, and seals it.
func rewrite(t *testing.T, dir string, change func(*record.Record)) {
	t.Helper()
	var all []record.Record
	_, _, err := record.Read(dir, record.Trust{Resume: true}, func(r record.Record) error { all = append(all, r); return nil })
	must.Do(t, err)
	must.Do(t, os.RemoveAll(filepath.Join(dir, record.SealFile)))
	must.Do(t, os.Truncate(filepath.Join(dir, record.RecordsFile), 0))
	l, _, _, err := record.Resume(dir, record.Trust{}, func(record.Record) error { return nil })
	must.Do(t, err)
	for _, r := range all {
		change(&r)
		_, err := l.Append(r)
		must.Do(t, err)
	}
	must.Do(t, errors.Join(l.Seal(record.Seal{}, nil), l.Close()))
}

// judgeAgain judges the candidates of the run in dir again.
func judgeAgain(cfg setup, dir string) (run.Summary, error) {
	kept, err := run.ReadOriginal(dir, cfg.Trust)
	if err != nil {
		return run.Summary{}, err
	}
	cfg.Rejudge(kept)
	return runs(context.Background(), cfg)
}

// TestForgedRecords: a resumed run does not sign forged records, and they are not judged again, unless
// unsigned records are accepted.
func TestForgedRecords(t *testing.T) {
	cfg, _ := config(t, row("one", "do it wrong", ""))
	cfg.Sign = newKey(t)
	ran(t, cfg)
	cfg.Resume = true
	_, err := runs(context.Background(), cfg)
	must.Do(t, err) // honest records
	unsigned := cfg
	unsigned.Sign = nil
	if _, err := runs(context.Background(), unsigned); !errors.Is(err, record.ErrUnsigned) && !strings.Contains(err.Error(), "would be lost") {
		t.Errorf("without the key: %v", err)
	}
	forge(t, cfg.Output)
	again := cfg
	again.Output = filepath.Join(t.TempDir(), "again")
	for name, attempt := range map[string]func() error{
		"resume": func() error { _, err := runs(context.Background(), cfg); return err },
		"plan":   func() error { _, _, err := todo(context.Background(), cfg); return err },
		"kept":   func() error { _, err := judgeAgain(again, cfg.Output); return err },
	} {
		if err := attempt(); err == nil || !strings.Contains(err.Error(), "--accept-unsigned") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if v, err := record.Verify(context.Background(), cfg.Output, cfg.Sign.Public()); err != nil || v.OK() || v.Signed {
		t.Errorf("the forgery is signed: %+v, %v", v, err)
	}
	cfg.Trust.AcceptUnsigned, again.Trust.AcceptUnsigned, again.Resume, again.Sign = true, true, false, nil
	if summary, err := runs(context.Background(), cfg); err != nil || summary.Passed != 1 {
		t.Errorf("accepted: %+v, %v", summary, err)
	}
	if summary, err := judgeAgain(again, cfg.Output); err != nil || summary.Failed != 1 {
		t.Errorf("accepted: %+v, %v", summary, err)
	}
	if v := verified(t, cfg.Output); len(v.Findings) != 1 || !strings.Contains(v.Findings[0].Message, "accepted unsigned") {
		t.Errorf("%+v", v)
	}
}

// TestKilledBeforeItsFirstRecord: a signed run that was killed before its first record resumes with its key alone.
func TestKilledBeforeItsFirstRecord(t *testing.T) {
	cfg, _ := config(t, row("one", "do it right", ""))
	cfg.Sign = newKey(t)
	killed := filepath.Join(t.TempDir(), "killed")
	cfg.Progress = func(e run.Event) {
		if e.Kind == run.RunStart {
			must.Do(t, os.CopyFS(killed, os.DirFS(cfg.Output)))
		}
	}
	ran(t, cfg)
	if v, err := record.Verify(t.Context(), killed, cfg.Sign.Public()); err != nil || v.Sealed || v.Signed {
		t.Errorf("a run that goes on is verified as one that has ended: %+v, %v", v, err)
	}
	cfg.Output, cfg.Resume, cfg.Progress = killed, true, nil
	if summary, err := runs(t.Context(), cfg); err != nil || summary.Passed != 1 {
		t.Errorf("%+v, %v", summary, err)
	}
	unsigned := cfg
	unsigned.Sign = nil
	_, err := runs(t.Context(), unsigned)
	must.Tells(t, err, "would be lost") // without the key
}

// TestJudgedFirst: a value of harness.env that an answer rightly contains stays in it
// until it is judged, and is in no record.
func TestJudgedFirst(t *testing.T) {
	cfg, e := config(t, row("one", "do it right", ""))
	cfg.Env = map[string]string{"MODE": "production"}
	e.Lookup = func(args []string) fake.Program {
		return func(_ context.Context, p *fake.Proc) fake.Status {
			name, _ := p.Path("/workspace/answer")
			if args[0] == "agent" {
				must.Do(t, os.WriteFile(name, []byte("mode: "+p.Env["MODE"]), 0o644))
			} else if text, err := os.ReadFile(name); err != nil || string(text) != "mode: production" {
				return fake.Status{Code: 1}
			}
			return fake.Status{}
		}
	}
	must.Do(t, os.MkdirAll(filepath.Join(cfg.Output, "unjudged", "of-a-killed-session"), 0o755))
	ran(t, cfg)
	rec := records(t, cfg)[0]
	if rec.VerificationStatus != record.Passed {
		t.Fatalf("%s: %s", rec.VerificationStatus, rec.FailureReason)
	}
	text, err := os.ReadFile(filepath.Join(cfg.Output, *rec.CandidateWorkspace, "answer"))
	if err != nil || string(text) != "mode: <redacted>" {
		t.Errorf("kept %q, %v", text, err)
	}
	verified(t, cfg.Output)
	if _, err := os.Lstat(filepath.Join(cfg.Output, "unjudged")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what was not judged: %v", err)
	}
}

// TestIrregularOutput: a run does not write through links or other files that somebody
// put into its directory.
func TestIrregularOutput(t *testing.T) {
	elsewhere := t.TempDir()
	link := func(path string) error { return os.Symlink(elsewhere, path) }
	pipe := func(path string) error { return unix.Mkfifo(path, 0o644) }
	for _, c := range []struct {
		name string
		make func(path string) error
	}{
		{record.WorkspacesDir, link}, {record.LogsDir, link}, {record.PrivateDir, link}, {record.WorkspacesDir, pipe}, {record.EgressFile, pipe},
		{record.EgressFile, func(path string) error { return os.Symlink(filepath.Join(elsewhere, "log"), path) }},
		{record.RecordsFile, pipe}, {record.ManifestFile, link},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg, _ := config(t, row("one", "do it right", ""))
			if c.name == record.EgressFile {
				allowed, err := domain.Parse("example.org")
				must.Do(t, err)
				cfg.Egress.Domains = []domain.Domain{allowed}
			}
			cfg.Resume = true
			must.Do(t, os.MkdirAll(cfg.Output, 0o755))
			must.Do(t, c.make(filepath.Join(cfg.Output, c.name)))
			if summary, err := runs(context.Background(), cfg); err == nil && summary.Errors == 0 {
				t.Errorf("it ran: %+v", summary)
			}
			if entries, err := os.ReadDir(elsewhere); err != nil || len(entries) > 0 {
				t.Errorf("written elsewhere: %v, %v", entries, err)
			}
		})
	}
}

// TestNotKept: an attempt that passed, but cannot be kept, is an error, and nothing in its record says more.
func TestNotKept(t *testing.T) {
	cfg, _ := config(t, row("one", "do it right", ""))
	cfg.Progress = func(e run.Event) {
		if dir := filepath.Join(cfg.Output, record.WorkspacesDir); e.Kind == run.VerifierDone {
			must.Do(t, errors.Join(os.Remove(dir), os.WriteFile(dir, nil, 0o644)))
		}
	}
	_, err := runs(t.Context(), cfg)
	must.Is(t, err, run.ErrInfrastructure)
	if r := records(t, cfg)[0]; r.VerificationStatus != record.Error || r.Assurance != "" || r.Passed != nil || r.CandidateDigest != "" {
		t.Errorf("%+v", r)
	}
}

// TestNotSealed: that a run cannot be sealed is no bug of sbench.
func TestNotSealed(t *testing.T) {
	cfg, _ := config(t, row("one", "do it right", ""))
	cfg.Progress = func(e run.Event) {
		if e.Kind == run.VerifierDone {
			seal := filepath.Join(cfg.Output, record.SealFile)
			must.Do(t, errors.Join(os.Remove(seal), os.Mkdir(seal, 0o755)))
		}
	}
	if summary, err := runs(t.Context(), cfg); !errors.Is(err, run.ErrInfrastructure) || summary.Passed != 1 {
		t.Errorf("%+v, %v", summary, err)
	}
}

// TestGradedCost: what the attempts of a run have cost is no cost of a run that judges them again.
func TestGradedCost(t *testing.T) {
	cfg, _ := config(t, row("fails", "exit with 3", ""), row("one", "do it right", ""))
	ran(t, cfg)
	rewrite(t, cfg.Output, func(r *record.Record) { r.Egress = &harness.EgressTotals{Relay: &relay.Facts{CostUSD: 5}} })
	old := cfg.Output
	cfg.Output, cfg.Tester.Run.MaxCostUSD = filepath.Join(t.TempDir(), "again"), 1
	if summary, err := judgeAgain(cfg, old); err != nil || summary.Total != 2 {
		t.Errorf("%+v, %v", summary, err)
	}
}

// TestGradedAbove: a run can be judged again into a directory that contains it.
func TestGradedAbove(t *testing.T) {
	cfg, _ := config(t, row("one", "do it right", ""))
	above := cfg.Output
	cfg.Output = filepath.Join(above, "first")
	ran(t, cfg)
	old := cfg.Output
	cfg.Output = above
	summary, err := judgeAgain(cfg, old)
	if err != nil || summary.Passed != 1 {
		t.Errorf("%+v, %v", summary, err)
	}
	verified(t, above)
}

// TestReplacedWorkspace: a workspace behind a symbolic link is not judged again, and neither is another file in its place.
func TestReplacedWorkspace(t *testing.T) {
	for name, replace := range map[string]func(workspaces, workspace string) error{
		"behind a link": func(workspaces, _ string) error {
			elsewhere := filepath.Join(t.TempDir(), "workspaces")
			return errors.Join(os.Rename(workspaces, elsewhere), os.Symlink(elsewhere, workspaces))
		},
		"pipe": func(_, workspace string) error {
			return errors.Join(os.RemoveAll(workspace), unix.Mkfifo(workspace, 0o644))
		},
		"pipe for all": func(workspaces, _ string) error {
			return errors.Join(os.RemoveAll(workspaces), unix.Mkfifo(workspaces, 0o644))
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, _ := config(t, row("one", "do it right", ""))
			ran(t, cfg)
			must.Do(t, replace(filepath.Join(cfg.Output, record.WorkspacesDir), filepath.Join(cfg.Output, record.WorkspacesDir, record.WorkspaceName("one", 1, 1))))
			again := cfg
			again.Output = filepath.Join(t.TempDir(), "again")
			summary, _ := judgeAgain(again, cfg.Output)
			must.Equal(t, 1, summary.Errors)
		})
	}
}

// TestPackDigest: run.json has the digest of the pack if all of it was to be run.
func TestPackDigest(t *testing.T) {
	for limit, whole := range map[int]bool{0: true, 1: false} {
		cfg, _ := config(t, row("one", "do it right", ""), row("two", "do it right", ""))
		if limit > 0 {
			cfg.Limit = &limit
		}
		ran(t, cfg)
		want := ""
		if whole {
			var err error
			want, err = cfg.Pack.Digest(context.Background())
			must.Do(t, err)
		}
		text := must.Read(t, filepath.Join(cfg.Output, record.ManifestFile))
		m := must.Decode[record.Manifest](t, text)
		if m.Pack.Digest != want || whole && want == "" {
			t.Errorf("limit %d: %q, want %q", limit, m.Pack.Digest, want)
		}
	}
}
