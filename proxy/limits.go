package proxy

import (
	"errors"
	"fmt"
	"time"
)

// Limits bound what one sandbox may do with its way out. New fills the fields
// that are zero from [DefaultLimits]; a negative one is an error.
type Limits struct {
	Connections int   // from the sandbox, at a time
	Tunnels     int   // at a time
	Requests    int64 // requests, redirected connections and DNS questions in all; each is a line of the log
	Names       int   // that the name server hands out addresses for, in all

	HeaderBytes int   // of one request or answer
	BodyBytes   int64 // of one plain HTTP request

	Up, Down             int64 // bytes out of and into the sandbox, in all
	TunnelUp, TunnelDown int64 // bytes of one tunnel or plain HTTP request

	HeaderTime time.Duration // for a request's head
	DialTime   time.Duration // for resolving and connecting
	HelloTime  time.Duration // for the first bytes of a tunnel
	Idle       time.Duration // without a byte either way
	Lifetime   time.Duration // of a tunnel or a plain HTTP request
}

// DefaultLimits are what a sandbox gets that asks for nothing.
func DefaultLimits() Limits {
	return Limits{
		Connections: 512, Tunnels: 128, Requests: 100_000, Names: 4096,
		HeaderBytes: 64 << 10, BodyBytes: 64 << 20,
		Up: 64 << 20, Down: 8 << 30, TunnelUp: 64 << 20, TunnelDown: 8 << 30,
		HeaderTime: 10 * time.Second, DialTime: 10 * time.Second, HelloTime: 10 * time.Second,
		Idle: 5 * time.Minute, Lifetime: 24 * time.Hour,
	}
}

// Over returns l with its unset fields taken from base.
func (l Limits) Over(base Limits) Limits {
	set(&l.Connections, base.Connections)
	set(&l.Tunnels, base.Tunnels)
	set(&l.Requests, base.Requests)
	set(&l.Names, base.Names)
	set(&l.HeaderBytes, base.HeaderBytes)
	set(&l.BodyBytes, base.BodyBytes)
	set(&l.Up, base.Up)
	set(&l.Down, base.Down)
	set(&l.TunnelUp, base.TunnelUp)
	set(&l.TunnelDown, base.TunnelDown)
	set(&l.HeaderTime, base.HeaderTime)
	set(&l.DialTime, base.DialTime)
	set(&l.HelloTime, base.HelloTime)
	set(&l.Idle, base.Idle)
	set(&l.Lifetime, base.Lifetime)
	return l
}

func set[T ~int | ~int64](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// Validate says which fields are not positive.
func (l Limits) Validate() error {
	fields := []struct {
		name  string
		value int64
	}{
		{"connections", int64(l.Connections)}, {"tunnels", int64(l.Tunnels)}, {"requests", l.Requests},
		{"names", int64(l.Names)}, {"header bytes", int64(l.HeaderBytes)}, {"body bytes", l.BodyBytes},
		{"up", l.Up}, {"down", l.Down}, {"tunnel up", l.TunnelUp}, {"tunnel down", l.TunnelDown},
		{"header time", int64(l.HeaderTime)}, {"dial time", int64(l.DialTime)}, {"hello time", int64(l.HelloTime)},
		{"idle", int64(l.Idle)}, {"lifetime", int64(l.Lifetime)},
	}
	var errs []error
	for _, f := range fields {
		if f.value <= 0 {
			errs = append(errs, fmt.Errorf("egress limit %q is not positive", f.name))
		}
	}
	return errors.Join(errs...)
}
