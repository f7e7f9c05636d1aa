package compiler_test

import (
	"errors"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/internal/test/filetest"
	"github.com/securebench/sbench/internal/test/must"
)

// TestAuthoring reads every example of docs/authoring.md, and the tester file of docs/tester.md. Tables have every key
// of the environment.
func TestAuthoring(t *testing.T) {
	var doc []byte
	for _, page := range []string{"../docs/authoring.md", "../docs/tester.md"} {
		text := must.Read(t, page)
		doc = append(doc, text...)
	}
	examples := regexp.MustCompile("(?s)```(?:json|yaml) (row|manifest|tester)\n(.*?)```").FindAllSubmatch(doc, -1)
	dir := t.TempDir()
	var manifest, tester, rows []byte
	for _, example := range examples {
		switch string(example[1]) {
		case "manifest":
			manifest = example[2]
		case "tester":
			tester = example[2]
		default:
			rows = append(rows, example[2]...)
		}
	}
	filetest.Write(t, dir, map[string]string{"manifest.yaml": string(manifest), "tasks.jsonl": string(rows), "tester.yaml": string(tester)})
	if _, warnings, err := testerfile.Load(filepath.Join(dir, "tester.yaml"), nil); err != nil || len(warnings) > 0 {
		t.Error(warnings, err)
	}
	pack, err := family.OpenPack(filepath.Join(dir, "manifest.yaml"), filepath.Join(dir, "tasks.jsonl"))
	must.Do(t, err)
	families := map[string]bool{}
	for task, err := range pack.Tasks() {
		var problems compiler.Problems
		if errors.As(err, &problems) {
			t.Error(problems)
			continue
		}
		families[task.Family().Name] = true
	}
	for _, f := range family.All() {
		if f.Active() && !families[f.Name] {
			t.Errorf("no example of %s", f.Name)
		}
	}

	type object struct{ Properties map[string]object }
	schema := must.Decode[object](t, must.Read(t, "../docs/schemas/manifest.schema.json"))
	keys := schema.Properties["defaults"].Properties["environment"].Properties
	for key := range keys {
		if !regexp.MustCompile("(?m)^\\|[^|]*`" + key + `\b`).Match(doc) {
			t.Errorf("no table of docs/authoring.md has the environment's key %s", key)
		}
	}
	if len(keys) < 10 {
		t.Errorf("%d keys of the environment", len(keys))
	}
}
