// Package validate finds what is wrong with packs and tester files before anything runs: [Files] for authors, a [Precheck]
// for each run, so that they agree.
package validate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/compiler/testerfile"
)

// Summary counts what Files checked and found.
type Summary struct {
	Testers  int `json:"testers"`
	Packs    int `json:"packs"`
	Rows     int `json:"rows"`
	Errors   int `json:"errors"`
	Warnings int `json:"warnings"`
}

// Files checks packs and tester files, and warns about valid but suspicious things. It
// calls report for every problem as it is found; memory does not grow with the number of
// rows. A path is one of:
//
//   - a manifest, with tasks.jsonl next to it
//   - a file of rows, with manifest.yaml next to it
//   - a tester file, which is checked with its pack
//   - a directory that contains manifest.yaml: a pack, which is checked with its tester files
//   - any other directory, which is searched for packs and tester files; a pack found
//     there may still lack its rows
//
// A file named twice is checked once. Tester files may name agents as their harness. If a problem is an
// error, a run of the pack, or with the tester file, would refuse to start. checks are further checks of
// tester files. The returned error is the cause of ctx.
func Files(ctx context.Context, paths []string, agents []testerfile.AgentType, report func(compiler.Problem), checks ...func(*testerfile.File) compiler.Problems) (Summary, error) {
	v := validator{agents: agents, report: report, checks: checks, checked: map[string]bool{}}
	for _, path := range paths {
		v.path(ctx, filepath.Clean(path))
	}
	return v.summary, context.Cause(ctx)
}

type validator struct {
	agents  []testerfile.AgentType
	report  func(compiler.Problem)
	checks  []func(*testerfile.File) compiler.Problems
	summary Summary
	checked map[string]bool // tester files, and pairs of a manifest and rows; by absolute paths
}

// again reports whether it has been called with the same paths before.
func (v *validator) again(paths ...string) bool {
	for i := range paths {
		if abs, err := filepath.Abs(paths[i]); err == nil {
			paths[i] = abs
		}
	}
	key := strings.Join(paths, "\x00")
	defer func() { v.checked[key] = true }()
	return v.checked[key]
}

func (v *validator) emit(problems ...compiler.Problem) {
	for _, p := range problems {
		if p.Warning {
			v.summary.Warnings++
		} else {
			v.summary.Errors++
		}
		v.report(p)
	}
}

func (v *validator) path(ctx context.Context, path string) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		v.emit(document.ProblemsOf(path, err)...)
	case info.IsDir():
		if !v.directory(ctx, path, 0) {
			v.emit(compiler.Problem{File: path, Message: "directory holds no pack and no tester file", Hint: "a pack has a manifest.yaml"})
		}
	case strings.HasSuffix(path, ".jsonl"):
		v.checkPack(ctx, filepath.Join(filepath.Dir(path), "manifest.yaml"), path, nil)
	case testerfile.Likely(path):
		v.tester(ctx, path)
	default:
		v.checkPack(ctx, path, compiler.TasksFile(filepath.Dir(path)), nil)
	}
}

// maxDirectories bounds the depth of the search for packs.
const maxDirectories = 4

// directory checks a pack with its tester files, or searches a directory. It reports whether
// there was anything to check.
func (v *validator) directory(ctx context.Context, dir string, depth int) (found bool) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		v.emit(document.ProblemsOf(dir, err)...)
		return true
	}
	isPack := slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == "manifest.yaml" })
	if isPack {
		v.checkPack(ctx, filepath.Join(dir, "manifest.yaml"), compiler.TasksFile(dir), nil)
	}
	found = isPack
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		switch ext := filepath.Ext(name); {
		case (ext == ".yaml" || ext == ".yml") && e.Type().IsRegular() && testerfile.Likely(name):
			found = true
			v.tester(ctx, name)
		case e.IsDir() && !isPack && depth < maxDirectories && !strings.HasPrefix(e.Name(), "."):
			found = v.directory(ctx, name, depth+1) || found
		}
	}
	return found
}

