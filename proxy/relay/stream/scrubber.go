// Package stream reads and changes a provider's answer while it passes: it finds the events of a stream, and
// cuts out the key and what the agent did not ask for.
package stream

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"slices"
	"strings"
)

// A Secret is a key that an upstream may repeat: literally, in base64 of either alphabet at
// any offset, or in hexadecimal, with any character escaped as in JSON or a URL.
type Secret struct {
	least int // a beginning of the key with so many characters is not there by chance
	forms []form
	first [256]uint16 // a bit for each form that the byte may begin
}

// A form is a way to write the key: the spellings of each character.
type form [][]string

// NewSecret returns the secret of a key; "" is none.
func NewSecret(key string, least int) *Secret {
	s := &Secret{least: max(least, 1)}
	if len(key) < s.least {
		return s
	}
	for _, e := range Encodings(key) {
		s.forms = append(s.forms, newForm(e[0], e[1]))
	}
	for i, f := range s.forms {
		for _, spelling := range f[0] {
			s.first[spelling[0]] |= 1 << i
		}
	}
	return s
}

// Encodings returns a text as it is, in hexadecimal digits and, for each offset in the encoded data, in base64, without the
// characters that also depend on neighbouring bytes. Each has both cases of the digits, or both alphabets.
func Encodings(text string) (all [][2]string) {
	inHex := hex.EncodeToString([]byte(text))
	all = [][2]string{{text, text}, {inHex, strings.ToUpper(inHex)}}
	for before := range 3 { // bytes before the text in its first group of three
		raw := append(make([]byte, before), text...)
		from, to := (8*before+5)/6, 8*len(raw)/6
		all = append(all, [2]string{base64.RawStdEncoding.EncodeToString(raw)[from:to], base64.RawURLEncoding.EncodeToString(raw)[from:to]})
	}
	return all
}

// newForm returns the form of a text. Each character of others is another spelling of the character
// of text at the same place. All are printable ASCII.
func newForm(text, others string) (f form) {
	for i := range len(text) {
		var spellings []string
		for _, c := range slices.Compact([]byte{text[i], others[i]}) {
			code := hex.EncodeToString([]byte{c})
			spellings = append(spellings, string(rune(c)))
			for _, prefix := range []string{`\u00`, `\\u00`, `\\\\u00`, "%", "%25"} {
				spellings = append(spellings, prefix+code, prefix+strings.ToUpper(code))
			}
		}
		if text[i] == '/' {
			spellings = append(spellings, `\/`)
		}
		f = append(f, spellings)
	}
	return f
}

// Scrub returns a text without the key.
func (s *Secret) Scrub(text []byte) []byte {
	var out bytes.Buffer
	w := NewScrubber(s, &out)
	_, _ = w.Write(text) // a bytes.Buffer does not fail
	_ = w.Flush()
	return out.Bytes()
}

// A Scrubber forwards bytes without the key. It delays bytes only if they may begin a spelling of the
// key, and at most one spelling. It never delays the end of an event.
type Scrubber struct {
	*Secret
	out     io.Writer
	pending []byte // possible beginning of a spelling
}

// NewScrubber returns a scrubber that writes to out.
func NewScrubber(s *Secret, out io.Writer) *Scrubber { return &Scrubber{Secret: s, out: out} }

