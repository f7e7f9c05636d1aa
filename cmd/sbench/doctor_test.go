package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/must"
)

// TestDoctorCures: what an ordinary user's environment lacks is said with its cure. It is for root, who becomes a user without
// a name.
func TestDoctorCures(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root becomes another user")
	}
	home, err := os.MkdirTemp("", "sbench-home") // every user can enter its parent
	must.Do(t, err)
	defer func() { _ = os.RemoveAll(home) }()
	self, err := os.Executable()
	must.Do(t, err)
	program := filepath.Join(home, "sbench")
	must.Run(t, exec.Command("cp", self, program))
	must.Do(t, errors.Join(os.Chmod(program, 0o755), os.Chown(home, 4242, 4242)))
	for _, tt := range []struct {
		name         string
		env          []string
		noPrivileges bool
		want         string
	}{
		{"no HOME", nil, false, "set HOME, or give --root and --state"},
		{"no name", []string{"HOME=" + home}, false, "uid 4242 has no name, by which newuidmap finds its ids in /etc/subuid: give it a line in /etc/passwd"},
		{"no new privileges", []string{"HOME=" + home}, true, "no_new_privs is set, with which the setuid program newuidmap may not map ids: start sbench without it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.noPrivileges {
				runtime.LockOSThread() // for good: the thread keeps the attribute, and ends with the test
				must.Do(t, unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
			}
			cmd := exec.Command(program, "doctor")
			cmd.Env, cmd.Dir = append(tt.env, "PATH="+os.Getenv("PATH")), "/"
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 4242, Gid: 4242}}
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), tt.want) {
				t.Errorf("%v, and %q does not say %q", err, out, tt.want)
			}
		})
	}
}
