package contrast

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Reason is the failure reason that this package gives a candidate.
const Reason = "answer_follows_test"

// Summary is what a record says about a candidate's answers to blind tests.
type Summary struct {
	// State is "calibrated", "uncalibrated" (no reference: a pass is not refused),
	// "none" (nothing could be asked), or "off".
	State string `json:"state"`
	// Asked counts the questions, Wrong those that the candidate did not answer as it had to.
	Asked int `json:"asked"`
	Wrong int `json:"wrong"`
	// Unasked counts the hidden assertions that tell a candidate what they expect.
	Unasked int `json:"unasked,omitempty"`
	// Places are the lines of these assertions, and files of tests that sbench cannot read and so did not change.
	Places []string `json:"-"`
}

// An Effort says whether a candidate's pass is checked by more runs. The zero Effort means Full.
type Effort string

// The efforts.
const (
	Full Effort = "full"
	Off  Effort = "off" // no run of blind tests, and no canary
)

// Values of [Summary.State].
const (
	Calibrated   = "calibrated"
	Uncalibrated = "uncalibrated"
	None         = "none"
)

// Answers are the answers that a run of blind tests has noted, in order, by the number of their question.
type Answers map[int][]string

// maxAnswers bounds the answers of a run: a candidate can write many short ones.
const maxAnswers = 1 << 20

// ParseAnswers reads what ask noted, a line each, and orders it by the test that asks. It passes over other lines, which
// a candidate may have written.
func ParseAnswers(text string) Answers {
	type line struct {
		question     int
		test, answer string
	}
	var lines []line
	for l := range strings.Lines(text) {
		asked, answer, found := strings.Cut(strings.TrimSuffix(l, "\n"), " ")
		number, test, _ := strings.Cut(asked, "/")
		if n, err := strconv.Atoi(number); found && err == nil && len(lines) < maxAnswers {
			lines = append(lines, line{n, test, answer})
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return strings.Compare(a.test, b.test) })
	answers := Answers{}
	for _, l := range lines {
		answers[l.question] = append(answers[l.question], l.answer)
	}
	return answers
}

// A Calibration says how a task's blind tests are used to judge candidates.
type Calibration struct {
	Listing
	// Reference says that there was a reference solution.
	Reference bool `json:"reference"`
	// Want are the answers of the reference solution that a candidate has to give, too.
	Want map[int]Want `json:"want,omitempty"`
	// Unasked are hidden assertions that tell a candidate what they expect: those that stay, and questions to which the
	// reference solution's answers do not count.
	Unasked []Place `json:"unasked,omitempty"`
	// Reached are questions that every candidate is asked, if there is no reference.
	Reached []int `json:"reached,omitempty"`
	// Seen says that authors of candidates can read all that the tests expect.
	Seen bool `json:"seen,omitempty"`
	// CannotFail says that the reference passes the tests with the canary.
	CannotFail bool `json:"cannot_fail,omitempty"`
	// Sealed says that the reference passes in a process of its own, so that no blind tests are needed.
	Sealed bool `json:"sealed,omitempty"`
	// Repair says that the reference passes only if tests get its versions of what the prompt has.
	Repair bool `json:"repair,omitempty"`
}

// Want are the answers to a question. If they are Sorted, their order does not count.
type Want struct {
	Answers []string `json:"answers"`
	Sorted  bool     `json:"sorted,omitempty"`
}

// Learn sets Want and Unasked by the answers that the reference solution gave in two runs. If all that count are weak, Want is nil.
func (c *Calibration) Learn(one, other Answers) {
	c.Want, c.Unasked = map[int]Want{}, slices.Clone(c.Stays)
	weak := true
	for _, q := range c.Questions {
		w, counts := q.want(one[q.ID], other[q.ID])
		if counts {
			c.Want[q.ID] = w
			weak = weak && q.Weak
		}
		met := len(one[q.ID])+len(other[q.ID]) > 0
		tells := met && (!counts || slices.Contains(one[-q.ID], "no")) // no: a class of the candidate says what is equal
		known := func(p Place) bool { return p.Path == q.Path && p.Line == q.Line }
		if tells && !slices.ContainsFunc(c.Unasked, known) {
			c.Unasked = append(c.Unasked, q.Place)
		}
	}
	if weak {
		c.Want = nil
	}
}

