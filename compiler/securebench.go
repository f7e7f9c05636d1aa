package compiler

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/environment"
	"github.com/securebench/sbench/compiler/paths"
	"github.com/securebench/sbench/compiler/schema"
	"github.com/securebench/sbench/compiler/securebench"
)

// This file reads packs of SecureBench 2.0.

// Verification returns how the task is judged if its pack is one of SecureBench 2.0; nil otherwise.
func (t *Task) Verification() *securebench.Verification {
	if t.pack.roots == nil {
		return nil
	}
	return securebench.NewVerification(t.Eval(), t.pack.roots)
}

// securebenchFamilies returns the families of a pack with these resource roots.
func securebenchFamilies(families []*Family, roots map[string]string) (all []*Family) {
	for _, name := range []string{"terminal_task", "repo_patch"} {
		of := familyNamed(families, name)
		if of == nil {
			continue
		}
		f := new(*of)
		all = append(all, f)
		f.section, f.Eval, f.Inputs, f.Rules = "verification", securebench.Object(f.Name == "repo_patch"), nil, nil
		f.Check = func(c *schema.Checker, _, eval document.Value) {
			securebench.CheckVerification(c, eval, f.Name == "repo_patch")
		}
		f.files = func(eval document.Value) (all []resource) {
			for kind, root := range map[string]string{"runtime": roots["runtime"], "host": roots["host"]} {
				for key, v := range eval.Get("resources").Get(kind).Fields() {
					ref := FileRef{Name: kind + "." + key.Text(), Lane: HiddenLane, Path: path.Join(root, v.Get("path").Text()), ReadOnly: true}
					ref.Mount = path.Join(paths.EvaluatorRoot, ref.Name) // two ids may name the same files
					if kind == "runtime" {
						ref.Lane, ref.Mount = EvaluationInputs, v.Get("mount").Text()
					}
					all = append(all, resource{Value: v, name: ref.Name, lane: ref.Lane, section: "split", file: &ref})
				}
			}
			slices.SortFunc(all, func(a, b resource) int { return strings.Compare(a.name, b.name) })
			return all
		}
	}
	return all
}

// openSecureBench reads the manifest of a pack of SecureBench 2.0. EvalRoot is the directory of the pack: the roots
// runtime and host, which agents do not see, become prefixes of the paths below EvalRoot.
func (p *Pack) openSecureBench(c *schema.Checker, root document.Value) {
	p.ID, p.Version, p.readOnly = root.Get("id").Text(), 2, true
	p.roots = map[string]string{"public": "assets/", "runtime": "evaluation_inputs/", "host": "hidden/"}
	for key, v := range root.Get("resource_roots").Fields() {
		p.roots[key.Text()] = v.Text()
	}
	for name, dir := range p.roots {
		p.roots[name], _ = paths.Parse(dir) // the schema's check has passed
	}
	p.checkRoots(c, "resource_roots", p.roots)
	p.families = securebenchFamilies(p.families, p.roots)
	p.publicRel, p.evalRel = p.roots["public"], "."
	p.PublicRoot, p.EvalRoot = path.Join(p.dir, p.publicRel), p.dir
	defaults := root.Get("defaults")
	p.defaultFamily = familyNamed(p.families, defaults.Get("family").Text())
	p.environment = environment.Environment{}.With(defaults.Get("environment"))
}

// securebenchTask completes env, the environment of a row, by the keys that only SecureBench 2.0 has. It reports keys that
// are missing, and paths that collide.
func (r *rowReader) securebenchTask(root document.Value, f *Family, env environment.Environment) environment.Environment {
	defaults := r.pack.manifest.Root().Get("defaults").Get("environment")
	own := root.Get("environment")
	for _, key := range []string{"image", "workdir", "timeout_seconds", "agent_network"} {
		if own.Get(key).Kind() == 0 && defaults.Get(key).Kind() == 0 {
			r.checker.Errorf(root, "in the row's environment or in the manifest's defaults", "environment has no %q", key)
		}
	}
	network := cmp.Or(own.Get("agent_network"), defaults.Get("agent_network"))
	env.NetworkNone = network.Is("none") || network.Get("mode").Is("none")
	env.MaterializeWorkdirFromImage, env.SecureBench = f.Name == "terminal_task", true
	var taken []document.Value
	reserved := path.Join(env.Workdir, path.Dir(paths.PublicRoot))
	place := func(v document.Value, candidate bool) {
		inside := v.Text() != env.Workdir && paths.IsBelow(v.Text(), env.Workdir)
		switch {
		case v.Kind() == 0: // the schema reports it
			return
		case candidate && !inside:
			r.checker.Errorf(v, "", "%q is not below the workdir %q", v.Text(), env.Workdir)
		case !candidate && (paths.IsBelow(env.Workdir, v.Text()) || inside && f.Name == "repo_patch"):
			r.checker.Errorf(v, "", "the mount %q overlaps the workdir %q", v.Text(), env.Workdir)
		case paths.Overlap(v.Text(), reserved):
			r.checker.Errorf(v, "", "%q overlaps %q, where sbench puts the task", v.Text(), reserved)
		}
		for _, other := range taken {
			if paths.Overlap(v.Text(), other.Text()) {
				r.checker.Errorf(v, "", "the mounts %q and %q overlap", v.Text(), other.Text())
			}
		}
		taken = append(taken, v)
	}
	for _, e := range root.Get("verification").Get("candidate").Get("files").Items() {
		place(e.Get("path"), true)
	}
	for _, a := range root.Get("assets").Items() {
		place(a.Get("mount"), false)
	}
	for _, v := range root.Get("verification").Get("resources").Get("runtime").Fields() {
		place(v.Get("mount"), false)
	}
	return env
}
