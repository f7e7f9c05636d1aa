package verifiers

import (
	"context"
	"math/big"
	"slices"
	"strings"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/compiler"
)

func shortAnswer() Family {
	return Family{
		Family: compiler.ShortAnswer(), Verify: by(compiler.ShortAnswerOf, verifyShort),
		Reference: func(t *compiler.Task) candidate.Candidate {
			return candidate.Candidate{Text: first(compiler.ShortAnswerOf(t).Accepted.Reveal())}
		},
	}
}

// verifyShort judges a word, a phrase, a number or a date.
func verifyShort(_ context.Context, _ Engine, in Input, eval compiler.ShortAnswerEval) (Verdict, error) {
	var tolerance *big.Rat
	if eval.HasTolerance {
		tolerance = exactTolerance(eval.Tolerance.Reveal())
	}
	return newShortKey(eval.Question, eval.Accepted.Reveal(), tolerance).judge(in.Candidate.Text), nil
}

// A shortKey holds what a question's answers are compared with.
type shortKey struct {
	question  []string // words of the question
	asked     echo
	accepted  []shortAccepted
	tolerance *big.Rat // nil: a decimal has to be written the same way
}

type shortAccepted struct {
	text   string   // without quotes and punctuation around it
	words  []string // without an article at the start
	number *numeral // nil unless the answer is one number
	date   bool     // the answer is one date
}

func newShortKey(question string, accepted []string, tolerance *big.Rat) shortKey {
	asked := tokenize(question)
	k := shortKey{asked: newEcho(asked), tolerance: tolerance}
	k.question, _ = wordsOf(asked)
	for _, s := range accepted {
		ts := tokenize(s)
		a := shortAccepted{text: bare(fold(s))}
		a.words, _ = wordsOf(ts)
		if len(find(k.question, a.words)) > 0 && !slices.Contains(k.question, "or") {
			k.asked = echo{} // the question offers the answer among others
		}
		if len(a.words) > 1 && (a.words[0] == "the" || a.words[0] == "a" || a.words[0] == "an") {
			a.words = a.words[1:]
		}
		if len(a.words) == 1 {
			for _, t := range ts {
				if t.kind == number {
					a.number = &t.num
				}
				a.date = a.date || t.kind == date
			}
		}
		k.accepted = append(k.accepted, a)
	}
	return k
}

// judge is pure, and linear in the text.
func (k shortKey) judge(text string) Verdict {
	folded := fold(text)
	whole := bare(folded)
	if strings.TrimSpace(folded) == "" {
		return failed(reasonNone, "the answer is empty")
	}
	for _, a := range k.accepted {
		if whole == a.text {
			return matched("equal")
		}
	}
	ts := withoutQuote(tokenize(text), k.question)
	switch _, reason := k.reader().read(ts, k.mentions(ts, folded)); reason {
	case "":
		return matched("said")
	case reasonNone:
		return failed(reason, "the answer says nothing of its own")
	case reasonSeveral:
		return failed(reason, "the answer is not given on its own")
	default:
		return failed(reason, "the answer is none of those accepted")
	}
}

// withoutQuote drops the question's words where the text quotes all of them.
func withoutQuote(ts []token, quote []string) []token {
	words, at := wordsOf(ts)
	var out []token
	next := 0
	for _, i := range find(words, quote) {
		if from := at[i]; from >= next {
			out = append(out, ts[next:from]...)
			next = at[i+len(quote)-1] + 1
			for next < len(ts) && ts[next].kind == symbol && strings.Contains("?.!\"'*_", ts[next].text) {
				next++
			}
			out = append(out, token{kind: symbol, text: "\n", raw: "\n"})
		}
	}
	return append(out, ts[next:]...)
}

func (k shortKey) reader() reader {
	r := reader{question: k.asked, aside: map[string]bool{}, open: true, numeric: true}
	for _, a := range k.accepted {
		r.numeric = r.numeric && (a.number != nil || a.date)
		r.denial = r.denial || denies(a.words)
	}
	for _, a := range k.accepted {
		for _, w := range a.words {
			r.aside[w] = !denies(a.words) && len(k.accepted) > 1
		}
	}
	return r
}

// mentions returns where the text names an accepted answer, in the text's order.
func (k shortKey) mentions(ts []token, folded string) []mention {
	words, at := wordsOf(ts)
	found := make([]mention, len(words)) // the longest answer that begins at each word
	add := func(from, end int) { found[from] = mention{answers: []int{0}, to: max(found[from].to, end)} }
	for _, a := range k.accepted {
		if a.number != nil {
			for i, j := range at {
				if ts[j].kind == number && k.near(ts[j].num, *a.number) {
					add(i, i+1)
				}
			}
		} else if hasSymbolsOf(folded, a.text) {
			for _, i := range find(words, a.words) {
				add(i, i+len(a.words))
			}
		}
	}
	return apart(found, at)
}

// apart returns those mentions that do not overlap an earlier one. found has the mention that
// begins at each word, with its end among the words, or an empty one; at has the token of each word.
func apart(found []mention, at []int) (out []mention) {
	for i := 0; i < len(found); i++ {
		if m := found[i]; m.to > 0 {
			m.from, m.to, i = at[i], at[m.to-1]+1, m.to-1
			out = append(out, m)
		}
	}
	return out
}

// hasSymbolsOf reports whether a text contains the accepted answer literally. Only an answer
// with symbols requires that: "5" is not "$5".
func hasSymbolsOf(folded, accepted string) bool {
	isSymbol := func(r rune) bool { return !isWordRune(r) && !strings.ContainsRune(" .,;:!()\"'-", r) }
	return !strings.ContainsFunc(accepted, isSymbol) || strings.Contains(oneLine(folded), accepted)
}

// near reports whether two numbers are equal within the tolerance, computed exactly.
func (k shortKey) near(n, a numeral) bool {
	if n.text == a.text && n.percent == a.percent {
		return true
	}
	v, w := k.valueOf(n), k.valueOf(a)
	if v == nil || w == nil {
		return false
	}
	if k.tolerance == nil && isDecimal(n.text) && isDecimal(a.text) {
		return false
	}
	diff := v.Sub(v, w)
	if n.comma || k.tolerance == nil {
		return diff.Sign() == 0
	}
	return diff.Abs(diff).Cmp(k.tolerance) <= 0
}

func isDecimal(s string) bool { return strings.Trim(s, "-.0123456789") == "" }

// valueOf returns the value of n in a new Rat. 25% is 1/4 unless the question asks for
// percent.
func (k shortKey) valueOf(n numeral) *big.Rat {
	if n.value == nil {
		return nil
	}
	if n.percent && !k.asked["percent"] {
		return new(big.Rat).Mul(n.value, big.NewRat(1, 100))
	}
	return new(big.Rat).Set(n.value)
}
