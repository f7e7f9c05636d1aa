package harbor

import (
	"bytes"
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

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/pack"
)

// taskOptions are the options of formats whose tasks are directories.
type taskOptions struct {
	Pytest bool              `json:"pytest,omitempty" help:"Task directories: let pytest check instead of the task's own script."`
	Env    map[string]string `json:"env,omitempty" mapsep:"none" placeholder:"NAME=VALUE" help:"Task directories: value of a variable that tasks take from the host; can be repeated. It becomes part of the pack."`
}

// taskImage is the template for images of tasks; see [Builder.buildContext].
const taskImage = "sbench.local/{pack}/{task}:{digest}"

// imageWorkdir returns the environment of tasks that work in the directory of their image, and whose
// candidates are judged however the agent ended.
func imageWorkdir(seconds int) map[string]any {
	return map[string]any{
		"materialize_workdir_from_image": true, "verify_after_timeout": true, "timeout_seconds": seconds, "entrypoint": map[string]any{},
	}
}

// hostVariable matches a value that comes from the host, with a default or without.
var hostVariable = regexp.MustCompile(`^\$\{([A-Za-z_]\w*)(?::-(.*))?\}$`)

// envName matches the name of a variable.
var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// fromHost replaces values that come from the host: by what the operator gives, or else by their
// defaults. A variable without either is left out if nothing of the task names it.
func (o *taskOptions) fromHost(t *task, env map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if !envName.MatchString(name) {
			t.wrong("task.toml", 0, "", "%q is no name of a variable", name)
		}
		m := hostVariable.FindStringSubmatch(env[name])
		if m == nil {
			continue
		}
		value, given := o.Env[m[1]]
		switch {
		case given:
			env[name] = value
		case strings.Contains(env[name], ":-"):
			env[name] = m[2]
		case t.mentions(name):
			t.wrong("task.toml", 0, "give it with --env "+m[1]+"=VALUE", "the variable %q comes from the host", name)
		default:
			delete(env, name)
		}
	}
}

// mentions reports whether a file of the task, except for those that configure it, contains a text.
func (t *task) mentions(text string) bool {
	return slices.ContainsFunc(t.files, func(f taskFile) bool {
		return f.path != "task.toml" && path.Base(f.path) != composeFile && bytes.Contains(f.text, []byte(text))
	})
}

// A builder adds the tasks of directories to a pack.
type builder struct {
	*pack.Builder
	bytes int64 // of all tasks that were read
}

