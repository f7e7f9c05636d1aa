package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/securebench/sbench/cmd/sbench/interrupt"
	"github.com/securebench/sbench/internal/test/filetest"
	"github.com/securebench/sbench/internal/test/must"
)

// agreeing is a sound pack with its tester file. The script in it is executable.
func agreeing() map[string]string {
	return map[string]string{
		"manifest.yaml":     "id: p\nversion: 1\ndefaults: {family: terminal_task, environment: {image: \"registry.invalid/image:1\"}}\n",
		"tasks.jsonl":       terminalRow("a", ""),
		"assets/d/f":        "x",
		"hidden/t/check.sh": "#!/bin/sh\n",
		"ca.pem":            "certificates",
		"tester.yaml":       testerWith("harness: {type: command, config: {command: x}}\n"),
	}
}

func testerWith(rest string) string {
	return "schema_version: \"0.2\"\nrun: {id: r, output_dir: out}\nbenchmark: {manifest: manifest.yaml, tasks: tasks.jsonl}\n" + rest
}

// terminalRow returns a row with more fields of the row, which begin with a comma.
func terminalRow(id, more string) string {
	return `{"id": "` + id + `", "input": {"instructions": "x"}, "eval": {"checker": {"source": "script", "path": "t/check.sh"}}, "assets": [{"path": "d"}]` + more + "}\n"
}

func patchRow(eval string) string {
	return `{"id": "a", "family": "repo_patch", "input": {"repo": "r", "base_commit": "c", "instructions": "x"}, "eval": {` + eval + "}}\n"
}

