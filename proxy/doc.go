// Package proxy is the only way out of a sandbox: a policy of names, a forward
// proxy that obeys it, the same for connections that a sandbox makes as if it
// had a network, and a log with a line for each decision. It is handed listeners
// and never makes a namespace.
//
// The provider relay is in package relay below this one.
package proxy
