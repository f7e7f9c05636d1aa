package predictions

import (
	"bytes"
	"cmp"
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
	left   int64 // bytes that may be read before the next part is complete
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

// each calls visit for the items of the list, or for the keys and values of the object, that is all there is to read.
func (s *splitter) each(visit func(key string, value json.RawMessage) error) error {
	opened, err := s.Token()
	if err != nil {
		return err
	}
	if opened != json.Delim('[') && opened != json.Delim('{') {
		return errors.New("expected a list or an object of predictions")
	}
	for s.More() {
		key, value := "", json.RawMessage(nil)
		if opened == json.Delim('{') {
			token, err := s.Token()
			if err != nil {
				return err
			}
			key = token.(string) // the decoder accepts no other key
		}
		if err := s.Decode(&value); err != nil {
			return err
		}
		s.left = maxLine
		if err := visit(key, value); err != nil {
			return err
		}
	}
	if _, err := s.Token(); err != nil {
		return err
	}
	if _, err := s.Token(); !errors.Is(err, io.EOF) {
		return errors.Join(errors.New("there is more after the value"), err)
	}
	return nil
}

// maxFields bounds the keys of a prediction.
const maxFields = 10_000

// fieldsOf returns the fields of an object. Their values are only split off, because other tools put
// whole trajectories beside an answer.
func fieldsOf(text []byte) (map[string]json.RawMessage, error) {
	fields := map[string]json.RawMessage{}
	return fields, newSplitter(bytes.NewReader(text)).each(func(key string, value json.RawMessage) error {
		switch {
		case fields[key] != nil:
			return fmt.Errorf("the key %q is there twice", key)
		case len(fields) == maxFields:
			return fmt.Errorf("it has more than %d keys", maxFields)
		}
		fields[key] = value
		return nil
	})
}

// kindOf returns the kind of a JSON value by its first byte; 0 if there is none.
func kindOf(value []byte) document.Kind {
	if len(value) == 0 {
		return 0
	}
	kinds := map[byte]document.Kind{'{': document.Object, '[': document.Array, '"': document.String, 'n': document.Null, 't': document.Bool, 'f': document.Bool}
	return cmp.Or(kinds[value[0]], document.Number)
}
