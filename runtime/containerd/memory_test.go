package containerd_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/containerd"
)

// queue opens as many sockets as it can, fills them without reading, and prints how many
// bytes the kernel took.
const queue = `
import os, socket, sys, time
kind, kept, listeners, total, blob = sys.argv[1], [], [], 0, b"x" * 32768
listener = None
def pair():
    global listener
    if kind == "unix": return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    if kind == "udp":
        r = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); r.bind(("127.0.0.1", 0))
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(r.getsockname())
        return s, r
    if listener is None or kind == "unaccepted" and len(kept) % 100 == 0: # more than wait for one are refused
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0)); listener.listen(4096); listeners.append(listener)
    s = socket.socket(); s.connect(listener.getsockname())
    if kind == "unaccepted": return s, s
    return s, listener.accept()[0]
if kind in ("datagrams", "streams", "corked"): # first the sockets, for which the kernel refuses memory over a limit
    for _ in range(4):
        if os.fork() == 0: break
    else:
        for _ in range(4): os.wait()
        sys.exit()
    if kind == "datagrams":
        s, blob = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), b"x" * 65000
        for n in range(2000):
            r = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); r.bind(("127.0.0.1", 0)); kept.append(r)
        to = [r.getsockname() for r in kept]
        print(0, flush=True)
        for address in to: s.sendto(blob, address)
    elif kind == "corked":
        print(0, flush=True)
        for n in range(2500):
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(("127.0.0.1", 9)); kept.append(s)
            s.send(blob, socket.MSG_MORE)
    else:
        for n in range(950): kept.append(pair())
        for s, r in kept: s.setblocking(False)
        print(0, flush=True)
        for s, r in kept:
            try: s.send(blob)
            except OSError: pass
    time.sleep(3)
    sys.exit()
try:
    for n in range(1800):
        s, r = pair(); kept.append((s, r)); s.setblocking(False)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            for end in (s, r): end.setsockopt(socket.SOL_SOCKET, option, 1 << 24)
        try:
            for _ in range(400): total += s.send(blob)
        except OSError: pass
        if kind == "unaccepted": s.close()
        if n % 20 == 0: print(total, flush=True)
except (OSError, MemoryError): pass
print(total, flush=True)
time.sleep(1)
`

// TestSocketMemory: what a sandbox queues in sockets is bounded by its memory limit and,
// with cgroup v1, by 64 MiB for each of TCP and UDP. The host's count of the memory of all
// sockets must show it. Of connections that are not accepted, and of what the kernel accepts beyond
// the limit, some more is queued until sbench sees it. Others use processors and sockets, too, so
// that one good result in three is enough.
func TestSocketMemory(t *testing.T) {
	c := containerdtest.Open(t)
	kinds := []string{"unaccepted", "udp", "datagrams", "corked", "streams", "tcp", "unix"}
	if degraded, err := c.Degraded(); err != nil || slices.Contains(degraded, "memory") {
		t.Logf("without control groups nothing bounds other sockets, as docs/install.md says: %v %v", degraded, err)
		kinds = kinds[:1]
	}
	run, image := containerdtest.NewRun(t, c)
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			var err error
			for range 3 {
				if err = queueMuch(t, run, image, kind); err == nil {
					return
				}
				t.Log(err)
			}
			t.Error(err)
		})
	}
}

