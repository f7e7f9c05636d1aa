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

	"github.com/google/go-cmp/cmp"

	"github.com/securebench/sbench/internal/test/providertest"
	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/run"
)

// TestNext: what a run proposes at its end.
func TestNext(t *testing.T) {
	tests := []struct {
		name  string
		s     run.Summary
		tasks []report.Task
		args  []string
		want  string
	}{
		{"measured", run.Summary{Total: 4, Planned: 4, Passed: 2, Failed: 2}, []report.Task{{TaskID: "a", Scored: 2, Passed: 1}, {TaskID: "b", Scored: 1}}, []string{"run"}, "next: sbench report '/my runs/a'\n"},
		{"interrupted", run.Summary{Total: 6, Planned: 30, Passed: 6}, nil, []string{"run", "--config", "it's.yaml", "--task", "a/*"}, `next: sbench report '/my runs/a'
      sbench run --config 'it'\''s.yaml' --task 'a/*' --resume
`},
		{"nothing measured", run.Summary{Total: 3, Planned: 164, Errors: 3, Infrastructure: 3}, nil, []string{"run", "--resume"}, `next: sbench report '/my runs/a'
      sbench run --resume
`},
		{"the pack is at fault", run.Summary{Total: 1, Planned: 1, Errors: 1}, nil, []string{"run"}, `next: sbench report '/my runs/a'
      sbench pack check /pack
      (the pack or its image is at fault: fix it, and continue with --resume)
`},
		{"a task that nobody passes", run.Summary{Total: 4, Planned: 4, Passed: 1, Failed: 3}, []report.Task{{TaskID: "a", Scored: 1, Passed: 1}, {TaskID: "b", Scored: 3}}, []string{"run"}, `next: sbench report '/my runs/a'
      sbench pack check /pack
      (no candidate of b passed: does the reference pass?)
`},
		{"all fail, one is left out", run.Summary{Total: 3, Planned: 3, Failed: 3, LeftOut: []run.LeftOut{{Task: "x", Reason: "no \x1b image"}}}, nil, []string{"run"}, `not prepared, and left out of the score:
  x: no \x1b image

next: sbench report '/my runs/a'
      sbench pack check /pack
      (no attempt passed: does the reference pass?)
`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			tt.s.Output = "/my runs/a/candidates.jsonl"
			must(t, writeNext(&out, tt.s, report.Run{Tasks: tt.tasks}, tt.args, "/pack"))
			if diff := cmp.Diff("\n"+tt.want, out.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestHopelessAgent: a wrong key, a missing provider or a version that does not exist ends a run over many tasks
// before the first task, without a daemon. The message says why.
func TestHopelessAgent(t *testing.T) {
	provider, err := providertest.New(realKey, "say hello")
	must(t, err)
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
