package testerfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/schema"
	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/internal/test/must"
)

// TestSettings: a setting has the effect of the same value in the file.
func TestSettings(t *testing.T) {
	const codex = testerHead + "harness: {type: codex, config: {model: a, timeout_seconds: 5}}\nruntime: null\n"
	tests := []struct {
		name, file string
		settings   []testerfile.Setting
		got        func(*testerfile.File) any
		want       any
	}{
		{"text", codex, []testerfile.Setting{{Key: "harness.config.model", Value: "b"}}, func(t *testerfile.File) any { return t.Harness.Config.Model }, "b"},
		{"text like a number", codex, []testerfile.Setting{{Key: "harness.config.model", Value: "5"}}, func(t *testerfile.File) any { return t.Harness.Config.Model }, "5"},
		{"text that only looks like JSON", codex, []testerfile.Setting{{Key: "run.id", Value: "true"}}, func(t *testerfile.File) any { return t.Run.ID }, "true"},
		{"number", codex, []testerfile.Setting{{Key: "harness.config.timeout_seconds", Value: "1.5"}}, func(t *testerfile.File) any { return t.Harness.Config.Timeout }, 1500 * time.Millisecond},
		{"number or text", codex, []testerfile.Setting{{Key: "runtime.limits.memory", Value: "2g"}}, func(t *testerfile.File) any { return t.Runtime.Limits.Memory }, int64(2 << 30)},
		{"number or text, as a number", codex, []testerfile.Setting{{Key: "runtime.limits.memory", Value: "33554432"}}, func(t *testerfile.File) any { return t.Runtime.Limits.Memory }, int64(32 << 20)},
		{"boolean", codex, []testerfile.Setting{{Key: "harness.config.allow_external_tools", Value: "true"}}, func(t *testerfile.File) any { return t.Harness.Config.AllowExternalTools }, true},
		{"list", codex, []testerfile.Setting{{Key: "run.tasks", Value: `["a/*","b"]`}}, func(t *testerfile.File) any { return t.Run.Tasks }, []string{"a/*", "b"}},
		{"in a section that is null", codex, []testerfile.Setting{{Key: "runtime.address", Value: "none"}}, func(t *testerfile.File) any { return t.Runtime.Address }, "none"},
		{"relative to the file", codex, []testerfile.Setting{{Key: "benchmark.manifest", Value: "x/manifest.yaml"}}, func(t *testerfile.File) any {
			rel, _ := filepath.Rel(filepath.Dir(t.Path), t.Benchmark.Manifest)
			return rel
		}, "x/manifest.yaml"},
		{"shell command", testerHead + "harness: {type: command, config: {command: x}}\n", []testerfile.Setting{{Key: "harness.config.command", Value: "[ -f a ] && b: c"}}, func(t *testerfile.File) any { return t.Harness.Config.Command }, schema.Command{Shell: "[ -f a ] && b: c"}},
		{"arguments", testerHead + "harness: {type: command, config: {command: x}}\n", []testerfile.Setting{{Key: "harness.config.command", Value: `["a","b"]`}}, func(t *testerfile.File) any { return t.Harness.Config.Command }, schema.Command{Argv: []string{"a", "b"}}},
		{"another harness", testerHead + "harness: {type: command}\n", []testerfile.Setting{{Key: "harness.type", Value: "codex"}, {Key: "harness.config.model", Value: "m"}}, func(t *testerfile.File) any { return t.Harness.Config.Model + t.Harness.Type }, "mcodex"},
		{"what the file lacks", testerHead + "harness: {type: codex}\n", []testerfile.Setting{{Key: "harness.config.model", Value: "m"}}, func(t *testerfile.File) any { return t.Harness.Config.Model }, "m"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			tester, _, err := testerfile.Load(testerFile(t, test.file), harness.AgentTypes(), test.settings...)
			must.Do(t, err)
			must.Equal(t, test.want, test.got(tester))
			must.Equal(t, test.settings, tester.Settings)
		})
	}
}

