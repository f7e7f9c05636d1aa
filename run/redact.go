package run

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
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

// redactor cuts secret values out of texts. The zero redactor has none. It may be
// used by several goroutines.
type redactor struct {
	values   []string // the longest first, so that none is left half
	replacer *strings.Replacer
}

// with adds secrets: each as it is and as it is commonly encoded, and of one with
// several lines each line, too.
func (r redactor) with(secrets ...string) redactor {
	seen := map[string]bool{}
	var values []string
	add := func(s string) {
		if len(s) >= minSecret && !seen[s] {
			seen[s] = true
			values = append(values, s)
		}
	}
	for _, v := range r.values {
		add(v)
	}
	for _, s := range secrets {
		for _, v := range encodings(s) {
			add(v)
		}
		for line := range strings.Lines(s) {
			for _, v := range encodings(strings.TrimSpace(line)) {
				add(v)
			}
		}
	}
	slices.SortStableFunc(values, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	pairs := make([]string, 0, 2*len(values))
	for _, v := range values {
		pairs = append(pairs, v, redacted)
	}
	return redactor{values, strings.NewReplacer(pairs...)}
}

// encodings returns a value as it is, in JSON, in URLs, in hexadecimal digits and
// in base64. There it has three forms, by where in the encoded text it begins; of
// each, what only the value decides.
func encodings(s string) []string {
	if len(s) < minSecret {
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
			first := (offset*8 + 5) / 6 // characters that hold bits of what is before
			last := (offset + len(s)) * 8 / 6
			all = append(all, text[first:last])
		}
	}
	return all
}

func (r redactor) text(s string) string {
	if r.replacer == nil {
		return s
	}
	return r.replacer.Replace(s)
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
