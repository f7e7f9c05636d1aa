package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
)

// TestCures: doctor, and then run, say in one sentence what the process lacks, with its cure. It is for root, who becomes a
// user without a name, a user with subordinate ids, or the root of a container without privileges.
func TestCures(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root becomes another user")
	}
	home, err := os.MkdirTemp("", "sbench-home") // every user can enter its parent
	must.Do(t, err)
	defer func() { _ = os.RemoveAll(home) }()
	self, err := os.Executable()
	must.Do(t, err)
	must.Run(t, exec.Command("cp", self, filepath.Join(home, "sbench")))
	must.Do(t, errors.Join(os.Chmod(home, 0o755), os.Chmod(filepath.Join(home, "sbench"), 0o755)))
	for name, id := range map[string]int{"unnamed": 4242, "named": 4243, "nobody": 65534, "root": 0} {
		must.Do(t, errors.Join(os.Mkdir(filepath.Join(home, name), 0o711), os.Chown(filepath.Join(home, name), id, id)))
	}
	pack := must.Abs(t, "../../benchmarks/short-answer-smoke")
	must.Run(t, exec.Command("cp", "-r", pack, filepath.Join(home, "pack")))
	must.Run(t, exec.Command("sh", "-ec", `cp -a /etc "$0" && cd "$0/etc"
		echo named:x:4243:4243::/:/bin/sh >>passwd; echo named:600000:65536 | tee subuid >subgid`, home))

	const (
		unnamed = "exec setpriv --reuid 4242 --regid 4242 --clear-groups "
		asNamed = "mount --bind $H/etc /etc && exec "
		drop    = "setpriv --inh-caps -all --bounding-set "
		rights  = "in a container, run sbench as an ordinary user, and start the container with more rights (Docker: "
		noName  = "uid 4242 has no name, by which newuidmap finds its ids in /etc/subuid: give it a line in /etc/passwd"
		noHome  = "set HOME, or give --root and --state"
		notMine = "permission denied: set HOME to a directory of this user, or give --root and --state"
	)
	for _, tt := range []struct{ name, become, env, want string }{
		{"no HOME", unnamed, "", noHome},
		{"a HOME that is not there", unnamed, "HOME=/nonexistent", notMine},
		{"no name", unnamed, "HOME=$H/unnamed", noName},
		{"no name, but the variable USER", unnamed, "HOME=$H/unnamed USER=nobody", noName},
		{"no_new_privs", asNamed + "setpriv --no-new-privs --reuid 4243 --regid 4243 --clear-groups ", "HOME=$H/named",
			"no_new_privs is set, with which the setuid program newuidmap may not map ids: start sbench without it"},
		{"no subordinate ids", "exec setpriv --reuid nobody --regid nogroup --clear-groups ", "HOME=$H/nobody",
			"user nobody needs 65536 subordinate ids"},
		{"another group", asNamed + "setpriv --reuid 4243 --regid 0 --clear-groups ", "HOME=$H/named",
			"newuidmap may not map ids: this process has the group 0: start sbench with the user's own group, 4243"},
		{"no capability that the container leaves", asNamed + drop + "-all --reuid 4243 --regid 4243 --clear-groups ", "HOME=$H/named",
			"newuidmap may not map ids: it needs its setuid bit or capability, "},
		{"kernel parameters that cannot be written", "mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys && " + asNamed +
			"setpriv --reuid 4243 --regid 4243 --clear-groups ", "HOME=$H/named", rights},
		{"root of a container without privileges", "exec " + drop + "-sys_admin,-sys_resource ", "SBENCH_ROOT=$H/root/root SBENCH_STATE=$H/root/state",
			"this host lets sbench mount nothing: unshare: operation not permitted: " + rights},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, command := range []string{"doctor", "run --config $H/pack/tester-command.yaml --output-dir $H/out"} {
				cmd := exec.Command("unshare", "--mount", "sh", "-c", tt.become+"env -i PATH=$PATH CONTAINERD_ADDRESS=none SBENCH_ALLOW_DEGRADED=memory,pids,cpu "+
					tt.env+" $H/sbench "+command)
				cmd.Env, cmd.Dir = []string{"PATH=" + os.Getenv("PATH"), "H=" + home}, "/"
				out, err := cmd.CombinedOutput()
				if code := cmd.ProcessState.ExitCode(); code != codeInfrastructure || !strings.Contains(string(out), tt.want) {
					t.Errorf("%s: %v, and %q does not say %q", command, err, out, tt.want)
				}
			}
		})
	}
}
