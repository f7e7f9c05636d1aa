package predictions

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/securebench/sbench/compiler/document"
)

// A splitter reads the parts of one large JSON value, and holds one part at a time in memory.
type splitter struct {
	*json.Decoder
	in     io.Reader
	left   int64 // bytes that may be read before the next call of value returns
	breaks int   // line breaks that were read
}

// pieceBytes bounds what is read at a time, and so what line counts again.
const pieceBytes = 32 << 10

func newSplitter(r io.Reader) *splitter {
	s := &splitter{in: r, left: maxLine}
	s.Decoder = json.NewDecoder(s)
	return s
}

// Read is for the decoder.
func (s *splitter) Read(p []byte) (int, error) {
	if s.left <= 0 {
		return 0, fmt.Errorf("a prediction has more than %d bytes", maxLine)
	}
	n, err := s.in.Read(p[:min(int64(len(p)), s.left, pieceBytes)])
	s.breaks += bytes.Count(p[:n], []byte("\n"))
	s.left -= int64(n)
	return n, err
}

// line returns the line at which the decoder stands, from 1.
func (s *splitter) line() int {
	ahead, _ := io.ReadAll(s.Buffered()) // cannot fail: it is in memory
	return s.breaks - bytes.Count(ahead, []byte("\n")) + 1
}

// value returns the next value, and the line on which it ends.
func (s *splitter) value() (value json.RawMessage, line int, err error) {
	err = s.Decode(&value)
	s.left = maxLine
	return value, s.line(), err
}

// maxFields bounds the keys of a prediction.
const maxFields = 10_000

// fieldsOf returns the fields of an object. Their values are only split off, because other tools put
// whole trajectories beside an answer.
func fieldsOf(text []byte) (map[string]json.RawMessage, error) {
	in := json.NewDecoder(bytes.NewReader(text))
	fields := map[string]json.RawMessage{}
	_, err := in.Token()
	for err == nil && in.More() {
		var key json.Token
		var value json.RawMessage
		if key, err = in.Token(); err == nil {
			err = in.Decode(&value)
		}
		if err != nil {
			return nil, err
		}
		name := key.(string) // the decoder accepts no other key
		switch {
		case fields[name] != nil:
			return nil, fmt.Errorf("the key %q is there twice", name)
		case len(fields) == maxFields:
			return nil, fmt.Errorf("it has more than %d keys", maxFields)
		}
		fields[name] = value
	}
	if err == nil {
		_, err = in.Token()
	}
	if err != nil {
		return nil, err
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more after the object")
	}
	return fields, nil
}

// kindOf returns the kind of a JSON value by its first byte; 0 if there is none.
func kindOf(value []byte) document.Kind {
	if len(value) == 0 {
		return 0
	}
	switch value[0] {
	case '{':
		return document.Object
	case '[':
		return document.Array
	case '"':
		return document.String
	case 'n':
		return document.Null
	case 't', 'f':
		return document.Bool
	}
	return document.Number
}
