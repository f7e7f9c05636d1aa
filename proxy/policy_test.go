package proxy_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/securebench/sbench/proxy"
)

func TestParseDomain(t *testing.T) {
	tests := []struct{ name, written, refused string }{
		{"plain", "example.org", ""},
		{"space, capitals, dot", " Example.ORG. ", ""},
		{"below a public suffix", "me.github.io", ""},
		{"other script", "bücher.example", ""},
		{"empty", " ", "empty"},
		{"wildcard", "*.example.org", "no wildcards"},
		{"all", "*", "no wildcards"},
		{"wildcard below a top level", "*.com", "no wildcards"},
		{"URL", "https://example.org", "scheme, port, path or user"},
		{"port", "example.org:443", "scheme, port, path or user"},
		{"user", "a@example.org", "scheme, port, path or user"},
		{"address", "93.184.216.34", "is an address"},
		{"short address", "127.1", "is an address"},
		{"hexadecimal address", "1.0x7f", "is an address"},
		{"IPv6", "::1", "scheme, port"},
		{"localhost", "localhost", "this host"},
		{"below localhost", "a.localhost", "this host"},
		{"one label", "com", "only one label"},
		{"public suffix", "co.uk", "public suffix"},
		{"private suffix", "github.io", "public suffix"},
		{"two dots", "a..example.org", "no DNS name"},
		{"space inside", "exa mple.org", "no DNS name"},
		{"control character", "exa\x00mple.org", "no DNS name"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, err := proxy.ParseDomain(tt.written)
			switch {
			case tt.refused == "" && err != nil, tt.refused != "" && (err == nil || !strings.Contains(err.Error(), tt.refused)):
				t.Errorf("%v, want %q", err, tt.refused)
			case err == nil && d.String() != tt.written:
				t.Errorf("%q became %q", tt.written, d)
			}
		})
	}
	if _, err := proxy.ParseDomains([]string{"com", "example.org", "127.1"}); err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("not the errors of all: %v", err)
	}
}

func TestDecide(t *testing.T) {
	policy := proxy.Policy{Domains: domains(t, "example.org", "Bücher.example")}
	request := func(host, port string) proxy.Request {
		return proxy.Request{Phase: proxy.PhaseHarness, Kind: proxy.KindConnect, Host: host, Port: port}
	}
	tests := []struct {
		name    string
		policy  proxy.Policy
		request proxy.Request
		want    proxy.Decision
	}{
		{"allowed", policy, request("WWW.example.org.", "443"), proxy.Decision{Allowed: true, Host: "www.example.org", Port: 443, Rule: "example.org"}},
		{"allowed by its ASCII form", policy, request("xn--bcher-kva.example", "80"), proxy.Decision{Allowed: true, Host: "xn--bcher-kva.example", Port: 80, Rule: "Bücher.example"}},
		{"zero policy", proxy.Policy{}, request("example.org", "443"), proxy.Decision{Host: "example.org", Port: 443,
			Rule: "no entry of harness.config.allowed_domains matches", Reason: "host_not_allowed", Cure: `add "example.org" to harness.config.allowed_domains`}},
		{"zero domain", proxy.Policy{Domains: make([]proxy.Domain, 1)}, request("example.org", "443"), proxy.Decision{Host: "example.org", Port: 443,
			Rule: "no entry of harness.config.allowed_domains matches", Reason: "host_not_allowed", Cure: `add "example.org" to harness.config.allowed_domains`}},
		{"zero request", policy, proxy.Request{}, proxy.Decision{Rule: "phases", Reason: "phase_not_allowed", Cure: proxy.Reasons()["phase_not_allowed"]}},
		{"another phase", policy, proxy.Request{Phase: "verify", Kind: proxy.KindConnect, Host: "example.org", Port: "443"},
			proxy.Decision{Host: "example.org", Port: 443, Rule: "phases", Reason: "phase_not_allowed", Cure: proxy.Reasons()["phase_not_allowed"]}},
		{"another port", policy, request("example.org", "22"), proxy.Decision{Host: "example.org", Port: 22, Rule: "ports 80, 443", Reason: "port_not_allowed", Cure: proxy.Reasons()["port_not_allowed"]}},
		{"a name", policy, proxy.Request{Phase: proxy.PhaseHarness, Kind: proxy.KindDNS, Host: "example.org."}, proxy.Decision{Allowed: true, Host: "example.org", Rule: "example.org"}},
		{"no method", policy, proxy.Request{Phase: proxy.PhaseHarness, Kind: proxy.KindHTTP, Host: "example.org", Port: "80"},
			proxy.Decision{Host: "example.org", Port: 80, Rule: "methods GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS", Reason: "method_not_allowed", Cure: proxy.Reasons()["method_not_allowed"]}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.policy.Decide(tt.request)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// TestConfig: a configuration that cannot be enforced is an error.
func TestConfig(t *testing.T) {
	for name, cfg := range map[string]proxy.Config{
		"without a log": {}, "negative limit": {Log: proxy.NewLog(newBook()), Limits: proxy.Limits{Up: -1}},
	} {
		if p, err := proxy.New(cfg); err == nil {
			report(t, p.Close())
			t.Errorf("%s: no error", name)
		}
	}
}

// TestReasonsDocumented: the documentation has every reason.
func TestReasonsDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/egress.md")
	if err != nil {
		t.Fatal(err)
	}
	for reason, cure := range proxy.Reasons() {
		if !strings.Contains(string(text), "| `"+string(reason)+"` |") {
			t.Errorf("%s is not documented", reason)
		}
		if cure == "" {
			t.Errorf("%s has no cure", reason)
		}
	}
}

func TestEnvironment(t *testing.T) {
	env := proxy.Environment("127.0.0.1:3128")
	for _, want := range []string{"HTTP_PROXY=http://127.0.0.1:3128", "https_proxy=http://127.0.0.1:3128", "all_proxy=http://127.0.0.1:3128", "NO_PROXY=127.0.0.1,localhost,::1", "no_proxy=127.0.0.1,localhost,::1"} {
		if !slices.Contains(env, want) {
			t.Errorf("no %s in %v", want, env)
		}
	}
}
