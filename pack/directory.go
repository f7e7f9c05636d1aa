package pack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/document"
)

// taskOptions are the options of formats whose tasks are directories.
type taskOptions struct {
	Pytest  bool `json:"pytest,omitempty" help:"Task directories: let pytest check instead of the task's own script."`
	Machine bool `json:"machine,omitempty" help:"Task directories: let tasks change all of the image, not only those that name a place outside their working directory."`
}

// A task is one directory of a source, with all its files in memory.
type task struct {
	id    string
	place Place // the directory
	files []taskFile
	// problems are those of the task. If there are any, it gets no row.
	problems compiler.Problems
}

type taskFile struct {
	path       string // clean, relative to the directory
	text       []byte
	executable bool
}

var directoryName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// tasks yields the task directories of the source, or the source itself if it contains the
// file marker. It skips files, and directories whose names begin with a dot or an
// underscore.
func (b *Builder) tasks(ctx context.Context, marker string, yield func(*task) error) error {
	at := Place{File: b.Source}
	entries, err := os.ReadDir(b.Source)
	if err != nil {
		return at.problem("", "%v", compiler.Bare(err))
	}
	if slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == marker }) {
		absolute, err := filepath.Abs(b.Source)
		if err != nil {
			return err
		}
		return b.oneTask(ctx, filepath.Base(absolute), b.Source, yield)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || strings.HasPrefix(e.Name(), "_") || e.Type().IsRegular() {
			continue
		}
		if err := b.oneTask(ctx, e.Name(), filepath.Join(b.Source, e.Name()), yield); err != nil {
			return err
		}
	}
	return nil
}

func (b *Builder) oneTask(ctx context.Context, id, dir string, yield func(*task) error) error {
	at := Place{File: dir}
	if err := b.Count(ctx, at); err != nil {
		return err
	}
	if !b.Wanted(id) || b.leave[at] {
		return nil
	}
	if !directoryName.MatchString(id) {
		return b.Reject(at.problem("", "%q cannot be a task's id: it is made of letters, digits and . _ -", id)...)
	}
	t := &task{id: id, place: at}
	if err := t.read(dir, b.Limits); err != nil {
		return b.Reject(at.problem("", "%v", err)...)
	}
	for _, f := range t.files {
		b.bytes += int64(len(f.text))
	}
	if b.bytes > b.Limits.AllBytes {
		return at.problem("", "the task directories hold more than %d bytes", b.Limits.AllBytes)
	}
	if err := yield(t); err != nil {
		return err
	}
	return b.Reject(t.problems...)
}

// read reads everything below dir. dir and everything below it must be files or directories;
// symbolic links are errors.
func (t *task) read(dir string, limits ImportLimits) error {
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return errors.Join(err, errors.New("not a directory"))
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	left := limits.TaskBytes
	return compiler.WalkFiles(dir, ".", func(name string, info fs.FileInfo) error {
		if info.IsDir() {
			return nil
		}
		if _, err := compiler.ParsePath(name); err != nil {
			return err
		}
		if len(t.files) == limits.TaskFiles {
			return fmt.Errorf("more than %d files", limits.TaskFiles)
		}
		f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		var text []byte
		if err == nil {
			text, err = readRegular(f, min(limits.File, left))
			_ = f.Close()
		}
		if err != nil {
			return fmt.Errorf("%q: %w", name, compiler.Bare(err))
		}
		left -= int64(len(text))
		t.files = append(t.files, taskFile{name, text, info.Mode()&0o111 != 0})
		return nil
	})
}

// treeDigest returns the digest of all files: their paths, their bytes, and whether they are
// executable.
func treeDigest(files []taskFile) string {
	var records []byte
	for _, f := range files {
		mode := "0644"
		if f.executable {
			mode = "0755"
		}
		records = fmt.Appendf(records, "f %s %s %s\x00", mode, digest(f.text), f.path)
	}
	return digest(records)
}

func (t *task) file(name string) (taskFile, bool) {
	i := slices.IndexFunc(t.files, func(f taskFile) bool { return f.path == name })
	if i < 0 {
		return taskFile{}, false
	}
	return t.files[i], true
}

// below returns the files of a directory, with paths relative to it.
func (t *task) below(dir string) []taskFile {
	var files []taskFile
	for _, f := range t.files {
		if rest, ok := strings.CutPrefix(f.path, dir+"/"); ok {
			f.path = rest
			files = append(files, f)
		}
	}
	return files
}

// wrong records a problem with a file of the task; line is 0 for none.
func (t *task) wrong(name string, line int, hint, format string, args ...any) {
	t.problems = append(t.problems, compiler.Problem{File: t.path(name), Line: line, Message: fmt.Sprintf(format, args...), Hint: hint})
}

func (t *task) path(name string) string { return filepath.Join(t.place.File, name) }

// text returns the content of a file that must exist and be text that is not blank;
// otherwise it records a problem and returns "".
func (t *task) text(name string) string {
	f, ok := t.file(name)
	switch {
	case !ok:
		t.wrong(name, 0, "", "the task has no such file")
	case !utf8.Valid(f.text):
		t.wrong(name, 0, "", "invalid UTF-8")
	case len(bytes.TrimSpace(f.text)) == 0:
		t.wrong(name, 0, "", "file is blank")
	default:
		return strings.TrimPrefix(string(f.text), "\ufeff")
	}
	return ""
}

