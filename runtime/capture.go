package runtime

import (
	"bytes"
	"io"
	"sync"
)

// A Capture keeps the beginning and the end of a stream within a bound and passes everything
// on to another writer. Writing to it never fails, so a process that writes too much is not
// blocked. Make one with [NewCapture]; its methods are safe for concurrent use.
type Capture struct {
	mu    sync.Mutex
	head  []byte
	tail  bytes.Buffer
	room  int // capacity in bytes of head and of tail, each
	total int64
	tee   io.Writer
}

// NewCapture returns a Capture that keeps at most limit bytes, half from the beginning and
// half from the end. It keeps at least 2; 0 or less means [DefaultOutputBytes]. Everything
// is also written to tee, unless that is nil, until its first error.
func NewCapture(limit int64, tee io.Writer) *Capture {
	if limit <= 0 {
		limit = DefaultOutputBytes
	}
	return &Capture{room: max(1, int(limit/2)), tee: tee}
}

// Write takes p and always reports success, even if the capture is full or the other writer
// has failed.
func (c *Capture) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tee != nil {
		if _, err := c.tee.Write(p); err != nil {
			c.tee = nil
		}
	}
	c.total += int64(len(p))
	first := min(c.room-len(c.head), len(p))
	c.head = append(c.head, p[:first]...)
	c.tail.Write(p[max(first, len(p)-c.room):])
	c.tail.Next(max(0, c.tail.Len()-c.room)) // drops what there is no room for
	return len(p), nil
}

// Detach makes the capture pass nothing on any more.
func (c *Capture) Detach() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tee = nil
}

// Output returns a copy of what has been kept so far.
func (c *Capture) Output() Output {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Output{Head: append([]byte{}, c.head...), Tail: append([]byte{}, c.tail.Bytes()...), Total: c.total}
}
