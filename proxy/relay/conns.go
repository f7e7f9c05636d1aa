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

// connContext is called by net/http for each connection, before connState. It registers
// the connection, unless it is above the limit or the relay is closed.
func (r *Relay) connContext(ctx context.Context, c net.Conn) context.Context {
	s := &agentConn{}
	r.connsMu.Lock()
	defer r.connsMu.Unlock()
	if len(r.conns) < r.cfg.Limits.Conns && r.begin() {
		r.conns[c] = s
	}
	return context.WithValue(ctx, connKey{}, s)
}

// connHandled records that a request reached the handler. ctx derives from
// [Relay.connContext].
func (r *Relay) connHandled(ctx context.Context) {
	r.connsMu.Lock()
	defer r.connsMu.Unlock()
	if s, _ := ctx.Value(connKey{}).(*agentConn); s != nil {
		s.handled++
	}
}

// connState closes connections that were not registered, and logs requests that
// net/http answered without the handler because it could not read their heads.
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
