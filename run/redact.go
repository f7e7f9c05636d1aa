package run

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"math/bits"
	"net/url"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/runtime"
)

const (
	redacted = "<redacted>"
	// maxNeedle bounds what is looked for as a whole, in bytes. Of a longer secret each
	// piece is, and the pieces overlap.
	maxNeedle = 256
)

// redactor cuts secret values out of texts. It keeps hashes of them and not the values,
// so that it is small beside what it hides. The zero redactor has none. It may be
// used by several goroutines.
type redactor struct {
	sets    []needles
	longest int
}

// needles are ways to write secrets, or pieces of them, in about 14 bytes each. They are in
// buckets by the first bits of the hash of their beginning, its compiler.MinSecret bytes.
type needles struct {
	bits  uint     // of the hash that say the bucket
	index []uint32 // of each bucket's first needle in all, and one more
	// all has of each needle the next 16 bits of that hash, its length less one in 8 bits,
	// and 40 bits of the hash of all of it; in order.
	all []uint64
}

const hashBits = 40 // of a whole needle

// window appends a byte to the last compiler.MinSecret ones.
func window(w uint64, c byte) uint64 { return (w<<8 | uint64(c)) & (1<<(8*compiler.MinSecret) - 1) }

func hashWindow(w uint64) uint32 { return uint32(w * 0x9E3779B97F4A7C15 >> 32) } // Fibonacci hashing

const fnvOffset, fnvPrime = 14695981039346656037, 1099511628211 // FNV-1a

// rawNeedle is a needle before its bucket is known.
type rawNeedle struct {
	begin uint32
	tail  uint64 // length and hash
}

func newNeedle(s string) rawNeedle {
	var w uint64
	for i := range compiler.MinSecret {
		w = window(w, s[i])
	}
	h := uint64(fnvOffset)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * fnvPrime
	}
	return rawNeedle{hashWindow(w), uint64(len(s)-1)<<hashBits | h>>(64-hashBits)}
}

// with adds secrets of at least compiler.MinSecret bytes: each as it is and as it is
// commonly encoded, and of one with several lines each line, too.
func (r redactor) with(secrets ...string) redactor {
	var all []rawNeedle
	longest := r.longest
	add := func(s string) {
		for _, form := range encodings(s) {
			for {
				piece := form[:min(len(form), maxNeedle)]
				all, longest = append(all, newNeedle(piece)), max(longest, len(piece))
				if len(piece) == len(form) {
					break
				}
				form = form[min(maxNeedle-1, len(form)-maxNeedle):] // the last piece is as long as the others
			}
		}
	}
	for _, s := range secrets {
		add(s)
		for line := range strings.Lines(s) {
			if line = strings.TrimSpace(line); line != s {
				add(line)
			}
		}
	}
	if len(all) == 0 {
		return r
	}
	slices.SortFunc(all, func(a, b rawNeedle) int { return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.tail, b.tail)) })
	return redactor{append(slices.Clip(r.sets), newNeedles(slices.Compact(all))), longest}
}

// newNeedles takes them in order.
func newNeedles(raw []rawNeedle) needles {
	n := needles{bits: uint(bits.Len(uint(len(raw)))), all: make([]uint64, len(raw))}
	n.index = make([]uint32, 1<<n.bits+1)
	for i, r := range raw {
		n.all[i] = uint64(r.begin<<n.bits>>16)<<48 | r.tail
		n.index[r.begin>>(32-n.bits)+1] = uint32(i + 1)
	}
	for i := range n.index[1:] { // the buckets that are empty
		n.index[i+1] = max(n.index[i+1], n.index[i])
	}
	for i := range len(n.index) - 1 { // what 16 bits say is in order where 32 are
		slices.Sort(n.all[n.index[i]:n.index[i+1]])
	}
	return n
}

// at is the length of the longest needle that s begins with, 0 for none; begin is the
// hash of its beginning.
func (n needles) at(s string, begin uint32) (length int) {
	bucket, rest := begin>>(32-n.bits), uint64(begin<<n.bits>>16)
	h, hashed := uint64(fnvOffset), 0
	for _, needle := range n.all[n.index[bucket]:n.index[bucket+1]] {
		size := int(needle>>hashBits&0xff) + 1
		if needle>>48 != rest || size > len(s) {
			continue
		}
		for ; hashed < size; hashed++ {
			h = (h ^ uint64(s[hashed])) * fnvPrime
		}
		if needle<<(64-hashBits) == h>>(64-hashBits)<<(64-hashBits) {
			length = size
		}
	}
	return length
}

// encodings returns a value as it is, in JSON, in URLs, in hexadecimal digits and
// in base64. There it has three forms, by where in the encoded text it begins; of
// each, what only the value decides.
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
			first := (offset*8 + 5) / 6 // characters that hold bits of what is before
			last := (offset + len(s)) * 8 / 6
			all = append(all, text[first:last])
		}
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(s string) bool { return len(s) < compiler.MinSecret })
}

func (r redactor) text(s string) string { return r.cut(s, 0, len(s)) }

// cut redacts a text, and all of it before and after two places. Secrets that overlap
// are one.
func (r redactor) cut(s string, before, after int) string {
	if r.longest == 0 {
		return s
	}
	var clean strings.Builder
	done, from, to := 0, 0, before // of s: what is in clean, and the secret found last
	found := func(i, length int) {
		if i >= to && to > from {
			clean.WriteString(s[done:from] + redacted)
			done = to
		}
		if i >= to {
			from = i
		}
		to = max(to, i+length)
	}
	var w uint64
	for i := range len(s) {
		w = window(w, s[i])
		if begin := i + 1 - compiler.MinSecret; begin >= 0 {
			for _, set := range r.sets {
				if length := set.at(s[begin:], hashWindow(w)); length > 0 {
					found(begin, length)
				}
			}
		}
	}
	if after < len(s) {
		found(max(after, from), len(s)-max(after, from))
	}
	found(len(s), 0)
	if done == 0 {
		return s
	}
	return clean.String() + s[done:]
}

// output redacts the bytes of a stream, before they are made valid UTF-8. Where
// the middle was cut out, so is what may be a part of a secret at the edges.
func (r redactor) output(o runtime.Output) string {
	cut := o.Cut()
	if cut <= 0 {
		return strings.ToValidUTF8(r.text(string(o.Bytes())), "\uFFFD")
	}
	edge := max(r.longest-1, 0)
	o.Head = []byte(r.cut(string(o.Head), 0, max(len(o.Head)-edge, 0)))
	o.Tail = []byte(r.cut(string(o.Tail), min(edge, len(o.Tail)), len(o.Tail)))
	o.Total = cut + int64(len(o.Head)) + int64(len(o.Tail)) // so that it says how much was cut before
	return strings.ToValidUTF8(string(o.Bytes()), "\uFFFD")
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
