package verifiers

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers/judge"
)

func freeResponse() Family {
	return Family{
		Family: compiler.FreeResponse(), Verify: by(compiler.FreeResponseOf, verifyFree),
		Reference: func(t *compiler.Task) candidate.Candidate {
			eval := compiler.FreeResponseOf(t)
			return candidate.Candidate{Text: cmp.Or(eval.ReferenceAnswer.Reveal(), first(eval.Rubric.Reveal().AcceptedAnswers))}
		},
	}
}

// verifyFree judges by a structured rubric, or lets a model judge by one in prose if task and
// operator allow it; otherwise the verdict is Pending.
func verifyFree(ctx context.Context, _ Engine, in Input, eval compiler.FreeResponseEval) (Verdict, error) {
	if !eval.Structured && in.Task.Judged() && in.Judge != nil {
		return judged(ctx, in, eval)
	}
	if !eval.Structured {
		return Verdict{Status: Pending, Reason: "no_structured_rubric", Message: eval.Reason}, nil
	}
	return newFreeKey(eval.Prompt, eval.Rubric.Reveal()).judge(in.Candidate.Text), nil
}

// judged returns a model's verdict. What the model was asked and answered is the verdict's output.
func judged(ctx context.Context, in Input, eval compiler.FreeResponseEval) (Verdict, error) {
	if strings.TrimSpace(in.Candidate.Text) == "" {
		return failed(reasonNone, "the answer is empty"), nil
	}
	result, err := in.Judge.Grade(ctx, in.Model, judge.Question{
		Prompt: eval.Prompt, Rubric: eval.Prose.Reveal(), Reference: eval.ReferenceAnswer.Reveal(), Wrong: eval.Wrong.Reveal(),
	}, in.Candidate.Text)
	var v Verdict
	switch {
	case errors.Is(err, judge.ErrTooLong):
		return failed(reasonWrong, err.Error()), nil
	case err != nil:
		return Verdict{}, err
	case result.Miscalibrated != "":
		v = faulty("judge_miscalibrated", result.Miscalibrated+": another model, or a clearer rubric, may help")
	case result.Swayed:
		v = failed("judge_swayed", "the judge also passes the same text with a wrong answer in it, so it does not judge the answer")
	case result.Pass:
		v = passed()
		v.Assurance = Sealed
	default:
		v = failed(reasonWrong, "the judge does not pass the answer")
	}
	var transcript bytes.Buffer
	counts := map[string]int{}
	for _, vote := range result.Votes {
		if err := json.NewEncoder(&transcript).Encode(vote); err != nil {
			return Verdict{}, err
		}
		if vote.Pass {
			counts[vote.About+"_passed"]++
		} else {
			counts[vote.About+"_failed"]++
		}
	}
	v.Stdout = runtime.Output{Head: transcript.Bytes(), Total: int64(transcript.Len())}
	return v.with("judge", counts), nil
}

// A freeKey holds a rubric, and the parts of the prompt that a response may quote.
type freeKey struct {
	prompt   [][]string      // words of the whole prompt, then of its sentences
	asked    map[string]bool // the prompt's words
	accepted []phrase
	rejected []phrase
	minF1    float64
	offered  bool // the prompt has words of an accepted answer
	maxItem  int  // most words that an item of a list may have
}

// A phrase is an accepted or a rejected answer.
type phrase struct {
	words []string
	loose []string // see loosen
	text  string   // only for a phrase without words, such as "→"
}

func newPhrases(all []string) []phrase {
	var out []phrase
	for _, s := range all {
		p := phrase{}
		p.words, _ = wordsOf(tokenize(s))
		for _, w := range p.words {
			p.loose = append(p.loose, loosen(w))
		}
		if len(p.words) == 0 {
			p.text = oneLine(fold(s))
		}
		out = append(out, p)
	}
	return out
}

// minQuote is the length in words from which a quoted sentence of the prompt counts.
const minQuote = 4

func newFreeKey(prompt string, r compiler.Rubric) freeKey {
	k := freeKey{asked: map[string]bool{}, accepted: newPhrases(r.AcceptedAnswers), rejected: newPhrases(r.RejectedAnswers), minF1: r.MinTokenF1}
	ts := tokenize(prompt)
	whole, _ := wordsOf(ts)
	for _, w := range whole {
		k.asked[w] = true
	}
	k.maxItem = minItem
	for _, p := range k.accepted {
		k.offered = k.offered || slices.ContainsFunc(p.words, func(w string) bool { return k.asked[w] })
		k.maxItem = max(k.maxItem, len(p.words))
	}
	k.addQuote(whole)
	sentence, words := 0, []string(nil)
	for _, st := range append(statements(ts, nil), statement{sentence: -1}) {
		if st.sentence != sentence {
			if len(words) >= minQuote {
				k.addQuote(words)
			}
			sentence, words = st.sentence, nil
		}
		ws, _ := wordsOf(st.tokens)
		words = append(words, ws...)
	}
	return k
}

