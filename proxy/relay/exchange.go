package relay

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/proxy/relay/request"
)

// An exchange is one request of the agent and its answer.
type exchange struct {
	relay *Relay
	w     http.ResponseWriter
	req   *http.Request
	ctl   *http.ResponseController

	number   int64 // of the relay's requests, from 1
	crowded  bool  // too many requests were in progress at its beginning
	route    route
	body     []byte       // to send
	bounds   bounds       // of the answer
	unlogged bool         // beyond Limits.Requests: counted but not logged
	held     atomic.Int64 // bytes that the ledger has reserved for the body and the answer
	hide     bool         // hide the chunk that only counts tokens
	entry    proxy.Entry
	aborted  bool          // the answer broke off after its head
	pause    time.Duration // that the provider asks for
	sent     atomic.Bool   // the provider may have the whole request
}

func (r *Relay) handle(w http.ResponseWriter, req *http.Request) {
	req.Context().Value(connKey{}).(*atomic.Int64).Add(-1)
	x := r.newExchange()
	x.w, x.req, x.ctl = w, req, http.NewResponseController(w)
	defer func() {
		x.end()
		if x.aborted {
			panic(http.ErrAbortHandler) // otherwise the answer would look complete
		}
	}()
	if err := x.prepare(); err != nil {
		x.deny(err)
		return
	}
	x.forward()
}

// logMalformed counts and logs a request that net/http answered itself.
func (r *Relay) logMalformed() {
	x := r.newExchange()
	x.entry.Verdict, x.entry.Reason = proxy.Deny, string(badHead)
	x.end()
}

// newExchange counts a request. The caller must call end.
func (r *Relay) newExchange() *exchange {
	usual := map[string]int{"http": 80, "https": 443}[r.base.Scheme]
	port, _ := strconv.Atoi(r.base.Port())
	x := &exchange{relay: r, entry: proxy.Entry{
		Time: time.Now(), Task: r.cfg.Task, Attempt: r.cfg.Attempt, Kind: proxy.KindRelay, Verdict: proxy.Allow,
		Rule: "provider", Provider: string(r.cfg.Provider), Host: strings.ToLower(r.base.Hostname()), Port: cmp.Or(port, usual),
	}}
	x.number, x.crowded = r.ledger.enter()
	x.unlogged = x.number > r.cfg.Limits.Requests+1
	return x
}

// end removes the request from the ledger and logs it.
func (x *exchange) end() {
	x.relay.ledger.leave(x)
	x.entry.Duration = time.Since(x.entry.Time)
	x.entry.Time = x.entry.Time.UTC() // only now, since UTC drops the monotonic clock
	if x.relay.cfg.Log != nil && !x.unlogged {
		x.relay.cfg.Log.Write(x.entry)
	}
}

// prepare does everything that does not need the provider.
func (x *exchange) prepare() error {
	cfg := x.relay.cfg
	switch {
	case x.number > cfg.Limits.Requests:
		return &refusal{http.StatusTooManyRequests, tooManyInAll, "too many requests in all"}
	case cfg.Log != nil && cfg.Log.Err() != nil:
		return &refusal{http.StatusServiceUnavailable, logFailed, "sbench cannot write its log"}
	case x.crowded:
		return errTooMany
	case !cfg.admits(x.req):
		return &refusal{http.StatusUnauthorized, noToken, "only the agent may ask its provider: send the key of its environment"}
	}
	route, ok := find(x.relay.routes, x.req)
	if !ok {
		if cfg.Provider == Google {
			if model := modelOf(x.req); model != "" && model != cfg.Model {
				x.entry.Model = model
				return &refusal{notPermitted, badModel, "only the model " + cfg.Model + " is allowed here"}
			}
		}
		return &refusal{http.StatusNotFound, badPath, "this method and path are not served here"}
	}
	x.route = route
	x.entry.Method, x.entry.Path = route.method, route.path
	if route.stream && !slices.Equal(x.req.URL.Query()["alt"], []string{"sse"}) {
		return &refusal{http.StatusBadRequest, badRequest, "a stream is served as events only (alt=sse)"}
	}
	h := x.req.Header
	if h.Get("Upgrade") != "" {
		return &refusal{notPermitted, badHeader, "an upgrade to another protocol is not served here"}
	}
	if v := h.Get("Content-Encoding"); v != "" && !strings.EqualFold(v, "identity") {
		return &refusal{http.StatusUnsupportedMediaType, badEncoding, "an encoded body is not allowed here"}
	}
	if x.req.ContentLength < 0 { // chunked; net/http drops a length beside chunks
		return &refusal{http.StatusLengthRequired, badEncoding, "a body must have a length, and no chunks"}
	}
	if route.body == nil {
		if x.req.ContentLength != 0 {
			return &refusal{http.StatusBadRequest, badRequest, "this request has no body"}
		}
		return nil
	}
	if t := h.Get("Content-Type"); t != "" {
		if media, _, err := mime.ParseMediaType(t); err != nil || media != "application/json" {
			return &refusal{http.StatusUnsupportedMediaType, badEncoding, "a body must be application/json"}
		}
	}
	return x.inspect()
}

