package harness_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/securebench/sbench/compiler/schema"
	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/harness/agentcli"
	"github.com/securebench/sbench/internal/test/fake"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/proxy/relay"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/service"
)

// outsider is an agent that this package does not know.
const outsider = `name: outsider
api: openai
keys: [OUTSIDER_KEY, {name: OUTSIDER_TOKEN, bearer: true}]
config:
  mood: The agent's mood.
  pace: The agent's pace.
npm:
  any: {package: outsider, file: bin/outsider}
command:
  - "{program}"
  - --model
  - "{model}"
  - [--mood, "{mood}"]
  - [--pace, "{pace}"]
  - [--servers, "{mcp_servers_toml}"]
env:
  OUTSIDER_KEY: "{key}"
  OUTSIDER_URL: "{base_url}"
files:
  .config/outsider.json: |
    {"home": "{home}", "servers": {mcp_servers}}
mcp:
  stdio: {run: "{argv}", with: "{env}", kind: local}
  http: {at: "{url}"}
events:
  - when: {kind: [said, spoke]}
    step: message
    text: words
  - when: {kind: ran, code: "*"}
    step: command
    title: kind
    text: words
    output: [out, err]
    exit: code
    call: id
    failed: {code: 2}
    piece: false
`

// registryOf serves an npm package with one program, in one version.
func registryOf(t *testing.T, program string) *httptest.Server {
	t.Helper()
	var archive bytes.Buffer
	zipped := gzip.NewWriter(&archive)
	files := tar.NewWriter(zipped)
	must.Do(t, files.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "package/" + program, Mode: 0o755}))
	must.Do(t, files.Close())
	must.Do(t, zipped.Close())
	sum := sha512.Sum512(archive.Bytes())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/archive" {
			_, _ = w.Write(archive.Bytes())
			return
		}
		dist := map[string]string{"integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:]), "tarball": "http://" + r.Host + "/archive"}
		_ = json.NewEncoder(w).Encode(map[string]any{"version": path.Base(r.URL.Path), "dist": dist})
	}))
	t.Cleanup(server.Close)
	return server
}

// offline is an engine whose sandboxes have no network.
type offline struct{ *fake.Engine }

func (e offline) Create(ctx context.Context, cfg runtime.Config) (runtime.Sandbox, error) {
	cfg.Network = nil
	return e.Engine.Create(ctx, cfg)
}

// question is a row that asks for a text.
const question = `{"id": "x", "family": "short_answer", "input": {"question": "?"}, "eval": {"accepted_answers": ["a"]}, "environment": {"image": "i"}}`

// requestFor returns a request for the first attempt at a task.
func requestFor(t *testing.T, row string) harness.Request {
	t.Helper()
	view, kind := agentView(t, row)
	return harness.Request{
		Task: view, Kind: kind, Timeout: time.Minute, Limits: runtime.DefaultLimits(), WorkspaceBytes: 1 << 20, OutputBytes: 1 << 10, Attempt: 1,
		Egress: harness.Egress{Log: proxy.NewLog(io.Discard)}, Dest: t.TempDir(),
	}
}

// newOutsider returns the agent that this package does not know, with a program from a registry of its own.
func newOutsider(t *testing.T, config testerfile.HarnessConfig) *harness.Agent {
	t.Helper()
	cli, problems := harness.ParseDescriptor("outsider.yaml", []byte(outsider))
	if problems != nil {
		t.Fatal(problems)
	}
	to, err := harness.RelayTo(cli.Provider, "sk-secret-of-the-provider", config)
	must.Do(t, err)
	return &harness.Agent{
		HarnessConfig: config, CLI: cli, Arch: "amd64", Relay: to,
		Tools: &agentcli.Cache{Dir: t.TempDir(), Registry: registryOf(t, "bin/outsider").URL, Logger: slog.New(slog.DiscardHandler)},
	}
}

