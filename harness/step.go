package harness

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/securebench/sbench/workspace/foreign"
)

// A Step is a message or an action that an agent reports.
type Step struct {
	Kind   StepKind
	Title  string
	Text   string // of a tool: its input; of an edit: the file and the changed lines
	Output string // of a command or tool
	Exit   int    // a command's exit code
	Failed bool
	Piece  bool // a part of a message: pieces that follow one another are one message
	// Call, unless "", is the id of a tool call. A StepResult has the Output and Failed of the
	// earlier step with the same Call.
	Call string
}

// A StepKind is the kind of a [Step].
type StepKind string

// The kinds of steps.
const (
	StepMessage  StepKind = "message"
	StepThinking StepKind = "thinking"
	StepCommand  StepKind = "command"
	StepTool     StepKind = "tool"
	StepFiles    StepKind = "files"
	StepResult   StepKind = "result" // of the step with the same Call
	StepNote     StepKind = "note"
	StepError    StepKind = "error"
)

// String returns the step, possibly as several lines, for people who watch the agent; "" if
// there is nothing to show.
func (s Step) String() string {
	lines := []string{s.Text, s.Output}
	switch s.Kind {
	case StepNote:
		return ""
	case StepCommand:
		lines[0] = "$ " + s.Text
		if s.Exit != 0 {
			lines = append(lines, fmt.Sprint("exit status ", s.Exit))
		}
	case StepTool:
		lines[0] = s.Title
	case StepFiles:
		if s.Title != "" {
			file, _, _ := strings.Cut(s.Text, "\n")
			lines[0] = words(s.Title, file)
		}
	case StepError:
		lines[0] = "error: " + cmp.Or(s.Text, s.Title)
	}
	for i, text := range lines {
		lines[i] = strings.TrimRight(text, " \n")
	}
	return strings.Join(slices.DeleteFunc(lines, func(text string) bool { return text == "" }), "\n")
}

// cutEvent replaces an event that is too long.
const cutEvent = "sbench.cut"

// unknown returns the step for an event, or part of one, that an agent's parser does not
// know.
func unknown(kind string) []Step {
	if kind == cutEvent {
		kind = "an event was too long to be kept"
	}
	return []Step{{Kind: StepNote, Title: kind}}
}

// words joins the words that are not empty.
func words(list ...string) string {
	return strings.Join(slices.DeleteFunc(list, func(w string) bool { return w == "" }), " ")
}

