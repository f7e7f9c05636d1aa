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
	return textOf(s[:most*2/3], s[len(s)-most/3:], int64(len(s)))
}

// textOf returns the beginning and the end of a text of size bytes, without the parts of
// characters where it was cut.
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

// Len returns how many bytes of the text are kept.
func (t Text) Len() int { return len(t.Head) + len(t.Tail) }

// Empty reports whether the text was empty before it was cut.
func (t Text) Empty() bool { return t.Len() == 0 && t.Cut == 0 }
