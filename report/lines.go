package report

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// The longest lines that are read, in bytes.
const (
	maxRecord = 256 << 20 // as in record.Read
	maxEvent  = 32 << 20  // of an agent's trace; sbench cuts events at 16 MiB when it writes the trace
	maxEntry  = 1 << 20   // of the egress log
	maxPassed = 1 << 30   // that are passed over as too long, before reading ends: a sparse file can have exabytes
)

// maxTrace bounds an agent's trace, in bytes, as sbench does when it writes one.
const maxTrace = 256 << 20

// errLong means that a line is too long.
var errLong = errors.New("the line is too long")

// A lineReader reads lines of bounded length.
type lineReader struct {
	r      *bufio.Reader
	most   int   // bytes of a line
	offset int64 // of the next line
	buffer []byte
}

// A line is one line of a file. Its text is valid until the next call of next.
type line struct {
	text   []byte // without the newline
	offset int64
	size   int64 // of the whole line in the file, with the newline
	whole  bool  // ended by a newline
}

func newLineReader(r io.Reader, offset int64, most int) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 64<<10), most: most, offset: offset}
}

// next returns the next line. The error is io.EOF after the last line, and errLong for a line that is too
// long, after which reading may go on.
func (l *lineReader) next() (line, error) {
	found := line{offset: l.offset}
	l.buffer = l.buffer[:0]
	for {
		piece, err := l.r.ReadSlice('\n')
		l.offset, found.size = l.offset+int64(len(piece)), found.size+int64(len(piece))
		if found.size <= int64(l.most) {
			l.buffer = append(l.buffer, piece...)
		}
		switch {
		case found.size > maxPassed:
			return line{}, errors.New("a line does not end")
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && (err != io.EOF || found.size == 0):
			return line{}, err
		case found.size > int64(l.most):
			l.buffer = nil
			return found, errLong
		}
		found.text, found.whole = bytes.CutSuffix(l.buffer, []byte("\n"))
		return found, nil
	}
}
