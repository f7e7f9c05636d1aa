package lines_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/workspace/foreign/lines"
)

// TestLines: short lines pass unchanged, whatever the pieces that they come in.
func TestLines(t *testing.T) {
	text := "{\"a\": \"x\\\"y\\\\\"}\n\n[1, \"é\"]\nlast"
	for name, r := range map[string]io.Reader{"whole": strings.NewReader(text), "bytes": iotest.OneByteReader(strings.NewReader(text))} {
		in := lines.NewReader(r, 0, 1<<10)
		var got []string
		for {
			l, err := in.Next()
			if err == io.EOF {
				break
			}
			must.Do(t, err)
			got = append(got, fmt.Sprintf("%d %d %v %s", l.Offset, l.Size, l.Whole, l.Text))
		}
		want := []string{`0 16 true {"a": "x\"y\\"}`, `16 1 true `, `17 10 true [1, "é"]`, `27 4 false last`}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestTooLong: a line that is too long is skipped, and the next line is read.
func TestTooLong(t *testing.T) {
	const most, huge = 1 << 20, 64 << 20
	r := io.MultiReader(io.LimitReader(forever("[1],"), huge), strings.NewReader("\n{}\n"), io.LimitReader(forever("x"), most-1), strings.NewReader("\n"))
	in := lines.NewReader(r, 0, most)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if l, err := in.Next(); !errors.Is(err, lines.ErrLong) || l.Size != huge+1 || l.Text != nil {
		t.Errorf("%d bytes, %v", l.Size, err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 16*most {
		t.Errorf("%d bytes were allocated", n)
	}
	if l, err := in.Next(); err != nil || string(l.Text) != "{}" {
		t.Errorf("%q, %v", l.Text, err)
	}
	if l, err := in.Next(); err != nil || len(l.Text) != most-1 {
		t.Errorf("%d bytes, %v", l.Size, err)
	}
}

// TestEndless: reading ends in a sparse file without a newline before it takes memory.
func TestEndless(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "sparse"))
	err = errors.Join(err, f.Truncate(1<<40))
	must.Do(t, err)
	if _, err := lines.NewReader(f, 0, 1<<28).Next(); err == nil || errors.Is(err, lines.ErrLong) {
		t.Errorf("error %v", err)
	}
	if at, err := f.Seek(0, io.SeekCurrent); err != nil || at > 1<<20 {
		t.Errorf("%d bytes were read, %v", at, err)
	}
	must.Report(t, f.Close())
}

// forever returns a reader that repeats a text without end.
func forever(text string) io.Reader { return &endless{text: text} }

type endless struct {
	text string
	at   int
}

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = e.text[e.at]
		e.at = (e.at + 1) % len(e.text)
	}
	return len(p), nil
}
