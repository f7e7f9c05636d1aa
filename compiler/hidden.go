package compiler

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/schema"
)

// Redacted replaces a value that must not be shown.
const Redacted = "<redacted>"

// Hidden holds a value that is not public. It is printed, logged and marshalled as
// "<redacted>"; only Reveal returns the value.
//
// The value is kept in a closure, because some printers call no methods: those that follow
// pointers by reflection, and fmt for unexported fields. The zero Hidden holds T's zero
// value.
type Hidden[T any] struct {
	redacted
	reveal func() T
}

// Hide returns a Hidden that holds v.
func Hide[T any](v T) Hidden[T] { return Hidden[T]{reveal: func() T { return v }} }

// Reveal returns the value. Every call is a place where a secret may leak.
func (h Hidden[T]) Reveal() T {
	if h.reveal == nil {
		var zero T
		return zero
	}
	return h.reveal()
}

// Decode hides a value of a document. schema.Decode calls it.
func (h *Hidden[T]) Decode(v document.Value) {
	var value T
	schema.Decode(v, &value)
	*h = Hide(value)
}

// redacted is embedded in types whose fields must not be printed: the whole value prints as
// "<redacted>", for every verb and flag.
type redacted struct{}

func (redacted) Format(f fmt.State, _ rune)   { _, _ = io.WriteString(f, Redacted) }
func (redacted) String() string               { return Redacted }
func (redacted) GoString() string             { return Redacted }
func (redacted) MarshalJSON() ([]byte, error) { return []byte(`"` + Redacted + `"`), nil }
func (redacted) MarshalText() ([]byte, error) { return []byte(Redacted), nil }
func (redacted) LogValue() slog.Value         { return slog.StringValue(Redacted) }
