package verifiers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// maxFrame bounds the body of a message, in bytes; cell/cellpeer.py has the same
// number. A length of 0 tells the tests that the candidate's cell is gone, and one
// with the top bit set is between sbench and the tests' cell; see cell/warden.py.
const (
	maxFrame     = 16 << 20
	controlFrame = 1 << 31
)

// An exchange carries frames between two cells. It knows a frame's length and
// whose turn it is, and nothing of what is inside.
//
// The candidate's cell speaks first, then they take turns. It has limit to answer
// each frame. Whatever it sends against that fails the exchange.
type exchange struct {
	tests, candidate *endpoint
	limit            time.Duration
	stop             func() // called once, when the exchange fails

	mu     sync.Mutex
	turn   *endpoint
	timer  *time.Timer // runs while the candidate has the turn
	count  int
	failed *Verdict
	over   bool // the tests' cell is no longer ours
}

// newExchange makes an exchange. tests receives what the tests' cell reads.
func newExchange(limit time.Duration, tests *mailbox, stop func()) *exchange {
	x := &exchange{limit: limit, stop: stop}
	x.tests, x.candidate = &endpoint{x: x, in: tests}, &endpoint{x: x, in: newMailbox()}
	x.turn = x.candidate
	return x
}

// An endpoint takes what one cell writes. Write reports a violation as an error
// and never blocks.
type endpoint struct {
	x  *exchange
	in *mailbox // what the cell reads
	// control takes control frames; nil refuses them.
	control func(body []byte)
	data    []byte // of the frame that is arriving, its length included
}

var errFrame = errors.New("not a frame, or out of turn")

func (e *endpoint) Write(p []byte) (int, error) {
	total := len(p)
	for len(p) > 0 {
		n := min(len(p), e.missing())
		e.data, p = append(e.data, p[:n]...), p[n:]
		if len(e.data) == 4 && (e.size() == 0 || e.size() > maxFrame || e.controls() && e.control == nil) {
			e.x.violation(e, fmt.Sprintf("of %d bytes, which is none or too many", binary.BigEndian.Uint32(e.data)))
			return 0, errFrame
		}
		if e.missing() == 0 {
			if !e.deliver() {
				return 0, errFrame
			}
			e.data = nil
		}
	}
	return total, nil
}

func (e *endpoint) controls() bool { return binary.BigEndian.Uint32(e.data)&controlFrame != 0 }

func (e *endpoint) size() int { return int(binary.BigEndian.Uint32(e.data) &^ controlFrame) }

// missing says how many bytes complete the length or the frame.
func (e *endpoint) missing() int {
	if len(e.data) < 4 {
		return 4 - len(e.data)
	}
	return 4 + e.size() - len(e.data)
}

func (e *endpoint) deliver() bool {
	if e.controls() {
		e.control(e.data[4:])
		return true
	}
	return e.x.pass(e, e.data)
}

// begin starts the time that the candidate has to be loaded.
func (x *exchange) begin() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.turn == x.candidate && x.timer == nil {
		x.timer = time.AfterFunc(x.limit, x.overtime)
	}
}

// pass hands a frame to the other cell.
func (x *exchange) pass(from *endpoint, frame []byte) bool {
	x.mu.Lock()
	if x.turn != from || x.failed != nil || x.over {
		x.mu.Unlock()
		x.violation(from, "out of turn")
		return false
	}
	defer x.mu.Unlock()
	x.count++
	if x.timer != nil {
		x.timer.Stop()
	}
	if from == x.tests {
		x.turn = x.candidate
		x.timer = time.AfterFunc(x.limit, x.overtime)
	} else {
		x.turn = x.tests
	}
	x.turn.in.put(frame)
	return true
}

// violation fails the exchange. By the tests' cell it is the work of the tests'
// author, and of no candidate.
func (x *exchange) violation(from *endpoint, what string) {
	if from == x.tests {
		x.fail(failed("tests_protocol_violation", "the tests' cell sent a frame "+what))
		return
	}
	x.fail(failed("candidate_protocol_violation", "the candidate's cell sent a frame "+what))
}

func (x *exchange) overtime() {
	x.fail(failed("call_timeout", fmt.Sprintf("a call of the candidate did not return within %s", x.limit)))
}

// fail records the first failure and stops the cells.
func (x *exchange) fail(v Verdict) {
	x.mu.Lock()
	first := x.failed == nil
	if first {
		x.failed = &v
	}
	x.mu.Unlock()
	if first {
		x.stop()
	}
}

// gone tells the tests that their next question will not be answered.
func (x *exchange) gone() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.over {
		x.tests.in.put([]byte{0, 0, 0, 0})
	}
}

// finish ends the exchange for the tests' cell, to which nothing goes any more. It
// says whether no frame is on its way.
func (x *exchange) finish() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.over = true
	return x.failed == nil && x.turn == x.tests && len(x.tests.data) == 0
}

func (x *exchange) failure() *Verdict {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.failed
}

func (x *exchange) messages() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.count
}

// close releases whoever still waits.
func (x *exchange) close() {
	x.mu.Lock()
	if x.timer != nil {
		x.timer.Stop()
	}
	x.mu.Unlock()
	x.candidate.in.close()
}

// A mailbox holds the frames that a cell has not read yet. In an exchange that is
// at most one, since the cells take turns.
type mailbox struct {
	mu     sync.Mutex
	filled *sync.Cond
	data   []byte
	closed bool
}

func newMailbox() *mailbox {
	m := &mailbox{}
	m.filled = sync.NewCond(&m.mu)
	return m
}

func (m *mailbox) put(frame []byte) {
	m.mu.Lock()
	m.data = append(m.data, frame...)
	m.mu.Unlock()
	m.filled.Signal()
}

// Read waits for bytes, and is at its end when the mailbox is closed and empty.
func (m *mailbox) Read(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.data) == 0 && !m.closed {
		m.filled.Wait()
	}
	if len(m.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p, m.data)
	m.data = m.data[n:]
	return n, nil
}

func (m *mailbox) close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.filled.Broadcast()
}
