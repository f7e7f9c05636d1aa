package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elazarl/goproxy"
)

// errCut ends the body of a request or an answer that a limit cut.
var errCut = errors.New("cut by a limit")

// exchangeKey is for the *exchange of a request in its context.
type exchangeKey struct{}

// An exchange is one plain HTTP request and its answer.
type exchange struct {
	p        *Proxy
	a        *attempt
	c        *client
	answered bool // a refusal was the answer
	broken   atomic.Bool
	cancel   context.CancelFunc
	idle     *time.Timer

	mu         sync.Mutex // the request's body is read beside the answer's
	up, down   int64
	body       int64 // of up
	cut        Reason
	connected  bool // there is a connection to the host
	upstreamed bool // an answer came
}

// newTransport makes connections to allowed hosts, and to nothing else. Each is
// for one request: what a server sends on an idle one, net/http prints to standard
// error, and what it tries again is not counted twice.
func (p *Proxy) newTransport() *http.Transport {
	return &http.Transport{
		DialContext: p.dialHTTP, DisableCompression: true, DisableKeepAlives: true,
		MaxResponseHeaderBytes: int64(p.limits.HeaderBytes), // times are limited by the exchange
		DialTLSContext:         func(context.Context, string, string) (net.Conn, error) { return nil, ErrClosed },
	}
}

// dialHTTP asks the policy again: whatever the library makes of a request, the
// connection is to an allowed host.
func (p *Proxy) dialHTTP(ctx context.Context, _, address string) (net.Conn, error) {
	host, port, _ := splitAuthority(address, "")
	d := p.cfg.Policy.Decide(Request{Phase: PhaseHarness, Kind: KindConnect, Host: host, Port: port})
	if !d.Allowed {
		return nil, &refusedAddress{rule: d.Rule}
	}
	up, err := p.dial(ctx, d.Host, d.Port)
	if err != nil {
		return nil, err // a nil *upstream is no nil net.Conn
	}
	return &upstreamHTTP{SpeakFirst(up), up.address.String()}, nil
}

// An upstreamHTTP is an upstream for one request of plain HTTP.
type upstreamHTTP struct {
	net.Conn
	address string
}

// exchange serves one request that is no CONNECT of the forward proxy.
func (p *Proxy) exchange(w http.ResponseWriter, r *http.Request, c *client) {
	kind := KindHTTP
	if c.mapped != nil {
		kind = KindTransparent
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	x := &exchange{p: p, a: p.attempt(kind), c: c, cancel: cancel}
	x.idle = time.AfterFunc(p.limits.Idle, func() { x.stop(ReasonIdle) })
	defer x.idle.Stop()
	defer time.AfterFunc(p.limits.Lifetime, func() { x.stop(ReasonLifetime) }).Stop()
	r = r.WithContext(context.WithValue(ctx, exchangeKey{}, x))
	if c.mapped != nil && !x.asAbsolute(r) {
		x.answer(w)
	} else {
		p.library.ServeHTTP(w, r)
	}
	x.finish(ctx.Err() != nil)
	if x.broken.Load() {
		panic(http.ErrAbortHandler) // else half an answer would look like a whole one
	}
}

// asAbsolute makes a redirected request one to the name that the connection's
// address was given for. If the request names another, it is refused.
func (x *exchange) asAbsolute(r *http.Request) bool {
	m := x.c.mapped
	asked := r.Host
	if r.URL.IsAbs() || r.Method == http.MethodConnect {
		asked = r.URL.Host
	}
	host, port, ok := splitAuthority(asked, "80")
	name, bad := normalise(host)
	number, okPort := parsePort(port)
	x.a.refused.Host, x.a.refused.Port = name, number
	x.a.entry.Host, x.a.entry.Port = name, int(number)
	switch {
	case r.Method == http.MethodConnect:
		x.a.refuse(ReasonNotProxy, "")
	case r.URL.IsAbs() && r.URL.Scheme != "http":
		x.a.refuse(ReasonScheme, "")
	case bad == ReasonIPLiteral:
		x.a.refuse(bad, "")
	case bad != "" || !ok || !okPort || name != m.name || number != m.port:
		x.a.refuse(ReasonHostMismatch, "the address was given for "+m.name)
	default:
		r.URL.Scheme, r.URL.Host = "http", m.authority()
		return true
	}
	return false
}

// authority names what the connection was made to.
func (m mapping) authority() string { return net.JoinHostPort(m.name, strconv.Itoa(int(m.port))) }

// handleRequest is where the library asks what to do with a request.
func (p *Proxy) handleRequest(r *http.Request, ctx *goproxy.ProxyCtx) (*http.Request, *http.Response) {
	x := r.Context().Value(exchangeKey{}).(*exchange)
	d := x.decide(r)
	if !d.Allowed {
		return r, x.refusal(r)
	}
	authority := d.Host
	if d.Port != 80 {
		authority = net.JoinHostPort(d.Host, strconv.Itoa(int(d.Port)))
	}
	r.URL.Host, r.Host = authority, authority
	r.Close, r.Header, r.Trailer = false, r.Header.Clone(), nil
	cleanHeader(r.Header)
	r.Header.Del("Expect") // the server has answered it
	if _, ok := r.Header["User-Agent"]; !ok {
		r.Header["User-Agent"] = []string{""} // else the transport adds its own
	}
	if !x.take(&x.up, x.p.up, x.p.limits.TunnelUp, requestHead(r), ReasonUp) {
		x.a.refuse(ReasonUp, "")
		return r, x.refusal(r)
	}
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &upBody{r.Body, x, r.ContentLength < 0}
	}
	ctx.RoundTripper = goproxy.RoundTripperFunc(x.roundTrip)
	return r, nil
}

