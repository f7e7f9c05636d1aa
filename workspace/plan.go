package workspace

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/hidden"
	"github.com/securebench/sbench/compiler/paths"
)

// Plan says which files a component gets. Printing a plan shows no values.
type Plan struct {
	Entries []Entry
}

// Entry is one file or directory of a plan.
type Entry struct {
	Name     string // the resource's name; "checker" for the entry of PlanChecker
	Lane     compiler.Lane
	Dest     string // clean, relative to the workspace or, for PlanChecker, to Checker.Mount
	Source   Source
	Mode     uint32 // permission bits for Source.Data; files of the pack get 0644 or 0755
	ReadOnly bool   // no permission bit allows writing, and a sandbox needs a read-only mount
}

// Source is where an entry's content comes from: Data if Root is empty, otherwise the file or
// directory Path below Root.
type Source struct {
	Data hidden.Value[[]byte]
	Root string // absolute
	Path string // clean, relative to Root
	Dir  bool   // whether the source is a directory
	Size int64  // of a file, in bytes
	// Without are the files and directories in a directory that a copy leaves out, relative to Path.
	Without []string
}

// PlanAgent plans what a harness sees: every public value as
// securebench/public/<name>.json, and the assets at their mounts. It fails if an asset is
// missing, or is or contains a symbolic link.
func PlanAgent(t *compiler.Task, p *compiler.Pack) (Plan, error) {
	return agentPlan(t.AgentView(), p).resolve(p)
}

// agentPlan gets only the agent's view, so no other lane can enter the plan.
func agentPlan(view compiler.AgentView, p *compiler.Pack) Plan {
	var plan Plan
	for _, value := range view.Input {
		plan.Entries = append(plan.Entries, valueEntry(value.Name, compiler.Public, paths.PublicRoot, hidden.Hide(value.Text)))
	}
	for _, ref := range view.Assets {
		plan.Entries = append(plan.Entries, fileEntry(ref, p))
	}
	return plan
}

// Split returns the entries below paths.PublicRoot, and all other entries.
func (p Plan) Split() (public, others Plan) {
	for _, e := range p.Entries {
		if strings.HasPrefix(e.Dest, paths.PublicRoot+"/") {
			public.Entries = append(public.Entries, e)
		} else {
			others.Entries = append(others.Entries, e)
		}
	}
	return public, others
}

// Outside returns the entries in the workspace, and the entries outside of it, relative to the root.
func (p Plan) Outside() (inside, outside Plan) {
	for _, e := range p.Entries {
		if rel, ok := strings.CutPrefix(e.Dest, "/"); ok {
			e.Dest = rel
			outside.Entries = append(outside.Entries, e)
		} else {
			inside.Entries = append(inside.Entries, e)
		}
	}
	return inside, outside
}

// PlanTestSandbox plans what a verifier's sandbox sees in its copy of a workspace: the agent's
// files and the evaluation inputs below securebench/evaluation_inputs, without hidden files.
func PlanTestSandbox(t *compiler.Task, p *compiler.Pack) (Plan, error) {
	return resourcePlan(t, p, compiler.TestSandbox).resolve(p)
}

// PlanEvaluator plans what a verifier may use in its own process. The plan is for display
// only and must never be written to a sandbox.
func PlanEvaluator(t *compiler.Task, p *compiler.Pack) (Plan, error) {
	return resourcePlan(t, p, compiler.Evaluator).resolve(p)
}

func resourcePlan(t *compiler.Task, p *compiler.Pack, component compiler.Component) Plan {
	var plan Plan
	for _, r := range t.Resources(component) {
		if r.File != nil {
			// Public files are only for sandboxes: the evaluator has no file system.
			if r.Lane != compiler.Public || component != compiler.Evaluator {
				plan.Entries = append(plan.Entries, fileEntry(*r.File, p))
			}
			continue
		}
		root := paths.PublicRoot
		switch {
		case r.Lane == compiler.EvaluationInputs:
			root = paths.EvaluationInputsRoot
		case component == compiler.Evaluator:
			root = paths.EvaluatorRoot
		}
		plan.Entries = append(plan.Entries, valueEntry(r.Name, r.Lane, root, r.Text))
	}
	return plan
}

// PlanChecker plans the contents of the directory Checker.Mount in the sandbox of a task's checker:
// the checker's files, without hidden files. The plan is empty without a checker or a path.
func PlanChecker(t *compiler.Task, p *compiler.Pack) (Plan, error) {
	plan := checkerPlan(t, p)
	if len(plan.Entries) == 0 {
		return plan, nil
	}
	if _, err := p.Withheld(t.Checker().Path); err != nil {
		return Plan{}, fmt.Errorf("checker: %w", err)
	}
	return plan.resolve(p)
}

func checkerPlan(t *compiler.Task, p *compiler.Pack) Plan {
	var plan Plan
	if c := t.Checker(); c.Path != "" {
		dest := "."
		if c.Files == c.Path && c.Mounted != c.Mount {
			dest = path.Base(c.Path)
		}
		plan.Entries = []Entry{{
			Name: "checker", Lane: compiler.EvaluationInputs, Dest: dest,
			Source: Source{Root: p.EvalRoot, Path: c.Files}, ReadOnly: true,
		}}
	}
	return plan
}

