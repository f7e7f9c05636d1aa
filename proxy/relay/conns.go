package relay

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// A connTable counts the agent's connections, closes those above the limit, and
// tells what net/http answered without asking anybody: heads that it could not
// read.
type connTable struct {
	max       int
	opened    func() bool // false: there shall be none any more
	closed    func()      // for each that opened was true for
	malformed func()

	mu    sync.Mutex
	conns map[net.Conn]*connState
}

type connState struct {
	begun, handled int // requests
}

type connKey struct{}

// context is called by net/http for each connection, before any state.
func (t *connTable) context(ctx context.Context, c net.Conn) context.Context {
	s := &connState{}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.conns) < t.max && t.opened() {
		t.conns[c] = s
	}
	return context.WithValue(ctx, connKey{}, s)
}

// handled says that a request reached the handler. The context is one of
// [connTable.context].
func (t *connTable) handled(ctx context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s, _ := ctx.Value(connKey{}).(*connState); s != nil {
		s.handled++
	}
}

func (t *connTable) state(c net.Conn, now http.ConnState) {
	t.mu.Lock()
	s := t.conns[c]
	over := s != nil && (now == http.StateClosed || now == http.StateHijacked)
	switch {
	case s == nil && now == http.StateNew:
		_ = c.Close()
	case s != nil && now == http.StateActive:
		s.begun++
	case over:
		delete(t.conns, c)
	}
	t.mu.Unlock()
	if !over {
		return
	}
	if s.begun > s.handled {
		t.malformed()
	}
	t.closed()
}
