package proxy

import (
	"slices"
	"strings"

	"github.com/securebench/sbench/proxy/domain"
)

// Ports and methods that a sandbox may use at an allowed host.
var (
	ports   = []uint16{80, 443}
	methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
)

// An Allowlist says what a harness may reach. The zero Allowlist denies everything.
type Allowlist struct {
	Domains []domain.Domain // empty means nothing
	// Mirrors are allowed like Domains, and may have an address in a private network of RFC 1918.
	Mirrors []domain.Domain
}

// A request is what a program in a sandbox asks for. The zero request is denied.
type request struct {
	Kind   Kind
	Method string // used for KindHTTP only
	Host   string // as requested; may be an address
	Port   string // as requested; not used for KindDNS
}

// A decision is an allowlist's answer to a [request]. The zero decision denies.
type decision struct {
	Allowed bool
	Host    string // normalised; "" if the requested host is malformed or an address
	Port    uint16 // 0 if the requested port is malformed
	Rule    string // the rule that allowed or refused the request
	Private bool   // the host may have a private address
	Reason  reason // of a refusal
}

// decide says whether the allowlist allows the request. It depends only on p and r. Proxy.dial checks
// the address that a name resolves to.
func (p Allowlist) decide(r request) decision {
	host, badName := normalise(r.Host)
	port, okPort := parsePort(r.Port)
	d := decision{Host: host, Port: port}
	allowing := func(d domain.Domain) bool { return d.Allows(host) }
	domains, rule := p.Mirrors, slices.IndexFunc(p.Mirrors, allowing)
	if d.Private = rule >= 0; !d.Private {
		domains, rule = p.Domains, slices.IndexFunc(p.Domains, allowing)
	}
	switch {
	case badName.Word != "":
		return d.refuse(badName, "hosts are named by DNS names")
	case rule < 0:
		return d.refuse(reasonHost, "no entry of harness.config.allowed_domains matches")
	case r.Kind == KindDNS:
	case !okPort:
		return d.refuse(reasonBadPort, "ports are decimal numbers")
	case !slices.Contains(ports, port):
		return d.refuse(reasonPort, "ports 80, 443")
	case r.Kind == KindHTTP && !slices.Contains(methods, r.Method):
		return d.refuse(reasonMethod, "methods "+strings.Join(methods, ", "))
	}
	d.Allowed, d.Rule = true, domains[rule].String()
	return d
}

func (d decision) refuse(why reason, rule string) decision {
	d.Allowed, d.Reason, d.Rule = false, why, rule
	return d
}