// TestAgentFromOutside: a tester can bring the descriptor of an agent, and sbench runs the agent.
func TestAgentFromOutside(t *testing.T) {
	program := func(_ context.Context, p *fake.Proc) fake.Status {
		if p.Args[1] == "--version" {
			return fake.Status{}
		}
		_, _ = fmt.Fprintf(p.Stdout, `{"kind": "said", "words": %q}`+"\nno event\n"+`{"kind": "ran", "words": "ls", "code": 2, "out": "a", "err": "b"}`+"\n", strings.Join(append(p.Args[1:], p.Env["OUTSIDER_URL"]), " "))
		settings, _ := p.Path("/opt/sbench/home/.config/outsider.json")
		if text, _ := os.ReadFile(settings); string(text) != `{"home": "/opt/sbench/home", "servers": {"far":{"at":"https://x.org/{url}"},"near":{"kind":"local","run":["sh","-c","a \"b\""],"with":{"A":"{key}"}}}}`+"\n" {
			return fake.Status{Code: 3}
		}
		answer, _ := p.Path("/workspace/candidate.txt")
		if p.Env["OUTSIDER_KEY"] == "" || strings.Contains(fmt.Sprint(p.Env), "sk-secret") || os.WriteFile(answer, []byte("four"), 0o644) != nil {
			return fake.Status{Code: 1}
		}
		return fake.Status{}
	}
	engine := offline{&fake.Engine{Directory: t.TempDir(), Lookup: func(args []string) fake.Program {
		if args[0] != "/opt/sbench/agent/bin/outsider" {
			return nil
		}
		return program
	}}}
	config := testerfile.HarnessConfig{Model: "m", Version: "1.2.3", TaskFile: "task.json", Own: map[string]string{"mood": "keen"}, MCPServers: map[string]testerfile.MCPServer{
		"near": {Command: schema.Command{Shell: `a "b"`}, Env: map[string]string{"A": "{key}"}}, "far": {URL: "https://x.org/{url}"},
	}}
	agent := newOutsider(t, config)
	var trace bytes.Buffer
	var said []string
	request := requestFor(t, question)
	request.Env, request.Trace = []string{"OPENAI_API_KEY=sk-secret-of-the-provider"}, &trace
	request.OnStep = func(text string) { said = append(said, text) }
	result, err := agent.Produce(t.Context(), engine, request)
	must.Do(t, err)
	if result.Failure != nil || result.Candidate.Text != "four" || result.Agent.Name != "outsider" {
		t.Errorf("%+v", result)
	}
	if diff := cmp.Diff([]string{`--model m --mood keen --servers {"far"={"at"="https://x.org/{url}"},"near"={"kind"="local","run"=["sh","-c","a \"b\""],"with"={"A"="{key}"}}} http://127.0.0.1:8099/v1`, "$ ls\nab\nexit status 2"}, said); diff != "" || !strings.Contains(trace.String(), "no event\n") {
		t.Error(diff, trace.String())
	}
}

// TestCommandGetsNoKey: a command with a provider gets a key that only the relay knows, and no
// variable with the real key.
func TestCommandGetsNoKey(t *testing.T) {
	const key = "sk-secret-of-the-provider"
	var env map[string]string
	engine := offline{&fake.Engine{Directory: t.TempDir(), Lookup: func([]string) fake.Program {
		return func(_ context.Context, p *fake.Proc) fake.Status { env = p.Env; return fake.Status{} }
	}}}
	to, err := harness.RelayTo(relay.OpenAI, key, testerfile.HarnessConfig{Model: "m"})
	must.Do(t, err)
	command := harness.Command{Args: []string{"solve"}, TaskFile: "task.json", Provider: &harness.CommandProvider{Relay: to, ProviderConfig: testerfile.ProviderConfig{Key: "TEAM_KEY", ModelVariable: "SBENCH_MODEL"}}}
	request := requestFor(t, question)
	request.Env = []string{"TEAM_KEY=" + key, "LANG=C"}
	_, err = command.Produce(t.Context(), engine, request)
	must.Do(t, err)
	if env["LANG"] != "C" || env["OPENAI_API_KEY"] == "" || strings.Contains(fmt.Sprint(env), key) {
		t.Errorf("the command got %v", env)
	}
}

// TestKeyBesideSidecars: only the harness knows the placeholder that the relay asks for where a task has sidecars.
func TestKeyBesideSidecars(t *testing.T) {
	view, _ := agentView(t, question)
	to, err := harness.RelayTo(relay.OpenAI, "sk-secret-of-the-provider", testerfile.HarnessConfig{Model: "m"})
	must.Do(t, err)
	key := func(sidecars int) string {
		key, err := harness.SessionKey(harness.Request{
			Task: view, Sidecars: make([]service.Sidecar, sidecars), Egress: harness.Egress{Log: proxy.NewLog(io.Discard)},
		}, &to)
		must.Do(t, err)
		return key
	}
	if usual, one, another := key(0), key(1), key(1); one == usual || one == another {
		t.Errorf("usual %s, with a sidecar %s and %s", usual, one, another)
	}
}

// watched is an engine of sandboxes. Each calls look when it is asked what has changed in it.
type watched struct {
	offline
	look  func()
	hosts map[string]string // of the sandboxes that were made
}

type watchedSandbox struct {
	runtime.Sandbox
	look func()
}

func (e watched) Create(ctx context.Context, cfg runtime.Config) (runtime.Sandbox, error) {
	s, err := e.offline.Create(ctx, cfg)
	e.hosts[cfg.Name] = strings.Join(cfg.Hosts, " ")
	return watchedSandbox{s, e.look}, err
}

func (s watchedSandbox) Changes() (runtime.Changes, error) {
	s.look()
	return s.Sandbox.Changes()
}

