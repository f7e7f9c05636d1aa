package harness

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler/schema"
)

// readers are the formats of output that have parsers of their own.
var readers = map[string]func([]byte) ([]Step, bool){"codex": readCodex, "claude_code": readClaude}

// An eventRule says what lines of a program's output mean. The first rule that fits decides.
type eventRule struct {
	When        map[string]texts // what values must be, by path
	Step        StepKind         // "" for none
	Title, Text string           // paths
	Output      texts            // paths, whose texts follow each other
	Exit, Call  string           // paths
	Failed      map[string]texts // as When
	Piece       bool             // see Step
}

func ruleSchema() *schema.Schema {
	one := func(doc string) *schema.Schema {
		return &schema.Schema{Doc: doc, String: &schema.String{}, Number: &schema.Number{}, Boolean: true}
	}
	value := orList(one("What the value must be, or one of several; * for anything but null."), one(""), 1)
	at := func(doc string) *schema.Schema { return schema.Text(doc + ", as a path such as part.text.") }
	return schema.Closed("What a line of JSON means.",
		required("when", mapOf("Conditions that all must hold, by path.", value)),
		optional("step", schema.Enum("What the agent did; none if absent.", string(StepMessage), string(StepThinking), string(StepCommand), string(StepTool),
			string(StepFiles), string(StepResult), string(StepNote), string(StepError))),
		optional("title", at("Where its title is, such as a tool's name")),
		optional("text", at("Where its text is: what was said, the command, the tool's input")),
		optional("output", orList(at("Where the output of a command or tool is"), at("Where a part of it is"), 0)),
		optional("exit", at("Where a command's exit code is")),
		optional("call", at("Where the call's id is, by which a result finds its step")),
		optional("failed", mapOf("Conditions under which it failed.", value)),
		optional("piece", schema.Boolean("Whether it continues the message before it.", false)),
	)
}

// readerOf returns the parser that a descriptor's events ask for. Without any, each line is a
// message.
func readerOf(events json.RawMessage) func([]byte) ([]Step, bool) {
	if len(events) == 0 {
		return func(line []byte) ([]Step, bool) {
			return []Step{{Kind: StepMessage, Text: string(line)}}, len(line) > 0
		}
	}
	if events[0] == '"' {
		return readers[plain(events)]
	}
	var rules []eventRule
	_ = json.Unmarshal(events, &rules) // the schema accepted them
	return func(line []byte) ([]Step, bool) {
		if len(line) > maxRuled { // each path is looked up on its own
			return unknown(cutEvent), true
		}
		var event map[string]json.RawMessage
		if json.Unmarshal(line, &event) != nil || event == nil {
			return nil, false
		}
		i := slices.IndexFunc(rules, func(r eventRule) bool { return fits(r.When, line) })
		switch {
		case i < 0:
			kind := plain(event["type"])
			return unknown(kind), kind != "" && event["type"][0] == '"'
		case rules[i].Step == "":
			return nil, true
		}
		return []Step{rules[i].step(line)}, true
	}
}

// maxRuled bounds the lines to which rules apply, in bytes.
const maxRuled = 1 << 20

func fits(conditions map[string]texts, line []byte) bool {
	for at, want := range conditions {
		v := lookUp(line, at)
		if len(v) == 0 || string(v) == "null" || !slices.Contains(want, "*") && !slices.Contains(want, plain(v)) {
			return false
		}
	}
	return true
}

// lookUp returns the value at a path of members; nil if there is none.
func lookUp(v json.RawMessage, at string) json.RawMessage {
	for name := range strings.SplitSeq(at, ".") {
		var members map[string]json.RawMessage
		if json.Unmarshal(v, &members) != nil {
			return nil
		}
		v = members[name]
	}
	return v
}

func (r eventRule) step(line []byte) Step {
	text := func(at string) string {
		if v := lookUp(line, at); at != "" && len(v) > 0 && string(v) != "null" {
			return plain(v)
		}
		return ""
	}
	s := Step{Kind: r.Step, Title: text(r.Title), Text: text(r.Text), Call: text(r.Call), Piece: r.Piece}
	for _, at := range r.Output {
		s.Output += text(at)
	}
	_ = json.Unmarshal(lookUp(line, r.Exit), &s.Exit) // else it is 0
	s.Failed = len(r.Failed) > 0 && fits(r.Failed, line)
	return s
}
