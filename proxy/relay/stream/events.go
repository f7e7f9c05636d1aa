package stream

import "bytes"

// maxEvent bounds one event of a stream, in bytes. The last event of the Responses API repeats the
// whole answer.
const maxEvent = 16 << 20

// Events finds the data of server-sent events in a stream of pieces. It accepts all line
// endings of the standard, but a lone CR takes effect only when an LF follows or the stream ends.
// Libraries would need an io.Reader, but the relay writes the pieces while they pass to the agent.
type Events struct {
	Event    func(data []byte) // called for each event with data, which is valid until it returns
	line     []byte            // the current line
	data     []byte            // of the current event
	has      bool              // the current event has data
	tooLarge bool              // the current event is too large and is skipped
	Memory   Memory            // for line and data
}

// Add takes the next piece. It does not retain p.
func (r *Events) Add(p []byte) {
	for piece := range bytes.Lines(p) {
		line, ended := bytes.CutSuffix(piece, []byte{'\n'})
		if !ended || len(r.line) > 0 {
			r.appendLine(line)
			line = r.line
		}
		if ended {
			r.lines(line)
			r.line = r.line[:0]
		}
	}
}

// Close ends the last line and the last event at the end of the stream.
func (r *Events) Close() {
	r.lines(r.line)
	r.line = nil
	r.dispatch()
}

func (r *Events) appendLine(p []byte) {
	if len(r.line)+len(p) > maxEvent || !r.Memory.Enough(len(r.line)+len(p)+cap(r.data)) {
		r.tooLarge = true
		return
	}
	r.line = append(r.line, p...)
}

// lines splits the text between two LFs at its CRs.
func (r *Events) lines(p []byte) {
	for line := range bytes.SplitSeq(bytes.TrimSuffix(p, []byte{'\r'}), []byte{'\r'}) {
		r.oneLine(line)
	}
}

func (r *Events) oneLine(line []byte) {
	if len(line) == 0 {
		r.dispatch()
		return
	}
	value, ok := bytes.CutPrefix(line, []byte("data"))
	if !ok || len(value) > 0 && value[0] != ':' {
		return // another field
	}
	value = bytes.TrimPrefix(bytes.TrimPrefix(value, []byte{':'}), []byte{' '})
	if len(r.data)+len(value) >= maxEvent || !r.Memory.Enough(len(r.data)+len(value)+cap(r.line)) {
		r.tooLarge = true
		return
	}
	if r.has {
		r.data = append(r.data, '\n')
	}
	r.data, r.has = append(r.data, value...), true
}

func (r *Events) dispatch() {
	if r.has && !r.tooLarge {
		r.Event(r.data)
	}
	r.has, r.tooLarge = false, false
	if r.data = r.data[:0]; cap(r.data) > 1<<20 {
		r.data = nil
	}
}

// Memory is memory that was reserved. The zero Memory has no bound.
type Memory struct {
	Hold func(bytes int64) bool // reserves more, and returns false if there is not enough
	have int64
}

// holdBytes is the least memory that is reserved at a time.
const holdBytes = 64 << 10

// Enough reserves memory for so many bytes in all. It returns false if there is not enough.
func (m *Memory) Enough(bytes int) bool {
	if int64(bytes) <= m.have || m.Hold == nil {
		return true
	}
	more := max(2*int64(bytes)-m.have, holdBytes) // what does not fit any more is copied into twice the space
	if !m.Hold(more) {
		return false
	}
	m.have += more
	return true
}
