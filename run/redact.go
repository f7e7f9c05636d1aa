package run

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
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

// with adds secrets. Longer ones are cut first, so that none is left half.
func (r redactor) with(secrets ...string) redactor {
	values := slices.Clone(r.values)
	for _, s := range secrets {
		if len(s) >= minSecret && !slices.Contains(values, s) {
			values = append(values, s)
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

// everything redacts what record does and the candidate itself.
func (r redactor) everything(rec Record) Record {
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
func (r redactor) record(rec Record) Record {
	rec.ProducerStdout, rec.ProducerStderr = r.text(rec.ProducerStdout), r.text(rec.ProducerStderr)
	rec.VerifierStdout, rec.VerifierStderr = r.text(rec.VerifierStdout), r.text(rec.VerifierStderr)
	rec.FailureMessage = r.text(rec.FailureMessage)
	rec.ProducerMetadata, rec.VerifierMetadata = r.object(rec.ProducerMetadata), r.object(rec.VerifierMetadata)
	return rec
}

func (r redactor) object(m Metadata) Metadata {
	for key, value := range m {
		if v := reflect.ValueOf(value); v.Kind() == reflect.String {
			m[key] = r.text(v.String())
		}
	}
	return m
}
