package compiler_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/compiler/validate"
	"github.com/securebench/sbench/harness"
)

// TestBenchmarks validates the packs of this repository: there are no errors, and only the intended
// warnings.
func TestBenchmarks(t *testing.T) {
	meant := map[string]bool{
		"a rubric in prose has no verifier: records stay pending": true, // a row of free-response-smoke shows it
	}
	summary, err := validate.Files(t.Context(), []string{"../benchmarks"}, harness.AgentTypes(), func(p compiler.Problem) {
		if !meant[p.Message] {
			t.Error(p)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if summary.Packs < 6 || summary.Testers < 6 {
		t.Errorf("summary %+v", summary)
	}
	for _, f := range family.All() {
		dir := filepath.Join("../benchmarks", strings.ReplaceAll(f.Name, "_", "-")+"-smoke")
		if !f.Active() {
			continue
		}
		for _, name := range []string{"manifest.yaml", "tasks.jsonl", "tester-command.yaml", "README.md"} {
			if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestBaseCommit creates the repository of repo-patch-smoke and compares its commit
// with the rows.
func TestBaseCommit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("needs git, which CI must have")
		}
		t.Skip("no git")
	}
	pack := "../benchmarks/repo-patch-smoke"
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "bash", filepath.Join(pack, "make-testbed.sh"), filepath.Join(dir, "testbed"))
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	p, err := family.OpenPack(filepath.Join(pack, "manifest.yaml"), filepath.Join(pack, "tasks.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for task, err := range p.Tasks() {
		if err != nil {
			t.Fatal(err)
		}
		if eval := family.RepoPatchOf(task); eval.BaseCommit != strings.TrimSpace(string(out)) {
			t.Errorf("%s has base_commit %s, the repository %s", task.ID(), eval.BaseCommit, out)
		}
	}
}
