package pack_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/internal/test/filetest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/packtest"
	"github.com/securebench/sbench/pack"
)

const soundRow = `{"task_id": "A/0", "prompt": "def f():\n", "entry_point": "f", "canonical_solution": "    return 1\n", "test": "def check(c):\n    assert c() == 1\n"}` + "\n"

func zipped(t testing.TB, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write([]byte(text))
	must.Do(t, errors.Join(err, z.Close()))
	return b.Bytes()
}

// failing runs an import, and wants problems that contain the text and no files left
// behind.
func failing(t *testing.T, format string, o pack.Options, want string) {
	t.Helper()
	f, err := pack.Named(formats(), format)
	must.Do(t, err)
	parent := t.TempDir()
	if o.Out == "" {
		o.Out = filepath.Join(parent, "out")
	}
	_, err = pack.Import(context.Background(), f, o)
	var problems compiler.Problems
	if !errors.As(err, &problems) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want problems with %q", err, want)
	}
	for _, p := range problems {
		if p.File == "" {
			t.Errorf("no file: %v", p)
		}
	}
	entries, err := os.ReadDir(parent)
	must.Do(t, err)
	if len(entries) > 0 {
		t.Errorf("left behind: %v", entries)
	}
}

// TestBrokenFiles has the sources that golden files cannot contain.
func TestBrokenFiles(t *testing.T) {
	many := strings.Repeat(soundRow, 3)
	long := `{"task_id": "A/1", "prompt": "` + strings.Repeat("x", 2000) + `"}` + "\n"
	tests := []struct {
		name, format, file string
		content            []byte
		limits             pack.ImportLimits
		want               string
	}{
		{"truncated gzip", "humaneval", "a.jsonl.gz", zipped(t, many)[:100], pack.ImportLimits{}, "a.jsonl.gz:1: truncated gzip data"},
		{"damaged gzip", "humaneval", "a.jsonl.gz", append(zipped(t, many)[:12], bytes.Repeat([]byte{0xff}, 60)...), pack.ImportLimits{}, "damaged gzip data"},
		{"wrong checksum", "humaneval", "a.jsonl.gz", flipped(zipped(t, many), 5), pack.ImportLimits{}, "a.jsonl.gz:4: damaged gzip data: gzip: invalid checksum"},
		{"gzip head alone", "humaneval", "a.gz", []byte("\x1f\x8b"), pack.ImportLimits{}, "a.gz:1: truncated gzip data"},
		{"gzip bomb", "humaneval", "a.gz", zipped(t, strings.Repeat(" ", 1<<20)), pack.ImportLimits{Text: 1 << 16}, "decompressed data have more than 65536 bytes"},
		{"csv bomb", "mmlu", "a.csv", zipped(t, strings.Repeat("\"\n", 1<<20)), pack.ImportLimits{Text: 1 << 16}, "decompressed data have more than 65536 bytes"},
		{"large file", "humaneval", "a.jsonl", []byte(many), pack.ImportLimits{Text: 100}, "more than 100"},
		{"long line", "humaneval", "a.jsonl", []byte(soundRow + long), pack.ImportLimits{Line: 1000}, "a.jsonl:2: line is longer than 1000 bytes"},
		{"long record", "mmlu", "a.csv", []byte("q,1,2,3,4,A\n" + strings.Repeat("x", 2000) + ",1,2,3,4,A\n"), pack.ImportLimits{Line: 1000}, "a.csv:2: record is longer than 1000 bytes"},
		{"many rows", "humaneval", "a.jsonl", []byte(many), pack.ImportLimits{Rows: 2}, "a.jsonl:3: more than 2 tasks"},
		{"many questions", "squad", "a.json", []byte(`{"data":[{"paragraphs":[{"context":"c","qas":[{"id":"a","question":"q","answers":[{"text":"t"}]},{"id":"b","question":"q","answers":[{"text":"t"}]}]}]}]}`), pack.ImportLimits{Rows: 1}, "more than 1 tasks"},
		{"parquet", "swebench", "a.parquet", []byte("PAR1...."), pack.ImportLimits{}, "a Parquet file is not supported (convert it to JSONL"},
		{"zip", "mmlu", "data.csv", []byte("PK\x03\x04"), pack.ImportLimits{}, "a zip archive is not supported"},
		{"empty", "humaneval", "a.jsonl", nil, pack.ImportLimits{}, "no task to import (the source is empty)"},
		{"no header", "truthfulqa", "a.csv", nil, pack.ImportLimits{}, "a.csv:1: no header"},
		{"latin-1", "mmlu", "a.csv", []byte("q\n,1,2,3,4,A\nGr\xf6\xdfe,1,2,3,4,A\n"), pack.ImportLimits{}, "a.csv:3: invalid UTF-8"},
		{"utf-16", "humaneval", "a.jsonl", []byte("\xff\xfe{\x00}\x00"), pack.ImportLimits{}, "a.jsonl:1: invalid JSON"},
		{"no object", "squad", "a.json", []byte("[]"), pack.ImportLimits{}, "a.json:1: $.data: expected an array"},
		{"malformed", "squad", "a.json", []byte("{\n\"data\": [\n}"), pack.ImportLimits{}, "a.json:3: invalid JSON"},
		{"many problems", "humaneval", "a.jsonl", []byte(strings.Repeat("{\n", 1000)), pack.ImportLimits{}, "stopped after 20 problems"},
		{"not a number", "swebench", "a.jsonl", []byte(`{"instance_id": NaN}`), pack.ImportLimits{}, "a.jsonl:1: invalid JSON"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			source := filepath.Join(t.TempDir(), tt.file)
			must.Do(t, os.WriteFile(source, tt.content, 0o644))
			failing(t, tt.format, pack.Options{Source: source, Limits: tt.limits}, tt.want)
		})
	}
}

