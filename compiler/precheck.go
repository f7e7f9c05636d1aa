package compiler

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler/paths"
	"github.com/securebench/sbench/compiler/testerfile"
)

// Precheck finds faults in tasks with valid rows that make every attempt fail: missing files, scripts that cannot be
// executed. Validate and every run use it, so that they agree. It is not safe for concurrent use.
type Precheck struct {
	// NoHarness says that candidates were made elsewhere. Then a task needs no image if its candidates
	// are texts: judging a text needs no sandbox.
	NoHarness bool

	pack    *Pack
	tester  *testerfile.File // nil for none
	public  assetRoot
	eval    assetRoot
	used    map[string]bool // files and directories below the pack's eval root that rows refer to
	noImage bool            // the lack of an image was reported
	known   map[place]found
}

// place is a file or directory of a pack that rows refer to.
type place struct {
	lane        Lane
	name, mount string // mount only of a public one
}

// found is what a Precheck has found at a place.
type found struct {
	err      error      // it cannot be used
	hidden   error      // it cannot be mounted for evaluation
	withheld []Withheld // see Pack.Withheld
}

// maxKnown bounds the places that a Precheck remembers, and the records that a hashedRoot remembers.
const maxKnown = 1 << 16

// NewPrecheck returns a Precheck of the pack's tasks. If tester is not nil, it also finds
// what is wrong for that tester file alone. The caller closes it.
func (p *Pack) NewPrecheck(tester *testerfile.File) *Precheck {
	return &Precheck{pack: p, tester: tester, public: assetRoot{path: p.PublicRoot}, eval: assetRoot{path: p.EvalRoot}, used: map[string]bool{}, known: map[place]found{}}
}

// Close releases the pack's directories.
func (c *Precheck) Close() {
	c.public.close()
	c.eval.close()
}

// Task returns everything that is wrong with a task of the pack. It reports a missing image
// only for the first task without one.
func (c *Precheck) Task(t *Task) (all Problems) {
	for _, s := range t.Steps() {
		all = slices.Concat(all, c.row(s), c.forTester(s))
	}
	return all
}

// forTester returns what is wrong with the task only for the tester file.
func (c *Precheck) forTester(t *Task) (all Problems) {
	if c.tester == nil {
		return nil
	}
	if !c.NoHarness && t.CandidateKind() == CandidateText {
		all = c.image(t)
	}
	all = append(all, c.collisions(t)...)
	if names := t.environment.Capabilities; !c.tester.Runtime.AllowCapabilities && len(names) > 0 {
		all = append(all, c.at(t, "$.environment.capabilities", "set runtime.allow_capabilities: true in the tester file, or leave the task out",
			"task needs %s, which the tester file does not allow", strings.Join(names, ", ")))
	}
	if c.tester.Runtime.Isolation == "container" && t.environment.Isolation == "gvisor" {
		all = append(all, c.at(t, "$.environment.isolation", "set runtime.isolation: auto or gvisor in the tester file, or leave the task out",
			"task asks for isolation by gvisor, and the tester file says container"))
	}
	if c.tester.Runtime.Isolation == "gvisor" && t.environment.KeepProcesses {
		all = append(all, c.at(t, "$.environment.keep_processes", "set runtime.isolation: auto or container in the tester file, or leave the task out",
			"gVisor, for which the tester file asks, cannot keep the harness's processes"))
	}
	return all
}

// image returns that the task has no image, for the first one.
func (c *Precheck) image(t *Task) Problems {
	if c.noImage || t.environment.Image != "" {
		return nil
	}
	c.noImage = true
	return Problems{c.at(t, "$.environment.image", "set defaults.environment.image in the manifest", "task has no image, which every harness needs")}
}

