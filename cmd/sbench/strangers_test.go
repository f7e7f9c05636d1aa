package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/securebench/sbench/internal/test/containerdtest"
)

// TestStrangers: of tasks in Harbor's form as people write them, each reference passes and each empty
// candidate fails.
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
		write(task+"/instruction.md", "Do it.\n")
		if _, err := os.Lstat(filepath.Join(source, task, "task.toml")); err != nil {
			write(task+"/task.toml", "version = \"1.0\"\n")
		}
		write(f.Name, string(f.Data))
	}
	pack, out := filepath.Join(t.TempDir(), "pack"), filepath.Join(t.TempDir(), "check")
	expect(t, codeMeasured, "imported 5 task(s)", "pack", "import", "--out", pack, "harbor", source)
	expect(t, codeMeasured, "sbench.local/harbor-", "image", "build", "--with", "sbench", "--pack", pack)
	expect(t, codeMeasured, "checked 5 task(s): reference passed 5, empty passed 0", "pack", "check", "-o", out, "--progress", "plain", pack)
	if files, err := filepath.Glob(filepath.Join(out, "reference", "logs", "root-*", "1", "checker-reward.json")); err != nil || len(files) != 1 {
		t.Errorf("the checker's files were not kept: %v %v", files, err)
	}
}
