// Package packtest opens the packs of tests.
package packtest

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/internal/test/filetest"
	"github.com/securebench/sbench/internal/test/must"
)

// Manifest is a manifest without defaults.
const Manifest = "id: p\nversion: 1\n"

// HumanEval returns the published problems' file, in the directory that SBENCH_DATA names or beside the repository. The error
// says that it is missing. In CI it may be missing only with the whole directory.
func HumanEval(tb testing.TB) (file string, err error) {
	tb.Helper()
	root, err := os.Getwd()
	must.Do(tb, err)
	for root != "/" && !exists(filepath.Join(root, "go.mod")) {
		root = filepath.Dir(root)
	}
	dir := must.Abs(tb, cmp.Or(os.Getenv("SBENCH_DATA"), filepath.Join(root, "../shared/data")))
	file = filepath.Join(dir, "humaneval/HumanEval.jsonl.gz")
	if _, err = os.Stat(file); err != nil {
		if _, missing := os.Stat(dir); missing == nil && os.Getenv("CI") == "true" {
			tb.Fatalf("the data directory is there, and the HumanEval problems are not: %v", err)
		}
		err = fmt.Errorf("THE HUMANEVAL PROBLEMS ARE MISSING, so nothing is shown on them; SBENCH_DATA names the directory with humaneval/HumanEval.jsonl.gz: %w", err)
	}
	return file, err
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// Open writes a manifest and rows into dir, and opens the pack there and all its tasks.
func Open(tb testing.TB, dir, manifest, rows string) (*compiler.Pack, []*compiler.Task) {
	tb.Helper()
	filetest.Write(tb, dir, map[string]string{"manifest.yaml": manifest, "tasks.jsonl": rows})
	pack, err := family.OpenPack(filepath.Join(dir, "manifest.yaml"), filepath.Join(dir, "tasks.jsonl"))
	must.Do(tb, err)
	var tasks []*compiler.Task
	for task, err := range pack.Tasks() {
		must.Do(tb, err)
		tasks = append(tasks, task)
	}
	return pack, tasks
}

// Task is Open for a pack of one row in a directory of its own.
func Task(tb testing.TB, row string) (*compiler.Task, *compiler.Pack) {
	tb.Helper()
	pack, tasks := Open(tb, tb.TempDir(), Manifest, row)
	return tasks[0], pack
}
