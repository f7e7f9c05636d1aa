// Package proxy is the only way out of a sandbox. It contains the policy that says which
// names may be reached, a forward proxy that enforces it, a transparent proxy and name
// server for programs that connect as if they had a network, and a log with one line per
// decision. It serves the listeners it is given, and never makes a network namespace.
//
// The forward proxy's handler is goproxy (github.com/elazarl/goproxy): it tells CONNECT, absolute
// URLs and other requests apart, and passes on plain HTTP, without the headers meant for a proxy.
// Ours are the decision before each request, the connection to the host, whose address is checked
// once its name has been resolved, the tunnels, the limits and the log. On its own, goproxy copies
// a tunnel without looking at its ClientHello and without limits, connects to whatever address a
// name leads to, and may ask the environment for another proxy.
//
// The relay to the providers of models is package proxy/relay.
package proxy
