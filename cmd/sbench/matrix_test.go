package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
)

// TestMatrix: each variant of a tester file is a run of its own, and a report compares them.
func TestMatrix(t *testing.T) {
	h := newHost(t)
	pack := must.Abs(t, "../../benchmarks/terminal-task-smoke")
	tester := filepath.Join(h.dir, "tester.yaml")
	write := func(matrix string) {
		must.Do(t, os.WriteFile(tester, []byte(`schema_version: "0.2"
run: {id: m, output_dir: out, tasks: ["*/create-file"]}
benchmark: {manifest: `+pack+`/manifest.yaml, tasks: `+pack+`/tasks.jsonl}
harness: {type: command, config: {command: "true"}}
matrix:
`+matrix), 0o644))
	}
	write(`  good: {harness.config.command: "echo 'hello, sandbox' >greeting.txt"}
  bad: {harness.config.comand: "true"}
  worse: {harness.config.timeout_seconds: soon}
  other: {harness.type: codex, harness.env: [OPENAI_API_KEY], harness.config.model: m}
`)
	stdout, _ := h.sbench(codeUsage, "validate", tester)
	must.Contains(t, stdout, `$.matrix.bad: $.harness.config.comand: unknown key`, `did you mean "command"?`, `$.matrix.worse: $.harness.config.timeout_seconds:`, `$.matrix.other: $.harness.config.command: unknown key`)
	write(`  good: {harness.config.command: "echo 'hello, sandbox' >greeting.txt"}
  list: {harness.config.command: [sh, -c, "echo 'hello, sandbox' >greeting.txt"], run.attempts: 2}
  nothing: {}
`)
	h.sbench(0, "validate", tester)
	stdout, _ = h.sbench(0, "run", tester)
	if strings.Count(stdout, "passed=") != 3 || !strings.Contains(stdout, "run_id=m-list total=2 ") {
		t.Error(stdout)
	}
	stdout, _ = h.sbench(0, "run", tester, "--resume", "--plan")
	must.Equal(t, 3, strings.Count(stdout, "0 attempts would run"))
	var dirs []string
	for _, name := range []string{"good", "list", "nothing"} {
		dirs = append(dirs, filepath.Join(h.dir, "out", name))
		h.sbench(0, "verify", dirs[len(dirs)-1])
	}
	if stdout, _ := h.sbench(0, append([]string{"report"}, dirs...)...); !strings.Contains(stdout, "100.0 %") || !strings.Contains(stdout, "0.0 %") {
		t.Error(stdout)
	}
}
