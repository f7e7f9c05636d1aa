package terminal_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/internal/test/fake"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/packtest"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/verifiers/terminal"
)

// crowded is an engine whose sandboxes do not start when fails says so: beside kept processes, or without any.
type crowded struct {
	*fake.Engine
	fails func(beside bool) bool
}

func (e crowded) Create(ctx context.Context, cfg runtime.Config) (runtime.Sandbox, error) {
	if e.fails(cfg.NetworkOf != nil) {
		return nil, runtime.ErrUnavailable
	}
	return e.Engine.Create(ctx, cfg)
}

// TestCheckerKeptOut: processes that keep the checker's sandbox from starting make a failure, and a host that does an
// error.
func TestCheckerKeptOut(t *testing.T) {
	task, pack := packtest.Task(t, `{"id": "t", "family": "terminal_task", "input": {"instructions": "x"}, "eval": {"checker": {"command": "true"}}, "environment": {"image": "x", "keep_processes": true}}`)
	succeeds := func([]string) fake.Program {
		return func(context.Context, *fake.Proc) fake.Status { return fake.Status{} }
	}
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
			e := &fake.Engine{Lookup: succeeds, Directory: t.TempDir()}
			left, err := e.Create(t.Context(), runtime.Config{Limits: runtime.DefaultLimits()})
			must.Do(t, err)
			v, err := terminal.Family().Verify(t.Context(), crowded{e, tt.fails}, verifiers.Input{
				Task: task, Pack: pack, Candidate: candidate.Candidate{Workspace: t.TempDir()}, Left: left,
				Limits: runtime.DefaultLimits(), Timeout: time.Minute, WorkspaceBytes: 1 << 20, OutputBytes: 1 << 20,
			})
			if v.Status != tt.want || errors.Is(err, runtime.ErrUnavailable) != tt.failed {
				t.Errorf("%s %s (%v)", v.Status, v.Reason, err)
			}
		})
	}
}