// A task is one directory of a source, with all its files in memory.
type task struct {
	id    string
	place pack.Place // the directory
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

// maxDepth bounds how deep below the source a task directory is.
const maxDepth = 6

// tasks yields the task directories, which contain the file marker: the source itself, or those at
// any depth below it. A task's id is the path from the source. Whatever else is there is passed over:
// files, links, and directories whose names begin with a dot or an underscore.
func (b *builder) tasks(ctx context.Context, marker string, yield func(*task) error) error {
	absolute, err := filepath.Abs(b.Source)
	if err != nil {
		return err
	}
	info, err := os.Lstat(filepath.Join(b.Source, marker))
	if err == nil && info.Mode().IsRegular() {
		return b.oneTask(ctx, filepath.Base(absolute), b.Source, yield)
	}
	return b.tasksBelow(ctx, marker, "", yield)
}

func (b *builder) tasksBelow(ctx context.Context, marker, below string, yield func(*task) error) error {
	dir := filepath.Join(b.Source, below)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return compiler.Problems{{File: dir, Message: compiler.Bare(err).Error()}}
	}
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") || strings.HasPrefix(e.Name(), "_") {
			continue
		}
		id := path.Join(below, e.Name())
		_, err := os.Lstat(filepath.Join(b.Source, id, marker))
		switch {
		case err == nil:
			err = b.oneTask(ctx, id, filepath.Join(b.Source, id), yield)
		case strings.Count(id, "/") < maxDepth:
			err = b.tasksBelow(ctx, marker, id, yield)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (b *builder) oneTask(ctx context.Context, id, dir string, yield func(*task) error) error {
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
	t := &task{id: id, place: at}
	if err := t.read(dir, b.Limits); err != nil {
		return b.Reject(compiler.Problem{File: dir, Message: err.Error()})
	}
	for _, f := range t.files {
		b.bytes += int64(len(f.text))
	}
	if b.bytes > b.Limits.AllBytes {
		return compiler.Problems{{File: dir, Message: fmt.Sprintf("the task directories hold more than %d bytes", b.Limits.AllBytes)}}
	}
	if err := yield(t); err != nil {
		return err
	}
	return b.Reject(t.problems...)
}

// read reads everything below dir. dir and everything below it must be files or directories;
// symbolic links are errors.
func (t *task) read(dir string, limits pack.ImportLimits) error {
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
			text, err = pack.ReadRegular(f, min(limits.File, left))
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

// digest returns the SHA-256 of a text in hexadecimal digits.
func digest(text []byte) string { return fmt.Sprintf("%x", sha256.Sum256(text)) }

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

// script returns a file that must exist as a script with the name as: executable, and run by bash
// unless its first line says otherwise.
func (t *task) script(name, as string) taskFile {
	text := t.text(name)
	if !strings.HasPrefix(text, "#!") {
		text = "#!/bin/bash\n" + text
	}
	return taskFile{as, []byte(text), true}
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

// fetches reports whether a script of the tests fetches what it needs, and notes the first line that
// does.
func (b *builder) fetches(t *task) bool {
	for _, f := range t.files {
		if f.path != runTests && !(strings.HasPrefix(f.path, "tests/") && strings.HasSuffix(f.path, ".sh")) {
			continue
		}
		n := 0
		for line := range strings.Lines(string(f.text)) {
			n++
			line = strings.TrimSpace(line)
			if what := fetching.FindString(line); what != "" && !strings.HasPrefix(line, "#") {
				b.Note(pack.Place{File: t.path(f.path), Line: n}, "the script fetches what it needs (%s): a run needs verification.allowed_domains, or import it with --pytest", strings.TrimSpace(what))
				return true
			}
		}
	}
	return false
}

// fetching matches commands that need the network: package managers, and requests to hosts that are
// neither this machine nor a sidecar, whose names have no dot.
var fetching = regexp.MustCompile(`\b(apt-get|apt|apk|dnf|yum|npm|npx|uv|uvx|conda|pip3?)\s+(-\S+\s+)*(install|add|update|ci|sync|tool|run|pip|venv|pytest|--\S+|-\w)|` +
	`\b(uvx|npx)\s|\bgit clone\s|\b(curl|wget)\s[^|;&]*https?://[^/\s"']+\.[a-z]{2,}`)

// leftServer says why a task is not supported whose tests need the agent's processes.
const leftServer = "the tests use a server that the solution leaves running, which is not supported: every process of the agent has ended when its work is checked"

var (
	// background matches what a script leaves running; requests, a request to this machine.
	background = regexp.MustCompile(`(?m)(^|[^&>|])&\s*(#.*)?$|\b(nohup|setsid|systemctl (re)?start|service \S+ (re)?start|tmux new|screen -d)\b`)
	requests   = regexp.MustCompile(`(?i)\b(https?|wss?)://(localhost|127\.0\.0\.1|0\.0\.0\.0)\b|\b(localhost|127\.0\.0\.1)["']?\s*[:,]\s*\d`)
	starts     = regexp.MustCompile(`\b(Popen|start_server|TestClient|multiprocessing|threading)\b`)
)

// leavesServer reports whether the solution leaves a process running to which the tests send requests,
// and which neither they nor the image start.
func (t *task) leavesServer(solution, tests []taskFile) bool {
	matches := func(files []taskFile, r *regexp.Regexp) bool {
		return slices.ContainsFunc(files, func(f taskFile) bool { return r.Match(f.text) })
	}
	return matches(solution, background) && matches(tests, requests) && !matches(tests, background) && !matches(tests, starts)
}

// place writes files below a directory of the pack.
func (b *builder) place(dir string, files []taskFile) error {
	for _, f := range files {
		if err := b.Write(path.Join(dir, f.path), f.text, f.executable); err != nil {
			return err
		}
	}
	return nil
}

// A terminalTask is what a format says about a task in a directory.
type terminalTask struct {
	row      pack.Row       // without what addTask sets
	tests    []taskFile     // hidden files of the check
	script   taskFile       // of these, the one that checks; zero if pytest checks
	checker  map[string]any // what else is said about the check
	seconds  any            // of the check
	solution []taskFile     // a script solve.sh and its files; empty if there is none
	image    []taskFile     // the build context of the image; nil if the image exists
	verifier []taskFile     // that of the checker's own image; nil if it has none, or that exists
	compose  composed       // what a compose file adds
}

// addTask writes a task's files to the pack and adds its row, unless the task has problems. The whole
// machine is the candidate, with the powers that the format's own harness gives to its root.
func (b *builder) addTask(ctx context.Context, t *task, spec terminalTask) error {
	tests, script := spec.tests, spec.script.path
	checker := map[string]any{"source": compiler.CheckerScript, "timeout_seconds": spec.seconds}
	maps.Copy(checker, spec.checker)
	switch {
	case checker["command"] != nil: // the image holds it
	case script == "":
		checker["source"], checker["path"] = compiler.CheckerPytest, path.Join(t.id, "tests", pytestFile(t, tests))
	default:
		checker["path"] = path.Join(t.id, "tests", script)
		if b.fetches(t) {
			checker["network"] = true
		}
		tests = append(slices.DeleteFunc(slices.Clone(tests), func(f taskFile) bool { return f.path == script }), spec.script)
	}
	row := spec.row
	row.ID, row.Eval = t.id, map[string]any{"checker": checker}
	row.Environment["candidate"], row.Environment["capabilities"] = "machine", "packages"
	row.Metadata["source"] = map[string]any{"format": b.Format.Name, "folder": t.id, "files": len(t.files), "sha256": treeDigest(t.files)}
	if len(spec.solution) > 0 { // see docs/datasets.md
		row.Eval["expected_state"] = map[string]any{"path": path.Join(t.id, "solution")}
	}
	if asked := profiles(fmt.Sprint(row.Input["instructions"])); len(asked) > 0 {
		row.Eval["expected_changes"] = asked
	}
	if len(t.problems) > 0 {
		return nil
	}
	hidden := path.Join(pack.HiddenDir, t.id)
	err := errors.Join(b.place(path.Join(hidden, "tests"), tests), b.place(path.Join(hidden, "solution"), spec.solution))
	if err == nil && spec.image != nil && b.OwnImages() { // otherwise the operator has named an existing image
		row.Environment["image"], err = b.buildContext(t, "", spec.image)
	}
	if err == nil && spec.verifier != nil {
		checker["image"], err = b.buildContext(t, "verifier", spec.verifier)
	}
	if err == nil {
		err = spec.compose.addTo(b, t, row)
	}
	if err != nil {
		return err
	}
	return b.Add(ctx, t.place, row)
}

// profile matches the files by which shells are set up, which a checker sees as the image has
// them unless the task is about them.
var profile = regexp.MustCompile(`(?:~|/root)/\.(?:bashrc|bash_profile|profile|zshrc)\b|/etc/(?:profile|environment|bash\.bashrc)\b(?:\.d(?:/[A-Za-z0-9_.-]*[A-Za-z0-9_-])?)?`)

// profiles returns the paths of such files in a text.
func profiles(text string) []string {
	all := profile.FindAllString(text, -1)
	for i := range all {
		all[i] = strings.TrimSuffix(strings.Replace(all[i], "~", "/root", 1), "/")
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// buildContext writes the build context of an image of the task to the pack's images, and records the
// image. part is "" for the task's own. The names of images carry the digests of their contexts, so
// that no pack takes the image of another.
func (b *builder) buildContext(t *task, part string, files []taskFile) (ref string, err error) {
	digest := treeDigest(files)
	name, dir := t.id, strings.ReplaceAll(t.id, "/", "+")
	if part != "" {
		name, dir = name+"."+part, dir+"+"+part
	}
	names := map[string]string{"pack": imageName(b.ID), "task": imageName(name), "digest": digest[:12]}
	if ref, err = b.Reference(names); err != nil {
		return "", compiler.Problems{{File: t.place.File, Message: err.Error()}}
	}
	dir = path.Join(pack.ImagesDir, dir)
	b.AddImage(pack.BuiltImage{Ref: ref, Context: dir, Digest: digest})
	return ref, b.place(dir, files)
}

// imageName turns an id into a part of the name of an image (distribution's reference grammar).
func imageName(id string) string {
	return strings.Trim(otherBytes.ReplaceAllString(strings.ToLower(id), "-"), "._-")
}

// otherBytes matches what such a part cannot hold: other bytes, and several separators at once.
var otherBytes = regexp.MustCompile(`[^a-z0-9._-]+|[._-]{2,}`)
