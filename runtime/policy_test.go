package runtime_test

import (
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

// observer allows the commands of a policy and notes what it is asked and told.
type observer struct {
	policy runtime.CommandPolicy
	notes  []string
}

func (o *observer) Starting(sandbox string, p runtime.Process) error {
	d := o.policy.Decide(p.Args)
	o.notes = append(o.notes, sandbox+" starts "+d.Executable)
	return d.Check()
}

func (o *observer) Ended(sandbox string, exit runtime.Exit) {
	o.notes = append(o.notes, sandbox+" "+exit.String())
}

// TestObserver: a sandbox's observer decides and is told, and a sandbox needs none.
func TestObserver(t *testing.T) {
	o := &observer{policy: runtime.CommandPolicy{Allow: []string{"git"}}}
	cfg := runtime.Config{Name: "sandbox", Observer: o}
	for command, want := range map[string]error{"git": nil, "curl": runtime.ErrDenied} {
		o.notes = nil
		p, exit := runtime.Process{Args: []string{command}}, runtime.Exit{Reason: runtime.Exited}
		if err := cfg.Starting(p); !errors.Is(err, want) {
			t.Errorf("%s: %v", command, err)
		}
		cfg.Ended(exit)
		if diff := cmp.Diff([]string{"sandbox starts " + command, "sandbox " + exit.String()}, o.notes); diff != "" {
			t.Errorf("%s: %s", command, diff)
		}
		if err := (runtime.Config{}).Starting(p); err != nil {
			t.Error(err)
		}
		runtime.Config{}.Ended(exit)
	}
}
