package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/securebench/sbench/proxy/providertest"
	"github.com/securebench/sbench/runtime/containerd/containerdtest"
)

const realKey = "sk-real-0123456789abcdef-of-the-operator"

// agentRecord is what these tests read of a record.
type agentRecord struct {
	TaskID  string `json:"task_id"`
	Status  string `json:"verification_status"`
	Reason  string `json:"failure_reason"`
	Message string `json:"failure_message"`
	Stderr  string `json:"producer_stderr"`
	Egress  struct {
		Relay struct {
			Sent     int64                         `json:"sent"`
			Usage    struct{ Input, Output int64 } `json:"usage"`
			Stripped map[string]int64              `json:"stripped"`
		} `json:"relay"`
		Proxy struct {
			Denied int64 `json:"denied"`
		} `json:"proxy"`
	} `json:"egress"`
	Agent struct {
		Name, Version string
	} `json:"agent"`
}

// agentRun is a run of one agent on one task against a scripted provider.
type agentRun struct {
	host     host
	provider *providertest.Provider
	output   string
	stderr   string
	record   agentRecord
}

// runAgent lets a real, unmodified agent work.
func runAgent(t *testing.T, agent, pack, task, script, config string, code int) agentRun {
	t.Helper()
	h := newHost(t)
	parsed, err := providertest.ParseText(script)
	check(t, err)
	provider, err := providertest.New(realKey, parsed)
	check(t, err)
	server, err := providertest.Listen("127.0.0.1:0", provider)
	check(t, err)
	t.Cleanup(func() { check(t, server.Close()) })
	base, name := server.URL, "ANTHROPIC_API_KEY"
	if agent == "codex" {
		base, name = server.URL+"/v1", "OPENAI_API_KEY"
	}
	if pack == "repo-patch-smoke" {
		h.sbench(0, "image", "import", testbed(t))
	}
	packs, err := filepath.Abs("../../benchmarks/" + pack)
	check(t, err)
	tester := filepath.Join(h.dir, "tester.yaml")
	check(t, os.WriteFile(tester, fmt.Appendf(nil, `schema_version: "0.2"
run: {id: agent, output_dir: out}
benchmark: {manifest: %[1]s/manifest.yaml, tasks: %[1]s/tasks.jsonl}
harness:
  type: %[2]s
  env: [%[3]s]
  config: {model: test-model, base_url: "%[4]s", timeout_seconds: 120%[5]s}
`, packs, agent, name, base, config), 0o644))
	r := agentRun{host: h, provider: provider, output: filepath.Join(h.dir, "out")}
	h.env = append(h.env, name+"="+realKey)
	_, r.stderr = h.sbench(code, "run", "--config", tester, "--task", task, "--show-agent-output")
	f, err := os.Open(filepath.Join(r.output, "candidates.jsonl"))
	check(t, err)
	defer func() { check(t, f.Close()) }()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		check(t, json.Unmarshal(lines.Bytes(), &r.record))
	}
	r.noKey(t)
	return r
}

// testbed is the image of repo-patch-smoke, which scripts/testbed-image.sh puts
// beside the base image.
func testbed(t *testing.T) string {
	t.Helper()
	base, err := containerdtest.Archive()
	check(t, err)
	found, err := filepath.Glob(filepath.Join(filepath.Dir(base), "repo-patch-smoke-*.oci.tar"))
	check(t, err)
	if len(found) == 0 {
		t.Fatal("no image of repo-patch-smoke: scripts/testbed-image.sh makes it")
	}
	return found[len(found)-1]
}

// noKey looks for the provider's key in everything that the run left.
func (r agentRun) noKey(t *testing.T) {
	t.Helper()
	if strings.Contains(r.stderr, realKey) {
		t.Error("the key is in the progress")
	}
	check(t, filepath.WalkDir(r.output, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(realKey)) {
			t.Errorf("the key is in %s", path)
		}
		return err
	}))
}

func (r agentRun) trace(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(r.output, "logs", "*", "*", "agent-trace.log"))
	check(t, err)
	if len(found) != 1 {
		t.Fatalf("traces %v", found)
	}
	data, err := os.ReadFile(found[0])
	check(t, err)
	return string(data)
}

func agents() []string { return []string{"codex", "claude_code"} }

// TestAgentsSolve lets both agents solve a task of each kind of sandbox.
func TestAgentsSolve(t *testing.T) {
	tasks := []struct{ pack, task, script, trace, said string }{
		{"terminal-task-smoke", "terminal-task-smoke/create-file", "shell echo 'hello, sandbox' > greeting.txt\nsay The file is there.", "greeting.txt", "The file is there."},
		{"code-completion-smoke", "code-completion-smoke/starter", "write /workspace/candidate.py <<END\ndef add_numbers(a, b):\n    return a + b\nEND\nsay Done.", "candidate.py", "candidate.py"},
		{"repo-patch-smoke", "repo-patch-smoke/slug", "shell sed -i 's/\\[^a-z0-9\\]\", \"-\", title.lower())/[^a-z0-9]+\", \"-\", title.lower()).strip(\"-\")/' /testbed/textkit/words.py\nsay Mended.", "words.py", "$ "},
	}
	for _, agent := range agents() {
		for _, tt := range tasks {
			t.Run(agent+"/"+tt.pack, func(t *testing.T) {
				r := runAgent(t, agent, tt.pack, tt.task, tt.script, "", 0)
				if r.record.Status != "passed" {
					t.Errorf("%+v\nproblems %v\n%s", r.record, r.provider.Problems(), r.stderr)
				}
				if u := r.record.Egress.Relay.Usage; u.Input < 20 || u.Output < 10 {
					t.Errorf("usage %+v", u)
				}
				if !strings.Contains(r.trace(t), tt.trace) || !strings.Contains(r.stderr, tt.said) {
					t.Errorf("the trace or the progress lacks %q:\n%s", tt.said, r.stderr)
				}
				if r.record.Agent.Name != agent || r.record.Agent.Version == "" || r.record.Agent.Version == "latest" {
					t.Errorf("agent %+v", r.record.Agent)
				}
			})
		}
	}
}
