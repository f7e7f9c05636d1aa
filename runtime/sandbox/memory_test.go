package sandbox_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime"
)

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
		must.Report(t, limitAbove(run.ID(), "memory", 1<<30))
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
	first := sync.OnceFunc(func() { must.Report(t, errors.Join(event(), started.Close())) })
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
