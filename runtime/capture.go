package runtime

import (
	"io"
	"sync"
)

// A Capture keeps the head and the tail of a stream within a bound and passes
// everything on to another writer. It never fails and never stops reading, so
// that a flood does not block its writer. Safe for concurrent use.
type Capture struct {
	mu    sync.Mutex
	head  []byte
	tail  []byte // a ring once full
	next  int    // where the ring continues
	room  int    // bytes for head and for tail, each
	total int64
	tee   io.Writer
}

// NewCapture keeps at most limit bytes (at least 2; 0 means DefaultOutputBytes)
// and copies all to tee if it is not nil.
func NewCapture(limit int64, tee io.Writer) *Capture {
	if limit <= 0 {
		limit = DefaultOutputBytes
	}
	return &Capture{room: max(1, int(limit/2)), tee: tee}
}

// Write takes p. It always reports success: a full capture is not the
// writer's fault.
func (c *Capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tee != nil {
		if _, err := c.tee.Write(p); err != nil {
			c.tee = nil
		}
	}
	c.total += int64(len(p))
	rest := p
	if free := c.room - len(c.head); free > 0 {
		n := min(free, len(rest))
		c.head, rest = append(c.head, rest[:n]...), rest[n:]
	}
	if len(rest) > c.room {
		rest = rest[len(rest)-c.room:]
	}
	c.keepTail(rest)
	return len(p), nil
}

func (c *Capture) keepTail(p []byte) {
	if free := c.room - len(c.tail); free > 0 {
		n := min(free, len(p))
		c.tail, p = append(c.tail, p[:n]...), p[n:]
	}
	for len(p) > 0 {
		n := copy(c.tail[c.next:], p)
		c.next, p = (c.next+n)%c.room, p[n:]
	}
}

// Output returns what was kept so far.
func (c *Capture) Output() Output {
	c.mu.Lock()
	defer c.mu.Unlock()
	tail := append(append([]byte{}, c.tail[c.next:]...), c.tail[:c.next]...)
	return Output{Head: append([]byte{}, c.head...), Tail: tail, Total: c.total}
}
