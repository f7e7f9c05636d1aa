package report

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// The most characters of texts in lines for people.
const (
	ShownName    = 100  // a task's id
	ShownMessage = 200  // a reason
	ShownLine    = 2000 // anything else
)

// Visible returns a hostile text as one line of at most most characters, with "…" if it was longer. It escapes
// characters that are control characters, are invisible or change the direction of text.
func Visible(s string, most int) string {
	var b strings.Builder
	n := 0
	for i, r := range s {
		if n == most {
			b.WriteString("…")
			break
		}
		n++
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case Hidden(r) && r < utf8.RuneSelf:
			fmt.Fprintf(&b, `\x%02x`, r)
		case Hidden(r):
			fmt.Fprintf(&b, `\u{%x}`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Hidden reports whether a character is a control character, is invisible or changes the
// direction of text. Spaces other than U+0020 are hidden, combining marks are not.
func Hidden(r rune) bool {
	return r != ' ' && (!unicode.IsPrint(r) || unicode.Is(unicode.Variation_Selector, r) ||
		unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r))
}

// Count returns a number and its noun, in the singular or plural.
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Natural compares two names as people do: numbers in them by value, so that task-2 comes
// before task-10. Names that differ only in leading zeros are compared literally.
func Natural(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		m, n := digitsOf(x), digitsOf(y)
		if m == 0 || n == 0 {
			if x[0] != y[0] {
				return cmp.Compare(x[0], y[0])
			}
			x, y = x[1:], y[1:]
			continue
		}
		v, w := strings.TrimLeft(x[:m], "0"), strings.TrimLeft(y[:n], "0")
		if c := cmp.Or(cmp.Compare(len(v), len(w)), cmp.Compare(v, w)); c != 0 {
			return c
		}
		x, y = x[m:], y[n:]
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(a, b))
}

func digitsOf(s string) int { return len(s) - len(strings.TrimLeft(s, "0123456789")) }

// A Text is a text whose middle may be missing.
type Text struct {
	Head string `json:"head"`
	Cut  int64  `json:"cut,omitempty"` // bytes left out between Head and Tail
	Tail string `json:"tail,omitempty"`
}

// cutText shortens a text to at most most bytes, two thirds of them from the beginning.
func cutText(s string, most int) Text {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= most {
		return Text{Head: s}
	}
	return textOf(s[:most*2/3], s[len(s)-most/3:], int64(len(s)))
}

// textOf returns the beginning and the end of a text of size bytes, without parts of characters.
func textOf(head, tail string, size int64) Text {
	for i := 0; i < utf8.UTFMax-1 && !utf8.ValidString(head); i++ {
		head = head[:len(head)-1]
	}
	for tail != "" && !utf8.RuneStart(tail[0]) {
		tail = tail[1:]
	}
	cut := size - int64(len(head)) - int64(len(tail))
	return Text{strings.ToValidUTF8(head, "\uFFFD"), cut, strings.ToValidUTF8(tail, "\uFFFD")}
}

// Len returns the bytes of Head and Tail.
func (t Text) Len() int { return len(t.Head) + len(t.Tail) }

// Empty reports whether the text was empty before it was cut.
func (t Text) Empty() bool { return t.Len() == 0 && t.Cut == 0 }

// VisibleLines passes hostile text on line by line, each as [Visible] returns it. The methods may be called concurrently.
type VisibleLines struct {
	To   io.Writer
	mu   sync.Mutex
	line []byte
}

// Write implements io.Writer. A carriage return ends a line, too.
func (v *VisibleLines) Write(p []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, c := range p {
		if v.line = append(v.line, c); c != '\n' && c != '\r' && len(v.line) < ShownLine {
			continue
		}
		if text := strings.TrimRight(string(v.line), "\r\n"); text != "" {
			if _, err := fmt.Fprintln(v.To, Visible(text, len(text))); err != nil {
				return 0, err
			}
		}
		v.line = v.line[:0]
	}
	return len(p), nil
}

// Close passes on what no newline ended.
func (v *VisibleLines) Close() error {
	_, err := v.Write([]byte("\n"))
	return err
}
