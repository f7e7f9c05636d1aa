package compiler

import (
	"path"
	"slices"
	"time"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/hidden"
	"github.com/securebench/sbench/compiler/paths"
	"github.com/securebench/sbench/compiler/schema"
)

// maxQuestions bounds the questions of a split check: each has a sandbox of its own.
const maxQuestions = 4096

// SplitField is the field of eval with a split check. It is hidden.
func SplitField() schema.Field {
	fields := schema.Fields(Split{}, schema.Rules{
		"questions": func(s *schema.Schema) { s.Number.Max = new(float64(maxQuestions)) },
		"driver": func(s *schema.Schema) { // its sandbox has the task's image
			s.Object.Fields = slices.DeleteFunc(s.Object.Fields, func(f schema.Field) bool { return f.Name == "image" })
		},
	})
	return schema.Optional("split", schema.Closed("A check in two places: a driver beside the candidate puts questions to it, and an oracle, where no candidate ever is, asks them and judges the answers.", fields...))
}

// OneCheck reports a row that has neither eval.split nor the field other, or both.
func OneCheck(c *schema.Checker, eval document.Value, other, what string, never ...string) (split bool) {
	v := eval.Get("split")
	if v.Kind() == 0 {
		if eval.Get(other).Kind() == 0 {
			c.Errorf(eval, what, "key %q is missing", other)
		}
		return false
	}
	for _, key := range append(never, other) {
		if field := eval.Get(key); field.Given() {
			c.Errorf(field, "remove one of the two", "a row with split has no %s", key)
		}
	}
	return true
}

// Split says how a candidate is judged in two places; see package verifiers/split. It prints as "<redacted>".
type Split struct {
	hidden.Fields
	Questions int          `key:"questions" rule:"required questions" doc:"How many questions the oracle asks."`
	Driver    SplitProgram `key:"driver" rule:"required driver" doc:"The program that puts one question to the candidate. Each question has a new sandbox with the candidate and the driver."`
	Oracle    SplitProgram `key:"oracle" rule:"required" doc:"The program that asks the questions and judges the answers, in a sandbox without the candidate."`
}

// SplitProgram is a driver or an oracle.
type SplitProgram struct {
	Path    string         `key:"path" rule:"required path" doc:"Its file or directory below asset_roots.eval, which its sandbox has as /tests/NAME."` // clean
	Command schema.Command `key:"command" doc:"Its command; the file at path itself unless given."`
	Timeout time.Duration  `key:"timeout_seconds" rule:"null" doc:"How long it may take for one answer, by default a minute."` // zero if the author gave none
	Image   string         `key:"image" trim:"space" rule:"image" doc:"The image of its sandbox, the task's unless given."`
}

// Mounted returns where the program's sandbox has Path.
func (p SplitProgram) Mounted() string { return path.Join(paths.CheckerMount, path.Base(p.Path)) }

// Args returns the program's command line.
func (p SplitProgram) Args() []string {
	if p.Command.IsZero() {
		return []string{p.Mounted()}
	}
	return p.Command.Args()
}

// Split returns the task's split check in sbench's own form; nil if it has none.
func (t *Task) Split() *Split {
	v := t.Eval().Get("split")
	if !v.Given() {
		return nil
	}
	s := new(Split)
	schema.Decode(v, s)
	s.Driver.Path, _ = paths.Parse(s.Driver.Path) // the schema's check has passed
	s.Oracle.Path, _ = paths.Parse(s.Oracle.Path)
	return s
}

// splitResources returns the files of a split check: the files of the driver are evaluation inputs, and the files of the
// oracle are hidden.
func splitResources(eval document.Value) (all []resource) {
	for key, v := range eval.Get("split").Fields() {
		lane := HiddenLane
		switch {
		case v.Get("path").Kind() != document.String:
			continue
		case key.Is("driver"):
			lane = EvaluationInputs
		}
		ref := newFileRef("split."+key.Text(), lane, v, true)
		if lane == EvaluationInputs {
			ref.Mount = path.Join(paths.CheckerMount, path.Base(ref.Path))
		}
		all = append(all, resource{Value: v, name: ref.Name, lane: lane, section: "split", file: &ref})
	}
	return all
}