// TestWrongSettings: problems of settings name the key instead of a line of the file. Problems of the file
// are still reported, with the right lines.
func TestWrongSettings(t *testing.T) {
	const codex = testerHead + "harness: {type: codex, config: {model: a}}\n"
	tests := []struct {
		name, file string
		settings   []testerfile.Setting
		want       string // FILE stands for the file
	}{
		{"unknown key", codex, []testerfile.Setting{{Key: "run.attemps", Value: "3"}}, `--set: $.run.attemps: unknown key "attemps" (did you mean "attempts"?)`},
		{"unknown section", codex, []testerfile.Setting{{Key: "models", Value: "3"}}, `--set: $.models: unknown key "models" (known keys are schema_version, run, benchmark, harness, verification, runtime, matrix)`},
		{"key of another harness", codex, []testerfile.Setting{{Key: "harness.config.command", Value: "x"}}, `--set: $.harness.config.command: unknown key "command" (known keys are model, version, mcp_servers, reasoning_effort, allow_external_tools, on_external_tools, max_total_tokens, max_requests, max_cost_usd, prices, base_url, key_header, max_requests_per_minute, prompt_cache, clock, task_file, timeout_seconds, files, allowed_domains)`},
		{"section", codex, []testerfile.Setting{{Key: "run", Value: "{}"}}, `--set: $.run: is a section (set its keys one by one, as --set run.KEY=VALUE)`},
		{"below a value", codex, []testerfile.Setting{{Key: "run.id.x", Value: "1"}}, `--set: $.run.id: has no keys, and so no "x"`},
		{"twice", codex, []testerfile.Setting{{Key: "run.id", Value: "a"}, {Key: "run.id", Value: "b"}}, `--set: $.run.id: is set twice`},
		{"number", codex, []testerfile.Setting{{Key: "run.attempts", Value: "many"}}, `--set: $.run.attempts: expected an integer of at least 1, found a string`},
		{"range", codex, []testerfile.Setting{{Key: "run.attempts", Value: "0"}}, `--set: $.run.attempts: expected an integer of at least 1, found 0`},
		{"list", codex, []testerfile.Setting{{Key: "run.tasks", Value: "a"}}, `--set: $.run.tasks: expected an array, found a string (write a list of one item)`},
		{"empty", codex, []testerfile.Setting{{Key: "run.id", Value: ""}}, `--set: $.run.id: expected a non-empty string, found an empty string`},
		{"not UTF-8", codex, []testerfile.Setting{{Key: "run.id", Value: "\xff"}}, `--set: $.run.id: invalid JSON at column 2: invalid UTF-8 byte 0xff`},
		{"half a character before a whole one", codex, []testerfile.Setting{{Key: "run.id", Value: "\xc3\xc3\xa9"}}, `--set: $.run.id: invalid JSON at column 2: invalid UTF-8 byte 0xc3`},
		{"value and file", testerHead + "harness: {type: codex, config: {modl: a}}\n", []testerfile.Setting{{Key: "run.jobs", Value: "x"}},
			"--set: $.run.jobs: expected an integer of at least 1, found a string\n" +
				`FILE:4: $.harness.config.modl: unknown key "modl" (did you mean "model"?)` + "\n" + `FILE:4: $.harness.config: key "model" is missing (the model)`},
		{"harness that is none", codex, []testerfile.Setting{{Key: "harness.type", Value: "x"}, {Key: "harness.config.model", Value: "m"}}, `--set: $.harness.type: expected "command" or "codex", found "x"`},
		{"section that is none", "schema_version: \"0.2\"\nrun: 7\nbenchmark: {manifest: m, tasks: t}\nharness: {type: codex, config: {model: a}}\n", []testerfile.Setting{{Key: "run.id", Value: "r"}},
			`FILE:2: $.run: expected an object, found a number (7)`},
	}
	onlyCodex := slices.DeleteFunc(harness.AgentTypes(), func(a testerfile.AgentType) bool { return a.Name != "codex" })
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			file := testerFile(t, test.file)
			_, _, err := testerfile.Load(file, onlyCodex, test.settings...)
			var problems document.Problems
			if !errors.As(err, &problems) {
				t.Fatalf("got %v", err)
			}
			for i := range problems {
				if problems[i].File == file {
					problems[i].File = "FILE"
				}
			}
			must.Equal(t, test.want, problems.Error())
		})
	}
}

func testerFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tester.yaml")
	must.Do(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}
