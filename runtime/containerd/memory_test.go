package containerd_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/containerd/containerdtest"
)

// queue fills sockets that nobody reads, as many as it may have, and says how many bytes
// the kernel took.
const queue = `
import socket, sys, time
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

// TestSocketMemory: what a sandbox queues in sockets is bounded by its memory, and with
// version 1 of control groups by 64 MiB for each of TCP and UDP, as the host's own count
// of all sockets' memory shows.
func TestSocketMemory(t *testing.T) {
	c := containerdtest.Open(t)
	kinds := []string{"unaccepted", "udp", "tcp", "unix"}
	if degraded, err := c.Degraded(); err != nil || slices.Contains(degraded, "memory") {
		t.Logf("without control groups nothing bounds other sockets, as docs/rootless.md says: %v %v", degraded, err)
		kinds = kinds[:1]
	}
	run, image := containerdtest.NewRun(t, c)
	const limit = 256 << 20
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			cfg := runtime.Config{Name: "sockets", Image: image, Workdir: "/tmp", Limits: runtime.DefaultLimits()}
			cfg.Limits.Memory = limit
			box := create(t, run, cfg)
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
			exit, err := box.Exec(t.Context(), runtime.Process{Args: []string{"python3", "-c", queue, kind}, Wall: wall})
			close(stop)
			<-done
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Fields(exit.Stdout.String())
			if len(lines) == 0 {
				t.Fatalf("%v: %s", exit, exit.Stderr.String())
			}
			taken, err := strconv.ParseInt(lines[len(lines)-1], 10, 64)
			report(t, err)
			if kind == "udp" { // the kernel takes and drops
				taken = 0
			}
			if taken > limit || most > limit+limit/10 {
				t.Errorf("the kernel took %d MB into sockets, the host has %d MB more for all sockets; %v", taken>>20, most>>20, exit)
			}
			if kind == "unaccepted" && exit.Reason != runtime.OutOfMemory {
				t.Errorf("%v with %d MB that are counted to nobody", exit, most>>20)
			}
			t.Logf("took %d MB, the host's sockets %d MB; %v", taken>>20, most>>20, exit)
		})
	}
}

// socketMemory is what TCP and UDP sockets of the whole host hold, in bytes (proc(5),
// /proc/net/sockstat).
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
