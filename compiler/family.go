package compiler

import (
	"slices"
	"sync"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/schema"
)

// Family is the name of a row's contract. The zero Family is invalid.
type Family string

// family is the whole definition of a family: its file has a function that
// returns one, and registry calls that function.
type family struct {
	Family        Family
	Active        bool // validated and verified
	CandidateKind CandidateKind

	doc string
	// input and eval are closed for an active family and open for a deferred
	// one. Every input field is public.
	input, eval *schema.Object
	// lanes are those of the eval fields; one that is not named is hidden.
	lanes map[string]Lane
	// check finds what the schemas cannot say. It is called for a row whose
	// input and eval satisfy them.
	check func(c *schema.Checker, input, eval document.Value)
}

// lane returns the visibility of an eval field.
func (f *family) lane(name string) Lane {
	if lane, ok := f.lanes[name]; ok {
		return lane
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

// textOrObject is the schema of context-like fields.
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
