package pack

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// A move is a folder that a task's scripts know under another name than the one
// that it has in a sandbox.
type move struct{ from, to string }

// relocate writes the new names into the scripts and returns which have changed.
func relocate(files []taskFile, moves []move) (changed []string) {
	for i, f := range files {
		if !utf8.Valid(f.text) || bytes.IndexByte(f.text, 0) >= 0 {
			continue
		}
		text := string(f.text)
		for _, m := range moves {
			text = m.apply(text)
		}
		if text != string(f.text) {
			files[i].text = []byte(text)
			changed = append(changed, f.path)
		}
	}
	return changed
}

// apply replaces from where it is a path of its own, and no part of another:
// /tests, but not /app/tests, $DIR/tests or "$DIR"/tests.
func (m move) apply(text string) string {
	var b strings.Builder
	done := 0
	for at := 0; ; {
		i := strings.Index(text[at:], m.from)
		if i < 0 {
			return b.String() + text[done:]
		}
		i += at
		at = i + len(m.from)
		if beginsPath(text[:i]) && !(at < len(text) && isNamePart(text[at])) {
			b.WriteString(text[done:i] + m.to)
			done = at
		}
	}
}

func isNamePart(c byte) bool { return c == '.' || c == '-' || isWord(c) }

func isWord(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_'
}

// beginsPath reports whether an absolute path can begin after the text.
func beginsPath(text string) bool {
	n := len(text)
	if n == 0 {
		return true
	}
	c := text[n-1]
	if c != '"' && c != '\'' {
		return !isNamePart(c) && !strings.ContainsRune("/~}])$*", rune(c))
	}
	// A quote that opens a string stands alone, or after a prefix of Python's.
	word := strings.TrimRightFunc(text[:n-1], func(r rune) bool { return r < utf8.RuneSelf && isWord(byte(r)) })
	switch strings.ToLower(text[len(word) : n-1]) {
	case "", "b", "f", "r", "br", "rb", "fr", "rf", "u":
	default:
		return false
	}
	return word == "" || !strings.ContainsRune("})]$/.", rune(word[len(word)-1]))
}
