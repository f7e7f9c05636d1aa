package sandbox_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/sandbox"
	"github.com/securebench/sbench/runtime/userns"
)

const wall = 2 * time.Minute

// world is the surroundings of a probe: another sandbox, and parts of the host that it must
// not reach.
type world struct {
	run      *sandbox.Engine
	image    runtime.Image
	env      []string
	work     runtime.Volume
	programs string // read-only, with the probe
}

func newWorld(t *testing.T) world {
	t.Helper()
	run, image := containerdtest.NewRun(t, containerdtest.Open(t))
	w := world{run: run, image: image, programs: t.TempDir()}
	vol, err := run.NewVolume(context.Background(), runtime.VolumeConfig{Bytes: 16 << 20, Inodes: 500})
	must.Do(t, err)
	t.Cleanup(func() { must.Report(t, vol.Close()) })
	w.work = vol
	copyProgram(t, filepath.Join(w.programs, "probe"), 0o755)
	copySetuid(t, run, image, filepath.Join(vol.Path(), "setuid-probe"))
	w.env = append(w.env, "PROBE_DIRECTORIES="+w.programs+" "+containerdtest.Options().Root+" "+containerdtest.Options().State, "PROBE_ABSTRACT="+w.abstractSocket(t), "PROBE_PORT="+listen(t, "tcp", "127.0.0.1:0"))
	w.neighbour(t)
	return w
}

// copySetuid makes the image's id, which prints the effective user, setuid root.
func copySetuid(t *testing.T, run *sandbox.Engine, image runtime.Image, to string) {
	t.Helper()
	view, err := run.View(context.Background(), image)
	must.Do(t, err)
	defer func() { must.Report(t, view.Close()) }()
	program, err := view.Root().ReadFile("usr/bin/id")
	must.Report(t, err)
	must.Report(t, os.WriteFile(to, program, 0o755))
	must.Report(t, os.Chmod(to, 0o755|os.ModeSetuid))
}

func copyProgram(t *testing.T, to string, mode os.FileMode) {
	t.Helper()
	self := must.Read(t, "/proc/self/exe")
	must.Report(t, os.WriteFile(to, self, mode))
}

func (w world) abstractSocket(t *testing.T) string {
	name := fmt.Sprintf("@sbench-probe-%d", os.Getpid())
	listen(t, "unix", name)
	return name
}

func listen(t *testing.T, network, address string) string {
	t.Helper()
	l, err := net.Listen(network, address)
	must.Do(t, err)
	t.Cleanup(func() { must.Report(t, l.Close()) })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, c)
			_ = c.Close()
		}
	}()
	return l.Addr().String()
}

// neighbour starts another sandbox, which lives until the test ends, with a marked process,
// shared memory and a System V segment.
func (w world) neighbour(t *testing.T) {
	t.Helper()
	inBackground(t, create(t, w.run, w.config()), 1, "python3", "-c", `
import ctypes, fcntl, time
open('/dev/shm/sbench-marked', 'w')
assert ctypes.CDLL(None).shmget(0x5bec, 4096, 0o1666) >= 0
locked = [open(name, 'rb') for name in ('/etc/hosts', '/programs/probe')]
for f in locked: fcntl.flock(f, fcntl.LOCK_EX)
print('up', flush=True)
while True:
    open('/programs/probe', 'rb').read(1)
    time.sleep(.02)
`, processMark)
}

func (w world) config() runtime.Config {
	return runtime.Config{
		Name: "probe", Image: w.image, Env: w.env, Limits: runtime.DefaultLimits(), Workdir: "/tmp",
		Mounts: []runtime.Mount{{Source: w.programs, Dest: "/programs"}, {Source: w.work.Path(), Dest: "/work", Writable: true}},
	}
}

// runOnce runs p in a sandbox of its own.
func (w world) runOnce(t *testing.T, cfg runtime.Config, p runtime.Process) runtime.Exit {
	t.Helper()
	sandbox, err := w.run.Create(context.Background(), cfg)
	must.Do(t, err)
	defer func() { must.Report(t, sandbox.Close(context.Background())) }()
	if p.Wall == 0 {
		p.Wall = wall
	}
	exit, err := sandbox.Exec(context.Background(), p)
	must.Do(t, err)
	return exit
}

