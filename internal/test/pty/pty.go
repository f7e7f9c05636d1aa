// Package pty gives tests a terminal: a pseudo-terminal of the kernel.
package pty

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/report"
)

// A Terminal is a pseudo-terminal, and what was written to it.
type Terminal struct {
	Master, Slave *os.File
	before        *unix.Termios
	changed       chan struct{} // there is more output
	gone          chan struct{} // nobody has the slave open

	mu     sync.Mutex
	output []byte
}

// New returns a terminal, which is closed at the end of the test.
func New(t *testing.T, columns, rows int) *Terminal {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	must.Do(t, err)
	must.Do(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	must.Do(t, err)
	p := &Terminal{Master: os.NewFile(uintptr(fd), "ptmx"), changed: make(chan struct{}, 1), gone: make(chan struct{})}
	p.Slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	must.Do(t, err)
	p.Resize(t, columns, rows)
	p.before, err = unix.IoctlGetTermios(int(p.Slave.Fd()), unix.TCGETS)
	must.Do(t, err)
	t.Cleanup(func() { _ = p.Slave.Close(); <-p.gone; _ = p.Master.Close() })
	go p.read()
	return p
}

// read collects the output until the last writer is gone (EIO).
func (p *Terminal) read() {
	defer close(p.gone)
	buf := make([]byte, 4096)
	for {
		n, err := p.Master.Read(buf)
		if err != nil {
			return
		}
		p.mu.Lock()
		p.output = append(p.output, buf[:n]...)
		p.mu.Unlock()
		select {
		case p.changed <- struct{}{}:
		default:
		}
	}
}

// Resize changes the size of the terminal.
func (p *Terminal) Resize(t *testing.T, columns, rows int) {
	t.Helper()
	must.Do(t, unix.IoctlSetWinsize(int(p.Master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(columns), Row: uint16(rows)}))
}

// Hangup closes the slave, and waits until everything that was written is in Text.
func (p *Terminal) Hangup(t *testing.T) {
	t.Helper()
	must.Do(t, p.Slave.Close())
	<-p.gone
}

// Text returns all that was written to the terminal.
func (p *Terminal) Text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return string(p.output)
}

// Await waits until want was written.
func (p *Terminal) Await(t *testing.T, want string) {
	t.Helper()
	late := time.After(2 * time.Minute)
	for !strings.Contains(p.Text(), want) {
		select {
		case <-p.changed:
		case <-late:
			t.Fatalf("no %q:\n%q", want, p.Text())
		}
	}
}

// Redraw returns an expression for what precedes a bar that is drawn again: up to the bar, and erase it.
func Redraw() *regexp.Regexp { return regexp.MustCompile("\x1b\\[[1-9][0-9]*A\x1b\\[J") }

// Unbroken fails unless the terminal can be used as before: its mode has not changed, its cursor is on a free
// line, and it got no control sequence except to redraw the bar.
func (p *Terminal) Unbroken(t *testing.T) {
	t.Helper()
	now, err := unix.IoctlGetTermios(int(p.Master.Fd()), unix.TCGETS) // of the slave
	must.Do(t, err)
	if *now != *p.before {
		t.Errorf("the modes are %+v, were %+v", now, p.before)
	}
	text := Redraw().ReplaceAllString(p.Text(), "")
	if !strings.HasSuffix(text, "\n") {
		t.Errorf("the cursor is on no free line: %q", text)
	}
	for _, r := range text {
		if !strings.ContainsRune("\r\n\t", r) && report.Hidden(r) {
			t.Fatalf("%q has %q", text, r)
		}
	}
}