// plain returns the text of a JSON string, or the JSON of any other value.
func plain(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

// An eventRule says what a line of a program's output means. The first rule that fits a line counts. A rule with Each fits
// only if there is a list.
type eventRule struct {
	When   map[string]texts `key:"when" rule:"required conditions" doc:"Conditions that all must hold, by path."`
	Each   string           `key:"each" doc:"Where a list is, as a path such as part.items. The other rules read each of its items as they read a line."`
	Step   string           `key:"step" enum:"message,thinking,command,tool,files,result,note,error" doc:"What the agent did; none if absent."` // a StepKind
	Title  string           `key:"title" doc:"Where its title is, such as a tool's name, as a path such as part.text."`
	Text   texts            `key:"text" rule:"paths" doc:"Where its text is: the message, the command, or the tool's input, as a path such as part.text, or a list of paths of its lines."`
	Output texts            `key:"output" rule:"paths" doc:"Where the output of a command or tool is, as a path such as part.text, or a list of paths of its parts."`
	Exit   string           `key:"exit" doc:"Where a command's exit code is, as a path such as part.text."`
	Call   string           `key:"call" doc:"Where the call's id is, by which a result finds its step, as a path such as part.text."`
	Failed map[string]texts `key:"failed" rule:"conditions" doc:"Conditions under which it failed."`
	Piece  bool             `key:"piece" doc:"Whether it continues the message before it."` // see Step
}

// readerOf returns the parser for the rules of a descriptor. Without rules, each line is a message.
func readerOf(rules []eventRule) func([]byte) ([]Step, bool) {
	if len(rules) == 0 {
		return func(line []byte) ([]Step, bool) {
			return []Step{{Kind: StepMessage, Text: string(line)}}, len(line) > 0
		}
	}
	return func(line []byte) ([]Step, bool) {
		if foreign.Values(line) > maxEventValues {
			return unknown(cutEvent), true
		}
		return readRuled(rules, line, false)
	}
}

// maxEventValues bounds the JSON values of an event. It bounds what sbench spends on a sandbox's output.
const maxEventValues = 1 << 14

// readRuled reads a line, or an item of a list in it. Lists of an item are not read, so that the time does not grow with
// the depth of a line.
func readRuled(rules []eventRule, line []byte, isItem bool) (steps []Step, ok bool) {
	e := event{line, map[string]map[string]json.RawMessage{}}
	if e.members("") == nil {
		return nil, false
	}
	i := slices.IndexFunc(rules, func(r eventRule) bool {
		return e.fits(r.When) && (r.Each == "" || !isItem && bytes.HasPrefix(e.at(r.Each), []byte("[")))
	})
	switch {
	case i < 0:
		kind := plain(e.at("type"))
		return unknown(kind), kind != "" && e.at("type")[0] == '"'
	case rules[i].Each != "":
		var items []json.RawMessage
		_ = json.Unmarshal(e.at(rules[i].Each), &items) // cannot fail: it is a list
		for _, item := range items {
			more, _ := readRuled(rules, item, true)
			steps = append(steps, more...)
		}
		return steps, true
	case rules[i].Step == "":
		return nil, true
	}
	return []Step{rules[i].step(e)}, true
}

// An event is a line of JSON. Each object in it is parsed once, however many rules look into it.
type event struct {
	line   []byte
	parsed map[string]map[string]json.RawMessage // by path; "" is the line
}

func (e event) members(of string) map[string]json.RawMessage {
	found, known := e.parsed[of]
	if !known {
		raw := json.RawMessage(e.line)
		if of != "" {
			raw = e.at(of)
		}
		_ = json.Unmarshal(raw, &found) // anything but an object has no members
		e.parsed[of] = found
	}
	return found
}

// at returns the value at a path of members; nil if there is none.
func (e event) at(path string) json.RawMessage {
	i := strings.LastIndexByte(path, '.')
	return e.members(path[:max(i, 0)])[path[i+1:]]
}

func (e event) fits(conditions map[string]texts) bool {
	for at, want := range conditions {
		v := e.at(at)
		if len(v) == 0 || string(v) == "null" || !slices.Contains(want, "*") && !slices.Contains(want, plain(v)) {
			return false
		}
	}
	return true
}

func (r eventRule) step(e event) Step {
	text := func(at string) string {
		if v := e.at(at); at != "" && len(v) > 0 && string(v) != "null" {
			return plain(v)
		}
		return ""
	}
	s := Step{Kind: StepKind(r.Step), Title: text(r.Title), Call: text(r.Call), Piece: r.Piece}
	var lines []string
	for _, at := range r.Text {
		if line := text(at); line != "" {
			lines = append(lines, line)
		}
	}
	s.Text = strings.Join(lines, "\n")
	for _, at := range r.Output {
		s.Output += text(at)
	}
	_ = json.Unmarshal(e.at(r.Exit), &s.Exit) // else it is 0
	s.Failed = len(r.Failed) > 0 && e.fits(r.Failed)
	return s
}

// An EventReader reads what a program prints, line by line, and hands on the steps in it. Pieces of a message that follow
// one another are one step.
type EventReader struct {
	Read     func(line []byte) (steps []Step, ok bool) // parses a line; ok is false if it is not an event
	Step     func(Step)
	Trace    io.Writer // receives the lines, each by one Write; nil for none
	MaxPiece int       // bytes that are kept of a message that comes in pieces

	line  []byte // incomplete
	cut   bool   // the line was longer than maxEvent
	count int    // of events
	kind  StepKind
	text  []byte // the beginning of a message of this kind that is not yet complete
}

// maxEvent bounds a line in memory, in bytes. A longer one is replaced by a cutEvent.
const maxEvent = 16 << 20

// Write implements io.Writer.
func (r *EventReader) Write(p []byte) (int, error) {
	for piece := range bytes.Lines(p) {
		text, whole := bytes.CutSuffix(piece, []byte("\n"))
		r.line = append(r.line, text...)
		switch {
		case whole:
			r.endLine()
		case len(r.line) > maxEvent:
			r.line, r.cut = r.line[:0], true
		}
	}
	return len(p), nil
}

// End says that the output is complete. A last line without a line break counts, too.
func (r *EventReader) End() {
	if len(r.line) > 0 {
		r.endLine()
	}
	r.endPieces()
}

// endLine handles a complete line. A trace error does not stop the agent: the record has the output as well.
func (r *EventReader) endLine() {
	line := r.line
	r.line = r.line[:0]
	if r.cut {
		r.cut = false
		line = []byte(`{"type":"` + cutEvent + `"}`)
	}
	if r.Trace != nil {
		_, _ = r.Trace.Write(append(bytes.Clone(line), '\n'))
	}
	steps, ok := r.Read(line)
	if ok {
		r.count++
	}
	for _, s := range steps {
		if s.Piece {
			r.text = append(r.text, s.Text[:min(len(s.Text), r.MaxPiece-len(r.text))]...)
			r.kind = s.Kind
			continue
		}
		r.endPieces()
		r.Step(s)
	}
}

// endPieces hands on the message that came in pieces, if there is one.
func (r *EventReader) endPieces() {
	if len(r.text) > 0 {
		r.Step(Step{Kind: r.kind, Text: string(r.text)})
		r.text = r.text[:0]
	}
}
