// Package hidden keeps values that are not public out of everything that prints, logs or marshals.
package hidden

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/schema"
)

// Redacted replaces a value that must not be shown.
const Redacted = "<redacted>"

// Value holds a value that is not public. It is printed, logged and marshalled as
// "<redacted>"; only Reveal returns the value.
//
// The value is kept in a closure, because some printers call no methods: those that follow
// pointers by reflection, and fmt for unexported fields. The zero Value holds T's zero
// value.
type Value[T any] struct {
	Fields
	reveal func() T
}

// Hide returns a Value that holds v.
func Hide[T any](v T) Value[T] { return Value[T]{reveal: func() T { return v }} }

// Reveal returns the value. Every call is a place where a secret may leak.
func (h Value[T]) Reveal() T {
	if h.reveal == nil {
		var zero T
		return zero
	}
	return h.reveal()
}

// Decode hides a value of a document. schema.Decode calls it.
func (h *Value[T]) Decode(v document.Value) {
	var value T
	schema.Decode(v, &value)
	*h = Hide(value)
}

// Fields hides the fields of a struct that embeds it: for every verb and flag, the struct prints as "<redacted>".
type Fields struct{}

// Format implements [fmt.Formatter].
func (Fields) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, Redacted) }

// String implements [fmt.Stringer].
func (Fields) String() string { return Redacted }

// MarshalJSON implements [encoding/json.Marshaler].
func (Fields) MarshalJSON() ([]byte, error) { return []byte(`"` + Redacted + `"`), nil }

// MarshalText implements [encoding.TextMarshaler].
func (Fields) MarshalText() ([]byte, error) { return []byte(Redacted), nil }

// LogValue implements [slog.LogValuer].
func (Fields) LogValue() slog.Value { return slog.StringValue(Redacted) }
