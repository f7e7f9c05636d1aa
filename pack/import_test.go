package pack_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/compiler/validate"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/pack"
	"github.com/securebench/sbench/pack/harbor"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestGolden imports the sources in testdata and compares the results. The head of a
// file has the format and the options, the files below src are the source, and all
// others are the expected pack.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 15 {
		t.Fatalf("%d golden files: %v", len(files), err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(name)
			must.Do(t, err)
			source, want := split(archive)
			got := importGolden(t, archive, source)
			if *update {
				archive.Files = append(source, got...)
				must.Do(t, os.WriteFile(name, txtar.Format(archive), 0o644))
				return
			}
			must.Equal(t, texts(want), texts(got))
		})
	}
}

// formats returns the formats that the command line has.
func formats() []pack.Format { return append(pack.Formats(), harbor.Formats()...) }

func split(a *txtar.Archive) (source, want []txtar.File) {
	for _, f := range a.Files {
		if strings.HasPrefix(f.Name, "src/") {
			source = append(source, f)
		} else {
			want = append(want, f)
		}
	}
	return source, want
}

func texts(files []txtar.File) map[string]string {
	m := map[string]string{}
	for _, f := range files {
		m[f.Name] = string(f.Data)
	}
	return m
}

// head parses the first lines of a golden file.
func head(t *testing.T, a *txtar.Archive) (f pack.Format, o pack.Options) {
	t.Helper()
	for line := range strings.Lines(string(a.Comment)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		var err error
		switch key {
		case "format":
			f, err = pack.Named(formats(), value)
		case "source":
			o.Source = value
		case "options": // as the provenance has them
			if err = json.Unmarshal([]byte(value), &o); err == nil && f.Options != nil {
				err = json.Unmarshal([]byte(value), f.Options)
			}
		}
		must.Do(t, err)
	}
	return f, o
}

// importGolden imports the source and checks what is true of every import: a second
// one elsewhere gives the same bytes, validation reports nothing but images without a
// digest, agents see nothing that is not public, and nothing is left beside the pack.
func importGolden(t *testing.T, a *txtar.Archive, source []txtar.File) []txtar.File {
	t.Helper()
	first, dir := importOnce(t, a, source)
	second, _ := importOnce(t, a, source)
	if diff := cmp.Diff(texts(first), texts(second)); diff != "" {
		t.Errorf("two imports differ:\n%s", diff)
	}
	if out := filepath.Join(dir, "out"); exists(out) {
		checkPack(t, out)
	}
	entries, err := os.ReadDir(dir)
	must.Do(t, err)
	for _, e := range entries {
		if e.Name() != "src" && e.Name() != "out" {
			t.Errorf("the import left %s behind", e.Name())
		}
	}
	return first
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

func importOnce(t *testing.T, a *txtar.Archive, source []txtar.File) ([]txtar.File, string) {
	t.Helper()
	dir := t.TempDir()
	writeTree(t, dir, source)
	f, o := head(t, a)
	o.Source, o.Out, o.Agents = filepath.Join(dir, o.Source), filepath.Join(dir, "out"), harness.AgentTypes()
	report, err := pack.Import(context.Background(), f, o)
	strip := func(text string) []byte { return []byte(strings.ReplaceAll(text, dir+"/", "") + "\n") }
	if err != nil {
		var problems compiler.Problems
		if !errors.As(err, &problems) || exists(o.Out) {
			t.Fatalf("error %v, pack made: %v", err, exists(o.Out))
		}
		return []txtar.File{{Name: "error", Data: strip(err.Error())}}, dir
	}
	files := readTree(t, o.Out)
	for name, problems := range map[string]compiler.Problems{"left-out": report.Left, "notes": report.Notes} {
		if len(problems) > 0 {
			files = append(files, txtar.File{Name: name, Data: strip(problems.Error())})
		}
	}
	slices.SortFunc(files, func(a, b txtar.File) int { return strings.Compare(a.Name, b.Name) })
	return files, dir
}

func writeTree(t testing.TB, dir string, files []txtar.File) {
	t.Helper()
	for _, f := range files {
		name := filepath.Join(dir, f.Name)
		must.Do(t, os.MkdirAll(filepath.Dir(name), 0o755))
		must.Do(t, os.WriteFile(name, f.Data, 0o644))
	}
}

// readTree reads a pack, and marks executable files. Tester files differ between
// formats in names only, so those of one format are enough.
func readTree(t testing.TB, dir string) []txtar.File {
	t.Helper()
	var files []txtar.File
	must.Do(t, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		if strings.HasPrefix(rel, "tester-") && !exists(filepath.Join(dir, "hidden", "json-reward")) {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text, err := os.ReadFile(name)
		if info.Mode()&0o111 != 0 {
			rel += "*"
		}
		if len(text) > 0 && !bytes.HasSuffix(text, []byte("\n")) {
			text = append(text, '\n')
		}
		files = append(files, txtar.File{Name: "out/" + rel, Data: text})
		return err
	}))
	return files
}

// checkPack validates a pack, which includes a search of what an agent sees for values that are not
// public.
func checkPack(t testing.TB, dir string) {
	t.Helper()
	_, err := validate.Files(context.Background(), []string{dir}, harness.AgentTypes(), func(p compiler.Problem) {
		if !strings.Contains(p.Message, "has no digest") && p.Path != "$.eval.checker" { // what the source cannot say otherwise
			t.Errorf("validation: %v", p)
		}
	})
	must.Do(t, err)
	p, err := family.OpenPack(filepath.Join(dir, "manifest.yaml"), filepath.Join(dir, "tasks.jsonl"))
	must.Do(t, err)
	for task, err := range p.Tasks() {
		must.Do(t, err)
		if assets := task.AgentView().Assets; len(assets) > 0 && !task.Stepped() {
			t.Errorf("%s: assets %v", task.ID(), assets)
		}
	}
}

// TestAddRejects: with --skip, a task with a row that cannot be written is left out with all of its steps, and does not
// count towards the limit.
func TestAddRejects(t *testing.T) {
	f, err := pack.Named(formats(), "harbor")
	must.Do(t, err)
	row := func(id string, step *pack.Step, weight float64) pack.Row {
		return pack.Row{
			ID: id, Step: step, Input: map[string]any{"instructions": "x"}, Metadata: map[string]any{"weight": weight},
			Eval: map[string]any{"checker": map[string]any{"command": "true"}}, Environment: map[string]any{"image": "x:1", "candidate": "machine"},
		}
	}
	f.Read = func(ctx context.Context, b *pack.Builder) error {
		step := &pack.Step{Task: "steps"}
		if err := b.Add(ctx, pack.Place{File: "a"}, row("steps/one", step, 1), row("steps/two", step, math.NaN())); err != nil {
			return err
		}
		return b.Add(ctx, pack.Place{File: "b"}, row("whole", nil, 1))
	}
	out := filepath.Join(t.TempDir(), "out")
	report, err := pack.Import(t.Context(), f, pack.Options{Out: out, Skip: true, Limit: 1})
	must.Do(t, err)
	rows := string(must.Read(t, filepath.Join(out, "tasks.jsonl")))
	if report.Tasks != 1 || len(report.Left) != 1 || strings.Count(rows, "\n") != 1 || !strings.Contains(rows, `"whole"`) {
		t.Errorf("%+v\n%s", report, rows)
	}
}
