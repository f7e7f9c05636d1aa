package pack_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/pack"
)

// FuzzImport gives every format almost valid sources. An import either fails with
// problems and leaves nothing, or its pack is valid and a second import gives the
// same. For task directories, data is a txtar archive of the files below the source; for
// all other formats it is the source.
func FuzzImport(f *testing.F) {
	all := formats()
	golden, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(golden) == 0 {
		f.Fatal("no golden files")
	}
	for _, name := range golden {
		archive, err := txtar.ParseFile(name)
		must.Do(f, err)
		source, _ := split(archive)
		for i, format := range all {
			if !strings.HasPrefix(filepath.Base(name), format.Name) {
				continue
			}
			for n := range source {
				source[n].Name = strings.TrimPrefix(source[n].Name, "src/")
			}
			data := source[0].Data
			if format.Family.CandidateKind == compiler.CandidateWorkspace {
				data = txtar.Format(&txtar.Archive{Files: source})
			}
			for flags := range byte(4) {
				f.Add(byte(i), flags, data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, format, flags byte, data []byte) {
		tryImport(t, all[int(format)%len(all)], flags, data)
	})
}

func tryImport(t *testing.T, f pack.Format, flags byte, data []byte) {
	t.Helper()
	dir := t.TempDir()
	o := pack.Options{
		Source: filepath.Join(dir, "source"), Skip: flags&1 != 0,
		Limits: pack.ImportLimits{Text: 1 << 20, Rows: 100, TaskFiles: 50},
	}
	if f.Options != nil {
		set := fmt.Sprintf(`{"pytest": %[1]v, "hints": %[1]v, "test_commands": {"example/calc": "pytest {tests}"}}`, flags&2 != 0)
		must.Do(t, json.Unmarshal([]byte(set), f.Options))
	}
	if f.Family.CandidateKind == compiler.CandidateWorkspace {
		makeDirectory(t, o.Source, data)
	} else {
		must.Do(t, os.WriteFile(o.Source, data, 0o644))
	}
	var trees [2]map[string]string
	for i, name := range []string{"one", "two"} {
		o.Out = filepath.Join(dir, name)
		_, err := pack.Import(context.Background(), f, o)
		var problems compiler.Problems
		switch {
		case err == nil:
			checkPack(t, o.Out)
			trees[i] = texts(readTree(t, o.Out))
		case !errors.As(err, &problems) || len(problems) == 0:
			t.Fatalf("%s: no problems: %v", f.Name, err)
		case exists(o.Out):
			t.Fatalf("%s: a pack in spite of %v", f.Name, err)
		}
	}
	if diff := cmp.Diff(trees[0], trees[1]); diff != "" {
		t.Errorf("%s: two imports differ:\n%s", f.Name, diff)
	}
	left, err := filepath.Glob(filepath.Join(dir, ".sbench-import-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// makeDirectory writes those files of an archive that the file system accepts.
func makeDirectory(t *testing.T, dir string, data []byte) {
	t.Helper()
	must.Do(t, os.Mkdir(dir, 0o755))
	root := must.OpenRoot(t, dir)
	for _, f := range files(string(data)) {
		if !filepath.IsLocal(f.Name) || strings.Count(f.Name, "/") > 6 {
			continue
		}
		if root.MkdirAll(filepath.Dir(f.Name), 0o755) == nil {
			_ = root.WriteFile(f.Name, f.Data, 0o644) // a name that is taken, or too long
		}
	}
}

// files parses an archive; the parser of package txtar is not made for untrusted
// text.
func files(text string) []txtar.File {
	var all []txtar.File
	for line := range strings.Lines(text) {
		name, ok := strings.CutPrefix(line, "-- ")
		name, end := strings.CutSuffix(name, " --\n")
		switch {
		case ok && end:
			all = append(all, txtar.File{Name: name})
		case len(all) > 0:
			last := &all[len(all)-1]
			last.Data = append(last.Data, line...)
		}
	}
	return all
}