// TestProbe makes every attempt in a sandbox of its own, as root and as an ordinary user.
// Attempts with a control are also made on the host, where they must succeed.
func TestProbe(t *testing.T) {
	w := newWorld(t)
	for _, a := range attempts() {
		if why, ok := ofOwnKernel()[a.name]; ok && containerdtest.Isolation() == runtime.GVisor {
			t.Logf("not in gVisor: %s: %s", a.name, why)
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			fills := strings.HasPrefix(a.name, "inodes") || strings.HasPrefix(a.name, "fill") // the volume that all attempts share
			if !fills {
				t.Parallel()
			}
			users := []string{"0:0", "1000:1000"}
			if slowness(t) > 1 && a.name != "setuid program" {
				users = users[:1] // each takes ten seconds on an emulated host, and root can do more
			}
			for _, user := range users {
				if fills {
					emptyBut(t, w.work.Path(), "setuid-probe")
					must.Report(t, os.Chmod(w.work.Path(), 0o777))
				}
				cfg := w.config()
				cfg.User = user
				cfg.WritableRoot = a.name == "fill / when writable"
				exit := w.runOnce(t, cfg, runtime.Process{Args: []string{"/programs/probe"}, Env: []string{probeVariable + "=" + a.name}})
				a.check(t, user, exit)
			}
			switch {
			case a.hostRoot && userns.Inside():
				t.Log("without a control: it needs root of the host")
			case a.control:
				control(t, w, a)
			}
		})
	}
}

// ofOwnKernel returns the attempts that end in another way in a sandbox with a kernel of its own, and why
// that is none of the host's business; docs/sandbox.md has the same list.
func ofOwnKernel() map[string]string {
	const memory, values, absent, own = "is the sandbox's memory, whose limit ends it", "has values of the sandbox's kernel", "is not there", "are the sandbox's kernel's own"
	const unheard, invalid = "succeeds, and does not reach the host", "fails with EINVAL"
	return map[string]string{
		"fill /dev": memory, "inodes of /tmp": memory, "huge page": "gets usual pages", "segment of huge pages": "gets usual pages", "file of huge pages": invalid,
		"seccomp filter": own, "seccomp filter by prctl": own, "seccomp filter by prctl with high bits": own, "seccomp filter with a listener": invalid,
		"socket filter": unheard, "socket filter with high bits": unheard, "reuseport filter": unheard, "flow label of the host": unheard,
		"UDP encapsulation, which does, too": unheard, "key of a TCP connection": unheard,
		"a lease on a file": invalid, "be told of changes of a directory": invalid,
		"more terminals than a sandbox may have": own, "slots of asynchronous input and output": own,
		"unexpected device": "its /dev is the sandbox's kernel's", "mount without nosuid or nodev": "its mount table lists no such flags, which hold",
		"names of the host in the standard streams": "has names that the sandbox's kernel gives",
		"read /proc/cmdline":                        values, "read /proc/devices": values, "read /proc/cgroups": values,
		"read /proc/sys/kernel/random/boot_id":  values,
		"write sys":                             absent,
		"write sysrq":                           "has no effect",
		"have the host's handler of core files": "its processes are none of the host's, which never dump core",
		"lower the OOM score":                   "changes a number in the sandbox's kernel",
		"add an address":                        "fails with ENOTTY",
		"see a marked process of another":       "fails, but so does the control: the host sees none of a sandbox's processes",
	}
}

func (a attempt) check(t *testing.T, user string, exit runtime.Exit) {
	t.Helper()
	words := strings.TrimSpace(exit.Stdout.String() + exit.Stderr.String())
	switch {
	case a.name == "become another user" && user == "1000:1000", a.name == "setuid program" && user == "0:0":
		return // says nothing about this user
	case a.name == "fill / when writable" && layersAreWatched(t) && exit.Reason == runtime.Signaled && slices.Contains(exit.Reached, runtime.LimitDisk):
		return // it was killed because it filled the layer
	case exit.Code == escaped:
		t.Errorf("as %s: escaped: %s", user, words)
	case exit.Code != refused:
		t.Errorf("as %s: the probe itself failed: %v: %s", user, exit, words)
	case user == "0:0" && !a.refusedBy(words), !a.refusedBy(words) && !strings.Contains(words, "permission denied"):
		t.Errorf("as %s: refused for another reason than %v: %s", user, a.want, words)
	}
}

// control makes the attempt outside any sandbox, in a process of its own.
func control(t *testing.T, w world, a attempt) {
	t.Helper()
	cmd := exec.Command(filepath.Join(w.programs, "probe"))
	cmd.Env = append(slices.Clone(w.env), probeVariable+"="+a.name)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != escaped {
		t.Errorf("on the host the attempt fails too, so that it proves nothing: %v: %s", err, out)
	}
}

