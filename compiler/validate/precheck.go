package validate

import (
	"cmp"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/paths"
	"github.com/securebench/sbench/compiler/securebench"
	"github.com/securebench/sbench/compiler/testerfile"
)

// Precheck finds faults in tasks with valid rows that make every attempt fail: missing files, scripts that cannot be
// executed. Validate and every run use it, so that they agree. It is not safe for concurrent use.
type Precheck struct {
	// NoHarness says that candidates were made elsewhere. Then a task needs no image if its candidates
	// are texts: judging a text needs no sandbox.
	NoHarness bool

	pack    *compiler.Pack
	tester  *testerfile.File // nil for none
	used    map[string]bool  // files and directories below the pack's eval root that rows refer to
	noImage bool             // the lack of an image was reported
	known   map[place]found
}

// place is a file or directory of a pack that rows refer to.
type place struct {
	lane        compiler.Lane
	name, mount string // mount only of a public one
}

// found is what a Precheck has found at a place.
type found struct {
	err      error               // it cannot be used
	hidden   error               // it cannot be mounted for evaluation
	withheld []compiler.Withheld // see compiler.Pack.Withheld
}

// maxKnown bounds the places that a Precheck remembers.
const maxKnown = 1 << 16

// NewPrecheck returns a Precheck of the pack's tasks. If tester is not nil, it also finds
// what is wrong for that tester file alone.
func NewPrecheck(p *compiler.Pack, tester *testerfile.File) *Precheck {
	return &Precheck{pack: p, tester: tester, used: map[string]bool{}, known: map[place]found{}}
}

// Task returns everything that is wrong with a task of the pack. It reports a missing image
// only for the first task without one.
func (c *Precheck) Task(t *compiler.Task) (all compiler.Problems) {
	for _, s := range t.Steps() {
		all = slices.Concat(all, c.row(s), c.forTester(s))
	}
	return all
}

// forTester returns what is wrong with the task only for the tester file.
func (c *Precheck) forTester(t *compiler.Task) (all compiler.Problems) {
	if c.tester == nil {
		return nil
	}
	if !c.NoHarness && t.Family().CandidateKind == compiler.CandidateText {
		all = c.image(t)
	}
	all = append(all, c.collisions(t)...)
	if names := t.Environment().Capabilities; !c.tester.Runtime.AllowCapabilities && len(names) > 0 {
		all = append(all, t.Problem("$.environment.capabilities", "set runtime.allow_capabilities: true in the tester file, or leave the task out",
			"task needs %s, which the tester file does not allow", strings.Join(names, ", ")))
	}
	if c.tester.Runtime.Isolation == "container" && t.Environment().Isolation == "gvisor" {
		all = append(all, t.Problem("$.environment.isolation", "set runtime.isolation: auto or gvisor in the tester file, or leave the task out",
			"task asks for isolation by gvisor, and the tester file says container"))
	}
	if c.tester.Runtime.Isolation == "gvisor" && t.Environment().KeepProcesses {
		all = append(all, t.Problem("$.environment.keep_processes", "set runtime.isolation: auto or container in the tester file, or leave the task out",
			"gVisor, for which the tester file asks, cannot keep the harness's processes"))
	}
	return all
}

// image returns that the task has no image, for the first one.
func (c *Precheck) image(t *compiler.Task) compiler.Problems {
	if c.noImage || t.Environment().Image != "" {
		return nil
	}
	c.noImage = true
	return compiler.Problems{t.Problem("$.environment.image", "set defaults.environment.image in the manifest", "task has no image, which every harness needs")}
}

// row returns what is wrong with the row whatever the tester file.
func (c *Precheck) row(t *compiler.Task) (all compiler.Problems) {
	if t.Family().CandidateKind != compiler.CandidateText {
		all = c.image(t)
	}
	for _, f := range t.Files() {
		if f.Lane == compiler.Public {
			all = append(all, c.file(t, f.Field+".path", "asset", place{f.Lane, f.Path, f.Mount})...)
		} else {
			all = append(all, c.file(t, f.Field+".path", "eval file", place{f.Lane, f.Path, ""})...)
		}
	}
	return slices.Concat(all, c.checker(t), c.splitPrograms(t), c.securebenchPrograms(t))
}

