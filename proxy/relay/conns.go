package relay

import (
	"context"
	"net"
	"net/http"
)

// agentConn counts the requests of one of the agent's connections.
type agentConn struct {
	begun, handled int
}

type connKey struct{}

// connContext is called by net/http for each connection, before any state. It takes
// those in that are not above the limit, as long as the relay is open.
func (r *Relay) connContext(ctx context.Context, c net.Conn) context.Context {
	s := &agentConn{}
	r.connsMu.Lock()
	defer r.connsMu.Unlock()
	if len(r.conns) < r.cfg.Limits.Conns && r.begin() {
		r.conns[c] = s
	}
	return context.WithValue(ctx, connKey{}, s)
}

// connHandled says that a request reached the handler. The context is one of
// [Relay.connContext].
func (r *Relay) connHandled(ctx context.Context) {
	r.connsMu.Lock()
	defer r.connsMu.Unlock()
	if s, _ := ctx.Value(connKey{}).(*agentConn); s != nil {
		s.handled++
	}
}

// connState closes connections that were not taken in, and tells what net/http
// answered without asking anybody: heads that it could not read.
func (r *Relay) connState(c net.Conn, now http.ConnState) {
	r.connsMu.Lock()
	s := r.conns[c]
	over := s != nil && (now == http.StateClosed || now == http.StateHijacked)
	switch {
	case s == nil && now == http.StateNew:
		_ = c.Close()
	case s != nil && now == http.StateActive:
		s.begun++
	case over:
		delete(r.conns, c)
	}
	r.connsMu.Unlock()
	if !over {
		return
	}
	if s.begun > s.handled {
		r.logMalformed()
	}
	r.work.Done()
}
