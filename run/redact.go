package run

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/runtime"
)

const (
	redacted = "<redacted>"
	minLine  = 16 // bytes from which a line of a secret is a secret
)

// redactor replaces secrets in texts. The zero redactor replaces nothing. It is safe for concurrent use.
type redactor struct {
	needles []string // the secrets in each encoding
	longest int      // bytes of a needle
}

// newRedactor returns a redactor of the secrets and each of their lines, as they are and in common
// encodings. It ignores secrets shorter than compiler.MinSecret bytes, and lines shorter than minLine.
func newRedactor(secrets ...string) (r redactor) {
	for _, s := range secrets {
		r.needles = append(r.needles, encodings(s)...)
		for line := range strings.Lines(s) {
			if line = strings.TrimSpace(line); len(line) >= minLine {
				r.needles = append(r.needles, encodings(line)...)
			}
		}
	}
	slices.Sort(r.needles)
	r.needles = slices.Compact(r.needles)
	for _, n := range r.needles {
		r.longest = max(r.longest, len(n))
	}
	return r
}

// encodings returns a value as it is, and as JSON, URLs, hexadecimal digits and base64 write it. In
// base64 it has a form for each of three offsets in the encoded data. The forms lack the characters
// that also depend on neighbouring bytes.
func encodings(s string) []string {
	if len(s) < compiler.MinSecret {
		return nil
	}
	all := []string{s, url.QueryEscape(s), url.PathEscape(s), hex.EncodeToString([]byte(s)), strings.ToUpper(hex.EncodeToString([]byte(s)))}
	if quoted, err := json.Marshal(s); err == nil {
		all = append(all, string(quoted[1:len(quoted)-1]))
	}
	var plain strings.Builder
	enc := json.NewEncoder(&plain)
	enc.SetEscapeHTML(false)
	if enc.Encode(s) == nil {
		all = append(all, strings.Trim(strings.TrimSpace(plain.String()), `"`))
	}
	for offset := range 3 {
		for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			text := e.EncodeToString(append(make([]byte, offset), s...))
			first := (offset*8 + 5) / 6 // characters that also hold bits of what comes before
			last := (offset + len(s)) * 8 / 6
			all = append(all, text[first:last])
		}
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(s string) bool { return len(s) < compiler.MinSecret })
}

func (r redactor) text(s string) string { return r.cut(s, 0, len(s)) }

// Replace and In implement layer.Secrets.
func (r redactor) Replace(s string) string { return r.text(s) }

// In reports whether from contains a secret. size is the expected number of bytes.
func (r redactor) In(from io.Reader, size int64) (bool, error) {
	piece, kept := make([]byte, max(min(size+1, 1<<20), 2*int64(r.longest))), 0
	for {
		n, err := io.ReadFull(from, piece[kept:])
		read := piece[:kept+n]
		switch {
		case slices.ContainsFunc(r.needles, func(needle string) bool { return bytes.Contains(read, []byte(needle)) }):
			return true, nil
		case err == io.EOF || err == io.ErrUnexpectedEOF:
			return false, nil
		case err != nil:
			return false, err
		}
		kept = copy(piece, read[len(read)-max(r.longest-1, 0):]) // the pieces overlap
	}
}

// cut redacts the secrets in s, and everything in s up to the offset before and from the
// offset after. Overlapping secrets are replaced as one.
func (r redactor) cut(s string, before, after int) string {
	type span struct{ from, to int }
	var spans []span
	for _, edge := range []span{{0, before}, {after, len(s)}} {
		if edge.from < edge.to {
			spans = append(spans, edge)
		}
	}
	for _, needle := range r.needles {
		for at := strings.Index(s, needle); at >= 0; {
			end := at + len(needle)
			spans = append(spans, span{at, end})
			if at = strings.Index(s[end:], needle); at >= 0 {
				at += end
			}
		}
	}
	if len(spans) == 0 {
		return s
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	var clean strings.Builder
	done := 0
	for i := 0; i < len(spans); {
		from, to := spans[i].from, spans[i].to
		for i++; i < len(spans) && spans[i].from < to; i++ {
			to = max(to, spans[i].to)
		}
		clean.WriteString(s[done:from] + redacted)
		done = to
	}
	return clean.String() + s[done:]
}

// output redacts the bytes of a stream before they are made valid UTF-8. If the middle of the stream
// is missing, it also redacts as many bytes next to the gap as could be part of a secret.
func (r redactor) output(o runtime.Output) string {
	cut := o.Cut()
	if cut <= 0 {
		return strings.ToValidUTF8(r.text(string(o.Bytes())), "\uFFFD")
	}
	edge := max(r.longest-1, 0)
	o.Head = []byte(r.cut(string(o.Head), 0, max(len(o.Head)-edge, 0)))
	o.Tail = []byte(r.cut(string(o.Tail), min(edge, len(o.Tail)), len(o.Tail)))
	o.Total = cut + int64(len(o.Head)) + int64(len(o.Tail)) // so that Cut still returns what was missing before
	return strings.ToValidUTF8(string(o.Bytes()), "\uFFFD")
}

// record redacts the texts of a record except identifiers.
func (r redactor) record(rec record.Record) record.Record {
	for _, field := range []**string{&rec.CandidateText, &rec.CandidatePatch} {
		if *field != nil {
			*field = new(r.text(**field))
		}
	}
	rec.ProducerStdout, rec.ProducerStderr = r.text(rec.ProducerStdout), r.text(rec.ProducerStderr)
	rec.FailureMessage = r.text(rec.FailureMessage)
	rec.Steps = slices.Clone(rec.Steps)
	for i := range rec.Steps {
		rec.Steps[i].FailureMessage = r.text(rec.Steps[i].FailureMessage)
	}
	rec.ProducerMetadata, rec.VerifierMetadata = r.object(rec.ProducerMetadata), r.object(rec.VerifierMetadata)
	return rec
}

// object converts m to plain JSON values and redacts the strings and keys among them.
func (r redactor) object(m record.Metadata) record.Metadata {
	text, err := json.Marshal(m)
	if err != nil || m == nil {
		return m // writing the record will return the error
	}
	var plain any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&plain); err != nil {
		return record.Metadata{}
	}
	return r.value(plain).(map[string]any)
}

func (r redactor) value(v any) any {
	switch v := v.(type) {
	case string:
		return r.text(v)
	case []any:
		for i := range v {
			v[i] = r.value(v[i])
		}
		return v
	case map[string]any:
		clean := make(map[string]any, len(v))
		for key, value := range v {
			clean[r.text(key)] = r.value(value)
		}
		return clean
	}
	return v
}
