package watchdog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// process is what one look finds of a process.
type process struct {
	pid     int
	dead    bool // a zombie: it only counts as a process until its parent looks
	threads int64
	memory  int64 // bytes, with what it shares
	size    int64 // bytes of address space
	cpu     time.Duration
}

// ticks is how many clock ticks /proc/PID/stat has for a second (proc(5)):
// USER_HZ, which is 100 on every architecture that Go knows.
const ticks = 100

// pidNamespace is the inode of a process's pid namespace; 0 asks for our own.
func pidNamespace(pid int) (uint64, error) {
	name := "/proc/self/ns/pid"
	if pid != 0 {
		name = fmt.Sprintf("/proc/%d/ns/pid", pid)
	}
	link, err := os.Readlink(name)
	if err != nil {
		return 0, err
	}
	inode, ok := strings.CutPrefix(strings.TrimSuffix(link, "]"), "pid:[")
	if !ok {
		return 0, fmt.Errorf("%s leads to %q", name, link)
	}
	return strconv.ParseUint(inode, 10, 64)
}

// processes reads all processes, dead ones too, whose pid namespace is wanted. It
// first sees which there are, quickly, so that those that end while the others are
// read are counted as well.
func processes(wanted func(uint64) bool) (map[uint64][]process, error) {
	pids := map[uint64][]int{}
	err := each(func(pid int) {
		// An error: it is gone, or another user's.
		if space, err := pidNamespace(pid); err == nil && wanted(space) {
			pids[space] = append(pids[space], pid)
		}
	})
	found := map[uint64][]process{}
	for space, list := range pids {
		for _, pid := range list {
			found[space] = append(found[space], readProcess(pid))
		}
	}
	return found, err
}

// members lists the living processes of one pid namespace, and reads no more of them
// than it must: they may be many, and busy.
func members(space uint64) ([]int, error) {
	var pids []int
	err := each(func(pid int) {
		if s, err := pidNamespace(pid); err == nil && s == space {
			if _, dead := readStat(pid); !dead {
				pids = append(pids, pid)
			}
		}
	})
	return pids, err
}

func each(f func(pid int)) error {
	dir, err := os.Open("/proc")
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	for { // a few at a time: who forks and ends has little time to be elsewhere
		names, err := dir.Readdirnames(16)
		for _, name := range names {
			if pid, err := strconv.Atoi(name); err == nil {
				f(pid)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// stat is what /proc/PID/stat says (proc(5)), from the state, field 3, on.
type stat []string

// number is a field by its number in proc(5), 0 if it is none.
func (s stat) number(field int) int64 {
	n, err := strconv.ParseInt(s[field-3], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// readStat says whether a process is dead, too: gone, or a zombie. One whose first
// thread has ended is a zombie with living threads.
func readStat(pid int) (s stat, dead bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	at := bytes.LastIndex(text, []byte(") ")) // the name before it may hold anything
	if err != nil || at < 0 {
		return nil, true
	}
	s = strings.Fields(string(text[at+2:]))
	if len(s) < 22 {
		return nil, true
	}
	return s, s[0] == "X" || s[0] == "Z" && s.number(20) <= 1
}

// readProcess reads what a look wants to know.
func readProcess(pid int) process {
	s, dead := readStat(pid)
	if s == nil {
		return process{pid: pid, dead: true, threads: 1}
	}
	p := process{pid: pid, dead: dead, threads: max(s.number(20), 1), cpu: time.Duration(s.number(14)+s.number(15)) * time.Second / ticks}
	// Exact, but of the first thread alone.
	if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid)); err == nil {
		first, _, _ := strings.Cut(string(text), " ")
		if ns, err := strconv.ParseInt(first, 10, 64); err == nil {
			p.cpu = max(p.cpu, time.Duration(ns))
		}
	}
	if !dead {
		p.size = s.number(23)
		p.memory = status(alive(pid, s[0]))
	}
	return p
}

// alive names the directory in /proc that tells of a process's memory: that of a
// living thread, since a first thread that has ended has none.
func alive(pid int, state string) string {
	dir := fmt.Sprintf("/proc/%d", pid)
	if state != "Z" {
		return dir
	}
	threads, err := filepath.Glob(dir + "/task/[0-9]*")
	if err != nil {
		return dir
	}
	for _, thread := range threads {
		if text, err := os.ReadFile(thread + "/status"); err == nil && bytes.Contains(text, []byte("\nVmRSS:")) {
			return thread
		}
	}
	return dir
}

// status sums what a process has in memory or swap and no file holds, and the page
// tables for it.
func status(dir string) int64 {
	text, err := os.ReadFile(dir + "/status")
	if err != nil {
		return 0
	}
	return kilobytes(text, "RssAnon:", "RssShmem:", "VmSwap:", "VmPTE:")
}

// exactMemory sums the same with what is shared divided among those who share it,
// and with an address space that several processes have, as after vfork(2), once.
// It takes the kernel time, and so it is asked only in doubt.
func exactMemory(ps []process) int64 {
	var sum int64
	counted := map[int64][]int{} // by size, to compare few
	for _, p := range ps {
		if p.dead || slices.ContainsFunc(counted[p.size], func(pid int) bool { return sameMemory(p.pid, pid) }) {
			continue
		}
		counted[p.size] = append(counted[p.size], p.pid)
		sum += share(p)
	}
	return sum
}

// share is a process's part.
func share(p process) int64 {
	s, _ := readStat(p.pid)
	if s == nil {
		return 0
	}
	dir := alive(p.pid, s[0])
	text, err := os.ReadFile(dir + "/smaps_rollup")
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH): // gone, or its memory is
		return 0
	case err != nil:
		return p.memory
	}
	sum := kilobytes(text, "Pss_Anon:", "Pss_Shmem:", "SwapPss:")
	if text, err = os.ReadFile(dir + "/status"); err == nil {
		sum += kilobytes(text, "VmPTE:")
	}
	return sum
}

// sameMemory says whether two processes have one address space (kcmp(2)).
func sameMemory(a, b int) bool {
	const kcmpVM = 1
	order, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), kcmpVM, 0, 0, 0)
	return errno == 0 && order == 0
}

// kilobytes sums the values of some lines of the form "Name:  1 kB", in bytes.
func kilobytes(text []byte, names ...string) int64 {
	var sum int64
	for line := range bytes.Lines(text) {
		for _, name := range names {
			if rest, ok := bytes.CutPrefix(line, []byte(name)); ok {
				n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(string(rest)), " kB"), 10, 64)
				if err == nil {
					sum += n << 10
				}
			}
		}
	}
	return sum
}
