package userns_test

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/runtimetest"
	"github.com/securebench/sbench/runtime/userns"
)

func TestMain(m *testing.M) {
	containerdtest.Enter()
	m.Run()
}

// TestNew: a process that joins the namespaces has the mappings, capabilities, and a
// network namespace other than the host's.
func TestNew(t *testing.T) {
	runtimetest.NeedMounts(t)
	n, err := userns.New(0, []userns.Mapping{{Size: 1}, {First: 1, Outside: 1, Size: 100}})
	must.Do(t, err)
	script := "tr -s ' ' </proc/self/uid_map; ip=$(readlink /proc/self/ns/net); echo $ip; grep CapEff /proc/self/status"
	cmd := exec.Command("nsenter", "--user="+n.Path(), "--net=/proc/self/fd/3", "--preserve-credentials", "sh", "-c", script)
	cmd.ExtraFiles = []*os.File{n.Network()}
	out := must.Run(t, cmd)
	own, err := os.Readlink("/proc/self/ns/net")
	must.Do(t, err)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != 4 || strings.TrimSpace(lines[0]) != "0 0 1" || strings.TrimSpace(lines[1]) != "1 1 100" || lines[2] == own || strings.HasSuffix(lines[3], "0000000000000000") {
		t.Errorf("%q", lines)
	}
	must.Do(t, n.Close())
	if err := n.Close(); err == nil {
		t.Error("closed twice")
	}
	if n, err := userns.New(0, []userns.Mapping{{Size: 0}}); err == nil {
		t.Errorf("a namespace of nobody: %v", n.Close())
	}
}

func TestBelow(t *testing.T) {
	runtimetest.NeedMounts(t)
	ids := []syscall.SysProcIDMap{{Size: 1}}
	cmd := exec.Command("unshare", "--user", "sleep", "1000") // another level below
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids}
	must.Do(t, cmd.Start())
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	must.Await(t, "the level below", func() bool { return userns.Below(cmd.Process.Pid) != 1 })
	for pid, want := range map[int]int{os.Getpid(): 0, cmd.Process.Pid: 2, 1 << 30: -1} {
		if got := userns.Below(pid); got != want {
			t.Errorf("process %d is %d levels below, want %d", pid, got, want)
		}
	}
}
