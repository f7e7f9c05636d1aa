package proxy

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
)

// Config describes the egress proxy of one sandbox.
type Config struct {
	Allowed Allowlist
	Limits  EgressLimits // the zero EgressLimits mean DefaultLimits
	// Explicit says that programs reach hosts only by the forward proxy. Then ServeDNS answers that no name
	// exists, and logs the question.
	Explicit bool
	Log      *Log // required; after an error of the log, nothing leaves the sandbox
	// Task and Attempt are written into the log's entries.
	Task    string
	Attempt int

	hooks hooks
}

// hooks are for this package's tests. None replaces a check.
type hooks struct {
	resolver *net.Resolver
	// control runs on a socket after its address passed the check, and may connect it elsewhere.
	control func(network, address string, c syscall.RawConn) error
	// remote returns the address that control was given for a connection.
	remote func(net.Conn) netip.AddrPort
	// forget makes the proxy ask the name server for each connection.
	forget bool
	// local reports whether an address is the host's own.
	local func(netip.Addr) (bool, error)
}

// ErrClosed is the error of the Serve methods once the proxy is closed.
var ErrClosed = errors.New("proxy is closed")

// A Proxy is the egress proxy of one sandbox. Its methods are safe for concurrent use.
// Make one with [New].
type Proxy struct {
	cfg      Config
	limits   EgressLimits
	http     *forwarder
	check    func(address netip.Addr, private bool) error // of addresses to dial
	hosts    hosts
	names    *names
	up, down *budget
	buffers  sync.Pool // of flows
	counts   counts
	ctx      context.Context // ends when the proxy is closed
	end      context.CancelFunc
	mu       sync.Mutex // of ctx's end and of work's growth
	work     sync.WaitGroup
}

type counts struct {
	open, connections, requests       atomic.Int64
	allowed, denied, failed, unlogged atomic.Int64
}

// Totals count what a proxy has done.
type Totals struct {
	Connections int64 `json:"connections"` // from the sandbox
	Allowed     int64 `json:"allowed"`     // entries of the log, by verdict
	Denied      int64 `json:"denied"`
	Errors      int64 `json:"errors"`
	Unlogged    int64 `json:"unlogged"` // of Denied, those without an entry: beyond Limits.Requests
	Up          int64 `json:"up"`       // bytes out of the sandbox
	Down        int64 `json:"down"`     // bytes into it
}

// Plus returns the sum of two totals.
func (t Totals) Plus(u Totals) Totals {
	return Totals{
		Connections: t.Connections + u.Connections, Allowed: t.Allowed + u.Allowed, Denied: t.Denied + u.Denied, Errors: t.Errors + u.Errors,
		Unlogged: t.Unlogged + u.Unlogged, Up: t.Up + u.Up, Down: t.Down + u.Down,
	}
}

// New returns a proxy, which the caller must close. It fails if there is no log.
func New(cfg Config) (*Proxy, error) {
	if cfg.Log == nil {
		return nil, errors.New("egress proxy: there is no log")
	}
	p := &Proxy{cfg: cfg, limits: cmp.Or(cfg.Limits, DefaultLimits())}
	p.ctx, p.end = context.WithCancel(context.Background())
	p.up, p.down = newBudget(p.limits.Up), newBudget(p.limits.Down)
	p.buffers.New = func() any { return new([copyBytes]byte) }
	p.names = &names{limit: min(p.limits.Names, maxNames), index: map[string]int{}}
	p.hosts.all = map[string]resolved{}
	local := p.cfg.hooks.local
	if local == nil {
		local = isLocal
	}
	p.check = newAddressCheck(local)
	p.http = newForwarder(p)
	return p, nil
}

// Serve serves l as a forward proxy for CONNECT and requests with absolute URLs. It returns
// when l or the proxy is closed, and closes l.
func (p *Proxy) Serve(l net.Listener) error { return p.accept(l, KindMalformed, p.http.serve) }

// accept serves the connections of a listener, up to the limit, each on a goroutine of its own. A connection
// beyond the limit gets a log entry of the given kind.
func (p *Proxy) accept(l net.Listener, kind Kind, serve func(*client)) error {
	done := p.closeAtEnd(l)
	if done == nil {
		return ErrClosed
	}
	defer done()
	l, err := SandboxListener(l)
	if err != nil {
		return err
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return nil
		}
		if c := p.newClient(conn, kind); c != nil {
			p.start(c, serve)
		}
	}
}

// Close ends all connections, tunnels and Serve methods and waits until they have
// written their log entries. It may be called again.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.end() // closes listeners and connections
	p.mu.Unlock()
	p.work.Wait()
}

// Totals returns what the proxy has done so far.
func (p *Proxy) Totals() Totals {
	return Totals{
		Connections: p.counts.connections.Load(),
		Allowed:     p.counts.allowed.Load(), Denied: p.counts.denied.Load(), Errors: p.counts.failed.Load(),
		Unlogged: p.counts.unlogged.Load(), Up: p.up.used(), Down: p.down.used(),
	}
}

// closeAtEnd makes Close close c and wait for a call of done, which closes c, too. If the proxy is
// closed already, it closes c and returns nil.
func (p *Proxy) closeAtEnd(c io.Closer) (done func()) {
	if !p.begin() {
		_ = c.Close()
		return nil
	}
	stop := context.AfterFunc(p.ctx, func() { _ = c.Close() })
	return func() {
		stop()
		_ = c.Close()
		p.work.Done()
	}
}

// begin makes Close wait for a call of p.work.Done. If the proxy is closed already, it returns false,
// and the caller must not call Done.
func (p *Proxy) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return false
	}
	p.work.Add(1)
	return true
}

// start runs serve, which closes c, on a goroutine that Close waits for. If the proxy is closed
// already, it closes c instead.
func (p *Proxy) start(c *client, serve func(*client)) {
	if !p.begin() {
		_ = c.Close()
		return
	}
	go func() {
		defer p.work.Done()
		serve(c)
	}()
}