// Write implements io.Writer.
func (s *Scrubber) Write(p []byte) (int, error) {
	b := p
	if len(s.pending) > 0 {
		b = append(s.pending, p...)
		s.pending = nil
	}
	var clean []byte
	begin := 0 // of the bytes that are not yet in clean
	for i := 0; i < len(b); i++ {
		size, begun := s.at(b[i:])
		if begun > 0 && size == 0 {
			s.pending = bytes.Clone(b[i:])
			b = b[:i]
			break
		}
		if size > 0 {
			clean = append(append(clean, b[begin:i]...), Redacted...)
			begin = i + size
			i = begin - 1
		}
	}
	if clean != nil {
		b = append(clean, b[begin:]...)
	}
	if len(b) > 0 {
		if _, err := s.out.Write(b); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// at returns the size in bytes of the key's spelling at the start of b, or 0. If b ends within a
// possible spelling, size is 0, and begun is the number of the key's characters before the end.
func (s *Secret) at(b []byte) (size, begun int) {
	mask := s.first[b[0]]
	for i := 0; mask != 0; i, mask = i+1, mask>>1 {
		if mask&1 == 0 {
			continue
		}
		size, chars := s.forms[i].match(b)
		if size > 0 {
			return size, chars
		}
		begun = max(begun, chars)
	}
	return 0, begun
}

// match returns the size of the spelling at the start of b and its number of characters. If b ends
// within a possible spelling, the size is 0. Without a spelling, both are 0.
func (f form) match(b []byte) (size, chars int) {
	for i, spellings := range f {
		n, more := 0, false
		for _, s := range spellings {
			have := min(len(s), len(b)-size)
			if string(b[size:size+have]) != s[:have] {
				continue
			}
			if more = true; have == len(s) {
				n = have
				break
			}
		}
		switch {
		case n == 0 && more:
			return 0, i + 1
		case n == 0:
			return 0, 0
		}
		size += n
	}
	return size, len(f)
}

// Flush writes the pending bytes. It replaces a beginning of the key that is too long to be there by
// chance.
func (s *Scrubber) Flush() error {
	pending := s.pending
	s.pending = nil
	for i := range pending {
		if _, begun := s.at(pending[i:]); begun >= s.least {
			pending = append(pending[:i], Redacted...)
			break
		}
	}
	if len(pending) == 0 {
		return nil
	}
	_, err := s.out.Write(pending)
	return err
}

// Redacted is in place of what was cut out.
const Redacted = "<redacted>"

// maxHidden bounds the size of a line to hide, in bytes.
const maxHidden = 64 << 10

// A Hider forwards a chat's stream, line by line, without the chunk that only counts
// tokens: the agent did not ask for it, and some clients expect a choice in every chunk.
type Hider struct {
	out     *Scrubber
	pending []byte // of the current line
	long    bool   // the current line is too long to be hidden
	hidden  bool   // the last line was hidden, so the empty line that ends its event is, too
}

// NewHider returns a hider that writes to out.
func NewHider(out *Scrubber) *Hider { return &Hider{out: out} }

// Write implements io.Writer.
func (h *Hider) Write(p []byte) (int, error) {
	for piece := range bytes.Lines(p) {
		h.pending = append(h.pending, piece...)
		ended := piece[len(piece)-1] == '\n'
		if h.long = h.long || len(h.pending) > maxHidden; !ended && !h.long {
			continue
		}
		line := bytes.TrimRight(h.pending, "\r\n")
		hide := !h.long && (onlyUsage(line) || h.hidden && len(line) == 0)
		h.hidden, h.long = hide && len(line) > 0, h.long && !ended
		if hide {
			h.pending = h.pending[:0]
		} else if err := h.writePending(); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func (h *Hider) writePending() error {
	pending := h.pending
	h.pending = h.pending[:0]
	_, err := h.out.Write(pending)
	return err
}

// Flush writes an incomplete line at the end of the stream.
func (h *Hider) Flush() error {
	if err := h.writePending(); err != nil {
		return err
	}
	return h.out.Flush()
}

// onlyUsage reports whether a line is the chunk that has token counts and no choices.
func onlyUsage(line []byte) bool {
	data, ok := bytes.CutPrefix(line, []byte("data:"))
	if !ok || !bytes.Contains(data, []byte(`"usage"`)) {
		return false
	}
	var chunk struct {
		Choices *[]json.RawMessage `json:"choices"`
		Usage   *json.RawMessage   `json:"usage"`
	}
	return json.Unmarshal(data, &chunk) == nil && chunk.Choices != nil && len(*chunk.Choices) == 0 && chunk.Usage != nil
}
