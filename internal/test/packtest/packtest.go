// Package packtest opens the packs of tests.
package packtest

import (
	"path/filepath"
	"testing"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/internal/test/filetest"
	"github.com/securebench/sbench/internal/test/must"
)

// Manifest is a manifest without defaults.
const Manifest = "id: p\nversion: 1\n"

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