// PlanSplit plans the files of the drivers and of the oracle of a task that is judged in two places. A driver is at
// its mount, relative to the root or, for a split check, to paths.CheckerMount. A file of an oracle is relative to
// paths.CheckerMount: below the name of its resource in a pack of SecureBench 2.0.
func PlanSplit(t *compiler.Task, p *compiler.Pack) (driver, oracle Plan, err error) {
	for _, r := range t.Resources(compiler.TestSandbox) {
		if r.File != nil && (r.Name == "split.driver" || t.Verification() != nil) {
			e := fileEntry(*r.File, p)
			switch {
			case t.Verification() == nil:
				e.Dest = path.Base(e.Dest)
			case !path.IsAbs(e.Dest): // an asset in the workspace
				e.Dest = path.Join(t.Environment().Workdir, e.Dest)
			}
			e.Dest = strings.TrimPrefix(e.Dest, "/")
			driver.Entries = append(driver.Entries, e)
		}
	}
	for _, r := range t.Resources(compiler.Evaluator) {
		name, host := strings.CutPrefix(r.Name, "host.")
		if r.File != nil && (host || r.Name == "split.oracle") {
			e := fileEntry(*r.File, p)
			if e.Dest = path.Base(r.File.Path); host {
				e.Dest = path.Join(name, e.Dest)
			}
			oracle.Entries = append(oracle.Entries, e)
		}
	}
	driver, err1 := driver.resolve(p)
	oracle, err2 := oracle.resolve(p)
	return driver, oracle, errors.Join(err1, err2)
}

func valueEntry(name string, lane compiler.Lane, root string, text hidden.Value[[]byte]) Entry {
	return Entry{
		Name: name, Lane: lane, Dest: root + "/" + name + ".json", Mode: 0o644,
		Source: Source{Data: text, Size: int64(len(text.Reveal()))},
	}
}

func fileEntry(ref compiler.FileRef, p *compiler.Pack) Entry {
	root := p.EvalRoot
	if ref.Lane == compiler.Public {
		root = p.PublicRoot
	}
	return Entry{
		Name: ref.Name, Lane: ref.Lane, Dest: ref.Mount, ReadOnly: ref.ReadOnly, Source: Source{Root: root, Path: ref.Path},
	}
}

// resolve reads the sources to fill in Dir, Size and Without.
func (p Plan) resolve(pack *compiler.Pack) (Plan, error) {
	var errs []error
	p.Entries = slices.Clone(p.Entries)
	for i := range p.Entries {
		if err := p.Entries[i].resolve(pack); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.Entries[i].Name, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return Plan{}, err
	}
	return p, nil
}

func (e *Entry) resolve(pack *compiler.Pack) error {
	if _, err := paths.Parse(strings.TrimPrefix(e.Dest, "/")); err != nil && e.Dest != "." {
		return err
	}
	if e.Source.Root == "" {
		return nil
	}
	if err := cmp.Or(e.withhold(pack), e.walk(func(string, fs.FileInfo) {})); err != nil {
		return fmt.Errorf("below %q: %w", e.Source.Root, err)
	}
	return nil
}

// withhold adds hidden files to Without if the entry is for evaluation.
func (e *Entry) withhold(pack *compiler.Pack) error {
	if e.Lane != compiler.EvaluationInputs || e.Source.Root == "" {
		return nil
	}
	all, err := pack.Withheld(e.Source.Path)
	for _, w := range all {
		e.Source.Without = append(e.Source.Without, strings.TrimPrefix(w.Path, e.Source.Path+"/"))
	}
	return err
}

// walk is Source.walk for files. It checks that an agent may see the public ones, and sets the source's type and size.
func (e *Entry) walk(visit func(rel string, info fs.FileInfo)) error {
	return e.Source.walk(func(rel string, info fs.FileInfo) error {
		if rel != "." && e.Lane == compiler.Public {
			if err := paths.CheckPublic(path.Join(e.Dest, rel)); err != nil {
				return err
			}
		}
		if rel == "." {
			e.Source.Dir, e.Source.Size = info.IsDir(), info.Size()
		}
		if !info.IsDir() {
			visit(rel, info)
		}
		return nil
	})
}

// walk calls visit for the files and directories of a source below Root, with their paths relative to Path.
func (s Source) walk(visit func(rel string, info fs.FileInfo) error) error {
	return compiler.WalkFiles(s.Root, s.Path, func(name string, info fs.FileInfo) error {
		rel, err := filepath.Rel(s.Path, name)
		switch {
		case err != nil:
			return err
		case slices.Contains(s.Without, rel) && info.IsDir():
			return fs.SkipDir
		case slices.Contains(s.Without, rel):
			return nil
		}
		return visit(rel, info)
	})
}

// TaskDir returns the name of the directory for the workspace of the task with this id: at most 80
// characters of the id, and a digest of the whole id, so that no two ids share a directory. In the
// id, "_" replaces each run of characters other than ASCII letters, digits, "_", "." and "-". The name
// is a single path component, neither hidden nor "..".
func TaskDir(id string) string {
	sum := sha256.Sum256([]byte(id))
	name := strings.Trim(otherBytes.ReplaceAllString(id, "_"), "._")
	name = strings.TrimRight(name[:min(len(name), 80)], "._-")
	return fmt.Sprintf("%s-%x", cmp.Or(name, "task"), sum[:8])
}

var otherBytes = regexp.MustCompile("[^A-Za-z0-9_.-]+")
