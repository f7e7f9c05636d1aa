package harness

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler/schema"
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

// readers are the parsers for formats of output that have a name.
var readers = map[string]func([]byte) ([]Step, bool){"codex": readCodex, "claude_code": readClaude}

// An eventRule says what a line of a program's output means. The first rule that fits a line counts.
type eventRule struct {
	When        map[string]texts // the allowed values, by path
	Step        StepKind         // "" for none
	Title, Text string           // paths
	Output      texts            // paths; their texts are joined
	Exit, Call  string           // paths
	Failed      map[string]texts // as When
	Piece       bool             // see Step
}

func ruleSchema() *schema.Schema {
	scalar := func(doc string) *schema.Schema {
		return &schema.Schema{Doc: doc, String: &schema.String{}, Number: &schema.Number{}, Boolean: true}
	}
	value := orList(scalar("The value, or a list of values that are allowed; * allows anything but null."), scalar(""), 1)
	at := func(doc string) *schema.Schema { return schema.Text(doc + ", as a path such as part.text.") }
	return schema.Closed("What a line of JSON means.",
		required("when", mapOf("Conditions that all must hold, by path.", value)),
		optional("step", schema.Enum("What the agent did; none if absent.", string(StepMessage), string(StepThinking), string(StepCommand), string(StepTool),
			string(StepFiles), string(StepResult), string(StepNote), string(StepError))),
		optional("title", at("Where its title is, such as a tool's name")),
		optional("text", at("Where its text is: the message, the command, or the tool's input")),
		optional("output", orList(at("Where the output of a command or tool is"), at("Where a part of it is"), 0)),
		optional("exit", at("Where a command's exit code is")),
		optional("call", at("Where the call's id is, by which a result finds its step")),
		optional("failed", mapOf("Conditions under which it failed.", value)),
		optional("piece", schema.Boolean("Whether it continues the message before it.", false)),
	)
}

// readerOf returns the parser that a descriptor's events ask for. Without events, each line is a
// message.
func readerOf(events json.RawMessage) func([]byte) ([]Step, bool) {
	if len(events) == 0 {
		return func(line []byte) ([]Step, bool) {
			return []Step{{Kind: StepMessage, Text: string(line)}}, len(line) > 0
		}
	}
	read, named := readers[plain(events)]
	if !named {
		var rules []eventRule
		_ = json.Unmarshal(events, &rules) // the schema accepted them
		read = func(line []byte) ([]Step, bool) { return readRuled(rules, line) }
	}
	return func(line []byte) ([]Step, bool) {
		if foreign.Values(line) > maxEventValues {
			return unknown(cutEvent), true
		}
		return read(line)
	}
}

// maxEventValues bounds the JSON values of an event. It bounds what sbench spends on a sandbox's output.
const maxEventValues = 1 << 14

func readRuled(rules []eventRule, line []byte) ([]Step, bool) {
	e := event{line, map[string]map[string]json.RawMessage{}}
	if e.members("") == nil {
		return nil, false
	}
	i := slices.IndexFunc(rules, func(r eventRule) bool { return e.fits(r.When) })
	switch {
	case i < 0:
		kind := plain(e.at("type"))
		return unknown(kind), kind != "" && e.at("type")[0] == '"'
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
	s := Step{Kind: r.Step, Title: text(r.Title), Text: text(r.Text), Call: text(r.Call), Piece: r.Piece}
	for _, at := range r.Output {
		s.Output += text(at)
	}
	_ = json.Unmarshal(e.at(r.Exit), &s.Exit) // else it is 0
	s.Failed = len(r.Failed) > 0 && e.fits(r.Failed)
	return s
}
