package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/run"
)

const (
	redrawEvery = 100 * time.Millisecond
	// maxAbove bounds the text that waits while the terminal accepts nothing.
	maxAbove = 256 << 10 // bytes
)

// A terminal is where a live view is shown.
type terminal struct {
	io.Writer
	size   func() (columns, rows int, err error)
	colour bool
}

// terminalOf returns w as a terminal, and whether it can show a live view. CI systems often
// provide a terminal that nobody watches.
func terminalOf(w io.Writer, getenv func(string) string) (terminal, bool) {
	f, ok := w.(*os.File)
	if !ok || getenv("TERM") == "" || getenv("TERM") == "dumb" || getenv("CI") != "" {
		return terminal{}, false
	}
	fd := int(f.Fd())
	size := func() (columns, rows int, err error) {
		w, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
		if err != nil {
			return 0, 0, err
		}
		return int(w.Col), int(w.Row), nil
	}
	columns, rows, err := size()
	return terminal{f, size, getenv("NO_COLOR") == ""}, err == nil && columns > 0 && rows > 0
}

// A live view redraws some lines at the bottom of a terminal, from the first event on. It does not change the
// terminal's mode, hide the cursor or read keys: if the process is killed, the last view stays, with a free
// line below it.
//
// Text written to it appears above the view, in whole lines; without a view it passes through. Its methods may
// be called concurrently. While there is a view, neither events nor writes wait for the terminal.
//
// No library draws it. bubbletea hides the cursor and enables bracketed paste, which persist
// if the process is killed, and adds 17 modules. In mpb, a write above the bars waits for
// the terminal, and bars are redrawn even if nothing has changed.
type live struct {
	term    terminal
	now     func() time.Time
	resized <-chan os.Signal // nil for none

	mu    sync.Mutex // guards what follows
	loop  *drawing   // nil while there is no view
	board board
	table table
	above bytes.Buffer // whole lines that wait to be printed
	begun bytes.Buffer // an incomplete line
	lost  int          // lines dropped from above for lack of room
}

// drawing is the state of the goroutine that draws on the terminal.
type drawing struct {
	quit   context.CancelFunc // ends the goroutine, for which done waits
	done   sync.WaitGroup
	drawn  string // the view on the terminal
	rows   int    // of drawn
	broken bool   // writing to the terminal has failed
}

// add shows an event. The first event opens the view; the end of the run closes it and
// prints the verdicts. An event after that opens another view.
func (l *live) add(e run.Event, wanted bool) {
	l.mu.Lock()
	if l.loop == nil {
		l.open()
	}
	l.table.add(e)
	if wanted {
		l.board.add(e)
		l.tell(e)
	}
	l.mu.Unlock()
	if e.Kind == run.RunDone {
		l.close(l.verdicts)
	}
}

// open opens the view. The caller holds the lock.
func (l *live) open() {
	l.board, l.table = board{}, table{}
	ctx, cancel := context.WithCancel(context.Background())
	d := &drawing{quit: cancel}
	d.done.Go(func() { l.keepDrawing(ctx, d) })
	l.loop = d
}

// tell prints events that should not be missed above the view. The caller holds the lock.
func (l *live) tell(e run.Event) {
	switch e.Kind {
	case run.Resume, run.Stopping, run.SandboxCommand, run.SandboxResult:
	case run.TaskDone:
		if !e.Again {
			return
		}
	default:
		return
	}
	for _, line := range eventLines(e, l.board.pace) {
		l.above.WriteString(line + "\n")
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
	return len(p), nil
}

// bound drops the waiting text if there is too much of it. The caller holds the lock.
func (l *live) bound() {
	if l.above.Len()+l.begun.Len() > maxAbove {
		l.lost += bytes.Count(l.above.Bytes(), []byte("\n"))
		l.above.Reset()
		l.begun.Reset()
	}
}

// keepDrawing draws the view when it has changed: at most every redrawEvery, and when the terminal is resized.
func (l *live) keepDrawing(ctx context.Context, d *drawing) {
	tick := time.NewTicker(redrawEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-l.resized:
			d.drawn = ""
		}
		l.mu.Lock()
		above, lines := l.takeAbove(false), l.board.lines(l.now(), l.canvas())
		l.mu.Unlock()
		l.draw(d, above, lines)
	}
}

// canvas returns the room for the view: all rows but the last, which is for the cursor.
func (l *live) canvas() canvas {
	columns, rows, err := l.term.size()
	if err != nil || columns <= 0 || rows <= 0 {
		columns, rows = 40, 5
	}
	return canvas{min(columns, maxColumns), rows - 1, l.term.colour}
}

// takeAbove takes the waiting lines; at the end, also an incomplete one. The caller holds the lock.
func (l *live) takeAbove(end bool) string {
	if end && l.begun.Len() > 0 {
		l.above.Write(append(l.begun.Bytes(), '\n'))
		l.begun.Reset()
	}
	text := l.above.String()
	l.above.Reset()
	if l.lost > 0 {
		text = fmt.Sprintf("sbench: %d lines were not printed: the terminal did not accept them\n", l.lost) + text
		l.lost = 0
	}
	return text
}

// draw replaces the view in one write if it has changed, and does nothing once writing has failed.
func (l *live) draw(d *drawing, above string, lines []string) {
	text := strings.Join(append(lines, ""), "\n")
	if d.broken || above == "" && text == d.drawn {
		return
	}
	begin := "\r" // the terminal may have echoed a key, such as ^C, where the cursor was
	if d.rows > 0 {
		begin += fmt.Sprintf("\x1b[%dA", d.rows)
	}
	_, err := io.WriteString(l.term, begin+"\x1b[J"+above+text)
	d.drawn, d.rows, d.broken = text, len(lines), err != nil
}

// verdicts returns what replaces the view when the run has ended. The caller holds the lock.
func (l *live) verdicts() string {
	var text strings.Builder
	text.WriteString(strings.Join(append(l.board.totals(l.now(), l.canvas()), ""), "\n"))
	_ = l.table.write(&text) // a strings.Builder never returns an error
	return text.String()
}

// stop removes the view, if there is one.
func (l *live) stop() { l.close(func() string { return "" }) }

// close ends the goroutine, and prints in place of the view what last returns. It calls last with the lock.
func (l *live) close(last func() string) {
	l.mu.Lock()
	d := l.loop
	l.mu.Unlock()
	if d == nil {
		return
	}
	d.quit()
	d.done.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.loop == d { // no other call has closed it
		l.draw(d, l.takeAbove(true)+last()+"\r", nil)
		l.loop = nil
	}
}

// live returns the live view, which it puts in front of standard error, and whether that can show it.
func (a *app) live() (*live, bool) {
	if t, ok := terminalOf(a.stderr, os.Getenv); ok {
		resized := make(chan os.Signal, 1)
		signal.Notify(resized, syscall.SIGWINCH)
		a.view = &live{term: t, now: time.Now, resized: resized}
		a.stderr = a.view
	}
	return a.view, a.view != nil
}

// endLive removes the live view, so that results and errors can be printed.
func (a *app) endLive() {
	if a.view != nil {
		a.view.stop()
	}
}
