package report_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/securebench/sbench/report"
)

// TestLines: short lines pass unchanged, whatever the pieces that they come in.
func TestLines(t *testing.T) {
	text := "{\"a\": \"x\\\"y\\\\\"}\n\n[1, \"é\"]\nlast"
	for name, r := range map[string]io.Reader{"whole": strings.NewReader(text), "bytes": iotest.OneByteReader(strings.NewReader(text))} {
		lines := report.NewLineReader(r, 0, 16)
		var got []string
		for {
			l, err := lines.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprintf("%d %d %v %s", l.Offset, l.Size, l.Whole, l.Text))
		}
		want := []string{`0 15 true {"a": "x\"y\\"}`, `16 0 true `, `17 9 true [1, "é"]`, `27 4 false last`}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestSqueeze: long strings lose their middle and stay valid JSON, wherever they are cut.
func TestSqueeze(t *testing.T) {
	units := []string{"a", `\n`, `\"`, `\\`, `\u00e9`, `\ud83d\ude00`, "é", "日", "😀"}
	for _, unit := range units {
		for pad := range 8 {
			long := strings.Repeat("p", pad) + strings.Repeat(unit, 5000)
			text := `{"first": "` + long + `", "n": 7, "second": "short", "third": "` + long + `"}` + "\n"
			l, err := report.OneLine(strings.NewReader(text), 64)
			if err != nil || l.Size != int64(len(text)-1) {
				t.Fatalf("size %d, %v", l.Size, err)
			}
			if len(l.Text) > 4*64*2+500 {
				t.Errorf("%s: %d bytes were kept", unit, len(l.Text))
			}
			var got struct {
				First, Second, Third string
				N                    int
			}
			if err := json.Unmarshal(l.Text, &got); err != nil || got.N != 7 || got.Second != "short" {
				t.Fatalf("%s after %d: %v: %s", unit, pad, err, l.Text)
			}
			plain := strings.NewReplacer(`\n`, "\n", `\"`, `"`, `\\`, `\`, `\u00e9`, "é", `\ud83d\ude00`, "😀").Replace(unit)
			head, tail, found := strings.Cut(got.First, " bytes left out …]\n")
			if got.First != got.Third || !found || !strings.HasPrefix(head, strings.Repeat("p", pad)+plain) || !strings.HasSuffix(tail, plain) || !utf8.ValidString(got.First) {
				t.Errorf("%s after %d: %q", unit, pad, got.First)
			}
		}
	}
}

// TestTooLong: a line that is too long without long strings is skipped, and the next one
// is read.
func TestTooLong(t *testing.T) {
	if testing.Short() {
		t.Skip("short: 70 MB")
	}
	r := io.MultiReader(io.LimitReader(forever("[1],"), report.MaxLine+1<<20), strings.NewReader("\n{}\n"))
	lines := report.NewLineReader(r, 0, 64)
	if l, err := lines.Next(); !errors.Is(err, report.ErrLong) || l.Size != report.MaxLine+1<<20 {
		t.Errorf("%d bytes, %v", l.Size, err)
	}
	if l, err := lines.Next(); err != nil || string(l.Text) != "{}" {
		t.Errorf("%q, %v", l.Text, err)
	}
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

// TestMemory: a string of a gigabyte is read in much less memory.
func TestMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("short: a gigabyte")
	}
	const huge = 1 << 30
	r := io.MultiReader(strings.NewReader(`{"task_id": "t", "verification_status": "failed", "producer_stdout": "`), io.LimitReader(forever(`\u0041é`), huge), strings.NewReader(`"}`+"\n"))
	lines := report.NewLineReader(r, 0, report.KeepDetail)
	l, err := lines.Next()
	if err != nil || l.Size < huge {
		t.Fatalf("%d bytes, %v", l.Size, err)
	}
	if cap(l.Text) > 16*report.KeepDetail {
		t.Errorf("%d bytes were held", cap(l.Text))
	}
	if rec, err := report.Decode(l.Text); err != nil || !strings.HasPrefix(rec.ProducerStdout, "Aé") || len(rec.ProducerStdout) > 4*report.KeepDetail {
		t.Errorf("%d bytes of output, %v", len(rec.ProducerStdout), err)
	}
}

func FuzzSqueeze(f *testing.F) {
	f.Add(`{"a": "`+strings.Repeat(`x\u00e9`, 100)+`"}`, 20)
	f.Add(`"\`, 1)
	f.Fuzz(func(t *testing.T, text string, keep int) {
		text, _, _ = strings.Cut(text, "\n")
		l, err := report.OneLine(strings.NewReader(text+"\n"), keep%100)
		if err != nil || l.Size != int64(len(text)) {
			t.Fatal(l.Size, err)
		}
		if json.Valid([]byte(text)) && !json.Valid(l.Text) {
			t.Errorf("%q became %q", text, l.Text)
		}
	})
}
