package proxy

import (
	"errors"
	"strconv"

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
	return name, reason{}
}

// parsePort accepts only a decimal number without leading zeros, because all parsers read it alike.
func parsePort(text string) (uint16, bool) {
	n, err := strconv.ParseUint(text, 10, 16)
	return uint16(n), err == nil && text[0] != '0'
}
