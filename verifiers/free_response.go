package verifiers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/securebench/sbench/compiler"
)

// freeResponse applies a structured rubric; with any other it is pending. It
// needs no engine.
func freeResponse(_ context.Context, _ Engine, in Input) (Verdict, error) {
	eval, ok := in.Task.FreeResponse()
	if !ok {
		return Verdict{}, fmt.Errorf("task %q is no free_response", in.Task.ID())
	}
	if !eval.Structured {
		return Verdict{Status: Pending, Reason: "no_structured_rubric", Message: eval.Reason}, nil
	}
	return newFreeKey(eval.Prompt, eval.Rubric.Reveal()).judge(in.Candidate.Text), nil
}

// A freeKey is a rubric, and the prompt that an answer may quote.
type freeKey struct {
	prompt   [][]string // the whole prompt, then its sentences
	asked    map[string]bool
	accepted []phrase
	rejected []phrase
	minF1    float64
	offered  bool // the prompt has words of an accepted answer
	maxItem  int  // words of an item of a list
}

// A phrase is an accepted or a rejected answer.
type phrase struct {
	words []string
	loose []string // see loosen
	text  string   // of a phrase without words, such as "→"
}

func newPhrases(all []string) []phrase {
	var out []phrase
	for _, s := range all {
		p := phrase{words: texts(words(fold(s)))}
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

// minQuote is how many words of a prompt's sentence make a quote.
const minQuote = 4

func newFreeKey(prompt string, r compiler.Rubric) freeKey {
	k := freeKey{asked: map[string]bool{}, accepted: newPhrases(r.AcceptedAnswers), rejected: newPhrases(r.RejectedAnswers), minF1: r.MinTokenF1}
	folded := fold(prompt)
	whole := texts(words(folded))
	for _, w := range whole {
		k.asked[w] = true
	}
	k.maxItem = minItem
	for _, p := range k.accepted {
		k.offered = k.offered || slices.ContainsFunc(p.words, func(w string) bool { return k.asked[w] })
		k.maxItem = max(k.maxItem, len(p.words))
	}
	k.addQuote(whole)
	for sentence := range strings.FieldsFuncSeq(folded, func(r rune) bool { return strings.ContainsRune(".!?\n", r) }) {
		if ws := texts(words(sentence)); len(ws) >= minQuote {
			k.addQuote(ws)
		}
	}
	return k
}

// addQuote adds what does not count when it is quoted, unless the task is to
// write just that.
func (k *freeKey) addQuote(quote []string) {
	wanted := func(p phrase) bool { return len(find(p.words, quote)) > 0 }
	if !slices.ContainsFunc(k.accepted, wanted) {
		k.prompt = append(k.prompt, quote)
	}
}

// judge is pure, and linear in the text.
func (k freeKey) judge(text string) Verdict {
	folded := fold(text)
	r := k.newResponse(folded)
	if r.length == 0 && strings.TrimSpace(folded) == "" {
		return failed(reasonNone, "the answer is empty")
	}
	score, rule := 0.0, ""
	list := k.isList(r)
	for _, p := range k.accepted {
		if !list && r.affirms(p) {
			score, rule = 1, "contained"
		} else if f1 := r.f1(p, false); f1 > score {
			score, rule = f1, "token_f1"
		}
	}
	for _, p := range k.rejected {
		if r.rejects(p, k.accepted) || score > 0 && r.f1(p, true) >= score {
			return failed(reasonRejected, "the answer holds or resembles a rejected one")
		}
	}
	switch {
	case r.length == 0 && score == 0:
		return failed(reasonNone, "the answer says nothing of its own")
	case score > 0 && score >= k.minF1:
		return matched(rule)
	case list:
		return failed(reasonSeveral, "the answer lists alternatives")
	}
	return failed(reasonWrong, "the answer neither holds nor resembles an accepted one")
}

// A response is an answer prepared to be searched many times.
type response struct {
	folded string
	words  []word // quotes of the prompt are words without a text
	strict []string
	loose  []string
	length int // words, without quotes
	count  map[string]int
	counts map[string]int // of the loose ones
	reach  []int          // where the longest accepted phrase ends that has begun by then
}

func (k freeKey) newResponse(folded string) *response {
	ws := words(folded)
	all := texts(ws)
	for _, quote := range k.prompt {
		end := 0
		for _, at := range find(all, quote) {
			for i := max(at, end); i < at+len(quote); i++ {
				ws[i].text = ""
			}
			end = at + len(quote)
		}
	}
	r := &response{folded: folded, words: ws, strict: texts(ws), count: map[string]int{}, counts: map[string]int{}, reach: make([]int, len(ws))}
	for _, w := range r.strict {
		l := loosen(w)
		r.loose = append(r.loose, l)
		if w != "" {
			r.length++
			r.count[w]++
			r.counts[l]++
		}
	}
	for _, p := range k.accepted {
		for _, at := range find(r.strict, p.words) {
			r.reach[at] = max(r.reach[at], at+len(p.words))
		}
	}
	for i := 1; i < len(r.reach); i++ {
		r.reach[i] = max(r.reach[i], r.reach[i-1])
	}
	return r
}

// affirms reports whether p is contained, and not denied where it stands last.
func (r *response) affirms(p phrase) bool {
	if p.text != "" {
		return strings.Contains(oneLine(r.folded), p.text)
	}
	at := find(r.strict, p.words)
	return len(at) > 0 && !r.denied(at[len(at)-1], at[len(at)-1]+len(p.words))
}

// reachOfNegation is how many words behind it a negation denies.
const reachOfNegation = 3

// denied reports whether the words from begin to end are denied: "not x",
// "x is wrong".
func (r *response) denied(begin, end int) bool {
	for i := max(0, begin-reachOfNegation); i < begin; i++ {
		if r.words[i].clause == r.words[begin].clause && r.negates(i) {
			return true
		}
	}
	rest := r.words[end:]
	for i, w := range rest[:min(len(rest), 3)] {
		if w.clause != r.words[end-1].clause {
			return false
		}
		switch w.text {
		case "is", "was", "are", "were", "not", "isn't", "wasn't", "aren't", "weren't":
		case "wrong", "incorrect", "false", "untrue":
			return i > 0 && !isNegation(rest[i-1].text)
		case "the", "it", "correct", "right", "true":
			return i > 0 && isNegation(rest[i-1].text)
		default:
			return false
		}
	}
	return false
}

// negates reports whether the word at i is a negation: "not", but not in "not
// only".
func (r *response) negates(i int) bool {
	if !isNegation(r.strict[i]) || r.strict[i] == "without" {
		return false
	}
	if i+1 == len(r.strict) {
		return true
	}
	switch r.strict[i+1] {
	case "only", "just", "merely", "simply", "doubt":
		return false
	}
	return true
}

// f1 is the harmonic mean of precision and recall of words, whatever their
// order. It is 0 if one of both denies what the other says, unless loose.
func (r *response) f1(p phrase, loose bool) float64 {
	want, count := p.words, r.count
	if loose {
		want, count = p.loose, r.counts
	} else if r.opposes(p.words) {
		return 0
	}
	if len(want)+r.length == 0 {
		return 0
	}
	used, common := map[string]int{}, 0
	for _, w := range want {
		if used[w] < count[w] {
			used[w]++
			common++
		}
	}
	return 2 * float64(common) / float64(len(want)+r.length)
}

// opposes reports whether the response denies a word of the phrase, or leaves
// out the phrase's own negation.
func (r *response) opposes(want []string) bool {
	if denies(want) {
		return !denies(r.strict)
	}
	wanted := map[string]bool{}
	for _, w := range want {
		wanted[w] = !isGlue(w)
	}
	for i := range r.words {
		if !r.negates(i) {
			continue
		}
		for j := i + 1; j <= i+reachOfNegation && j < len(r.words) && r.words[j].clause == r.words[i].clause; j++ {
			if wanted[r.strict[j]] {
				return true
			}
		}
	}
	return false
}

// rejects reports whether p is contained other than as a part of an accepted
// answer: "guilty" in "not guilty" is none.
func (r *response) rejects(p phrase, accepted []phrase) bool {
	if p.text != "" {
		return strings.Contains(oneLine(r.folded), p.text)
	}
	both := slices.ContainsFunc(accepted, func(a phrase) bool { return slices.Equal(a.words, p.words) })
	return slices.ContainsFunc(find(r.loose, p.loose), func(at int) bool {
		return both || r.reach[at] < at+len(p.loose)
	})
}

// isList reports whether a response is nothing but short alternatives, of which
// some are not accepted, or a pile of words.
func (k freeKey) isList(r *response) bool {
	if isPile(r) {
		return true
	}
	items, foreign := 0, 0
	for begin := 0; begin < len(r.words); {
		end := begin
		for end < len(r.words) && r.words[end].clause == r.words[begin].clause && r.strict[end] != "or" {
			end++
		}
		switch k.classify(r.strict[begin:end]) {
		case proseItem:
			return false
		case foreignItem:
			foreign++
			fallthrough
		case acceptedItem:
			items++
		}
		begin = end
		if end < len(r.words) && r.strict[end] == "or" {
			begin++
		}
	}
	return items > 1 && foreign > 0
}

type itemKind int

const (
	idleItem itemKind = iota // says nothing
	acceptedItem
	foreignItem
	proseItem
)

// classify tells what an item between two separators is.
func (k freeKey) classify(item []string) itemKind {
	said := false
	for _, w := range item {
		switch {
		case w == "a", w == "an", w == "the", w == "and", w == "of", w == "in", w == "":
		case isGlue(w):
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
	minItem = 3 // words that an item of a list may have at least
	minPile = 8 // words without any small one among them
)

// isPile reports whether words are heaped up without grammar: prose of eight
// words has a short one, in any language with spaces.
func isPile(r *response) bool {
	return r.length >= minPile && !slices.ContainsFunc(r.strict, func(w string) bool {
		return w != "" && (isGlue(w) || utf8.RuneCountInString(w) <= 3)
	})
}

// loosen returns a form of a word in which a rejected answer is found although
// marks or letters of other alphabets disguise it.
func loosen(w string) string {
	ascii := !strings.ContainsFunc(w, func(r rune) bool { return r > unicode.MaxASCII })
	if ascii {
		return w
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsMark(r) {
			return -1
		}
		// All of them take two bytes.
		const disguised, latin = "авекмнорстухіјѕԁһαβεηικνορτυχ", "abekmhopctyxijsdhabenikvoptux"
		if i := strings.IndexRune(disguised, r); i >= 0 {
			return rune(latin[i/2])
		}
		return r
	}, norm.NFD.String(w))
}
