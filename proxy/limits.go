package proxy

import (
	"errors"
	"fmt"
	"reflect"
	"time"
)

// EgressLimits bound what one sandbox may do through its proxy. For a field that is 0, [New] uses
// [DefaultLimits]. A negative field is an error.
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

// DefaultLimits returns the limits for fields that are not set.
func DefaultLimits() EgressLimits {
	return EgressLimits{
		Connections: 64, Requests: 100_000, Names: 4096,
		HeaderBytes: 16 << 10, Up: 64 << 20, Down: 8 << 30,
		HeaderTime: 10 * time.Second, DialTime: 10 * time.Second, HelloTime: 10 * time.Second,
		Idle: 5 * time.Minute, Lifetime: 24 * time.Hour,
	}
}

// withDefaults returns l with the defaults in place of fields that are 0. The error names every negative field.
func (l EgressLimits) withDefaults() (EgressLimits, error) {
	to, from := reflect.ValueOf(&l).Elem(), reflect.ValueOf(DefaultLimits())
	var errs []error
	for field, value := range to.Fields() {
		if value.IsZero() {
			value.Set(from.FieldByIndex(field.Index))
		}
		if value.Int() < 0 {
			errs = append(errs, fmt.Errorf("egress limit %s is negative", field.Name))
		}
	}
	return l, errors.Join(errs...)
}
