package harness_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/harness/agentcli"
	"github.com/securebench/sbench/internal/test/fake"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/packtest"
	"github.com/securebench/sbench/proxy/relay"
	"github.com/securebench/sbench/runtime"
)

// TestRead parses lines of the agents' output.
func TestRead(t *testing.T) {
	type test struct{ name, agent, line, want string }
	tests := []test{
		{"codex starts", "codex", `{"type":"thread.started","thread_id":"x"}`, ""},
		{"codex says", "codex", `{"type":"item.completed","item":{"id":"1","type":"agent_message","text":"Done."}}`, "Done."},
		{"codex begins a command", "codex", `{"type":"item.started","item":{"type":"command_execution","command":"ls"}}`, ""},
		{"codex runs", "codex", `{"type":"item.completed","item":{"type":"command_execution","command":"ls","aggregated_output":"a\nb\n","exit_code":2}}`, "$ ls\na\nb\nexit status 2"},
		{"codex writes", "codex", `{"type":"item.completed","item":{"type":"file_change","changes":[{"path":"/w/a","kind":"add"},{"path":"/w/b","kind":"update"}]}}`, `[{"path":"/w/a","kind":"add"},{"path":"/w/b","kind":"update"}]`},
		{"codex fails", "codex", `{"type":"turn.failed","error":{"message":"no"}}`, "error: no"},
		{"codex, something new", "codex", `{"type":"item.completed","item":{"type":"novelty","depth":[1]}}`, ""},
		{"claude starts", "claude_code", `{"type":"system","subtype":"init","tools":[]}`, ""},
		{"claude says", "claude_code", `{"type":"assistant","message":{"content":[{"type":"text","text":"Done."}]}}`, "Done."},
		{"claude runs", "claude_code", `{"type":"assistant","message":{"content":[{"type":"text","text":"Look."},{"type":"tool_use","name":"Bash","input":{"command":"ls"}}]}}`, "Look.\n$ ls"},
		{"claude writes", "claude_code", `{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Write","input":{"file_path":"/w/a"}}]}}`, "Write /w/a"},
		{"claude does something else", "claude_code", `{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Glob","input":{"pattern":"*"}}]}}`, "Glob"},
		{"claude sees", "claude_code", `{"type":"user","message":{"content":[{"type":"tool_result","content":"a\nb\n"}]}}`, "a\nb"},
		{"claude sees parts", "claude_code", `{"type":"user","message":{"content":[{"type":"tool_result","content":[{"type":"text","text":"a\n"}]}]}}`, `[{"type":"text","text":"a\n"}]`},
		{"claude fails", "claude_code", `{"type":"result","subtype":"error_during_execution","is_error":true,"result":"no"}`, "error: no"},
		{"claude fails without a word", "claude_code", `{"type":"result","subtype":"error_max_turns","is_error":true,"num_turns":3,"duration_ms":1500}`, "error: error_max_turns"},
		{"claude thinks", "claude_code", `{"type":"assistant","message":{"content":[{"type":"thinking","thinking":"Hm."}]}}`, "Hm."},
		{"opencode starts", "opencode", `{"type":"step_start","part":{"type":"step-start"}}`, ""},
		{"opencode says", "opencode", `{"type":"text","part":{"type":"text","text":"Done."}}`, "Done."},
		{"opencode runs", "opencode", `{"type":"tool_use","part":{"tool":"bash","state":{"status":"completed","input":{"command":"ls"},"output":"a\nb\n","metadata":{"exit":2}}}}`, "$ ls\na\nb\nexit status 2"},
		{"opencode reads", "opencode", `{"type":"tool_use","part":{"tool":"read","state":{"status":"completed","input":{"filePath":"/w/a"},"output":"x"}}}`, "read\nx"},
		{"opencode ends a step", "opencode", `{"type":"step_finish","part":{"reason":"stop","tokens":{"total":15}}}`, ""},
		{"opencode fails", "opencode", `{"type":"error","error":{"name":"APIError","data":{"message":"no"}}}`, "error: {\"name\":\"APIError\",\"data\":{\"message\":\"no\"}}"},
		{"claude says very much", "claude_code", `{"type":"assistant","message":{"content":[` + strings.Repeat("{},", 1<<15) + `{"type":"text","text":"x"}]}}`, ""},
		{"gemini says very much", "gemini_cli", `{"type":"error","message":"x","a":[` + strings.Repeat("{},", 1<<15) + `{}]}`, ""},
		{"gemini says a part", "gemini_cli", `{"type":"message","role":"assistant","content":"Do","delta":true}`, "Do"},
		{"gemini runs", "gemini_cli", `{"type":"tool_use","tool_name":"run_shell_command","tool_id":"1","parameters":{"command":"ls"}}`, "$ ls"},
		{"gemini sees", "gemini_cli", `{"type":"tool_result","tool_id":"1","status":"success","output":"a\nb"}`, "a\nb"},
		{"gemini does something else", "gemini_cli", `{"type":"tool_use","tool_name":"glob","tool_id":"1","parameters":{"pattern":"*"}}`, "glob"},
		{"gemini fails", "gemini_cli", `{"type":"result","status":"error","error":{"type":"x","message":"no"}}`, "error: no"},
		{"gemini, something new", "gemini_cli", `{"type":"novelty"}`, ""},
		{"qwen runs", "qwen_code", `{"type":"assistant","message":{"content":[{"type":"tool_use","name":"run_shell_command","input":{"command":"ls"}}]}}`, "$ ls"},
		{"an event that was too long", "claude_code", `{"type":"sbench.cut"}`, ""},
		{"claude ends", "claude_code", `{"type":"result","subtype":"success","is_error":false,"result":"Done."}`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cli, ok := harness.CLIOf(tt.agent)
			steps, isEvent := cli.Read([]byte(tt.line))
			var got []string
			for _, s := range steps {
				got = append(got, s.String())
			}
			if !ok || !isEvent || strings.Join(got, "\n") != tt.want {
				t.Errorf("%+v, want %q", steps, tt.want)
			}
		})
	}
	for _, cli := range harness.CLIs() {
		if !slices.ContainsFunc(tests, func(tt test) bool { return tt.agent == cli.Name }) {
			t.Errorf("%s: no line of its output is tested", cli.Name)
		}
		if len(cli.Packages) == 0 {
			t.Errorf("%s: sbench brings no program of its own: give npm", cli.Name)
		}
		for _, line := range []string{"", "no JSON", "{}", `{"type":""}`, `{"type":7}`, `[]`, `null`} {
			if _, ok := cli.Read([]byte(line)); ok {
				t.Errorf("%s takes %q for an event", cli.Name, line)
			}
		}
	}
}

