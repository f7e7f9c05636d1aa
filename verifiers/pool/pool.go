// Package pool runs Python code and its tests in sandboxes that it keeps for later runs. It knows no
// task and gives no verdict: [Pool.Run] returns what a run reported and how it ended.
//
// The programs in the sandboxes are in the directory code: supervise.py is the first process of each, and
// starts judge.py, which runs the tests, and host.py, in which a candidate runs apart from them.
package pool

import (
	"context"
	"embed"
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
	"github.com/securebench/sbench/verifiers/contrast"
)

// programFiles are the programs of a supervised sandbox; see docs/verifiers.md.
//
//go:embed code/*.py
var programFiles embed.FS

// Programs returns the text of the programs in the sandboxes.
func Programs() string { return programs() }

var programs = sync.OnceValue(func() string {
	var text strings.Builder
	paths, _ := fs.Glob(programFiles, "code/*.py") // cannot fail: the pattern is valid
	for _, path := range paths {
		program, _ := programFiles.ReadFile(path) // cannot fail: it is there
		text.Write(program)
	}
	return text.String()
})

const (
	mount       = "/opt/securebench/code"
	stageBytes  = 1 << 20
	stageInodes = 64
	// layerBytes bounds writes over a sandbox's read-only root, which are few.
	layerBytes = 4 << 20
	// poolWall bounds the life of a sandbox; each run in it has its own time limit.
	poolWall = 24 * time.Hour
	// readyWall bounds how long a sandbox's first process takes to get ready, runSlack how
	// far a run may exceed its own limit.
	readyWall = 5 * time.Minute
	runSlack  = time.Minute
	// killed is the status of code/supervise.py after the kernel killed a run.
	killed = 48
	// maxMessage bounds a message of code/supervise.py in bytes, maxResult the result of a run.
	maxMessage = 1 << 20
	maxResult  = 4 << 20
	// maxIdle bounds the idle sandboxes.
	maxIdle = 10
)

// Engine is what a pool needs from the runtime. Its methods are safe for concurrent use.
type Engine interface {
	contrast.Sandboxes
	// NewVolume makes a volume, which the pool closes after the sandboxes that mount it.
	NewVolume(ctx context.Context, cfg runtime.VolumeConfig) (runtime.Volume, error)
}

// A Pool keeps sandboxes for later runs. In each run the tests are a process of a different user, which leaves
// neither files nor processes; a sandbox for which that cannot be proven is discarded. The kernel's counters in
// a sandbox go on, so two candidates with one task's tests are never in the same sandbox.
//
// It is safe for concurrent use. Close it when no run is in progress.
type Pool struct {
	engine Engine

	mu   sync.Mutex
	idle []*sandbox // the most recently used one is last
}

// New returns an empty pool that makes its sandboxes with e.
func New(e Engine) *Pool { return &Pool{engine: e} }

// Close removes the sandboxes of the pool, which must not be used afterwards.
func (p *Pool) Close(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, s := range p.idle {
		errs = append(errs, s.close(ctx))
	}
	p.idle = nil
	return errors.Join(errs...)
}

// Config says in which sandboxes a run may be.
type Config struct {
	Image  runtime.Image
	Limits runtime.Limits
	// Isolation is the least that the sandbox gets; "" leaves it to the engine.
	Isolation runtime.Isolation
	User      string   // of the tests; the first process is root's
	Env       []string // NAME=VALUE
}

func (c Config) key() string {
	return fmt.Sprintf("%s %s %s %+v %s %q", c.Isolation, c.Image.Digest, c.Image.ChainID, c.Limits, c.User, c.Env)
}

// A Request describes one run.
type Request struct {
	Text []byte // what code/judge.py reads, in JSON
	// Tests is the text of the tests if the candidate can see them, and so could tell a later run with
	// them from its first; "" otherwise.
	Tests       string
	Apart       bool // the candidate gets a process of its own
	Wall        time.Duration
	OutputBytes int64 // kept of the output
}

// Run makes one run, in a kept sandbox if one fits. The error is [contrast.ErrPython] if the image's
// python3 cannot be used.
func (p *Pool) Run(ctx context.Context, c Config, r Request) (Result, error) {
	c.Limits.LayerBytes = min(c.Limits.LayerBytes, layerBytes)
	s, err := p.take(ctx, c, r.Tests)
	if err != nil {
		return Result{}, err
	}
	if r.Tests != "" {
		s.seen[r.Tests] = true
	}
	result, clean, err := s.run(ctx, r)
	if clean && err == nil {
		return result, p.put(ctx, s)
	}
	return result, errors.Join(err, s.close(ctx))
}

