// Package fake implements the runtime contract for tests of packages that use it. It
// isolates nothing: its commands are Go functions.
package fake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/securebench/sbench/runtime"
)

// Status says how a program ended: killed by Signal, or with the exit code Code if
// Signal is 0.
type Status struct{ Code, Signal int }

// A Program replaces a command. It must return soon after ctx is canceled, which corresponds
// to SIGKILL.
type Program func(ctx context.Context, p *Proc) Status

// A Proc is what a [Program] sees of its process.
type Proc struct {
	Args   []string
	Env    map[string]string // of the image, the sandbox and the process
	Dir    string            // as in runtime.Process
	Stdin  io.Reader         // nil if the process has no input
	Stdout io.Writer
	Stderr io.Writer
	Term   <-chan struct{} // closed when SIGTERM is sent

	sandbox *sandbox
}

// Path returns the host path for the path name in the sandbox, and whether it is writable.
func (p *Proc) Path(name string) (host string, writable bool) { return p.sandbox.path(name) }

// Engine creates fake sandboxes. Lookup returns the program for a command line, or nil if
// there is no such command.
type Engine struct {
	Lookup    func(args []string) Program
	Directory string // the directory for the sandboxes' files
	// Image is the directory used as the file system of every image; "" means an empty one.
	Image string
}

type view struct{ root *os.Root }

func (v view) Root() *os.Root { return v.root }
func (v view) Close() error   { return v.root.Close() }

// View opens the directory used as the image's file system.
func (e *Engine) View(context.Context, runtime.Image) (runtime.View, error) {
	dir := e.Image
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp(e.Directory, "image-"); err != nil {
			return nil, err
		}
	}
	root, err := os.OpenRoot(dir)
	return view{root}, err
}

// Create creates a sandbox whose root file system is an empty directory or, with cfg.Base, a
// copy of that sandbox's.
func (e *Engine) Create(_ context.Context, cfg runtime.Config) (runtime.Sandbox, error) {
	if err := cfg.Limits.Validate(); err != nil {
		return nil, err
	}
	if cfg.User != "" && strings.Trim(cfg.User, "0123456789:") != "" {
		return nil, fmt.Errorf("user %q is not numeric", cfg.User)
	}
	if cfg.Network != nil {
		return nil, errors.New("the fake has no network")
	}
	root, err := os.MkdirTemp(e.Directory, "sandbox-")
	if err != nil {
		return nil, err
	}
	cfg.Mounts = slices.Clone(cfg.Mounts) // the caller's
	s := &sandbox{engine: e, cfg: cfg, root: root, copies: root + "-copies"}
	if from, ok := cfg.Base.(*sandbox); ok {
		err = os.CopyFS(root, os.DirFS(from.root))
	} else if cfg.Image.UpperDir != "" {
		err = os.CopyFS(root, os.DirFS(cfg.Image.UpperDir))
	}
	for i, m := range cfg.Mounts {
		if from, ok := m.Left.(*sandbox); ok {
			var leftErr error
			m.Source, leftErr = from.Path("/")
			s.cfg.Mounts[i].Source, err = m.Source, errors.Join(err, leftErr)
		}
		_, statErr := os.Stat(m.Source)
		err = errors.Join(err, statErr)
		if m.Copy && statErr == nil {
			at := filepath.Join(s.copies, strconv.Itoa(i))
			err = errors.Join(err, os.CopyFS(at, os.DirFS(m.Source)))
			s.cfg.Mounts[i].Source, s.cfg.Mounts[i].Writable = at, true
		}
	}
	if err != nil {
		return nil, errors.Join(err, s.Close(context.Background()))
	}
	return s, nil
}

// NewVolume creates a directory whose size is not limited.
func (e *Engine) NewVolume(_ context.Context, cfg runtime.VolumeConfig) (runtime.Volume, error) {
	if cfg.Bytes <= 0 || cfg.Inodes <= 0 {
		return nil, errors.New("volume without a size")
	}
	dir, err := os.MkdirTemp(e.Directory, "volume-")
	return volume(dir), err
}

type volume string

func (v volume) Path() string { return string(v) }
func (v volume) Close() error { return os.RemoveAll(string(v)) }