// TestReadIsLinear: what sbench spends on an event does not grow faster than the event.
func TestReadIsLinear(t *testing.T) {
	long := strings.Repeat("x", 500)
	for agent, list := range map[string][3]string{ // what is before and after the elements of a list, and an element
		"codex":          {`{"type":"item.completed","item":{"type":"todo_list","items":[`, `]}}`, `{"text":"` + long + `"}`},
		"codex, changes": {`{"type":"item.completed","item":{"type":"file_change","changes":[`, `]}}`, `{"path":"` + long + `"}`},
		"claude_code":    {`{"type":"user","message":{"content":[{"type":"tool_result","content":[`, `]}]}}`, `{"type":"text","text":"` + long + `"}`},
	} {
		name, _, _ := strings.Cut(agent, ",")
		cli, _ := harness.CLIOf(name)
		line := []byte(list[0] + strings.TrimSuffix(strings.Repeat(list[2]+",", 2000), ",") + list[1])
		var before, after goruntime.MemStats
		goruntime.ReadMemStats(&before)
		steps, _ := cli.Read(line)
		goruntime.ReadMemStats(&after)
		if spent := after.TotalAlloc - before.TotalAlloc; spent > 30*uint64(len(line)) || len(steps) != 1 || len(steps[0].Text+steps[0].Output) < 1_000_000 {
			t.Errorf("%s: %d bytes of memory for a line of %d", agent, spent, len(line))
		}
	}
}

// agentView compiles one row and returns what an agent may know about the task.
func agentView(t *testing.T, row string) (compiler.AgentView, compiler.CandidateKind) {
	task, _ := packtest.Task(t, row)
	return task.AgentView(), task.Family().CandidateKind
}

