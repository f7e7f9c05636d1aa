package proxy

import "time"

// EgressLimits bound what one sandbox may do through its proxy. A limit of 0 allows nothing.
type EgressLimits struct {
	Connections int   // from the sandbox, at a time
	Requests    int64 // requests, redirected connections and DNS questions in total; each is a line of the log
	Names       int   // to which the name server assigns addresses, in total

	HeaderBytes int // of one request or answer

	Up, Down int64 // bytes out of and into the sandbox, in total

	HeaderTime time.Duration // for a request's head
	DialTime   time.Duration // for resolving and connecting
	HelloTime  time.Duration // for the first bytes of a tunnel
	Idle       time.Duration // without a byte in either direction
	Lifetime   time.Duration // of a tunnel or a plain HTTP request
}

// DefaultLimits returns the limits of a [Config] without limits.
func DefaultLimits() EgressLimits {
	return EgressLimits{
		Connections: 64, Requests: 100_000, Names: 4096,
		HeaderBytes: 16 << 10, Up: 64 << 20, Down: 8 << 30,
		HeaderTime: 10 * time.Second, DialTime: 10 * time.Second, HelloTime: 10 * time.Second,
		Idle: 5 * time.Minute, Lifetime: 24 * time.Hour,
	}
}
