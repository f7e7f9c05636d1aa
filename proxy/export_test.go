package proxy

import (
	"net"
	"net/netip"
	"syscall"
)

// Hooks are what only tests may do to a proxy: ask another name server, have
// another idea of the host's own addresses, and connect a socket elsewhere after its
// address has passed the check.
type Hooks struct {
	Resolver *net.Resolver
	Control  func(network, address string, c syscall.RawConn) error
	Local    func(netip.Addr) (bool, error)
}

// WithHooks returns the configuration with hooks.
func WithHooks(cfg Config, h Hooks) Config {
	cfg.hooks = hooks{h.Resolver, h.Control, h.Local}
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

// IsLocal gives tests what the kernel says.
func IsLocal(a netip.Addr) (bool, error) { return isLocal(a) }
