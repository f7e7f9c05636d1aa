package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/providertest"
)

// TestHopelessAgent: a wrong key, a missing provider or a version that does not exist ends a run over many tasks
// before the first task, without a daemon. The message says why.
func TestHopelessAgent(t *testing.T) {
	provider := providertest.New(realKey, providertest.Step{Say: "hello"})
	server := httptest.NewServer(provider)
	t.Cleanup(server.Close)
	gone := httptest.NewServer(provider)
	gone.Close()
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/9.9.9") {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte("{}"))
	}))
	t.Cleanup(registry.Close)
	dir := t.TempDir()
	rows := taskRows(164, "true", `, "environment": {"image": "sbench.local/none:1"}`)
	for _, tt := range []struct {
		name, agent, base, version string
		code                       int
		says                       string
	}{
		{"wrong key", "codex", server.URL + "/v1", "1.2.3", codeInfrastructure, "the provider does not accept the key (Unauthorized): set another OPENAI_API_KEY or CODEX_API_KEY"},
		{"wrong key", "claude_code", server.URL, "1.2.3", codeInfrastructure, "the provider does not accept the key (Unauthorized): set another ANTHROPIC_API_KEY"},
		{"nobody there", "codex", gone.URL + "/v1", "1.2.3", codeInfrastructure, "harness.config.base_url: the provider cannot be reached"},
		{"no such version", "codex", server.URL + "/v1", "9.9.9", codeUsage, "$.harness.config.version: @openai/codex@9.9.9: no such version"},
	} {
		for _, format := range []string{"plain", "json"} {
			t.Run(tt.name+"/"+tt.agent+"/"+format, func(t *testing.T) {
				name := map[string]string{"codex": "OPENAI_API_KEY", "claude_code": "ANTHROPIC_API_KEY"}[tt.agent]
				tester := writePack(t, dir, rows, fmt.Sprintf("harness: {type: %s, env: [%s], config: {model: m, version: %q, base_url: %q}}\n", tt.agent, name, tt.version, tt.base))
				cmd := exec.CommandContext(t.Context(), "sbench", "run", "--config", tester, "--progress", format)
				cmd.Env = append(os.Environ(), name+"=sk-wrong-0123456789abcdef", "SBENCH_CACHE="+filepath.Join(dir, "cache"), "npm_config_registry="+registry.URL)
				var stderr bytes.Buffer
				cmd.Stderr = &stderr
				_ = cmd.Run()
				if got := cmd.ProcessState.ExitCode(); got != tt.code || !strings.Contains(stderr.String(), tt.says) {
					t.Errorf("exit code %d, want %d and %q\n%s", got, tt.code, tt.says, &stderr)
				}
				for line := range bytes.Lines(stderr.Bytes()) {
					if format == "json" && !json.Valid(line) {
						t.Errorf("not JSON: %s", line)
					}
				}
				if _, err := os.Stat(filepath.Join(dir, "out")); !os.IsNotExist(err) {
					t.Errorf("the output directory: %v", err)
				}
			})
		}
	}
	for _, r := range provider.Requests() {
		if r.Method != http.MethodGet {
			t.Errorf("%s %s reached the provider", r.Method, r.Path)
		}
	}
}