// flipped changes a byte, counted from the end.
func flipped(b []byte, fromEnd int) []byte {
	b[len(b)-fromEnd] ^= 0xff
	return b
}

// TestSources has paths that are not a source of the format.
func TestSources(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, os.Mkdir(filepath.Join(dir, "empty"), 0o755))
	must.Do(t, os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o644))
	for _, f := range formats() {
		for source, want := range map[string]string{
			"missing": "no such file or directory", "empty": "", "file": "",
		} {
			failing(t, f.Name, pack.Options{Source: filepath.Join(dir, source)}, want)
		}
	}
	failing(t, "humaneval", pack.Options{Source: "/dev/zero"}, "no regular file")
}

// TestTaskDirectories has task directories with content that is not allowed.
func TestTaskDirectories(t *testing.T) {
	tests := []struct {
		name   string
		make   func(t *testing.T, task string)
		limits pack.ImportLimits
		want   string
	}{
		{"link out", func(t *testing.T, task string) {
			must.Do(t, os.Symlink("/etc/passwd", filepath.Join(task, "tests", "p")))
		}, pack.ImportLimits{}, `/one/tests/p: the symbolic link leads to /etc/passwd, which is no file beside it`},
		{"link to another directory", func(t *testing.T, task string) {
			must.Do(t, os.Symlink("../task.yaml", filepath.Join(task, "tests", "copy")))
		}, pack.ImportLimits{}, `/one/tests/copy: the symbolic link leads to ../task.yaml`},
		{"link to a directory", func(t *testing.T, task string) { must.Do(t, os.Symlink("..", filepath.Join(task, "tests", "up"))) }, pack.ImportLimits{}, `/one/tests/up: the symbolic link leads to ..`},
		{"fifo", mkfifo, pack.ImportLimits{}, `"pipe" is no file or directory`},
		{"backslash", func(t *testing.T, task string) { must.Do(t, os.WriteFile(filepath.Join(task, `..\x`), nil, 0o644)) }, pack.ImportLimits{}, "holds a backslash"},
		{"control character", func(t *testing.T, task string) { must.Do(t, os.WriteFile(filepath.Join(task, "a\nb"), nil, 0o644)) }, pack.ImportLimits{}, "holds a control character"},
		{"not utf-8", func(t *testing.T, task string) { must.Do(t, os.WriteFile(filepath.Join(task, "a\xff"), nil, 0o644)) }, pack.ImportLimits{}, "the name is not UTF-8"},
		{"large file", func(t *testing.T, task string) {
			must.Do(t, os.WriteFile(filepath.Join(task, "big"), make([]byte, 2000), 0o644))
		}, pack.ImportLimits{File: 1000}, `"big": is too big: it has 2000 bytes, more than 1000`},
		{"sparse file", func(t *testing.T, task string) {
			must.Do(t, errors.Join(os.WriteFile(filepath.Join(task, "big"), nil, 0o644), os.Truncate(filepath.Join(task, "big"), 1<<40)))
		}, pack.ImportLimits{}, "more than 268435456"},
		{"large directory", func(t *testing.T, task string) {
			must.Do(t, os.WriteFile(filepath.Join(task, "big"), make([]byte, 2000), 0o644))
		}, pack.ImportLimits{TaskBytes: 1000}, "/one: more than 1000 bytes"},
		{"large source", func(t *testing.T, task string) {
			must.Do(t, os.WriteFile(filepath.Join(task, "big"), make([]byte, 2000), 0o644))
		}, pack.ImportLimits{AllBytes: 1000}, "the task directories hold more than 1000 bytes"},
		{"many links to a file", func(t *testing.T, task string) {
			must.Do(t, os.WriteFile(filepath.Join(task, "tests", "big"), make([]byte, 2000), 0o644))
			for _, name := range []string{"a", "b", "c"} {
				must.Do(t, os.Symlink("big", filepath.Join(task, "tests", name)))
			}
		}, pack.ImportLimits{AllBytes: 6000}, "the task directories hold more than 6000 bytes"},
		{"many files", func(t *testing.T, task string) { must.Do(t, os.WriteFile(filepath.Join(task, "more"), nil, 0o644)) }, pack.ImportLimits{TaskFiles: 4}, "more than 4 files"},
		{"many tasks", func(t *testing.T, task string) {
			must.Do(t, os.CopyFS(filepath.Join(filepath.Dir(task), "two"), os.DirFS(task)))
		}, pack.ImportLimits{Rows: 1}, "more than 1 tasks"},
		{"binary instruction", func(t *testing.T, task string) {
			must.Do(t, os.WriteFile(filepath.Join(task, "task.yaml"), []byte("instruction: \xff"), 0o644))
		}, pack.ImportLimits{}, "task.yaml: invalid UTF-8"},
		{"workdir", func(t *testing.T, task string) {
			must.Do(t, os.WriteFile(filepath.Join(task, "docker-compose.yaml"), []byte("services: {client: {working_dir: /}}\n"), 0o644))
		}, pack.ImportLimits{}, "$.environment.workdir: workdir is the root directory"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			source := t.TempDir()
			task := filepath.Join(source, "one")
			must.Do(t, os.MkdirAll(filepath.Join(task, "tests"), 0o755))
			for name, text := range map[string]string{"task.yaml": "instruction: x\n", "Dockerfile": "FROM x\n", "run-tests.sh": "true\n", "solution.sh": "true\n"} {
				must.Do(t, os.WriteFile(filepath.Join(task, name), []byte(text), 0o644))
			}
			tt.make(t, task)
			failing(t, "terminal-bench", pack.Options{Source: source, Limits: tt.limits}, tt.want)
		})
	}
}

