package proxy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// egressHeader is the header with the [reason] in the answer to a refused request.
const egressHeader = "X-Sbench-Egress"

// An access is one use of the network, allowed or refused. It becomes one entry of the log.
type access struct {
	p        *Proxy
	entry    Entry
	last     decision // the last decision, from which the answer to the sandbox is made
	blocked  reason   // if not zero, the access is refused for this reason whatever the policy says
	unlogged bool     // beyond Limits.Requests: counted but not logged
}

// newAccess begins an access. The caller calls its end.
func (p *Proxy) newAccess(kind Kind) *access {
	a := &access{p: p, entry: Entry{Time: time.Now(), Task: p.cfg.Task, Attempt: p.cfg.Attempt, Kind: kind}}
	n := p.counts.requests.Add(1)
	switch {
	case n > p.limits.Requests:
		a.blocked, a.unlogged = reasonRequests, n > p.limits.Requests+1
	case p.cfg.Log.Err() != nil:
		a.blocked = reasonLog
	case p.ctx.Err() != nil:
		a.blocked = reasonShutdown
	}
	return a
}

// decide asks the policy.
func (a *access) decide(r request) decision {
	d := a.p.cfg.Allowed.decide(r)
	a.entry.Host, a.entry.Port = d.Host, int(d.Port)
	if d.Allowed && a.blocked.Word != "" {
		d = d.refuse(a.blocked, "")
	}
	a.entry.Rule, a.entry.Reason, a.entry.Verdict = d.Rule, d.Reason.Word, Deny
	if d.Allowed {
		a.entry.Verdict = Allow
	}
	a.last = d
	return d
}

// refuse refuses the access for another reason than the policy's.
func (a *access) refuse(why reason, rule string) decision {
	if a.blocked.Word != "" {
		why, rule = a.blocked, ""
	}
	a.last = a.last.refuse(why, rule)
	a.entry.Verdict, a.entry.Reason, a.entry.Rule = Deny, why.Word, rule
	return a.last
}

// deny refuses the access and ends it.
func (a *access) deny(why reason, rule string) decision {
	defer a.end(0, 0)
	return a.refuse(why, rule)
}

// dial connects to the host. If it cannot, it ends the access and returns nil.
func (a *access) dial() *upstream {
	up, err := a.p.dial(a.p.ctx, a.last)
	if err != nil {
		a.recordError(err)
		a.end(0, 0)
		return nil
	}
	a.entry.Address = up.address.String()
	return up
}

// recordError records an error of the connection to the host. It does not call end.
func (a *access) recordError(err error) {
	e := &a.entry
	verdict, why, rule := Error, reasonUpstream, e.Rule
	var refused *refusedAddress
	var dns *net.DNSError
	var op *net.OpError
	switch {
	case a.p.ctx.Err() != nil:
		why = reasonShutdown
	case errors.As(err, &refused):
		verdict, why, rule, e.Address = Deny, reasonAddress, refused.rule, refused.address.String()
	case errors.As(err, &dns):
		why = reasonResolve
	case errors.As(err, &op) && op.Op == "dial":
		why = reasonDial
		if op.Addr != nil {
			e.Address = op.Addr.String()
		}
	}
	a.last = a.last.refuse(why, rule)
	e.Verdict, e.Reason, e.Rule = verdict, why.Word, rule
}

// cut records why an allowed access ended early.
func (a *access) cut(why reason) { a.entry.Verdict, a.entry.Reason = Allow, why.Word }

// end writes the entry. up and down are the bytes that left and entered the sandbox.
func (a *access) end(up, down int64) {
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
	if a.unlogged {
		c.unlogged.Add(1)
		return
	}
	a.p.cfg.Log.Write(a.entry)
}

// text returns the body of a refusal. Of the request it repeats only a well-formed name and port.
func (d decision) text() string {
	what := "a request"
	if d.Host != "" {
		what = d.Host
	}
	if d.Host != "" && d.Port != 0 {
		what = net.JoinHostPort(d.Host, strconv.Itoa(int(d.Port)))
	}
	verb := "refused"
	switch d.Reason {
	case reasonResolve, reasonDial, reasonUpstream:
		verb = "could not reach"
	case reasonIdle, reasonLifetime, reasonShutdown:
		verb = "cut the connection to"
	}
	text := fmt.Sprintf("sbench %s %s\nreason: %s\n", verb, what, d.Reason.Word)
	if d.Rule != "" {
		text += "rule: " + d.Rule + "\n"
	}
	return text + "cure: " + strings.Replace(d.Reason.Cure, "HOST", strconv.Quote(d.Host), 1) + "\n"
}

// status returns the HTTP status of a refusal.
func (d decision) status() int { return cmp.Or(d.Reason.Status, http.StatusForbidden) }

// header returns the header of a refusal.
func (d decision) header() http.Header {
	return http.Header{
		egressHeader: {d.Reason.Word}, "Content-Type": {"text/plain; charset=utf-8"}, "Cache-Control": {"no-store"},
	}
}

// raw returns a refusal as a whole HTTP answer that ends the connection.
func (d decision) raw() []byte {
	var b bytes.Buffer
	text, status := d.text(), d.status()
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	_ = d.header().Write(&b) // a bytes.Buffer does not fail
	fmt.Fprintf(&b, "Connection: close\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
	return b.Bytes()
}
