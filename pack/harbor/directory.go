package harbor

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/compiler/paths"
	"github.com/securebench/sbench/pack"
	"github.com/securebench/sbench/workspace/foreign"
)

// taskOptions are the options of formats whose tasks are directories.
type taskOptions struct {
	Keep bool              `json:"keep_processes,omitempty" name:"keep-processes" help:"Task directories: check while the processes that the agent left still run; set for tasks whose tests use a server of the solution's."`
	Env  map[string]string `json:"env,omitempty" mapsep:"none" placeholder:"NAME=VALUE" help:"Task directories: value of a variable that tasks take from the host; can be repeated. It becomes part of the pack."`
}

// taskImage is the template for images of tasks; see [Builder.buildContext].
const taskImage = "sbench.local/{pack}/{task}:{digest}"

const harborFile, terminalBenchFile = "task.toml", "task.yaml"

// A form is one of the forms that tasks in directories have.
type form struct {
	name, marker string // of the format, and of the file that a task directory of this form has
	add          func(*builder, context.Context, *task) error
}

// forms returns Harbor's form, which Terminal-Bench 2 and later have, and the form of the first Terminal-Bench.
func forms() []form {
	return []form{{"harbor", harborFile, (*builder).harbor}, {"terminal-bench", terminalBenchFile, (*builder).terminalBench}}
}

// formOf returns the form of the task in a directory, the first one if it has several. It returns false for a directory that
// is no task.
func formOf(dir string) (form, bool) {
	all := forms()
	i := slices.IndexFunc(all, func(f form) bool {
		_, err := os.Lstat(filepath.Join(dir, f.marker))
		return err == nil
	})
	if i < 0 {
		return form{}, false
	}
	return all[i], true
}

// Formats returns the formats of this package, one for each form. They share their options, and each reads tasks of all
// forms. Tasks work in the directory of their image, and their candidates are judged however the agent ended.
func Formats() (formats []pack.Format) {
	o := &taskOptions{}
	for _, f := range forms() {
		formats = append(formats, pack.Format{
			Name:   f.name,
			Family: family.TerminalTask(), Image: taskImage, Timeout: 7200,
			Environment: map[string]any{
				"materialize_workdir_from_image": true, "verify_after_timeout": true, "entrypoint": map[string]any{},
				"setup": []string{"mkdir -p -m 777 /logs/agent /logs/artifacts /logs/verifier"}, // for agents that need not be root
			},
			Options: o,
			Read: func(ctx context.Context, to *pack.Builder) error {
				return (&builder{Builder: to, taskOptions: o}).tasks(ctx)
			},
		})
	}
	return formats
}

// Detect returns the format of the first task in a directory.
func Detect(dir string) (pack.Format, error) {
	name := ""
	err := filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if form, found := formOf(at); found {
			name = form.name
			return fs.SkipAll
		}
		return nil
	})
	if name == "" {
		return pack.Format{}, errors.Join(err, fmt.Errorf("%q holds neither a manifest.yaml nor tasks with a task.toml (Harbor) or task.yaml (Terminal-Bench)", dir))
	}
	return pack.Named(Formats(), name)
}

// TaskAt returns the id of the task to which a file of the source belongs, and the file's path in the task.
func TaskAt(source, file string) (id, rel string) {
	at := source
	for dir := file; len(dir) > len(source); dir = filepath.Dir(dir) {
		if _, found := formOf(dir); found {
			at = dir
			break
		}
	}
	id, _ = filepath.Rel(source, at)
	rel, _ = filepath.Rel(at, file)
	if id == "." {
		id = filepath.Base(source)
	}
	return filepath.ToSlash(id), filepath.ToSlash(rel)
}

// hostVariable matches a value that comes from the host, with a default or without.
var hostVariable = regexp.MustCompile(`^\$\{([A-Za-z_]\w*)(?::-(.*))?\}$`)

// envName matches the name of a variable.
var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// fromHost replaces values that come from the host: by what the operator gives, or else by their
// defaults. A variable without either is left out if nothing of the task names it.
func (b *builder) fromHost(t *task, env map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if !envName.MatchString(name) {
			t.wrong(harborFile, 0, "letters, digits and _", "env: %q is no name of a variable", name)
		}
		m := hostVariable.FindStringSubmatch(env[name])
		if m == nil {
			continue
		}
		value, given := b.Env[m[1]]
		switch {
		case given:
			env[name] = value
		case strings.Contains(env[name], ":-"):
			env[name] = m[2]
		case t.mentions(name):
			t.wrong(harborFile, 0, "give it with --env "+m[1]+"=VALUE", "the variable %q comes from the host", name)
		default:
			delete(env, name)
		}
	}
}

// mentions reports whether a file of the task, except for those that configure it, contains a text.
func (t *task) mentions(text string) bool {
	return slices.ContainsFunc(t.files, func(f taskFile) bool {
		return f.path != harborFile && path.Base(f.path) != composeFile && bytes.Contains(f.text, []byte(text))
	})
}

// A builder adds the tasks of directories to a pack.
type builder struct {
	*pack.Builder
	*taskOptions
	bytes int64 // of all files that were placed in the pack
}

// A task is one directory of a source, with all its files in memory.
type task struct {
	id    string
	form  string
	place pack.Place // the directory
	files []taskFile
	// problems are what is wrong with the task. A task with problems gets no row.
	problems compiler.Problems
}

type taskFile struct {
	path       string // clean, relative to the directory
	text       []byte
	link       string // the target of a symbolic link; "" for a file
	executable bool
	at         string // path in the task directory, for messages; "" for path
}

var directoryName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// maxDepth bounds how deep below the source a task directory is.
const maxDepth = 6

