package compiler

import (
	"cmp"
	"slices"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/schema"
)

// A Family is a kind of task: which fields a row has, who may see them, and what a harness has to produce.
// A Family of package verifiers adds how candidates are judged. Nothing changes a Family once a pack may use
// it.
//
// Name, CandidateKind, Input and Eval are required. Doc describes the family in the JSON Schema of its rows.
type Family struct {
	Name          string
	CandidateKind CandidateKind
	Doc           string
	// Input and Eval are the fields of a row's input and eval. Every input field is public. The
	// names of all fields differ, since each is also the name of a file.
	Input, Eval *schema.Object
	// Inputs names the eval fields that are evaluation inputs; all others are hidden.
	Inputs []string
	// Check, if not nil, finds errors that the schemas cannot express. It is called only for
	// rows whose input and eval satisfy them.
	Check func(c *schema.Checker, input, eval document.Value)

	// Machine permits eval.checker, and the environment keys that only make sense if the candidate is a
	// workspace or a machine; without it they are errors.
	Machine bool
	// Words says that an answer may be a single word. Validation then searches the input for answers of
	// at least three bytes, as whole words.
	Words bool
	// Rules, if not nil, tells an agent in sentences what it must not do. Agents are told
	// nothing else about the evaluation but AnswerFormat.
	Rules func(t *Task) string
	// AnswerFormat is a sentence for agents about the form of an answer in words; "" for none. The
	// author's own answer format replaces it.
	AnswerFormat string
	// Judged, if not nil, reports whether a model judges the task, in a run that has a judge.
	Judged func(t *Task) bool

	section string                          // of a row, in place of eval; "" for eval
	files   func(document.Value) []resource // the further files of the section; nil for the files of its split check
}

// evalSection returns the key of the section of rows that is not public.
func (f *Family) evalSection() string { return cmp.Or(f.section, "eval") }

// lane returns the visibility of the eval field with this key.
func (f *Family) lane(key document.Value) Lane {
	if slices.ContainsFunc(f.Inputs, key.Is) {
		return EvaluationInputs
	}
	return HiddenLane
}

// open reports whether rows may have fields that the family does not name.
func (f *Family) open() bool {
	return f.Input.Unknown != schema.Refuse || f.Eval.Unknown != schema.Refuse
}

func familyNamed(families []*Family, name string) *Family {
	for _, f := range families {
		if f.Name == name {
			return f
		}
	}
	return nil
}

// EvalOf returns a struct of type E with the values of a task's input and eval, as schema.Decode sets them. Fields may be
// of type hidden.Value. A field is zero if the task has no value for it. The schemas of the row may allow only values that
// fit E.
func EvalOf[E any](t *Task) (eval E) {
	schema.Decode(t.Input(), &eval)
	schema.Decode(t.Eval(), &eval)
	return eval
}
