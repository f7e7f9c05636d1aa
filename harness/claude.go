package harness

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
)

// readClaude parses a line of "claude --output-format stream-json".
func readClaude(line []byte) ([]Step, bool) {
	var e struct {
		Type, Subtype, Model, Result string
		IsError                      bool    `json:"is_error"`
		Turns                        int     `json:"num_turns"`
		Duration                     float64 `json:"duration_ms"`
		Message                      struct{ Content json.RawMessage }
	}
	_ = json.Unmarshal(line, &e) // anything but an event has no type
	switch e.Type {
	case "":
		return nil, false
	case "assistant", "user":
		return claudeMessage(e.Type, e.Message.Content), true
	case "system":
		return []Step{{Kind: StepNote, Title: words("system", e.Subtype, e.Model)}}, true
	case "result":
		kind, turns := StepNote, "turns"
		if e.IsError {
			kind = StepError
		}
		if e.Turns == 1 {
			turns = "turn"
		}
		return []Step{{Kind: kind, Title: fmt.Sprintf("result: %s, %d %s, %.1f s", e.Subtype, e.Turns, turns, e.Duration/1000), Text: e.Result}}, true
	}
	return unknown(e.Type), true
}

type claudePart struct {
	Type, Text, Thinking, ID, Name string
	Input, Content                 json.RawMessage
	ToolUseID                      string `json:"tool_use_id"`
	IsError                        bool   `json:"is_error"`
}

// claudeMessage returns the steps of a message by from. content is a string or a list of
// parts.
func claudeMessage(from string, content json.RawMessage) (steps []Step) {
	var parts []claudePart
	if json.Unmarshal(content, &parts) != nil {
		if text := plain(content); text != "" {
			return []Step{{Kind: StepMessage, Title: from, Text: text}}
		}
		return nil
	}
	for _, p := range parts {
		switch p.Type {
		case "text":
			s := Step{Kind: StepMessage, Text: p.Text}
			if from != "assistant" {
				s.Title = from
			}
			steps = append(steps, s)
		case "thinking":
			steps = append(steps, Step{Kind: StepThinking, Text: p.Thinking})
		case "tool_use":
			steps = append(steps, p.use())
		case "tool_result":
			steps = append(steps, Step{Kind: StepResult, Call: p.ToolUseID, Output: p.result(), Failed: p.IsError})
		default:
			steps = append(steps, unknown(p.Type)...)
		}
	}
	return steps
}

// use returns a tool call: a command, an edit of a file, or any other tool with its
// input.
func (p claudePart) use() Step {
	var input map[string]any
	_ = json.Unmarshal(p.Input, &input) // any other input is shown as it is
	if command, ok := input["command"].(string); ok {
		return Step{Kind: StepCommand, Call: p.ID, Text: command}
	}
	if file, ok := input["file_path"].(string); ok {
		return Step{Kind: StepFiles, Call: p.ID, Title: p.Name, Text: words(file, "\n"+edited(input))}
	}
	return Step{Kind: StepTool, Call: p.ID, Title: p.Name, Text: string(p.Input)}
}

// edited returns the lines that a tool removes from a file and adds to it.
func edited(input map[string]any) string {
	var b strings.Builder
	for _, part := range [][2]string{{"old_string", "-"}, {"new_string", "+"}, {"content", "+"}} {
		text, _ := input[part[0]].(string)
		for line := range strings.Lines(text) {
			b.WriteString(part[1] + strings.TrimRight(line, "\n") + "\n")
		}
	}
	return b.String()
}

// result returns the text of a tool's result, or the texts of its parts.
func (p claudePart) result() string {
	var parts []claudePart
	if json.Unmarshal(p.Content, &parts) != nil {
		return plain(p.Content)
	}
	var texts []string
	for _, c := range parts {
		texts = append(texts, cmp.Or(c.Text, "["+c.Type+"]"))
	}
	return strings.Join(texts, "\n")
}
