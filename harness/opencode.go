package harness

import (
	"encoding/json"
	"fmt"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/harness/tooling"
	"github.com/securebench/sbench/proxy/relay"
)

// openCode is an agent for any provider, with a binary for glibc and one for musl. Here it
// speaks OpenAI's Responses API.
func openCode() CLI {
	return CLI{
		AgentType: compiler.AgentType{
			Name: "opencode", Model: "gpt-5-codex", Credentials: []compiler.Credential{{Name: "OPENAI_API_KEY"}},
		},
		Provider: relay.OpenAI,
		Packages: map[string]tooling.Package{
			"amd64":      {Name: "opencode-linux-x64", Program: "bin/opencode"},
			"amd64-musl": {Name: "opencode-linux-x64-musl", Program: "bin/opencode"},
			"arm64":      {Name: "opencode-linux-arm64", Program: "bin/opencode"},
			"arm64-musl": {Name: "opencode-linux-arm64-musl", Program: "bin/opencode"},
		},
		Args: func(a *Agent, _ string) []string {
			return []string{"run", "--pure", "--auto", "--format", "json", "--title", "task", "--model", "openai/" + a.Model}
		},
		Env:  openCodeEnv,
		Read: readOpenCode,
	}
}

// openCodeEnv keeps the program from other servers: lists of models, updates, plugins and
// language servers.
func openCodeEnv(a *Agent, baseURL, key, _ string) []string {
	model := "openai/" + a.Model
	config, _ := json.Marshal(map[string]any{ // cannot fail: strings and maps
		"model": model, "small_model": model, "autoupdate": false, "share": "disabled", "permission": map[string]string{"*": "allow"},
		"enabled_providers": []string{"openai"},
		"provider": map[string]any{"openai": map[string]any{
			"options": map[string]string{"baseURL": baseURL, "apiKey": key}, "models": map[string]any{a.Model: map[string]string{"name": a.Model}},
		}},
	})
	return []string{
		"OPENCODE_CONFIG_CONTENT=" + string(config), "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1",
		"OPENCODE_DISABLE_LSP_DOWNLOAD=1", "OPENCODE_DISABLE_DEFAULT_PLUGINS=1",
	}
}

// readOpenCode parses a line of "opencode run --format json".
func readOpenCode(line []byte) ([]Step, bool) {
	var e struct {
		Type  string
		Error json.RawMessage
		Part  struct {
			Text, Tool, Reason string
			CallID             string `json:"callID"`
			Tokens             json.RawMessage
			State              struct {
				Status, Output, Error string
				Input                 json.RawMessage
				Metadata              struct{ Exit int }
			}
		}
	}
	_ = json.Unmarshal(line, &e) // anything but an event has no type
	state := e.Part.State
	switch e.Type {
	case "":
		return nil, false
	case "text":
		return []Step{{Kind: StepMessage, Text: e.Part.Text}}, true
	case "reasoning":
		return []Step{{Kind: StepThinking, Text: e.Part.Text}}, true
	case "tool_use":
		var input struct{ Command string }
		_ = json.Unmarshal(state.Input, &input) // other tools have other inputs
		if input.Command != "" {
			return []Step{{Kind: StepCommand, Call: e.Part.CallID, Text: input.Command, Output: state.Output + state.Error, Exit: state.Metadata.Exit}}, true
		}
		return []Step{{Kind: StepTool, Call: e.Part.CallID, Title: e.Part.Tool, Text: string(state.Input), Output: state.Output + state.Error, Failed: state.Status == "error"}}, true
	case "step_finish":
		return []Step{{Kind: StepNote, Title: fmt.Sprint("step finished: ", e.Part.Reason), Text: string(e.Part.Tokens)}}, true
	case "error":
		return []Step{{Kind: StepError, Text: plain(e.Error)}}, true
	case "step_start":
		return nil, true
	}
	return unknown(e.Type), true
}
