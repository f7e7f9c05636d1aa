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

	"github.com/securebench/sbench/compiler/patch"
)

// Precheck finds faults in tasks with valid rows that make every attempt fail: missing files, malformed
// patches, scripts that cannot be executed. Validate and every run use it, so that they agree. It is not
// safe for concurrent use.
type Precheck struct {
	// NoHarness says that candidates were made elsewhere. Then a task needs no image if its candidates
	// are texts: judging a text needs no sandbox.
	NoHarness bool

	pack    *Pack
	tester  *Tester // nil for none
	public  fileProbe
	eval    fileProbe
	used    map[string]bool       // files and directories below the pack's eval root that rows refer to
	noImage bool                  // the lack of an image was reported
	hidden  map[string]withheldIn // by the file or directory that is mounted
}

// NewPrecheck returns a Precheck of the pack's tasks. If tester is not nil, it also finds
// what is wrong for that tester file alone. The caller closes it.
func (p *Pack) NewPrecheck(tester *Tester) *Precheck {
	c := &Precheck{pack: p, tester: tester, used: map[string]bool{}, hidden: map[string]withheldIn{}}
	c.public.path, c.eval.path = p.PublicRoot, p.EvalRoot
	return c
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
	if c.tester != nil && !c.NoHarness && t.CandidateKind() == CandidateText {
		all = c.image(t)
	}
	return slices.Concat(all, c.collisions(t), c.capabilities(t), c.isolation(t))
}

// isolation returns whether the task asks for more isolation than the tester file allows.
func (c *Precheck) isolation(t *Task) Problems {
	if c.tester == nil || c.tester.Runtime.Isolation != "container" || t.environment.Isolation != "gvisor" {
		return nil
	}
	return Problems{c.at(t, "$.environment.isolation", "set runtime.isolation: auto or gvisor in the tester file, or leave the task out",
		"task asks for isolation by gvisor, and the tester file says container")}
}

// image returns that the task has no image, for the first one.
func (c *Precheck) image(t *Task) Problems {
	if c.noImage || t.environment.Image != "" {
		return nil
	}
	c.noImage = true
	return Problems{c.at(t, "$.environment.image", "set defaults.environment.image in the manifest", "task has no image, which every harness needs")}
}

// capabilities returns whether the task needs capabilities that the tester file does not allow.
func (c *Precheck) capabilities(t *Task) Problems {
	names := t.environment.Capabilities
	if c.tester == nil || c.tester.Runtime.AllowCapabilities || len(names) == 0 {
		return nil
	}
	return Problems{c.at(t, "$.environment.capabilities", "set runtime.allow_capabilities: true in the tester file, or leave the task out",
		"task needs %s, which the tester file does not allow", strings.Join(names, ", "))}
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
			if err := c.public.check(v.file.Path, v.file.Mount); err != nil {
				all = append(all, c.at(t, v.Path()+".path", below(c.pack.publicRel, err), "asset %v", err))
			}
		case v.lane == HiddenLane:
			all = append(all, c.evalFile(t, v.Path()+".path", v.file.Path, "eval file")...)
		default:
			all = append(all, c.mounted(t, v.Path()+".path", v.file.Path, "eval file")...)
		}
	}
	return slices.Concat(all, c.checker(t), c.splitPrograms(t), c.securebenchPrograms(t), c.patches(t))
}

func (c *Precheck) evalFile(t *Task, path, name, what string) Problems {
	err := c.eval.check(name, "")
	c.used[name] = !errors.Is(err, fs.ErrNotExist)
	if err != nil {
		return Problems{c.at(t, path, below(c.pack.evalRel, err), "%s %v", what, err)}
	}
	return nil
}

// withheldIn is a result of Pack.Withheld.
type withheldIn struct {
	files []Withheld
	err   error
}

// mounted is evalFile for a file or directory that is mounted for evaluation.
func (c *Precheck) mounted(t *Task, path, name, what string) Problems {
	if problems := c.evalFile(t, path, name, what); problems != nil {
		return problems
	}
	if err := c.withheld(name).err; err != nil {
		return Problems{c.at(t, path, sideBySide, "%s %v", what, err)}
	}
	return nil
}

// sideBySide is the hint for hidden files in a directory that is mounted for evaluation.
const sideBySide = "put tests and solutions side by side: TASK/tests and TASK/solution"

// withheld is Pack.Withheld with a cache.
func (c *Precheck) withheld(name string) withheldIn {
	h, ok := c.hidden[name]
	if !ok {
		h.files, h.err = c.pack.Withheld(name)
		if len(c.hidden) > maxKnown {
			clear(c.hidden)
		}
		c.hidden[name] = h
	}
	return h
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
	problems := c.mounted(t, field, checker.Path, "checker file")
	if problems == nil && checker.Files() != checker.Path {
		problems = c.mounted(t, field, checker.Files(), "directory of the checker")
	}
	if problems != nil || checker.Source != CheckerScript {
		return problems
	}
	if checker.Mount() == CheckerMount && checker.besideTests(c.pack.EvalRoot) {
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

// patches returns what is wrong with the patches of a task.
func (c *Precheck) patches(t *Task) (all Problems) {
	for _, field := range t.family.Patches {
		v := t.eval()
		for key := range strings.SplitSeq(field, ".") {
			v = v.Get(key)
		}
		text := patchText(v)
		if text == "" {
			continue
		}
		if _, err := patch.Parse(text); err != nil {
			hint := "write it with git diff"
			if strings.Contains(text, "\r\n") {
				hint = "it has CRLF line ends"
			}
			all = append(all, c.at(t, "$.eval."+field, hint, "malformed patch: %v", err))
		}
	}
	return all
}

// collisions returns which public files of the row are at the tester file's path for the
// task file.
func (c *Precheck) collisions(t *Task) (all Problems) {
	if c.tester == nil || c.tester.Harness.Config.TaskFile == "" {
		return nil
	}
	file, of := c.tester.Harness.Config.TaskFile, cmp.Or(c.tester.name, "the tester file")
	for _, v := range t.resources() {
		if v.lane == Public && overlap(FoldPath(v.place()), FoldPath(file)) {
			all = append(all, c.at(t, v.Path(), "choose another task_file",
				"%q collides with harness.config.task_file %q of %s", v.place(), file, of))
		}
	}
	return all
}

// fileProbe checks whether files below a root can be used, and caches the answers.
type fileProbe struct {
	assetRoot
	known map[[2]string]error // by name and mount
}

// check returns an error unless name is a file or directory without symbolic links and, if
// mount is not "", its contents may be mounted there for an agent.
func (p *fileProbe) check(name, mount string) error {
	key := [2]string{name, mount}
	err, ok := p.known[key]
	if !ok {
		err = p.walk(name, func(below string, _ fs.FileInfo) error {
			if mount == "" || below == name {
				return nil
			}
			return CheckPublicMount(path.Join(mount, strings.TrimPrefix(below, name+"/")))
		})
		if p.known == nil || len(p.known) > maxKnown {
			p.known = map[[2]string]error{}
		}
		p.known[key] = err
	}
	return err
}
