// Package runtimetest contains the test suite that every implementation of the runtime
// contract must pass.
package runtimetest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime"
)

// Engine is the implementation under test.
type Engine interface {
	// Create creates a sandbox, which the suite closes.
	Create(ctx context.Context, cfg runtime.Config) (runtime.Sandbox, error)
	// NewVolume creates a volume, which the suite closes.
	NewVolume(ctx context.Context, cfg runtime.VolumeConfig) (runtime.Volume, error)
}

// wall is far more time than any process of the suite needs, even on a busy machine.
const wall = 2 * time.Minute

// late is far more than the time limit and the grace of a process that has to end, even on a busy
// machine.
const late = time.Minute

// Contract runs the suite against e. The image must contain a POSIX shell and coreutils, or
// the engine must imitate the suite's commands, all of which run with sh -c.
func Contract(t *testing.T, e Engine, image runtime.Image) {
	s := suite{e, image}
	t.Run("exit code", s.exitCode)
	t.Run("signal", s.signal)
	t.Run("exit code over 128 is no signal", s.highExitCode)
	t.Run("wall time", s.wallTime)
	t.Run("wall time with TERM ignored", s.termIgnored)
	t.Run("streams", s.streams)
	t.Run("output bound", s.outputBound)
	t.Run("environment and directory", s.environment)
	t.Run("not started", s.notStarted)
	t.Run("one-shot is spent", s.spent)
	t.Run("persistent keeps its files", s.persistent)
	t.Run("nothing outlives an exec", s.nothingOutlives)
	t.Run("cancel kills", s.cancel)
	t.Run("close is idempotent", s.closeTwice)
	t.Run("read-only root", s.readOnlyRoot)
	t.Run("writable mount and read-only mount", s.mounts)
	t.Run("copy mount leaves its source alone", s.copyMount)
	t.Run("sandbox from a stopped sandbox", s.from)
	t.Run("path of what is left", s.path)
	t.Run("refused configurations", s.refused)
	t.Run("observed", s.observed)
}

type suite struct {
	e     Engine
	image runtime.Image
}

func (s suite) config() runtime.Config {
	return runtime.Config{Name: "contract", Image: s.image, Workdir: "/tmp", Limits: runtime.DefaultLimits()}
}

func (s suite) create(t *testing.T, cfg runtime.Config) runtime.Sandbox {
	t.Helper()
	sandbox, err := s.e.Create(context.Background(), cfg)
	must.Do(t, err)
	t.Cleanup(func() { must.Report(t, sandbox.Close(context.Background())) })
	return sandbox
}

func sh(script string) runtime.Process {
	return runtime.Process{Args: []string{"sh", "-c", script}, Wall: wall}
}

func (s suite) run(t *testing.T, cfg runtime.Config, p runtime.Process) runtime.Exit {
	t.Helper()
	return exec(t, s.create(t, cfg), p)
}

func exec(t *testing.T, sandbox runtime.Sandbox, p runtime.Process) runtime.Exit {
	t.Helper()
	exit, err := sandbox.Exec(context.Background(), p)
	must.Do(t, err)
	return exit
}

func (s suite) exitCode(t *testing.T) {
	for _, code := range []string{"0", "1", "3", "255"} {
		exit := s.run(t, s.config(), sh("exit "+code))
		if exit.Reason != runtime.Exited || !strings.HasSuffix(exit.String(), "code "+code) || exit.Signal != 0 {
			t.Errorf("exit %s: %v", code, exit)
		}
		if exit.Success() != (code == "0") || exit.Wall <= 0 {
			t.Errorf("exit %s: success %v after %s", code, exit.Success(), exit.Wall)
		}
	}
}

// signal covers a signal not sent by sbench. The sandbox is persistent because the first
// process of a PID namespace cannot kill itself with a signal.
func (s suite) signal(t *testing.T) {
	cfg := s.config()
	cfg.Persistent = true
	exit := s.run(t, cfg, sh("kill -SEGV $$"))
	if exit.Reason != runtime.Signaled || exit.Signal != 11 {
		t.Errorf("got %v, signal %d", exit, exit.Signal)
	}
}

