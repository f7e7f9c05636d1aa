package harness

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/schema"
	"github.com/securebench/sbench/harness/tooling"
	"github.com/securebench/sbench/proxy/relay"
)

// claudeCode is Anthropic's agent. It has a binary for glibc and one for musl.
func claudeCode() CLI {
	return CLI{
		AgentType: compiler.AgentType{
			Name: "claude_code", Model: "sonnet",
			Credentials: []compiler.Credential{{Name: "ANTHROPIC_API_KEY"}, {Name: "ANTHROPIC_AUTH_TOKEN", Bearer: true}},
			Config:      []schema.Field{{Name: "reasoning_effort", Schema: schema.Word("How hard the model is to think.")}},
		},
		Provider: relay.Anthropic,
		Packages: map[string]tooling.Package{
			"amd64":      {Name: "@anthropic-ai/claude-code-linux-x64", Program: "claude"},
			"amd64-musl": {Name: "@anthropic-ai/claude-code-linux-x64-musl", Program: "claude"},
			"arm64":      {Name: "@anthropic-ai/claude-code-linux-arm64", Program: "claude"},
			"arm64-musl": {Name: "@anthropic-ai/claude-code-linux-arm64-musl", Program: "claude"},
		},
		Args: claudeArgs,
		Env: func(a *Agent, baseURL, key, home string) []string {
			return []string{
				// The relay allows one model only, so minor tasks must not use another.
				"CLAUDE_CODE_SUBAGENT_MODEL=" + a.Model, "ANTHROPIC_DEFAULT_HAIKU_MODEL=" + a.Model,
				"ANTHROPIC_DEFAULT_SONNET_MODEL=" + a.Model, "ANTHROPIC_DEFAULT_OPUS_MODEL=" + a.Model,
				"ANTHROPIC_BASE_URL=" + baseURL, "ANTHROPIC_API_KEY=" + key, "CLAUDE_CONFIG_DIR=" + home + "/.claude",
				"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1",
			}
		},
		Read: readClaude,
	}
}

// claudeArgs makes the program read one prompt from standard input and ask for no
// permissions, since sbench's sandbox confines it. IS_SANDBOX allows that as root.
func claudeArgs(a *Agent, _ string) []string {
	args := []string{"--print", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions", "--model", a.Model}
	if effort := a.Own["reasoning_effort"]; effort != "" {
		args = append(args, "--effort", effort)
	}
	return args
}

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
