package main

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/mattn/go-runewidth"
)

// screen is a small terminal: it obeys what the live view may send, and notes anything
// else in strange.
type screen struct {
	mu            sync.Mutex
	columns, rows int
	lines         []string // those that scrolled away, then those on the screen
	top           int      // the first of lines that is on the screen
	row, column   int      // of the cursor; the row counts from the first line
	sgr           string   // "" or "0" when reset
	pending       string   // an escape sequence or a character that is not complete
	strange       []string
	writes        int
}

func newScreen(columns, rows int) *screen {
	return &screen{columns: columns, rows: rows, lines: []string{""}}
}

// Write is what a program writes to the terminal, as the kernel passes it on.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	s.feed(strings.ReplaceAll(string(p), "\n", "\r\n"))
	return len(p), nil
}

// feed is what the terminal receives.
func (s *screen) feed(text string) {
	text, s.pending = s.pending+text, ""
	for text != "" {
		if text[0] == 0x1b {
			end := strings.IndexFunc(text[1:], func(r rune) bool { return r >= '@' && r <= '~' && r != '[' })
			if end < 0 {
				s.pending = text
				return
			}
			s.escape(text[1 : end+2])
			text = text[end+2:]
			continue
		}
		r := []rune(text[:min(len(text), 4)])[0]
		text = text[len(string(r)):]
		s.put(r)
	}
}

func (s *screen) escape(sequence string) {
	body, ok := strings.CutPrefix(sequence, "[")
	if !ok || body == "" {
		s.strange = append(s.strange, sequence)
		return
	}
	argument, command := body[:len(body)-1], body[len(body)-1]
	n, err := strconv.Atoi(argument)
	switch {
	case command == 'm' && err == nil:
		s.sgr = argument
	case command == 'A' && n > 0:
		s.row = max(s.row-n, s.top)
	case command == 'J' && argument == "": // from the cursor to the end
		s.lines = s.lines[:s.row+1]
		s.erase()
	case command == 'K' && argument == "":
		s.erase()
	default:
		s.strange = append(s.strange, sequence)
	}
}

func (s *screen) erase() {
	s.lines[s.row] = runewidth.Truncate(s.lines[s.row], s.column, "")
}

func (s *screen) put(r rune) {
	switch {
	case r == '\r':
		s.column = 0
	case r == '\n':
		s.down()
	case r == '\t':
		s.column = min(s.column/8*8+8, s.columns-1)
	case r < ' ' || r >= 0x7f && r < 0xa0:
		s.strange = append(s.strange, fmt.Sprintf("%q", r))
	default:
		w := runewidth.RuneWidth(r)
		if s.column+w > s.columns {
			s.column = 0
			s.down()
		}
		line := s.lines[s.row]
		before := runewidth.Truncate(line, s.column, "")
		before += strings.Repeat(" ", s.column-runewidth.StringWidth(before))
		s.column += w
		s.lines[s.row] = before + string(r) + runewidth.TruncateLeft(line, s.column, "")
	}
}

func (s *screen) down() {
	if s.row++; s.row == len(s.lines) {
		s.lines = append(s.lines, "")
	}
	s.top = max(s.top, s.row-s.rows+1)
}

// text returns everything that can be seen, including by scrolling back.
func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, "\n")
}

// written returns the number of writes.
func (s *screen) written() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

// sane fails unless the terminal can be used as before: the cursor on a free line, no
// colour, and no sequence that screen does not know.
func (s *screen) sane(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.column != 0 || s.lines[s.row] != "" || s.row != len(s.lines)-1 {
		t.Errorf("the cursor is at column %d of %q, line %d of %d", s.column, s.lines[s.row], s.row+1, len(s.lines))
	}
	if s.sgr != "" && s.sgr != "0" || s.pending != "" || len(s.strange) > 0 {
		t.Errorf("colour %q, unfinished %q, strange %q", s.sgr, s.pending, s.strange)
	}
}

// TestScreen: screen does what terminals do.
func TestScreen(t *testing.T) {
	for _, test := range []struct{ name, in, want, strange string }{
		{name: "lines", in: "a\nb\n", want: "a\nb\n"},
		{name: "tab", in: "\tx", want: "    x"},
		{name: "wrap", in: "abcdefgh", want: "abcde\nfgh"},
		{name: "return", in: "abc\rx", want: "xbc"},
		{name: "up and erase", in: "a\nb\nc\n\x1b[2A\x1b[Jd", want: "a\nd"},
		{name: "up keeps the column", in: "abc\nde\x1b[1A\x1b[J", want: "ab"},
		{name: "no further up than the screen", in: "a\nb\nc\nd\n\x1b[9A\x1b[Jx", want: "a\nb\nx"},
		{name: "colour", in: "\x1b[31ma\x1b[0m", want: "a"},
		{name: "hidden cursor", in: "\x1b[?25la", want: "a", strange: "[[?25l]"},
		{name: "bell", in: "\aa", want: "a", strange: `['\a']`},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newScreen(5, 3)
			for _, b := range []byte(test.in) { // sequences arrive in pieces
				_, _ = s.Write([]byte{b})
			}
			strange := ""
			if len(s.strange) > 0 {
				strange = fmt.Sprint(s.strange)
			}
			if s.text() != test.want || strange != test.strange {
				t.Errorf("shows %q, strange %s", s.text(), strange)
			}
		})
	}
}
