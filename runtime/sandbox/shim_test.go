package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/host"
	"github.com/securebench/sbench/runtime/images"
	"github.com/securebench/sbench/runtime/proc"
	"github.com/securebench/sbench/runtime/sandbox"
	"github.com/securebench/sbench/runtime/shim"
)

// newRun makes a run, which the caller closes.
func newRun(t *testing.T, opts host.Options) (*host.Host, *sandbox.Engine, runtime.Image) {
	t.Helper()
	c := containerdtest.OpenWith(t, opts)
	run, err := c.NewRun(t.Context())
	must.Do(t, err)
	image, err := c.Images.Get(t.Context(), containerdtest.Image, images.PullNever)
	must.Report(t, err)
	return c, run, image
}

// servers returns the pids of the servers of a run's shim.
func servers(t *testing.T, run string) []int {
	t.Helper()
	pids, err := proc.All()
	must.Report(t, err)
	return slices.DeleteFunc(pids, func(pid int) bool {
		args := proc.Args(pid)
		at := slices.Index(args, "-id")
		return len(args) == 0 || filepath.Base(args[0]) != shim.Program || args[len(args)-1] != "serve" || at < 0 || !strings.HasPrefix(args[at+1], run+"-")
	})
}

// TestOneServerForARun: the sandboxes of a run have one process between them and the OCI
// runtime, however many there are at a time, and it ends with the run.
func TestOneServerForARun(t *testing.T) {
	ctx := context.Background()
	c, run, image := newRun(t, containerdtest.Options())
	var wg sync.WaitGroup
	sandboxes := make([]runtime.Sandbox, 8)
	for i := range sandboxes {
		wg.Go(func() {
			var err error
			sandboxes[i], err = run.Create(ctx, runtime.Config{Name: "one of many", Image: image, Persistent: true, Limits: runtime.DefaultLimits()})
			must.Report(t, err)
		})
	}
	wg.Wait()
	found := servers(t, run.ID())
	if len(found) != 1 {
		t.Fatalf("the servers %v, want one", found)
	}
	// The daemon's variables, of which some change what runc does, end here.
	variables := must.Read(t, fmt.Sprintf("/proc/%d/environ", found[0]))
	for name := range strings.SplitSeq(strings.TrimRight(string(variables), "\x00"), "\x00") {
		name, _, _ = strings.Cut(name, "=")
		if !slices.Contains([]string{"PATH", "HOME", "LANG", "XDG_RUNTIME_DIR", "GOMAXPROCS"}, name) {
			t.Errorf("the server has the variable %s", name)
		}
	}
	sockets := must.Glob(t, shim.Socket(c.Address(), run.ID()+"-*"))
	for _, socket := range sockets {
		if info, err := os.Stat(socket); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("the socket: %v, %v", info, err)
		}
	}
	if len(sockets) != 1 {
		t.Errorf("the sockets %v, want one", sockets)
	}
	for _, s := range sandboxes {
		if s != nil {
			must.Report(t, s.Close(ctx))
		}
	}
	must.Report(t, run.Close(ctx))
	goneWithRun(t, c, run.ID())
}

// goneWithRun checks that nothing of a run is left but what the daemon removes in the
// background.
func goneWithRun(t *testing.T, c *host.Host, run string) {
	t.Helper()
	if found := servers(t, run); len(found) != 0 {
		t.Errorf("the servers %v are left", found)
	}
	for _, pattern := range []string{
		shim.Socket(c.Address(), run+"-*"), filepath.Join(filepath.Dir(c.Address()), "state/io.containerd.runtime.v2.task", "*", run+"-*"), "/sys/fs/cgroup/*/sbench-" + run, "/sys/fs/cgroup/sbench-" + run,
	} {
		must.Await(t, "the end of "+pattern, func() bool { return len(entries(t, pattern)) == 0 })
	}
}

