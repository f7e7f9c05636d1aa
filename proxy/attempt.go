package proxy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"
)

// EgressHeader is the header that states the [Reason] in the answer to a refused request.
const EgressHeader = "X-Sbench-Egress"

// An attempt is one attempt to reach the network. It becomes one entry of the log.
type attempt struct {
	p       *Proxy
	entry   Entry
	refused Decision // the last decision, from which the answer to the sandbox is made
	blocked Reason   // if set, nothing is allowed, for this reason
	silent  bool     // beyond Limits.Requests: counted but not logged
}

// attempt begins an attempt. The caller calls its end.
func (p *Proxy) attempt(kind Kind) *attempt {
	a := &attempt{p: p, entry: Entry{Time: time.Now(), Task: p.cfg.Task, Attempt: p.cfg.Attempt, Kind: kind}}
	n := p.counts.requests.Add(1)
	switch {
	case n > p.limits.Requests:
		a.blocked, a.silent = ReasonRequests, n > p.limits.Requests+1
	case p.cfg.Log.Err() != nil:
		a.blocked = ReasonLog
	case p.ctx.Err() != nil:
		a.blocked = ReasonShutdown
	}
	return a
}

// decide asks the policy.
func (a *attempt) decide(r Request) Decision {
	d := a.p.cfg.Policy.Decide(r)
	a.entry.Host, a.entry.Port = d.Host, int(d.Port)
	if d.Allowed && a.blocked != "" {
		d = d.refuse(a.blocked, "")
	}
	a.entry.Rule, a.entry.Reason, a.entry.Verdict = d.Rule, string(d.Reason), Deny
	if d.Allowed {
		a.entry.Verdict = Allow
	}
	a.refused = d
	return d
}

// refuse refuses the attempt for a reason that is not the policy's.
func (a *attempt) refuse(reason Reason, rule string) Decision {
	if a.blocked != "" {
		reason, rule = a.blocked, ""
	}
	a.refused = a.refused.refuse(reason, rule)
	a.entry.Verdict, a.entry.Reason, a.entry.Rule = Deny, string(reason), rule
	return a.refused
}

// deny refuses the attempt and ends it.
func (a *attempt) deny(reason Reason, rule string) Decision {
	defer a.end(0, 0)
	return a.refuse(reason, rule)
}

// tunnel takes one of the sandbox's tunnels, which the caller must give back. If none is
// left, it refuses the attempt and returns false.
func (a *attempt) tunnel() bool {
	select {
	case a.p.tunnels <- struct{}{}:
		return true
	default:
		a.refuse(ReasonTunnels, "")
		return false
	}
}

// reach connects to the host. If it cannot, it ends the attempt and returns nil.
func (a *attempt) reach() *upstream {
	up, err := a.p.dial(a.p.ctx, a.refused.Host, a.refused.Port)
	if err != nil {
		a.failed(err)
		a.end(0, 0)
		return nil
	}
	a.entry.Address = up.address.String()
	return up
}

// failed records an error of dial or of what follows it. It does not call end.
func (a *attempt) failed(err error) Decision {
	e := &a.entry
	verdict, reason, rule := Error, ReasonUpstream, e.Rule
	var refused *refusedAddress
	var dns *net.DNSError
	var op *net.OpError
	switch {
	case a.p.ctx.Err() != nil:
		reason = ReasonShutdown
	case errors.As(err, &refused):
		verdict, reason, rule, e.Address = Deny, ReasonAddress, refused.rule, refused.address.String()
	case errors.As(err, &dns):
		reason = ReasonResolve
	case errors.As(err, &op) && op.Op == "dial":
		reason = ReasonDial
		if op.Addr != nil {
			e.Address = op.Addr.String()
		}
	}
	a.refused = a.refused.refuse(reason, rule)
	e.Verdict, e.Reason, e.Rule = verdict, string(reason), rule
	return a.refused
}

// cut records why an allowed attempt ended early.
func (a *attempt) cut(reason Reason) { a.entry.Verdict, a.entry.Reason = Allow, string(reason) }

// end writes the entry, with the bytes sent out and received.
func (a *attempt) end(up, down int64) {
	a.entry.Up, a.entry.Down, a.entry.Duration = up, down, time.Since(a.entry.Time)
	c := &a.p.counts
	switch a.entry.Verdict {
	case Allow:
		c.allowed.Add(1)
	case Deny:
		c.denied.Add(1)
	case Error:
		c.failed.Add(1)
	}
	if a.silent {
		c.silent.Add(1)
		return
	}
	a.p.cfg.Log.Write(a.entry)
}

// text returns the body of a refusal. It repeats nothing of the request but a well-formed
// name and port.
func (d Decision) text() string {
	what := "a request"
	if d.Host != "" {
		what = d.Host
	}
	if d.Host != "" && d.Port != 0 {
		what = net.JoinHostPort(d.Host, strconv.Itoa(int(d.Port)))
	}
	verb := "refused"
	switch d.Reason {
	case ReasonResolve, ReasonDial, ReasonUpstream:
		verb = "could not reach"
	case ReasonIdle, ReasonLifetime, ReasonShutdown:
		verb = "gave up on"
	}
	text := fmt.Sprintf("sbench %s %s\nreason: %s\n", verb, what, d.Reason)
	if d.Rule != "" {
		text += "rule: " + d.Rule + "\n"
	}
	return text + "cure: " + d.Cure + "\n"
}

// status returns the HTTP status of a refusal.
func (d Decision) status() int { return cmp.Or(Reasons()[d.Reason].Status, http.StatusForbidden) }

// header returns the header of a refusal.
func (d Decision) header() http.Header {
	return http.Header{
		EgressHeader: {string(d.Reason)}, "Content-Type": {"text/plain; charset=utf-8"}, "Cache-Control": {"no-store"},
	}
}

// raw returns a refusal as a whole HTTP answer, the last on its connection.
func (d Decision) raw() []byte {
	var b bytes.Buffer
	text, status := d.text(), d.status()
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	_ = d.header().Write(&b) // a bytes.Buffer does not fail
	fmt.Fprintf(&b, "Connection: close\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
	return b.Bytes()
}
