package idmap

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/thread"
)

// As calls f as the file system sees the user and group id, but with this
// process's capabilities: what f makes through a mount that shifts ids belongs
// to the root of the range that begins with id. Without that, making a file
// there is EOVERFLOW, since the host's root is no id of the range. f has a thread
// of its own, which ends with it; see [thread.Run].
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

// becomeForFiles changes this thread alone, and drops its capabilities over
// files.
func becomeForFiles(id uint32) error {
	for _, set := range []func(int) (int, error){unix.SetfsgidRetGid, unix.SetfsuidRetUid} {
		_, _ = set(int(id))
		if now, _ := set(-1); now != int(id) { // the only sign, setfsuid(2)
			return fmt.Errorf("become id %d for files: %w", id, unix.EPERM)
		}
	}
	return nil
}
