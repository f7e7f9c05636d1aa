package runtime_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/securebench/sbench/runtime"
)

func TestCommandPolicy(t *testing.T) {
	tests := []struct {
		name    string
		policy  runtime.CommandPolicy
		args    []string
		allowed bool
	}{
		{"zero denies", runtime.CommandPolicy{}, []string{"sh"}, false},
		{"no command", runtime.CommandPolicy{Allow: []string{"*"}}, nil, false},
		{"empty command", runtime.CommandPolicy{Allow: []string{"*"}}, []string{""}, false},
		{"allowed by name", runtime.CommandPolicy{Allow: []string{"sh"}}, []string{"sh", "-c", "x"}, true},
		{"allowed by path", runtime.CommandPolicy{Allow: []string{"sh"}}, []string{"/bin/sh"}, true},
		{"not listed", runtime.CommandPolicy{Allow: []string{"sh"}}, []string{"bash"}, false},
		{"everything", runtime.CommandPolicy{Allow: []string{"*"}}, []string{"bash"}, true},
		{"deny beats allow", runtime.CommandPolicy{Allow: []string{"*", "chroot"}, Deny: []string{"chroot"}}, []string{"/usr/sbin/chroot"}, false},
		{"a trailing slash hides nothing", runtime.CommandPolicy{Allow: []string{"*"}, Deny: []string{"chroot"}}, []string{"/usr/sbin/chroot/"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.policy.Decide(tt.args); got.Allowed != tt.allowed {
				t.Errorf("decided %+v", got)
			}
		})
	}
}

type recorder struct{ ran [][]string }

func (r *recorder) Exec(_ context.Context, p runtime.Process) (runtime.Exit, error) {
	r.ran = append(r.ran, p.Args)
	return runtime.Exit{Reason: runtime.Exited}, nil
}

func (r *recorder) Path(string) (string, error) { return "", nil }

func (r *recorder) Close(context.Context) error { return nil }

func TestGuard(t *testing.T) {
	inner, events := &recorder{}, []runtime.CommandDecision{}
	s := runtime.Guard(inner, runtime.CommandPolicy{Allow: []string{"git"}}, func(d runtime.CommandDecision) { events = append(events, d) })
	if _, err := s.Exec(context.Background(), runtime.Process{Args: []string{"git", "diff"}}); err != nil {
		t.Error(err)
	}
	if _, err := s.Exec(context.Background(), runtime.Process{Args: []string{"curl"}}); !errors.Is(err, runtime.ErrDenied) {
		t.Errorf("curl: %v", err)
	}
	want := []runtime.CommandDecision{
		{Executable: "git", Allowed: true, Reason: "allowed"},
		{Executable: "curl", Reason: "not in the allow list"},
	}
	if diff := cmp.Diff(want, events); diff != "" {
		t.Errorf("audit events:\n%s", diff)
	}
	if len(inner.ran) != 1 {
		t.Errorf("ran %v", inner.ran)
	}
}
