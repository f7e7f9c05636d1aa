package report

import (
	"strings"
	"unicode/utf8"
)

// A Text is a text whose middle may be missing.
type Text struct {
	Head string `json:"head"`
	Cut  int64  `json:"cut,omitempty"` // bytes left out between Head and Tail
	Tail string `json:"tail,omitempty"`
}

// cutText keeps at most most bytes of a text, two thirds of them from the beginning.
func cutText(s string, most int) Text {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= most {
		return Text{Head: s}
	}
	head, tail := most*2/3, len(s)-most/3
	for head > 0 && !utf8.RuneStart(s[head]) {
		head--
	}
	for tail < len(s) && !utf8.RuneStart(s[tail]) {
		tail++
	}
	return Text{s[:head], int64(tail - head), s[tail:]}
}

// Len returns how many bytes of the text are kept.
func (t Text) Len() int { return len(t.Head) + len(t.Tail) }

// Empty reports whether the text was empty before it was cut.
func (t Text) Empty() bool { return t.Len() == 0 && t.Cut == 0 }
