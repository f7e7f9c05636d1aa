package compiler

import (
	"path"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/paths"
	"github.com/securebench/sbench/compiler/schema"
)

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
			if _, err := parseMount(lane, mount.Text()); err != nil {
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
