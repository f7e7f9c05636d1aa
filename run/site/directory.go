package site

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/pack"
	"github.com/securebench/sbench/pack/harbor"
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/host"
	"github.com/securebench/sbench/runtime/images"
)

// The files by which a pack, and a pack that an import has made, are known.
const manifestFile, provenanceFile = "manifest.yaml", "provenance.json"

// TasksIn returns the format of the tasks in a directory. A pack is an error: it has a tester file.
func TasksIn(dir string) (pack.Format, error) {
	if exists(dir, manifestFile) {
		testers, _ := fs.Glob(os.DirFS(dir), "tester*.yaml") // the pattern is right
		return pack.Format{}, fmt.Errorf("%s is a pack: name a tester file, such as %s", dir, filepath.Join(dir, append(testers, "tester.yaml")[0]))
	}
	return harbor.Detect(dir)
}

func exists(dir, name string) bool {
	_, err := os.Lstat(filepath.Join(dir, name))
	return err == nil
}

// ImportTasks makes a pack of the tasks of a directory that can be imported, and returns in left the tasks that cannot.
// With again, it replaces the pack of an earlier import. Without again, the error is fs.ErrExist if o.Out exists.
func ImportTasks(ctx context.Context, format pack.Format, o pack.Options, again bool) (notes compiler.Problems, left []run.LeftOut, err error) {
	if _, err := os.Lstat(o.Out); err == nil {
		if !again || !exists(o.Out, provenanceFile) {
			return nil, nil, fs.ErrExist
		}
		if err := os.RemoveAll(o.Out); err != nil {
			return nil, nil, err
		}
	}
	if err := os.MkdirAll(filepath.Dir(o.Out), 0o755); err != nil {
		return nil, nil, err
	}
	report, err := pack.Import(ctx, format, o)
	for _, p := range report.Left {
		task, file := harbor.TaskAt(o.Source, p.File)
		if p.File = file; file == "." {
			p.File = ""
		}
		reason := p.String()
		if i := slices.IndexFunc(left, func(l run.LeftOut) bool { return l.Task == task }); i >= 0 {
			left[i].Reason += "; " + reason
		} else {
			left = append(left, run.LeftOut{Task: task, Reason: reason})
		}
	}
	return report.Notes, left, err
}

// Missing builds the images of the pack in the directory dir that are not here, after it has called begin with their
// number. It returns the tasks that cannot run because a build failed.
func (o Build) Missing(ctx context.Context, h *host.Host, dir string, begin func(n int)) (left []run.LeftOut, err error) {
	all, err := pack.Images(dir)
	if err != nil {
		return nil, err
	}
	missing := slices.DeleteFunc(all, func(i pack.BuiltImage) bool {
		_, err := h.Images.Get(ctx, i.Ref, images.PullNever)
		return err == nil
	})
	if len(missing) == 0 {
		return nil, nil
	}
	begin(len(missing))
	failed := map[string]error{}
	err = o.Images(ctx, h, missing, func(image pack.BuiltImage, _ runtime.Image, err error) error {
		if err != nil && ctx.Err() == nil {
			failed[image.Ref], err = err, nil
		}
		return err
	})
	if err != nil || len(failed) == 0 {
		return nil, err
	}
	p, err := family.OpenPack(filepath.Join(dir, manifestFile), compiler.TasksFile(dir))
	if err != nil {
		return nil, err
	}
	for task, err := range p.Tasks() {
		if err != nil {
			return nil, err
		}
		for _, ref := range imagesOf(task) {
			if failed[ref] != nil {
				left = append(left, run.LeftOut{Task: task.ID(), Reason: failed[ref].Error()})
				break
			}
		}
	}
	return left, nil
}

// imagesOf returns the images that a task names: its own, the sidecars' and its checkers'.
func imagesOf(t *compiler.Task) (all []string) {
	for _, s := range t.Steps() {
		all = append(all, s.Environment().Image, s.Checker().Image)
		for _, c := range s.Environment().Sidecars {
			all = append(all, c.Image)
		}
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(ref string) bool { return ref == "" })
}