// take returns a sandbox in which no candidate has run with these tests, if possible an idle one.
func (p *Pool) take(ctx context.Context, c Config, tests string) (*sandbox, error) {
	key := c.key()
	fits := func(s *sandbox) bool { return s.key == key && !s.seen[tests] }
	for s := p.pop(fits); s != nil; s = p.pop(fits) {
		select {
		case <-s.ended: // with the daemon, or because the kernel killed it
			if err := s.close(ctx); err != nil {
				return nil, err
			}
		default:
			return s, nil
		}
	}
	return p.start(ctx, c)
}

// pop removes and returns the most recently used idle sandbox that fits, or nil.
func (p *Pool) pop(fits func(*sandbox) bool) *sandbox {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, s := range slices.Backward(p.idle) {
		if fits(s) {
			p.idle = slices.Delete(p.idle, i, i+1)
			return s
		}
	}
	return nil
}

// put returns a sandbox to the pool. A full pool closes the sandbox that has been idle longest.
func (p *Pool) put(ctx context.Context, s *sandbox) error {
	p.mu.Lock()
	p.idle = append(p.idle, s)
	var old *sandbox
	if len(p.idle) > maxIdle {
		old = p.idle[0]
		p.idle = slices.Delete(p.idle, 0, 1)
	}
	p.mu.Unlock()
	if old == nil {
		return nil
	}
	return old.close(ctx)
}

func (p *Pool) start(ctx context.Context, c Config) (*sandbox, error) {
	stage, err := p.engine.NewVolume(ctx, runtime.VolumeConfig{Bytes: stageBytes, Inodes: stageInodes})
	if err != nil {
		return nil, err
	}
	if err := os.CopyFS(stage.Path(), programFiles); err != nil {
		return nil, errors.Join(err, stage.Close())
	}
	made, err := p.engine.Create(ctx, runtime.Config{
		Name: "verifier", Image: c.Image, Isolation: c.Isolation, Limits: c.Limits, Mounts: []runtime.Mount{{Source: filepath.Join(stage.Path(), "code"), Dest: mount}},
		Workdir: "/tmp", User: "0:0", Env: c.Env, Capabilities: []string{"CAP_SETUID", "CAP_SETGID", "CAP_KILL"},
	})
	if err != nil {
		return nil, errors.Join(err, stage.Close())
	}
	input, requests := io.Pipe()
	messages, output := io.Pipe()
	s := &sandbox{
		key: c.key(), seen: map[string]bool{}, sandbox: made, stage: stage, requests: requests,
		messages: make(chan message), ended: make(chan struct{}),
	}
	life, kill := context.WithCancel(context.WithoutCancel(ctx))
	s.kill = kill
	go func() {
		defer close(s.ended)
		s.exit, s.err = made.Exec(life, runtime.Process{
			Args: []string{"python3", mount + "/supervise.py", c.User}, Stdin: input, Stdout: output,
			Wall: poolWall, Grace: time.Millisecond, OutputBytes: 64 << 10,
		})
		_, _ = input.CloseWithError(io.ErrClosedPipe), output.Close()
	}()
	go s.read(messages)
	ready, cancel := context.WithTimeoutCause(ctx, readyWall, errOvertime)
	defer cancel()
	if _, err := s.next(ready); err != nil {
		select {
		case <-s.ended:
			if errors.Is(s.err, runtime.ErrNotStarted) || s.err == nil {
				err = fmt.Errorf("%w: %w: %s", contrast.ErrPython, errors.Join(err, s.err), firstLine(s.exit))
			}
		default:
		}
		return nil, errors.Join(err, s.close(ctx))
	}
	return s, nil
}

// firstLine returns what our own program printed. No candidate has run yet, so an error may quote it.
func firstLine(exit runtime.Exit) string {
	if exit.Reason == "" {
		return "it was not started"
	}
	return exit.String() + ": " + exit.Stderr.String()
}

// sandbox is a sandbox that runs code/supervise.py.
type sandbox struct {
	key      string          // what a task must match; see Pool.take
	seen     map[string]bool // the tests with which candidates have run, never ""
	sandbox  runtime.Sandbox
	stage    runtime.Volume
	requests *io.PipeWriter
	messages chan message // closed when there are no more
	kill     func()
	ended    chan struct{} // closed when its process has ended; then exit and err are set
	exit     runtime.Exit
	err      error
}

