package compiler

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/hidden"
	"github.com/securebench/sbench/compiler/paths"
	"github.com/securebench/sbench/compiler/schema"
)

// Resource is one named value or file of a task as a component sees it.
type Resource struct {
	Name string
	Lane Lane
	// File is set if the resource is a file or directory; then Value is the reference
	// itself. Each asset of a task is a Resource.
	File *FileRef
	// Value is the value as JSON. It prints as "<redacted>" even if the
	// resource is public.
	Value hidden.Value[json.RawMessage]
	// Text is the value as written to a file: indented JSON that ends with a line break.
	Text hidden.Value[[]byte]
}

// Resources returns the resources that a component other than the agent sees: public ones first, each group in the order
// of the row. The resources of the evaluator stay in sbench's own process.
func (t *Task) Resources(component Component) (all []Resource) {
	for _, v := range t.resources() {
		if component.Sees(v.lane) {
			all = append(all, Resource{
				Name:  v.name,
				Lane:  v.lane,
				File:  v.file,
				Value: hidden.Hide(json.RawMessage(slices.Clone(v.Raw()))),
				Text:  hidden.Hide(append(document.Indented(v.Value), '\n')),
			})
		}
	}
	return all
}

// ResourceSummary is what a record contains of a resource. It is safe to print.
type ResourceSummary struct {
	Name string `json:"name"`
	Lane Lane   `json:"visibility"`
	Kind string `json:"kind"` // "text" for a string, otherwise "json"
	// Value is set if the resource is public, Redacted if it is not.
	Value    json.RawMessage `json:"value,omitempty"`
	Redacted bool            `json:"redacted,omitempty"`
}

// ResourceSummary returns a summary of every resource, in the order of the row. All assets
// together are one resource.
func (t *Task) ResourceSummary() []ResourceSummary {
	var all []ResourceSummary
	for _, step := range t.steps {
		for _, s := range step.ResourceSummary() {
			s.Name = step.step.Name + "/" + s.Name
			all = append(all, s)
		}
	}
	if t.Stepped() {
		return all
	}
	for _, v := range t.resources() {
		s := ResourceSummary{Name: v.name, Lane: v.lane, Kind: "json", Redacted: v.lane != Public}
		if v.section == "assets" {
			if v.index > 0 {
				continue
			}
			s.Name, v.Value = "assets", t.doc.Root().Get("assets")
		}
		if v.Kind() == document.String {
			s.Kind = "text"
		}
		if v.lane == Public {
			s.Value = slices.Clone(v.Raw())
		}
		all = append(all, s)
	}
	return all
}

// MinSecret is the least length, in bytes, of a value of harness.env that is searched for in other text as
// a secret. Shorter strings occur by chance, and redacting them would reveal more than it
// hides.
const MinSecret = 6

// resource is something that components see as a unit: a field of a row's input or eval, or
// an asset.
type resource struct {
	document.Value
	name    string // of the field; assets[0] for the first asset
	lane    Lane
	section string         // input, assets or eval
	key     document.Value // of the field; zero for an asset
	index   int            // of the asset
	file    *FileRef       // nil unless it is a file reference
}

func (r resource) place() string {
	if r.file != nil {
		return r.file.Mount
	}
	return laneRoot(r.lane) + "/" + r.name + ".json"
}

// resources returns everything that a row of the family shows to some component: the fields
// of input, the assets, and the fields of eval. readOnly is the manifest's default for
// assets.
func (f *Family) resources(root document.Value, readOnly bool) (all []resource) {
	for key, v := range root.Get("input").Fields() {
		all = append(all, resource{Value: v, name: key.Text(), lane: Public, section: "input", key: key})
	}
	for i, v := range root.Get("assets").Items() {
		ref := newFileRef(fmt.Sprintf("assets[%d]", i), Public, v, readOnly)
		all = append(all, resource{Value: v, name: ref.Name, lane: Public, section: "assets", index: i, file: &ref})
	}
	eval := root.Get(f.evalSection())
	for key, v := range eval.Fields() {
		r := resource{Value: v, name: key.Text(), lane: f.lane(key), section: "eval", key: key}
		if isFileRef(v) {
			r.file = new(newFileRef(r.name, r.lane, v, true))
		}
		all = append(all, r)
	}
	if f.files != nil {
		return append(all, f.files(eval)...)
	}
	return append(all, splitResources(eval)...)
}

// FileRef names a file or directory below one of the pack's asset roots, and its path in a
// workspace.
type FileRef struct {
	// Name is the name of the eval field, or "assets[0]" for the first asset.
	Name  string `json:"-"`
	Lane  Lane   `json:"-"`
	Field string `json:"-"` // the JSON path of the reference; set by Task.Files alone
	// Path is clean and relative to Pack.PublicRoot if public, otherwise to Pack.EvalRoot.
	Path string `json:"path"`
	// Mount is clean and relative to the workspace, or absolute.
	Mount    string `json:"mount"`
	ReadOnly bool   `json:"read_only"` // in the workspace
}

// isFileRef reports whether an eval value looks like a file reference: an object with a path
// and no keys but path, mount and read_only.
func isFileRef(v document.Value) bool {
	for key := range v.Fields() {
		if !key.Is("path") && !key.Is("mount") && !key.Is("read_only") {
			return false
		}
	}
	return v.Get("path").Kind() != 0
}

// fileRefSchema allows an eval field of the lane that is a file reference.
func fileRefSchema(lane Lane) *schema.Schema {
	s := schema.Closed("",
		schema.Required("path", schema.Path("The file or directory, relative to asset_roots.eval.")),
		schema.Optional("mount", schema.Path("Where it appears in the workspace: below securebench/evaluation_inputs, or securebench/evaluator for a hidden one. That directory and path unless given.")),
		schema.Optional("read_only", schema.Nullable(schema.Boolean("Whether it may be written to.", true))),
	)
	s.Check = func(c *schema.Checker, v document.Value) {
		if mount := v.Get("mount"); mount.Kind() == document.String {
			if err := checkMount(lane, mount.Text()); err != nil {
				c.Errorf(mount, "", "%v", err)
			}
		}
	}
	return s
}

// newFileRef reads a reference with valid paths. Without a mount, a public file appears at its path, and
// any other file at its path below the directory of its lane.
func newFileRef(name string, lane Lane, v document.Value, readOnly bool) FileRef {
	ref := FileRef{Name: name, Lane: lane, ReadOnly: readOnly}
	ref.Path, _ = paths.Parse(v.Get("path").Text())
	if ref.Mount = ref.Path; lane != Public {
		ref.Mount = laneRoot(lane) + "/" + ref.Path
	}
	if mount := v.Get("mount"); mount.Kind() == document.String {
		ref.Mount, _ = paths.Parse(mount.Text())
		if path.IsAbs(mount.Text()) { // in a pack of SecureBench 2.0
			ref.Mount = mount.Text()
		}
	}
	if v := v.Get("read_only"); v.Kind() == document.Bool {
		ref.ReadOnly = v.IsTrue()
	}
	return ref
}
