package compiler

import (
	"iter"
	"strconv"

	"github.com/securebench/sbench/compiler/document"
)

// resource is what a component may see as one thing: a field of a row's input or eval,
// or an asset.
type resource struct {
	document.Value
	name    string // of the field; assets[0] for the first asset
	lane    Lane
	section string         // input, assets or eval
	key     document.Value // of the field; zero for an asset
	index   int            // of the asset
	file    *FileRef       // nil unless it is a file reference
}

// where returns its JSON path.
func (r resource) where() string {
	if r.section == "assets" {
		return "$." + r.name
	}
	return "$." + r.section + "." + r.name
}

// steps returns the path for a schema.Checker.
func (r resource) steps() []any {
	if r.section == "assets" {
		return []any{r.section, r.index}
	}
	return []any{r.section, r.name}
}

// place returns the path at which it appears in a workspace.
func (r resource) place() string {
	if r.file != nil {
		return r.file.Mount
	}
	return laneRoot(r.lane) + "/" + r.name + ".json"
}

// resources yields everything that a row of the family shows to some component: the
// fields of input, the assets, and the fields of eval. ReadOnly is the manifest's
// default for assets.
func (f *family) resources(root document.Value, readOnly bool) iter.Seq[resource] {
	return func(yield func(resource) bool) {
		for key, v := range root.Get("input").Fields() {
			if !yield(resource{Value: v, name: key.Text(), lane: Public, section: "input", key: key}) {
				return
			}
		}
		for i, v := range root.Get("assets").Items() {
			ref := newFileRef("assets["+strconv.Itoa(i)+"]", Public, v, readOnly)
			if !yield(resource{Value: v, name: ref.Name, lane: Public, section: "assets", index: i, file: &ref}) {
				return
			}
		}
		for key, v := range root.Get("eval").Fields() {
			found := resource{Value: v, name: key.Text(), section: "eval", key: key}
			found.lane = f.lane(found.name)
			if isFileRef(v) {
				ref := newFileRef(found.name, found.lane, v, true)
				found.file = &ref
			}
			if !yield(found) {
				return
			}
		}
	}
}
