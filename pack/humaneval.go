package pack

import (
	"fmt"
	"regexp"

	"github.com/securebench/sbench/compiler/family"
)

var pythonName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// humanEvalRow makes a task of a line of HumanEval.jsonl, or of a file of the same form. Its tests are the line's check
// function and a call of this function.
func humanEvalRow(r *record) (Row, error) {
	id, prompt, tests := r.text("task_id"), r.text("prompt"), r.text("test")
	entry, solution := r.text("entry_point"), r.text("canonical_solution")
	if entry != "" && !pythonName.MatchString(entry) {
		r.wrong("$.entry_point", "%q is no name in Python", entry)
	}
	return Row{
		ID:    id,
		Input: map[string]any{"prompt": prompt, "language": "python", "starter_code": prompt},
		Eval: map[string]any{
			"tests":              map[string]any{"source": "inline", "code": fmt.Sprintf("%s\ncheck(%s)\n", tests, entry)},
			"canonical_solution": solution, "extract": family.Fenced,
		},
		Metadata: map[string]any{"entry_point": entry},
	}, nil
}
