// Package secrets removes secrets from what a run keeps: from texts and records ([Redactor]), and from the
// files of a candidate ([Redactor.Scrub]). The secrets are the values of harness.env.
package secrets

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/proxy/relay/stream"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/runtime"
)

const (
	// Redacted stands in place of a secret.
	Redacted = stream.Redacted
	minLine  = 16 // bytes from which a line of a secret is a secret
)

// A Redactor replaces secrets. The zero Redactor replaces nothing. It is safe for concurrent use.
type Redactor struct {
	needles []string // the secrets in each encoding
	longest int      // bytes of a needle
}

// New returns a Redactor of the secrets and each of their lines, as they are and in common
// encodings. It ignores secrets shorter than compiler.MinSecret bytes, and lines shorter than minLine.
func New(secrets ...string) (r Redactor) {
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

// encodings returns the [stream.Encodings] of a value, and the value as JSON and URLs write it.
func encodings(s string) []string {
	if len(s) < compiler.MinSecret {
		return nil
	}
	all := []string{url.QueryEscape(s), url.PathEscape(s)}
	for _, html := range []bool{true, false} {
		var quoted strings.Builder
		enc := json.NewEncoder(&quoted)
		enc.SetEscapeHTML(html)
		if enc.Encode(s) == nil {
			all = append(all, quoted.String()[1:quoted.Len()-2]) // without quotes and line break
		}
	}
	for _, e := range stream.Encodings(s) {
		all = append(all, e[:]...)
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(s string) bool { return len(s) < compiler.MinSecret })
}

// Text returns s without secrets. Text and In implement layer.Secrets.
func (r Redactor) Text(s string) string { return r.cut(s, 0, len(s)) }

// In reports whether from contains a secret. size is the expected number of bytes.
func (r Redactor) In(from io.Reader, size int64) (bool, error) {
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
func (r Redactor) cut(s string, before, after int) string {
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
		clean.WriteString(s[done:from] + Redacted)
		done = to
	}
	return clean.String() + s[done:]
}

// Output redacts the bytes of a stream before they are made valid UTF-8. If the middle of the stream
// is missing, it also redacts as many bytes next to the gap as could be part of a secret.
func (r Redactor) Output(o runtime.Output) string {
	cut := o.Cut()
	if cut <= 0 {
		return strings.ToValidUTF8(r.Text(string(o.Bytes())), "\uFFFD")
	}
	edge := max(r.longest-1, 0)
	o.Head = []byte(r.cut(string(o.Head), 0, max(len(o.Head)-edge, 0)))
	o.Tail = []byte(r.cut(string(o.Tail), min(edge, len(o.Tail)), len(o.Tail)))
	o.Total = cut + int64(len(o.Head)) + int64(len(o.Tail)) // so that Cut still returns what was missing before
	return strings.ToValidUTF8(string(o.Bytes()), "\uFFFD")
}

// Record redacts the texts of a record except identifiers.
func (r Redactor) Record(rec record.Record) record.Record {
	for _, field := range []**string{&rec.CandidateText, &rec.CandidatePatch} {
		if *field != nil {
			*field = new(r.Text(**field))
		}
	}
	rec.ProducerStdout, rec.ProducerStderr = r.Text(rec.ProducerStdout), r.Text(rec.ProducerStderr)
	rec.FailureMessage = r.Text(rec.FailureMessage)
	rec.Steps = slices.Clone(rec.Steps)
	for i := range rec.Steps {
		rec.Steps[i].FailureMessage = r.Text(rec.Steps[i].FailureMessage)
	}
	rec.ProducerMetadata, rec.VerifierMetadata = r.object(rec.ProducerMetadata), r.object(rec.VerifierMetadata)
	return rec
}

// object converts m to plain JSON values and redacts the strings and keys among them.
func (r Redactor) object(m record.Metadata) record.Metadata {
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

func (r Redactor) value(v any) any {
	switch v := v.(type) {
	case string:
		return r.Text(v)
	case []any:
		for i := range v {
			v[i] = r.value(v[i])
		}
		return v
	case map[string]any:
		clean := make(map[string]any, len(v))
		for key, value := range v {
			clean[r.Text(key)] = r.value(value)
		}
		return clean
	}
	return v
}
