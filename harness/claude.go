package harness

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/securebench/sbench/harness/tooling"
	"github.com/securebench/sbench/proxy/relay"
)

// claudeCode is Anthropic's agent. It has a binary for glibc and one for musl.
func claudeCode() CLI {
	return CLI{
		Name: "claude_code", Provider: relay.Anthropic,
		Credentials: []Credential{{Name: "ANTHROPIC_API_KEY"}, {Name: "ANTHROPIC_AUTH_TOKEN", Bearer: true}},
		Package: func(arch string, musl bool) (tooling.Package, error) {
			name, ok := map[string]string{"amd64": "x64", "arm64": "arm64"}[arch]
			if !ok {
				return tooling.Package{}, fmt.Errorf("claude_code has no package for %s", arch)
			}
			if musl {
				name += "-musl"
			}
			return tooling.Package{Name: "@anthropic-ai/claude-code-linux-" + name}, nil
		},
		Binary: func(string) string { return "claude" },
		Args:   claudeArgs,
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
	if a.ReasoningEffort != "" {
		args = append(args, "--effort", a.ReasoningEffort)
	}
	return args
}

type claudeContent struct {
	Type    string          `json:"type"`
	Text    string          `json:"text"`
	Name    string          `json:"name"`
	Input   json.RawMessage `json:"input"`
	Content json.RawMessage `json:"content"`
}

// readClaude parses a line of "claude --output-format stream-json".
func readClaude(line []byte) Event {
	var e struct {
		Type    string `json:"type"`
		Subtype string `json:"subtype"`
		IsError bool   `json:"is_error"`
		Result  string `json:"result"`
		Message struct {
			Content json.RawMessage `json:"content"` // a string or a list of parts
		} `json:"message"`
	}
	if json.Unmarshal(line, &e) != nil || e.Type == "" {
		return Event{}
	}
	said := Event{OK: true}
	if e.Type == "result" && e.IsError {
		said.Text = "error: " + e.Subtype + " " + e.Result
		return said
	}
	var parts []claudeContent
	if json.Unmarshal(e.Message.Content, &parts) != nil {
		return said
	}
	var texts []string
	for _, c := range parts {
		if text := c.readable(); text != "" {
			texts = append(texts, text)
		}
	}
	said.Text = strings.Join(texts, "\n")
	return said
}

func (c claudeContent) readable() string {
	switch c.Type {
	case "text":
		return c.Text
	case "tool_use":
		var input struct {
			Command string `json:"command"`
			Path    string `json:"file_path"`
		}
		_ = json.Unmarshal(c.Input, &input) // a tool with neither is shown by its name
		switch {
		case input.Command != "":
			return "$ " + input.Command
		case input.Path != "":
			return c.Name + " " + input.Path
		}
		return c.Name
	case "tool_result":
		var text string
		var parts []claudeContent
		if json.Unmarshal(c.Content, &text) == nil {
			return strings.TrimRight(text, "\n")
		}
		if json.Unmarshal(c.Content, &parts) == nil && len(parts) > 0 {
			return strings.TrimRight(parts[0].Text, "\n")
		}
	}
	return ""
}
