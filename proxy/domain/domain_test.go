package domain_test

import (
	"strings"
	"testing"

	"github.com/securebench/sbench/proxy/domain"
)

func TestParse(t *testing.T) {
	long := strings.Repeat("a", 64)
	tests := []struct{ name, written, want, refused string }{
		{"plain", "example.org", "example.org", ""},
		{"space, capitals, dot", " Example.ORG. ", "example.org", ""},
		{"below a public suffix", "me.github.io", "me.github.io", ""},
		{"another script in ASCII", "xn--bcher-kva.de", "xn--bcher-kva.de", ""},
		{"label that begins with a digit", "1.example.com", "1.example.com", ""},
		{"empty", " ", "", "not a DNS name"},
		{"a dot", ".", "", "not a DNS name"},
		{"wildcard", "*.example.org", "", "wildcard"},
		{"URL", "https://example.org", "", "scheme"},
		{"path", "example.org/c", "", "path"},
		{"port", "example.org:443", "", "port"},
		{"user", "a@example.org", "", "user"},
		{"address", "93.184.216.34", "", "IP address"},
		{"short address", "127.1", "", "IP address"},
		{"hexadecimal address", "1.0x7f", "", "IP address"},
		{"hexadecimal without digits", "0x.0x", "", "IP address"},
		{"IPv6", "::1", "", "port"},
		{"IPv6 in brackets", "[::1]", "", "port"},
		{"localhost", "localhost", "", "this host"},
		{"below localhost", "a.localhost", "", "this host"},
		{"one label", "com", "", "only one label"},
		{"public suffix", "co.uk", "", "public suffix"},
		{"private suffix", "github.io", "", "public suffix"},
		{"two dots", "a..example.org", "", "not a DNS name"},
		{"hyphen first", "-a.example.org", "", "hyphen"},
		{"hyphen last", "a-.example.org", "", "hyphen"},
		{"long label", long + ".example.org", "", "not a DNS name"},
		{"long name", strings.Repeat("a.", 127) + "b", "", "not a DNS name"},
		{"space inside", "exa mple.org", "", "not a DNS name"},
		{"control character", "exa\x00mple.org", "", "not a DNS name"},
		{"another script", "bücher.de", "", "not a DNS name"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, err := domain.Parse(tt.written)
			switch {
			case tt.refused == "" && err != nil, tt.refused != "" && (err == nil || !strings.Contains(err.Error(), tt.refused)):
				t.Errorf("%v, want %q", err, tt.refused)
			case d.String() != tt.want:
				t.Errorf("%q became %q", tt.written, d)
			}
		})
	}
}

func TestParseAll(t *testing.T) {
	if got, err := domain.ParseAll([]string{"com", "example.org", "127.1"}); len(got) != 1 || err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("not the errors of all: %v, %v", got, err)
	}
	if got, err := domain.ParseAll([]string{"Example.org.", "a.io", "example.ORG"}); len(got) != 2 || err != nil {
		t.Errorf("not each once: %v, %v", got, err)
	}
}

// TestSuggest: an error says what to write instead of a URL, a wildcard or a port.
func TestSuggest(t *testing.T) {
	for _, written := range []string{"https://pypi.org/simple", "*.pypi.org", "pypi.org:443", "user@pypi.org", "pypi.org/simple"} {
		_, err := domain.ParseAll([]string{written})
		if err == nil || !strings.Contains(err.Error(), `write "pypi.org"`) {
			t.Errorf("%s: %v", written, err)
		}
	}
}