func (x *exchange) inspect() error {
	cfg, allowance := x.relay.cfg, &x.relay.allowance
	if allowance.usedUp() { // refuse before reading the body
		return errTooMuch
	}
	raw, err := x.read()
	if err != nil {
		return err
	}
	x.entry.Up = int64(len(raw))
	allowance.Lock()
	defer allowance.Unlock()
	if allowance.usedUp() { // meanwhile, by other requests
		return errTooMuch
	}
	found, err := x.route.body.Check(raw, request.Options{
		Model: cfg.Model, InPath: x.route.model != "", Stream: x.route.stream, Allow: cfg.AllowExternalTools, Refuse: cfg.RefuseExternalTools,
		NoCache: cfg.NoPromptCache,
	})
	allowance.spend(found.Work)
	x.body, x.bounds = found.Body, bounds{input: int64(len(raw)), output: found.Output, more: found.More}
	x.entry.Model, x.entry.Stream, x.hide = found.Model, found.Stream, found.HideUsage
	x.entry.Stripped = found.Removed
	return err
}

// read returns the whole body. It fails if the body is too large or too slow.
func (x *exchange) read() ([]byte, error) {
	limits := x.relay.cfg.Limits
	if x.req.ContentLength > limits.Body {
		return nil, &refusal{http.StatusRequestEntityTooLarge, tooLarge, "the body is too large"}
	}
	_ = x.ctl.SetReadDeadline(time.Now().Add(limits.Upload))
	if !x.takeMemory(x.req.ContentLength) {
		_, _ = io.Copy(io.Discard, x.req.Body) // most clients read no answer before they have sent all
		return nil, errTooMany
	}
	raw := make([]byte, x.req.ContentLength)
	_, err := io.ReadFull(x.req.Body, raw)
	_ = x.ctl.SetReadDeadline(time.Time{})
	if err != nil {
		return nil, &refusal{http.StatusBadRequest, unreadable, "the body is incomplete"}
	}
	return raw, nil
}

// takeMemory reserves memory until the end of the exchange. It returns false if there is not enough.
func (x *exchange) takeMemory(bytes int64) bool {
	ok := x.relay.ledger.takeMemory(bytes)
	if ok {
		x.held.Add(bytes)
	}
	return ok
}

// deny answers with the relay's own refusal.
func (x *exchange) deny(err error) {
	ref := refusalOf(err)
	if ref.reason != externalTool { // no request was sent, so nothing was removed from it
		x.entry.Stripped = nil
	}
	x.entry.Verdict, x.entry.Reason = proxy.Deny, string(ref.reason)
	status := cmp.Or(ref.status, apis()[x.relay.cfg.Provider].forbidden)
	if ref.reason == tooMany || ref.reason == tooMuch {
		x.w.Header().Set("Retry-After", "1")
	} else {
		x.w.Header().Set("X-Should-Retry", "false") // even if the status invites a retry
	}
	// This limits how long net/http reads the rest of the body.
	_ = x.ctl.SetReadDeadline(time.Now().Add(x.relay.cfg.Limits.Head))
	x.answer(status, string(ref.reason), ref.message)
}

// answer writes an error in the provider's format.
func (x *exchange) answer(status int, code, message string) {
	x.entry.Status = status
	x.w.Header().Set("Content-Type", "application/json")
	x.w.Header().Set("X-Sbench-Relay", code)
	x.write(status, errorBody(x.relay.cfg.Provider, status, code, message))
}

// write writes a whole answer except its header.
func (x *exchange) write(status int, body []byte) {
	x.entry.Down = int64(len(body))
	_ = x.ctl.SetWriteDeadline(time.Now().Add(x.relay.cfg.Limits.Download))
	x.w.WriteHeader(status)
	_, _ = x.w.Write(body)
}

