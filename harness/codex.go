package harness

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/securebench/sbench/harness/tooling"
	"github.com/securebench/sbench/proxy/relay"
)

// codex is OpenAI's agent, a static binary that runs in every image.
func codex() CLI {
	return CLI{
		Name: "codex", Provider: relay.OpenAI,
		Credentials: []Credential{{Name: "OPENAI_API_KEY"}, {Name: "CODEX_API_KEY"}},
		Package: func(arch string, _ bool) (tooling.Package, error) {
			suffix, ok := map[string]string{"amd64": "-linux-x64", "arm64": "-linux-arm64"}[arch]
			if !ok {
				return tooling.Package{}, fmt.Errorf("codex has no package for %s", arch)
			}
			return tooling.Package{Name: "@openai/codex", Suffix: suffix}, nil
		},
		Binary: func(arch string) string {
			triple := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[arch] + "-unknown-linux-musl"
			return "vendor/" + triple + "/bin/codex"
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
	if a.ReasoningEffort != "" {
		args = append(args, "-c", "model_reasoning_effort="+a.ReasoningEffort)
	}
	return append(args, "-")
}

// readCodex parses a line of "codex exec --json".
func readCodex(line []byte) Event {
	var e struct {
		Type    string `json:"type"`
		Message string `json:"message"`
		Error   struct {
			Message string `json:"message"`
		} `json:"error"`
		Item struct {
			Type     string `json:"type"`
			Text     string `json:"text"`
			Command  string `json:"command"`
			Output   string `json:"aggregated_output"`
			ExitCode *int   `json:"exit_code"`
			Changes  []struct {
				Path string `json:"path"`
				Kind string `json:"kind"`
			} `json:"changes"`
		} `json:"item"`
	}
	if json.Unmarshal(line, &e) != nil || e.Type == "" {
		return Event{}
	}
	said := Event{OK: true}
	switch {
	case e.Type == "error":
		said.Text = "error: " + e.Message
	case e.Type == "turn.failed":
		said.Text = "error: " + e.Error.Message
	case e.Type != "item.completed":
	case e.Item.Type == "command_execution":
		said.Text = "$ " + e.Item.Command
		if e.Item.Output != "" {
			said.Text += "\n" + strings.TrimRight(e.Item.Output, "\n")
		}
		if e.Item.ExitCode != nil && *e.Item.ExitCode != 0 {
			said.Text += fmt.Sprintf("\nexit status %d", *e.Item.ExitCode)
		}
	case e.Item.Type == "file_change":
		for _, c := range e.Item.Changes {
			said.Text += c.Kind + " " + c.Path + "\n"
		}
		said.Text = strings.TrimSpace(said.Text)
	default:
		said.Text = e.Item.Text
	}
	return said
}