// file returns what is wrong with a file or directory that a row refers to.
func (c *Precheck) file(t *compiler.Task, path, what string, at place) compiler.Problems {
	f := c.look(at)
	root, eval := c.pack.Roots()
	if at.lane != compiler.Public {
		root = eval
		c.used[at.name] = !errors.Is(f.err, fs.ErrNotExist)
	}
	hint := ""
	if errors.Is(f.err, fs.ErrNotExist) {
		hint = "it has to be below " + root
	}
	switch {
	case f.err != nil:
		return compiler.Problems{t.Problem(path, hint, "%s %v", what, f.err)}
	case f.hidden != nil:
		return compiler.Problems{t.Problem(path, sideBySide, "%s %v", what, f.hidden)}
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
	root := c.pack.EvalRoot
	if at.lane == compiler.Public {
		root = c.pack.PublicRoot
	}
	f.err = compiler.WalkFiles(root, at.name, func(below string, _ fs.FileInfo) error {
		if at.lane != compiler.Public || below == at.name {
			return nil
		}
		return paths.CheckPublic(path.Join(at.mount, strings.TrimPrefix(below, at.name+"/")))
	})
	if f.err == nil && at.lane == compiler.EvaluationInputs {
		f.withheld, f.hidden = c.pack.Withheld(at.name)
	}
	if len(c.known) > maxKnown {
		clear(c.known)
	}
	c.known[at] = f
	return f
}

func (c *Precheck) checker(t *compiler.Task) compiler.Problems {
	const field = "$.eval.checker.path"
	checker := t.Checker()
	if checker.Path == "" {
		return nil
	}
	problems := c.file(t, field, "checker file", place{compiler.EvaluationInputs, checker.Path, ""})
	if problems == nil && checker.Files != checker.Path {
		problems = c.file(t, field, "directory of the checker", place{compiler.EvaluationInputs, checker.Files, ""})
	}
	if problems != nil || checker.Source != compiler.CheckerScript {
		return problems
	}
	if checker.Misplaced {
		return compiler.Problems{t.Problem(field, "move both into a directory of the task, or the script into tests",
			"script %q is beside tests in asset_roots.eval itself, which belongs to all tasks", checker.Path)}
	}
	hint, err := compiler.ScriptFault(filepath.Join(c.pack.EvalRoot, checker.Path))
	if err != nil {
		return compiler.Problems{t.Problem(field, hint, "script %q %v", checker.Path, err)}
	}
	return nil
}

// collisions returns which public files of the row are at the tester file's path for the
// task file.
func (c *Precheck) collisions(t *compiler.Task) (all compiler.Problems) {
	if c.tester.Harness.Config.TaskFile == "" {
		return nil
	}
	file, of := c.tester.Harness.Config.TaskFile, cmp.Or(c.tester.Name(), "the tester file")
	collide := func(place, field string) {
		if paths.Overlap(paths.Fold(place), paths.Fold(file)) {
			all = append(all, t.Problem(field, "choose another task_file", "%q collides with harness.config.task_file %q of %s", place, file, of))
		}
	}
	for key, v := range t.Input().Fields() {
		collide(path.Join(paths.PublicRoot, key.Text()+".json"), v.Path())
	}
	for _, f := range t.Files() {
		if f.Lane == compiler.Public {
			collide(f.Mount, f.Field)
		}
	}
	return all
}

// splitPrograms returns what is wrong with the programs of a split check that are executed as they are.
func (c *Precheck) splitPrograms(t *compiler.Task) (all compiler.Problems) {
	s := t.Split()
	if s == nil {
		return nil
	}
	for i, p := range []compiler.SplitProgram{s.Driver, s.Oracle} {
		if !p.Command.IsZero() || !c.used[p.Path] {
			continue
		}
		name := []string{"driver", "oracle"}[i]
		if hint, err := compiler.ScriptFault(filepath.Join(c.pack.EvalRoot, p.Path)); err != nil {
			all = append(all, t.Problem("$.eval.split."+name, hint, "%s %q without a command %v", name, p.Path, err))
		}
	}
	return all
}

// securebenchPrograms returns what is wrong with the oracle and the adapters of a task of SecureBench 2.0.
func (c *Precheck) securebenchPrograms(t *compiler.Task) (all compiler.Problems) {
	v := t.Verification()
	if v == nil {
		return nil
	}
	_, all = securebench.ReadOracle(c.pack.EvalRoot, v)
	for _, check := range v.Checks {
		if check.Type == securebench.ProtocolCheck {
			_, problems := securebench.ReadAdapter(c.pack.EvalRoot, v, check)
			all = append(all, problems...)
		}
	}
	return all
}
