package verifiers

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers/contrast"
)

// codeFiles are the programs of a supervised sandbox; see docs/verifiers.md.
//
//go:embed code/*.py
var codeFiles embed.FS

// codePrograms returns the text of codeFiles.
var codePrograms = sync.OnceValue(func() string {
	var text strings.Builder
	paths, _ := fs.Glob(codeFiles, "code/*.py") // cannot fail: the pattern is valid
	for _, path := range paths {
		program, _ := codeFiles.ReadFile(path) // cannot fail: it is there
		text.Write(program)
	}
	return text.String()
})

const (
	codeMount  = "/opt/securebench/code"
	codeBytes  = 1 << 20
	codeInodes = 64
	// codeLayer bounds writes over a sandbox's read-only root, which are few.
	codeLayer = 4 << 20
	// poolWall bounds the life of a sandbox; each run in it has its own time limit.
	poolWall = 24 * time.Hour
	// readyWall bounds how long a sandbox's first process takes to get ready, runSlack how
	// far a run may exceed its own limit.
	readyWall = 5 * time.Minute
	runSlack  = time.Minute
	// codeKilled is the status of code/supervise.py after the kernel killed a run.
	codeKilled = 48
	maxAnswer  = 64 << 20
	// maxIdle bounds the idle sandboxes. A verification needs one per run: one for each
	// changed test and one more.
	maxIdle = contrast.Mutants + 4
)

// A CodePool keeps sandboxes of code_completion for later verifications. The first process
// of each is our own code/supervise.py. Every run of tests is a separate process of a
// different user and leaves nothing to the next one, neither files nor processes; a sandbox
// for which that cannot be proven is discarded.
//
// The kernel's counters in a sandbox continue from run to run, so a candidate can learn what
// happened before. Two candidates' runs with one task's tests, changed or not, are therefore
// never in the same sandbox.
//
// It is safe for concurrent use. Close it when no verification is running.
type CodePool struct {
	engine Engine

	mu   sync.Mutex
	idle []*codeSandbox // the most recently used one is last
}

// NewCodePool returns an empty pool that makes its sandboxes with e.
func NewCodePool(e Engine) *CodePool { return &CodePool{engine: e} }

// Close removes the sandboxes of the pool, which must not be used afterwards.
func (p *CodePool) Close(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, s := range p.idle {
		errs = append(errs, s.close(ctx))
	}
	p.idle = nil
	return errors.Join(errs...)
}

// codeConfig describes the sandboxes of a task.
func codeConfig(in Input, stage string) runtime.Config {
	env := in.Task.Environment()
	limits := in.Limits
	limits.LayerBytes = min(limits.LayerBytes, codeLayer)
	return runtime.Config{
		Name: "verifier", Image: in.Image, Limits: limits, Mounts: []runtime.Mount{{Source: stage, Dest: codeMount}},
		Workdir: "/tmp", User: "0:0", Env: compiler.Environ(env.Env), Capabilities: []string{"CAP_SETUID", "CAP_SETGID", "CAP_KILL"},
	}
}

// codeUser returns the user of the tests that the task or, failing that, the image names.
func codeUser(in Input) string { return cmp.Or(in.Task.Environment().User, in.Image.User) }

// take returns a sandbox for the task in which no candidate has run with these tests, if
// possible an idle one. tests is "" if the code to run is not a candidate's.
func (p *CodePool) take(ctx context.Context, in Input, tests string) (*codeSandbox, error) {
	cfg := codeConfig(in, "")
	key := fmt.Sprintf("%s %s %+v %s %q", cfg.Image.Digest, cfg.Image.ChainID, cfg.Limits, codeUser(in), cfg.Env)
	fits := func(s *codeSandbox) bool { return s.key == key && !s.seen[tests] }
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
	return p.start(ctx, in, key)
}

