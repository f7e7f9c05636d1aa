package harness

import (
	"cmp"
	"crypto/rand"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/proxy/domain"
	"github.com/securebench/sbench/proxy/relay"
	"github.com/securebench/sbench/runtime"
)

// Addresses on the sandbox's loopback interface, and the path of its CA bundle.
const (
	proxyAddress = "127.0.0.1:3128"
	relayAddress = "127.0.0.1:8099"
	// A task may have a name server of its own at 127.0.0.1, so ours has another address, as systemd-resolved does.
	dnsHost    = "127.0.0.53"
	dnsAddress = dnsHost + ":53"
	caDest     = "/opt/sbench/ca.pem"
)

// Egress says what a harness may reach. The zero Egress allows nothing.
type Egress struct {
	Domains     []domain.Domain
	Mirrors     []domain.Domain    // see proxy.Allowlist
	Transparent bool               // also serves programs that do not use a proxy
	CABundle    string             // host file of certificates to trust, for images without any; "" for none
	Log         *proxy.Log         // required if anything may be reached
	Limits      proxy.EgressLimits // the zero limits are the proxy's defaults
	// WorkingClock says that the time in which a provider makes the harness wait does not count for its timeout.
	WorkingClock bool
	// Sidecars are the names of the sandboxes that share the loopback interface. Programs reach them without the proxy.
	Sidecars []string
}

// EgressTotals count what one attempt did through its proxy and its relay.
type EgressTotals struct {
	Proxy *proxy.Totals `json:"proxy,omitempty"`
	Relay *relay.Facts  `json:"relay,omitempty"`
}

// Plus returns the sum of two totals; u was counted after t. Nil counts nothing.
func (t *EgressTotals) Plus(u *EgressTotals) *EgressTotals {
	if t == nil || u == nil {
		return cmp.Or(t, u)
	}
	sum := EgressTotals{cmp.Or(t.Proxy, u.Proxy), cmp.Or(t.Relay, u.Relay)}
	if t.Proxy != nil && u.Proxy != nil {
		sum.Proxy = new(t.Proxy.Plus(*u.Proxy))
	}
	if t.Relay != nil && u.Relay != nil {
		sum.Relay = new(t.Relay.Plus(*u.Relay))
	}
	return &sum
}

// egressSession is the network access of one sandbox. It is closed after the sandbox.
type egressSession struct {
	egress  Egress
	proxy   *proxy.Proxy // nil for none
	relay   *relay.Relay // nil for none
	token   string       // without which the relay refuses; "" if nothing but the harness can connect
	serving sync.WaitGroup
}

// openSession opens the network access that a request allows, and a relay unless provider is nil.
// If the task's environment has "network: none", there is only the relay.
func openSession(r Request, provider *relay.Config) (*egressSession, error) {
	e := r.Egress
	if r.Task.Environment.NetworkNone {
		e.Domains, e.Transparent = nil, false
	}
	for _, s := range r.Sidecars {
		e.Sidecars = append(e.Sidecars, s.Names...)
	}
	if provider != nil && len(r.Sidecars) > 0 {
		own := *provider
		own.Token = "sbench-" + rand.Text()
		provider = &own
	}
	return e.open(r.Task.ID, r.Attempt, provider)
}

// key returns the placeholder for the provider's key.
func (w *egressSession) key() string { return cmp.Or(w.token, "sbench-placeholder-key") }

// maxWait bounds the time that does not count, so that every attempt ends.
const maxWait = time.Hour

// waited returns how long the provider has made the harness wait, if that does not count; otherwise nil.
func (w *egressSession) waited() func() time.Duration {
	if w.relay == nil || !w.egress.WorkingClock {
		return nil
	}
	return func() time.Duration {
		return min(time.Duration(w.relay.Facts().ProviderWait*float64(time.Second)), maxWait)
	}
}