// entries returns what matches a pattern, without directories in memory that crun takes for control
// groups; see scripts/without-hybrid.sh.
func entries(t *testing.T, pattern string) []string {
	t.Helper()
	found := must.Glob(t, pattern)
	return slices.DeleteFunc(found, func(path string) bool {
		var fs unix.Statfs_t
		return strings.HasPrefix(path, "/sys/") && unix.Statfs(path, &fs) == nil && fs.Type == unix.TMPFS_MAGIC
	})
}

// TestServerKilled: when the server is killed, the sandboxes that it serves fail with an
// error that is nobody's verdict, and are removed; the next one gets a new server.
func TestServerKilled(t *testing.T) {
	ctx := context.Background()
	for _, state := range []struct {
		name             string
		persistent, runs bool
	}{
		{"no sandbox", false, false}, {"an idle sandbox", true, false}, {"a process", false, true}, {"an added process", true, true},
	} {
		t.Run(state.name, func(t *testing.T) {
			c, run, image := newRun(t, containerdtest.Options())
			life := sbenchLife(run, runtime.Config{Name: "life", Image: image, Limits: runtime.DefaultLimits()})
			must.Report(t, life(0))
			sandbox := create(t, run, runtime.Config{Name: "victim", Image: image, Persistent: state.persistent})
			if !state.runs {
				killServers(t, run.ID())
			} else if exit, err := whileItRuns(sandbox, "60", func() { killServers(t, run.ID()) }); err == nil {
				t.Errorf("its process has ended with %v", exit)
			}
			must.Report(t, life(1))
			must.Report(t, sandbox.Close(ctx))
			must.Report(t, life(2))
			must.Report(t, run.Close(ctx))
			goneWithRun(t, c, run.ID())
		})
	}
}

// whileItRuns runs a process that sleeps, and calls event once it runs.
func whileItRuns(sandbox runtime.Sandbox, seconds string, event func()) (runtime.Exit, error) {
	running := writer(func(b []byte) (int, error) { event(); return len(b), nil })
	return sandbox.Exec(context.Background(), runtime.Process{Args: []string{"sh", "-c", "echo runs; exec sleep " + seconds}, Wall: wall, Stdout: running})
}

func killServers(t *testing.T, run string) {
	t.Helper()
	found := servers(t, run)
	if len(found) == 0 {
		t.Error("no server to be killed")
	}
	for _, pid := range found {
		must.Report(t, unix.Kill(pid, unix.SIGKILL))
	}
}

// TestServerKilledAnytime: however the kills of the server fall, every life of a sandbox ends
// with its own result or an error, within its time, and nothing is left.
func TestServerKilledAnytime(t *testing.T) {
	kills := 12
	if os.Getenv("SBENCH_SOAK") != "" {
		kills = 300
	}
	ctx := context.Background()
	c, run, image := newRun(t, containerdtest.Options())
	var wg sync.WaitGroup
	done := make(chan struct{})
	var mu sync.Mutex
	lived, failed := 0, 0
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				err := oddLife(ctx, run, image)
				if errors.Is(err, errOtherEnd) {
					t.Error(err)
				}
				mu.Lock()
				if err == nil {
					lived++
				} else {
					failed++
				}
				mu.Unlock()
			}
		})
	}
	for range kills {
		time.Sleep(time.Duration(rand.IntN(1000)) * time.Millisecond)
		for _, pid := range servers(t, run.ID()) {
			_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
		}
	}
	close(done)
	wg.Wait()
	t.Logf("%d lives, %d failures", lived, failed)
	if failed == 0 {
		t.Error("no kill has hit")
	}
	must.Report(t, oddLife(ctx, run, image))
	must.Report(t, run.Close(ctx))
	goneWithRun(t, c, run.ID())
}

var errOtherEnd = errors.New("a killed shim has changed how a process ended")

// oddLife is a life whose process exits with 7, and an error if it does not.
func oddLife(ctx context.Context, run *sandbox.Engine, image runtime.Image) error {
	sandbox, err := run.Create(ctx, runtime.Config{Name: "odd", Image: image, Limits: runtime.DefaultLimits()})
	if err != nil {
		return err
	}
	exit, err := sandbox.Exec(ctx, runtime.Process{Args: []string{"sh", "-c", "exit 7"}, Wall: time.Minute})
	if err == nil && (exit.Code != 7 || exit.Reason != runtime.Exited) {
		err = fmt.Errorf("%w: %v", errOtherEnd, exit)
	}
	return errors.Join(err, sandbox.Close(ctx))
}