// want returns what has to be answered, by the answers of the reference solution in two runs. They count if both runs
// answered alike, and as the tests expect where that is known.
func (q Question) want(one, other []string) (w Want, counts bool) {
	w.Answers = distinct(one)
	if again := distinct(other); q.Loose || !slices.Equal(w.Answers, again) {
		w.Answers, again, w.Sorted = slices.Sorted(slices.Values(w.Answers)), slices.Sorted(slices.Values(again)), true
		if !slices.Equal(w.Answers, again) {
			return w, false
		}
	}
	known := func(answer string) bool {
		return !strings.HasPrefix(answer, "!") && (q.Expected == nil && len(q.Raises) == 0 || q.expects(answer))
	}
	return w, len(w.Answers) > 0 && !slices.ContainsFunc(w.Answers, func(a string) bool { return !known(a) })
}

// distinct returns the answers or, if all are the same, one: a loop over a candidate's answer may run any number of times.
func distinct(answers []string) []string {
	if len(answers) > 0 && !slices.ContainsFunc(answers, func(a string) bool { return a != answers[0] }) {
		return answers[:1]
	}
	return answers
}

// expects reports whether an answer is one that can be right.
func (q Question) expects(answer string) bool {
	if kinds, raised := strings.CutPrefix(answer, "raised "); raised || len(q.Raises) > 0 {
		return slices.ContainsFunc(strings.Fields(kinds), func(kind string) bool { return raised && slices.Contains(q.Raises, kind) })
	}
	return slices.ContainsFunc(q.Expected, func(e string) bool { return q.equal(e, answer, 1.001) })
}

// Asked returns the questions that count. With a reference, these are the questions in Want. Without one, they are the
// questions that the candidate answered, if the tests say which answers are right.
func (c Calibration) Asked(answers Answers) []Question {
	return slices.DeleteFunc(slices.Clone(c.Questions), func(q Question) bool {
		if c.Reference {
			_, wanted := c.Want[q.ID]
			return !wanted
		}
		return q.Weak || q.Expected == nil && len(q.Raises) == 0 || len(answers[q.ID]) == 0
	})
}

// Wrong returns the questions of [Calibration.Asked] that the candidate did not answer as the reference solution did or,
// without one, as the tests expect. Exceptions always have to be as the tests expect.
func (c Calibration) Wrong(answers Answers) []Question {
	return slices.DeleteFunc(c.Asked(answers), func(q Question) bool {
		given, want := distinct(answers[q.ID]), c.Want[q.ID]
		unexpected := slices.ContainsFunc(given, func(a string) bool { return !q.expects(a) })
		if !c.Reference || len(q.Raises) > 0 && len(given) > 0 {
			return !unexpected
		}
		if want.Sorted {
			given = slices.Sorted(slices.Values(given))
		}
		alike := func(one, other string) bool { return q.equal(one, other, 2) } // each is as far from the right one as may be
		return slices.EqualFunc(want.Answers, given, alike) && (q.Expected == nil || !unexpected) || q.Optional && len(given) == 0
	})
}

// Judge returns what a record says about a candidate's answers, and the questions of [Calibration.Wrong].
func (c Calibration) Judge(answers Answers) (sum Summary, wrong []Question) {
	wrong = c.Wrong(answers)
	sum = Summary{State: Calibrated, Asked: len(c.Asked(answers)), Wrong: len(wrong), Unasked: len(c.Unasked), Places: slices.Clone(c.Unread)}
	if !c.Reference {
		sum.State = Uncalibrated
	}
	for _, p := range c.Unasked {
		sum.Places = append(sum.Places, fmt.Sprintf("%s:%d", p.Path, p.Line))
	}
	return sum, wrong
}

// Hidden reports whether blind tests hide all that the tests expect of a candidate.
func (c Calibration) Hidden() bool {
	return len(c.Want) > 0 && !c.Seen && len(c.Unasked)+len(c.Unread) == 0
}

// numbers matches a number as ask notes those that need not be equal.
var numbers = regexp.MustCompile(`-?\b\d+\.?\d*(?:e[-+]?\d+)?`)

// equal reports whether two answers count as the same. Numbers may be as far apart as the tests allow, multiplied by times.
func (q Question) equal(one, other string, times float64) bool {
	if one == other || q.Near == [2]float64{} {
		return one == other
	}
	a := numbers.FindAllString(one, -1)
	b := numbers.FindAllString(other, len(a)+1) // it may be a candidate's, with any number of them
	near := func(x, y string) bool {
		v, _ := strconv.ParseFloat(x, 64)
		w, _ := strconv.ParseFloat(y, 64)
		return !math.IsInf(w, 0) && math.Abs(v-w) <= times*max(q.Near[0], q.Near[1]*max(math.Abs(v), math.Abs(w)))
	}
	return slices.EqualFunc(a, b, near) && numbers.ReplaceAllString(one, "") == numbers.ReplaceAllString(other, "")
}
