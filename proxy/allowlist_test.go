package proxy_test

import (
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/proxy/domain"
)

func TestDecide(t *testing.T) {
	policy := proxy.Allowlist{Domains: domains(t, "example.org", "xn--bcher-kva.example")}
	request := func(host, port string) proxy.Request {
		return proxy.Request{Kind: proxy.KindConnect, Host: host, Port: port}
	}
	tests := []struct {
		name    string
		policy  proxy.Allowlist
		request proxy.Request
		want    proxy.Decision
	}{
		{"allowed", policy, request("WWW.example.org.", "443"), proxy.Decision{Allowed: true, Host: "www.example.org", Port: 443, Rule: "example.org"}},
		{"another script", policy, request("xn--bcher-kva.example", "80"), proxy.Decision{Allowed: true, Host: "xn--bcher-kva.example", Port: 80, Rule: "xn--bcher-kva.example"}},
		{"zero policy", proxy.Allowlist{}, request("example.org", "443"), proxy.Decision{Host: "example.org", Port: 443,
			Rule: "no entry of harness.config.allowed_domains matches", Reason: proxy.Reasons()["host_not_allowed"]}},
		{"zero domain", proxy.Allowlist{Domains: make([]domain.Domain, 1)}, request("example.org", "443"), proxy.Decision{Host: "example.org", Port: 443,
			Rule: "no entry of harness.config.allowed_domains matches", Reason: proxy.Reasons()["host_not_allowed"]}},
		{"zero request", policy, proxy.Request{}, proxy.Decision{Rule: "hosts are named by DNS names", Reason: proxy.Reasons()["bad_name"]}},
		{"another port", policy, request("example.org", "22"), proxy.Decision{Host: "example.org", Port: 22, Rule: "ports 80, 443", Reason: proxy.Reasons()["port_not_allowed"]}},
		{"a name", policy, proxy.Request{Kind: proxy.KindDNS, Host: "example.org."}, proxy.Decision{Allowed: true, Host: "example.org", Rule: "example.org"}},
		{"no method", policy, proxy.Request{Kind: proxy.KindHTTP, Host: "example.org", Port: "80"},
			proxy.Decision{Host: "example.org", Port: 80, Rule: "methods GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS", Reason: proxy.Reasons()["method_not_allowed"]}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			must.Equal(t, tt.want, tt.policy.Decide(tt.request))
		})
	}
}

// TestNoLog: there is no proxy without a log.
func TestNoLog(t *testing.T) {
	if p, err := proxy.New(proxy.Config{}); err == nil {
		p.Close()
		t.Error("no error")
	}
}

// TestReasons: the client is told what to do about every refusal.
func TestReasons(t *testing.T) {
	for word, reason := range proxy.Reasons() {
		if reason.Cure == "" || reason.Status < 400 {
			t.Errorf("%s has no cure", word)
		}
	}
}