// TestShimThatDoesNotWork: a run fails if its shim cannot be started, says nonsense or does not know sbench's
// use of it, as a much older shim.
func TestShimThatDoesNotWork(t *testing.T) {
	containerdtest.OnHostKernel(t)
	c := containerdtest.Open(t)
	for _, test := range []struct{ name, text string }{
		{"fails", "#!/bin/sh\necho no >&2\nexit 1\n"},
		{"says nonsense", "#!/bin/sh\necho nonsense\n"},
		{"names no server", "#!/bin/sh\necho unix:///nowhere\n"},
		{"makes no sandboxes but the daemon's", "#!/bin/sh\nexec containerd-shim-runc-v2 \"$@\"\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			must.Report(t, os.WriteFile(filepath.Join(dir, shim.Program), []byte(test.text), 0o755))
			t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
			_, err := c.NewRun(t.Context())
			must.Is(t, err, runtime.ErrUnavailable) // a run with this shim
		})
	}
}

// TestForeignProcess: a run fails if its OCI runtime reports a process of the host, as one does whose
// containers are virtual machines.
func TestForeignProcess(t *testing.T) {
	containerdtest.OnHostKernel(t)
	program := filepath.Join(t.TempDir(), "runtime")
	// A mount namespace of its own, in case that its mounts are touched all the same.
	must.Report(t, os.WriteFile(program, []byte(`#!/bin/bash
runc "$@"; status=$?
for a; do
	if [ "$last" = --pid-file ]; then
		setsid unshare --mount --propagation private sleep 60 </dev/null >/dev/null 2>&1 &
		echo -n $! >"$a"
	fi
	last=$a
done
exit $status
`), 0o755))
	opts := containerdtest.Options()
	opts.OCIRuntime = program
	_, err := containerdtest.OpenWith(t, opts).NewRun(t.Context())
	must.Tells(t, err, "another pid namespace than asked for") // a run with a foreign process
}

// TestHangingRuntimeIsKilled: an OCI runtime that hangs is killed when sbench gives up.
func TestHangingRuntimeIsKilled(t *testing.T) {
	containerdtest.OnHostKernel(t)
	ctx := context.Background()
	dir := t.TempDir()
	hang := filepath.Join(dir, "hang")
	program := filepath.Join(dir, "runtime")
	must.Report(t, os.WriteFile(program, []byte("#!/bin/sh\nif [ -e "+hang+" ]; then for a; do [ \"$a\" != create ] || exec sleep 99887; done; fi\nexec runc \"$@\"\n"), 0o755))
	opts := containerdtest.Options()
	opts.OCIRuntime, opts.Timeout = program, 5*time.Second
	c, run, image := newRun(t, opts)
	must.Report(t, os.WriteFile(hang, nil, 0o600))
	if err := oddLife(ctx, run, image); err == nil {
		t.Error("no error")
	}
	hangs := func(pid int) bool { return slices.Equal(proc.Args(pid), []string{"sleep", "99887"}) }
	pids, err := proc.All()
	must.Report(t, err)
	must.Await(t, "the end of the OCI runtime", func() bool { return !slices.ContainsFunc(pids, hangs) })
	must.Report(t, os.Remove(hang))
	must.Report(t, run.Close(ctx))
	goneWithRun(t, c, run.ID())
}

