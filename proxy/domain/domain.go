// Package domain reads the DNS names that a tester allows and the hosts that a client asks for,
// and compares them in one normal spelling.
package domain

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// Why a host has no name that a rule could allow.
var (
	ErrAddress = errors.New("an IP address, not a DNS name")
	ErrName    = errors.New("not a DNS name")
)

// A Domain is a rule that allows a DNS name and all names below it: example.org allows
// www.example.org and not badexample.org. The zero Domain allows no name.
type Domain struct{ name string }

// UnmarshalText implements encoding.TextUnmarshaler by Parse.
func (d *Domain) UnmarshalText(text []byte) (err error) {
	*d, err = Parse(string(text))
	return err
}

// Parse parses a rule from a tester file: a DNS name of two or more labels in ASCII (for other
// scripts, RFC 5890's A-labels). White space around the name, capitals and a dot at its end do not
// matter. Parse fails for anything else, such as addresses, localhost, ports, paths and wildcards. It
// also fails for public suffixes such as "co.uk" or "github.io" (publicsuffix.org), since anybody can
// register a name below them.
func Parse(written string) (Domain, error) {
	text := strings.TrimSpace(written)
	if strings.ContainsAny(text, "*:/@?#\\") {
		return Domain{}, fmt.Errorf("%q is not a DNS name: it has a wildcard, scheme, port, path or user", written)
	}
	name, err := Normalise(text)
	switch {
	case err != nil:
		return Domain{}, fmt.Errorf("%q is %w", written, err)
	case name == "localhost" || strings.HasSuffix(name, ".localhost"):
		return Domain{}, fmt.Errorf("%q is this host, which no harness may reach", written)
	case strings.Contains("."+name, ".-") || strings.Contains(name+".", "-."):
		return Domain{}, fmt.Errorf("%q is %w: a label begins or ends with a hyphen", written, ErrName)
	case !strings.Contains(name, "."):
		return Domain{}, fmt.Errorf("%q has only one label", written)
	}
	if suffix, _ := publicsuffix.PublicSuffix(name); suffix == name {
		return Domain{}, fmt.Errorf("%q is a public suffix: anybody can register a name below it", written)
	}
	return Domain{name: name}, nil
}

// Suggest says what to write instead of a text that [Parse] refuses.
func Suggest(written string) string {
	bare := strings.TrimSpace(written)
	if _, after, ok := strings.Cut(bare, "://"); ok {
		bare = after
	}
	if _, after, ok := strings.Cut(bare, "@"); ok {
		bare = after
	}
	bare = strings.TrimPrefix(bare, "*.")
	if i := strings.IndexAny(bare, ":/?#"); i >= 0 {
		bare = bare[:i]
	}
	if d, err := Parse(bare); err == nil {
		return fmt.Sprintf("write %q; it allows its subdomains too", d)
	}
	return "a DNS name of two or more labels, such as \"example.org\""
}

// ParseAll calls [Parse] for every name, and drops duplicates. It joins the errors, and says what to write.
func ParseAll(names []string) ([]Domain, error) {
	var domains []Domain
	var errs []error
	seen := make(map[Domain]bool)
	for _, name := range names {
		d, err := Parse(name)
		if err == nil && !seen[d] {
			seen[d] = true
			domains = append(domains, d)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%w (%s)", err, Suggest(name)))
		}
	}
	return domains, errors.Join(errs...)
}

// String returns the name in lower case, without a dot at its end.
func (d Domain) String() string { return d.name }

// Allows reports whether a name from [Normalise] is the domain's name or below it.
func (d Domain) Allows(name string) bool {
	head, ok := strings.CutSuffix(name, d.name)
	return ok && d.name != "" && (head == "" || head[len(head)-1] == '.')
}

// Normalise returns the spelling of a host that [Domain.Allows] compares: lower case, without the dot
// at its end. The error is [ErrAddress] for anything that some parser would read as an address: the
// last label of a DNS name is not a number (RFC 1123, 2.1; WHATWG URL, "ends in a number"). All other
// errors are [ErrName].
func Normalise(host string) (string, error) {
	if strings.HasPrefix(host, "[") || strings.Contains(host, ":") {
		if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
			return "", ErrAddress
		}
		return "", ErrName
	}
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	if name == "" || len(name) > 253 {
		return "", ErrName
	}
	for label := range strings.SplitSeq(name, ".") {
		if !isLabel(label) {
			return "", ErrName
		}
	}
	if isNumber(name[strings.LastIndexByte(name, '.')+1:]) {
		return "", ErrAddress
	}
	return name, nil
}

// isLabel accepts letters, digits, hyphens, and the underscore of service names.
func isLabel(label string) bool {
	const known = "abcdefghijklmnopqrstuvwxyz0123456789-_"
	return label != "" && len(label) <= 63 && strings.Trim(label, known) == ""
}

// isNumber reports whether inet_aton(3) could read the label as part of an address.
func isNumber(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}
