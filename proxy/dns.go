package proxy

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// nameTTL is the TTL of an answer, in seconds. The address is valid until the proxy is closed.
const nameTTL = 60

const (
	firstName = 198<<24 | 18<<16 | 1 // 198.18.0.1, the address of the first name
	maxNames  = 1<<17 - 2            // the size of 198.18.0.0/15 without its first and last address
)

// names assigns each name a permanent address: the n-th name, counted from 0, has the n-th
// address after firstName.
type names struct {
	mu    sync.Mutex
	limit int
	all   []string
	index map[string]int
}

// assign returns the name's address, unless there are too many names.
func (n *names) assign(name string) (netip.Addr, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	i, ok := n.index[name]
	if !ok {
		if i = len(n.all); i >= n.limit {
			return netip.Addr{}, false
		}
		n.index[name], n.all = i, append(n.all, name)
	}
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(firstName+i)))), true
}

// name returns the name that has the address.
func (n *names) name(a netip.Addr) (string, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if a.Is4() {
		if i := int(binary.BigEndian.Uint32(a.AsSlice())) - firstName; i >= 0 && i < len(n.all) {
			return n.all[i], true
		}
	}
	return "", false
}

// ServeDNS answers the sandbox's DNS questions on c. No question leaves the host. Every allowed name
// has its own address in 198.18.0.0/15, at which [Proxy.ServeRedirected] serves it. No other name
// exists and, with Config.Explicit, none at all. ServeDNS returns when c or the proxy is closed, and
// closes c. It waits while the kernel has no memory for a question.
func (p *Proxy) ServeDNS(c net.PacketConn) error {
	done := p.closeAtEnd(c)
	if done == nil {
		return ErrClosed
	}
	defer done()
	buf := make([]byte, 4096)
	for {
		var n int
		var from net.Addr
		if patiently(func() (err error) { n, from, err = c.ReadFrom(buf); return err }) != nil {
			return nil
		}
		if answer := p.answerDNS(buf[:n]); answer != nil {
			_, _ = c.WriteTo(answer, from) // the client may be gone
		}
	}
}

// ServeDNSTCP does what [Proxy.ServeDNS] does, for clients that use TCP.
func (p *Proxy) ServeDNSTCP(l net.Listener) error {
	return p.accept(l, KindDNS, p.serveDNSConn)
}

func (p *Proxy) serveDNSConn(c *client) {
	defer func() { _ = c.Close() }()
	for {
		var size [2]byte
		if c.tcp.SetDeadline(time.Now().Add(p.limits.HeaderTime)) != nil {
			return
		}
		if _, err := io.ReadFull(c.tcp, size[:]); err != nil {
			return
		}
		question := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c.tcp, question); err != nil {
			return
		}
		answer := p.answerDNS(question)
		if answer == nil {
			return
		}
		if _, err := c.tcp.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			return
		}
	}
}

// answerDNS returns the answer to a query, or nil for anything else. If the query does not have exactly
// one question of class IN, the answer is an error.
func (p *Proxy) answerDNS(message []byte) []byte {
	var parser dnsmessage.Parser
	head, err := parser.Start(message)
	if err != nil || head.Response {
		return nil
	}
	m := dnsmessage.Message{Header: dnsmessage.Header{
		ID: head.ID, Response: true, OpCode: head.OpCode, RecursionDesired: head.RecursionDesired, RecursionAvailable: true,
	}}
	a := p.newAccess(KindDNS)
	questions, err := parser.AllQuestions() // no name has a dot inside a label
	if err != nil || head.OpCode != 0 || len(questions) != 1 || questions[0].Class != dnsmessage.ClassINET {
		a.refuse(reasonMalformed, "")
		m.RCode = dnsmessage.RCodeFormatError
	} else {
		m.Questions = questions
		m.RCode, m.Answers = p.resolve(a, questions[0])
	}
	a.end(0, 0)
	answer, err := m.Pack()
	if err != nil {
		return nil
	}
	return answer
}

// resolve decides on a question. The answer is empty unless the question is for an IPv4 address.
func (p *Proxy) resolve(a *access, q dnsmessage.Question) (dnsmessage.RCode, []dnsmessage.Resource) {
	d := a.decide(request{Kind: KindDNS, Host: q.Name.String()})
	switch {
	case !d.Allowed:
		return dnsmessage.RCodeNameError, nil
	case p.cfg.Explicit:
		a.refuse(reasonLookup, "")
		return dnsmessage.RCodeNameError, nil
	case q.Type != dnsmessage.TypeA:
		return dnsmessage.RCodeSuccess, nil
	}
	address, ok := p.names.assign(d.Host)
	if !ok {
		a.refuse(reasonNames, strconv.Itoa(p.names.limit)+" names")
		return dnsmessage.RCodeRefused, nil
	}
	h := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: nameTTL}
	return dnsmessage.RCodeSuccess, []dnsmessage.Resource{{Header: h, Body: &dnsmessage.AResource{A: address.As4()}}}
}
