package harness

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// A Step is something that an agent reports having said or done.
type Step struct {
	Kind   StepKind
	Title  string
	Text   string // of a tool: its input; of an edit: the file and the changed lines
	Output string // of a command or tool
	Exit   int    // a command's exit code
	Failed bool
	Piece  bool // a message continues the one before it, if that is a piece, too
	// Call links a StepResult to the earlier step whose Output and Failed it provides; ""
	// links to none.
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
