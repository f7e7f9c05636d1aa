package proxy

import (
	"errors"
	"fmt"
	"reflect"
	"time"
)

// EgressLimits bound what one sandbox may do through its proxy. For fields that are 0, [New] uses
// [DefaultLimits]; negative ones are errors.
type EgressLimits struct {
	Connections int   // from the sandbox, at a time
	Tunnels     int   // at a time
	Requests    int64 // requests, redirected connections and DNS questions in total; each is a line of the log
	Names       int   // for which the name server hands out addresses, in total

	HeaderBytes int   // of one request or answer
	BodyBytes   int64 // of one plain HTTP request

	Up, Down             int64 // bytes out of and into the sandbox, in total
	TunnelUp, TunnelDown int64 // bytes of one tunnel or plain HTTP request

	HeaderTime time.Duration // for a request's head
	DialTime   time.Duration // for resolving and connecting
	HelloTime  time.Duration // for the first bytes of a tunnel
	Idle       time.Duration // without a byte either way
	Lifetime   time.Duration // of a tunnel or a plain HTTP request
}

// DefaultLimits returns the limits of a sandbox that sets none.
func DefaultLimits() EgressLimits {
	return EgressLimits{
		Connections: 512, Tunnels: 128, Requests: 100_000, Names: 4096,
		HeaderBytes: 64 << 10, BodyBytes: 64 << 20,
		Up: 64 << 20, Down: 8 << 30, TunnelUp: 64 << 20, TunnelDown: 8 << 30,
		HeaderTime: 10 * time.Second, DialTime: 10 * time.Second, HelloTime: 10 * time.Second,
		Idle: 5 * time.Minute, Lifetime: 24 * time.Hour,
	}
}

// over returns l with the fields that are 0 taken from base.
func (l EgressLimits) over(base EgressLimits) EgressLimits {
	to, from := reflect.ValueOf(&l).Elem(), reflect.ValueOf(base)
	for i := range to.NumField() {
		if to.Field(i).IsZero() {
			to.Field(i).Set(from.Field(i))
		}
	}
	return l
}

// validate returns an error that names every field that is not positive, or nil.
func (l EgressLimits) validate() error {
	var errs []error
	for field, value := range reflect.ValueOf(l).Fields() {
		if value.Int() <= 0 {
			errs = append(errs, fmt.Errorf("egress limit %s is not positive", field.Name))
		}
	}
	return errors.Join(errs...)
}
