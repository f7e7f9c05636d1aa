package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/proc"
	"github.com/securebench/sbench/workspace/foreign"
)

// Bounded reports whether the kernel bounds the volume, as it does unless
// [Store.NewDirectory] made it.
func (v *Volume) Bounded() bool { return !v.unbounded }

// Exceeded reports whether a volume that is a directory holds more than it may or cannot be
// counted. Files without a name count if one of the processes has them open.
func (v *Volume) Exceeded(pids []int) bool {
	bytes, inodes, err := v.used(pids)
	return err != nil || bytes > v.cfg.Bytes || inodes > v.cfg.Inodes
}

// maxWatchDepth bounds the directory depth of a watched layer.
const maxWatchDepth = 256

var errOverflow = errors.New("the directory holds more than it may")

// used counts what a directory holds: each file once, however many names it has, and files
// without a name that one of the processes has open. Files removed meanwhile do not count.
// The error is errOverflow as soon as there is more than the volume may hold.
func (v *Volume) used(pids []int) (bytes, inodes int64, err error) {
	type id struct{ dev, ino uint64 }
	seen := map[id]bool{}
	count := func(dev, ino uint64, blocks int64) {
		if !seen[id{dev, ino}] {
			seen[id{dev, ino}] = true
			bytes, inodes = bytes+blocks*512, inodes+1
		}
	}
	root, err := os.OpenRoot(v.data)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = root.Close() }()
	err = foreign.Walk(root, maxWatchDepth, func(e foreign.Entry) error {
		st := e.Info.Sys().(*syscall.Stat_t)
		count(st.Dev, st.Ino, st.Blocks)
		if bytes > v.cfg.Bytes || inodes > v.cfg.Inodes {
			return errOverflow // before the rest takes the host's time and memory
		}
		return nil
	})
	if errors.Is(err, foreign.ErrBig) {
		err = errOverflow
	}
	for _, pid := range pids {
		for _, st := range nameless(pid) {
			count(st.Dev, st.Ino, st.Blocks)
		}
	}
	return bytes, inodes, err
}

// nameless returns the files of overlays that a process has open and that no longer have a
// name. A process that is gone has none.
func nameless(pid int) []unix.Stat_t {
	overlays := map[string]bool{} // mount ids
	// Not by proc.Mounts: an agent that moves a mount point makes its line as long as it likes.
	table, _ := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	for line := range strings.Lines(string(table)) {
		mount, rest, _ := strings.Cut(line, " ")
		overlays[mount] = strings.Contains(rest, " - overlay ")
	}
	open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return nil
	}
	var found []unix.Stat_t
	for _, fd := range open {
		var st unix.Stat_t
		if unix.Stat(fd, &st) != nil || st.Nlink > 0 || st.Mode&unix.S_IFMT != unix.S_IFREG {
			continue
		}
		if overlays[proc.Field(fmt.Sprintf("/proc/%d/fdinfo/%s", pid, filepath.Base(fd)), "mnt_id:")] {
			found = append(found, st)
		}
	}
	return found
}
