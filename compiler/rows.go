package compiler

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// DefaultMaxLine is the largest size of a row in bytes.
const DefaultMaxLine = 16 << 20

// lineReader reads a file of rows line by line, and reuses its memory.
type lineReader struct {
	r    *bufio.Reader
	buf  []byte // for lines longer than r's buffer
	line int    // 1-based, of the last line read
}

func newLineReader(r io.Reader) *lineReader { return &lineReader{r: bufio.NewReaderSize(r, 256<<10)} }

// errLongLine means that a line was skipped because it is longer than DefaultMaxLine.
var errLongLine = errors.New("line is too long")

// next returns the next line that is not blank, without its line end. The text is valid
// until the next call. The error is io.EOF at the end.
func (l *lineReader) next() ([]byte, error) {
	for {
		text, err := l.read()
		if err != nil && (err != io.EOF || len(text) == 0) {
			return nil, err
		}
		l.line++
		if len(text) > DefaultMaxLine {
			return nil, errLongLine
		}
		if text = bytes.Trim(text, " \t\r\n\v\f"); len(text) > 0 {
			return text, nil
		}
	}
}

// continued skips lines that continue the value of the last line, as in JSON printed for people: lines
// that are indented or begin with a closing bracket. It reports whether there were any.
func (l *lineReader) continued() (found bool) {
	for {
		next, err := l.r.Peek(1)
		if err != nil || !bytes.ContainsAny(next, " \t}]") {
			return found
		}
		if _, err := l.read(); err != nil && err != io.EOF {
			return found // the next line has the same error
		}
		l.line++
		found = true
	}
}

// read returns the next line, or more than DefaultMaxLine bytes of it if it is too long.
func (l *lineReader) read() ([]byte, error) {
	text, err := l.r.ReadSlice('\n')
	if err != bufio.ErrBufferFull {
		return text, err
	}
	long := append(l.buf[:0], text...)
	for err == bufio.ErrBufferFull {
		if text, err = l.r.ReadSlice('\n'); len(long) <= DefaultMaxLine {
			long = append(long, text...)
		}
	}
	if l.buf = long; len(long) > DefaultMaxLine {
		l.buf = nil
	}
	return long, err
}
