package compiler

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/environment"
	"github.com/securebench/sbench/compiler/paths"
	"github.com/securebench/sbench/compiler/schema"
	"github.com/securebench/sbench/compiler/securebench"
)

// Defaults of a manifest.
const (
	defaultPublicRoot = "assets/"
	defaultEvalRoot   = "hidden/"
)

func manifestSchema(families []*Family) *schema.Schema {
	root := func(doc, preset string) *schema.Schema {
		s := schema.Path(doc)
		s.Default = preset
		return s
	}
	return schema.Closed("The manifest of a SecureBench pack.",
		schema.Required("id", &schema.Schema{Doc: "The benchmark's id.", String: &schema.String{NonEmpty: true}}),
		schema.Required("version", &schema.Schema{Doc: "The benchmark's version.", Number: &schema.Number{Integer: true}}),
		schema.Optional("defaults", schema.Nullable(schema.Closed("What rows have that do not say otherwise.",
			schema.Optional("family", schema.Nullable(familySchema("The family of rows without one.", families))),
			schema.Optional("environment", environment.Schema()),
		))),
		schema.Optional("asset_roots", schema.Nullable(schema.Closed("The directories of the pack that files come from.",
			schema.Optional("public", root("The directory of public files.", defaultPublicRoot)),
			schema.Optional("eval", root("The directory of files that agents never see.", defaultEvalRoot)),
		))),
		schema.Optional("asset_defaults", schema.Nullable(schema.Closed("What assets have that do not say otherwise.",
			schema.Optional("read_only", schema.Boolean("Whether assets are read-only.", true)),
		))),
	)
}

func familySchema(doc string, families []*Family) *schema.Schema {
	var names []string
	for _, f := range families {
		names = append(names, f.Name)
	}
	return schema.Enum(doc, names...)
}

// OpenPack reads the manifest of a pack and checks that the file of rows exists; it reads no row.
// Relative paths are relative to the working directory. Rows may be of the families. The error holds Problems.
func OpenPack(manifest, tasks string, families ...*Family) (*Pack, error) {
	p := &Pack{ManifestPath: manifest, TasksPath: tasks, families: families}
	p.hidden = sync.OnceValues(p.findHidden)
	problems := p.readManifest()
	info, err := os.Stat(tasks)
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	if err != nil {
		problems = append(problems, document.ProblemsOf(tasks, err)...)
	}
	if problems.Failed() {
		return nil, problems
	}
	p.Warnings = problems
	return p, nil
}

func (p *Pack) readManifest() Problems {
	manifest, problems := document.ReadYAML(p.ManifestPath)
	if len(problems) > 0 {
		return problems
	}
	dir, err := filepath.Abs(filepath.Dir(p.ManifestPath))
	if err != nil {
		return document.ProblemsOf(p.ManifestPath, err)
	}
	p.dir, p.manifest = dir, manifest
	c := schema.Checker{File: p.ManifestPath}
	root := p.manifest.Root()
	if root.Get("schema_version").Kind() != 0 {
		if c.Check(securebench.Manifest(), root) {
			p.openSecureBench(&c, root)
		}
		return c.Problems
	}
	if !c.Check(manifestSchema(p.families), root) {
		return c.Problems
	}
	p.ID = root.Get("id").Text()
	version, ok := root.Get("version").Int64()
	if !ok {
		c.Errorf(root.Get("version"), "", "number is out of range")
	}
	p.Version = int(version)
	p.defaultFamily = familyNamed(p.families, root.Get("defaults").Get("family").Text())
	p.environment = environment.Environment{}.With(root.Get("defaults").Get("environment"))
	readOnly := root.Get("asset_defaults").Get("read_only")
	p.readOnly = readOnly.Kind() == 0 || readOnly.IsTrue()
	p.setRoots(&c, root.Get("asset_roots"))
	return c.Problems
}

// setRoots sets and checks the asset roots.
func (p *Pack) setRoots(c *schema.Checker, v document.Value) {
	p.publicRel = cmp.Or(v.Get("public").Text(), defaultPublicRoot)
	p.evalRel = cmp.Or(v.Get("eval").Text(), defaultEvalRoot)
	public, _ := paths.Parse(p.publicRel) // the schema's check has passed
	eval, _ := paths.Parse(p.evalRel)
	p.PublicRoot, p.EvalRoot = filepath.Join(p.dir, public), filepath.Join(p.dir, eval)
	p.checkRoots(c, "asset_roots", map[string]string{"public": public, "eval": eval})
}

// checkRoots checks the directories that a key of the manifest names, by their own keys: all are inside the pack, and no
// two overlap, even with symbolic links resolved.
func (p *Pack) checkRoots(c *schema.Checker, key string, roots map[string]string) {
	v, path := p.manifest.Root().Get(key), "$."+key
	pack, err := filepath.EvalSymlinks(p.dir)
	if err != nil {
		c.Report(v, Problem{Path: path, Message: err.Error()})
		return
	}
	names, actual := slices.Sorted(maps.Keys(roots)), map[string]string{} // with symbolic links resolved
	for i, name := range names {
		dir := filepath.Join(pack, roots[name])
		if resolved, err := filepath.EvalSymlinks(dir); err == nil { // it need not exist if no row refers to a file in it
			dir = resolved
		}
		if below, err := filepath.Rel(pack, dir); err != nil || below == "." || !filepath.IsLocal(below) {
			c.Report(v, Problem{Path: path + "." + name, Message: "directory leads outside the pack"})
		}
		for _, other := range names[:i] {
			if paths.Overlap(paths.Fold(roots[other]), paths.Fold(roots[name])) || paths.Overlap(actual[other], dir) {
				c.Report(v, Problem{
					Path: path, Message: fmt.Sprintf("%s root %q and %s root %q overlap, or lead to one directory", other, roots[other], name, roots[name]),
					Hint: "agents would see hidden files",
				})
			}
		}
		actual[name] = dir
	}
}