// addQuote adds words that do not count when quoted, unless an accepted answer contains them
// all.
func (k *freeKey) addQuote(quote []string) {
	wanted := func(p phrase) bool { return len(find(p.words, quote)) > 0 }
	if !slices.ContainsFunc(k.accepted, wanted) {
		k.prompt = append(k.prompt, quote)
	}
}

// judge is pure, and linear in the text.
func (k freeKey) judge(text string) Verdict {
	folded := fold(text)
	r := k.newResponse(text, folded)
	if len(r.strict) == 0 && strings.TrimSpace(folded) == "" {
		return failed(reasonNone, "the answer is empty")
	}
	score, rule := 0.0, ""
	list := k.isList(r)
	for i, p := range k.accepted {
		if !list && r.affirms(i, p) {
			score, rule = 1, "contained"
		} else if f1 := f1(p.words, r.strict); f1 > score && !r.opposes(p.words) {
			score, rule = f1, "token_f1"
		}
	}
	for _, p := range k.rejected {
		if r.rejects(p, k.accepted) || score > 0 && f1(p.loose, r.loose) >= score {
			return failed(reasonRejected, "the answer holds or resembles a rejected one")
		}
	}
	switch {
	case len(r.strict) == 0 && score == 0:
		return failed(reasonNone, "the answer says nothing of its own")
	case score > 0 && score >= k.minF1:
		return matched(rule)
	case list:
		return failed(reasonSeveral, "the answer lists alternatives")
	}
	return failed(reasonWrong, "the answer neither holds nor resembles an accepted one")
}

// A response is a text prepared for repeated searches, without quotes of the prompt.
type response struct {
	folded     string
	strict     []string    // words
	loose      []string    // the same; see loosen
	statements []statement // their mentions are those of accepted answers
	last       map[int]int // the last statement that mentions each accepted answer
	reach      []int       // by word: the furthest end of an accepted phrase that begins there or earlier
}

func (k freeKey) newResponse(text, folded string) *response {
	ts := tokenize(text)
	for _, quote := range k.prompt {
		ts = withoutQuote(ts, quote)
	}
	ws, at := wordsOf(ts)
	r := &response{folded: folded, strict: ws, last: map[int]int{}, reach: make([]int, len(ws))}
	for _, w := range ws {
		r.loose = append(r.loose, loosen(w))
	}
	found := map[int][]int{} // the phrases that begin at a word
	for i, p := range k.accepted {
		for _, from := range find(ws, p.words) {
			r.reach[from] = max(r.reach[from], from+len(p.words))
			found[from] = append(found[from], i)
		}
	}
	var ms []mention
	for i, end := range r.reach {
		if end > 0 {
			ms = append(ms, mention{answers: found[i], from: at[i], to: at[end-1] + 1})
		}
		if i > 0 {
			r.reach[i] = max(end, r.reach[i-1])
		}
	}
	r.statements = statements(ts, ms)
	for i, s := range r.statements {
		for _, m := range s.mentions {
			for _, a := range m.answers {
				r.last[a] = i
			}
		}
	}
	return r
}

// affirms reports whether the response contains the accepted answer i, and the last
// statement that mentions it asserts it.
func (r *response) affirms(i int, p phrase) bool {
	if p.text != "" {
		return strings.Contains(oneLine(r.folded), p.text)
	}
	last, ok := r.last[i]
	if !ok || r.statements[last].asks || !r.statements[last].asserts() {
		return false
	}
	return !slices.ContainsFunc(r.statements[last+1:], (statement).takesBack)
}

// asserts reports whether the statement neither denies what it mentions nor leaves it open.
func (s statement) asserts() bool {
	if s.toneOf().denies {
		return false
	}
	hedge := slices.IndexFunc(s.tokens, func(t token) bool { return hedge.has(t.text) && !t.named })
	for _, m := range s.mentions {
		from, to := m.from-s.from, m.to-s.from
		if 0 <= hedge && hedge < from || s.wordAt(from-1) == "or" || s.wordAt(to) == "or" {
			return false
		}
		if isNumberAt(s.tokens, from) && to == from+1 && !s.isClear(from) {
			return false
		}
	}
	return true
}

// takesBack reports whether a statement only denies what came before it.
func (s statement) takesBack() bool {
	if s.mentions != nil || !s.toneOf().denies {
		return false
	}
	return !slices.ContainsFunc(s.tokens, func(t token) bool {
		return t.kind != symbol && !glue.has(t.text) && !denial.has(t.text)
	})
}

