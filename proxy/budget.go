package proxy

import "sync"

// A budget is a number of bytes that several flows share. take uses bytes. Whoever reserves bytes must
// soon release them, because take may wait for this.
type budget struct {
	mu        sync.Mutex
	released  sync.Cond
	total     int64
	available int64 // neither used nor reserved
	reserved  int64
	ended     bool
}

func newBudget(total int64) *budget {
	b := &budget{total: total, available: total}
	b.released.L = &b.mu
	return b
}

// take uses up to n bytes and returns how many it used. It waits for the release of reserved bytes, so
// fewer than n means that the budget is exhausted.
func (b *budget) take(n int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.available < n && b.reserved > 0 && !b.ended {
		b.released.Wait()
	}
	n = min(n, b.available)
	b.available -= n
	return n
}

// reserve reserves up to n bytes, at most a quarter of the available bytes.
func (b *budget) reserve(n int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	n = min(n, b.available/4)
	b.available -= n
	b.reserved += n
	return n
}

// release ends a reservation. The bytes that were not used are available again.
func (b *budget) release(reserved, used int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reserved -= reserved
	b.available += reserved - used
	b.released.Broadcast()
}

// close ends all waiting in take.
func (b *budget) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	b.released.Broadcast()
}

func (b *budget) used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total - b.available - b.reserved
}
