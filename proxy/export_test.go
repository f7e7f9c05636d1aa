package proxy

import (
	"net"
	"net/netip"
	"syscall"
)

// Hooks are the parts of a proxy that only tests may change: the name server, which addresses are
// the host's own, whether to keep addresses, and where a socket connects after its address has passed the check.
type Hooks struct {
	Resolver *net.Resolver
	Forget   bool
	Control  func(network, address string, c syscall.RawConn) error
	Remote   func(net.Conn) netip.AddrPort
	Local    func(netip.Addr) (bool, error)
}

// WithHooks returns the configuration with hooks.
func WithHooks(cfg Config, h Hooks) Config {
	cfg.hooks = hooks{h.Resolver, h.Control, h.Remote, h.Forget, h.Local}
	return cfg
}

// The policy's question and its answer.
type (
	Reason   = reason
	Request  = request
	Decision = decision
)

// Reasons returns all reasons by their words.
func Reasons() map[string]reason {
	all := map[string]reason{}
	for _, r := range []reason{
		reasonMalformed, reasonHeaderTooLarge, reasonHeaderTimeout, reasonNotProxy, reasonScheme, reasonMethod,
		reasonUpgrade, reasonLength, reasonAuthority, reasonBadPort, reasonPort, reasonBadName,
		reasonIPLiteral, reasonHost, reasonLookup, reasonHostMismatch, reasonAddress, reasonResolve,
		reasonDial, reasonUpstream, reasonNotTLS, reasonBadHello, reasonHelloTimeout, reasonSNIMissing,
		reasonSNIMismatch, reasonECH, reasonConnections, reasonRequests, reasonNames, reasonUp,
		reasonDown, reasonIdle, reasonLifetime, reasonShutdown, reasonLog,
	} {
		all[r.Word] = r
	}
	return all
}

// Decide is decide.
func (p Allowlist) Decide(r Request) Decision { return p.decide(r) }

// AnswerDNS is answerDNS.
func (p *Proxy) AnswerDNS(message []byte) []byte { return p.answerDNS(message) }

// IsLocal is isLocal.
func IsLocal(a netip.Addr) (bool, error) { return isLocal(a) }

// ConnectionBytes is connectionBytes.
const ConnectionBytes = connectionBytes
