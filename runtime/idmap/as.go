package idmap

import (
	"fmt"
	"os"
	"strings"

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
		if err := raiseCapabilities(); err != nil {
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

// raiseCapabilities makes what is permitted effective again on this thread: a
// change of ids from 0 has dropped some or all of it (capabilities(7), "Effect of
// user ID changes").
func raiseCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	for i := range data {
		data[i].Effective = data[i].Permitted
	}
	if err := unix.Capset(&header, &data[0]); err != nil {
		return fmt.Errorf("raise capabilities: %w", err)
	}
	return nil
}

// HostRoot says whether this process is root of the initial user namespace,
// whose ids are the host's.
func HostRoot() bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil || os.Geteuid() != 0 {
		return false
	}
	fields := strings.Fields(string(text))
	return len(fields) == 3 && fields[0] == "0" && fields[1] == "0" && fields[2] == "4294967295"
}
