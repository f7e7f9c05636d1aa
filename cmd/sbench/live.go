package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/vbauerster/mpb/v8/cwriter"

	"github.com/securebench/sbench/run"
)

const (
	redrawEvery = 100 * time.Millisecond // at most
	tickEvery   = time.Second
	// maxAbove bounds what waits to be printed on a terminal that takes nothing.
	maxAbove = 256 << 10 // bytes
)

// A terminal is where a live view is shown.
type terminal struct {
	io.Writer
	size   func() (columns, rows int, err error)
	colour bool
}

// terminalOf says whether w is a terminal that a live view can be shown on. CI
// systems often have one that nobody looks at.
func terminalOf(w io.Writer, getenv func(string) string) (terminal, bool) {
	f, ok := w.(*os.File)
	if !ok || getenv("TERM") == "" || getenv("TERM") == "dumb" || getenv("CI") != "" {
		return terminal{}, false
	}
	fd := int(f.Fd())
	t := terminal{f, func() (int, int, error) { return cwriter.GetSize(fd) }, getenv("NO_COLOR") == ""}
	columns, rows, err := t.size()
	return t, err == nil && columns > 0 && rows > 0
}

// A live view redraws some lines at the bottom of a terminal. It changes no mode
// of the terminal, neither hides the cursor nor reads keys: a process that is
// killed leaves the last view and a free line below it.
//
// What is written to it appears above the view, in whole lines, and passes
// through while there is none. Its methods may be called concurrently. While there
// is a view, events and writes do not wait for the terminal.
type live struct {
	term    terminal
	now     func() time.Time
	resized <-chan os.Signal // nil if nobody tells

	mu    sync.Mutex // of what follows
	loop  *drawing   // nil while there is no view
	board board
	table run.Table
	above bytes.Buffer // whole lines, to be printed
	begun bytes.Buffer // a line that was not written to its end
	lost  int          // lines for which above had no room
}

// drawing is the goroutine that has the terminal.
type drawing struct {
	wake      chan struct{} // something has changed
	quit, off chan struct{}
	once      sync.Once
	screen    *cwriter.Writer
	drawn     string
	broken    bool // the terminal is gone
}

// newLive does nothing to the terminal before the first event.
func newLive(t terminal) *live {
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	return &live{term: t, now: time.Now, resized: resized}
}

// add shows an event. The first one opens the view, the end of the run closes it
// and prints the verdicts; then the next one opens another.
func (l *live) add(e run.Event, wanted bool) {
	l.mu.Lock()
	if l.loop == nil {
		l.open()
	}
	l.table.Add(e)
	if wanted {
		l.board.add(e)
		l.tell(e)
	}
	if e.Kind != run.RunDone {
		l.loop.poke()
	}
	l.mu.Unlock()
	if e.Kind == run.RunDone {
		l.end()
	}
}

// open needs the lock.
func (l *live) open() {
	l.board, l.table = board{}, run.Table{}
	l.loop = &drawing{
		wake: make(chan struct{}, 1), quit: make(chan struct{}), off: make(chan struct{}), screen: cwriter.New(l.term.Writer),
	}
	go l.keepDrawing(l.loop)
}

// tell prints, above the view, what should not be missed. It needs the lock.
func (l *live) tell(e run.Event) {
	switch e.Kind {
	case run.Resume, run.Stopping, run.SandboxCommand, run.SandboxResult, run.VerifierPolicyDenied:
		_ = run.WriteEvent(&l.above, e)
	case run.TaskDone:
		if e.Again {
			_ = run.WriteEvent(&l.above, e)
		}
	}
	l.bound()
}

// Write shows p above the view, or at once if there is none.
func (l *live) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.loop == nil {
		return l.term.Write(p)
	}
	l.begun.Write(p)
	l.above.Write(l.begun.Next(bytes.LastIndexByte(l.begun.Bytes(), '\n') + 1))
	l.bound()
	l.loop.poke()
	return len(p), nil
}

