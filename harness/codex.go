package harness

import (
	"encoding/json"
	"strings"
)

// readCodex parses a line of "codex exec --json".
func readCodex(line []byte) ([]Step, bool) {
	var e struct {
		Type           string
		Message, Usage json.RawMessage
		Error          struct{ Message string }
		Item           *codexItem
	}
	_ = json.Unmarshal(line, &e) // anything but an event has no type
	switch e.Type {
	case "":
		return nil, false
	case "error":
		return []Step{{Kind: StepError, Text: plain(e.Message)}}, true
	case "turn.failed":
		return []Step{{Kind: StepError, Title: "turn failed", Text: e.Error.Message}}, true
	case "turn.completed":
		return []Step{{Kind: StepNote, Title: "turn completed", Text: string(e.Usage)}}, true
	case "item.completed":
		if e.Item == nil {
			return nil, true
		}
		return []Step{e.Item.step()}, true
	case "thread.started", "turn.started", "item.started", "item.updated":
		return nil, true
	}
	return unknown(e.Type), true
}

type codexItem struct {
	Type, Text, Message, Command, Status, Server, Tool, Query string

	Output    string `json:"aggregated_output"`
	ExitCode  int    `json:"exit_code"`
	Changes   []struct{ Path, Kind string }
	Arguments json.RawMessage
	Items     []struct {
		Text      string
		Completed bool
	}
}

func (i codexItem) step() Step {
	switch i.Type {
	case "agent_message":
		return Step{Kind: StepMessage, Text: i.Text}
	case "reasoning":
		return Step{Kind: StepThinking, Text: i.Text}
	case "command_execution":
		return Step{Kind: StepCommand, Text: i.Command, Output: i.Output, Exit: i.ExitCode}
	case "file_change":
		var changes strings.Builder
		for _, c := range i.Changes {
			changes.WriteString(c.Kind + " " + c.Path + "\n")
		}
		return Step{Kind: StepFiles, Text: changes.String(), Failed: i.Status == "failed"}
	case "mcp_tool_call":
		return Step{Kind: StepTool, Title: words(i.Server, i.Tool), Text: string(i.Arguments), Failed: i.Status == "failed"}
	case "web_search":
		return Step{Kind: StepTool, Title: i.Type, Text: i.Query}
	case "todo_list":
		var plan strings.Builder
		for _, todo := range i.Items {
			plan.WriteString(map[bool]string{true: "[x] ", false: "[ ] "}[todo.Completed] + todo.Text + "\n")
		}
		return Step{Kind: StepNote, Title: "plan", Text: plan.String()}
	case "error":
		return Step{Kind: StepError, Text: words(i.Message, i.Text)}
	}
	return Step{Kind: StepNote, Title: i.Type, Text: i.Text}
}
