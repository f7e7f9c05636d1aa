package report

import "io"

// Unexported names for tests.
const (
	MaxLine    = maxLine
	KeepDetail = keepDetail
)

var (
	ErrLong       = errLong
	Decode        = decode
	ReadTrace     = readTrace
	NewLineReader = newLineReader
)

// A Line is the exported form of line.
type Line struct {
	Text         []byte
	Offset, Size int64
	Whole        bool
}

func (l *lineReader) Next() (Line, error) {
	got, err := l.next()
	return Line{got.text, got.offset, got.size, got.whole}, err
}

// OneLine reads the first line of r.
func OneLine(r io.Reader, keep int) (Line, error) { return newLineReader(r, 0, keep).Next() }
