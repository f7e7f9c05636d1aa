package compiler

import (
	"encoding/json"
	"slices"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/hidden"
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
				Text:  hidden.Hide(append(v.AppendIndented(nil), '\n')),
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
