package relay

import (
	"bytes"
	"encoding/json"
	"io"
)

// minKey is the length from which a key is looked for in answers. A shorter one
// stands in any text by chance.
const minKey = 8

// A scrubber passes bytes on without the key, should an upstream repeat what it
// was sent. It holds bytes back only while they may be the beginning of the key,
// which the end of an event never is.
type scrubber struct {
	key  []byte
	out  io.Writer
	held []byte
}

func newScrubber(k Key, out io.Writer) *scrubber {
	s := &scrubber{out: out}
	if v := k.value(); len(v) >= minKey {
		s.key = []byte(v)
	}
	return s
}

func (s *scrubber) Write(p []byte) (int, error) {
	if s.key == nil {
		return s.out.Write(p)
	}
	b := p
	if len(s.held) > 0 {
		b = append(s.held, p...)
		s.held = nil
	}
	if bytes.Contains(b, s.key) {
		b = bytes.ReplaceAll(b, s.key, []byte(redacted))
	}
	n := s.begun(b)
	if n > 0 {
		s.held = bytes.Clone(b[len(b)-n:])
	}
	if len(b) > n {
		if _, err := s.out.Write(b[:len(b)-n]); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// begun is the length of the end of b that the key begins with.
func (s *scrubber) begun(b []byte) int {
	for n := min(len(b), len(s.key)-1); n > 0; n-- {
		if bytes.HasSuffix(b, s.key[:n]) {
			return n
		}
	}
	return 0
}

// flush writes what was held back, unless it is so much of the key that no
// chance explains it.
func (s *scrubber) flush() error {
	held := s.held
	if s.held = nil; len(held) == 0 {
		return nil
	}
	if len(held) >= minKey {
		held = []byte(redacted)
	}
	_, err := s.out.Write(held)
	return err
}

// maxHidden bounds the event that a hider keeps to look at. The chunk it hides
// is short.
const maxHidden = 64 << 10

// A hider passes a chat's stream on, event by event, without the chunk that only
// counts tokens: the agent did not ask for it, and some clients take the first
// choice of every chunk.
type hider struct {
	out  *scrubber
	held []byte // of the event begun
	text bool   // its last line is not empty
	raw  bool   // it is too long to be hidden
}

func (h *hider) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n') + 1
		if i == 0 {
			i = len(p)
		}
		if err := h.piece(p[:i]); err != nil {
			return 0, err
		}
		p = p[i:]
	}
	return n, nil
}

// piece takes one line, or a part of one.
func (h *hider) piece(p []byte) error {
	h.held = append(h.held, p...)
	h.text = h.text || len(bytes.Trim(p, "\r\n")) > 0
	h.raw = h.raw || len(h.held) > maxHidden
	if p[len(p)-1] == '\n' {
		end := !h.text
		h.text = false
		if end {
			return h.end()
		}
	}
	if h.raw {
		return h.pass()
	}
	return nil
}

func (h *hider) end() error {
	hide := !h.raw && onlyUsage(h.held)
	h.raw = false
	if hide {
		h.held = h.held[:0]
		return nil
	}
	return h.pass()
}

func (h *hider) pass() error {
	held := h.held
	h.held = h.held[:0]
	_, err := h.out.Write(held)
	return err
}

// flush writes the event that the stream's end cut off.
func (h *hider) flush() error {
	if len(h.held) > 0 {
		if err := h.pass(); err != nil {
			return err
		}
	}
	return h.out.flush()
}

// onlyUsage says whether an event is the chunk that counts and holds no choice.
func onlyUsage(raw []byte) bool {
	if !bytes.Contains(raw, []byte(`"usage"`)) {
		return false
	}
	hide := false
	r := eventReader{event: func(data []byte) {
		var chunk struct {
			Choices *[]json.RawMessage `json:"choices"`
			Usage   *json.RawMessage   `json:"usage"`
		}
		hide = json.Unmarshal(data, &chunk) == nil && chunk.Choices != nil && len(*chunk.Choices) == 0 && chunk.Usage != nil
	}}
	r.write(raw)
	return hide
}