// TestAnchorKilled: when somebody has the daemon kill a run's anchor, or removes its bundle, which
// is what the daemon does with a server that does not answer it, sandboxes fail with an error that
// is nobody's verdict, and the next one but one has a new server.
func TestAnchorKilled(t *testing.T) {
	ctx := context.Background()
	c, run, image := newRun(t, containerdtest.Options())
	daemon, err := client.New(c.Address(), client.WithDefaultNamespace("sbench"))
	must.Do(t, err)
	defer func() { _ = daemon.Close() }()
	anchor := func() (found client.Task) {
		in := namespaces.WithNamespace(ctx, "sbench")
		containers, err := daemon.Containers(in, fmt.Sprintf("labels.%q==%s", "org.securebench.run", run.ID()))
		if err == nil && len(containers) == 1 {
			found, err = containers[0].Task(in, nil)
		}
		if found == nil {
			t.Fatalf("%d containers, %v", len(containers), err)
		}
		return found
	}
	for name, end := range map[string]func() error{
		"killed": func() error {
			return anchor().Kill(namespaces.WithNamespace(ctx, "sbench"), unix.SIGTERM)
		},
		"removed": func() error {
			return os.RemoveAll(filepath.Join(filepath.Dir(c.Address()), "state/io.containerd.runtime.v2.task", "sbench", anchor().ID()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			must.Report(t, oddLife(ctx, run, image))
			sandbox := create(t, run, runtime.Config{Name: "victim", Image: image})
			if exit, err := whileItRuns(sandbox, "2", func() { must.Report(t, end()) }); err == nil && !exit.Success() {
				t.Errorf("its process has ended with %v", exit)
			}
			must.Report(t, sandbox.Close(ctx))
			if err := oddLife(ctx, run, image); err == nil || errors.Is(err, errOtherEnd) {
				t.Errorf("a life without an anchor: %v", err)
			}
			must.Report(t, oddLife(ctx, run, image))
		})
	}
	must.Report(t, run.Close(ctx))
	goneWithRun(t, c, run.ID())
}

// TestCancelledAnytime: whenever its context is cancelled, a sandbox can be closed, and nothing
// is made after that.
func TestCancelledAnytime(t *testing.T) {
	c, run, image := newRun(t, containerdtest.Options())
	for range 60 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(60000))*time.Microsecond)
		sandbox, err := run.Create(ctx, runtime.Config{Name: "cancelled", Image: image, Limits: runtime.DefaultLimits()})
		if err == nil {
			_, _ = sandbox.Exec(ctx, runtime.Process{Args: []string{"sleep", "1"}, Wall: wall})
			must.Report(t, sandbox.Close(context.Background()))
		}
		cancel()
	}
	must.Report(t, run.Close(context.Background()))
	goneWithRun(t, c, run.ID())
}

// TestServerThatDoesNotRead: every call of a server that is stopped is bounded, however much it
// is sent.
func TestServerThatDoesNotRead(t *testing.T) {
	ctx := context.Background()
	opts := containerdtest.Options()
	opts.Timeout = 5 * time.Second
	c, run, image := newRun(t, opts)
	sandbox, err := run.Create(ctx, runtime.Config{Name: "unread", Image: image, Limits: runtime.DefaultLimits(), Persistent: true})
	must.Do(t, err)
	for _, pid := range servers(t, run.ID()) {
		must.Report(t, unix.Kill(pid, unix.SIGSTOP))
		time.AfterFunc(5*time.Minute, func() { _ = unix.Kill(pid, unix.SIGCONT) })
	}
	long := "X=" + strings.Repeat("x", 120000)
	for range 3 {
		begun := time.Now()
		_, err := sandbox.Exec(ctx, runtime.Process{Args: []string{"true"}, Env: []string{long, long}, Wall: wall})
		if took := time.Since(begun); err == nil || took > time.Minute {
			t.Errorf("after %v: %v", took, err)
		}
	}
	killServers(t, run.ID())
	_ = sandbox.Close(ctx) // the daemon removes it, too
	_ = run.Close(ctx)
	_, err = c.GC(ctx)
	must.Report(t, err)
	goneWithRun(t, c, run.ID())
}

// TestSymlinkedSocket: a path to the daemon's socket through symbolic links does as well.
func TestSymlinkedSocket(t *testing.T) {
	ctx := context.Background()
	opts := containerdtest.Options()
	opts.Address = filepath.Join(t.TempDir(), "containerd.sock")
	must.Report(t, os.Symlink(containerdtest.Open(t).Address(), opts.Address))
	run, image := containerdtest.NewRun(t, containerdtest.OpenWith(t, opts))
	must.Report(t, oddLife(ctx, run, image))
}

