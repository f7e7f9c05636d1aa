package proc

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/moby/sys/mountinfo"
)

// Mounts reads a table of mounts, such as /proc/self/mountinfo (proc(5)), parents first; a nil
// filter takes all. It skips lines that are too long for the library, which any user of the
// host can cause. No mount that sbench looks for has one.
func Mounts(table string, filter mountinfo.FilterFunc) ([]*mountinfo.Info, error) {
	text, err := os.ReadFile(table)
	if err != nil {
		return nil, fmt.Errorf("read the table of mounts: %w", err)
	}
	var short []byte
	for line := range bytes.Lines(text) {
		if len(line) < bufio.MaxScanTokenSize {
			short = append(short, line...)
		}
	}
	found, err := mountinfo.GetMountsFromReader(bytes.NewReader(short), filter)
	if err != nil {
		return nil, fmt.Errorf("read the table of mounts: %w", err)
	}
	return found, nil
}

// SharesDirectory reports whether a directory is the same in the mount namespace of a process,
// and what is mounted in it on either side appears on the other
// (mount_namespaces(7), shared subtrees).
func SharesDirectory(pid int, dir string) bool {
	var ours, theirs unix.Stat_t
	if unix.Stat(dir, &ours) != nil || unix.Stat(fmt.Sprintf("/proc/%d/root%s", pid, dir), &theirs) != nil || ours.Dev != theirs.Dev || ours.Ino != theirs.Ino {
		return false
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	group := peerGroup("/proc/self/mountinfo", dir)
	return group != "" && group == peerGroup(fmt.Sprintf("/proc/%d/mountinfo", pid), dir)
}

// peerGroup returns the peer group of the mount that a directory is in; "" if it has none.
func peerGroup(table, dir string) string {
	mounts, err := Mounts(table, func(m *mountinfo.Info) (skip, stop bool) {
		return !strings.HasPrefix(dir+"/", strings.TrimSuffix(m.Mountpoint, "/")+"/"), false
	})
	if err != nil || len(mounts) == 0 {
		return ""
	}
	at := mounts[0]
	for _, m := range mounts { // the last of those that cover each other
		if len(m.Mountpoint) >= len(at.Mountpoint) {
			at = m
		}
	}
	for option := range strings.FieldsSeq(at.Optional) {
		if strings.HasPrefix(option, "shared:") {
			return option
		}
	}
	return ""
}