// decide checks a request with an absolute URL.
func (x *exchange) decide(r *http.Request) Decision {
	host, port, ok := splitAuthority(r.URL.Host, "80")
	if name, bad := normalise(host); bad == "" {
		x.a.refused.Host, x.a.entry.Host = name, name
	}
	switch {
	case r.URL.Scheme != "http":
		return x.a.refuse(ReasonScheme, "plain requests are for http")
	case r.URL.User != nil || r.URL.Opaque != "" || !ok:
		return x.a.refuse(ReasonAuthority, "")
	case len(r.Header["Upgrade"]) > 0 || hasToken(r.Header["Connection"], "upgrade"):
		return x.a.refuse(ReasonUpgrade, "")
	case r.ContentLength > x.p.limits.BodyBytes:
		return x.a.refuse(ReasonBody, strconv.FormatInt(x.p.limits.BodyBytes, 10)+" bytes")
	}
	return x.a.decide(Request{Kind: KindHTTP, Method: r.Method, Host: host, Port: port})
}

// roundTrip sends the request and prepares the answer, before the library sees
// it.
func (x *exchange) roundTrip(r *http.Request, _ *goproxy.ProxyCtx) (*http.Response, error) {
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if up, ok := info.Conn.(*upstreamHTTP); ok {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.a.entry.Address, x.connected = up.address, true
		}
	}}
	resp, err := x.p.transport.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	if err != nil {
		return nil, err
	}
	cleanHeader(resp.Header)
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return nil, errors.Join(errors.New("upstream switched protocols"), resp.Body.Close())
	}
	x.mu.Lock()
	x.upstreamed = true
	x.a.entry.Status = resp.StatusCode
	x.mu.Unlock()
	x.touch()
	if !x.take(&x.down, x.p.down, x.p.limits.TunnelDown, headBytes(resp.Header), ReasonDown) {
		return nil, errors.Join(errCut, resp.Body.Close())
	}
	// A copy, since the transport puts the trailer into the original.
	whole := *resp
	whole.Trailer, whole.Body = nil, &downBody{resp.Body, x}
	return &whole, nil
}

// handleResponse turns an error into an answer that says no more than its
// reason.
func (p *Proxy) handleResponse(resp *http.Response, ctx *goproxy.ProxyCtx) *http.Response {
	if resp != nil {
		return resp
	}
	x := ctx.Req.Context().Value(exchangeKey{}).(*exchange)
	err := ctx.Error
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	x.mu.Lock()
	switch gone := ctx.Req.Context().Err() != nil && p.ctx.Err() == nil; {
	case x.cut != "":
		x.a.refuse(x.cut, "")
		x.a.entry.Verdict = Allow
	case gone: // nobody reads this answer
		x.a.refuse(ReasonUpstream, "")
		x.a.cut("")
	default:
		x.a.failed(err)
	}
	x.mu.Unlock()
	return x.refusal(ctx.Req)
}

// notProxy answers what names no absolute URL.
func (p *Proxy) notProxy(w http.ResponseWriter, r *http.Request) {
	x := r.Context().Value(exchangeKey{}).(*exchange)
	x.a.refuse(ReasonNotProxy, "")
	x.answer(w)
}

// refusal is the answer that the attempt's last refusal makes.
func (x *exchange) refusal(r *http.Request) *http.Response {
	x.answered = true
	d := x.a.refused
	resp := goproxy.NewResponse(r, "text/plain", d.Reason.status(), d.text())
	resp.Header = d.header()
	return resp
}

// answer writes the refusal where the library does not.
func (x *exchange) answer(w http.ResponseWriter) {
	x.answered = true
	d := x.a.refused
	for name, values := range d.header() {
		w.Header()[name] = values
	}
	w.WriteHeader(d.Reason.status())
	_, _ = io.WriteString(w, d.text()) // to somebody who may be gone
}

// finish writes the log's entry. ended says that somebody ended the exchange: we,
// for a reason, or the client by leaving.
func (x *exchange) finish(ended bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.answered && x.a.entry.Verdict != Allow:
	case x.cut != "":
		x.a.cut(x.cut)
	case x.p.ctx.Err() != nil:
		x.a.cut(ReasonShutdown)
	case ended:
		x.a.cut("")
	case x.broken.Load():
		x.a.failed(io.ErrUnexpectedEOF)
	}
	if !x.connected { // nothing has left
		x.p.up.settle(0, -x.up)
		x.up = 0
	}
	x.a.end(x.up, x.down)
}

// stop ends the exchange for a reason, of which the first counts.
func (x *exchange) stop(reason Reason) {
	x.mu.Lock()
	if x.cut == "" {
		x.cut = reason
	}
	begun := x.upstreamed
	x.mu.Unlock()
	if begun {
		x.broken.Store(true)
	}
	_ = x.c.tcp.SetReadDeadline(time.Now()) // somebody may wait for the rest of a body
	x.cancel()
}

func (x *exchange) touch() { x.idle.Reset(x.p.limits.Idle) }

// take counts n bytes, or stops the exchange.
func (x *exchange) take(count *int64, shared *budget, limit, n int64, reason Reason) bool {
	x.mu.Lock()
	over := *count+n > limit
	x.mu.Unlock()
	if !over {
		over = shared.take(n) < n
	}
	if over {
		x.stop(reason)
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	*count += n
	return true
}
