package report

// Unexported names for tests.
var (
	Chance        = chance
	ErrLong       = errLong
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
