package document

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// MaxLine is the largest size of a line in bytes.
const MaxLine = 16 << 20

// Lines reads a file of rows, each a document on a line, and reuses its memory.
type Lines struct {
	r    *bufio.Reader
	buf  []byte // for lines longer than r's buffer
	Line int    // 1-based, of the last line read
}

// NewLines returns the lines that r has.
func NewLines(r io.Reader) *Lines { return &Lines{r: bufio.NewReaderSize(r, 256<<10)} }

// ErrLongLine means that a line was skipped because it is longer than MaxLine.
var ErrLongLine = errors.New("line is too long")

// Next returns the next line that is not blank, without its line end. The text is valid
// until the next call. The error is io.EOF at the end.
func (l *Lines) Next() ([]byte, error) {
	for {
		text, err := l.read()
		if err != nil && (err != io.EOF || len(text) == 0) {
			return nil, err
		}
		l.Line++
		if len(text) > MaxLine {
			return nil, ErrLongLine
		}
		if text = bytes.Trim(text, " \t\r\n\v\f"); len(text) > 0 {
			return text, nil
		}
	}
}

// Continued skips lines that continue the value of the last line, as in JSON printed for people: lines
// that are indented or begin with a closing bracket. It reports whether there were any.
func (l *Lines) Continued() (found bool) {
	for {
		next, err := l.r.Peek(1)
		if err != nil || !bytes.ContainsAny(next, " \t}]") {
			return found
		}
		if _, err := l.read(); err != nil && err != io.EOF {
			return found // the next line has the same error
		}
		l.Line++
		found = true
	}
}

// read returns the next line, or more than MaxLine bytes of it if it is too long.
func (l *Lines) read() ([]byte, error) {
	text, err := l.r.ReadSlice('\n')
	if err != bufio.ErrBufferFull {
		return text, err
	}
	long := append(l.buf[:0], text...)
	for err == bufio.ErrBufferFull {
		if text, err = l.r.ReadSlice('\n'); len(long) <= MaxLine {
			long = append(long, text...)
		}
	}
	if l.buf = long; len(long) > MaxLine {
		l.buf = nil
	}
	return long, err
}
