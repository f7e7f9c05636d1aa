package harness

import (
	"encoding/json"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/schema"
	"github.com/securebench/sbench/harness/tooling"
	"github.com/securebench/sbench/proxy/relay"
)

// codex is OpenAI's agent, a static binary that runs in every image.
func codex() CLI {
	return CLI{
		AgentType: compiler.AgentType{
			Name: "codex", Model: "gpt-5-codex",
			Credentials: []compiler.Credential{{Name: "OPENAI_API_KEY"}, {Name: "CODEX_API_KEY"}},
			Config:      []schema.Field{{Name: "reasoning_effort", Schema: schema.Word("How hard the model is to think.")}},
		},
		Provider: relay.OpenAI,
		Packages: map[string]tooling.Package{
			"amd64": {Name: "@openai/codex", Suffix: "-linux-x64", Program: "vendor/x86_64-unknown-linux-musl/bin/codex"},
			"arm64": {Name: "@openai/codex", Suffix: "-linux-arm64", Program: "vendor/aarch64-unknown-linux-musl/bin/codex"},
		},
		Args: codexArgs,
		Env: func(_ *Agent, _, key, home string) []string {
			return []string{"CODEX_HOME=" + home, codexKeyName + "=" + key}
		},
		Read: readCodex,
	}
}

const codexKeyName = "SBENCH_API_KEY"

// codexArgs makes codex read one prompt from standard input, without its own sandbox
// and approvals, since sbench's sandbox confines it.
func codexArgs(a *Agent, baseURL string) []string {
	args := []string{
		"exec", "--json", "--skip-git-repo-check", "--ephemeral", "--dangerously-bypass-approvals-and-sandbox", "--model", a.Model,
		// No requests to other servers, and no compression, which the relay cannot inspect.
		"-c", "analytics.enabled=false", "--disable", "plugins", "--disable", "apps", "--disable", "enable_request_compression",
		"-c", "model_provider=sbench", "-c", "model_providers.sbench.name=sbench",
		"-c", "model_providers.sbench.base_url=" + baseURL, "-c", "model_providers.sbench.env_key=" + codexKeyName,
		"-c", "model_providers.sbench.wire_api=responses",
	}
	if effort := a.Own["reasoning_effort"]; effort != "" {
		args = append(args, "-c", "model_reasoning_effort="+effort)
	}
	return append(args, "-")
}

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
		s := Step{Kind: StepFiles, Failed: i.Status == "failed"}
		for _, c := range i.Changes {
			s.Text += c.Kind + " " + c.Path + "\n"
		}
		return s
	case "mcp_tool_call":
		return Step{Kind: StepTool, Title: words(i.Server, i.Tool), Text: string(i.Arguments), Failed: i.Status == "failed"}
	case "web_search":
		return Step{Kind: StepTool, Title: i.Type, Text: i.Query}
	case "todo_list":
		s := Step{Kind: StepNote, Title: "plan"}
		for _, todo := range i.Items {
			s.Text += map[bool]string{true: "[x] ", false: "[ ] "}[todo.Completed] + todo.Text + "\n"
		}
		return s
	case "error":
		return Step{Kind: StepError, Text: words(i.Message, i.Text)}
	}
	return Step{Kind: StepNote, Title: i.Type, Text: i.Text}
}