type sandbox struct {
	engine *Engine
	cfg    runtime.Config
	root   string
	copies string // the directory for copies of mounts

	mu            sync.Mutex
	spent, closed bool
}

func (s *sandbox) path(name string) (string, bool) {
	host, writable, best := filepath.Join(s.root, name), s.cfg.WritableRoot || s.cfg.Machine, -1
	for _, m := range s.cfg.Mounts {
		if rest, ok := strings.CutPrefix(name+"/", m.Dest+"/"); ok && len(m.Dest) > best {
			host, writable, best = filepath.Join(m.Source, rest), m.Writable, len(m.Dest)
		}
	}
	return host, writable
}

// Exec runs the program that the engine finds for p.
func (s *sandbox) Exec(ctx context.Context, p runtime.Process) (runtime.Exit, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.cfg.Admit(p, s.spent, s.closed); err != nil {
		return runtime.Exit{}, err
	}
	program := s.engine.Lookup(p.Args)
	if program == nil {
		return runtime.Exit{}, fmt.Errorf("%w: %q", runtime.ErrNotStarted, p.Args)
	}
	s.spent = true
	exit, err := s.run(ctx, program, p)
	if err == nil {
		s.cfg.Ended(exit)
	}
	return exit, err
}

func (s *sandbox) run(ctx context.Context, program Program, p runtime.Process) (runtime.Exit, error) {
	out, errOut := runtime.NewCapture(p.OutputBytes, p.Stdout), runtime.NewCapture(p.OutputBytes, p.Stderr)
	life, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	term := make(chan struct{})
	proc := &Proc{Args: p.Args, Env: s.environment(p.Env), Dir: p.Dir, Stdin: p.Stdin, Stdout: out, Stderr: errOut, Term: term, sandbox: s}
	done := make(chan Status, 1)
	begun := time.Now()
	go func() { done <- program(life, proc) }()
	exit := runtime.Exit{Reason: runtime.Exited}
	var st Status
	select {
	case st = <-done:
	case <-ctx.Done():
		kill()
		<-done
		return runtime.Exit{}, context.Cause(ctx)
	case <-p.Over(ctx):
		exit.Reason, exit.Reached = runtime.WallTime, []runtime.Limit{runtime.LimitWall}
		close(term)
		select {
		case st = <-done:
		case <-time.After(max(p.Grace, time.Millisecond)):
			kill()
			st = <-done
		}
	}
	exit.Code, exit.Signal, exit.Wall = st.Code, st.Signal, time.Since(begun)
	if st.Signal != 0 && exit.Reason == runtime.Exited {
		exit.Reason = runtime.Signaled
	}
	exit.Stdout, exit.Stderr = out.Output(), errOut.Output()
	if exit.Stdout.Cut() > 0 || exit.Stderr.Cut() > 0 {
		exit.Reached = append(exit.Reached, runtime.LimitOutput)
	}
	return exit, nil
}

func (s *sandbox) environment(extra []string) map[string]string {
	env := map[string]string{}
	for _, list := range [][]string{s.cfg.Image.Env, s.cfg.Env, extra} {
		for _, e := range list {
			name, value, _ := strings.Cut(e, "=")
			env[name] = value
		}
	}
	return env
}

// Path returns the host path of a directory; see [runtime.Sandbox].
func (s *sandbox) Path(dir string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.cfg.Persistent || !s.spent {
		return "", errors.New("sandbox has not stopped, or is closed")
	}
	host := filepath.Join(s.root, dir)
	if info, err := os.Lstat(host); err != nil || !info.IsDir() {
		return "", fmt.Errorf("%s: %w", dir, fs.ErrNotExist)
	}
	return host, nil
}

// Changes returns the whole root file system; see [runtime.Sandbox].
func (s *sandbox) Changes() (runtime.Changes, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.cfg.Persistent || !s.spent || !s.cfg.Machine {
		return runtime.Changes{}, errors.New("sandbox is no machine, has not stopped, or is closed")
	}
	c := runtime.Changes{Dir: s.root}
	for _, m := range s.cfg.Mounts {
		c.Mounts = append(c.Mounts, m.Dest)
	}
	return c, nil
}

// Close removes the sandbox's files.
func (s *sandbox) Close(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return errors.Join(os.RemoveAll(s.root), os.RemoveAll(s.copies))
}
