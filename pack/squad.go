package pack

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/document"
)

// readSquad turns each question into a task with its paragraph as context.
func readSquad(ctx context.Context, b *Builder) error {
	text, file, err := b.load(b.Source)
	if err != nil {
		return err
	}
	var doc document.Document
	if problems := doc.ParseJSON(text, 1); len(problems) > 0 {
		return problems.In(b.Source)
	}
	root, top := doc.Root(), Place{File: b.Source, Line: 1}
	if strings.HasPrefix(root.Get("version").Text(), "v2") {
		return squad2(top)
	}
	if root.Get("data").Kind() != document.Array {
		return top.problem("$.data", "expected an array, found %s", root.Get("data").Kind())
	}
	for i, article := range root.Get("data").Items() {
		for j, paragraph := range article.Get("paragraphs").Items() {
			for k, qa := range paragraph.Get("qas").Items() {
				at := Place{File: b.Source, Line: qa.Line(), Path: fmt.Sprintf("$.data[%d].paragraphs[%d].qas[%d]", i, j, k)}
				if qa.Get("is_impossible").Kind() != 0 {
					return squad2(at)
				}
				r := &record{place: at, value: qa, file: file}
				if err := object(ctx, b, r, func(r *record) (Row, error) { return squadRow(r, article, paragraph), nil }); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// squad2 returns the problem of a source in the newer version.
func squad2(at Place) compiler.Problems {
	return at.hinted("the v1.1 files can be imported", "SQuAD 2.0, whose questions may have no answer, is not supported")
}

func squadRow(r *record, article, paragraph document.Value) Row {
	id, question, answers := r.text("id"), r.text("question"), squadAnswers(r)
	passage := paragraph.Get("context")
	if strings.TrimSpace(passage.Text()) == "" {
		r.wrong("", "the paragraph has no context")
	}
	return Row{
		ID:       id,
		Input:    map[string]any{"question": question, "context": passage.Text()},
		Eval:     map[string]any{"accepted_answers": answers},
		Metadata: map[string]any{"title": article.Get("title").Text()},
	}
}

// squadAnswers returns the answers, each once, in order.
func squadAnswers(r *record) []string {
	var answers []string
	for i, a := range r.value.Get("answers").Items() {
		text := a.Get("text").Text()
		switch {
		case strings.TrimSpace(text) == "":
			r.wrong(fmt.Sprintf("$.answers[%d].text", i), "missing or blank")
		case !slices.Contains(answers, text):
			answers = append(answers, text)
		}
	}
	if len(answers) == 0 && len(r.problems) == 0 {
		r.wrong("$.answers", "no answer")
	}
	return answers
}