func (s suite) highExitCode(t *testing.T) {
	exit := s.run(t, s.config(), sh("exit 137"))
	must.Equal(t, 137, exit.Code)
	// Before Linux 6.15 an engine cannot tell this from a kill, and may infer signal 9.
	if exit.Reason != runtime.Exited && exit.Signal != 9 {
		t.Errorf("got %v", exit)
	}
}

func (s suite) wallTime(t *testing.T) {
	p := sh("sleep 1000")
	const waited = 300 * time.Millisecond // that does not count
	p.Wall, p.Waited = 200*time.Millisecond, func() time.Duration { return waited }
	exit := s.run(t, s.config(), p)
	if exit.Reason != runtime.WallTime || !slices.Contains(exit.Reached, runtime.LimitWall) || exit.Success() {
		t.Errorf("got %v, reached %v", exit, exit.Reached)
	}
	if exit.Wall < p.Wall+waited || exit.Wall > late {
		t.Errorf("ended after %s, with a limit of %s and %s that do not count", exit.Wall, p.Wall, waited)
	}
}

func (s suite) termIgnored(t *testing.T) {
	for _, persistent := range []bool{false, true} {
		cfg := s.config()
		cfg.Persistent = persistent
		p := sh("trap '' TERM; echo ready; while :; do sleep 1000; done")
		p.Wall, p.Grace = 100*time.Millisecond, 100*time.Millisecond
		begun, ready := time.Now(), new(atomic.Int64) // what it takes until it is ready does not count
		p.Stdout = writerFunc(func(b []byte) (int, error) { ready.Store(int64(time.Since(begun))); return len(b), nil })
		p.Waited = func() time.Duration { return cmp.Or(time.Duration(ready.Load()), time.Since(begun)) }
		exit := s.run(t, cfg, p)
		if exit.Reason != runtime.WallTime || exit.Stdout.String() != "ready\n" {
			t.Errorf("persistent %v: got %v, output %q", persistent, exit, exit.Stdout.String())
		}
	}
}

func (s suite) streams(t *testing.T) {
	for _, persistent := range []bool{false, true} {
		cfg := s.config()
		cfg.Persistent = persistent
		var out bytes.Buffer
		p := sh("cat; echo oops >&2")
		p.Stdin, p.Stdout = strings.NewReader("hello\n"), &out
		exit := s.run(t, cfg, p)
		if exit.Stdout.String() != "hello\n" || exit.Stderr.String() != "oops\n" || out.String() != "hello\n" || !exit.Success() {
			t.Errorf("persistent %v: %v, stdout %q, stderr %q, copy %q", persistent, exit, exit.Stdout.String(), exit.Stderr.String(), out.String())
		}
	}
}

func (s suite) outputBound(t *testing.T) {
	p := sh("echo first; head -c 5000000 /dev/zero; echo last")
	p.OutputBytes = 1000
	exit := s.run(t, s.config(), p)
	got := exit.Stdout.Bytes()
	if !bytes.HasPrefix(got, []byte("first\n")) || !bytes.HasSuffix(got, []byte("last\n")) || len(got) > 1100 {
		t.Errorf("%d bytes: %.20q … %q", len(got), got, got[max(0, len(got)-20):])
	}
	if exit.Stdout.Cut() != 5_000_011-1000 || !slices.Contains(exit.Reached, runtime.LimitOutput) {
		t.Errorf("cut %d, reached %v", exit.Stdout.Cut(), exit.Reached)
	}
}

func (s suite) environment(t *testing.T) {
	cfg := s.config()
	cfg.Env = []string{"A=sandbox", "B=sandbox"}
	p := sh(`echo "$A $B $PWD"`)
	p.Env, p.Dir = []string{"B=process"}, "/"
	must.Equal(t, "sandbox process /\n", s.run(t, cfg, p).Stdout.String())
}

func (s suite) notStarted(t *testing.T) {
	for _, persistent := range []bool{false, true} {
		cfg := s.config()
		cfg.Persistent = persistent
		sandbox := s.create(t, cfg)
		_, err := sandbox.Exec(context.Background(), runtime.Process{Args: []string{"/no/such/program"}, Wall: wall})
		if !errors.Is(err, runtime.ErrNotStarted) {
			t.Errorf("persistent %v: %v", persistent, err)
		}
	}
}

