package compiler

import (
	"fmt"
	"hash/maphash"
	"path"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/environment"
	"github.com/securebench/sbench/compiler/paths"
	"github.com/securebench/sbench/compiler/schema"
)

// rowRule returns the rule for what rows of all these families have in common.
func rowRule(families []*Family) *schema.Object {
	return &schema.Object{Unknown: schema.Tolerate, Fields: []schema.Field{
		schema.Required("id", &schema.Schema{Doc: "The task's id, unique in the pack.", String: &schema.String{NonEmpty: true}}),
		schema.Optional("family", schema.Nullable(familySchema("The row's family, the manifest's default unless given.", families))),
		schema.Optional("input", schema.Nullable(schema.Open("What the agent sees."))),
		schema.Optional("eval", schema.Nullable(schema.Open("What scores the candidate; the agent never sees it."))),
		schema.Optional("assets", assetsSchema()),
		schema.Optional("environment", environment.Schema()),
		schema.Optional("step", stepSchema()),
		schema.Optional("metadata", schema.Nullable(schema.Open("Anything that is worth keeping. The agent never sees it."))),
	}}
}

func assetsSchema() *schema.Schema {
	return &schema.Schema{
		Doc:  "Public files that are put into the agent's workspace.",
		Null: true,
		Array: &schema.Array{Items: &schema.Schema{
			Doc: "A public file or directory.",
			Object: &schema.Object{Unknown: schema.Tolerate, Fields: []schema.Field{
				schema.Required("path", schema.Path("The file or directory, relative to asset_roots.public.")),
				schema.Optional("mount", schema.Mount("Where it appears in the workspace; the same as path unless given.")),
				schema.Optional("read_only", schema.Nullable(schema.Boolean("Whether the agent may write to it; the manifest's default unless given.", true))),
			}},
			Check: func(c *schema.Checker, v document.Value) {
				if v.Get("mount").Kind() != 0 {
					return
				}
				if err := checkMount(Public, v.Get("path").Text()); err != nil {
					c.Errorf(v.Get("path"), "give another mount", "%v", err)
				}
			},
		}},
	}
}

// check reports everything that is wrong with a row and returns its family, or nil if
// that is missing or unknown.
func (r *rowReader) check(root document.Value, env environment.Environment) *Family {
	c := &r.checker
	if root.Kind() != document.Object {
		hint := ""
		if root.Kind() == document.Array {
			hint = "one row a line: jq -c '.[]' FILE takes a list apart"
		}
		c.Errorf(root, hint, "expected an object, found %s", root.Kind())
		return nil
	}
	sound := c.CheckObject(r.rule, root)
	if id := root.Get("id"); id.Kind() == document.String && id.Text() != "" {
		r.checkID(id)
	}
	f := r.pack.defaultFamily
	switch name := root.Get("family"); {
	case name.Kind() == document.String:
		f = familyNamed(r.pack.families, name.Text())
	case name.Given():
		f = nil
	case f == nil:
		c.Errorf(root, "the manifest has no defaults.family", "key %q is missing", "family")
	}
	if f == nil {
		return nil
	}
	if sound {
		r.checkStep(f, root, env)
		r.checkKept(root, env)
	}
	if sound && !f.Machine {
		r.checkNoMachine(f, root, env)
	}
	inputSound := c.CheckAt("input", f.Input, root)
	evalSound := c.CheckAt(f.evalSection(), f.Eval, root)
	all := f.resources(root, true)
	if f.open() { // other schemas fix the names
		r.checkNames(root, all)
	}
	for _, v := range all {
		if v.section == "eval" && v.file != nil {
			sound = c.Check(fileRefSchema(v.lane), v.Value) && sound
		}
	}
	if sound {
		r.checkCollisions(all)
	}
	if inputSound && evalSound && f.Check != nil {
		f.Check(c, root.Get("input"), root.Get(f.evalSection()))
	}
	return f
}

// checkKept reports what a row with environment.keep_processes cannot have: there, the checker runs beside the processes
// that the harness left.
func (r *rowReader) checkKept(root document.Value, env environment.Environment) {
	eval := root.Get("eval")
	if !env.KeepProcesses {
		return
	}
	for _, other := range []struct {
		set  bool
		what string
	}{
		{env.Isolation == "gvisor", "gVisor"}, {root.Get("step").Given(), "steps"}, {eval.Get("split").Given(), "a split"},
	} {
		if other.set {
			r.checker.Report(root, Problem{Path: "$.environment.keep_processes", Message: "a task that keeps the harness's processes cannot have " + other.what})
		}
	}
}