func emptyBut(t *testing.T, dir, keep string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must.Report(t, err)
	for _, e := range entries {
		if e.Name() != keep {
			must.Report(t, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
}

// TestLimitReasons: each limit that is reached has its own reason or limit in the result. The contract
// suite has wall time and output.
func TestLimitReasons(t *testing.T) {
	w := newWorld(t)
	bomb := "import os\nwhile True:\n  try: os.fork()\n  except OSError as e: \n    import sys, time; time.sleep(.3); sys.exit(9)"
	tests := []struct {
		name    string
		change  func(*runtime.Config)
		args    []string
		wall    time.Duration
		reason  runtime.Reason
		reached runtime.Limit
	}{
		{"memory", func(c *runtime.Config) { c.Limits.Memory = 64 << 20 }, []string{"python3", "-c", "import time; b=b'x'*(200<<20); time.sleep(100)"}, wall, runtime.OutOfMemory, runtime.LimitMemory},
		{"memory of a child", func(c *runtime.Config) { c.Limits.Memory = 64 << 20 }, []string{"sh", "-c", "python3 -c \"import time; b=b'x'*(200<<20); time.sleep(100)\""}, wall, runtime.OutOfMemory, runtime.LimitMemory},
		{"memory by tmpfs", func(c *runtime.Config) { c.Limits.Memory = 64 << 20 }, []string{"sh", "-c", "head -c 150000000 /dev/zero > /tmp/x || exit $?; sleep 100"}, wall, runtime.OutOfMemory, runtime.LimitMemory},
		{"fork bomb", func(c *runtime.Config) { c.Limits.Pids = 64 }, []string{"python3", "-c", bomb}, wall, runtime.PidsLimit, runtime.LimitPids},
		{"fork bomb in shell", func(c *runtime.Config) { c.Limits.Pids = 64 }, []string{"bash", "-c", "b(){ b & b & wait; }; b & while :; do :; done"}, 2 * time.Second * slowness(t), runtime.WallTime, runtime.LimitPids},
		// This one's processes end, so that a watchdog may find 39 of 64 each time, and forks refused in between.
		{"fork bomb that thins out", func(c *runtime.Config) { c.Limits.Pids = 64 }, []string{"bash", "-c", "b(){ b|b& }; b; while :; do :; done"}, 2 * time.Second * slowness(t), runtime.WallTime, runtime.LimitWall},
		{"error output", nil, []string{"sh", "-c", "head -c 3000000 /dev/zero >&2"}, wall, runtime.Exited, runtime.LimitOutput},
		{"layer", func(c *runtime.Config) { c.WritableRoot = true }, []string{"sh", "-c", "head -c 900000000 /dev/zero > /big"}, wall, runtime.Exited, runtime.LimitDisk},
		{"layer on disk", func(c *runtime.Config) { c.WritableRoot = true; c.Limits.LayerBytes = 100 << 20 }, []string{"sh", "-c", "head -c 900000000 /dev/zero > /big"}, wall, runtime.Exited, runtime.LimitDisk},
		{"volume", nil, []string{"sh", "-c", "head -c 900000000 /dev/zero > /work/big"}, wall, runtime.Exited, runtime.LimitDisk},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := w.config()
			if tt.change != nil {
				tt.change(&cfg)
			}
			emptyBut(t, w.work.Path(), "setuid-probe")
			exit := w.runOnce(t, cfg, runtime.Process{Args: tt.args, Wall: tt.wall, Grace: 100 * time.Millisecond})
			if strings.HasPrefix(tt.name, "layer") && layersAreWatched(t) {
				tt.reason = runtime.Signaled // a process that writes too much is killed
			}
			if containerdtest.Isolation() == runtime.GVisor && slices.Contains(exit.Reached, runtime.LimitPids) {
				tt.reason, tt.reached = runtime.PidsLimit, runtime.LimitPids // gVisor ends when it gets no thread
			}
			if exit.Reason != tt.reason || !slices.Contains(exit.Reached, tt.reached) {
				t.Errorf("%v, reached %v, want %v and %v; stderr %s", exit, exit.Reached, tt.reason, tt.reached, exit.Stderr.String())
			}
			// A watchdog misses usage between two readings, but not usage on which it acted.
			acted := slices.Contains(exit.Reached, runtime.LimitMemory) || slices.Contains(exit.Reached, runtime.LimitPids)
			seen := containerdtest.AllowDegraded() == nil || acted
			if seen && (exit.Usage.CPU <= 0 || exit.Usage.PeakMemory <= 0) {
				t.Errorf("usage %+v", exit.Usage)
			}
		})
	}
}

// slowness returns by which factor hostile agents may take longer: more than 1 on emulated
// hosts.
func slowness(t *testing.T) time.Duration {
	t.Helper()
	n, err := strconv.Atoi(cmp.Or(os.Getenv("SBENCH_TEST_SLOWNESS"), "1"))
	must.Report(t, err)
	return time.Duration(n)
}

// layersAreWatched reports whether layers are directories that sbench watches, as for an
// ordinary user before Linux 6.6; see docs/install.md.
func layersAreWatched(t *testing.T) bool {
	t.Helper()
	major, minor := linux(t)
	return userns.Inside() && (major < 6 || major == 6 && minor < 6)
}

// linux returns the version of the kernel.
func linux(t *testing.T) (major, minor int) {
	t.Helper()
	var name unix.Utsname
	must.Report(t, unix.Uname(&name))
	_, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor)
	must.Report(t, err)
	return major, minor
}

