package run_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/record"
	sandbox "github.com/securebench/sbench/runtime"
)

// TestRedactor: secrets are replaced, and nothing else.
func TestRedactor(t *testing.T) {
	var numbers strings.Builder
	for i := range 250 {
		_, _ = fmt.Fprintf(&numbers, "%03d-", i)
	}
	long := numbers.String() // longer than a needle
	for _, c := range []struct {
		name    string
		secrets []string
		text    string
		want    string
	}{
		{"none", nil, "text", "text"},
		{"short ones", []string{"four5", ""}, "four5", "four5"},
		{"one", []string{"secret"}, "a secret, secre", "a <redacted>, secre"},
		{"two beside each other", []string{"secret"}, "secretsecret", "<redacted><redacted>"},
		{"two that overlap", []string{"secret", "crets!"}, "secrets!", "<redacted>"},
		{"one in another", []string{"secret", "a secret indeed"}, "a secret indeed, a secret", "<redacted>, a <redacted>"},
		{"the same beginning", []string{"secret-1", "secret-22", "secret-333"}, "secret-22 secret-333 secret-4", "<redacted> <redacted> secret-4"},
		{"lines", []string{"first line\n\n  second line\n"}, "+second line\nfirst line.", "+<redacted>\n<redacted>."},
		{"all lines", []string{"first line\nx\nsecond line"}, "first line\nx\nsecond line", "<redacted>"},
		{"a long one", []string{long}, "<" + long + ">", "<<redacted>>"},
		{"a piece of a long one", []string{long}, long[:300], "<redacted>" + long[256:300]},
		{"nothing but one", []string{"secret"}, "secret", "<redacted>"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := run.NewRedactor(c.secrets...).Text(c.text); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	secrets := []string{secret, hiddenAnswer}
	for _, s := range secrets {
		for _, e := range encoded(s) {
			if got := run.NewRedactor(secrets...).Text("x " + e + " y"); strings.Contains(got, e) || !strings.Contains(got, "<redacted>") {
				t.Errorf("%q is %q", e, got)
			}
		}
	}
}

// TestRedactedRead: the record keeps the answer that the verifier read, as it keeps the candidate, unless
// the answer holds a secret of the operator.
func TestRedactedRead(t *testing.T) {
	answer := func() record.Record {
		return record.Record{CandidateText: new("a secret"), VerifierMetadata: record.Metadata{"read": "a secret", "rule": "whole", "other": "a secret"}}
	}
	got := run.NewRedactor("secret").Record(answer())
	if *got.CandidateText != "a secret" || got.VerifierMetadata["read"] != "a secret" || got.VerifierMetadata["other"] != "a <redacted>" {
		t.Errorf("%v", got.VerifierMetadata)
	}
	got = run.NewRedactor("secret").Everything(answer())
	if *got.CandidateText != "a <redacted>" || got.VerifierMetadata["read"] != "a <redacted>" {
		t.Errorf("%v", got.VerifierMetadata)
	}
}

// TestRedactedEdges: if the middle of an output is missing, no part of a secret is left
// next to it, wherever the output was cut.
func TestRedactedEdges(t *testing.T) {
	const word = "0123456789abcdef"
	text := strings.Repeat("x", 400) + strings.Repeat(word, 5) + strings.Repeat("y", 400)
	r := run.NewRedactor(word)
	for at := range len(text) {
		o := sandbox.Output{Head: []byte(text[:at]), Tail: []byte(text[at:]), Total: int64(len(text) + 7)}
		got := r.Output(o)
		if i := strings.IndexAny(strings.ReplaceAll(strings.ReplaceAll(got, "<redacted>", ""), "[sbench: 7 bytes cut]", ""), word); i >= 0 {
			t.Fatalf("cut at %d: %q", at, got)
		}
		if !strings.Contains(got, "[sbench: 7 bytes cut]") {
			t.Fatalf("cut at %d: %q", at, got)
		}
	}
}

// hiddenLines returns a mebibyte of lines with the given number of printable bytes.
func hiddenLines(length int) string {
	random := rand.New(rand.NewPCG(1, uint64(length)))
	var b strings.Builder
	for b.Len() < 1<<20 {
		for range length {
			b.WriteByte(byte(' ' + 1 + random.IntN(94)))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// redactionMemory returns the memory of a redactor of such lines, in multiples of their
// size.
func redactionMemory(length int) float64 {
	text := hiddenLines(length)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	r := run.NewRedactor(text)
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(r)
	return float64(int64(after.HeapAlloc)-int64(before.HeapAlloc)) / float64(len(text))
}

// TestRedactionMemory: a redactor takes a few times the size of what it hides; it used to
// take 130 times.
func TestRedactionMemory(t *testing.T) {
	for length, most := range map[int]float64{6: 20, 40: 4} {
		if times := redactionMemory(length); times > most {
			t.Errorf("lines of %d bytes: %.1f times their size, want at most %g", length, times, most)
		}
	}
}

// BenchmarkRedact reports the memory of a redactor in multiples of what it hides, and how
// fast it reads a text without secrets.
func BenchmarkRedact(b *testing.B) {
	for _, length := range []int{6, 20, 40, 80} {
		b.Run(fmt.Sprint(length), func(b *testing.B) {
			r, text := run.NewRedactor(hiddenLines(length)), strings.Repeat("some other text of no interest\n", 1<<15)
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				r.Text(text)
			}
			b.ReportMetric(redactionMemory(length), "times-hidden")
		})
	}
}

// TestIn: a secret is found wherever pieces of a file meet.
func TestIn(t *testing.T) {
	r := run.NewRedactor("the secret of the run")
	for _, at := range []int{0, 1<<20 - 30, 1<<20 - 5, 1 << 20, 1<<20 + 1, 2<<20 - 21, 2<<20 - 1, 3 << 20} {
		text := strings.Repeat(".", at) + "the secret of the run" + strings.Repeat(".", 17)
		for want, text := range map[bool]string{true: text, false: strings.Replace(text, "secret", "report", 1)} {
			for _, size := range []int64{0, int64(len(text))} {
				if got, err := r.In(strings.NewReader(text), size); got != want || err != nil {
					t.Errorf("at %d: %t, %v", at, got, err)
				}
			}
		}
	}
}
