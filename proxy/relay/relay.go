package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// ErrClosed is returned by [Relay.Serve] on a closed relay.
var ErrClosed = errors.New("relay is closed")

// A Relay stands between one sandbox and one provider. Its methods may be called
// from several goroutines.
type Relay struct {
	cfg    Config // its key is in no printable field
	base   *url.URL
	routes []route
	ledger *ledger
	up     *upstream
	server *http.Server
	conns  connTable

	ctx    context.Context // of every request; ends with the relay
	cancel context.CancelCauseFunc

	allowance allowance

	mu     sync.Mutex
	closed bool
	work   sync.WaitGroup // Serve and the agent's connections
}

// New returns a relay that serves nobody yet. An error names everything that is
// wrong with the configuration, and never the key.
func New(cfg Config) (*Relay, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("provider relay: %w", err)
	}
	cfg.Limits = cfg.Limits.withDefaults()
	r := &Relay{cfg: cfg, base: cfg.BaseURL, routes: routes(cfg.Provider), ledger: newLedger(cfg), up: newUpstream(cfg)}
	r.allowance.rate = cfg.Limits.Inspect
	if r.base == nil {
		r.base = cfg.Provider.publicURL()
	}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	r.conns = connTable{
		max: cfg.Limits.Conns, opened: r.begin, closed: r.work.Done, malformed: r.logMalformed, conns: map[net.Conn]*connState{},
	}
	r.server = &http.Server{
		Handler:                      http.HandlerFunc(r.handle),
		BaseContext:                  func(net.Listener) context.Context { return r.ctx },
		ConnContext:                  r.conns.context,
		ConnState:                    r.conns.state,
		ReadHeaderTimeout:            cfg.Limits.Head,
		IdleTimeout:                  5 * time.Minute,
		MaxHeaderBytes:               64 << 10,
		DisableGeneralOptionsHandler: true, // else OPTIONS * is answered unseen
		ErrorLog:                     log.New(io.Discard, "", 0),
	}
	return r, nil
}

// Serve answers what comes in on l until [Relay.Close], and returns nil then. It
// takes l over and closes it. It may be called for several listeners.
func (r *Relay) Serve(l net.Listener) error {
	if !r.begin() {
		_ = l.Close()
		return ErrClosed
	}
	defer r.work.Done()
	if err := r.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("provider relay: %w", err)
	}
	return nil
}

// begin counts in what Close waits for, unless the relay is closed.
func (r *Relay) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.work.Add(1)
	return true
}

// Close stops serving, ends the requests under way and waits for their last
// lines in the log. The facts are final after it. The error is that of a
// listener that could not be closed. Further calls do nothing.
func (r *Relay) Close() error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil
	}
	r.closed = true
	r.mu.Unlock()
	r.cancel(ErrClosed)
	err := r.server.Close()
	r.up.close()
	r.work.Wait()
	return err
}

// Facts returns what was seen so far.
func (r *Relay) Facts() Facts { return r.ledger.snapshot() }