// yaml reads a file as YAML.
func (t *task) yaml(name string) document.Value {
	text := t.text(name)
	if text == "" {
		return document.Value{}
	}
	var doc document.Document
	if problems := doc.ParseYAML([]byte(text)); len(problems) > 0 {
		t.problems = append(t.problems, problems.In(t.path(name))...)
		return document.Value{}
	}
	if doc.Root().Kind() != document.Object {
		t.wrong(name, 1, "", "expected a mapping, found %s", doc.Root().Kind())
	}
	return doc.Root()
}

// workdirOf returns the last working directory that a Dockerfile sets; "" if there is none
// or it uses a variable.
func workdirOf(dockerfile string) string {
	dir := ""
	for line := range strings.Lines(dockerfile) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		rest = strings.Trim(strings.TrimSpace(rest), `"'`)
		switch {
		case strings.EqualFold(word, "FROM"):
			dir = ""
		case !strings.EqualFold(word, "WORKDIR") || rest == "":
		case strings.Contains(rest, "$"):
			dir = ""
		case path.IsAbs(rest):
			dir = path.Clean(rest)
		default:
			dir = path.Join("/", dir, rest)
		}
	}
	return dir
}

// noteFetching notes the first line in a task's test scripts that needs the network.
func (b *Builder) noteFetching(t *task) {
	for _, f := range t.files {
		if f.path != "run-tests.sh" && !(strings.HasPrefix(f.path, "tests/") && strings.HasSuffix(f.path, ".sh")) {
			continue
		}
		n := 0
		for line := range strings.Lines(string(f.text)) {
			n++
			line = strings.TrimSpace(line)
			if what := fetching.FindString(line); what != "" && !strings.HasPrefix(line, "#") {
				b.Note(Place{File: t.path(f.path), Line: n}, "the script needs the network (%s), which a verifier does not have: --pytest runs the tests without it", strings.TrimSpace(what))
				return
			}
		}
	}
}

var fetching = regexp.MustCompile(`\b(apt-get|apt|apk|dnf|yum|curl|wget|npm|npx|uv|uvx|git clone|conda|pip3?\s+install)\s`)

// place writes files below a directory of the pack.
func (b *Builder) place(dir string, files []taskFile) error {
	for _, f := range files {
		if err := b.write(path.Join(dir, f.path), f.text, f.executable); err != nil {
			return err
		}
	}
	return nil
}

// A terminalTask is what a format says about a task in a directory.
type terminalTask struct {
	row      Row        // without what addTask sets
	script   taskFile   // checks the workspace, and is placed beside the tests; zero if pytest checks
	seconds  any        // of the check
	solution []taskFile // a script solve.sh and its files; empty if there is none
	image    []taskFile // the build context of the image; nil if the image exists
	compose  composed   // what a compose file adds
	machine  bool       // the whole machine is the candidate in any case
}

// addTask writes a task's files to the pack and adds its row, unless the task has problems.
func (b *Builder) addTask(ctx context.Context, t *task, spec terminalTask) error {
	tests, script := t.below("tests"), spec.script.path
	checker := map[string]any{"source": compiler.CheckerScript, "timeout_seconds": spec.seconds}
	if script == "" {
		checker["source"], script = compiler.CheckerPytest, pytestFile(t, tests)
	} else {
		if _, ok := t.file("tests/" + script); ok {
			t.wrong("tests/"+script, 0, "", "the name is taken")
		}
		b.noteFetching(t)
		tests = append(tests, spec.script)
	}
	checker["path"] = path.Join(t.id, "tests", script)
	row := spec.row
	row.ID, row.Names, row.Eval = t.id, t.names(), map[string]any{"checker": checker}
	row.Metadata["source"] = map[string]any{"format": b.format.Name, "folder": t.id, "files": len(t.files), "sha256": treeDigest(t.files)}
	if len(spec.solution) > 0 { // see docs/datasets.md
		row.Eval["expected_state"] = map[string]any{"path": path.Join(t.id, "solution")}
	}
	if len(t.problems) > 0 {
		return nil
	}
	b.machine(t, spec, row)
	hidden := path.Join(hiddenDir, t.id)
	err := errors.Join(b.place(path.Join(hidden, "tests"), tests), b.place(path.Join(hidden, "solution"), spec.solution))
	if err == nil && spec.image != nil && b.ownImages() { // otherwise the operator has named an existing image
		_, err = b.buildContext(t, t.names(), t.id, spec.image)
	}
	if err == nil {
		err = spec.compose.addTo(b, t, row)
	}
	if err != nil {
		return err
	}
	return b.Add(ctx, t.place, row)
}

// buildContext writes the build context of an image to the directory dir of the pack's images,
// and records the image.
func (b *Builder) buildContext(t *task, names map[string]string, dir string, files []taskFile) (ref string, err error) {
	if ref, err = b.reference(names); err != nil {
		return "", t.place.problem("", "%v", err)
	}
	dir = path.Join(imagesDir, dir)
	b.images = append(b.images, BuiltImage{Ref: ref, Context: dir, Digest: treeDigest(files)})
	return ref, b.place(dir, files)
}

// names returns the values for {name} in the template of the image.
func (t *task) names() map[string]string {
	return map[string]string{"task": strings.Trim(strings.ToLower(t.id), "._-")}
}