// queueMuch returns an error if a sandbox can queue more in sockets of a kind than its limit
// allows.
func queueMuch(t *testing.T, run *containerd.Run, image runtime.Image, kind string) error {
	t.Helper()
	limit := int64(256 << 20)
	if kind == "streams" { // more than 8000 of these are too much memory that is charged to nobody
		limit /= 2
	}
	bound := limit + limit/10
	if kind == "streams" || kind == "udp" || kind == "datagrams" { // the kernel accepts more, until sbench sees it
		bound = limit + limit/4
	}
	cfg := runtime.Config{Name: "sockets", Image: image, Workdir: "/tmp", Limits: runtime.DefaultLimits()}
	cfg.Limits.Memory = limit
	sandbox := create(t, run, cfg)
	defer func() { report(t, sandbox.Close(context.Background())) }() // the next one counts anew
	before, most := socketMemory(t), int64(0)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			most = max(most, socketMemory(t)-before)
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond): // the kernel's count can only be polled for
			}
		}
	}()
	exit, err := sandbox.Exec(t.Context(), runtime.Process{Args: []string{"python3", "-c", queue, kind}, Wall: wall})
	close(stop)
	<-done
	if err != nil {
		return err
	}
	lines := strings.Fields(exit.Stdout.String())
	if len(lines) == 0 {
		return fmt.Errorf("%v: %s", exit, exit.Stderr.String())
	}
	taken, err := strconv.ParseInt(lines[len(lines)-1], 10, 64)
	report(t, err)
	if kind == "udp" { // the kernel accepts datagrams and drops them
		taken = 0
	}
	t.Logf("took %d MB, the host's sockets %d MB; %v", taken>>20, most>>20, exit)
	if taken > limit || most > bound {
		return fmt.Errorf("the kernel took %d MB into sockets, the host has %d MB more for all sockets; %v", taken>>20, most>>20, exit)
	}
	if (kind == "unaccepted" || kind == "corked" || kind == "streams") && exit.Reason != runtime.OutOfMemory {
		return fmt.Errorf("%v with %d MB that the kernel does not bound", exit, most>>20)
	}
	return nil
}

// TestErrorQueue: a datagram that cannot be sent is not kept, although programs may ask for that.
func TestErrorQueue(t *testing.T) {
	const program = `
import socket
for family, address, level, option in (socket.AF_INET, "127.0.0.1", socket.SOL_IP, 11), (socket.AF_INET6, "::1", socket.IPPROTO_IPV6, 25):
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.setsockopt(level, option, 1)
    s.connect((address, 9))
    for n in range(3): # the second and third may also fail since nobody listens
        try: s.send(b"x" * (65535 if family == socket.AF_INET6 else 65520))
        except OSError as e: print(e.errno)
    try: s.recvmsg(1, 1000, socket.MSG_ERRQUEUE)
    except BlockingIOError: print("empty")
`
	c := containerdtest.Open(t)
	run, image := containerdtest.NewRun(t, c)
	sandbox := create(t, run, runtime.Config{Name: "errors", Image: image})
	exit, err := sandbox.Exec(t.Context(), runtime.Process{Args: []string{"python3", "-c", program}, Wall: wall})
	if got := exit.Stdout.String(); err != nil || strings.Count(got, "empty") != 2 || strings.Count(got, "90\n") < 2 {
		t.Errorf("%v, %v: %q %s", exit, err, got, exit.Stderr.String())
	}
}

// socketMemory returns how many bytes the TCP and UDP sockets of the whole host hold
// (/proc/net/sockstat in proc(5)).
func socketMemory(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/net/sockstat")
	report(t, err)
	var pages int64
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		for i, f := range fields {
			if f != "mem" || fields[0] != "TCP:" && fields[0] != "UDP:" {
				continue
			}
			var n int64
			_, err := fmt.Sscan(fields[i+1], &n)
			report(t, err)
			pages += n
		}
	}
	return pages * int64(os.Getpagesize())
}

// hold takes memory of one kind until it gets no more or is killed.
const hold = `
import ctypes, fcntl, mmap, os, sys
kind, kept = sys.argv[1], []
block = b"x" * (1 << 20)
def fill(fd):
    while True: os.write(fd, block)
try:
    if kind == "memory":
        while True: kept.append(bytearray(block))
    elif kind == "files in memory":
        for name in ("/tmp/x", "/dev/shm/x", "/run/x"):
            try: fill(os.open(name, os.O_CREAT | os.O_WRONLY))
            except OSError: pass
    elif kind == "memfd": fill(os.memfd_create("x"))
    elif kind == "page cache":
        for n in range(3):
            fd = os.open("/x", os.O_CREAT | os.O_TRUNC | os.O_RDWR)
            try: fill(fd)
            except OSError: pass
            os.close(fd)
    elif kind == "pipes":
        while True:
            r, w = os.pipe(); kept.append((r, w)); os.set_blocking(w, False)
            try: fcntl.fcntl(w, 1031, 1 << 20)
            except OSError: pass
            try: fill(w)
            except BlockingIOError: pass
    elif kind == "System V":
        libc = ctypes.CDLL(None)
        libc.shmat.restype = ctypes.c_void_p
        while True:
            segment = libc.shmget(0, 8 << 20, 0o1600)
            if segment < 0: break
            at = libc.shmat(segment, 0, 0)
            libc.shmctl(segment, 0, 0)
            ctypes.memset(at, 1, 8 << 20)
except (OSError, MemoryError): pass
`

