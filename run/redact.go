package run

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"math/bits"
	"net/url"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/runtime"
)

const (
	redacted  = "<redacted>"
	maxNeedle = 256 // bytes; a longer secret is searched for in overlapping pieces
	minWord   = 16  // bytes from which a line of one word is a secret; shorter words, such as "return", are common
)

// redactor replaces secrets in texts. To save memory, it keeps hashes instead of the values.
// The zero redactor replaces nothing. It is safe for concurrent use.
type redactor struct {
	sets    []needles
	longest int
}

// needles are hashes of the strings to search for: secrets in each encoding, or pieces of
// them. Each takes about 14 bytes.
type needles struct {
	all   []uint64 // see newNeedle; sorted
	bits  uint     // the first bits of a needle that select its bucket
	index []uint32 // where each bucket begins in all, and where the last bucket ends
}

// window appends a byte to w, which holds the last compiler.MinSecret bytes.
func window(w uint64, c byte) uint64 { return (w<<8 | uint64(c)) & (1<<(8*compiler.MinSecret) - 1) }

func hashWindow(w uint64) uint32 { return uint32(w * 0x9E3779B97F4A7C15 >> (64 - beginBits)) } // Fibonacci hashing

const fnvOffset, fnvPrime = 14695981039346656037, 1099511628211 // FNV-1a

// hashBits are the bits of a needle that hash all of it. They follow beginBits of a hash of
// its first compiler.MinSecret bytes, and 8 bits of its length minus one. Many lines of
// tests begin alike, so hashBits alone must keep false matches rare.
const beginBits, hashBits = 24, 32

func newNeedle(s string) uint64 {
	var w uint64
	for i := range compiler.MinSecret {
		w = window(w, s[i])
	}
	h := uint64(fnvOffset)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * fnvPrime
	}
	return uint64(hashWindow(w))<<(64-beginBits) | uint64(len(s)-1)<<hashBits | h>>(64-hashBits)
}

// with returns a redactor that also replaces the secrets and each of their lines, as they are and in
// common encodings. It ignores strings shorter than compiler.MinSecret bytes, and lines of one word
// shorter than minWord.
func (r redactor) with(secrets ...string) redactor {
	var all []uint64
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
			if line = strings.TrimSpace(line); line != s && (len(line) >= minWord || strings.ContainsAny(line, " \t")) {
				add(line)
			}
		}
	}
	if len(all) == 0 {
		return r
	}
	return redactor{append(slices.Clip(r.sets), newNeedles(all)), longest}
}

func newNeedles(all []uint64) needles {
	slices.Sort(all)
	n := needles{all: slices.Clone(slices.Compact(all))}
	n.bits = min(uint(bits.Len(uint(len(n.all)))), beginBits)
	n.index = make([]uint32, 1<<n.bits+1)
	for i, needle := range n.all {
		n.index[needle>>(64-n.bits)+1] = uint32(i + 1)
	}
	for i := range n.index[1:] { // empty buckets
		n.index[i+1] = max(n.index[i+1], n.index[i])
	}
	return n
}

// at returns the length of the longest needle that s begins with, or 0. begin is the hash
// of the first compiler.MinSecret bytes of s.
func (n needles) at(s string, begin uint32) (length int) {
	bucket := begin >> (beginBits - n.bits)
	h, hashed := uint64(fnvOffset), 0
	for _, needle := range n.all[n.index[bucket]:n.index[bucket+1]] {
		size := int(needle>>hashBits&0xff) + 1
		if uint32(needle>>(64-beginBits)) != begin || size > len(s) {
			continue
		}
		for ; hashed < size; hashed++ { // the sizes ascend
			h = (h ^ uint64(s[hashed])) * fnvPrime
		}
		if needle&(1<<hashBits-1) == h>>(64-hashBits) {
			length = size
		}
	}
	return length
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
	piece, kept := make([]byte, max(min(size+1, 1<<20), 2*maxNeedle)), 0
	for {
		n, err := io.ReadFull(from, piece[kept:])
		read := string(piece[:kept+n])
		switch {
		case r.text(read) != read:
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
	if r.longest == 0 {
		return s
	}
	var clean strings.Builder
	done, from, to := 0, 0, before // offsets: where the part that is in clean ends, and the latest secret
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

// wholeRecord redacts what record does, and the candidate's text or patch.
func (r redactor) wholeRecord(rec record.Record) record.Record {
	for _, field := range []**string{&rec.CandidateText, &rec.CandidatePatch} {
		if *field != nil {
			*field = new(r.text(**field))
		}
	}
	rec = r.record(rec)
	if read, ok := rec.VerifierMetadata[record.MetadataRead].(string); ok {
		rec.VerifierMetadata[record.MetadataRead] = r.text(read)
	}
	return rec
}

// record redacts the texts of a record except identifiers, the candidate, and the answer that the
// verifier read in it: a right answer equals the hidden one.
func (r redactor) record(rec record.Record) record.Record {
	rec.ProducerStdout, rec.ProducerStderr = r.text(rec.ProducerStdout), r.text(rec.ProducerStderr)
	rec.VerifierStdout, rec.VerifierStderr = r.text(rec.VerifierStdout), r.text(rec.VerifierStderr)
	rec.FailureMessage = r.text(rec.FailureMessage)
	rec.Steps = slices.Clone(rec.Steps)
	for i := range rec.Steps {
		step := &rec.Steps[i]
		step.FailureMessage = r.text(step.FailureMessage)
		rewards := map[string]float64{}
		for name, n := range step.Rewards {
			rewards[r.text(name)] = n
		}
		step.Rewards = rewards
	}
	read, isRead := rec.VerifierMetadata[record.MetadataRead]
	rec.ProducerMetadata, rec.VerifierMetadata = r.object(rec.ProducerMetadata), r.object(rec.VerifierMetadata)
	if isRead {
		rec.VerifierMetadata[record.MetadataRead] = read
	}
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
