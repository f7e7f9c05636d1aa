package pack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/validate"
)

// maxPasses bounds how often a source is read. After a pass that leaves out the tasks of
// which validation warned, no new warnings are expected.
const maxPasses = 3

// Import makes a pack from the source. If the source, the options or the destination are
// wrong, the error holds compiler.Problems and there is no pack. An interrupted process may
// leave a directory .sbench-import-* beside Out.
func Import(ctx context.Context, f Format, o Options) (Report, error) {
	o.ID = cmp.Or(o.ID, DefaultID(f, o.Source))
	out, err := filepath.Abs(o.Out)
	if err != nil {
		return Report{}, err
	}
	if err := checkOut(out, o); err != nil {
		return Report{}, err
	}
	leave := map[Place]compiler.Problem{}
	for range maxPasses {
		report, unfit, err := importOnce(ctx, f, o, out, leave)
		if err != nil {
			return Report{}, err
		}
		if len(unfit) == 0 {
			report.Left = append(report.Left, sorted(leave)...)
			return report, nil
		}
		maps.Copy(leave, unfit)
	}
	return Report{}, fmt.Errorf("import %s: tasks are unfit after %d passes", o.Source, maxPasses)
}

// sorted returns the problems of unfit tasks in the order of the source.
func sorted(unfit map[Place]compiler.Problem) compiler.Problems {
	return slices.SortedFunc(maps.Values(unfit), func(a, b compiler.Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Path, b.Path))
	})
}

// DefaultID returns the id of a pack that is given none: the format's name and the source's name without extensions.
func DefaultID(f Format, source string) string {
	name := filepath.Base(filepath.Clean(source))
	for _, ending := range []string{".gz", ".jsonl", ".json", ".csv"} {
		name = strings.TrimSuffix(name, ending)
	}
	if strings.EqualFold(name, f.Name) || name == "." || name == "/" {
		return f.Name
	}
	return f.Name + "-" + name
}

func checkOut(out string, o Options) error {
	at := Place{File: o.Out}
	entries, err := os.ReadDir(out)
	switch {
	case errors.Is(err, fs.ErrNotExist) && o.Fill:
		return at.problem("", "there is no directory to fill")
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return at.problem("", "%v", document.Bare(err))
	case !o.Fill:
		return at.hinted("name a directory that does not exist, or give --fill for one that holds a manifest, and no rows but those of an import", "is there already")
	}
	has := func(name string) bool {
		return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == name })
	}
	for _, e := range entries {
		switch {
		case fromImport(e.Name()) && has(provenanceFile): // is replaced
		case e.Name() == tasksFile:
			return at.hinted("remove it first", "%s is there already, and no import made it", tasksFile)
		case !e.Type().IsRegular():
			return at.hinted("only a directory of plain files can be filled", "holds %s, which is no plain file", e.Name())
		}
	}
	if !has(manifestFile) {
		return at.problem("", "holds no %s", manifestFile)
	}
	return nil
}

// fromImport reports whether an import makes the file or directory of a pack.
func fromImport(name string) bool {
	return slices.Contains([]string{tasksFile, provenanceFile, HiddenDir, ImagesDir}, name)
}

// importOnce makes the pack unless validation finds tasks unfit, which it then returns.
func importOnce(ctx context.Context, f Format, o Options, out string, leave map[Place]compiler.Problem) (report Report, unfit map[Place]compiler.Problem, err error) {
	if err = os.MkdirAll(filepath.Dir(out), 0o777); err != nil {
		return report, nil, Place{File: o.Out}.problem("", "%v", document.Bare(err))
	}
	dir, err := os.MkdirTemp(filepath.Dir(out), ".sbench-import-*")
	if err != nil {
		return report, nil, Place{File: o.Out}.problem("", "%v", document.Bare(err))
	}
	// After an exchange, dir is the old directory.
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return report, nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	b, err := newBuilder(f, o, root, leave)
	if err == nil {
		err = b.read(ctx)
	}
	if err == nil {
		err = b.describe()
	}
	var warnings compiler.Problems
	if err == nil {
		unfit, warnings, err = b.validate(ctx, dir)
	}
	if err != nil || len(unfit) > 0 {
		return report, unfit, err
	}
	return Report{
		Format: f.Name, ID: o.ID, Out: o.Out, Tasks: b.tasks, Left: append(compiler.Problems{}, b.problems...),
		Notes: append(append(compiler.Problems{}, b.notes...), warnings...), Images: append([]BuiltImage{}, b.images...),
	}, nil, publish(dir, out, o.Fill)
}

// validate checks the pack as sbench validate does. It reports a row's problems at the place
// in the source from which the row came.
func (b *Builder) validate(ctx context.Context, dir string) (unfit map[Place]compiler.Problem, notes compiler.Problems, err error) {
	unfit = map[Place]compiler.Problem{}
	var wrong compiler.Problems
	_, err = validate.Files(ctx, []string{dir}, b.Agents, func(p compiler.Problem) {
		path := p.Path
		var at Place
		inRow := p.File == filepath.Join(dir, tasksFile) && p.Line > 0 && p.Line <= len(b.places)
		if inRow {
			at = b.places[p.Line-1]
			p.File, p.Line = at.File, at.Line
			p.Path, p.Message = at.Path, fmt.Sprintf("as a row, %s: %s", path, p.Message)
		} else {
			p.File = filepath.Join(b.Out, strings.TrimPrefix(p.File, dir))
		}
		switch {
		case p.Warning && (!inRow || strings.HasPrefix(path, "$.environment") || path == "$.eval.checker"): // nothing that the source could say otherwise
			notes = append(notes, p)
		case !inRow:
			wrong = append(wrong, p)
		case b.Skip:
			p.Warning = false
			unfit[at] = p
		default:
			p.Warning, p.Hint = false, "--skip leaves such tasks out"
			wrong = append(wrong, p)
		}
	})
	if err == nil && len(wrong) > 0 {
		err = wrong[:min(len(wrong), maxProblems)]
	}
	return unfit, notes, err
}

// publish moves the finished directory to its name in one step.
func publish(dir, out string, fill bool) error {
	flags, what := uint(unix.RENAME_NOREPLACE), "make"
	if fill {
		flags, what = unix.RENAME_EXCHANGE, "fill"
	}
	err := unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, out, flags)
	if errors.Is(err, unix.EINVAL) && !fill { // the file system lacks the flag
		err = os.Rename(dir, out) // replaces at most an empty directory
	}
	if err != nil {
		return Place{File: out}.problem("", "%s the pack: %v", what, err)
	}
	parent, err := os.Open(filepath.Dir(out))
	if err != nil {
		return err
	}
	return errors.Join(parent.Sync(), parent.Close())
}
