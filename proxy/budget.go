package proxy

import "sync"

// A budget is a number of bytes that several flows share.
type budget struct {
	mu          sync.Mutex
	total, left int64
}

func newBudget(total int64) *budget { return &budget{total: total, left: total} }

// take uses up to n bytes and returns how many it used; fewer than n exhaust the budget. A
// negative n gives bytes back.
func (b *budget) take(n int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	n = min(n, b.left)
	b.left -= n
	return n
}

func (b *budget) used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total - b.left
}