// TestHostMemory: sandboxes that take all the memory they can get, each of another kind, never
// take more than the sum of their limits and a tenth from the host. Others use the host, too, so
// that one good result in three is enough.
func TestHostMemory(t *testing.T) {
	c := containerdtest.Open(t)
	kinds := []string{"unaccepted", "memory", "files in memory", "page cache", "System V", "memory", "udp", "tcp", "unix", "memfd", "pipes"}
	if degraded, err := c.Degraded(); err != nil || slices.Contains(degraded, "memory") {
		t.Logf("without control groups nothing bounds sockets, pipes and memfds, as docs/install.md says: %v %v", degraded, err)
		kinds = kinds[:6]
	}
	run, image := containerdtest.NewRun(t, c)
	limit := int64(192 << 20)
	if os.Getenv("SBENCH_SOAK") != "" {
		limit = 1 << 30
	}
	limit = min(limit, available(t)/int64(2*len(kinds)))
	allowed := limit * int64(len(kinds)) * 11 / 10
	var falls []string
	for range 3 {
		fall := hogMemory(t, run, image, kinds, limit)
		if fall <= allowed {
			t.Logf("%d sandboxes of %d MiB took %d MiB", len(kinds), limit>>20, fall>>20)
			return
		}
		falls = append(falls, strconv.FormatInt(fall>>20, 10))
	}
	t.Errorf("%d sandboxes of %d MiB took %s MiB", len(kinds), limit>>20, strings.Join(falls, ", "))
}

