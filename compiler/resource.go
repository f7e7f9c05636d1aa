package compiler

import (
	"fmt"

	"github.com/securebench/sbench/compiler/document"
)

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

// place returns the path at which it appears in a workspace.
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
