package runtime_test

import (
	"testing"

	"github.com/securebench/sbench/internal/test/must"
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
			must.Equal(t, tt.allowed, tt.policy.Decide(tt.args).Allowed)
		})
	}
}
