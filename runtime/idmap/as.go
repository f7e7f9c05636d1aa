package idmap

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/thread"
)

// As calls f with id as its user and group id for file access (setfsuid(2)), but with this
// process's capabilities, and returns f's error. It is needed to create files through a
// mount that shifts ids into the range that begins with id; they then belong to the range's
// root. The host's root has no id in the range, so its attempts fail with EOVERFLOW. f runs
// on a thread of its own; see [thread.Run].
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

// becomeForFiles changes only this thread's ids. The kernel then clears the thread's
// effective capabilities over files (capabilities(7)).
func becomeForFiles(id uint32) error {
	for _, set := range []func(int) (int, error){unix.SetfsgidRetGid, unix.SetfsuidRetUid} {
		_, _ = set(int(id))
		if now, _ := set(-1); now != int(id) { // the only way to see a failure, setfsuid(2)
			return fmt.Errorf("become id %d for files: %w", id, unix.EPERM)
		}
	}
	return nil
}
