package proxy

import (
	"errors"
	"strconv"
	"strings"

	"github.com/securebench/sbench/proxy/domain"
)

// normalise is [domain.Normalise] with the reason to refuse a host.
func normalise(host string) (string, reason) {
	name, err := domain.Normalise(host)
	switch {
	case errors.Is(err, domain.ErrAddress):
		return "", reasonIPLiteral
	case err != nil:
		return "", reasonBadName
	}
	return name, ""
}

// parsePort accepts only a decimal number without sign or leading zeros, because all parsers read it
// alike.
func parsePort(text string) (uint16, bool) {
	if text == "" || text[0] < '1' || text[0] > '9' || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 16)
	return uint16(n), err == nil
}

// splitAuthority splits "host:port" at its only colon, or after the bracket of an IPv6
// literal. Without a port, port is defaultPort. The parts may be malformed.
func splitAuthority(authority, defaultPort string) (host, port string, ok bool) {
	colon := strings.IndexByte(authority, ':')
	if strings.HasPrefix(authority, "[") {
		end := strings.LastIndexByte(authority, ']') + 1
		colon = end
		if end == len(authority) || end == 0 {
			colon = -1
		}
	}
	if colon < 0 {
		return authority, defaultPort, true
	}
	host, port = authority[:colon], authority[colon+1:]
	return host, port, authority[colon] == ':' && !strings.Contains(port, ":")
}