// TestPrompt: a prompt has the public input and how the result is collected, and nothing hidden.
func TestPrompt(t *testing.T) {
	tests := []struct{ name, row, collected string }{
		{"text", `{"id": "x", "family": "short_answer", "input": {"question": "-v or not?"}, "eval": {"accepted_answers": ["the-hidden-answer"]}, "environment": {"image": "i"}}`, "/workspace/candidate.txt"},
		{"choices", `{"id": "x", "family": "multiple_choice", "input": {"question": "-v or not?", "choices": ["yes", "no"]}, "eval": {"answer": "A"}, "environment": {"image": "i"}}`, "- yes\n- no"},
		{"answer format", `{"id": "x", "family": "multiple_choice", "input": {"question": "-v or not?", "choices": ["yes", "no"]}, "eval": {"answer": "A"}, "environment": {"image": "i"}}`, "\n\nEnd with a line `ANSWER: <letter>`.\n"},
		{"the author's format", `{"id": "x", "family": "short_answer", "input": {"question": "-v or not?", "answer_format": "a word"}, "eval": {"accepted_answers": ["the-hidden-answer"]}, "environment": {"image": "i"}}`, "## Answer format\n\na word\n"},
		{"code", `{"id": "x", "family": "code_completion", "input": {"prompt": "-v or not?"}, "eval": {"tests": {"source": "inline", "code": "the-hidden-answer"}}, "environment": {"image": "i"}}`, "/workspace/candidate.py"},
		{"patch", `{"id": "x", "family": "repo_patch", "input": {"repo": "r", "base_commit": "0123456789012345678901234567890123456789", "instructions": "-v or not?"}, "eval": {"tests": {"source": "command", "command": "the-hidden-answer"}}, "environment": {"image": "i", "workdir": "/testbed"}}`, "the repository in /testbed"},
		{"workspace", `{"id": "x", "family": "terminal_task", "input": {"instructions": "-v or not?"}, "eval": {"checker": {"command": "the-hidden-answer"}}, "environment": {"image": "i"}, "metadata": {"secret": "the-hidden-answer"}}`, "the directory /workspace"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			view, kind := agentView(t, tt.row)
			got := harness.Prompt(harness.Request{Task: view, Kind: kind}, "task.json")
			must.Contains(t, got, "-v or not?", tt.collected, "/task.json", "How your result is collected")
			if strings.Contains(got, "the-hidden-answer") || strings.HasPrefix(got, "-") {
				t.Errorf("the prompt:\n%s", got)
			}
		})
	}
}

// TestVariant: the image's C library decides which package is installed, and a version
// that the registry does not have is an error.
func TestVariant(t *testing.T) {
	var asked []string
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		http.NotFound(w, r)
	}))
	defer registry.Close()
	glibc, musl := t.TempDir(), t.TempDir()
	must.Do(t, os.Mkdir(filepath.Join(musl, "lib"), 0o755))
	must.Do(t, os.WriteFile(filepath.Join(musl, "lib", "ld-musl-x86_64.so.1"), nil, 0o755))
	view, kind := agentView(t, question)
	for _, name := range []string{"claude_code", "codex", "gemini_cli", "opencode", "qwen_code"} {
		cli, _ := harness.CLIOf(name)
		for _, image := range []string{glibc, musl} {
			agent := &harness.Agent{
				HarnessConfig: testerfile.HarnessConfig{Version: "1.2.3", Model: "m", TaskFile: "task.json"}, CLI: cli, Arch: "amd64", Relay: relay.Config{Key: relay.NewKey("key")},
				Tools: &agentcli.Cache{Dir: t.TempDir(), Registry: registry.URL, Logger: slog.New(slog.DiscardHandler)},
			}
			_, err := agent.Produce(context.Background(), &fake.Engine{Directory: t.TempDir(), Image: image}, harness.Request{Task: view, Kind: kind, Limits: runtime.DefaultLimits()})
			if !errors.Is(err, agentcli.ErrNoVersion) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	want := []string{
		"/@anthropic-ai/claude-code-linux-x64/1.2.3", "/@anthropic-ai/claude-code-linux-x64-musl/1.2.3",
		"/@openai/codex/1.2.3-linux-x64", "/@openai/codex/1.2.3-linux-x64",
		"/@google/gemini-cli/1.2.3", "/@google/gemini-cli/1.2.3",
		"/opencode-linux-x64/1.2.3", "/opencode-linux-x64-musl/1.2.3",
		"/@qwen-code/qwen-code/1.2.3", "/@qwen-code/qwen-code/1.2.3",
	}
	must.Equal(t, want, asked)
}

// slow is an engine that shows no image until it is released.
type slow struct {
	*fake.Engine
	released chan struct{}
}

func (s slow) View(context.Context, runtime.Image) (runtime.View, error) {
	<-s.released
	return nil, errors.New("no view")
}

// TestPreparationWaits: an attempt that waits for its agent's program stops when its context is done.
func TestPreparationWaits(t *testing.T) {
	cli, _ := harness.CLIOf("codex")
	synctest.Test(t, func(t *testing.T) {
		agent, engine, enough := &harness.Agent{CLI: cli, Arch: "amd64"}, slow{&fake.Engine{}, make(chan struct{})}, errors.New("enough")
		go func() { _, _ = agent.Produce(t.Context(), engine, harness.Request{}) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, enough)
		defer cancel()
		_, err := agent.Produce(ctx, engine, harness.Request{})
		must.Is(t, err, enough)
		close(engine.released)
	})
}