// at returns a problem of a row.
func (c *Precheck) at(t *Task, path, hint, format string, args ...any) Problem {
	return Problem{File: c.pack.TasksPath, Line: t.line, Path: path, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// row returns what is wrong with the row whatever the tester file.
func (c *Precheck) row(t *Task) (all Problems) {
	if t.CandidateKind() != CandidateText {
		all = c.image(t)
	}
	for _, v := range t.resources() {
		switch {
		case v.file == nil:
		case v.lane == Public:
			all = append(all, c.file(t, v.Path()+".path", "asset", place{Public, v.file.Path, v.file.Mount})...)
		default:
			all = append(all, c.file(t, v.Path()+".path", "eval file", place{v.lane, v.file.Path, ""})...)
		}
	}
	return slices.Concat(all, c.checker(t), c.splitPrograms(t), c.securebenchPrograms(t))
}

// file returns what is wrong with a file or directory that a row refers to.
func (c *Precheck) file(t *Task, path, what string, at place) Problems {
	root, f := c.pack.publicRel, c.look(at)
	if at.lane != Public {
		root = c.pack.evalRel
		c.used[at.name] = !errors.Is(f.err, fs.ErrNotExist)
	}
	switch {
	case f.err != nil:
		return Problems{c.at(t, path, below(root, f.err), "%s %v", what, f.err)}
	case f.hidden != nil:
		return Problems{c.at(t, path, sideBySide, "%s %v", what, f.hidden)}
	}
	return nil
}

// sideBySide is the hint for hidden files in a directory that is mounted for evaluation.
const sideBySide = "put tests and solutions side by side: TASK/tests and TASK/solution"

// look reads the file or the directory at a place, once.
func (c *Precheck) look(at place) found {
	f, ok := c.known[at]
	if ok {
		return f
	}
	root := &c.eval
	if at.lane == Public {
		root = &c.public
	}
	f.err = root.walk(at.name, func(below string, _ fs.FileInfo) error {
		if at.lane != Public || below == at.name {
			return nil
		}
		return paths.CheckPublic(path.Join(at.mount, strings.TrimPrefix(below, at.name+"/")))
	})
	if f.err == nil && at.lane == EvaluationInputs {
		f.withheld, f.hidden = c.pack.Withheld(at.name)
	}
	if len(c.known) > maxKnown {
		clear(c.known)
	}
	c.known[at] = f
	return f
}

// below hints at where a file belongs if the error is that it does not exist.
func below(root string, err error) (hint string) {
	if errors.Is(err, fs.ErrNotExist) {
		hint = "it has to be below " + root
	}
	return hint
}

// checker returns what is wrong with the files of a task's checker.
func (c *Precheck) checker(t *Task) Problems {
	const field = "$.eval.checker.path"
	checker := t.Checker()
	if checker.Path == "" {
		return nil
	}
	problems := c.file(t, field, "checker file", place{EvaluationInputs, checker.Path, ""})
	if problems == nil && checker.Files() != checker.Path {
		problems = c.file(t, field, "directory of the checker", place{EvaluationInputs, checker.Files(), ""})
	}
	if problems != nil || checker.Source != CheckerScript {
		return problems
	}
	if checker.Mount() == paths.CheckerMount && checker.besideTests(c.pack.EvalRoot) {
		return Problems{c.at(t, field, "move both into a directory of the task, or the script into "+scriptTests,
			"script %q is beside %s in asset_roots.eval itself, which belongs to all tasks", checker.Path, scriptTests)}
	}
	hint, err := scriptFault(filepath.Join(c.pack.EvalRoot, checker.Path))
	if err != nil {
		return Problems{c.at(t, field, hint, "script %q %v", checker.Path, err)}
	}
	return nil
}

// scriptFault returns why neither the kernel nor a shell can execute the script, and a hint how to
// mend it.
func scriptFault(name string) (hint string, err error) {
	text := beginning(name)
	switch {
	case isDir(name):
		return "name the script in it", errors.New("is a directory")
	case text == "":
		return "", errors.New("is empty, or cannot be read")
	case strings.HasPrefix(text, byteOrderMark):
		return "save the file without one", errors.New("begins with a byte order mark, so that no interpreter is found")
	case !strings.HasPrefix(text, "#!") && !strings.HasPrefix(text, "\x7fELF") && !slices.Contains([]string{"", ".sh", ".bash"}, filepath.Ext(name)):
		return `begin it with a line such as "#!/usr/bin/env python3"`, errors.New("names no interpreter in its first line, and is no shell script by its name")
	case strings.HasSuffix(text, "\r\n"):
		return "save it with the line ends of Unix: sed -i 's/\\r$//' FILE", errors.New("has CRLF line ends, which no interpreter takes")
	}
	return "", nil
}

const byteOrderMark = "\ufeff"

// collisions returns which public files of the row are at the tester file's path for the
// task file.
func (c *Precheck) collisions(t *Task) (all Problems) {
	if c.tester.Harness.Config.TaskFile == "" {
		return nil
	}
	file, of := c.tester.Harness.Config.TaskFile, cmp.Or(c.tester.Name(), "the tester file")
	for _, v := range t.resources() {
		if v.lane == Public && paths.Overlap(paths.Fold(v.place()), paths.Fold(file)) {
			all = append(all, c.at(t, v.Path(), "choose another task_file",
				"%q collides with harness.config.task_file %q of %s", v.place(), file, of))
		}
	}
	return all
}
