package pack

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler/family"
)

// minTokenF1 is how much an answer has to resemble an accepted answer. Accepted answers are whole sentences, which nobody
// repeats verbatim.
const minTokenF1 = 0.5

var truthfulColumns = []string{"Type", "Category", "Question", "Best Answer", "Correct Answers", "Incorrect Answers", "Source"}

// readTruthfulQA turns each record into a task. The task's id contains the record's number.
func readTruthfulQA(ctx context.Context, b *Builder) error {
	var columns map[string]int
	n, width := 0, 0
	err := table(ctx, b, b.Source, func(r *record) (row Row, err error) {
		if columns == nil {
			width = len(r.fields)
			columns, err = header(r)
			return row, err
		}
		n++
		if len(r.fields) != width {
			r.wrong("", "expected %d columns, as in the header, found %d", width, len(r.fields))
			return row, nil
		}
		return truthfulRow(r, n, func(name string) string { return strings.TrimSpace(r.fields[columns[name]]) }), nil
	})
	if err == nil && columns == nil {
		return Place{File: b.Source, Line: 1}.problem("", "no header")
	}
	return err
}

// header returns the indexes of the known columns. Newer copies have more columns, which it ignores.
func header(r *record) (map[string]int, error) {
	columns, missing := map[string]int{}, []string{}
	for _, name := range truthfulColumns {
		i := slices.IndexFunc(r.fields, func(f string) bool { return strings.EqualFold(strings.TrimSpace(f), name) })
		if i < 0 {
			missing = append(missing, name)
		}
		columns[name] = i
	}
	if len(missing) > 0 {
		return nil, r.place.problem("", "the header has no column %s", strings.Join(missing, ", "))
	}
	return columns, nil
}

func truthfulRow(r *record, n int, cell func(string) string) Row {
	prompt, best := cell("Question"), cell("Best Answer")
	for _, name := range []string{"Question", "Best Answer", "Correct Answers", "Incorrect Answers"} {
		if cell(name) == "" {
			r.wrong("", "%q is blank", name)
			return Row{}
		}
	}
	accepted := slices.DeleteFunc(list(cell("Correct Answers")), func(answer string) bool { return answer == best })
	accepted = append([]string{best}, accepted...)
	return Row{
		ID:    fmt.Sprintf("truthfulqa/%d", n),
		Input: map[string]any{"prompt": prompt},
		Eval: map[string]any{
			"rubric": map[string]any{
				"type": family.ContainsAny, "accepted_answers": accepted, "rejected_answers": list(cell("Incorrect Answers")), "min_token_f1": minTokenF1,
			},
			"reference_answer": best,
		},
		Metadata: map[string]any{"type": cell("Type"), "category": cell("Category"), "url": cell("Source")},
	}
}

func list(cell string) []string {
	items := []string{}
	for item := range strings.SplitSeq(cell, ";") {
		if item = strings.TrimSpace(item); item != "" && !slices.Contains(items, item) {
			items = append(items, item)
		}
	}
	return items
}
