package userns

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/thread"
)

// TestClone: the child idles as long as its parent lives, and exits if that ended before it could
// ask to be killed with it.
func TestClone(t *testing.T) {
	for parent, exits := range map[int]bool{unix.Getpid(): false, 1 << 30: true} {
		var status unix.WaitStatus
		err := thread.Run(func() error {
			var all unix.Sigset_t
			for i := range all.Val {
				all.Val[i] = ^all.Val[i]
			}
			if err := unix.PthreadSigmask(unix.SIG_BLOCK, &all, nil); err != nil {
				return err
			}
			pid := clone(unix.CLONE_VM|unix.CLONE_FILES|uintptr(unix.SIGCHLD), parent)
			if pid < 0 {
				return unix.Errno(-pid)
			}
			if !exits {
				time.Sleep(200 * time.Millisecond)
				if err := unix.Kill(pid, unix.SIGKILL); err != nil {
					return err
				}
			}
			_, err := unix.Wait4(pid, &status, 0, nil)
			return err
		})
		if err != nil || status.Exited() != exits {
			t.Errorf("with the parent %d: status %#x, %v", parent, status, err)
		}
	}
}