func (s suite) spent(t *testing.T) {
	sandbox := s.create(t, s.config())
	exec(t, sandbox, sh("exit 0"))
	_, err := sandbox.Exec(context.Background(), sh("exit 0"))
	must.Is(t, err, runtime.ErrSpent) // second process
}

func (s suite) persistent(t *testing.T) {
	cfg := s.config()
	cfg.Persistent, cfg.WritableRoot = true, true
	sandbox := s.create(t, cfg)
	exec(t, sandbox, sh("echo kept > /kept"))
	must.Equal(t, "kept\n", exec(t, sandbox, sh("cat /kept")).Stdout.String())
}

func (s suite) nothingOutlives(t *testing.T) {
	cfg := s.config()
	cfg.Persistent, cfg.WritableRoot = true, true
	sandbox := s.create(t, cfg)
	exec(t, sandbox, sh("(while :; do echo alive >> /log; sleep 0.01; done) & until test -e /log; do :; done"))
	exit := exec(t, sandbox, sh("cp /log /before; sleep 0.2; cmp /log /before"))
	if !exit.Success() {
		t.Errorf("a background process went on: %v %s", exit, exit.Stdout.String())
	}
}

func (s suite) cancel(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	sandbox := s.create(t, s.config())
	p := sh("echo ready; sleep 1000")
	p.Stdout = writerFunc(func(b []byte) (int, error) { cancel(); return len(b), nil })
	_, err := sandbox.Exec(ctx, p)
	must.Is(t, err, context.Canceled)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func (s suite) closeTwice(t *testing.T) {
	sandbox := s.create(t, s.config())
	for range 2 {
		must.Report(t, sandbox.Close(context.Background()))
	}
	_, err := sandbox.Exec(context.Background(), sh("exit 0"))
	must.Is(t, err, runtime.ErrClosed) // exec after close
}

func (s suite) readOnlyRoot(t *testing.T) {
	if exit := s.run(t, s.config(), sh("echo x > /new && exit 0; exit 7")); exit.Code != 7 {
		t.Errorf("the root was written: %v", exit)
	}
}

func (s suite) mounts(t *testing.T) {
	vol, err := s.e.NewVolume(context.Background(), runtime.VolumeConfig{Bytes: 1 << 20, Inodes: 100})
	must.Do(t, err)
	t.Cleanup(func() { must.Report(t, vol.Close()) })
	trusted := t.TempDir()
	must.Report(t, os.WriteFile(filepath.Join(trusted, "test"), []byte("trusted\n"), 0o644))
	cfg := s.config()
	cfg.Mounts = []runtime.Mount{
		{Source: vol.Path(), Dest: "/work", Writable: true},
		{Source: trusted, Dest: "/work/trusted"},
	}
	exit := s.run(t, cfg, sh("cat /work/trusted/test > /work/out || exit 1; echo x > /work/trusted/test && exit 2; exit 0"))
	if !exit.Success() {
		t.Errorf("%v: %s", exit, exit.Stderr.String())
	}
	must.Equal(t, "trusted\n", string(must.Read(t, filepath.Join(vol.Path(), "out"))))
}

func (s suite) copyMount(t *testing.T) {
	source := filepath.Join(t.TempDir(), `a:b,c\d"e`) // characters with a meaning in mount options
	must.Do(t, os.Mkdir(source, 0o755))
	must.Report(t, os.WriteFile(filepath.Join(source, "file"), []byte("old\n"), 0o644))
	cfg := s.config()
	cfg.Mounts = []runtime.Mount{{Source: source, Dest: "/work", Copy: true}}
	exit := s.run(t, cfg, sh("cat /work/file; echo new > /work/file; echo more > /work/other; cat /work/file"))
	if exit.Stdout.String() != "old\nnew\n" {
		t.Errorf("%v: %q %q", exit, exit.Stdout.String(), exit.Stderr.String())
	}
	must.Equal(t, "old\n", string(must.Read(t, filepath.Join(source, "file"))))
	if entries, err := os.ReadDir(source); len(entries) != 1 {
		t.Errorf("the source holds %v, %v", entries, err)
	}
}

func (s suite) from(t *testing.T) {
	cfg := s.config()
	cfg.WritableRoot = true
	first := s.create(t, cfg)
	exec(t, first, sh("echo made > /made; rm -r /etc/passwd"))
	for range 2 { // both derived sandboxes start from the same state
		derived := s.config()
		derived.Base, derived.WritableRoot = first, true
		exit := s.run(t, derived, sh("cat /made; test -e /etc/passwd && echo whole; echo changed > /made"))
		must.Equal(t, "made\n", exit.Stdout.String())
	}
}

func (s suite) path(t *testing.T) {
	cfg := s.config()
	cfg.WritableRoot = true
	sandbox := s.create(t, cfg)
	if _, err := sandbox.Path("/left"); err == nil {
		t.Error("a path before the process")
	}
	other := s.config()
	other.Mounts = []runtime.Mount{{Left: sandbox, Dest: "/agent"}}
	if early, err := s.e.Create(t.Context(), other); err == nil {
		t.Errorf("a mount before the process: %v", early.Close(t.Context()))
	}
	exec(t, sandbox, sh("mkdir /left; echo x > /left/file; ln -s /etc /link"))
	dir, err := sandbox.Path("/left")
	must.Do(t, err)
	must.Equal(t, "x\n", string(must.Read(t, filepath.Join(dir, "file"))))
	if exit := s.run(t, other, sh("cat /agent/left/file; echo y > /agent/left/file && exit 2; exit 0")); exit.Stdout.String() != "x\n" || !exit.Success() {
		t.Errorf("%v: mounted %q", exit, exit.Stdout.String())
	}
	// The link leads to a directory that is there on the host and in the sandbox.
	for _, none := range []string{"/link", "/no-such", "/left/file"} {
		if dir, err := sandbox.Path(none); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %q, %v", none, dir, err)
		}
	}
}