// tasks adds the tasks of all task directories: the source itself, or those at any depth below it. A task's id is
// the path from the source. Whatever else is there is passed over: files, links, and directories with names that begin
// with a dot or an underscore.
func (b *builder) tasks(ctx context.Context) error {
	absolute, err := filepath.Abs(b.Source)
	if err != nil {
		return err
	}
	return filepath.WalkDir(b.Source+"/.", func(dir string, d fs.DirEntry, err error) error { // a source that is a link is followed
		dir = filepath.Clean(dir)
		id, relErr := filepath.Rel(b.Source, dir)
		form, found := formOf(dir)
		switch {
		case err != nil:
			return compiler.Problems{{File: dir, Message: document.Bare(err).Error()}}
		case relErr != nil || !d.IsDir():
			return relErr
		case id != "." && (strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_") || !found && strings.Count(id, "/") == maxDepth):
			return fs.SkipDir
		case !found:
			return nil
		case id == ".":
			id = filepath.Base(absolute)
		}
		return cmp.Or(b.oneTask(ctx, id, dir, form), fs.SkipDir)
	})
}

func (b *builder) oneTask(ctx context.Context, id, dir string, form form) error {
	at := pack.Place{File: dir}
	if err := b.Count(ctx, at); err != nil {
		return err
	}
	if !b.Wanted(at, id) {
		return nil
	}
	if strings.HasPrefix(id, "/") || slices.ContainsFunc(strings.Split(id, "/"), func(name string) bool { return !directoryName.MatchString(name) }) {
		return b.Reject(compiler.Problem{File: dir, Message: fmt.Sprintf("%q cannot be a task's id: it is made of letters, digits and . _ -", id)})
	}
	t := &task{id: id, form: form.name, place: at}
	if err := t.read(dir, b.Limits); err != nil {
		return b.Reject(compiler.Problem{File: dir, Message: err.Error()})
	}
	if err := form.add(b, ctx, t); err != nil {
		return err
	}
	return b.Reject(t.problems...)
}

// read reads everything below dir: files, directories and symbolic links.
func (t *task) read(dir string, limits pack.ImportLimits) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	left := limits.TaskBytes
	return compiler.WalkLinks(dir, func(name string, info fs.FileInfo) error {
		if info.IsDir() {
			return nil
		}
		if _, err := paths.Parse(name); err != nil {
			return err
		}
		if len(t.files) == limits.TaskFiles {
			return fmt.Errorf("more than %d files", limits.TaskFiles)
		}
		f := taskFile{path: name, executable: info.Mode()&0o111 != 0, at: name}
		var err error
		if info.Mode()&fs.ModeSymlink != 0 {
			f.link, err = root.Readlink(name)
		} else {
			f.text, err = foreign.Read(root, name, min(limits.File, left))
		}
		switch {
		case errors.Is(err, foreign.ErrBig) && left < limits.File:
			return fmt.Errorf("more than %d bytes", limits.TaskBytes)
		case err != nil:
			return fmt.Errorf("%q: %w", name, document.Bare(err))
		}
		left -= int64(len(f.text))
		t.files = append(t.files, f)
		return nil
	})
}

// followed returns files with a copy of its target in place of each symbolic link, for a directory of a pack that must
// not have links. A link that leads to none of the files is a problem.
func (t *task) followed(files []taskFile) []taskFile {
	files = slices.Clone(files)
	for i, f := range files {
		if f.link == "" {
			continue
		}
		target := path.Join(path.Dir(f.path), f.link)
		to := slices.IndexFunc(files, func(o taskFile) bool { return o.path == target && o.link == "" })
		if to < 0 || path.IsAbs(f.link) {
			t.wrong(f.at, 0, "put the file itself there", "the symbolic link leads to %s, which is no file beside it", f.link)
			continue
		}
		files[i].text, files[i].executable, files[i].link = files[to].text, files[to].executable, ""
	}
	return files
}

// treeDigest returns the digest of all files: their paths, their bytes, and whether they are
// executable.
func treeDigest(files []taskFile) string {
	var records []byte
	for _, f := range files {
		mode := "f 0644"
		switch {
		case f.link != "":
			mode, f.text = "l", []byte(f.link)
		case f.executable:
			mode = "f 0755"
		}
		records = fmt.Appendf(records, "%s %s %s\x00", mode, digest(f.text), f.path)
	}
	return digest(records)
}

// digest returns the SHA-256 of a text in hexadecimal digits.
func digest(text []byte) string { return fmt.Sprintf("%x", sha256.Sum256(text)) }

func (t *task) file(name string) (taskFile, bool) { return find(t.files, name) }

// find returns the file with a path.
func find(files []taskFile, name string) (taskFile, bool) {
	i := slices.IndexFunc(files, func(f taskFile) bool { return f.path == name })
	if i < 0 {
		return taskFile{}, false
	}
	return files[i], true
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
	p := compiler.Problem{File: t.path(name), Line: line, Message: fmt.Sprintf(format, args...), Hint: hint}
	if !slices.Contains(t.problems, p) { // one of the task's own keys that each of its steps has
		t.problems = append(t.problems, p)
	}
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
		t.wrong(name, 0, "save the file as UTF-8", "invalid UTF-8")
	case len(bytes.TrimSpace(f.text)) == 0:
		t.wrong(name, 0, "", "file is blank")
	default:
		return strings.TrimPrefix(string(f.text), "\ufeff")
	}
	return ""
}

// script returns a file that must exist as a script with the name as: executable, and run by bash
// unless its first line says otherwise.
func (t *task) script(name, as string) taskFile {
	text := t.text(name)
	if !strings.HasPrefix(text, "#!") {
		text = "#!/bin/bash\n" + text
	}
	return taskFile{path: as, text: []byte(text), executable: true, at: name}
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