// hogMemory runs one sandbox for each kind at the same time, each of which fills its memory, and
// returns by how many bytes the host's available memory fell.
func hogMemory(t *testing.T, run *containerd.Run, image runtime.Image, kinds []string, limit int64) int64 {
	t.Helper()
	var sandboxes []runtime.Sandbox
	for range kinds {
		cfg := runtime.Config{Name: "hog", Image: image, Workdir: "/tmp", Persistent: true, WritableRoot: true, Limits: runtime.DefaultLimits()}
		cfg.Limits.Memory, cfg.Limits.LayerBytes = limit, 128<<20
		sandbox, err := run.Create(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { report(t, sandbox.Close(context.Background())) }()
		sandboxes = append(sandboxes, sandbox)
	}
	rounds := "1"
	if os.Getenv("SBENCH_SOAK") != "" {
		rounds = "5"
	}
	before, least := available(t), int64(math.MaxInt64)
	var hogs sync.WaitGroup
	for i, kind := range kinds {
		script := hold
		if slices.Contains([]string{"unaccepted", "udp", "tcp", "unix"}, kind) {
			script = queue
		}
		hogs.Go(func() {
			p := runtime.Process{Args: []string{"bash", "-c", `for round in $(seq "$2"); do python3 -c "$0" "$1"; done; true`, script, kind, rounds}, Wall: 5 * time.Minute}
			if _, err := sandboxes[i].Exec(t.Context(), p); err != nil {
				t.Errorf("%s: %v", kind, err)
			}
		})
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		hogs.Wait()
	}()
	for {
		least = min(least, available(t))
		select {
		case <-ended:
			return before - least
		case <-time.After(20 * time.Millisecond): // the kernel's count can only be polled for
		}
	}
}

// available returns the host's MemAvailable, in bytes (/proc/meminfo in proc(5)).
func available(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "MemAvailable:")
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// TestNotItsOwnMemory: a process that the kernel kills because a control group above the sandbox's
// is out of memory, as when the host is, has not reached a limit of its own. Files that it has
// written say nothing about that, although the kernel counts them as its memory.
func TestNotItsOwnMemory(t *testing.T) {
	c := containerdtest.Open(t)
	degraded, err := c.Degraded()
	if err != nil || slices.Contains(degraded, "memory") {
		t.Logf("without control groups, nobody tells why a process was killed: %v %v", degraded, err)
		return
	}
	files := []int{0, 260} // MiB
	if slices.Contains(degraded, "disk") {
		files = files[:1] // more than the limit cannot be written, since the files are in memory
	}
	run, image := containerdtest.NewRun(t, c)
	limits := runtime.DefaultLimits()
	limits.Memory, limits.LayerBytes = 200<<20, 512<<20
	for _, written := range files {
		sandbox := create(t, run, runtime.Config{Name: "victim", Image: image, Limits: limits, WritableRoot: true})
		script := `
import os, sys
with open("/big", "wb") as f:
    for i in range(int(sys.argv[1])): f.write(b"x" * (1 << 20))
    f.flush()
    os.fsync(f.fileno())
print("ready", flush=True)
sys.stdin.read()
b = b"x" * (100 << 20)
`
		report(t, limitAbove(run.ID(), "memory", 1<<30))
		exit, err := onceReady(t, sandbox, wall, func() error { return limitAbove(run.ID(), "memory", 60<<20) }, script, strconv.Itoa(written))
		if !errors.Is(err, runtime.ErrUnavailable) || !strings.Contains(err.Error(), "the host ran out of memory") {
			t.Errorf("after %d MiB: %v, %v, %s", written, err, exit, exit.Stderr.String())
		}
	}
}

// TestNotItsOwnProcesses: a process that may make no others because of a control group above the
// sandbox's has not reached a limit of its own.
func TestNotItsOwnProcesses(t *testing.T) {
	c := containerdtest.Open(t)
	if degraded, err := c.Degraded(); err != nil || slices.Contains(degraded, "pids") {
		t.Logf("without control groups, none is above: %v %v", degraded, err)
		return
	}
	run, image := containerdtest.NewRun(t, c)
	sandbox := create(t, run, runtime.Config{Name: "victim", Image: image})
	script := `
import os, sys, time
print("ready", flush=True)
sys.stdin.read()
try:
    for i in range(40):
        if os.fork() == 0: time.sleep(300)
except OSError:
    if "wait" not in sys.argv: raise
    time.sleep(300)
`
	above := func() error { return limitAbove(run.ID(), "pids", 20) }
	exit, err := onceReady(t, sandbox, wall, above, script)
	switch {
	case errors.Is(err, runtime.ErrUnavailable) && strings.Contains(err.Error(), "refused it processes, of which it had 2"):
	case err == nil && exit.Reason == runtime.Exited && !slices.Contains(exit.Reached, runtime.LimitPids): // from Linux 6.11 on, with version 2
	default:
		t.Errorf("%v, %v %v, %s", err, exit, exit.Reached, exit.Stderr.String())
	}
	// What ended it for another reason ends it all the same.
	waiting := create(t, run, runtime.Config{Name: "waits", Image: image})
	exit, err = onceReady(t, waiting, time.Second*slowness(t), above, script, "wait")
	if err != nil || exit.Reason != runtime.WallTime || !slices.Equal(exit.Reached, []runtime.Limit{runtime.LimitWall}) {
		t.Errorf("%v, %v %v, %s", err, exit, exit.Reached, exit.Stderr.String())
	}
}

// onceReady runs a script of Python's, for at most the given time, that reads its standard input to
// the end after it has written its first word, which happens after event.
func onceReady(t *testing.T, sandbox runtime.Sandbox, within time.Duration, event func() error, script string, args ...string) (runtime.Exit, error) {
	t.Helper()
	in, started := io.Pipe()
	first := sync.OnceFunc(func() { report(t, errors.Join(event(), started.Close())) })
	return sandbox.Exec(context.Background(), runtime.Process{
		Args: append([]string{"python3", "-c", script}, args...), Wall: within, Stdin: in, OutputBytes: 1 << 16,
		Stdout: writer(func(b []byte) (int, error) { first(); return len(b), nil }),
	})
}

// limitAbove limits the memory, in bytes, or the number of processes, of the control group above a
// run's sandboxes.
func limitAbove(run, controller string, most int64) error {
	limited := errors.New("no control group of the run")
	err := filepath.WalkDir("/sys/fs/cgroup", func(dir string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() || entry.Name() != "sbench-"+run {
			return nil // a group that ended meanwhile
		}
		for _, name := range []string{controller + ".max", controller + ".limit_in_bytes"} {
			if err := os.WriteFile(filepath.Join(dir, name), strconv.AppendInt(nil, most, 10), 0); err == nil {
				limited = nil
			}
		}
		return fs.SkipDir
	})
	return errors.Join(limited, err)
}
