package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/record"
)

// TestStrangers: of a directory of tasks in Harbor's form as people write them, each reference passes and
// each empty candidate fails. Those that cannot be prepared are named.
func TestStrangers(t *testing.T) {
	forgetBuilt(t, containerdtest.Open(t))
	archive, err := txtar.ParseFile("testdata/strangers/tasks.txtar")
	must(t, err)
	source := t.TempDir()
	write := func(name, text string) {
		name = filepath.Join(source, name)
		must(t, os.MkdirAll(filepath.Dir(name), 0o755))
		must(t, os.WriteFile(name, []byte(strings.ReplaceAll(text, "@BASE@", containerdtest.Image)), 0o644))
	}
	for _, f := range archive.Files {
		task, _, _ := strings.Cut(f.Name, "/")
		if !strings.Contains(f.Name, "/steps/") {
			write(task+"/instruction.md", "Do it.\n")
		}
		if _, err := os.Lstat(filepath.Join(source, task, "task.toml")); err != nil {
			write(task+"/task.toml", "version = \"1.0\"\n")
		}
		write(f.Name, string(f.Data))
	}
	out := t.TempDir()
	for standIn, passed := range map[string]int{"reference": 6, "empty": 0} {
		code, stdout, stderr := sbench(t, "run", source, "--harness", standIn, "--exclude", "excluded*", "-o", filepath.Join(out, standIn), "--progress", "plain", "--json")
		var summary run.Summary
		if err := json.Unmarshal([]byte(stdout), &summary); err != nil || code != codeInfrastructure || summary.Verified() != 6 || summary.Passed != passed {
			t.Errorf("%s: exit code %d, %v\n%s%s", standIn, code, err, stdout, stderr)
		}
		for i, want := range []run.LeftOut{{Task: "gpus", Reason: "with GPUs"}, {Task: "broken", Reason: "that went wrong"}, {Task: "absent", Reason: "image sbench.local/absent:1"}} {
			if i >= len(summary.LeftOut) || summary.LeftOut[i].Task != want.Task || !strings.Contains(summary.LeftOut[i].Reason, want.Reason) {
				t.Errorf("left out %+v, want %+v", summary.LeftOut, want)
			}
		}
	}
	kept := false
	_, err = record.Read(filepath.Join(out, "reference"), record.Trust{}, func(r record.Record) error {
		for _, l := range privateOf(t, filepath.Join(out, "reference"), r).Logs {
			kept = kept || l.Name == "reward.json"
		}
		return nil
	})
	if must(t, err); !kept {
		t.Error("the checker's files were not kept")
	}
}

// TestSeparateBroken: whatever an agent does to its machine, of which a verifier with an environment
// of its own gets an artifact, the attempt is measured.
func TestSeparateBroken(t *testing.T) {
	forgetBuilt(t, containerdtest.Open(t))
	source := filepath.Join(t.TempDir(), "one")
	for name, text := range map[string]string{
		"instruction.md":         "Do it.\n",
		"task.toml":              "artifacts = [\"/app/answer\", \"/app/more\"]\n[verifier.environment]\ndocker_image = \"" + containerdtest.Image + "\"\n",
		"environment/Dockerfile": "FROM " + containerdtest.Image + "\nWORKDIR /app\n",
		"tests/test.sh":          "[ \"$(cat /app/answer)\" = 42 ] && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt\n",
	} {
		name = filepath.Join(source, name)
		must(t, os.MkdirAll(filepath.Dir(name), 0o755))
		must(t, os.WriteFile(name, []byte(text), 0o644))
	}
	pack := filepath.Join(t.TempDir(), "pack")
	expect(t, codeMeasured, "imported 1 task(s)", "pack", "import", "--out", pack, "harbor", source)
	expect(t, codeMeasured, "sbench.local/", "image", "build", "--with", "sbench", "--pack", pack)
	const solved = "echo 42 > answer; "
	instead := func(program, script string) string { // what collects runs this
		return solved + "rm -f /usr/bin/" + program + "; printf '#!/bin/bash\\n" + script + "\\n' > /usr/bin/" + program + "; chmod +x /usr/bin/" + program
	}
	for name, tt := range map[string]struct{ script, want string }{
		"solved":                    {solved, "passed=1"},
		"no program is left":        {solved + "rm -rf /usr /bin /lib /sbin 2>/dev/null; true", "verified=1 passed=0"},
		"no users":                  {solved + "rm /etc/passwd /etc/group", "verified=1 passed=1"},
		"a hole for an answer":      {instead("cp", "truncate -s 3000G /opt/sbench/artifacts/app/answer"), "verified=1 passed=0"},
		"a pipe for an answer":      {instead("cp", "mkfifo /opt/sbench/artifacts/app/answer"), "verified=1 passed=0"},
		"links for directories":     {instead("mkdir", "ln -s /etc /opt/sbench/artifacts/app"), "verified=1 passed=0"},
		"more than there is room":   {instead("cp", "head -c 4G /dev/zero > /opt/sbench/artifacts/app/answer"), "verified=1 passed=0"},
		"a directory for an answer": {"mkdir answer", "verified=1 passed=0"},
		"links in a directory":      {solved + "mkdir more; ln -s /etc/shadow more/a; ln -s ../answer more/b; ln -s c more/c", "passed=1"},
	} {
		t.Run(name, func(t *testing.T) {
			command, err := json.Marshal([]string{"bash", "-c", tt.script})
			must(t, err)
			out := filepath.Join(t.TempDir(), "out")
			expect(t, codeMeasured, tt.want, "run", filepath.Join(pack, "tester-command.yaml"), "-o", out, "--progress", "plain", "--set", "harness.config.command="+string(command))
			expect(t, codeMeasured, "", "verify", out)
		})
	}
}
