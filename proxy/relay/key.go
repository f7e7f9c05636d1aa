package relay

import (
	"fmt"

	"github.com/securebench/sbench/proxy/relay/stream"
)

const redacted = stream.Redacted

// A Key is a provider's credential. It cannot be printed by accident: formatting, logging
// and encoding give a placeholder, even within other structs. The zero Key has no credential.
type Key struct {
	// reveal is a function because fmt prints an unexported field by reflection, without calling its
	// methods, and does not print what a function returns.
	reveal func() string
}

// NewKey returns a key with the given value.
func NewKey(value string) Key {
	if value == "" {
		return Key{}
	}
	return Key{func() string { return value }}
}

// IsZero reports whether the key has no credential.
func (k Key) IsZero() bool { return k.reveal == nil }

func (k Key) value() string {
	if k.reveal == nil {
		return ""
	}
	return k.reveal()
}

// Format writes a placeholder, whatever the verb.
func (Key) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// MarshalText returns a placeholder.
func (Key) MarshalText() ([]byte, error) { return []byte(redacted), nil }
