package proxy

import "sync"

// A budget is a number of bytes that several flows share.
type budget struct {
	mu          sync.Mutex
	total, left int64
}

func newBudget(total int64) *budget { return &budget{total: total, left: total} }

// take takes up to n bytes, and returns how many. Fewer than n means that the budget is exhausted.
func (b *budget) take(n int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	n = min(n, b.left)
	b.left -= n
	return n
}

// reserve takes up to n bytes for a flow that may not use them, at most a 64th of what is left: other flows must not
// run out because of it.
func (b *budget) reserve(n int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	n = min(n, b.left/64)
	b.left -= n
	return n
}

// giveBack returns bytes that were not used.
func (b *budget) giveBack(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left += n
}

func (b *budget) used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total - b.left
}
