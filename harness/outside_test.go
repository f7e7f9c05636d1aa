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
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/schema"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/harness/tooling"
	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/proxy/relay"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/fake"
)

// outsider is an agent that this package does not know.
func outsider() harness.CLI {
	return harness.CLI{
		AgentType: compiler.AgentType{
			Name: "outsider", Credentials: []compiler.Credential{{Name: "OUTSIDER_KEY"}},
			Config: []schema.Field{{Name: "mood", Schema: schema.Enum("The agent's mood.", "calm", "keen")}},
		},
		Provider: relay.OpenAI,
		Packages: map[string]tooling.Package{"amd64": {Name: "outsider", Program: "bin/outsider"}},
		Args: func(a *harness.Agent, _ string) []string {
			return []string{"--model", a.Model, "--mood", a.Own["mood"]}
		},
		Env: func(_ *harness.Agent, _, key, _ string) []string { return []string{"OUTSIDER_KEY=" + key} },
		Read: func(line []byte) ([]harness.Step, bool) {
			kind, text, ok := strings.Cut(string(line), ": ")
			return []harness.Step{{Kind: harness.StepKind(kind), Text: text}}, ok
		},
	}
}

// registryOf serves an npm package with one program, in one version.
func registryOf(t *testing.T, program string) *httptest.Server {
	t.Helper()
	var archive bytes.Buffer
	zipped := gzip.NewWriter(&archive)
	files := tar.NewWriter(zipped)
	must(t, files.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "package/" + program, Mode: 0o755}))
	must(t, files.Close())
	must(t, zipped.Close())
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

// testerFor returns what a tester file with these lines says of the harness outsider.
func testerFor(t *testing.T, config string) (compiler.HarnessConfig, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tester.yaml")
	must(t, os.WriteFile(file, []byte("schema_version: \"0.2\"\nrun: {id: r, output_dir: o}\nbenchmark: {manifest: m, tasks: t}\nharness: {type: outsider, config: "+config+"}\n"), 0o644))
	tester, _, err := compiler.LoadTester(file, []compiler.AgentType{outsider().AgentType})
	if err != nil {
		return compiler.HarnessConfig{}, err
	}
	return tester.Harness.Config, nil
}

// TestAgentFromOutside: an agent is a value, its keys of the tester file included, so that
// another package can bring one.
func TestAgentFromOutside(t *testing.T) {
	program := func(_ context.Context, p *fake.Proc) fake.Status {
		if p.Args[1] == "--version" {
			return fake.Status{}
		}
		_, _ = fmt.Fprintf(p.Stdout, "message: %s\nno event\ncommand: ls\n", strings.Join(p.Args[1:], " "))
		answer, _ := p.Path("/workspace/candidate.txt")
		if p.Env["OUTSIDER_KEY"] == "" || strings.Contains(p.Env["OUTSIDER_KEY"], "sk-secret") || os.WriteFile(answer, []byte("four"), 0o644) != nil {
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
	view, kind := agentView(t, `{"id": "x", "family": "short_answer", "input": {"question": "?"}, "eval": {"accepted_answers": ["a"]}, "environment": {"image": "i"}}`)
	if _, err := testerFor(t, "{model: m, mood: angry}"); err == nil || !strings.Contains(err.Error(), `$.harness.config.mood: expected "calm" or "keen"`) {
		t.Errorf("another mood: %v", err)
	}
	config, err := testerFor(t, "{model: m, version: 1.2.3, mood: keen}")
	must(t, err)
	agent := &harness.Agent{
		HarnessConfig: config, CLI: outsider(), Arch: "amd64", Key: relay.NewKey("sk-secret-of-the-provider"),
		Tools: &tooling.Cache{Dir: t.TempDir(), Registry: registryOf(t, "bin/outsider").URL},
	}
	var trace bytes.Buffer
	var said []string
	result, err := agent.Produce(t.Context(), engine, harness.Request{
		Task: view, Kind: kind, Timeout: time.Minute, Limits: runtime.DefaultLimits(), WorkspaceBytes: 1 << 20, OutputBytes: 1 << 10, Attempt: 1,
		Egress: harness.Egress{Log: proxy.NewLog(io.Discard)}, Dest: t.TempDir(), Trace: &trace, Said: func(text string) { said = append(said, text) },
	})
	must(t, err)
	if result.Failure != nil || result.Candidate.Text != "four" || result.Agent.Name != "outsider" {
		t.Errorf("%+v", result)
	}
	if diff := cmp.Diff([]string{"--model m --mood keen", "$ ls"}, said) + cmp.Diff("message: --model m --mood keen\nno event\ncommand: ls\n", trace.String()); diff != "" {
		t.Error(diff)
	}
}