// f1 returns the harmonic mean of precision and recall of words, in any order.
func f1(want, got []string) float64 {
	if len(want)+len(got) == 0 {
		return 0
	}
	left, common := map[string]int{}, 0
	for _, w := range want {
		left[w]++
	}
	for _, w := range got {
		if left[w] > 0 {
			left[w]--
			common++
		}
	}
	return 2 * float64(common) / float64(len(want)+len(got))
}

// opposes reports whether the response denies a word of the phrase, or lacks the phrase's
// own negation.
func (r *response) opposes(want []string) bool {
	if denies(want) {
		return !denies(r.strict)
	}
	wanted := map[string]bool{}
	for _, w := range want {
		wanted[w] = !glue.has(w)
	}
	return slices.ContainsFunc(r.statements, func(s statement) bool {
		return slices.ContainsFunc(s.tokens, func(t token) bool { return wanted[t.text] }) && s.toneOf().denies
	})
}

// rejects reports whether the response contains p other than within an accepted answer:
// "guilty" in "not guilty" does not count.
func (r *response) rejects(p phrase, accepted []phrase) bool {
	if p.text != "" {
		return strings.Contains(oneLine(r.folded), p.text)
	}
	both := slices.ContainsFunc(accepted, func(a phrase) bool { return slices.Equal(a.words, p.words) })
	return slices.ContainsFunc(find(r.loose, p.loose), func(at int) bool {
		return both || r.reach[at] < at+len(p.loose)
	})
}

// isList reports whether a response is only a list of short alternatives, some of them not
// accepted, or a pile of words.
func (k freeKey) isList(r *response) bool {
	if isPile(r) {
		return true
	}
	count, bracket := map[itemKind]int{}, false
	for _, s := range r.statements {
		if s.opened == "because" || bracket && s.opened == ")" {
			return false
		}
		bracket = s.opened == "("
		if s.mentions == nil && s.toneOf().denies {
			continue
		}
		for _, item := range splitItems(s.tokens) {
			count[k.classify(item)]++
		}
	}
	return count[proseItem] == 0 && count[foreignItem] > 0 && count[foreignItem]+count[acceptedItem] > 1
}

// splitItems returns the words of the alternatives within a statement.
func splitItems(ts []token) (items [][]string) {
	var words []string
	for _, t := range append(slices.Clip(ts), token{text: "or"}) {
		switch {
		case t.text == "or", t.text == "/", t.text == "&":
			if words != nil {
				items = append(items, words)
			}
			words = nil
		case t.kind != symbol:
			words = append(words, t.text)
		}
	}
	return items
}

type itemKind int

const (
	idleItem itemKind = iota // says nothing
	acceptedItem
	foreignItem
	proseItem
)

// classify returns the kind of an item between two separators.
func (k freeKey) classify(item []string) itemKind {
	said := false
	for _, w := range item {
		switch {
		case w == "a", w == "an", w == "the", w == "and", w == "of", w == "in":
		case glue.has(w):
			return proseItem
		case k.asked[w] && !k.offered, strings.HasSuffix(w, "ly"), w == "yes", w == "no", w == "ok", w == "please":
		default:
			said = true
		}
	}
	holds := func(p phrase) bool { return len(find(item, p.words)) > 0 }
	switch {
	case len(item) > k.maxItem:
		return proseItem
	case slices.ContainsFunc(k.accepted, holds):
		return acceptedItem
	case said:
		return foreignItem
	}
	return idleItem
}

const (
	minItem = 3 // words that an item may have in every list
	minPile = 8 // words, none of them short, that make a pile
)

// isPile reports whether a response is a pile of words without grammar: in any language with
// spaces, eight words of prose include a short one.
func isPile(r *response) bool {
	return len(r.strict) >= minPile && !slices.ContainsFunc(r.strict, func(w string) bool {
		return glue.has(w) || utf8.RuneCountInString(w) <= 3
	})
}

// loosen returns w without combining marks, and with Latin letters for similar Cyrillic and
// Greek ones, so that a disguised rejected answer is found.
func loosen(w string) string {
	ascii := !strings.ContainsFunc(w, func(r rune) bool { return r > unicode.MaxASCII })
	if ascii {
		return w
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsMark(r) {
			return -1
		}
		// Each disguised letter takes two bytes.
		const disguised, latin = "авекмнорстухіјѕԁһαβεηικνορτυχ", "abekmhopctyxijsdhabenikvoptux"
		if i := strings.IndexRune(disguised, r); i >= 0 {
			return rune(latin[i/2])
		}
		return r
	}, norm.NFD.String(w))
}
