package verifiers

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/securebench/sbench/runtime"
)

const (
	// poolWall bounds the life of a kept cell; each task has its own time in it.
	poolWall = 24 * time.Hour
	// markWait is how long the end of the tests' output may come after their exit.
	markWait = time.Second
)

// A CellPool keeps the tests' cells of code_completion from one verification to
// the next, which saves half the sandboxes. No candidate runs in them. Each task
// is judged in a process of its own, and nothing it wrote or started is left for
// the next; a cell of which that is not sure is thrown away.
//
// It is safe for concurrent use. Close it when no verification is running.
type CellPool struct {
	engine Engine

	mu   sync.Mutex
	idle map[string][]*keptCell
}

// NewCellPool makes an empty pool. The engine must outlive it.
func NewCellPool(e Engine) *CellPool { return &CellPool{engine: e, idle: map[string][]*keptCell{}} }

// Close removes the cells.
func (p *CellPool) Close(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for key, list := range p.idle {
		for _, k := range list {
			errs = append(errs, k.close(ctx))
		}
		delete(p.idle, key)
	}
	return errors.Join(errs...)
}

// take returns a kept cell for such tasks, or a new one.
func (p *CellPool) take(ctx context.Context, c cells) (*keptCell, error) {
	cfg := c.config(testsFolder, "")
	slices.Sort(cfg.Env)
	key := fmt.Sprintf("%s %s %+v %s %q", cfg.Image.Digest, cfg.Image.ChainID, cfg.Limits, cfg.User, cfg.Env)
	for k := p.pop(key); k != nil; k = p.pop(key) {
		select {
		case <-k.ended: // with the daemon, or by the kernel's hand
			if err := k.close(ctx); err != nil {
				return nil, err
			}
		default:
			return k, nil
		}
	}
	return p.start(ctx, c, key)
}

func (p *CellPool) pop(key string) *keptCell {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.idle[key]
	if len(list) == 0 {
		return nil
	}
	p.idle[key] = list[:len(list)-1]
	return list[len(list)-1]
}

func (p *CellPool) put(k *keptCell) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle[k.key] = append(p.idle[k.key], k)
}

func (p *CellPool) start(ctx context.Context, c cells, key string) (*keptCell, error) {
	stage, err := stageCells(ctx, p.engine, map[string]files{testsFolder: peerFiles("judge.py", "warden.py")})
	if err != nil {
		return nil, err
	}
	box, err := p.engine.Create(ctx, c.config(testsFolder, stage.Path()))
	if err != nil {
		return nil, errors.Join(because(ctx, err), stage.Close())
	}
	k := &keptCell{key: key, box: box, stage: stage, in: newMailbox(), ended: make(chan struct{})}
	life, kill := context.WithCancelCause(context.WithoutCancel(ctx))
	k.kill = func() { kill(errJudged) }
	go func() {
		defer close(k.ended)
		exit, err := box.Exec(life, runtime.Process{
			Args: pythonArgs("warden.py"), Stdin: k.in, Stdout: &k.out, Stderr: &k.err,
			Wall: poolWall, Grace: cellGrace, OutputBytes: c.in.OutputBytes,
		})
		k.end = cellEnd{exit: exit, err: missingPython(err)}
	}()
	return k, nil
}

// keptCell is a sandbox that runs cell/warden.py.
type keptCell struct {
	key   string
	box   runtime.Sandbox
	stage runtime.Volume
	in    *mailbox
	// out and err pass on to whom the cell works for.
	out, err relay
	kill     func()
	ended    chan struct{} // closed when its process has ended, by end
	end      cellEnd
}

// close ends the cell and removes it.
func (k *keptCell) close(ctx context.Context) error {
	k.kill()
	k.in.close()
	<-k.ended
	return errors.Join(k.end.trouble(), k.box.Close(ctx), k.stage.Close())
}

// judge runs one task's tests in a kept cell of the pool.
func (p *CellPool) judge(ctx context.Context, c cells, k *keptCell, tests codeTests, x *exchange) cellEnd {
	status := make(chan []byte, 1)
	x.tests.control = func(body []byte) { status <- body }
	mark := randomName()
	output := newMarked(c.in.OutputBytes, mark)
	k.out.set(x.tests)
	k.err.set(output)
	begun := time.Now()
	task, err := tests.frame(mark)
	if err != nil {
		return cellEnd{err: errors.Join(err, k.close(ctx))}
	}
	k.in.put(task)
	overtime := time.NewTimer(c.wall())
	defer overtime.Stop()
	var end cellEnd
	clean := false
	select {
	case body := <-status:
		output.wait(markWait)
		end.exit, clean = statusExit(body)
	case <-k.ended:
		end = k.end
		if end.exit.Success() {
			end.exit.Code = wardenKilled // it does not end by itself
		}
	case <-ctx.Done():
		end.err = context.Cause(ctx)
	case <-overtime.C:
		end.err = errOvertime
	}
	end.exit.Wall, end.exit.Stderr = time.Since(begun), output.output()
	k.out.set(nil)
	k.err.set(nil)
	if x.finish() && clean {
		p.put(k)
		return end
	}
	if err := k.close(ctx); err != nil {
		return cellEnd{err: err}
	}
	return end
}

// statusExit reads a control frame: the exit status and whether the cell can be
// used again.
func statusExit(body []byte) (exit runtime.Exit, clean bool) {
	exit.Reason = runtime.Exited
	if len(body) != 2 {
		exit.Code = wardenKilled
		return exit, false
	}
	exit.Code = int(body[0])
	if exit.Code > 128 {
		exit.Reason, exit.Signal = runtime.Signaled, exit.Code-128
	}
	return exit, body[1] == 1
}

// frame returns the control frame that starts a task.
func (t codeTests) frame(mark string) ([]byte, error) {
	functions, classes := t.declared()
	body, err := json.Marshal([]any{t.source, functions, classes, mark})
	if err != nil {
		return nil, err
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))|controlFrame), body...), nil
}

// relay passes writes on to a writer that changes.
type relay struct {
	mu sync.Mutex
	to io.Writer
}

func (r *relay) set(w io.Writer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = w
}

// Write always succeeds: the cell outlives who stops listening.
func (r *relay) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.to != nil {
		if _, err := r.to.Write(p); err != nil {
			r.to = nil
		}
	}
	return len(p), nil
}

// marked keeps output up to a mark.
type marked struct {
	capture *runtime.Capture
	mark    string
	seen    chan struct{}
	tail    []byte
}

func newMarked(limit int64, mark string) *marked {
	return &marked{capture: runtime.NewCapture(limit, nil), mark: mark, seen: make(chan struct{})}
}

func (m *marked) Write(p []byte) (int, error) {
	_, _ = m.capture.Write(p)
	m.tail = append(m.tail, p...)
	if bytes.Contains(m.tail, []byte(m.mark)) {
		select {
		case <-m.seen:
		default:
			close(m.seen)
		}
	}
	m.tail = m.tail[max(0, len(m.tail)-len(m.mark)):]
	return len(p), nil
}

func (m *marked) wait(limit time.Duration) {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-m.seen:
	case <-t.C:
	}
}

// output returns what was kept, without the mark at its end.
func (m *marked) output() runtime.Output {
	o := m.capture.Output()
	for _, part := range []*[]byte{&o.Head, &o.Tail} {
		if rest, ok := bytes.CutSuffix(*part, []byte(m.mark)); ok {
			*part = rest
			o.Total -= int64(len(m.mark))
		}
	}
	return o
}
