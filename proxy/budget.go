package proxy

import "sync"

// A budget is a number of bytes that several flows share. take uses bytes; reserved bytes
// must soon be settled, since take may wait for them.
type budget struct {
	mu       sync.Mutex
	settled  sync.Cond
	total    int64
	left     int64 // neither used nor reserved
	reserved int64
	ended    bool
}

func newBudget(total int64) *budget {
	b := &budget{total: total, left: total}
	b.settled.L = &b.mu
	return b
}

// take uses up to n bytes and returns how many it used. Fewer than n means that the budget
// is exhausted: take waits for reserved bytes that may be given back.
func (b *budget) take(n int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.left < n && b.reserved > 0 && !b.ended {
		b.settled.Wait()
	}
	n = min(n, b.left)
	b.left -= n
	return n
}

// reserve sets up to n bytes aside, at most a quarter of what is left.
func (b *budget) reserve(n int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	n = min(n, b.left/4)
	b.left -= n
	b.reserved += n
	return n
}

// settle gives back the unused part of reserved bytes.
func (b *budget) settle(reserved, used int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reserved -= reserved
	b.left += reserved - used
	b.settled.Broadcast()
}

// open stops take from waiting, now and later.
func (b *budget) open() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	b.settled.Broadcast()
}

func (b *budget) used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total - b.left - b.reserved
}