// pop removes and returns the most recently used idle sandbox that fits, or nil.
func (p *CodePool) pop(fits func(*codeSandbox) bool) *codeSandbox {
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

// put returns a sandbox to the pool. If the pool is full, it closes the sandbox that has
// been idle longest.
func (p *CodePool) put(ctx context.Context, s *codeSandbox) error {
	p.mu.Lock()
	p.idle = append(p.idle, s)
	var old *codeSandbox
	if len(p.idle) > maxIdle {
		old, p.idle = p.idle[0], slices.Delete(p.idle, 0, 1)
	}
	p.mu.Unlock()
	if old == nil {
		return nil
	}
	return old.close(ctx)
}

func (p *CodePool) start(ctx context.Context, in Input, key string) (*codeSandbox, error) {
	stage, err := p.engine.NewVolume(ctx, runtime.VolumeConfig{Bytes: codeBytes, Inodes: codeInodes})
	if err != nil {
		return nil, err
	}
	if err := os.CopyFS(stage.Path(), codeFiles); err != nil {
		return nil, errors.Join(err, stage.Close())
	}
	sandbox, err := p.engine.Create(ctx, codeConfig(in, filepath.Join(stage.Path(), "code")))
	if err != nil {
		return nil, errors.Join(err, stage.Close())
	}
	input, requests := io.Pipe()
	answers, output := io.Pipe()
	s := &codeSandbox{
		key: key, seen: map[string]bool{}, sandbox: sandbox, stage: stage, requests: requests,
		answers: make(chan json.RawMessage, 2), ended: make(chan struct{}),
	}
	life, kill := context.WithCancel(context.WithoutCancel(ctx))
	s.kill = kill
	go func() {
		defer close(s.ended)
		s.exit, s.err = sandbox.Exec(life, runtime.Process{
			Args: []string{"python3", codeMount + "/supervise.py", codeUser(in)}, Stdin: input, Stdout: output,
			Wall: poolWall, Grace: time.Millisecond, OutputBytes: 64 << 10,
		})
		_, _ = input.CloseWithError(io.ErrClosedPipe), output.Close()
	}()
	go s.read(answers)
	if answer, err := s.answer(ctx, readyWall); err != nil || string(answer) != `"ready"` {
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

// firstLine returns how our own program ended and what it printed. No candidate has run yet,
// so an error may quote it.
func firstLine(exit runtime.Exit) string {
	if exit.Reason == 0 {
		return "it was not started"
	}
	return exit.String() + ": " + exit.Stderr.String()
}

// codeSandbox is a sandbox that runs code/supervise.py.
type codeSandbox struct {
	key      string          // what a task must match; see CodePool.take
	seen     map[string]bool // the tests with which candidates have run, never ""
	sandbox  runtime.Sandbox
	stage    runtime.Volume
	requests *io.PipeWriter
	answers  chan json.RawMessage // closed when there are no more
	kill     func()
	ended    chan struct{} // closed when its process has ended; then exit and err are set
	exit     runtime.Exit
	err      error
}

// errEnded means that the first process has ended; its exit says why.
var errEnded = errors.New("the sandbox's first process has ended")

// read passes on what the first process writes: JSON values, none of more than maxAnswer bytes.
func (s *codeSandbox) read(output *io.PipeReader) {
	defer close(s.answers)
	bounded := &io.LimitedReader{R: output}
	for values := json.NewDecoder(bounded); ; {
		bounded.N = maxAnswer
		var answer json.RawMessage
		if err := values.Decode(&answer); err != nil {
			_ = output.CloseWithError(err)
			return
		}
		s.answers <- answer
	}
}

// answer waits for the next answer, but not longer than limit.
func (s *codeSandbox) answer(ctx context.Context, limit time.Duration) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errOvertime)
	defer cancel()
	select {
	case a, ok := <-s.answers:
		if ok {
			return a, nil
		}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case <-s.ended:
		return nil, errEnded
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

var errOvertime = errors.New("no answer from the sandbox's first process")

// close ends the sandbox and removes it.
func (s *codeSandbox) close(ctx context.Context) error {
	s.kill()
	_ = s.requests.Close()
	<-s.ended
	var err error
	if errors.Is(s.err, runtime.ErrStillAlive) {
		err = s.err
	}
	return errors.Join(err, s.sandbox.Close(ctx), s.stage.Close())
}

// codeRun is how a run of tests ended.
type codeRun struct {
	End    string // "exit 0", "signal 11", "killed", "timeout"
	Result string // what the process reported, if it did
	Output []byte // the end of its output
	Total  int64  // bytes of output
	took   time.Duration
	// limit is the sandbox's limit that ended the run; 0 if none did.
	limit runtime.Reason
}

// run sends one request to the sandbox and waits for its end. It keeps output bytes of the
// output. If clean is false, the sandbox must not be used again.
func (s *codeSandbox) run(ctx context.Context, request []byte, sealed bool, wall time.Duration, output int64) (r codeRun, clean bool, err error) {
	begun := time.Now()
	apart := map[bool]int{true: 1}[sealed]
	frame := fmt.Appendf(nil, "%010d%010d%010d%010d", len(request), wall.Milliseconds(), output, apart)
	if _, err := s.requests.Write(append(frame, request...)); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		return r, false, err
	}
	answer, err := s.answer(ctx, wall+runSlack)
	r.took = time.Since(begun)
	if err == nil {
		err = json.Unmarshal(answer, &r)
	}
	if err == nil {
		answer, err = s.answer(ctx, runSlack)
	}
	switch {
	case errors.Is(err, errEnded):
		return s.gone(r)
	case err != nil:
		return r, false, fmt.Errorf("the answer of a run: %w", err)
	}
	return r, string(answer) == `"clean"`, nil
}

// gone adds to r what ended the first process, and so the run.
func (s *codeSandbox) gone(r codeRun) (codeRun, bool, error) {
	switch {
	case s.err != nil:
		return r, false, s.err
	case s.exit.Reason == runtime.OutOfMemory, s.exit.Reason == runtime.PidsLimit:
		r.End, r.limit = "killed", s.exit.Reason
		return r, false, nil
	case s.exit.Reason == runtime.Exited && s.exit.Code == codeKilled:
		r.End = "killed"
		return r, false, nil
	}
	return r, false, fmt.Errorf("%w: it %s", errEnded, s.exit)
}