// TestSidecarsEndWithHarness: a sidecar, which may have got descriptors from the harness, has ended before anybody looks at
// what the harness left. All names stand for 127.0.0.1 in both sandboxes.
func TestSidecarsEndWithHarness(t *testing.T) {
	var ended atomic.Bool
	early, looked := false, false
	fakes := &fake.Engine{Directory: t.TempDir(), Lookup: func(args []string) fake.Program {
		return func(ctx context.Context, p *fake.Proc) fake.Status {
			if path.Base(args[0]) == service.Name {
				_, _ = io.WriteString(p.Stdout, "ready\n")
				<-ctx.Done()
				ended.Store(true)
			}
			return fake.Status{}
		}
	}}
	engine := watched{offline{fakes}, func() { looked = true; early = !ended.Load() }, map[string]string{}}
	request := requestFor(t, `{"id": "x", "family": "terminal_task", "input": {"instructions": "write"}, "eval": {"checker": {"command": "true"}}, "environment": {"image": "i", "candidate": "machine"}}`)
	request.Sidecars = []service.Sidecar{{Names: []string{"web", "shop"}, Service: service.Service{Args: []string{"serve"}}}}
	_, err := harness.Command{Args: []string{"solve"}, TaskFile: "task.json"}.Produce(t.Context(), engine, request)
	must.Do(t, err)
	if early || !looked {
		t.Errorf("looked at what the harness left: %t; before its sidecar had ended: %t", looked, early)
	}
	if engine.hosts[harness.SandboxName] != "web shop" || engine.hosts["sidecar web"] != "web shop" {
		t.Errorf("names of 127.0.0.1: %v", engine.hosts)
	}
}

// TestDescriptorTypos: the error names a misspelled key of a descriptor, and suggests the right key.
func TestDescriptorTypos(t *testing.T) {
	for _, tt := range []struct{ old, wrong, want string }{
		{`"{mood}"`, `"{moood}"`, `outsider.yaml:13: $.command[3][1]: {moood} is no placeholder`},
		{`"{key}"`, `"{keey}"`, `did you mean "key"?`},
		{`  - "{program}"`, `  - outsider`, "the command does not run the program"},
		{"npm:\n  any: {package: outsider, file: bin/outsider}\n", "", "there is no program"},
		{"npm:", "directory: x\nfile: y\nnpm:", "in a package and in a directory"},
		{"npm:\n  any: {package: outsider, file: bin/outsider}\n", "directory: x\n", `key "file" is missing`},
		{"file: bin/outsider", "file: ../outsider", "is not a path within the directory"},
		{".config/outsider.json", "../outsider.json", "is no path below {home}"},
		{"api: openai", "api: openia", `did you mean "openai"?`},
		{"step: command", "step: comand", `did you mean "command"?`},
		{"name: outsider", "name: Outsider", "small letters"},
		{`"{argv}"`, `"{argw}"`, "outsider.yaml:23: $.mcp.stdio.run: {argw} is not allowed here (a text, or one of {command}, {args}, {argv}, {env})"},
		{`{at: "{url}"}`, `{at: "x{url}"}`, "$.mcp.http.at: x{url} is not allowed here"},
		{"any:", "anny:", `did you mean "any"?`},
		{"exit: code", "exitt: code", `outsider.yaml:34: $.events[1].exitt: unknown key "exitt" (did you mean "exit"?)`},
	} {
		text := strings.Replace(outsider, tt.old, tt.wrong, 1)
		if _, problems := harness.ParseDescriptor("outsider.yaml", []byte(text)); text == outsider || !strings.Contains(fmt.Sprint(problems), tt.want) {
			t.Errorf("%s: %v, want %s", tt.wrong, problems, tt.want)
		}
	}
}

// TestEndsAtOnce: an agent that ends before its first event has failed, unless its program or the
// provider does not work for sbench either.
func TestEndsAtOnce(t *testing.T) {
	for _, tt := range []struct {
		name     string
		provider int // status of its answers
		versions int // how often --version works
		want     string
	}{
		{"all is well", http.StatusOK, 9, ""},
		{"the key is not known", http.StatusUnauthorized, 9, "the provider failed"},
		{"the program no longer runs", http.StatusOK, 1, "does not run in this image"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(tt.provider)
				_, _ = io.WriteString(w, `{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}`)
			}))
			defer provider.Close()
			config := testerfile.HarnessConfig{Model: "m", Version: "1.2.3", TaskFile: "task.json", BaseURL: provider.URL + "/v1"}
			versions := 0
			engine := offline{&fake.Engine{Directory: t.TempDir(), Lookup: func(args []string) fake.Program {
				return func(context.Context, *fake.Proc) fake.Status {
					if slices.Contains(args, "--version") {
						if versions++; versions <= tt.versions {
							return fake.Status{}
						}
					}
					return fake.Status{Code: 1}
				}
			}}}
			result, err := newOutsider(t, config).Produce(t.Context(), engine, requestFor(t, question))
			if tt.want == "" && (err != nil || result.Ended == nil || result.Ended.Reason != "producer_failed") {
				t.Errorf("%+v, %v", result.Ended, err)
			}
			if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
}