func (v *validator) tester(ctx context.Context, path string) {
	if v.again(path) {
		return
	}
	v.summary.Testers++
	t, warnings, err := testerfile.Load(path, v.agents)
	v.emit(warnings...)
	if err != nil {
		v.emit(document.ProblemsOf(path, err)...)
		if manifest, tasks, ok := packOf(path); ok {
			v.checkPack(ctx, manifest, tasks, nil)
		}
		return
	}
	testers := []*testerfile.File{t}
	variants := t.Variants()
	for _, variant := range variants {
		t, _, err := testerfile.LoadVariant(path, v.agents, variant)
		if err != nil {
			v.emit(document.ProblemsOf(path, err)...)
			continue
		}
		testers = append(testers, t)
	}
	if len(variants) > 0 { // the file without a variant is not run
		testers = testers[1:]
	}
	for _, t := range testers {
		for _, check := range v.checks {
			v.emit(check(t)...)
		}
	}
	v.checkPack(ctx, beside(t, t.Benchmark.Manifest), beside(t, t.Benchmark.Tasks), t)
}

// packOf returns the pack that a tester file with errors names; ok is false if it names no files.
func packOf(path string) (manifest, tasks string, ok bool) {
	doc, _ := document.ReadYAML(path)
	if doc == nil {
		return "", "", false
	}
	file := func(key string) string {
		name := doc.Root().Get("benchmark").Get(key).Text()
		if name != "" && !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(path), name)
		}
		return name
	}
	manifest, tasks = file("manifest"), file("tasks")
	for _, name := range []string{manifest, tasks} {
		if info, err := os.Stat(name); err != nil || !info.Mode().IsRegular() {
			return "", "", false
		}
	}
	return manifest, tasks, true
}

// maxPackProblems is how many problems of a pack are shown beside those of a tester file.
const maxPackProblems = 20

// PackProblems returns the errors of the pack that a tester file names. It is for a tester file that cannot be loaded. If the
// tester file can be loaded, [OpenPack] opens its pack.
func PackProblems(tester string) (all compiler.Problems) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	v := validator{checked: map[string]bool{}, report: func(p compiler.Problem) {
		if !p.Warning {
			all = append(all, p)
		}
		if len(all) >= maxPackProblems {
			cancel()
		}
	}}
	if manifest, tasks, ok := packOf(tester); ok {
		v.checkPack(ctx, manifest, tasks, nil)
	}
	return all
}

// OpenPack opens the pack that the tester file names. A missing manifest or file of rows is
// a problem of the tester file. The error holds Problems.
func OpenPack(t *testerfile.File) (*compiler.Pack, error) {
	return openPack(t, t.Benchmark.Manifest, t.Benchmark.Tasks)
}

// openPack opens a pack. If t is not nil, it is the tester file that names the pack, and manifest and tasks may be other
// paths of the files that it names.
func openPack(t *testerfile.File, manifest, tasks string) (*compiler.Pack, error) {
	pack, err := family.OpenPack(manifest, tasks)
	if err == nil || t == nil {
		return pack, err
	}
	problems := document.ProblemsOf(manifest, err)
	for i, p := range problems {
		field := map[string]string{manifest: "$.benchmark.manifest", tasks: "$.benchmark.tasks"}[p.File]
		if _, err := os.Stat(p.File); field != "" && errors.Is(err, fs.ErrNotExist) {
			problems[i] = t.Problem(field, "paths are relative to the tester file", fmt.Sprintf("there is no file %q", p.File))
		}
	}
	return nil, problems
}

// beside returns an absolute path from a tester file in the way the file itself was named:
// relative to the working directory, unless that name is absolute.
func beside(t *testerfile.File, path string) string {
	rel, err := filepath.Rel(filepath.Dir(t.Path), path)
	if err != nil || filepath.IsAbs(t.Name()) {
		return path
	}
	return filepath.Join(filepath.Dir(t.Name()), rel)
}

