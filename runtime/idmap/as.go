package idmap

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/thread"
)

// As calls f with id as its user and group id for file access (setfsuid(2)), but with
// the capabilities of this process, and returns f's error. Files that f creates
// through a mount that shifts ids then belong to the root of the range that begins
// with id. Otherwise creating a file there fails with EOVERFLOW, since the host's
// root has no id in the range. f runs on a thread of its own; see [thread.Run].
func As(id uint32, f func() error) error {
	return thread.Run(func() error {
		if err := becomeForFiles(id); err != nil {
			return err
		}
		if err := thread.RaiseCapabilities(); err != nil {
			return err
		}
		return f()
	})
}

// becomeForFiles changes only this thread, and drops its capabilities over files.
func becomeForFiles(id uint32) error {
	for _, set := range []func(int) (int, error){unix.SetfsgidRetGid, unix.SetfsuidRetUid} {
		_, _ = set(int(id))
		if now, _ := set(-1); now != int(id) { // the only sign, setfsuid(2)
			return fmt.Errorf("become id %d for files: %w", id, unix.EPERM)
		}
	}
	return nil
}