// TestSealedOutput: a process writes to a sealed standard output, and neither it nor another process of its user opens
// that anew. The interfaces that its socket shows are the sandbox's.
func TestSealedOutput(t *testing.T) {
	run, image := containerdtest.NewRun(t, containerdtest.Open(t))
	const script = `import array, fcntl, os, struct, subprocess, sys
for f in ("/dev/stdout", f"/proc/{os.getppid()}/fd/1", f"/proc/{(sys.argv + [os.getpid()])[1]}/fd/1"):
    for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
        try:
            os.open(f, flags | os.O_NONBLOCK)
            print("opens", f, file=sys.stderr)
        except OSError:
            pass
if len(sys.argv) == 1:
    interfaces = array.array("B", bytes(4096))
    room, _ = struct.unpack("iP", fcntl.ioctl(1, 0x8912, struct.pack("iP", 4096, interfaces.buffer_info()[0])))  # SIOCGIFCONF
    print([interfaces.tobytes()[i:i + 16].rstrip(b"\0").decode() for i in range(0, room, 40)], flush=True)
    subprocess.run([sys.executable, "-c", sys.orig_argv[2], str(os.getpid())])
    open("/dev/stderr", "w").write("end")
`
	for _, user := range []string{"", "1000:1000"} {
		for _, persistent := range []bool{false, true} {
			sandbox := create(t, run, runtime.Config{Name: "sealed", Image: image, User: user, Persistent: persistent, IsolateProcesses: true, SealOutput: true})
			exit, err := sandbox.Exec(context.Background(), runtime.Process{Args: []string{"python3", "-c", script}, Wall: wall, OutputBytes: 4096})
			must.Report(t, err)
			if out, said := exit.Stdout.String(), exit.Stderr.String(); !exit.Success() || out != "['lo']\n" || said != "end" {
				t.Errorf("user %q, persistent %v: %v: %q, %q", user, persistent, exit, out, said)
			}
		}
	}
}

// TestSealedOutputKept: no other process of its user takes a sealed standard output from the process that has it, and what
// a process hands on or leaves open is worth nothing to a later process.
func TestSealedOutputKept(t *testing.T) {
	run, image := containerdtest.NewRun(t, containerdtest.Open(t))
	sandbox := create(t, run, runtime.Config{Name: "sealed", Image: image, Persistent: true, IsolateProcesses: true, SealOutput: true})
	say := func(script string) string {
		exit, err := sandbox.Exec(context.Background(), runtime.Process{Args: []string{"python3", "-c", script}, Wall: wall, OutputBytes: 4096})
		must.Report(t, err)
		if !exit.Success() || exit.Stderr.String() != "" {
			t.Errorf("%v: %q", exit, exit.Stderr.String())
		}
		return exit.Stdout.String()
	}
	// The child has no output of its own, but its parent has one, and another process that holds it while it ends.
	must.Equal(t, "first\n", say(`import ctypes, os, socket, subprocess, sys
thief = """import ctypes, os, sys
libc, parent = ctypes.CDLL(None), os.getppid()
for name, call, args in (("ptrace", 101, (16, parent, 0, 0)), ("ptrace seize", 101, (0x4206, parent, 0, 0)), ("process_vm_writev", 311, (parent, 0, 0, 0, 0, 0)),
        ("pidfd_getfd", 438, (libc.syscall(434, parent, 0), 1, 0)), ("kcmp", 312, (parent, os.getpid(), 0, 1, 1))):
    if libc.syscall(call, *args) >= 0: print(name, file=sys.stderr)
for path in (f"/proc/{parent}/fd/1", f"/proc/{parent}/mem"):
    try: print(os.open(path, os.O_RDWR), file=sys.stderr)
    except OSError: pass
try: os.link(f"/proc/{parent}/fd/1", "/tmp/out"); print("link", file=sys.stderr)
except OSError: pass
"""
subprocess.run([sys.executable, "-c", thief], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
out, queued = socket.socket(socket.AF_UNIX), socket.socketpair()
out.bind("\0holder"); out.listen()
socket.send_fds(queued[0], [b"x"], [1])
ready = os.pipe()
if os.fork() == 0:
    os.setsid()
    os.write(ready[1], b"x")
    conn, _ = out.accept()
    socket.send_fds(conn, [b"x"], [1])
    os.write(1, b"late")
    os._exit(0)
os.read(ready[0], 1)
print("first", flush=True)
`))
	must.Equal(t, "second\n", say(`import os, socket, sys
s = socket.socket(socket.AF_UNIX)
try:
    s.connect("\0holder")
    os.write(socket.recv_fds(s, 1, 1)[1][0], b"late")
except ConnectionRefusedError:
    print("second", flush=True)
socket.fromfd(1, socket.AF_UNIX, socket.SOCK_STREAM).shutdown(socket.SHUT_WR)
read, write = os.pipe()
os.write(write, b"late")
for late in (lambda: os.write(1, b"late"), lambda: os.splice(read, 1, 4)):
    try:
        late()
        print("after the end", file=sys.stderr)
    except OSError:
        pass
`))
	must.Equal(t, "third\n", say(`print("third")`))
}

