package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/proxy/relay/stream"
)

// ErrClosed is the error of [Relay.Serve] once the relay is closed.
var ErrClosed = errors.New("relay is closed")

// A Relay forwards requests from one sandbox to one provider. Its methods are safe for
// concurrent use. Make one with [New].
type Relay struct {
	cfg    Config // its key is in no printable field
	base   *url.URL
	routes []route
	ledger *ledger
	secret *stream.Secret // the key
	up     *http.Transport
	server *http.Server

	ctx    context.Context // of every request; ends with the relay, under mu
	cancel context.CancelCauseFunc

	allowance allowance

	waiting chan struct{} // has one value while a request waits for Config.Pace

	mu    sync.Mutex
	work  sync.WaitGroup             // Serve and the agent's connections
	conns map[net.Conn]*atomic.Int64 // the agent's connections, each with its requests that have not reached the handler
}

// New returns a relay, which the caller must close. The error names everything that is wrong
// with the configuration, and never contains the key.
func New(cfg Config) (*Relay, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("provider relay: %w", err)
	}
	cfg.Limits = cmp.Or(cfg.Limits, DefaultLimits())
	r := &Relay{
		cfg: cfg, base: cmp.Or(cfg.BaseURL, apis()[cfg.Provider].publicURL()), routes: routes(cfg.Provider, cfg.Model), ledger: newLedger(cfg),
		secret: stream.NewSecret(cfg.Key.value(), cfg.MinSecret), conns: map[net.Conn]*atomic.Int64{},
		waiting: make(chan struct{}, 1),
	}
	r.allowance.bytes = rate.NewLimiter(rate.Limit(cfg.Limits.Inspect), int(cfg.Limits.Inspect)*burst)
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	r.up = newUpstream(r.ctx, cfg)
	r.server = &http.Server{
		Handler:                      http.HandlerFunc(r.handle),
		BaseContext:                  func(net.Listener) context.Context { return r.ctx },
		ConnContext:                  r.connContext,
		ConnState:                    r.connState,
		ReadHeaderTimeout:            cfg.Limits.Head,
		IdleTimeout:                  5 * time.Minute,
		MaxHeaderBytes:               maxHead,
		DisableGeneralOptionsHandler: true, // otherwise net/http itself answers OPTIONS *
		ErrorLog:                     log.New(io.Discard, "", 0),
	}
	return r, nil
}

// Serve answers requests on l until [Relay.Close], and then returns nil. It closes l. It
// may be called for several listeners.
func (r *Relay) Serve(l net.Listener) error {
	r.mu.Lock()
	closed := r.ctx.Err() != nil
	if !closed {
		r.work.Add(1)
	}
	r.mu.Unlock()
	if closed {
		_ = l.Close()
		return ErrClosed
	}
	defer r.work.Done()
	l, err := proxy.SandboxListener(l)
	if err != nil {
		return errors.Join(fmt.Errorf("provider relay: %w", err), l.Close())
	}
	if err := r.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("provider relay: %w", err)
	}
	return nil
}

// Close stops serving, ends the requests in progress and waits until they are logged. Then the facts
// are final. It returns an error if a listener could not be closed. Further calls do nothing.
func (r *Relay) Close() error {
	r.mu.Lock() // so that no work is added during the wait
	r.cancel(ErrClosed)
	r.mu.Unlock()
	err := r.server.Close()
	r.up.CloseIdleConnections()
	r.work.Wait()
	return err
}

// Facts returns what the relay has observed so far.
func (r *Relay) Facts() Facts { return r.ledger.snapshot() }

// connKey is the context key of an *atomic.Int64: how many requests of a connection have not
// reached the handler.
type connKey struct{}

// connContext registers a connection, unless there are too many or the relay is closed. net/http
// calls it before connState.
func (r *Relay) connContext(ctx context.Context, c net.Conn) context.Context {
	pending := &atomic.Int64{}
	bounded := proxy.BoundBuffers(c) == nil
	r.mu.Lock()
	defer r.mu.Unlock()
	if bounded && len(r.conns) < r.cfg.Limits.Conns && r.ctx.Err() == nil {
		r.conns[c] = pending
		r.work.Add(1)
	}
	return context.WithValue(ctx, connKey{}, pending)
}

// connState closes unregistered connections. It logs malformed requests, which net/http answers
// without the handler.
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
