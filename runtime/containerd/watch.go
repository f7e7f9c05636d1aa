package containerd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// watchInterval is the least time between two counts of a directory's contents,
// socketInterval that between two counts of the memory of sockets.
const (
	watchInterval  = 200 * time.Millisecond
	socketInterval = 50 * time.Millisecond
)

// uncounted returns a channel that is closed once the sandbox's connections use too much
// memory that no control group is charged for: more than 16 MiB and more than a sixteenth
// of the sandbox's memory limit.
func (b *Box) uncounted(ctx context.Context) <-chan struct{} {
	over, space := make(chan struct{}), b.netns
	limit := max(b.cfg.Limits.Memory/16, 16<<20)
	go func() {
		for {
			begun := time.Now()
			if bytes, err := space.Uncounted(); err == nil && bytes > limit { // an error means that the kernel lacks memory for a moment
				close(over)
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(max(socketInterval, 4*time.Since(begun))):
			}
		}
	}()
	return over
}

// overflow returns a channel that is closed once the contents of a layer that is only a
// directory exceed its size or cannot be counted. Other layers are bounded by the kernel,
// and the channel stays open.
func (b *Box) overflow(ctx context.Context) <-chan struct{} {
	over := make(chan struct{})
	v := b.layer
	if !v.folder {
		return over
	}
	go func() {
		for {
			begun := time.Now()
			pids, _ := b.group.Pids() // without them, only files that have a name are counted
			bytes, inodes, err := v.used(pids)
			if ctx.Err() == nil && (err != nil || bytes > v.cfg.Bytes || inodes > v.cfg.Inodes) {
				close(over)
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(max(watchInterval, 4*time.Since(begun))): // counting many files takes time
			}
		}
	}()
	return over
}

// maxWatchDepth bounds the directories of a layer that is watched. A walk opens each of
// them from the top.
const maxWatchDepth = 256

var errOverflow = errors.New("the directory holds more than it may")

// used counts what a directory holds: each file once, however many names it has, and files
// without a name that one of the processes has open. Files that are removed meanwhile do not
// count. The error is errOverflow as soon as it is more than the volume may hold.
func (v *volume) used(pids []int) (bytes, inodes int64, err error) {
	type id struct{ dev, ino uint64 }
	seen := map[id]bool{}
	count := func(dev, ino uint64, blocks int64) {
		if !seen[id{dev, ino}] {
			seen[id{dev, ino}] = true
			bytes, inodes = bytes+blocks*512, inodes+1
		}
	}
	root, err := os.OpenRoot(v.data) // by descriptors, since a path may be longer than the kernel accepts
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = root.Close() }()
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		var info fs.FileInfo
		if err == nil {
			info, err = d.Info()
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			st := info.Sys().(*syscall.Stat_t)
			count(st.Dev, st.Ino, st.Blocks)
		}
		if bytes > v.cfg.Bytes || inodes > v.cfg.Inodes || strings.Count(name, "/") > maxWatchDepth {
			return errOverflow // before the rest takes the host's time and memory
		}
		return err
	})
	for _, pid := range pids {
		for _, st := range nameless(pid) {
			count(st.Dev, st.Ino, st.Blocks)
		}
	}
	return bytes, inodes, err
}

// nameless returns the files of overlays that a process has open and that have no name any
// more. A process that is gone has none.
func nameless(pid int) []unix.Stat_t {
	overlays := overlayMounts(pid)
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
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%s", pid, filepath.Base(fd)))
		for line := range strings.Lines(string(text)) {
			if mount, ok := strings.CutPrefix(line, "mnt_id:"); ok && overlays[strings.TrimSpace(mount)] {
				found = append(found, st)
			}
		}
	}
	return found
}

// overlayMounts returns the ids of a process's overlay mounts (/proc/PID/mountinfo in
// proc(5)).
func overlayMounts(pid int) map[string]bool {
	ids := map[string]bool{}
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	for line := range strings.Lines(string(text)) {
		mount, rest, _ := strings.Cut(line, " ")
		if strings.Contains(rest, " - overlay ") {
			ids[mount] = true
		}
	}
	return ids
}
