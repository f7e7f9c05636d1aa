package relay

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
)

// connKey is the context key of how many requests of a connection have not reached the
// handler, an *atomic.Int64.
type connKey struct{}

// connContext is called by net/http for each connection, before connState. It registers
// the connection, unless it is above the limit or the relay is closed.
func (r *Relay) connContext(ctx context.Context, c net.Conn) context.Context {
	pending := &atomic.Int64{}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.conns) < r.cfg.Limits.Conns && r.ctx.Err() == nil {
		r.conns[c] = pending
		r.work.Add(1)
	}
	return context.WithValue(ctx, connKey{}, pending)
}

// connState closes connections that were not registered, and logs requests that
// net/http answered without the handler because it could not read their heads.
func (r *Relay) connState(c net.Conn, now http.ConnState) {
	r.mu.Lock()
	pending := r.conns[c]
	if now == http.StateClosed {
		delete(r.conns, c)
	}
	r.mu.Unlock()
	switch {
	case pending == nil && now == http.StateNew:
		_ = c.Close()
	case pending != nil && now == http.StateActive:
		pending.Add(1)
	case pending != nil && now == http.StateClosed:
		if pending.Load() > 0 {
			r.logMalformed()
		}
		r.work.Done()
	}
}
