package compiler

import (
	"slices"
	"sync"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/schema"
)

// Family is the name of a row's contract. The zero Family is invalid.
type Family string

// Contract is what is known of a family without a row.
type Contract struct {
	Family        Family        `json:"family"`
	Active        bool          `json:"active"` // validated and verified
	CandidateKind CandidateKind `json:"candidate_kind"`
}

// family is the whole definition of a family: its file has a function that
// returns one, and newRegistry names that function.
type family struct {
	Contract
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
	return []*family{
		multipleChoice(), shortAnswer(), freeResponse(), codeCompletion(), repoPatch(), terminalTask(),
		toolCall(), browserTask(), desktopTask(), artifactTask(), multimodalQA(), preferencePair(),
	}
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

// Families returns the contracts of all families, the active ones first.
func Families() []Contract {
	var contracts []Contract
	for _, f := range registry() {
		contracts = append(contracts, f.Contract)
	}
	return contracts
}

// deferred makes a family that loads, compiles and runs a harness, but has no
// verifier: its rows may hold any field.
func deferred(name Family, doc string, lanes map[string]Lane, eval ...schema.Field) *family {
	return &family{
		Contract: Contract{Family: name, CandidateKind: CandidateText},
		doc:      doc,
		input:    &schema.Object{Unknown: schema.Accept, OthersDoc: "Any public value."},
		eval:     &schema.Object{Fields: eval, Unknown: schema.Accept, OthersDoc: "Any hidden value."},
		lanes:    lanes,
	}
}

// anything is the schema of a deferred family's field.
func anything(doc string) *schema.Schema { return &schema.Schema{Doc: doc, Any: true} }

func required(name string, s *schema.Schema) schema.Field {
	return schema.Field{Name: name, Required: true, Schema: s}
}

func optional(name string, s *schema.Schema) schema.Field {
	return schema.Field{Name: name, Schema: s}
}

// textOrObject is the schema of context-like fields.
func textOrObject(doc string) *schema.Schema {
	return &schema.Schema{
		Doc: doc, String: &schema.String{NonBlank: true}, Object: &schema.Object{Unknown: schema.Accept},
	}
}

// stringList returns the strings of an array.
func stringList(v document.Value) []string {
	var list []string
	for _, item := range v.Items() {
		list = append(list, item.Text())
	}
	return slices.Clip(list)
}
