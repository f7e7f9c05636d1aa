package report

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"
)

// maxLine bounds what is held of one line, its strings being cut already.
const maxLine = 64 << 20

// errLong: a line has too much in it even with its strings cut.
var errLong = errors.New("the line is too long")

// A lineReader reads lines of JSON with bounded memory: of each string the middle
// is left out, and a mark put there, if it is longer than about 4*keep bytes.
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

// next returns the next line, io.EOF after the last, errLong for one that is too
// long, after which reading goes on.
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

// A squeezer takes JSON in pieces of any size and cuts its strings. It need not be
// valid: what is between two quotes is a string.
type squeezer struct {
	out  []byte
	keep int

	in, escaped bool
	start       int // in out, of the string's content
	head        int // in out, where the string was cut; 0 if it was not
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

// shrink leaves keep bytes at either end of the string so far, to the next whole
// character or escape.
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

// boundary returns the first place at or after from, which is one, at or after
// least where a character or an escape of a JSON string begins.
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