func mkfifo(t *testing.T, task string) {
	must.Do(t, unix.Mkfifo(filepath.Join(task, "pipe"), 0o644))
}

// TestDestination shows that an import replaces neither a pack nor anything else.
func TestDestination(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "a.jsonl")
	must.Do(t, os.WriteFile(source, []byte(soundRow), 0o644))
	must.Do(t, os.MkdirAll(filepath.Join(dir, "nested", "directory"), 0o755))
	must.Do(t, os.WriteFile(filepath.Join(dir, "nested", "manifest.yaml"), []byte("id: x\nversion: 1\n"), 0o644))
	for name, o := range map[string]pack.Options{
		"is there already":       {Out: dir},
		"not a directory":        {Out: source},
		"no directory to fill":   {Out: filepath.Join(dir, "none"), Fill: true},
		"holds no manifest":      {Out: filepath.Join(dir, "nested", "directory"), Fill: true},
		"holds directory, which": {Out: filepath.Join(dir, "nested"), Fill: true},
		"no id matches the sel":  {Tasks: []string{"B/*"}},
		"a row of this format":   {Image: "x/{nonsense}"},
	} {
		o.Source = source
		failing(t, "humaneval", o, name)
	}
}

// TestFill puts rows into a directory with a manifest of its own. An image that the operator names is in the rows, since the
// manifest is not changed.
func TestFill(t *testing.T) {
	dir := t.TempDir()
	source, out := filepath.Join(dir, "a.jsonl"), filepath.Join(dir, "out")
	must.Do(t, os.WriteFile(source, []byte(soundRow), 0o644))
	must.Do(t, os.Mkdir(out, 0o755))
	const manifest = "id: mine # kept\nversion: 7\ndefaults:\n  family: code_completion\n  environment: {image: \"x@sha256:0000000000000000000000000000000000000000000000000000000000000000\"}\n"
	filetest.Write(t, out, map[string]string{"manifest.yaml": manifest, "README.md": "read me\n"})
	f, err := pack.Named(formats(), "humaneval")
	must.Do(t, err)
	report, err := pack.Import(context.Background(), f, pack.Options{Source: source, Out: out, Fill: true})
	if err != nil || report.Tasks != 1 {
		t.Fatalf("%+v %v", report, err)
	}
	files := texts(readTree(t, out))
	if files["out/manifest.yaml"] != manifest || files["out/README.md"] != "read me\n" || files["out/tasks.jsonl"] == "" || files["out/provenance.json"] == "" || len(files) != 4 {
		t.Errorf("files %v", files)
	}
	checkPack(t, out)
	must.Do(t, os.MkdirAll(filepath.Join(out, "hidden/of-an-earlier-import"), 0o755))
	report, err = pack.Import(context.Background(), f, pack.Options{Source: source, Out: out, Fill: true, Image: "sbench.local/x"})
	files = texts(readTree(t, out))
	if err != nil || len(files) != 4 || files["out/manifest.yaml"] != manifest || !strings.Contains(files["out/tasks.jsonl"], `"image":"sbench.local/x"`) || len(report.Notes) > 0 {
		t.Errorf("a second time, with another image: %v, %v, files %v", err, report.Notes, files)
	}
	must.Do(t, os.Remove(filepath.Join(out, "provenance.json")))
	_, err = pack.Import(context.Background(), f, pack.Options{Source: source, Out: out, Fill: true})
	must.Tells(t, err, "tasks.jsonl is there already, and no import made it") // over rows that no import made
}