// TestNothingIsLeftBehind: daemonized children die with the first process.
func TestNothingIsLeftBehind(t *testing.T) {
	w := newWorld(t)
	for _, persistent := range []bool{false, true} {
		mark := fmt.Sprintf("sbench-left-behind-%v", persistent)
		cfg := w.config()
		cfg.Persistent = persistent
		exit := w.runOnce(t, cfg, runtime.Process{Args: []string{"python3", "-c", `
import os, sys, signal, time
for i in range(20):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(s, signal.SIG_IGN)
            time.sleep(1000)
        os._exit(0)
print("left")`, mark}})
		if !exit.Success() || exit.Stdout.String() != "left\n" {
			t.Fatalf("%v %s", exit, exit.Stderr.String())
		}
		found := must.Glob(t, "/proc/[0-9]*/cmdline")
		for _, name := range found {
			if line, err := os.ReadFile(name); err == nil && strings.Contains(string(line), mark) {
				t.Errorf("persistent %v: %s is alive", persistent, filepath.Dir(name))
			}
		}
	}
}

// TestHogs: whatever one sandbox uses up, others start and run next to it, and it never has
// much more memory than its limit.
func TestHogs(t *testing.T) {
	w := newWorld(t)
	tests := []struct {
		name, script string
	}{
		{"processes", "b() { b | b & }; b; while :; do sleep 1; done"},
		{"memory", "while :; do for i in 1 2 3 4; do python3 -c 'b = bytearray(1 << 30)' & done; wait; done"},
		{"files in memory", "while :; do head -c 9G /dev/zero > /tmp/x; head -c 9G /dev/zero > /dev/shm/x; done"},
		{"disk", "while :; do head -c 9G /dev/zero > /big; rm /big; done"},
		{"processor", "for i in 1 2 3 4 5 6 7 8; do while :; do :; done & done; wait"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := w.config()
			cfg.WritableRoot, cfg.Limits.Memory = true, 256<<20
			hog, err := w.run.Create(context.Background(), cfg)
			must.Do(t, err)
			ended := make(chan runtime.Exit, 1)
			go func() {
				exit, err := hog.Exec(context.Background(), runtime.Process{Args: []string{"bash", "-c", tt.script}, Wall: 2 * time.Second, Grace: 100 * time.Millisecond})
				must.Report(t, err)
				ended <- exit
			}()
			for i := range 10 {
				p := runtime.Process{Args: []string{"python3", "-c", "print(6*7)"}}
				if exit := w.runOnce(t, w.config(), p); !exit.Success() || exit.Stdout.String() != "42\n" {
					t.Errorf("neighbour %d: %v %s", i, exit, exit.Stderr.String())
				}
			}
			exit := <-ended
			if exit.Usage.PeakMemory > 2*cfg.Limits.Memory { // it asks for far more
				t.Errorf("it had %d MiB of %d", exit.Usage.PeakMemory>>20, cfg.Limits.Memory>>20)
			}
			must.Report(t, hog.Close(context.Background()))
		})
	}
}
