package progress

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/record"
)

const barWidth = 40 // columns

// isTerminal reports whether a bar can be drawn on w: CI systems often provide a terminal that nobody watches.
func isTerminal(w io.Writer, getenv func(string) string) bool {
	f, ok := w.(*os.File)
	if !ok || getenv("TERM") == "" || getenv("TERM") == "dumb" || getenv("CI") != "" {
		return false
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	return err == nil && size.Col > 0 && size.Row > 0
}

// A bar shows the numbers and times of a run, and no text of a task, an agent or a model, in the last line of a
// terminal. It changes neither the terminal's mode nor its cursor, so that a crash leaves nothing to reset.
//
// What is written to the bar appears above it, in whole lines, or passes through while no bar is shown. The
// methods may be called concurrently. They block while the terminal is stopped.
type bar struct {
	out  *os.File
	text atomic.Pointer[string] // mpb's goroutine reads it, and must not wait for mu

	mu      sync.Mutex // guards what follows
	view    *mpb.Progress
	shown   *mpb.Bar // nil while there is none
	partial []byte   // an incomplete line
	pace    pace
	counts  map[record.Status]int
	tokens  int64
	cost    float64 // in US dollars
}

// add moves the bar. The start of a run opens it, and the end of the run closes it.
func (b *bar) add(e run.Event) {
	if e.Kind == run.RunStart {
		b.close() // of a run before
	}
	b.mu.Lock()
	if e.Kind == run.RunStart {
		b.open()
	}
	if b.shown != nil {
		b.update(e)
	}
	b.mu.Unlock()
	if e.Kind == run.RunDone {
		b.close()
	}
}

// open draws the bar. The caller holds the lock.
func (b *bar) open() {
	b.pace, b.counts, b.tokens, b.cost = pace{}, map[record.Status]int{}, 0, 0
	b.text.Store(new(string))
	began := time.Now()
	b.view = mpb.New(mpb.WithOutput(b.out))
	b.shown = b.view.New(0, mpb.BarStyle(), mpb.BarWidth(barWidth),
		// The return is for what the terminal has echoed at the cursor, such as ^C.
		mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return "\r" })),
		mpb.AppendDecorators(decor.Any(func(decor.Statistics) string { return *b.text.Load() + time.Since(began).Round(time.Second).String() })),
	)
}

// update takes an event into account. The caller holds the lock.
func (b *bar) update(e run.Event) {
	b.pace.add(e)
	if e.Kind == run.TaskDone && !e.Again {
		b.counts[e.Status]++
	}
	b.tokens, b.cost = b.tokens+e.Tokens, b.cost+e.CostUSD
	text := fmt.Sprintf("%d/%d  %d passed  %d failed  %d error  ", b.pace.done(), b.pace.attempts,
		b.counts[record.Passed], b.counts[record.Failed], b.counts[record.Error])
	if b.tokens > 0 {
		text += fmt.Sprintf("%d tokens  ", b.tokens)
	}
	if b.cost > 0 {
		text += fmt.Sprintf("%.2f USD  ", b.cost)
	}
	b.text.Store(&text)
	b.shown.SetTotal(int64(b.pace.attempts), false)
	b.shown.SetCurrent(int64(b.pace.done()))
}

// Write shows the whole lines of p above the bar. An incomplete line waits for its rest.
func (b *bar) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shown == nil {
		return b.out.Write(p)
	}
	b.partial = append(b.partial, p...)
	if end := bytes.LastIndexByte(b.partial, '\n') + 1; end > 0 {
		if _, err := b.view.Write(append([]byte("\r"), b.partial[:end]...)); err != nil {
			return 0, err
		}
		b.partial = bytes.Clone(b.partial[end:])
	}
	return len(p), nil
}

// close leaves the bar where it is, and returns when all lines are on the terminal.
func (b *bar) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shown == nil {
		return
	}
	b.shown.Abort(false)
	b.view.Wait()
	_, _ = b.out.Write(b.partial)
	b.view, b.shown, b.partial = nil, nil, nil
}