// forward sends the request and forwards the answer.
func (x *exchange) forward() {
	done, ok := x.relay.await(x.req.Context())
	if !ok {
		x.deny(errTooMany)
		return
	}
	var out outcome
	defer func() { done(out.status, x.pause) }()
	var reserve proxy.Usage
	if x.route.generates() {
		reserve = proxy.Usage{Input: estimateInput(int64(len(x.body))), Output: x.bounds.more}
	}
	if err := x.relay.ledger.admit(reserve, question{x.req.RequestURI, x.req.Header, x.body}, x.route.generates()); err != nil {
		x.deny(err)
		return
	}
	out = x.roundTrip()
	if x.route.generates() {
		x.relay.ledger.complete(reserve, out)
		if out.usage != (proxy.Usage{}) {
			x.entry.Usage, x.entry.CostUSD = &out.usage, x.relay.ledger.prices.Cost(out.usage)
		}
	}
	switch {
	case out.left && x.closed():
		x.entry.Verdict, x.entry.Reason = proxy.Error, string(relayClosed)
	case out.left:
		x.entry.Verdict, x.entry.Reason = proxy.Error, string(agentLeft)
	case out.cause != "":
		x.entry.Verdict, x.entry.Reason = proxy.Error, string(out.cause)
	}
}

// roundTrip sends the request to the provider and handles the answer. If the agent closes the
// connection, it may continue for Limits.Linger to learn what the answer costs.
func (x *exchange) roundTrip() outcome {
	ctx, cancel := context.WithCancel(x.relay.ctx)
	defer cancel()
	defer context.AfterFunc(x.req.Context(), func() {
		if !x.route.generates() || !x.sent.Load() {
			cancel()
			return
		}
		time.AfterFunc(x.relay.cfg.Limits.Linger, cancel)
	})()
	req, err := x.request(ctx)
	if err != nil {
		return x.unreachable(BrokenAnswer, false)
	}
	resp, err := x.relay.up.RoundTrip(req)
	if err != nil {
		var wait interface{ Timeout() bool }
		return x.unreachable(Unreachable, errors.As(err, &wait) && wait.Timeout())
	}
	resp.Body = newPatientBody(resp.Body, x.relay.cfg.Limits.Silence, cancel)
	defer func() { _ = resp.Body.Close() }()
	x.entry.Status, x.pause = resp.StatusCode, retryAfter(resp.Header)
	if unusable(resp) {
		return x.unreachable(BrokenAnswer, resp.StatusCode/100 == 2)
	}
	if resp.StatusCode >= 300 {
		return x.forwardError(resp)
	}
	return x.forwardAnswer(resp)
}

func (x *exchange) request(ctx context.Context) (*http.Request, error) {
	cfg := x.relay.cfg
	trace := &httptrace.ClientTrace{
		GotConn:      func(info httptrace.GotConnInfo) { x.entry.Address = info.Conn.RemoteAddr().String() },
		WroteHeaders: func() { x.sent.Store(true) },
	}
	target := x.route.target(cfg.Provider, x.relay.base, x.req.URL.Query())
	var body io.Reader
	if x.route.body != nil {
		body = bytes.NewReader(x.body)
	}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), x.route.method, target.String(), body)
	if err != nil {
		return nil, err
	}
	req.Header = header(cfg.Provider, x.req.Header)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	cfg.authorize(req.Header)
	return req, nil
}

// unreachable answers for a provider that gave no usable answer. worst says that the provider
// may have done any amount of work on the request.
func (x *exchange) unreachable(cause Cause, worst bool) outcome {
	if x.gone() {
		x.aborted = true // otherwise net/http answers with an empty success
		return outcome{left: true, usage: x.unreadUsage(!x.closed())}
	}
	status := x.entry.Status // 0 unless the provider answered
	x.answer(http.StatusBadGateway, string(cause), "the provider cannot be reached or gave no usable answer")
	return outcome{status: status, cause: cause, usage: x.unreadUsage(worst)}
}

// unreadUsage returns the charge for a request without reading its answer.
func (x *exchange) unreadUsage(worst bool) proxy.Usage {
	if !x.sent.Load() {
		return proxy.Usage{}
	}
	return newMeter(x.route.dialect, false, x.takeMemory).close(x.bounds, worst)
}

// gone reports whether the agent closed the connection or the relay was closed.
func (x *exchange) gone() bool { return x.req.Context().Err() != nil || x.closed() }

// closed reports whether the relay was closed before the agent closed the connection. No request can
// follow then.
func (x *exchange) closed() bool {
	if ctx := x.req.Context(); ctx.Err() != nil {
		return errors.Is(context.Cause(ctx), ErrClosed)
	}
	return x.relay.ctx.Err() != nil
}
