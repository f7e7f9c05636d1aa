// Package proxy is the only way out of a sandbox. It serves listeners that its caller has made in
// the sandbox's network namespace:
//
//	Proxy.Serve            a forward proxy
//	Proxy.ServeRedirected  a transparent proxy for programs that do not know the forward proxy
//	Proxy.ServeDNS         the name server for these programs
//
// Each use of the network is an access (access.go): the [Allowlist] decides about the name, the proxy
// resolves it, checks the address and connects (dial.go), and the [Log] gets one line.
//
// The forward proxy's engine for plain HTTP is goproxy (github.com/elazarl/goproxy), which distinguishes
// absolute URLs from other requests, and forwards. The decisions, connections, tunnels, limits and
// the log are sbench's own: goproxy copies a tunnel without looking at its ClientHello and without
// limits, connects to any address, and may use the environment's proxy.
//
// The relay to the providers of models is package proxy/relay.
package proxy
