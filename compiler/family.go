package compiler

import (
	"slices"
	"sync"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/schema"
)

// Family is the kind of a task, which determines the fields of its row and how
// candidates are verified. The zero Family is invalid.
type Family string

// family is the full definition of a Family. Each has a function that returns it, which
// registry calls.
type family struct {
	Family        Family
	Active        bool // rows are validated and candidates verified
	CandidateKind CandidateKind

	doc string
	// input and eval are closed for an active family, open for a deferred one. Every input
	// field is public.
	input, eval *schema.Object
	// inputs names the eval fields that are evaluation inputs; all others are hidden.
	inputs []string
	// check, if not nil, finds errors that the schemas cannot express. It is called only for
	// rows whose input and eval satisfy them.
	check func(c *schema.Checker, input, eval document.Value)
}

// lane returns the visibility of the eval field with this key.
func (f *family) lane(key document.Value) Lane {
	if slices.ContainsFunc(f.inputs, key.Is) {
		return EvaluationInputs
	}
	return HiddenLane
}

// registry returns every family, the active ones first.
var registry = sync.OnceValue(func() []*family {
	return append([]*family{
		multipleChoice(), shortAnswer(), freeResponse(), codeCompletion(), repoPatch(), terminalTask(),
	}, deferredFamilies()...)
})

func familyNamed(name string) *family {
	for _, f := range registry() {
		if string(f.Family) == name {
			return f
		}
	}
	return nil
}

func familyNames() []string {
	var names []string
	for _, f := range registry() {
		names = append(names, string(f.Family))
	}
	return names
}

// anything is the schema of a field that may hold any value.
func anything(doc string) *schema.Schema { return &schema.Schema{Doc: doc, Any: true} }

func required(name string, s *schema.Schema) schema.Field {
	return schema.Field{Name: name, Required: true, Schema: s}
}

func optional(name string, s *schema.Schema) schema.Field {
	return schema.Field{Name: name, Schema: s}
}

// textOrObject is the schema of fields such as context: a string or any object.
func textOrObject(doc string) *schema.Schema {
	s := schema.Open(doc)
	s.String = &schema.String{NonBlank: true}
	return s
}

// stringList returns the strings of an array.
func stringList(v document.Value) []string {
	var list []string
	for _, item := range v.Items() {
		list = append(list, item.Text())
	}
	return slices.Clip(list)
}
