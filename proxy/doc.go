// Package proxy is the only way out of a sandbox. It contains the policy that says which
// names may be reached, a forward proxy that enforces it, a transparent proxy and name
// server for programs that connect as if they had a network, and a log with one line per
// decision. It serves the listeners it is given, and never makes a network namespace.
//
// The relay to the providers of models is package proxy/relay.
package proxy
