package proxy

import (
	"net"
	"syscall"
)

// Hooks are what only tests may do to a proxy: ask another name server, have
// another idea of the host's interfaces, and connect a socket elsewhere after its
// address has passed the check.
type Hooks struct {
	Resolver   *net.Resolver
	Control    func(network, address string, c syscall.RawConn) error
	Interfaces func() ([]net.Addr, error)
}

// WithHooks returns the configuration with hooks.
func WithHooks(cfg Config, h Hooks) Config {
	cfg.hooks = hooks{h.Resolver, h.Control, h.Interfaces}
	return cfg
}

// ParseHello gives tests the parser.
func ParseHello(b []byte) (name string, ech, whole bool, reason Reason) {
	h, whole, reason := parseHello(b)
	return h.name, h.ech, whole, reason
}

// AnswerDNS gives tests what a question gets.
func (p *Proxy) AnswerDNS(message []byte) []byte { return p.answerDNS(message) }

// FreeTunnels is how many more there may be.
func (p *Proxy) FreeTunnels() int { return cap(p.tunnels) - len(p.tunnels) }
