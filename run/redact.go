package run

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/runtime"
)

const (
	redacted = "<redacted>"
	// minSecret is the shortest value that is cut out of a text. Shorter ones,
	// such as an answer "4", stand everywhere and would only make the text
	// unreadable.
	minSecret = 6
)

// redactor cuts secret values out of texts. The zero redactor has none.
type redactor struct{ values []string }

// with adds secrets, each also as JSON would write it and, if it has several
// lines, each line of its own. Longer ones are cut first, so that none is left
// half.
func (r redactor) with(secrets ...string) redactor {
	values := slices.Clone(r.values)
	add := func(s string) {
		if len(s) >= minSecret && !slices.Contains(values, s) {
			values = append(values, s)
		}
	}
	for _, s := range secrets {
		add(s)
		if quoted, err := json.Marshal(s); err == nil {
			add(string(quoted[1 : len(quoted)-1]))
		}
		for line := range strings.Lines(s) {
			add(strings.TrimSpace(line))
		}
	}
	slices.SortStableFunc(values, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return redactor{values}
}

func (r redactor) text(s string) string {
	for _, v := range r.values {
		s = strings.ReplaceAll(s, v, redacted)
	}
	return s
}

// output redacts the bytes of a stream, before they are made valid UTF-8. Where
// the middle was cut out, so is what may be half of a secret at the edges.
func (r redactor) output(o runtime.Output) string {
	o.Head, o.Tail = bytes.Clone(o.Head), bytes.Clone(o.Tail)
	if o.Cut() > 0 {
		head, tail := r.openEnd(o.Head), r.openStart(o.Tail)
		o.Head, o.Tail = o.Head[:len(o.Head)-head], o.Tail[tail:]
	}
	text := string(o.Bytes())
	return strings.ToValidUTF8(r.text(text), "\uFFFD")
}

// openEnd is how many bytes at the end of head could begin a secret.
func (r redactor) openEnd(head []byte) int {
	most := 0
	for _, v := range r.values {
		for n := min(len(v)-1, len(head)); n > most; n-- {
			if bytes.HasSuffix(head, []byte(v[:n])) {
				most = n
			}
		}
	}
	return most
}

// openStart is how many bytes at the start of tail could end a secret.
func (r redactor) openStart(tail []byte) int {
	most := 0
	for _, v := range r.values {
		for n := min(len(v)-1, len(tail)); n > most; n-- {
			if bytes.HasPrefix(tail, []byte(v[len(v)-n:])) {
				most = n
			}
		}
	}
	return most
}

// everything redacts what record does and the candidate itself.
func (r redactor) everything(rec record.Record) record.Record {
	for _, field := range []**string{&rec.CandidateText, &rec.CandidatePatch} {
		if *field != nil {
			text := r.text(**field)
			*field = &text
		}
	}
	return r.record(rec)
}

// record redacts every text of a record but what identifies it and the
// candidate, which may well be equal to a hidden answer: that is its purpose.
func (r redactor) record(rec record.Record) record.Record {
	rec.ProducerStdout, rec.ProducerStderr = r.text(rec.ProducerStdout), r.text(rec.ProducerStderr)
	rec.VerifierStdout, rec.VerifierStderr = r.text(rec.VerifierStdout), r.text(rec.VerifierStderr)
	rec.FailureMessage = r.text(rec.FailureMessage)
	rec.ProducerMetadata, rec.VerifierMetadata = r.object(rec.ProducerMetadata), r.object(rec.VerifierMetadata)
	return rec
}

// object redacts the texts in an open object, however deep, as they will be
// written.
func (r redactor) object(m record.Metadata) record.Metadata {
	text, err := json.Marshal(m)
	if err != nil || m == nil {
		return m // the recorder will say so
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
