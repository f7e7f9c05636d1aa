// Package proc finds out from /proc what the processes of this host are and what is mounted,
// and signals processes without mistaking one for another that has the same id later.
package proc

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Text returns the text of a small file, such as one of a setting in /proc/sys, without
// surrounding space; "" if it cannot be read.
func Text(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// Field returns what follows key at the beginning of a line of a small file, without surrounding space; ""
// if there is no such line.
func Field(file, key string) string {
	text, _ := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, key); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Stat is the content of /proc/PID/stat (proc(5)) from field 3, the state, on.
type Stat []string

// ReadStat returns the stat of a process. It fails if the process is gone.
func ReadStat(pid int) (Stat, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, fmt.Errorf("process %d has ended: %w", pid, err)
	}
	// The name before the last parenthesis may contain any character.
	s := Stat(strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])))
	if len(s) < 22 {
		return nil, fmt.Errorf("process %d has a stat of %d fields", pid, len(s))
	}
	return s, nil
}

// Number returns the field with this number in proc(5), or 0 if it is not an integer.
func (s Stat) Number(field int) int64 {
	n, err := strconv.ParseInt(s[field-3], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// ticks is the number of clock ticks per second in /proc/PID/stat (proc(5)): USER_HZ,
// which is 100 on every architecture that Go supports.
const ticks = 100

// Time returns the sum of the fields with these numbers in proc(5), which are times in ticks.
func (s Stat) Time(fields ...int) (sum time.Duration) {
	for _, field := range fields {
		sum += time.Duration(s.Number(field)) * time.Second / ticks
	}
	return sum
}

// Zombie reports whether the state is that of a zombie. If other threads of the process
// live, that means only that its first thread has ended.
func (s Stat) Zombie() bool { return s[0] == "Z" }

// Ended reports whether the process has ended and only awaits its parent.
func (s Stat) Ended() bool { return s[0] == "X" || s.Zombie() && s.Number(20) <= 1 }

// Alive reports whether the process pid exists and has not ended. If it cannot be examined,
// for instance for want of file descriptors, it counts as alive.
func Alive(pid int) bool {
	s, err := ReadStat(pid)
	if err != nil {
		return !ended(err)
	}
	return !s.Ended()
}

// Stopped reports whether a signal or a tracer has stopped all threads of a process; a thread that has ended counts as
// stopped. threads lists the threads with the number of their context switches: two calls return the same text only
// if no thread has run in between.
func Stopped(pid int) (threads string, all bool) {
	dir := fmt.Sprintf("/proc/%d/task", pid)
	entries, err := os.ReadDir(dir)
	all = err == nil || ended(err)
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name(), "status"))
		all = all && (err == nil || ended(err))
		for line := range strings.Lines(string(text)) {
			switch key, value, _ := strings.Cut(line, ":\t"); key {
			case "State":
				all = all && strings.ContainsAny(value[:1], "TtZX")
			case "Pid", "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches":
				threads += value
			}
		}
	}
	return threads, all
}

// ended reports whether reading about a process failed because it has ended.
func ended(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) }

// All lists the ids of all processes in this process's PID namespace.
func All() ([]int, error) {
	var pids []int
	err := Each(func(pid int) { pids = append(pids, pid) })
	return pids, err
}

// Each calls f with the ids of all processes in this process's PID namespace. It lists few at a
// time, so that few of them fork or end between listing and f.
func Each(f func(pid int)) error {
	dir, err := os.Open("/proc")
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	for {
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

// Args returns the arguments of a process, none if it is gone.
func Args(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(text) == 0 {
		return nil
	}
	return strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")
}

// Namespace identifies, as long as it exists, the namespace of a kind from namespaces(7), such
// as mnt or pid, that a process is in; pid 0 is this process. It fails if the process is gone or
// belongs to another user.
func Namespace(pid int, kind string) (string, error) {
	if pid == 0 {
		return os.Readlink("/proc/self/ns/" + kind)
	}
	return os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
}

// SharesNamespace reports whether two processes are in the same namespace of a kind; see
// [Namespace].
func SharesNamespace(pid, other int, kind string) bool {
	one, err1 := Namespace(pid, kind)
	two, err2 := Namespace(other, kind)
	return err1 == nil && err2 == nil && one == two
}

// Ours reports whether a process has this process's effective user, and is in its PID namespace.
// One in a sandbox is not, whatever its arguments say.
func Ours(pid int) bool {
	var st unix.Stat_t
	return SharesNamespace(pid, 0, "pid") && unix.Stat(fmt.Sprintf("/proc/%d", pid), &st) == nil && int(st.Uid) == os.Geteuid()
}

// Signal sends sig to the process pid if still reports true once a pidfd keeps the id from
// being reused. The error is unix.ESRCH if it does not, or if the process is gone.
func Signal(pid int, sig unix.Signal, still func() bool) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if !still() {
		return unix.ESRCH
	}
	return unix.PidfdSendSignal(fd, sig, nil, 0)
}

// SignalAll sends sig to each of pids for which still reports true; see [Signal]. It skips
// spare (0 spares none), process 1 and ids of no process here.
func SignalAll(pids []int, spare int, sig unix.Signal, still func(pid int) bool) error {
	for _, pid := range pids {
		if pid == spare || pid <= 1 {
			continue
		}
		if err := Signal(pid, sig, func() bool { return still(pid) }); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("signal %d: %w", pid, err)
		}
	}
	return nil
}

// KillAll calls kill with the processes that pids returns, except spare (0 spares none), until there are none.
// It fails if some are left when ctx is done. pass counts the calls.
func KillAll(ctx context.Context, spare int, pids func() ([]int, error), kill func(pass int, left []int) error) error {
	for pass := 0; ; pass++ {
		left, err := pids()
		if err != nil {
			return err
		}
		left = slices.DeleteFunc(left, func(p int) bool { return p == spare })
		if len(left) == 0 {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%d processes survive: %w", len(left), context.Cause(ctx))
		}
		if err := kill(pass, left); err != nil {
			return err
		}
		time.Sleep(time.Millisecond << min(pass, 5))
	}
}

// Listener returns the process that listens on the UNIX socket at address (unix(7),
// SO_PEERCRED). It gives up after timeout.
func Listener(address string, timeout time.Duration) (int, error) {
	conn, err := net.DialTimeout("unix", address, timeout)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	var cred *unix.Ucred
	err = WithDescriptor(conn.(syscall.Conn), func(fd int) (err error) {
		cred, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		return err
	})
	if err != nil {
		return 0, err
	}
	return int(cred.Pid), nil
}

// WithDescriptor calls f with the descriptor of a file or connection. Unlike its method Fd, this does not make it blocking.
func WithDescriptor(of syscall.Conn, f func(fd int) error) error {
	conn, err := of.SyscallConn()
	if err != nil {
		return err
	}
	controlErr := conn.Control(func(fd uintptr) { err = f(int(fd)) })
	return cmp.Or(controlErr, err)
}
