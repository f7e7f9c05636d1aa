package terminal_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/internal/test/verdicttest"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/verifiers/terminal"
)

// crowded is an engine whose sandboxes do not start when fails says so: beside kept processes, or without any.
type crowded struct {
	dir   string
	fails func(beside bool) bool
}

func (e crowded) Create(_ context.Context, cfg runtime.Config) (runtime.Sandbox, error) {
	if e.fails(cfg.NetworkOf != nil) {
		return nil, runtime.ErrUnavailable
	}
	return left{}, nil
}

func (e crowded) NewVolume(context.Context, runtime.VolumeConfig) (runtime.Volume, error) {
	at, err := os.MkdirTemp(e.dir, "volume-")
	return directory{at, nil}, err
}

func (e crowded) View(context.Context, runtime.Image) (runtime.View, error) {
	root, err := os.OpenRoot(e.dir)
	return directory{e.dir, root}, err
}

type directory struct {
	at   string
	root *os.Root
}

func (d directory) Path() string   { return d.at }
func (d directory) Root() *os.Root { return d.root }
func (d directory) Close() error   { return nil }

// left is a sandbox in which everything succeeds.
type left struct{ runtime.Sandbox }

func (left) Exec(context.Context, runtime.Process) (runtime.Exit, error) {
	return runtime.Exit{Reason: runtime.Exited}, nil
}
func (left) Close(context.Context) error { return nil }

// TestCheckerKeptOut: processes that keep the checker's sandbox from starting make a failure, and a host that does an
// error.
func TestCheckerKeptOut(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"manifest.yaml": "id: p\nversion: 1\n",
		"tasks.jsonl":   `{"id": "t", "family": "terminal_task", "input": {"instructions": "x"}, "eval": {"checker": {"command": "true"}}, "environment": {"image": "x", "keep_processes": true}}`,
	} {
		verdicttest.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	pack, err := compiler.OpenPack(filepath.Join(dir, "manifest.yaml"), filepath.Join(dir, "tasks.jsonl"))
	verdicttest.Must(t, err)
	calls := 0
	for name, tt := range map[string]struct {
		fails  func(beside bool) bool
		want   verifiers.Status
		failed bool
	}{
		"all start":        {func(bool) bool { return false }, verifiers.Passed, false},
		"none beside them": {func(beside bool) bool { return beside }, verifiers.Failed, false},
		"none":             {func(bool) bool { return true }, "", true},
		"all but one":      {func(bool) bool { calls++; return calls == 1 }, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			for task, err := range pack.Tasks() {
				verdicttest.Must(t, err)
				v, err := terminal.Family().Verify(t.Context(), crowded{t.TempDir(), tt.fails}, verifiers.Input{
					Task: task, Pack: pack, Candidate: candidate.Candidate{Workspace: t.TempDir()}, Left: left{},
					Limits: runtime.DefaultLimits(), Timeout: time.Minute, WorkspaceBytes: 1 << 20, OutputBytes: 1 << 20,
				})
				if v.Status != tt.want || errors.Is(err, runtime.ErrUnavailable) != tt.failed {
					t.Errorf("%s %s (%v)", v.Status, v.Reason, err)
				}
			}
		})
	}
}