// Open opens the network access that e allows.
func (e Egress) Open(task string, attempt int) (runtime.Access, error) {
	w, err := e.open(task, attempt, nil)
	if err != nil {
		return runtime.Access{}, err
	}
	return runtime.Access{Network: w.network(), Env: w.env(), Mounts: w.mounts(), Close: func() (int64, error) {
		result, err := w.close(Result{}, nil)
		if result.Egress == nil {
			return 0, err
		}
		return result.Egress.Proxy.Denied + result.Egress.Proxy.Errors, err
	}}, nil
}

// open opens the network access that e allows, and a relay unless provider is nil.
func (e Egress) open(task string, attempt int, provider *relay.Config) (*egressSession, error) {
	w := &egressSession{egress: e}
	if len(e.Domains)+len(e.Mirrors) == 0 && provider == nil {
		return w, nil
	}
	var err error
	w.proxy, err = proxy.New(proxy.Config{
		Allowed: proxy.Allowlist{Domains: e.Domains, Mirrors: e.Mirrors}, Limits: e.Limits, Log: e.Log, Task: task, Attempt: attempt, Explicit: !e.Transparent,
	})
	if err != nil || provider == nil {
		return w, err
	}
	cfg := *provider
	w.token = cfg.Token
	cfg.Log, cfg.Task, cfg.Attempt = e.Log, task, attempt
	if w.relay, err = relay.New(cfg); err != nil {
		w.proxy.Close()
		return nil, err
	}
	return w, nil
}

// network describes the sockets on the sandbox's loopback interface; nil means none.
func (w *egressSession) network() *runtime.Network {
	if w.proxy == nil {
		return nil
	}
	n := &runtime.Network{TCP: []string{proxyAddress}, Serve: w.serve}
	if w.relay != nil {
		n.TCP = append(n.TCP, relayAddress)
	}
	n.TCP, n.UDP, n.Nameserver = append(n.TCP, dnsAddress), []string{dnsAddress}, dnsHost
	n.Redirect = w.egress.Transparent
	return n
}

func (w *egressSession) serve(s runtime.Sockets) error {
	w.listen(w.proxy.Serve, s.TCP[0])
	rest := s.TCP[1:]
	if w.relay != nil {
		w.listen(w.relay.Serve, rest[0])
		rest = rest[1:]
	}
	w.listen(w.proxy.ServeDNSTCP, rest[0])
	w.serving.Go(func() { _ = w.proxy.ServeDNS(s.UDP[0]) })
	if s.Redirected != nil {
		w.listen(w.proxy.ServeRedirected, s.Redirected)
	}
	return nil
}

// listen serves in the background until the listener or the server is closed. The error of serve
// says only that this has happened.
func (w *egressSession) listen(serve func(net.Listener) error, l net.Listener) {
	w.serving.Go(func() { _ = serve(l) })
}

// env returns the variables that point programs to the CA bundle and, except for loopback
// addresses, to the proxy.
func (w *egressSession) env() []string {
	if w.proxy == nil {
		return nil
	}
	env := proxy.Environment(proxyAddress, w.egress.Sidecars)
	if w.egress.CABundle != "" {
		for _, name := range []string{"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS"} {
			env = append(env, name+"="+caDest)
		}
	}
	return env
}

func (w *egressSession) mounts() []runtime.Mount {
	if w.proxy == nil || w.egress.CABundle == "" {
		return nil
	}
	return []runtime.Mount{{Source: w.egress.CABundle, Dest: caDest}}
}

// cut ends the network access before the sandbox is closed.
func (w *egressSession) cut() (err error) {
	if w.relay != nil {
		err = w.relay.Close()
	}
	if w.proxy != nil {
		w.proxy.Close()
	}
	return err
}

// close ends the network access and adds its totals to the result.
func (w *egressSession) close(result Result, err error) (Result, error) {
	if w.proxy == nil {
		return result, err
	}
	result.Egress = &EgressTotals{}
	err = errors.Join(err, w.cut(), w.egress.Log.Err())
	if w.relay != nil {
		result.Egress.Relay = new(w.relay.Facts())
	}
	result.Egress.Proxy = new(w.proxy.Totals())
	w.serving.Wait()
	return result, err
}