// checkNoMachine checks that a row of a family without Machine has no environment that needs it.
func (r *rowReader) checkNoMachine(f *Family, root document.Value, env environment.Environment) {
	for _, own := range []struct {
		key string
		set bool
	}{
		{"materialize_workdir_from_image", env.MaterializeWorkdirFromImage},
		{"candidate", env.Machine},
		{"capabilities", env.Capabilities != nil},
		{"entrypoint", env.Entrypoint != nil},
		{"prepare", !env.Prepare.IsZero()},
		{"keep_processes", env.KeepProcesses},
		{"harness_user", env.HarnessUser != ""},
		{"sidecars", env.Sidecars != nil},
	} {
		if own.set {
			r.checker.Report(root, Problem{
				Path: "$.environment." + own.key, Message: fmt.Sprintf("only a terminal_task has %s, a %s does not", own.key, f.Name),
				Hint: "set it to null for this row",
			})
		}
	}
}

func (r *rowReader) checkID(id document.Value) {
	if first := r.noteID(id.Text()); first > 0 && r.stepped[id.Text()] == 0 { // see checkStep
		r.checker.Errorf(id, "ids are unique in a pack", "id %q is used on line %d", id.Text(), first)
	}
}

// noteID notes that the row on this line uses an id. It returns the line of the first row that uses the id; 0 if there
// is none. Two different ids of a million have the same hash once in 37 million packs.
func (r *rowReader) noteID(id string) int {
	hash := maphash.String(r.seed, id)
	first := r.ids[hash]
	if first == 0 {
		r.ids[hash] = int32(r.line)
	}
	return int(first)
}

// checkNames checks that every value of input and eval has a name that is unique and usable as
// a file name.
func (r *rowReader) checkNames(root document.Value, all []resource) {
	seen := map[string]string{}
	if root.Get("assets").Len() > 0 {
		seen["assets"] = "assets"
	}
	for _, v := range all {
		if v.section == "assets" {
			continue
		}
		folded, name := paths.Fold(v.name), v.name+".json"
		if first, ok := seen[folded]; ok {
			r.checker.Errorf(v.key, "names of input, eval and assets share one space",
				"resource %q is defined by $.%s too", v.name, first)
		}
		seen[folded] = v.section
		if clean, err := paths.Parse(name); v.name == "" || err != nil || clean != name || strings.Contains(v.name, "/") || strings.Contains(v.name, "..") {
			r.checker.Errorf(v.key, "", "%q cannot name a resource", v.name)
		}
	}
}

// checkCollisions checks the paths of everything that a row puts into a workspace: no two are equal, and
// none lies below another.
func (r *rowReader) checkCollisions(all []resource) {
	type placed struct {
		resource
		fold string // the path folded, with NUL for slash so that parents sort next to their children
	}
	var files, others []placed
	for _, v := range all {
		p := placed{v, strings.ReplaceAll(paths.Fold(v.place()), "/", "\x00")}
		if v.file != nil {
			files = append(files, p)
		} else {
			others = append(others, p)
		}
	}
	if len(files) == 0 {
		return
	}
	places := append(files, others...)
	slices.SortStableFunc(places, func(a, b placed) int { return strings.Compare(a.fold, b.fold) })
	above := places[0]
	for _, p := range places[1:] {
		if p.fold != above.fold && !strings.HasPrefix(p.fold, above.fold+"\x00") {
			above = p
			continue
		}
		r.checker.Errorf(p.Value, "mounts may not be equal or lie inside one another",
			"%q collides with %q of %s", p.place(), above.place(), above.Path())
	}
}

// checkMount checks the workspace path that an author chose for a file of the lane. A public file may be
// anywhere but at the denied paths and in other lanes' directories, any other file only in its lane's directory.
func checkMount(lane Lane, mount string) error {
	clean, err := paths.Parse(mount)
	switch {
	case err != nil:
		return err
	case lane == Public:
		return paths.CheckPublic(clean)
	case !paths.IsBelow(clean, laneRoot(lane)):
		return fmt.Errorf("mount %q does not lie below %q: write the whole path, as in %q", clean, laneRoot(lane), path.Join(laneRoot(lane), path.Base(clean)))
	}
	return nil
}

func laneRoot(lane Lane) string {
	switch lane {
	case EvaluationInputs:
		return paths.EvaluationInputsRoot
	case HiddenLane:
		return paths.EvaluatorRoot
	}
	return paths.PublicRoot
}
