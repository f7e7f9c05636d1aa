package proc_test

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/runtimetest"
	"github.com/securebench/sbench/runtime/proc"
)

// TestSharesDirectory looks into mount namespaces that share mounts and that do not.
func TestSharesDirectory(t *testing.T) {
	runtimetest.NeedMounts(t)
	dir, private := t.TempDir(), t.TempDir()
	must.Do(t, unix.Mount(dir, dir, "", unix.MS_BIND, ""))
	t.Cleanup(func() { must.Report(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	must.Do(t, unix.Mount("", dir, "", unix.MS_SHARED, ""))
	if !proc.SharesDirectory(os.Getpid(), dir) {
		t.Error("a process does not share a directory with itself")
	}
	for propagation, want := range map[string]bool{"unchanged": true, "private": false, "slave": false} {
		cmd := exec.Command("unshare", "--mount", "--propagation", propagation, "sh", "-c", "echo; exec sleep 60")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err == nil {
			_, err = out.Read(make([]byte, 1)) // now it is in its namespace
		}
		must.Do(t, err)
		if got := proc.SharesDirectory(cmd.Process.Pid, dir); got != want {
			t.Errorf("%s: %t, want %t", propagation, got, want)
		}
		if proc.SharesDirectory(cmd.Process.Pid, private+"/none") {
			t.Errorf("%s: a directory that there is not is shared", propagation)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}