// TestValidateAgreesWithRun: a run ends with exit code 2, before it looks for a daemon, if and only if validate
// finds an error.
func TestValidateAgreesWithRun(t *testing.T) {
	const command = `"tests": {"source": "command", "command": "true"}`
	const diff = `diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n`
	const image = `registry.invalid/image:1`
	manifest := func(environment string) map[string]string {
		return map[string]string{"manifest.yaml": "id: p\nversion: 1\ndefaults:\n  family: terminal_task\n  environment: " + environment + "\n"}
	}
	rows := func(text string) map[string]string { return map[string]string{"tasks.jsonl": text} }
	tester := func(rest string) map[string]string { return map[string]string{"tester.yaml": testerWith(rest)} }
	runtimeOf := func(rest string) map[string]string {
		return tester("harness: {type: command, config: {command: x}}\nruntime: {" + rest + "}\n")
	}
	harnessOf := func(rest string) map[string]string { return tester("harness: {" + rest + "}\n") }
	tests := []struct {
		name  string
		files map[string]string              // in place of those of agreeing; "" removes one
		edit  func(t *testing.T, dir string) // nil for none
		say   string                         // what both say; "" if the files are sound
	}{
		{"sound", nil, nil, ""},
		{"no manifest", map[string]string{"manifest.yaml": ""}, nil, "$.benchmark.manifest: there is no file"},
		{"no rows' file", map[string]string{"tasks.jsonl": ""}, nil, "$.benchmark.tasks: there is no file"},
		{"rows' file is a directory", map[string]string{"tasks.jsonl": "", "tasks.jsonl/x": "x"}, nil, "not a regular file"},
		{"no rows", rows("\n"), nil, ""},
		{"row of another form", rows(`{"id": "a"}`), nil, "is missing"},
		{"rows are a table", rows("id,question\na,Why?\n"), nil, "tasks.jsonl:1: file holds no rows (a row is a JSON object in one line)\n"},
		{"rows in gzip", rows("\x1f\x8b\x08\x00\n\n"), nil, "tasks.jsonl: file is compressed with gzip (unpack it: gunzip FILE)\n"},
		{"rows in UTF-16", rows("\xff\xfe{\x00\n\x00}\x00"), nil, "tasks.jsonl: file is in UTF-16 (save it as UTF-8: iconv -f UTF-16 -t UTF-8 FILE)\n"},
		{"manifest in UTF-16", map[string]string{"manifest.yaml": "\xfe\xff\x00i\x00d"}, nil, "manifest.yaml: file is in UTF-16"},
		{"row printed for people", rows("{\n  \"id\": \"a\"\n}\n"), nil, "a row is one line"},
		{"repeated id", rows(terminalRow("a", "") + terminalRow("a", "")), nil, "is used on line 1"},
		{"asset missing", map[string]string{"assets/d/f": ""}, nil, "$.assets[0].path"},
		{"asset is a link", nil, func(t *testing.T, dir string) { must.Do(t, os.Symlink("f", filepath.Join(dir, "assets/d/g"))) }, "symbolic link"},
		{"asset with a denied file in it", map[string]string{"assets/d/hidden.json": "x", "tasks.jsonl": strings.Replace(terminalRow("a", ""), `"path": "d"`, `"path": "d", "mount": "task"`, 1)}, nil, "is denied"},
		{"asset's name is not UTF-8", map[string]string{"assets/d/\xff.txt": "x"}, nil, `"d/\xff.txt": the name is not UTF-8`},
		{"asset's directory is not UTF-8", map[string]string{"assets/d/\xff/f": "x"}, nil, `"d/\xff": the name is not UTF-8`},
		{"asset at the task file", rows(strings.Replace(terminalRow("a", ""), `"path": "d"`, `"path": "d", "mount": "Task.JSON"`, 1)), nil, "collides with harness.config.task_file"},
		{"value at the task file", harnessOf("type: command, config: {command: x, task_file: securebench/public/instructions.json}"), nil, "collides with harness.config.task_file"},
		{"checker missing", map[string]string{"hidden/t/check.sh": "", "hidden/t/other": "x"}, nil, "$.eval.checker.path"},
		{"checker for bash", map[string]string{"hidden/t/check.sh": "true\n"}, nil, ""},
		{"checker without interpreter", map[string]string{"hidden/t/check.sh": "", "hidden/t/check.py": "pass\n", "tasks.jsonl": strings.Replace(terminalRow("a", ""), "t/check.sh", "t/check.py", 1)}, nil, "names no interpreter"},
		{"checker beside tests of all tasks", map[string]string{"hidden/tests/x": "x", "hidden/check.sh": "true\n", "tasks.jsonl": strings.Replace(terminalRow("a", ""), "t/check.sh", "check.sh", 1)}, nil, "is beside tests in asset_roots.eval itself"},
		{"checker with CRLF", map[string]string{"hidden/t/check.sh": "#!/bin/sh\r\ntrue\r\n"}, nil, "CRLF"},
		{"checker with a byte order mark", map[string]string{"hidden/t/check.sh": "\ufeff#!/bin/sh\n"}, nil, "byte order mark"},
		{"checker is a directory", rows(strings.Replace(terminalRow("a", ""), "t/check.sh", "t", 1)), nil, "is a directory"},
		{"link beside the checker", nil, func(t *testing.T, dir string) {
			must.Do(t, os.Symlink("check.sh", filepath.Join(dir, "hidden/t/link")))
		}, "symbolic link"},
		{"eval file missing", rows(strings.Replace(terminalRow("a", ""), `"eval": {`, `"eval": {"test_files": {"path": "no"}, `, 1)), nil, "$.eval.test_files.path"},
		{"hidden file missing", rows(strings.Replace(terminalRow("a", ""), `"eval": {`, `"eval": {"expected_state": {"path": "no"}, `, 1)), nil, "$.eval.expected_state.path"},
		{"patches", rows(patchRow(command + `, "gold_patch": "` + diff + `"`)), nil, ""},
		{"gold patch malformed", rows(patchRow(command + `, "gold_patch": "x"`)), nil, "$.eval.gold_patch: malformed patch"},
		{"setup patch malformed", rows(patchRow(strings.Replace(command, "}", `, "setup_patch": "x"}`, 1))), nil, "$.eval.tests.setup_patch: malformed patch"},
		{"test patch malformed", rows(patchRow(strings.Replace(command, "}", `, "test_patch": {"source": "inline", "patch": "x"}}`, 1))), nil, "$.eval.tests.test_patch: malformed patch"},
		{"no image", manifest("{}"), nil, "task has no image"},
		{"impossible image", manifest(`{image: "Not An Image"}`), nil, "names no image"},
		{"impossible digest", manifest(`{image: "image@sha256:0"}`), nil, "names no image"},
		{"image of a row", rows(terminalRow("a", `, "environment": {"image": "UPPER"}`)), nil, "names no image"},
		{"workdir taken", manifest("{image: " + image + ", workdir: /tests/x}"), nil, "is taken by the sandbox itself"},
		{"too little memory", manifest("{image: " + image + ", resources: {memory: 1m}}"), nil, "less than the least"},
		{"too many processes", manifest("{image: " + image + ", resources: {pids: 5000000}}"), nil, "expected an integer from 1 to 4194304"},
		{"too few cores", runtimeOf("limits: {cpus: 0.001}"), nil, "expected a number from"},
		{"too little memory for all", runtimeOf("limits: {memory: 1m}"), nil, "less than the least"},
		{"tab", map[string]string{"manifest.yaml": "id: p\nversion: 1\ndefaults:\n\tfamily: terminal_task\n"}, nil, "a tab"},
		{"seconds with a unit", harnessOf("type: command, config: {command: x, timeout_seconds: 60s}"), nil, "write 60, the number of seconds"},
		{"list for a map", tester("harness:\n  - type: command\n"), nil, "a list is not wanted here"},
		{"public suffix", harnessOf("type: command, config: {command: x, allowed_domains: [co.uk]}"), nil, "$.harness.config.allowed_domains"},
		{"certificates", runtimeOf("network: {ca_bundle: ca.pem}"), nil, ""},
		{"certificates missing", runtimeOf("network: {ca_bundle: no.pem}"), nil, "tester.yaml:5: $.runtime.network.ca_bundle"},
		{"certificates are a directory", runtimeOf("network: {ca_bundle: assets}"), nil, "is not a regular file"},
		{"agent without a key", harnessOf("type: codex, config: {model: m}"), nil, "OPENAI_API_KEY"},
		{"agent with an impossible URL", harnessOf("type: codex, env: [OPENAI_API_KEY], config: {model: m, base_url: \"http://[::1\"}"), nil, "base_url"},
		{"file of a command missing", harnessOf("type: command, config: {command: x, files: [{source: no.py}]}"), nil, "no.py: no such file or directory"},
		{"relative socket", runtimeOf("address: containerd.sock"), nil, "$.runtime.address"},
		{"unknown isolation", runtimeOf("isolation: kvm"), nil, "$.runtime.isolation"},
		{"more isolation than allowed", map[string]string{
			"tester.yaml": runtimeOf("isolation: container")["tester.yaml"], "tasks.jsonl": rows(terminalRow("a", `, "environment": {"isolation": "gvisor"}`))["tasks.jsonl"],
		}, nil, "task asks for isolation by gvisor"},
		{"processes kept in gVisor", map[string]string{
			"tester.yaml": runtimeOf("isolation: gvisor")["tester.yaml"], "tasks.jsonl": rows(terminalRow("a", `, "environment": {"keep_processes": true}`))["tasks.jsonl"],
		}, nil, "cannot keep the harness's processes"},
		{"globs that match something", map[string]string{"tester.yaml": strings.Replace(testerWith("harness: {type: command, config: {command: x}}\n"), "output_dir: out", "output_dir: out, tasks: [a, b]", 1)}, nil, ""},
		{"globs that match nothing", map[string]string{"tester.yaml": strings.Replace(testerWith("harness: {type: command, config: {command: x}}\n"), "output_dir: out", "output_dir: out, tasks: [b]", 1)}, nil, "no task is selected"},
	}
	t.Setenv("OPENAI_API_KEY", "none")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := agreeingPack(t, tt.files)
			if tt.edit != nil {
				tt.edit(t, dir)
			}
			want := codeUsage
			if tt.say == "" {
				want = codeMeasured
			}
			if code, said := saying(t, "validate", filepath.Join(dir, "tester.yaml")); code != want || !strings.Contains(said, tt.say) {
				t.Errorf("validate: exit code %d, want %d and %q\n%s", code, want, tt.say, said)
			}
			code, said := runNowhere(t, dir)
			if (code == codeUsage) != (want == codeUsage) || !strings.Contains(said, tt.say) || want == codeUsage && exists(filepath.Join(dir, "out")) {
				t.Errorf("run: exit code %d, validate's %d, want %q\n%s", code, want, tt.say, said)
			}
		})
	}
}

