package sandbox

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// TestCheckNamespaces: a process is refused for each namespace that is not as it was asked for.
func TestCheckNamespaces(t *testing.T) {
	const all = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUSER | unix.CLONE_NEWNET
	kinds := map[specs.LinuxNamespaceType]uintptr{
		specs.MountNamespace: unix.CLONE_NEWNS, specs.PIDNamespace: unix.CLONE_NEWPID, specs.UserNamespace: unix.CLONE_NEWUSER, specs.NetworkNamespace: unix.CLONE_NEWNET,
	}
	start := func(flags uintptr) int {
		cmd := exec.Command("sleep", "60")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags: flags, Pdeathsig: unix.SIGKILL,
			UidMappings: []syscall.SysProcIDMap{{Size: 1}}, GidMappings: []syscall.SysProcIDMap{{Size: 1}},
		}
		if flags&unix.CLONE_NEWUSER == 0 {
			cmd.SysProcAttr.UidMappings, cmd.SysProcAttr.GidMappings = nil, nil
		}
		if err := cmd.Start(); err != nil {
			t.Skip("no namespaces can be made here:", err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return cmd.Process.Pid
	}
	apart, other := start(all), start(all)
	for kind, flag := range kinds {
		name := strings.TrimSuffix(strings.Replace(string(kind), "mount", "mnt", 1), "work")
		asked := func(path string) *specs.Spec {
			return &specs.Spec{Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{{Type: kind, Path: path}}}}
		}
		for _, tt := range []struct {
			name string
			pid  int
			path string
			ok   bool
		}{
			{"a new one", apart, "", true},
			{"the host's in place of a new one", start(all &^ flag), "", false},
			{"the one that was asked for", apart, fmt.Sprintf("/proc/%d/ns/%s", apart, name), true},
			{"another one than asked for", apart, fmt.Sprintf("/proc/%d/ns/%s", other, name), false},
		} {
			if err := checkNamespaces(tt.pid, asked(tt.path)); (err == nil) != tt.ok {
				t.Errorf("%s namespace, %s: %v", kind, tt.name, err)
			}
		}
	}
	if err := checkNamespaces(1<<22+1, &specs.Spec{Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{{Type: specs.PIDNamespace}}}}); err == nil {
		t.Error("a process that is not there was accepted")
	}
}
