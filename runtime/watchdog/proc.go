package watchdog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/proc"
)

// process is what one reading tells about a process.
type process struct {
	pid     int
	dead    bool // gone or a zombie, which has no memory but counts as a process
	threads int64
	memory  int64 // bytes, including shared memory
	size    int64 // bytes of address space
	cpu     time.Duration
}

// processes reads all processes, including dead ones, in the PID namespaces that are wanted. It
// lists all before reading the first, so that processes that end meanwhile count, too.
func processes(wanted func(space string) bool) (map[string][]process, error) {
	pids := map[string][]int{}
	err := proc.Each(func(pid int) {
		if space, err := proc.Namespace(pid, "pid"); err == nil && wanted(space) {
			pids[space] = append(pids[space], pid)
		}
	})
	found := map[string][]process{}
	for space, list := range pids {
		for _, pid := range list {
			found[space] = append(found[space], readProcess(pid))
		}
	}
	return found, err
}

// readProcess reads what the watchdog needs to know about a process.
func readProcess(pid int) process {
	s, err := proc.ReadStat(pid)
	if err != nil {
		return process{pid: pid, dead: true, threads: 1}
	}
	p := process{pid: pid, dead: s.Ended(), threads: max(s.Number(20), 1), cpu: s.Time(14, 15)}
	// More exact than stat, but only for the first thread.
	if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid)); err == nil {
		first, _, _ := strings.Cut(string(text), " ")
		if ns, err := strconv.ParseInt(first, 10, 64); err == nil {
			p.cpu = max(p.cpu, time.Duration(ns))
		}
	}
	if !p.dead {
		p.size = s.Number(23)
		// Memory that no file on disk backs, resident or swapped, and the page tables. An error
		// means that the process is gone.
		p.memory, _ = kilobytes(alive(pid, s)+"/status", "RssAnon:", "RssShmem:", "VmSwap:", "VmPTE:")
	}
	return p
}

// alive returns the directory in /proc that shows a process's memory. If the first thread
// has ended, which then shows none, it is another thread's.
func alive(pid int, s proc.Stat) string {
	dir := fmt.Sprintf("/proc/%d", pid)
	if !s.Zombie() {
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

// exactMemory sums the same, but divides shared memory among its processes, and counts an
// address space used by several processes, as after vfork(2), once. That is slow, so it is
// used only if the simple sum exceeds the limit.
func exactMemory(ps []process) int64 {
	var sum int64
	counted := map[int64][]int{} // ids by size, so that few pairs need comparing
	for _, p := range ps {
		if p.dead || slices.ContainsFunc(counted[p.size], func(pid int) bool { return sameMemory(p.pid, pid) }) {
			continue
		}
		counted[p.size] = append(counted[p.size], p.pid)
		sum += share(p)
	}
	return sum
}

// share returns a process's part of the memory.
func share(p process) int64 {
	s, err := proc.ReadStat(p.pid)
	if err != nil {
		return 0
	}
	dir := alive(p.pid, s)
	memory, err := kilobytes(dir+"/smaps_rollup", "Pss_Anon:", "Pss_Shmem:", "SwapPss:")
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH): // the process or its memory is gone
		return 0
	case err != nil:
		return p.memory
	}
	tables, _ := kilobytes(dir+"/status", "VmPTE:")
	return memory + tables
}

// sameMemory reports whether two processes share an address space (kcmp(2)).
func sameMemory(a, b int) bool {
	const kcmpVM = 1
	order, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), kcmpVM, 0, 0, 0)
	return errno == 0 && order == 0
}

// kilobytes sums the values, in bytes, of the named lines of a file, which have the form
// "Name:  1 kB".
func kilobytes(file string, names ...string) (sum int64, err error) {
	text, err := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 3 && slices.Contains(names, fields[0]) {
			if n, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
				sum += n << 10
			}
		}
	}
	return sum, err
}
