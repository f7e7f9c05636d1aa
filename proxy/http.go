package proxy

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elazarl/goproxy"
	"golang.org/x/net/http/httpguts"
)

// errCut ends the body of a request or an answer that reached a limit.
var errCut = errors.New("cut by a limit")

// transferKey is the context key of a request's *transfer.
type transferKey struct{}

// A transfer is one plain HTTP request and its answer.
type transfer struct {
	p       *forwarder
	a       *access
	c       *client
	allowed decision    // names the host to connect to
	broken  atomic.Bool // the answer to the client is incomplete
	ctx     context.Context
	cancel  context.CancelFunc
	idle    *time.Timer

	mu       sync.Mutex // request and answer may pass at the same time
	up, down int64      // bytes on the wire
	cut      reason
	finished bool // the entry is written, so no more bytes may pass
}

// dialHTTP connects to the host that was allowed, even if the dispatcher changed the request. ctx has the transfer. It
// does not end with the request (http.Transport). The context of the transfer does, so that connecting does not outlast
// the client's connection: the limit of connections counts that.
func (f *forwarder) dialHTTP(ctx context.Context, _, _ string) (net.Conn, error) {
	x := ctx.Value(transferKey{}).(*transfer)
	up, err := f.dial(x.ctx, x.allowed)
	if err != nil {
		return nil, err // a nil *upstream is not a nil net.Conn
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.a.entry.Address = up.address.String()
	return &upstreamHTTP{up, x}, nil
}

// An upstreamHTTP is an upstream for one plain HTTP request. It counts each byte before the host or the
// client gets it.
type upstreamHTTP struct {
	net.Conn
	x *transfer
}

func (u *upstreamHTTP) Write(b []byte) (int, error) {
	if !u.x.count(&u.x.up, u.x.p.up, len(b), reasonUp) {
		return 0, errCut
	}
	return u.Conn.Write(b)
}

func (u *upstreamHTTP) Read(b []byte) (int, error) {
	n, err := u.Conn.Read(b)
	if !u.x.count(&u.x.down, u.x.p.down, n, reasonDown) {
		return 0, errCut
	}
	return n, err
}

// forward serves one request other than a CONNECT to the forward proxy.
func (f *forwarder) forward(w http.ResponseWriter, r *http.Request, c *client) {
	kind := KindHTTP
	if c.redirectedTo != nil {
		kind = KindTransparent
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(f.ctx, cancel)()
	x := &transfer{p: f, a: f.newAccess(kind), c: c, ctx: ctx, cancel: cancel}
	x.idle = time.AfterFunc(f.limits.Idle, func() { x.stop(reasonIdle) })
	defer x.idle.Stop()
	defer time.AfterFunc(f.limits.Lifetime, func() { x.stop(reasonLifetime) }).Stop()
	r = r.WithContext(context.WithValue(ctx, transferKey{}, x))
	if m := c.redirectedTo; m != nil {
		x.a.entry.Host, x.a.entry.Port = m.name, int(m.port)
		if !r.URL.IsAbs() { // the form of requests to a server
			r.URL.Scheme, r.URL.Host = "http", r.Host
		}
	}
	defer func() { // also if the dispatcher panics
		canceled := ctx.Err() != nil
		cancel() // ends a request that is still being sent although the answer is complete
		x.finish(canceled)
		if x.broken.Load() {
			panic(http.ErrAbortHandler) // otherwise an incomplete answer would look complete
		}
	}()
	if r.Method == http.MethodConnect { // in a redirected connection
		f.notProxy(w, r)
	} else {
		f.dispatcher.ServeHTTP(w, r)
	}
}

// handleRequest returns the request to send or a refusal. The dispatcher calls it for each request.
func (f *forwarder) handleRequest(r *http.Request, ctx *goproxy.ProxyCtx) (*http.Request, *http.Response) {
	x := r.Context().Value(transferKey{}).(*transfer)
	d := x.decide(r)
	if !d.Allowed {
		return r, x.refusal(r)
	}
	x.allowed = d
	authority := d.Host
	if d.Port != 80 {
		authority = net.JoinHostPort(d.Host, strconv.Itoa(int(d.Port)))
	}
	r.URL.Host, r.Host = authority, authority
	r.Close, r.Header = false, r.Header.Clone()
	cleanHeader(r.Header)
	r.Header.Del("Expect") // net/http has answered it
	if _, ok := r.Header["User-Agent"]; !ok {
		r.Header["User-Agent"] = []string{""} // otherwise the transport adds its own
	}
	ctx.RoundTripper = goproxy.RoundTripperFunc(x.roundTrip)
	return r, nil
}

// decide checks a request with an absolute URL. In a redirected connection, the URL must have the name
// and port of the connection's original destination.
func (x *transfer) decide(r *http.Request) decision {
	host, port := r.URL.Hostname(), cmp.Or(r.URL.Port(), "80")
	number, _ := parsePort(port)
	name, bad := normalise(host)
	if bad.Word == "" {
		x.a.last.Host, x.a.entry.Host = name, name
	}
	switch {
	case len(r.TransferEncoding) > 0: // perhaps beside a length, which net/http drops (RFC 9112, 6.3)
		return x.a.refuse(reasonLength, "")
	case r.URL.Scheme != "http":
		return x.a.refuse(reasonScheme, "plain requests are for http")
	case r.URL.User != nil || r.URL.Opaque != "" || strings.HasSuffix(r.URL.Host, ":"):
		return x.a.refuse(reasonAuthority, "")
	case len(r.Header["Upgrade"]) > 0 || httpguts.HeaderValuesContainsToken(r.Header["Connection"], "upgrade"):
		return x.a.refuse(reasonUpgrade, "")
	case r.ContentLength > x.p.limits.Up-x.p.up.used():
		return x.a.refuse(reasonUp, "")
	case x.c.redirectedTo != nil && bad != reasonIPLiteral && *x.c.redirectedTo != destination{name, number}:
		x.a.last.Port, x.a.entry.Port = number, int(number)
		return x.a.refuse(reasonHostMismatch, "the name server assigned the address to "+x.c.redirectedTo.name)
	}
	return x.a.decide(request{Kind: KindHTTP, Method: r.Method, Host: host, Port: port})
}

// roundTrip sends the request and prepares the answer for the dispatcher.
func (x *transfer) roundTrip(r *http.Request, _ *goproxy.ProxyCtx) (*http.Response, error) {
	resp, err := x.p.transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	cleanHeader(resp.Header)
	if resp.StatusCode < http.StatusOK { // 101, or a number with which net/http writes no answer
		return nil, errors.Join(errors.New("upstream gave no final answer"), resp.Body.Close())
	}
	x.mu.Lock()
	x.a.entry.Status = resp.StatusCode
	x.mu.Unlock()
	// A copy, since the transport puts the trailer into the original.
	whole := *resp
	whole.Trailer, whole.Body = nil, &downBody{resp.Body, x}
	return &whole, nil
}

// handleResponse turns an error into an answer that says only the reason.
func (f *forwarder) handleResponse(resp *http.Response, ctx *goproxy.ProxyCtx) *http.Response {
	if resp != nil {
		return resp
	}
	x := ctx.Req.Context().Value(transferKey{}).(*transfer)
	err := cmp.Or(ctx.Error, io.ErrUnexpectedEOF)
	x.mu.Lock()
	switch gone := ctx.Req.Context().Err() != nil && f.ctx.Err() == nil; {
	case x.cut.Word != "":
		x.a.refuse(x.cut, "")
		x.a.entry.Verdict = Allow
	case gone: // the client closed the connection
		x.a.refuse(reasonUpstream, "")
		x.a.cut(reason{})
	default:
		x.a.recordError(err)
	}
	x.mu.Unlock()
	return x.refusal(ctx.Req)
}

// notProxy refuses a request without an absolute URL.
func (f *forwarder) notProxy(w http.ResponseWriter, r *http.Request) {
	d := r.Context().Value(transferKey{}).(*transfer).a.refuse(reasonNotProxy, "")
	maps.Copy(w.Header(), d.header())
	w.WriteHeader(d.status())
	_, _ = io.WriteString(w, d.text()) // the client may be gone
}

// refusal returns the last decision, a refusal, as an answer.
func (x *transfer) refusal(r *http.Request) *http.Response {
	d := x.a.last
	resp := goproxy.NewResponse(r, "text/plain", d.status(), d.text())
	resp.Header = d.header()
	if d.Reason == reasonLength { // what follows may be a part of the body (RFC 9112, 6.1)
		resp.Header.Set("Connection", "close")
	}
	return resp
}

// finish writes the log entry. canceled says that stop, the end of the proxy or the end of the
// client's connection canceled the transfer.
func (x *transfer) finish(canceled bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.a.entry.Verdict != Allow: // the answer was a refusal
	case x.cut.Word != "":
		x.a.cut(x.cut)
	case x.p.ctx.Err() != nil:
		x.a.cut(reasonShutdown)
	case canceled:
		x.a.cut(reason{})
	case x.broken.Load():
		x.a.recordError(io.ErrUnexpectedEOF)
	}
	x.finished = true
	x.a.end(x.up, x.down)
}

// stop ends the transfer, unless it is finished. The first reason counts.
func (x *transfer) stop(why reason) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.finished {
		return
	}
	x.cut = cmp.Or(x.cut, why)
	if x.a.entry.Status != 0 { // the host has answered
		x.broken.Store(true)
	}
	_ = x.c.tcp.SetReadDeadline(time.Now()) // ends a read that waits for the rest of the body
	x.cancel()
}

// count adds n bytes to a counter and takes them from the shared budget. If the budget does not have
// them, it stops the transfer. The bytes may pass only if it returns true.
func (x *transfer) count(counter *int64, shared *budget, n int, why reason) bool {
	if shared.take(int64(n)) < int64(n) {
		x.stop(why)
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if n > 0 && !x.finished {
		*counter += int64(n)
		x.idle.Reset(x.p.limits.Idle)
	}
	return !x.finished
}

// downBody is the body of an answer. It records whether the body is incomplete.
type downBody struct {
	io.ReadCloser
	x *transfer
}

func (b *downBody) Read(buf []byte) (int, error) {
	n, err := b.ReadCloser.Read(buf)
	if err != nil && err != io.EOF {
		b.x.broken.Store(true)
	}
	return n, err
}

// cleanHeader removes the hop-by-hop fields (RFC 9110, 7.6.1).
func cleanHeader(h http.Header) {
	for _, value := range h["Connection"] {
		for name := range strings.SplitSeq(value, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range []string{
		"Connection", "Proxy-Connection", "Proxy-Authorization", "Proxy-Authenticate", "Proxy-Authentication-Info",
		"Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Http2-Settings",
	} {
		h.Del(name)
	}
}
