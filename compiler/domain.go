package compiler

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// parseDomain returns the lower-case form of a DNS name that a harness may be allowed
// to reach, or an error that says what is wrong with it: it must have two or more
// labels of letters, digits and inner hyphens, and must not be an IP address or
// localhost. White space around it and dots at its end are dropped.
func parseDomain(name string) (string, error) {
	domain := strings.TrimRight(strings.ToLower(strings.TrimSpace(name)), ".")
	switch {
	case domain == "":
		return "", errors.New("domain is empty")
	case strings.ContainsAny(domain, ":/*@?#"):
		return "", fmt.Errorf("%q is no DNS name: it has a scheme, port, path or wildcard", name)
	case domain == "localhost" || strings.HasSuffix(domain, ".localhost"):
		return "", fmt.Errorf("%q is this host, which no harness may reach", name)
	case !strings.Contains(domain, "."):
		return "", fmt.Errorf("%q has only one label", name)
	case len(domain) > 253:
		return "", fmt.Errorf("DNS name of %d bytes is longer than 253", len(domain))
	}
	last := domain[strings.LastIndexByte(domain, '.')+1:]
	// inet_aton(3) also accepts 127.1 and 0x7f.1 as addresses, and no top-level
	// domain is a number.
	if _, err := netip.ParseAddr(domain); err == nil || isAddressPart(last) {
		return "", fmt.Errorf("%q is an IP address, not a DNS name", name)
	}
	for label := range strings.SplitSeq(domain, ".") {
		if !isLabel(label) {
			return "", fmt.Errorf("%q is no DNS name: malformed label %q", name, label)
		}
	}
	return domain, nil
}

func isAddressPart(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return label != "" && strings.Trim(label, "0123456789") == ""
}

func isLabel(label string) bool {
	if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
		return false
	}
	return strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// domainHint guesses what the author meant.
func domainHint(name string) string {
	bare := strings.TrimSpace(name)
	if _, after, ok := strings.Cut(bare, "://"); ok {
		bare = after
	}
	bare = strings.TrimPrefix(bare, "*.")
	if i := strings.IndexAny(bare, ":/?#"); i >= 0 {
		bare = bare[:i]
	}
	if domain, err := parseDomain(bare); err == nil {
		return fmt.Sprintf("write %q; it allows its subdomains too", domain)
	}
	return "a DNS name of two or more labels, such as \"example.org\""
}
