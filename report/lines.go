package report

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"
)

// maxLine bounds the bytes that are kept of one line, after its strings have been cut.
const maxLine = 64 << 20

// errLong means that a line is too long even with its strings cut.
var errLong = errors.New("the line is too long")

// A lineReader reads lines of JSON in bounded memory: in a string longer than about
// 4*keep bytes, a mark replaces the middle.
type lineReader struct {
	r      *bufio.Reader
	keep   int
	offset int64 // of the next line
	buffer []byte
}

// A line is one line of a file. Its text is valid until the next one is read.
type line struct {
	text   []byte // without the newline, strings cut
	offset int64
	size   int64 // of the whole line in the file, without the newline
	whole  bool  // ended by a newline
}

func newLineReader(r io.Reader, offset int64, keep int) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 64<<10), keep: max(keep, 16), offset: offset}
}

// next returns the next line. It returns io.EOF after the last one, and errLong for one
// that is too long, after which reading may go on.
func (l *lineReader) next() (line, error) {
	found := line{offset: l.offset}
	s := squeezer{out: l.buffer[:0], keep: l.keep}
	var long bool
	for {
		piece, err := l.r.ReadSlice('\n')
		l.offset += int64(len(piece))
		found.whole = err == nil
		if found.whole {
			piece = piece[:len(piece)-1]
		}
		found.size += int64(len(piece))
		if long = long || len(s.out) > maxLine; !long {
			s.add(piece)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err == io.EOF && found.size == 0:
			return line{}, io.EOF
		case err != nil && err != io.EOF:
			return line{}, err
		}
		l.buffer, found.text = s.out, s.out
		if long {
			l.buffer, found.text = nil, nil
			return found, errLong
		}
		return found, nil
	}
}

// A squeezer takes JSON in pieces of any size and cuts its strings. The JSON need not be
// valid: anything between two quotes is a string.
type squeezer struct {
	out  []byte
	keep int // bytes kept of either end of a string

	in, escaped bool
	start       int // offset in out of the string's content
	head        int // offset in out where the string was cut; 0 if it was not
	cut         int // bytes left out there
}

func (s *squeezer) add(piece []byte) {
	for _, c := range piece {
		if s.in && c == '"' && !s.escaped {
			s.end()
		} else if !s.in && c == '"' {
			s.in, s.start, s.head, s.cut = true, len(s.out)+1, 0, 0
		}
		s.escaped = s.in && c == '\\' && !s.escaped
		s.out = append(s.out, c)
		if s.in && len(s.out)-s.start > 4*s.keep {
			s.shrink()
		}
	}
}

// shrink leaves keep bytes at either end of the string so far, rounded to whole
// characters and escapes.
func (s *squeezer) shrink() {
	if s.head == 0 {
		s.head = boundary(s.out, s.start, s.start+s.keep)
	}
	tail := boundary(s.out, s.head, len(s.out)-s.keep)
	s.cut += tail - s.head
	s.out = slices.Delete(s.out, s.head, tail)
}

func (s *squeezer) end() {
	s.in = false
	if s.cut > 0 {
		s.out = slices.Insert(s.out, s.head, fmt.Appendf(nil, `\n[… %d bytes left out …]\n`, s.cut)...)
	}
}

// boundary returns the first offset at or after least at which a character or an escape
// of a JSON string begins. from must be such an offset.
func boundary(b []byte, from, least int) int {
	for from < least && from < len(b) {
		switch {
		case b[from] == '\\' && from+1 < len(b) && b[from+1] == 'u':
			from += 6
		case b[from] == '\\':
			from += 2
		default:
			from++
			for from < len(b) && !utf8.RuneStart(b[from]) {
				from++
			}
		}
	}
	return min(from, len(b))
}