// bound needs the lock.
func (l *live) bound() {
	if l.above.Len()+l.begun.Len() > maxAbove {
		l.lost += bytes.Count(l.above.Bytes(), []byte("\n"))
		l.above.Reset()
		l.begun.Reset()
	}
}

func (d *drawing) poke() {
	select {
	case d.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// keepDrawing draws what has changed, and what the clock changes.
func (l *live) keepDrawing(d *drawing) {
	defer close(d.off)
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		select {
		case <-d.quit:
			return
		case <-d.wake:
		case <-tick.C:
		case <-l.resized:
			d.drawn = ""
		}
		d.draw(l.frame())
		select {
		case <-d.quit:
			return
		case <-time.After(redrawEvery):
		}
	}
}

// frame takes what is to be printed, and says what is to be shown below it.
func (l *live) frame() (above string, lines []string) {
	c := l.canvas()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.takeAbove(false), l.board.lines(l.now(), c)
}

// canvas leaves the last row to the cursor.
func (l *live) canvas() canvas {
	columns, rows, err := l.term.size()
	if err != nil || columns <= 0 || rows <= 0 {
		columns, rows = 40, 5
	}
	return canvas{min(columns, maxColumns), rows - 1, l.term.colour}
}

// takeAbove takes the whole lines; at the end, what was begun too. It needs the
// lock.
func (l *live) takeAbove(end bool) string {
	if end && l.begun.Len() > 0 {
		l.above.Write(append(l.begun.Bytes(), '\n'))
		l.begun.Reset()
	}
	text := l.above.String()
	l.above.Reset()
	if l.lost > 0 {
		text = fmt.Sprintf("sbench: %d lines were not printed: the terminal did not take them\n", l.lost) + text
		l.lost = 0
	}
	return text
}

// draw replaces the view in one write. Of a terminal that is gone nothing more is
// wanted: the run goes on.
func (d *drawing) draw(above string, lines []string) {
	var text string
	for _, line := range lines {
		text += line + "\n"
	}
	if d.broken || above == "" && text == d.drawn {
		return
	}
	d.drawn = text
	// The terminal may have echoed a key, such as ^C, where the cursor was.
	_, _ = d.screen.WriteString("\r\x1b[K" + above + text)
	d.broken = d.screen.Flush(len(lines)) != nil
}

// end leaves the totals, and the verdicts below them.
func (l *live) end() {
	l.close(func() string {
		var text strings.Builder
		for _, line := range l.board.totals(l.now(), l.canvas()) {
			text.WriteString(line + "\n")
		}
		var table strings.Builder
		_ = l.table.Write(&table) // a builder takes everything
		for line := range strings.Lines(table.String()) {
			text.WriteString(harmless(strings.TrimSuffix(line, "\n")) + "\n")
		}
		return text.String()
	})
}

// stop takes the view away, if there is one.
func (l *live) stop() { l.close(func() string { return "" }) }

// close ends the goroutine and leaves what last says, which has the lock.
func (l *live) close(last func() string) {
	l.mu.Lock()
	d := l.loop
	l.mu.Unlock()
	if d == nil {
		return
	}
	d.once.Do(func() { close(d.quit) })
	<-d.off
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.loop != d { // closed by another
		return
	}
	d.draw(l.takeAbove(true)+last()+"\r", nil)
	l.loop = nil
}

// live puts a live view in front of standard error, if it can be shown there.
func (a *app) live() (*live, bool) {
	if l, ok := a.stderr.(*live); ok {
		return l, true
	}
	t, ok := terminalOf(a.stderr, os.Getenv)
	if !ok {
		return nil, false
	}
	l := newLive(t)
	a.stderr = l
	return l, true
}

// endLive gives the terminal back, for results and errors.
func (a *app) endLive() {
	if l, ok := a.stderr.(*live); ok {
		l.stop()
	}
}
