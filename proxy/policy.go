package proxy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/securebench/sbench/proxy/domain"
)

// Phase names a part of an attempt.
type Phase string

// PhaseHarness is the only phase with access to a network; verifiers never have any.
const PhaseHarness Phase = "harness"

// A Policy says what a sandbox may reach, in PhaseHarness only. The zero Policy denies
// everything.
type Policy struct {
	Domains []domain.Domain // what may be reached; empty means nothing
	Ports   []uint16        // that may be reached there; empty means 80 and 443

	// AllowMissingSNI lets tunnels through whose ClientHello names no host.
	AllowMissingSNI bool
	// AllowECH lets ClientHellos through that hide, or pretend to hide, a name
	// (RFC 9849). Chromium and Firefox always pretend. What a hidden name reaches is
	// then up to the server of the name that is shown.
	AllowECH bool
}

// A Request is what something in a sandbox asks for. The zero Request is denied.
type Request struct {
	Phase  Phase
	Kind   Kind
	Method string // used for KindHTTP only
	Host   string // as it was asked for; may be an address
	Port   string // as it was asked for; not used for KindDNS
}

// A Decision is a policy's answer to a [Request]. The zero Decision denies.
type Decision struct {
	Allowed bool
	Host    string // normalised; "" if the request's is malformed or an address
	Port    uint16 // 0 if the request's is malformed
	Rule    string // that allowed or refused it
	Reason  Reason // of a refusal
	Cure    string // of a refusal: how to allow it
}

// Decide says whether the policy allows the request. It depends on nothing but p and r;
// the address that a name resolves to is checked when it is dialled.
func (p Policy) Decide(r Request) Decision {
	d := Decision{}
	host, badName := normalise(r.Host)
	port, okPort := parsePort(r.Port)
	d.Host, d.Port = host, port
	switch rule, ok := p.match(host); {
	case r.Phase != PhaseHarness:
		return d.refuse(ReasonPhase, "phases")
	case badName != "":
		return d.refuse(badName, "hosts are named by DNS names")
	case !ok:
		d = d.refuse(ReasonHost, "no entry of harness.config.allowed_domains matches")
		d.Cure = fmt.Sprintf("add %q to harness.config.allowed_domains", host)
		return d
	default:
		d.Rule = rule
	}
	ports, methods := p.Ports, []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
	if len(ports) == 0 {
		ports = []uint16{80, 443}
	}
	switch {
	case r.Kind == KindDNS:
	case !okPort:
		return d.refuse(ReasonBadPort, "ports are decimal numbers")
	case !slices.Contains(ports, port):
		return d.refuse(ReasonPort, "ports "+joinPorts(ports))
	case r.Kind == KindHTTP && !slices.Contains(methods, r.Method):
		return d.refuse(ReasonMethod, "methods "+strings.Join(methods, ", "))
	}
	d.Allowed = true
	return d
}

func (d Decision) refuse(reason Reason, rule string) Decision {
	d.Allowed, d.Reason, d.Rule, d.Cure = false, reason, rule, reason.cure()
	return d
}

// match returns the first rule that allows the normalised name.
func (p Policy) match(name string) (string, bool) {
	for _, d := range p.Domains {
		if d.Allows(name) {
			return d.String(), true
		}
	}
	return "", false
}

func joinPorts(ports []uint16) string {
	words := make([]string, len(ports))
	for i, p := range ports {
		words[i] = strconv.Itoa(int(p))
	}
	return strings.Join(words, ", ")
}