func (s suite) refused(t *testing.T) {
	tests := []struct {
		name   string
		change func(*runtime.Config)
	}{
		{"no limits", func(c *runtime.Config) { c.Limits = runtime.Limits{} }},
		{"unlimited memory", func(c *runtime.Config) { c.Limits.Memory = -1 }},
		{"missing source", func(c *runtime.Config) { c.Mounts = []runtime.Mount{{Source: "/no/such/directory", Dest: "/x"}} }},
		{"unknown user", func(c *runtime.Config) { c.User = "nobody-of-this-name" }},
		{"unknown group", func(c *runtime.Config) { c.User = "0:no-such-group" }},
	}
	for _, tt := range tests {
		cfg := s.config()
		tt.change(&cfg)
		sandbox, err := s.e.Create(context.Background(), cfg)
		if err == nil {
			t.Errorf("%s: accepted", tt.name)
			must.Report(t, sandbox.Close(context.Background()))
		}
	}
	sandbox := s.create(t, s.config())
	if _, err := sandbox.Exec(context.Background(), runtime.Process{Args: []string{"true"}}); err == nil {
		t.Error("a process without a time limit was accepted")
	}
}

// refuser refuses the command env.
type refuser struct{ ended []string }

func (r *refuser) Starting(_ string, p runtime.Process) error {
	return runtime.CommandPolicy{Allow: []string{"sh"}}.Decide(p.Args).Check()
}

func (r *refuser) Ended(sandbox string, exit runtime.Exit) {
	r.ended = append(r.ended, sandbox+" "+exit.String())
}

// observed: a command that the observer refuses does not start or use up the sandbox.
func (s suite) observed(t *testing.T) {
	var r refuser
	cfg := s.config()
	cfg.Observer = &r
	sandbox := s.create(t, cfg)
	_, err := sandbox.Exec(context.Background(), runtime.Process{Args: []string{"env"}, Wall: wall})
	must.Is(t, err, runtime.ErrDenied) // a refused command
	exit := exec(t, sandbox, sh("exit 3"))
	_, err = sandbox.Exec(context.Background(), sh("true"))
	must.Is(t, err, runtime.ErrSpent) // a second command
	if want := []string{cfg.Name + " " + exit.String()}; !slices.Equal(r.ended, want) {
		t.Errorf("ended %q, want %q", r.ended, want)
	}
}