// TestCancelled shows that a canceled import leaves nothing behind.
func TestCancelled(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "a.jsonl")
	must.Do(t, os.WriteFile(source, []byte(soundRow), 0o644))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	f, err := pack.Named(formats(), "humaneval")
	must.Do(t, err)
	_, err = pack.Import(ctx, f, pack.Options{Source: source, Out: filepath.Join(dir, "out")})
	entries, also := os.ReadDir(dir)
	must.Do(t, also)
	if !errors.Is(err, context.Canceled) || len(entries) != 1 {
		t.Errorf("%v, left %v", err, entries)
	}
}

// TestImportedHumanEval imports the published file.
func TestImportedHumanEval(t *testing.T) {
	source, err := packtest.HumanEval(t)
	if err != nil {
		t.Skip(err)
	}
	f, err := pack.Named(formats(), "humaneval")
	must.Do(t, err)
	out := filepath.Join(t.TempDir(), "out")
	report, err := pack.Import(context.Background(), f, pack.Options{Source: source, Out: out})
	if err != nil || report.Tasks != 164 || len(report.Left) > 0 {
		t.Fatalf("%+v %v", report, err)
	}
	checkPack(t, out)
	// A truncated file is an error, wherever it is cut.
	whole := must.Read(t, source)
	for _, n := range []int{10, 1000, len(whole) / 2, len(whole) - 1} {
		cut := filepath.Join(t.TempDir(), "HumanEval.jsonl.gz")
		must.Do(t, os.WriteFile(cut, whole[:n], 0o644))
		failing(t, "humaneval", pack.Options{Source: cut}, "truncated gzip data")
	}
}
