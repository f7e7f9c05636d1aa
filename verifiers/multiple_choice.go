package verifiers

import (
	"context"
	"slices"
	"strings"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/compiler"
)

func multipleChoice() Family {
	return Family{
		Family: compiler.MultipleChoice(), Verify: by(compiler.MultipleChoiceOf, verifyChoice),
		Reference: func(t *compiler.Task) (c candidate.Candidate) {
			if answers := compiler.MultipleChoiceOf(t).Answers.Reveal(); len(answers) > 0 {
				c.Text = answers[0].Text
				if answers[0].Choice >= 0 {
					c.Text = string(rune('A' + answers[0].Choice))
				}
			}
			return c
		},
	}
}

// verifyChoice judges an answer that names a choice.
func verifyChoice(_ context.Context, _ Engine, in Input, eval compiler.MultipleChoiceEval) (Verdict, error) {
	return judgeChoice(eval.Question, in.Candidate.Text, eval.Choices, eval.Answers.Reveal()), nil
}

// judgeChoice passes text if it names exactly one choice, the right one. It is pure, and
// linear in the text.
func judgeChoice(question, text string, choices []string, answers []compiler.Answer) Verdict {
	accepted := map[int]bool{}
	known := slices.Clone(choices)
	for _, a := range answers {
		if a.Choice < 0 { // a text that is not one of the choices and has no label
			a.Choice = len(known)
			known = append(known, a.Text)
		}
		accepted[a.Choice] = true
	}
	named, reason := newBallot(question, known, len(choices)).read(text)
	right := func(i int) bool { return accepted[i] }
	switch {
	case reason == reasonNone:
		return failed(reason, "the answer names none of the choices")
	case reason == reasonSeveral:
		return failed(reason, "the answer names several choices")
	case !slices.ContainsFunc(named, right):
		return failed(reasonWrong, "the answer names a choice that is not right")
	case slices.ContainsFunc(named, func(i int) bool { return !right(i) }):
		return failed(reasonSeveral, "the answer fits several choices")
	}
	return matched("choice")
}

// A ballot holds the names of choices.
type ballot struct {
	question []string // its words, which an answer may quote
	asked    echo
	labels   int // how many choices have a label, from "a" up
	choices  []choice
}

type choice struct {
	text, exact string   // folded, and with the case kept
	words, raw  []string // of text and of exact
}

func newBallot(question string, choices []string, labels int) ballot {
	asked := tokenize(question)
	b := ballot{asked: newEcho(asked), labels: labels}
	b.question, _ = wordsOf(asked)
	for _, s := range choices {
		ts := tokenize(s)
		c := choice{text: bare(fold(s)), exact: bare(plain(s)), raw: rawWords(ts)}
		c.words, _ = wordsOf(ts)
		b.choices = append(b.choices, c)
	}
	return b
}

func rawWords(ts []token) []string {
	var out []string
	for _, t := range ts {
		if t.kind != symbol {
			out = append(out, t.raw)
		}
	}
	return out
}

// read returns the choices that an answer names: several only if one text fits all of them.
// If there are none, it returns the reason.
func (b ballot) read(text string) ([]int, string) {
	folded := fold(text)
	whole := bare(folded)
	if whole == "" {
		return nil, reasonNone
	}
	if i := b.label(whole); i >= 0 {
		return []int{i}, ""
	}
	fits := b.those(func(c choice) bool { return c.text == whole || oneLine(c.text) == whole })
	if exact := bare(plain(text)); len(fits) > 1 {
		if same := b.those(func(c choice) bool { return c.exact == exact }); len(same) > 0 {
			fits = same
		}
	}
	if len(fits) > 0 {
		return fits, ""
	}
	ts := withoutQuote(tokenize(text), b.question)
	return reader{question: b.asked}.read(ts, b.mentions(ts))
}

func (b ballot) those(fit func(choice) bool) []int {
	var out []int
	for i, c := range b.choices {
		if fit(c) {
			out = append(out, i)
		}
	}
	return out
}

// label returns the choice labelled s, or -1.
func (b ballot) label(s string) int {
	if len(s) != 1 {
		return -1
	}
	if i := int(s[0]) - 'a'; i >= 0 && i < b.labels {
		return i
	}
	return -1
}

// mentions returns where the text names a choice by its text or label.
func (b ballot) mentions(ts []token) []mention {
	words, at := wordsOf(ts)
	found := make([]mention, len(words)) // the longest text that begins at each word
	for i, c := range b.choices {
		for _, from := range find(words, c.words) {
			m, end := &found[from], from+len(c.words)
			if end > m.to {
				*m = mention{to: end}
			}
			if end == m.to {
				m.answers = append(m.answers, i)
			}
		}
	}
	for i, w := range words {
		c := b.label(w)
		if c < 0 || found[i].to > i+1 || !isLabel(ts, at[i]) {
			continue
		}
		found[i] = mention{answers: []int{c}, to: i + 1, label: true}
		own := b.choices[c].words
		if end := i + 1 + len(own); len(own) > 0 && end <= len(words) && slices.Equal(words[i+1:end], own) && !hasBreak(ts[at[i]:at[i+1]]) {
			found[i].to, found[i].listed = end, true
		}
	}
	out := apart(found, at)
	for i, m := range out {
		raw := rawWords(ts[m.from:m.to])
		same := func(c int) bool { return slices.Equal(b.choices[c].raw, raw) }
		if len(m.answers) > 1 && slices.ContainsFunc(m.answers, same) {
			out[i].answers = slices.DeleteFunc(m.answers, func(c int) bool { return !same(c) })
		}
	}
	return out
}

func hasBreak(ts []token) bool {
	return slices.ContainsFunc(ts, func(t token) bool { return t.text == "\n" })
}

// isLabel reports whether the letter at i can be a label. "a" and "i" are also words.
func isLabel(ts []token, i int) bool {
	if i+1 < len(ts) && ts[i+1].glued && ts[i+1].kind == symbol && strings.Contains("'/^+", ts[i+1].text) && i+2 < len(ts) && ts[i+2].glued {
		return ts[i+1].text == "/"
	}
	if ts[i].text != "a" && ts[i].text != "i" || i+1 == len(ts) || ts[i+1].kind == symbol || len(ts[i+1].text) == 1 {
		return true
	}
	switch ts[i+1].text {
	case "or", "and", "is", "was", "isn't", "wasn't", "can't", "because", "but":
		return true
	}
	return ts[i].raw == "A" && i > 0 && !strings.Contains("\n.!?", ts[i-1].text)
}