// TestTracedByTheShim: a process whose parent is the shim can make the shim trace its threads
// (ptrace(2), PTRACE_TRACEME), but can make it neither the tracer nor the parent of others (clone(2),
// CLONE_PTRACE and CLONE_PARENT), and ends nevertheless.
func TestTracedByTheShim(t *testing.T) {
	ctx := context.Background()
	c, run, image := newRun(t, containerdtest.Options())
	script := `
import ctypes, os, platform, threading
c = ctypes.CDLL(None, use_errno=True)
number = {"x86_64": 56, "aarch64": 220}[platform.machine()]
for flag in 0x2000, 0x8000:
    assert c.syscall(number, flag | 17, 0, 0, 0, 0) == -1 and ctypes.get_errno() == 1
traced = []
for i in range(3):
    t = threading.Thread(target=lambda: traced.append(c.ptrace(0, 0, 0, 0)))
    t.start()
    t.join()
assert traced == [0, 0, 0], traced
os._exit(7)
`
	for _, persistent := range []bool{false, true} {
		sandbox := create(t, run, runtime.Config{Name: "traced", Image: image, Persistent: persistent})
		exit, err := sandbox.Exec(ctx, runtime.Process{Args: []string{"python3", "-c", script}, Wall: wall, OutputBytes: 1 << 16})
		must.Report(t, err)
		if exit.Code != 7 || exit.Reason != runtime.Exited {
			t.Errorf("%v %s", exit, exit.Stderr.String())
		}
		must.Report(t, sandbox.Close(ctx))
	}
	must.Report(t, run.Close(ctx))
	goneWithRun(t, c, run.ID())
}

// TestPauseIsClosed: the first process of a persistent sandbox, which outlives the others, cannot be
// taken over by them.
func TestPauseIsClosed(t *testing.T) {
	run, image := containerdtest.NewRun(t, containerdtest.Open(t))
	sandbox := create(t, run, runtime.Config{Name: "pause", Image: image, Persistent: true})
	script := `
import ctypes, os
c = ctypes.CDLL(None, use_errno=True)
print(c.ptrace(16, 1, 0, 0), ctypes.get_errno())
for path in "/proc/1/mem", "/proc/1/fd/0", "/proc/1/root":
    try: print(os.open(path, os.O_RDONLY))
    except PermissionError: print("refused")
`
	must.Equal(t, "-1 1\nrefused\nrefused\nrefused", output(t, sandbox, "python3", "-c", script))
}

// TestServerGivenUp: when the daemon removes what it takes for a dead server's, as after a restart
// in which the server did not answer in time, no sandbox ends with a result.
func TestServerGivenUp(t *testing.T) {
	ctx := context.Background()
	c, run, image := newRun(t, containerdtest.Options())
	life := sbenchLife(run, runtime.Config{Name: "life", Image: image, Limits: runtime.DefaultLimits()})
	must.Report(t, life(0))
	var bundles []string
	for _, state := range []string{"/run/containerd", filepath.Join(filepath.Dir(c.Address()), "state")} {
		bundles = append(bundles, entries(t, filepath.Join(state, "io.containerd.runtime.v2.task", "*", run.ID()+"-*"))...)
	}
	if len(bundles) != 1 {
		t.Fatalf("bundles %v", bundles)
	}
	sandbox := create(t, run, runtime.Config{Name: "victim", Image: image})
	call := shim.Call{ID: filepath.Base(bundles[0]), Address: c.Address(), Bundle: bundles[0]}
	if exit, err := whileItRuns(sandbox, "60", func() { must.Report(t, call.Delete(io.Discard)) }); err == nil {
		t.Errorf("its process has ended with %v", exit)
	}
	must.Report(t, sandbox.Close(ctx))
	must.Report(t, life(1))
	must.Report(t, run.Close(ctx))
	goneWithRun(t, c, run.ID())
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }
