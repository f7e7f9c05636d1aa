package testerfile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/schema"
	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/proxy/domain"
)

func loadTester(t *testing.T, text string) *testerfile.File {
	t.Helper()
	tester, _, err := testerfile.Load(testerFile(t, text), harness.AgentTypes())
	must.Do(t, err)
	return tester
}

const testerHead = "schema_version: \"0.2\"\nrun: {id: r, output_dir: ../out}\nbenchmark: {manifest: manifest.yaml, tasks: /abs/../tasks.jsonl}\n"

func TestLoadTesterDefaults(t *testing.T) {
	got := loadTester(t, testerHead+"harness: {type: command, config: {command: echo hi}}\n")
	dir := filepath.Dir(got.Path)
	want := &testerfile.File{
		Path:         filepath.Join(dir, "tester.yaml"),
		Run:          testerfile.RunSection{ID: "r", OutputDir: filepath.Join(filepath.Dir(dir), "out")},
		Benchmark:    testerfile.BenchmarkSection{Manifest: filepath.Join(dir, "manifest.yaml"), Tasks: "/tasks.jsonl"},
		Verification: testerfile.VerificationSection{DisallowDangerousCommands: true},
		Harness: testerfile.HarnessSection{
			Type:   testerfile.HarnessCommand,
			Config: testerfile.HarnessConfig{TaskFile: "task.json", Command: schema.Command{Shell: "echo hi"}},
		},
	}
	must.Equal(t, want, got, cmpopts.IgnoreUnexported(testerfile.File{}))
}

func TestLoadTesterValues(t *testing.T) {
	got := loadTester(t, testerHead+`
verification: {disallow_dangerous_commands: no, deny_commands: [chroot]}
harness:
  type: codex
  env: [A, B]
  config: {model: " gpt-5 ", timeout_seconds: 1.5, allowed_domains: [Example.org., "example.ORG", a.io], task_file: ./in//t.json, max_requests: 7, reasoning_effort: " high"}
runtime:
  pull: never
  limits: {memory: 512m, cpus: 0.5, pids: 9, workspace_bytes: 1.5GiB, output_bytes: 100}
`)
	domains, err := domain.ParseAll([]string{"example.org", "a.io"})
	must.Do(t, err)
	wantHarness := testerfile.HarnessSection{
		Type: "codex", Env: []string{"A", "B"},
		Config: testerfile.HarnessConfig{
			TaskFile: "in/t.json", Timeout: 1500 * time.Millisecond, AllowedDomains: domains,
			Model: "gpt-5", Version: "latest", MaxRequests: 7, Own: map[string]string{"reasoning_effort": "high"},
		},
	}
	must.Equal(t, wantHarness, got.Harness, cmpopts.EquateComparable(domain.Domain{}))
	wantRuntime := testerfile.RuntimeSection{Pull: "never", Limits: testerfile.LimitsSection{
		Memory: 512 << 20, CPUs: 0.5, Pids: 9, WorkspaceBytes: 3 << 29, OutputBytes: 100,
	}}
	must.Equal(t, wantRuntime, got.Runtime)
	if v := got.Verification; v.DisallowDangerousCommands || !cmp.Equal(v.DenyCommands, []string{"chroot"}) {
		t.Errorf("verification %+v", v)
	}
}

func TestLoadEnvFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), ".env")
	if _, err := testerfile.LoadEnv(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent file: %v", err)
	}
	text := "\ufeff# comment\n\nA=1\nexport B = two words \nC='quoted'\nD=\"q\"\nE=\nF=a=b\nG='half\nA=2\r\n"
	must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	got, err := testerfile.LoadEnv(path)
	must.Do(t, err)
	want := map[string]string{"A": "2", "B": "two words", "C": "quoted", "D": "q", "E": "", "F": "a=b", "G": "'half"}
	must.Equal(t, want, got)
	must.Do(t, os.WriteFile(path, []byte("A=1\nsecretvalue\n=secretvalue\nMII secretvalue==\n"), 0o600))
	_, err = testerfile.LoadEnv(path)
	var problems document.Problems
	if !errors.As(err, &problems) || len(problems) != 3 || strings.Contains(err.Error(), "secretvalue") {
		t.Errorf("error %v", err)
	}
}
