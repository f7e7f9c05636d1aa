package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/runtime/containerd/containerdtest"
)

const (
	machineToml = "version = \"1.0\"\n\n[environment]\ndocker_image = \"" + appImage + "\"\nworkdir = \"/app\"\n"
	machineTest = `#!/bin/bash
mkdir -p /logs/verifier
python3 -m pytest -q /tests/test_outputs.py
if [ $? -eq 0 ]; then echo 1 > /logs/verifier/reward.txt; else echo 0 > /logs/verifier/reward.txt; fi
`
)

// machineTasks writes the tasks of testdata/machine in Harbor's form, every third unless
// SBENCH_SOAK is set, and returns their directory and their cheats: shell scripts that change
// only what the verdict stands on.
func machineTasks(t *testing.T) (dir string, cheats map[string][]string) {
	t.Helper()
	dir, cheats = t.TempDir(), map[string][]string{}
	files, err := filepath.Glob("testdata/machine/*.txtar")
	must(t, err)
	for i, file := range files {
		if i%3 != 0 && os.Getenv("SBENCH_SOAK") == "" {
			continue
		}
		archive, err := txtar.ParseFile(file)
		must(t, err)
		id := strings.TrimSuffix(filepath.Base(file), ".txtar")
		content := map[string]string{"task.toml": machineToml, "tests/test.sh": machineTest}
		for _, f := range archive.Files {
			if strings.HasPrefix(f.Name, "cheat") {
				cheats[id] = append(cheats[id], string(f.Data))
			} else {
				content[f.Name] = string(f.Data)
			}
		}
		for name, text := range content {
			name = filepath.Join(dir, id, name)
			must(t, os.MkdirAll(filepath.Dir(name), 0o755))
			must(t, os.WriteFile(name, []byte(text), 0o755))
		}
	}
	return dir, cheats
}

// TestMachineTasks: of tasks whose candidate is the whole machine, the solution passes, an empty
// candidate fails, and none passes that changes only what the verdict stands on.
func TestMachineTasks(t *testing.T) {
	withImage(t, containerdtest.Open(t), appImage, t.TempDir(), "/app")
	source, cheats := machineTasks(t)
	pack := filepath.Join(t.TempDir(), "pack")
	count := fmt.Sprint(len(cheats))
	expect(t, codeMeasured, "imported "+count+" task(s)", "pack", "import", "--out", pack, "harbor", source)
	tester := filepath.Join(pack, "tester-command.yaml")
	out := filepath.Join(t.TempDir(), "check")
	t.Cleanup(func() {
		if t.Failed() {
			dir := filepath.Join(out, "reference")
			_, err := record.Read(dir, record.Trust{}, func(r record.Record) error {
				if r.VerificationStatus != record.Passed {
					t.Logf("%s: %s: %s\n%s%s\n%s%s", r.TaskID, r.FailureReason, r.FailureMessage, r.ProducerStdout, r.ProducerStderr, r.VerifierStdout, r.VerifierStderr)
				}
				return nil
			})
			must(t, err)
		}
	})
	expect(t, codeMeasured, "checked "+count+" task(s): reference passed "+count+", empty passed 0",
		"pack", "check", "-c", tester, "-o", out, "--progress", "plain", pack)
	t.Run("regrade", func(t *testing.T) {
		expect(t, codeMeasured, "", "verify", filepath.Join(out, "reference"))
		again := filepath.Join(t.TempDir(), "again")
		expect(t, codeMeasured, "passed="+count, "regrade", "-c", tester, "-o", again, "--progress", "none", filepath.Join(out, "reference"))
	})
	for n := range 2 {
		t.Run(fmt.Sprint("cheat ", n+1), func(t *testing.T) {
			script := "case $(python3 -c 'import json; print(json.load(open(\"task.json\"))[\"id\"])') in\n"
			for id, all := range cheats {
				script += "*" + id + ")\n" + all[n] + "\n;;\n"
			}
			command, err := json.Marshal([]string{"bash", "-c", script + "esac; exit 0"})
			must(t, err)
			out := filepath.Join(t.TempDir(), "out")
			expect(t, codeMeasured, "verified="+count+" passed=0", "run", tester, "-o", out, "--progress", "none", "--set", "harness.config.command="+string(command))
			_, err = record.Read(out, record.Trust{}, func(r record.Record) error {
				if !r.VerificationStatus.Scored() || r.FailurePhase != "verifier" {
					t.Errorf("%s: %s, %s in %s: %s", r.TaskID, r.VerificationStatus, r.FailureReason, r.FailurePhase, r.FailureMessage)
				}
				t.Logf("%s: %s, restored %v", r.TaskID, r.FailureReason, r.VerifierMetadata["restored"])
				return nil
			})
			must(t, err)
		})
	}
}
