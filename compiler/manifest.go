package compiler

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"strings"
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

// setRoots sets the absolute asset roots. It checks that they are inside the pack and do not
// overlap, even with symbolic links resolved.
func (p *Pack) setRoots(c *schema.Checker, v document.Value) {
	p.publicRel = cmp.Or(v.Get("public").Text(), defaultPublicRoot)
	p.evalRel = cmp.Or(v.Get("eval").Text(), defaultEvalRoot)
	public, _ := paths.Parse(p.publicRel) // the schema's check has passed
	eval, _ := paths.Parse(p.evalRel)
	p.PublicRoot, p.EvalRoot = filepath.Join(p.dir, public), filepath.Join(p.dir, eval)
	if paths.Overlap(paths.Fold(public), paths.Fold(eval)) {
		c.Errorf(v, "agents would see hidden files", "public root %q and eval root %q overlap", p.publicRel, p.evalRel)
		return
	}
	realPublic := p.checkRoot(c, v, "public", p.PublicRoot)
	realEval := p.checkRoot(c, v, "eval", p.EvalRoot)
	if realPublic != "" && realEval != "" && paths.Overlap(realPublic, realEval) {
		c.Report(v, Problem{
			Path: "$.asset_roots", Message: "public root and eval root lead to the same directory", Hint: "agents would see hidden files",
		})
	}
}

// checkRoot checks that the root is inside the pack, and returns it with symbolic links
// resolved, or "" if it does not exist.
func (p *Pack) checkRoot(c *schema.Checker, v document.Value, name, root string) string {
	wrong := func(message string) {
		c.Report(v, Problem{Path: "$.asset_roots." + name, Message: message})
	}
	pack, err := filepath.EvalSymlinks(p.dir)
	if err != nil {
		wrong(err.Error())
		return ""
	}
	actual, err := filepath.EvalSymlinks(root)
	if err != nil {
		return "" // an error only if a row refers to a file below it
	}
	if actual == pack || !strings.HasPrefix(actual, strings.TrimSuffix(pack, "/")+"/") {
		wrong("directory leads outside the pack")
	}
	return actual
}
