// Package lines reads files of lines, such as the records of a run, in bounded memory.
package lines

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// ErrLong means that a line is too long.
var ErrLong = errors.New("the line is too long")

// A Reader reads lines of bounded length.
type Reader struct {
	r      *bufio.Reader
	most   int   // bytes of a line
	offset int64 // of the next line
	buffer []byte
}

// A Line is one line of a file. Its text is valid until the next call of Next.
type Line struct {
	Text   []byte // without the newline
	Offset int64
	Size   int64 // of the whole line in the file, with the newline
	Whole  bool  // ended by a newline
}

// NewReader returns a Reader of lines of at most most bytes. offset is the place of r in its file.
func NewReader(r io.Reader, offset int64, most int) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, 64<<10), most: most, offset: offset}
}

// Peek returns the first byte of the next line; 0 if there is none.
func (l *Reader) Peek() byte {
	next, err := l.r.Peek(1)
	if err != nil {
		return 0
	}
	return next[0]
}

// Next returns the next line. The error is io.EOF after the last line, and ErrLong for a line that is too
// long, after which reading may go on.
func (l *Reader) Next() (Line, error) {
	found := Line{Offset: l.offset}
	l.buffer = l.buffer[:0]
	for {
		piece, err := l.r.ReadSlice('\n')
		l.offset, found.Size = l.offset+int64(len(piece)), found.Size+int64(len(piece))
		if found.Size <= int64(l.most) {
			l.buffer = append(l.buffer, piece...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull) && bytes.IndexByte(piece, 0) >= 0: // a sparse file of somebody else has exabytes of them
			return Line{}, errors.New("a long line has a zero byte, and so is no text")
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && (err != io.EOF || found.Size == 0):
			return Line{}, err
		case found.Size > int64(l.most):
			l.buffer = nil
			return found, ErrLong
		}
		found.Text, found.Whole = bytes.CutSuffix(l.buffer, []byte("\n"))
		return found, nil
	}
}
