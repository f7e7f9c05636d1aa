package proxy

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"
)

// A Domain is a rule that allows a DNS name and all names below it: example.org allows
// www.example.org and not badexample.org. The zero Domain allows none.
type Domain struct {
	name    string // normalised
	written string
}

// ParseDomain parses a rule from a tester file. It fails for everything that is not a
// DNS name of two or more labels, such as addresses, localhost, ports, paths and
// wildcards. It also fails for public suffixes such as "co.uk" or "github.io", under
// which anybody can register a name (publicsuffix.org). Names in other scripts become
// ASCII (UTS 46).
func ParseDomain(written string) (Domain, error) {
	trimmed := strings.TrimSuffix(strings.TrimSpace(written), ".")
	switch {
	case trimmed == "":
		return Domain{}, errors.New("empty domain")
	case strings.ContainsAny(trimmed, "*"):
		return Domain{}, fmt.Errorf("domain %q: no wildcards; a name allows its subdomains", written)
	case strings.ContainsAny(trimmed, ":/@?#[]\\"):
		return Domain{}, fmt.Errorf("domain %q: has a scheme, port, path or user", written)
	}
	ascii, err := idna.Lookup.ToASCII(trimmed)
	if err != nil {
		return Domain{}, fmt.Errorf("domain %q: no DNS name", written)
	}
	name, reason := normalise(ascii)
	switch {
	case reason == ReasonIPLiteral:
		return Domain{}, fmt.Errorf("domain %q: is an address", written)
	case reason != "":
		return Domain{}, fmt.Errorf("domain %q: no DNS name", written)
	case name == "localhost" || strings.HasSuffix(name, ".localhost"):
		return Domain{}, fmt.Errorf("domain %q: is this host", written)
	case !strings.Contains(name, "."):
		return Domain{}, fmt.Errorf("domain %q: has only one label", written)
	}
	if suffix, _ := publicsuffix.PublicSuffix(name); suffix == name {
		return Domain{}, fmt.Errorf("domain %q: anybody can register a name below it (public suffix)", written)
	}
	return Domain{name: name, written: written}, nil
}

// ParseDomains calls [ParseDomain] for every name and joins the errors.
func ParseDomains(names []string) ([]Domain, error) {
	domains := make([]Domain, 0, len(names))
	var errs []error
	for _, name := range names {
		d, err := ParseDomain(name)
		domains, errs = append(domains, d), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return domains, nil
}

// String returns the rule as it was written.
func (d Domain) String() string { return d.written }

// allows says whether the normalised name is the domain's or below it.
func (d Domain) allows(name string) bool {
	if d.name == "" {
		return false
	}
	head, ok := strings.CutSuffix(name, d.name)
	return ok && (head == "" || head[len(head)-1] == '.')
}

// normalise returns the one spelling of a host that rules are compared with: in
// lower case and without the dot at its end. Anything that some parser would read as
// an address is refused: the last label of a DNS name is not a number (RFC 1123, 2.1;
// WHATWG URL, "ends in a number").
func normalise(host string) (string, Reason) {
	if strings.HasPrefix(host, "[") || strings.Contains(host, ":") {
		if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
			return "", ReasonIPLiteral
		}
		return "", ReasonBadName
	}
	name := strings.TrimSuffix(host, ".")
	if name == "" || len(name) > 253 {
		return "", ReasonBadName
	}
	for label := range strings.SplitSeq(name, ".") {
		if !isLabel(label) {
			return "", ReasonBadName
		}
	}
	name = strings.ToLower(name)
	if isNumber(name[strings.LastIndexByte(name, '.')+1:]) {
		return "", ReasonIPLiteral
	}
	return name, ""
}

// isLabel accepts letters, digits, hyphens, and the underscore of service names.
func isLabel(label string) bool {
	const known = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	return label != "" && len(label) <= 63 && strings.Trim(label, known) == ""
}

// isNumber reports whether inet_aton(3) could read the label as part of an address.
func isNumber(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// parsePort accepts only a decimal number without sign or leading zeros, which every
// parser reads alike.
func parsePort(text string) (uint16, bool) {
	if text == "" || text[0] < '1' || text[0] > '9' || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 16)
	return uint16(n), err == nil
}

// splitAuthority splits "host:port" at its only colon, or after the bracket of an
// IPv6 literal. Without a port, it returns otherwise. The parts may be malformed.
func splitAuthority(authority, otherwise string) (host, port string, ok bool) {
	colon := strings.IndexByte(authority, ':')
	if strings.HasPrefix(authority, "[") {
		end := strings.LastIndexByte(authority, ']') + 1
		colon = end
		if end == len(authority) || end == 0 {
			colon = -1
		}
	}
	if colon < 0 {
		return authority, otherwise, true
	}
	host, port = authority[:colon], authority[colon+1:]
	return host, port, authority[colon] == ':' && !strings.Contains(port, ":")
}
