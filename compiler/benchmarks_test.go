package compiler_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/compiler/validate"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/internal/test/must"
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
	must.Do(t, err)
	if summary.Packs < 6 || summary.Testers < 6 {
		t.Errorf("summary %+v", summary)
	}
	filled, err := filepath.Glob("../benchmarks/*/provenance.json")
	if err != nil || len(filled) < 4 {
		t.Error(filled, err)
	}
	for _, name := range filled { // the ids of rows that stand in for public ones say so
		text := must.Read(t, filepath.Join(filepath.Dir(name), "tasks.jsonl"))
		for line := range strings.Lines(string(text)) {
			if id := strings.SplitN(line, `"`, 5)[3]; !strings.Contains(id, "own") && !strings.HasPrefix(id, "repo-patch-smoke/") {
				t.Errorf("%s has %s", name, id)
			}
		}
	}
	for _, f := range family.All() {
		dir := filepath.Join("../benchmarks", strings.ReplaceAll(f.Name, "_", "-")+"-smoke")
		if !f.Active() {
			continue
		}
		for _, name := range []string{"manifest.yaml", "tasks.jsonl", "tester-command.yaml", "README.md"} {
			_, err := os.Stat(filepath.Join(dir, name))
			must.Report(t, err)
		}
	}
}