// checkPack checks a pack, unless it has been checked already, and whether it fits the tester file t,
// which may be nil.
func (v *validator) checkPack(ctx context.Context, manifest, tasks string, t *testerfile.File) {
	first := !v.again(manifest, tasks)
	if first {
		v.summary.Packs++
	}
	p, err := openPack(t, manifest, tasks)
	if err != nil {
		for _, problem := range document.ProblemsOf(manifest, err) {
			if first || t != nil && problem.File == t.Name() {
				v.emit(problem)
			}
		}
		return
	}
	pv := packValidator{pack: p, tester: t, smells: first, emit: v.emit, check: NewPrecheck(p, t), seen: map[string]bool{}}
	if rows := pv.run(ctx); first {
		v.summary.Rows += rows
	}
}

type packValidator struct {
	pack   *compiler.Pack
	tester *testerfile.File
	// smells is false if the pack was checked before: then only problems with the tester
	// file are reported.
	smells  bool
	emit    func(...compiler.Problem)
	seen    map[string]bool // warnings that are given once
	check   *Precheck
	matched []bool // globs of the tester file that match an id
	failed  bool   // a row has errors, so it is unknown which files it refers to
}

// run checks the rows until ctx is done, and returns their number.
func (pv *packValidator) run(ctx context.Context) (rows int) {
	if pv.smells {
		for _, p := range pv.pack.Warnings {
			pv.once(p)
		}
	}
	if pv.tester != nil {
		pv.matched = make([]bool, len(pv.tester.Run.Tasks))
	}
	for task, err := range pv.pack.Tasks() {
		if ctx.Err() != nil {
			return rows
		}
		if err != nil {
			rows++
			pv.failed = true
			if pv.smells {
				pv.emit(document.ProblemsOf(pv.pack.TasksPath, err)...)
			}
			continue
		}
		for _, step := range task.Steps() {
			rows++
			pv.row(step)
		}
		for i, matched := range pv.matched {
			pv.matched[i] = matched || compiler.MatchTask(pv.tester.Run.Tasks[i], task.ID())
		}
	}
	pv.atEnd(rows)
	return rows
}

func (pv *packValidator) warn(p compiler.Problem) {
	p.Warning = true
	pv.emit(p)
}

func (pv *packValidator) row(t *compiler.Task) {
	if pv.smells {
		for _, p := range t.Warnings() {
			if strings.HasPrefix(p.Path, "$.environment") {
				pv.once(p)
			} else {
				pv.emit(p)
			}
		}
		pv.emit(pv.check.row(t)...)
		pv.leakSmells(t)
		pv.checkerSmells(t)
		pv.laneSmells(t)
	}
	if needed := t.Eval().Get("needed_commands"); pv.tester != nil && pv.tester.Verification.DisallowDangerousCommands && needed.Len() > 0 {
		pv.warn(t.Problem("$.eval.needed_commands", "verification.disallow_dangerous_commands: false", "the tester file allows no dangerous commands, so every attempt fails"))
	}
	pv.emit(pv.check.forTester(t)...)
}

func (pv *packValidator) atEnd(rows int) {
	if pv.smells && rows == 0 {
		pv.emit(compiler.Problem{File: pv.pack.TasksPath, Message: "file has no rows, so a run measures nothing", Warning: true})
	}
	if pv.smells && !pv.failed {
		for _, name := range pv.orphans() {
			pv.warn(compiler.Problem{File: filepath.Join(pv.pack.EvalRoot, name), Message: "no row refers to this eval file"})
		}
	}
	if len(pv.matched) > 0 && !slices.Contains(pv.matched, true) && rows > 0 {
		pv.emit(pv.tester.Problem("$.run.tasks", "its globs match ids of tasks", "no task is selected"))
		return
	}
	for i, matched := range pv.matched {
		if !matched {
			pv.warn(pv.tester.Problem(fmt.Sprintf("$.run.tasks[%d]", i), "", fmt.Sprintf("glob %q matches no task", pv.tester.Run.Tasks[i])))
		}
	}
}