// Errors of a sandbox that answers nothing.
var (
	errEnded    = errors.New("the sandbox's first process has ended")
	errOvertime = errors.New("no answer from the sandbox's first process")
)

// A message is what the first process writes; see code/supervise.py.
type message struct {
	kind byte
	text []byte
}

// readMessage reads a letter, nine digits, and as many bytes.
func readMessage(r io.Reader) (m message, err error) {
	head := make([]byte, 10)
	if _, err := io.ReadFull(r, head); err != nil {
		return m, err
	}
	size, err := strconv.ParseUint(string(head[1:]), 10, 64)
	if err != nil || size > maxMessage {
		return m, fmt.Errorf("a message that begins with %q", head)
	}
	m = message{head[0], make([]byte, size)}
	_, err = io.ReadFull(r, m.text)
	return m, err
}

// read passes on what the first process writes.
func (s *sandbox) read(output *io.PipeReader) {
	defer close(s.messages)
	for {
		m, err := readMessage(output)
		if err != nil {
			_ = output.CloseWithError(err)
			return
		}
		s.messages <- m
	}
}

// next waits for the next message.
func (s *sandbox) next(ctx context.Context) (message, error) {
	select {
	case m, ok := <-s.messages:
		if ok {
			return m, nil
		}
	case <-ctx.Done():
		return message{}, context.Cause(ctx)
	}
	select {
	case <-s.ended:
		return message{}, errEnded
	case <-ctx.Done():
		return message{}, context.Cause(ctx)
	}
}

func (s *sandbox) close(ctx context.Context) error {
	s.kill()
	_ = s.requests.Close()
	for range s.messages { // which it may be writing
	}
	<-s.ended
	var err error
	if errors.Is(s.err, runtime.ErrStillAlive) {
		err = s.err
	}
	return errors.Join(err, s.sandbox.Close(ctx), s.stage.Close())
}

// A Result is how a run of tests ended.
type Result struct {
	End    string // "exit 0", "signal 11", "killed", "timeout"
	Result string // what the process reported, if it did
	Output runtime.Output
	Took   time.Duration
	// Limit is the sandbox's limit that ended the run; "" if none did.
	Limit runtime.Reason
}

// run sends one request and waits for its end. Unless clean, the sandbox must not be used again.
func (s *sandbox) run(ctx context.Context, request Request) (r Result, clean bool, err error) {
	begun := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, request.Wall+runSlack, errOvertime)
	defer cancel()
	apart := map[bool]int{true: 1}[request.Apart]
	frame := fmt.Appendf(nil, "%010d%010d%010d", request.Wall.Milliseconds(), apart, len(request.Text))
	if _, err := s.requests.Write(append(frame, request.Text...)); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		return r, false, err
	}
	output := runtime.NewCapture(request.OutputBytes, nil)
	var result strings.Builder
	defer func() { r.Output, r.Result = output.Output(), result.String() }()
	for {
		m, err := s.next(ctx)
		if r.End == "" {
			r.Took = time.Since(begun)
		}
		switch {
		case err != nil && r.End != "":
			return r, false, nil
		case errors.Is(err, errEnded):
			return s.gone(r)
		case err != nil:
			return r, false, fmt.Errorf("the end of a run: %w", err)
		case m.kind == 'e':
			r.End = string(m.text)
		case m.kind == 'o':
			_, _ = output.Write(m.text) // cannot fail
		case m.kind == 'r':
			_, _ = result.Write(m.text[:min(len(m.text), maxResult-result.Len())]) // cannot fail
		default:
			return r, m.kind == 'c', nil
		}
	}
}

// gone adds to r what ended the first process, and so the run.
func (s *sandbox) gone(r Result) (Result, bool, error) {
	switch {
	case s.err != nil:
		return r, false, s.err
	case s.exit.Reason == runtime.OutOfMemory, s.exit.Reason == runtime.PidsLimit:
		r.End, r.Limit = "killed", s.exit.Reason
		return r, false, nil
	case s.exit.Reason == runtime.Exited && s.exit.Code == killed:
		r.End = "killed"
		return r, false, nil
	}
	return r, false, fmt.Errorf("%w: it %s", errEnded, s.exit)
}