// TestOnlyRunKnows: validate does not check what depends on the host. docs/tester.md lists these problems.
func TestOnlyRunKnows(t *testing.T) {
	for name, rest := range map[string]string{
		"variable without a value": "harness: {type: command, env: [SBENCH_NO_SUCH_VARIABLE], config: {command: x}}\n",
		"no such OCI runtime":      "harness: {type: command, config: {command: x}}\nruntime: {oci_runtime: sbench-no-such-program}\n",
	} {
		t.Run(name, func(t *testing.T) {
			dir := agreeingPack(t, map[string]string{"tester.yaml": testerWith(rest)})
			if code, said := saying(t, "validate", filepath.Join(dir, "tester.yaml")); code != codeMeasured {
				t.Errorf("validate: exit code %d\n%s", code, said)
			}
			if code, said := runNowhere(t, dir); code != codeUsage {
				t.Errorf("run: exit code %d\n%s", code, said)
			}
		})
	}
}

// TestConfigIsADirectory: the message names the tester files in it.
func TestConfigIsADirectory(t *testing.T) {
	dir := agreeingPack(t, nil)
	for config, want := range map[string]string{
		dir:                                 "name a tester file, such as " + filepath.Join(dir, "tester.yaml"),
		filepath.Join(dir, "hidden"):        "holds neither a manifest.yaml nor tasks",
		filepath.Join(dir, "manifest.yaml"): "is a pack's manifest",
		filepath.Join(dir, "tasks.jsonl"):   "is a pack's file of rows",
	} {
		if code, said := saying(t, "run", "--config", config); code != codeUsage || !strings.Contains(said, want) {
			t.Errorf("%s: exit code %d, want %q in\n%s", config, code, want, said)
		}
	}

	// A pack where the import would be, which somebody may have edited, is left as it is.
	tasks, edited := filepath.Join(dir, "tasks"), filepath.Join(dir, "out.pack", "provenance.json")
	filetest.Write(t, dir, map[string]string{"tasks/a/task.toml": "", "out.pack/provenance.json": ""})
	code, said := saying(t, "run", tasks, "--harness", "reference", "--output-dir", filepath.Join(dir, "out"))
	if code != codeUsage || !strings.Contains(said, "is there already") || !exists(edited) {
		t.Errorf("exit code %d, %s", code, said)
	}

	// What cannot run is refused before the import: a command that nobody gives, and an agent that nobody knows.
	for harness, want := range map[string]string{
		"command": "--harness command runs what --set harness.config.command='COMMAND' says", "nobody": "has to be one of reference, empty, command, ", "": "--harness says what runs",
	} {
		code, said = saying(t, "run", tasks, "--harness", harness, "--output-dir", filepath.Join(dir, "other"))
		if code != codeUsage || !strings.Contains(said, want) || exists(filepath.Join(dir, "other.pack")) {
			t.Errorf("exit code %d, %s", code, said)
		}
	}
}

func agreeingPack(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	all := agreeing()
	maps.Copy(all, files)
	maps.DeleteFunc(all, func(_, text string) bool { return text == "" })
	filetest.Write(t, dir, all)
	return dir
}

// runNowhere runs a pack at an address at which no daemon listens.
func runNowhere(t *testing.T, dir string) (code int, said string) {
	t.Helper()
	return saying(t, "--address", filepath.Join(dir, "no.sock"), "--root", filepath.Join(dir, "root"), "--state", filepath.Join(dir, "state"),
		"run", "--config", filepath.Join(dir, "tester.yaml"), "--output-dir", filepath.Join(dir, "out"), "--progress=none")
}

// saying executes a command line and returns its exit code and all that it printed.
func saying(t *testing.T, args ...string) (code int, said string) {
	t.Helper()
	t.Setenv("SBENCH_OCI_RUNTIME", "") // it takes precedence over the tester file's
	var out bytes.Buffer
	interrupts := interrupt.Watch(codeInterrupted)
	defer interrupts.Close()
	code = execute(interrupts, args, &out, &out)
	return code, out.String()
}
