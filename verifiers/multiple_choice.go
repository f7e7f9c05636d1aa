package verifiers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/securebench/sbench/compiler"
)

// multipleChoice judges an answer that names a choice. It needs no engine.
func multipleChoice(_ context.Context, _ Engine, in Input) (Verdict, error) {
	eval, ok := in.Task.MultipleChoice()
	if !ok {
		return Verdict{}, fmt.Errorf("task %q is no multiple_choice", in.Task.ID())
	}
	return judgeChoice(in.Candidate.Text, eval.Choices, eval.Answers.Reveal()), nil
}

// judgeChoice passes text if it names one choice, and that one is right. It is
// pure, and linear in the text.
func judgeChoice(text string, choices []string, answers []compiler.Answer) Verdict {
	accepted := map[int]bool{}
	known := slices.Clone(choices)
	for _, a := range answers {
		if a.Choice < 0 { // a text that is no choice, and has no label
			a.Choice = len(known)
			known = append(known, a.Text)
		}
		accepted[a.Choice] = true
	}
	named, reason := newBallot(known, len(choices), fold).read(text)
	if len(named) > 1 {
		// Alike but for case or form, perhaps: then the exact text decides.
		if exact, _ := newBallot(known, len(choices), plain).read(text); len(exact) == 1 && slices.Contains(named, exact[0]) {
			named = exact
		}
	}
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

// A ballot knows what choices are called.
type ballot struct {
	labels int              // how many choices have a label, from "a" up
	texts  map[string][]int // the choices of a text in the ballot's form
	form   func(string) string
}

func newBallot(choices []string, labels int, form func(string) string) ballot {
	b := ballot{labels, map[string][]int{}, form}
	for i, choice := range choices {
		whole := oneLine(form(choice))
		b.texts[whole] = append(b.texts[whole], i)
	}
	trimmed := map[string][]int{}
	for i, choice := range choices {
		if s := trimEdges(oneLine(form(choice))); s != "" && b.texts[s] == nil {
			trimmed[s] = append(trimmed[s], i)
		}
	}
	maps.Copy(b.texts, trimmed)
	return b
}

// How firmly a line names a choice.
const (
	listed   = iota // a label and its text, as in a quoted question
	bare            // a label or a text
	explicit        // with a lead-in such as "the answer is"
)

// read returns the choices that an answer names: several only if one text fits
// them all. If there are none, it says why.
func (b ballot) read(text string) (named []int, reason string) {
	all := lines(b.form(text))
	if len(all) == 0 {
		return nil, reasonNone
	}
	last := all[len(all)-1]
	if named, _ := b.name(strings.Join(all, " ")); len(named) > 0 {
		return agreed(named)
	}
	named, firmness := b.name(last)
	if len(named) == 0 {
		if b.mentions(last) > 1 {
			return nil, reasonSeveral
		}
		return nil, reasonNone
	}
	for _, line := range all[:len(all)-1] {
		if other, firm := b.name(line); len(other) > 0 && firm >= firmness && !slices.Equal(other, named) {
			return nil, reasonSeveral
		}
	}
	return agreed(named)
}

// contradiction stands in for a choice when a label and the text beside it are
// of different choices.
const contradiction = -1

func agreed(named []int) ([]int, string) {
	if named[0] == contradiction {
		return nil, reasonSeveral
	}
	return named, ""
}

// name returns the choices that a line is the name of, and nothing else.
func (b ballot) name(line string) (named []int, firmness int) {
	if named := b.texts[line]; named != nil && b.label(line) < 0 {
		return named, bare
	}
	for s, says := range readings(line) {
		named, firmness := b.lookUp(s)
		if len(named) == 0 && strings.Contains(s, "**") {
			named, firmness = b.lookUp(strings.ReplaceAll(s, "**", ""))
		}
		if says {
			firmness = explicit
		}
		if len(named) > 0 {
			return named, firmness
		}
	}
	return nil, listed
}

func (b ballot) lookUp(s string) ([]int, int) {
	if i := b.label(s); i >= 0 {
		return []int{i}, bare
	}
	if named := b.texts[s]; named != nil {
		return named, bare
	}
	label, text := cutLabel(s)
	i := b.label(label)
	if i < 0 {
		return nil, listed
	}
	if text == "" {
		return []int{i}, bare
	}
	switch named := b.texts[text]; {
	case slices.Contains(named, i):
		return []int{i}, listed
	case named != nil:
		return []int{contradiction}, listed
	}
	return nil, listed
}

// label returns the choice of a label, or -1.
func (b ballot) label(s string) int {
	if len(s) > utf8.UTFMax {
		return -1
	}
	if s = fold(s); len(s) != 1 {
		return -1
	}
	if i := int(s[0]) - 'a'; i >= 0 && i < b.labels {
		return i
	}
	return -1
}

// cutLabel takes a label and what ends it off: "a) x", "(a) x", "a: x", "a - x".
func cutLabel(s string) (label, text string) {
	rest := strings.TrimLeft(s, "([")
	bracket := len(s) - len(rest)
	if bracket > 1 || rest == "" {
		return "", ""
	}
	label, rest = rest[:1], rest[1:]
	switch {
	case strings.HasPrefix(rest, ")"), strings.HasPrefix(rest, "]"):
		rest = rest[1:]
	case bracket > 0:
		return "", ""
	case strings.HasPrefix(rest, "."), strings.HasPrefix(rest, ":"):
		rest = rest[1:]
	case strings.HasPrefix(rest, " - "):
		rest = rest[3:]
	default:
		return "", ""
	}
	return label, trimEdges(strings.TrimLeft(rest, ":. "))
}

// mentions counts the choices that a line speaks of, to tell a spray from a
// line without an answer. It decides no verdict.
func (b ballot) mentions(line string) int {
	seen := map[int]bool{}
	all := texts(words(fold(line)))
	for _, w := range all {
		if i := b.label(w); i >= 0 && (w != "a" || len(all) <= b.labels*2) {
			seen[i] = true
		}
	}
	for text, named := range b.texts {
		if len(find(all, texts(words(fold(text))))) > 0 {
			seen[named[0]] = true
		}
	}
	return len(seen)
}
