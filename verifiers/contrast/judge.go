package contrast

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Reason is the failure reason that this package gives a candidate.
const Reason = "answer_follows_test"

// Outcome says how changed tests ended. The zero Outcome is invalid.
type Outcome int

// The outcomes.
const (
	// Passed means that all assertions hold.
	Passed Outcome = iota + 1
	// FailedThere means that the changed assertion is the first that does not hold.
	FailedThere
	// FailedElsewhere means that an unchanged assertion does not hold, or that the tests
	// ended differently.
	FailedElsewhere
)

// Summary is what a record says about a candidate's changed tests.
type Summary struct {
	// State is "calibrated", "uncalibrated" (no reference: a pass is not refused),
	// or "none": nothing could be changed.
	State string `json:"state"`
	// Mutants counts the changes that were tried, Followed those with which the tests passed
	// or failed elsewhere.
	Mutants  int `json:"mutants"`
	Followed int `json:"followed"`
	// Retried counts changed arguments that the candidate followed, but not when the same
	// assertion was changed differently.
	Retried int `json:"retried,omitempty"`
	// Unobserved are assertions, as "tests.py:7", for which the reference solution passes
	// every change that was tried.
	Unobserved []string `json:"unobserved,omitempty"`
	// Unread are assertions and files that sbench cannot read and so did not change.
	Unread []string `json:"unread,omitempty"`
}

// Weaknesses tells the pack's author which assertions are unobserved and which were not
// read; "" if there are none.
func (s Summary) Weaknesses() string {
	var parts []string
	if len(s.Unobserved) > 0 {
		parts = append(parts, "nothing observes what is expected at "+strings.Join(s.Unobserved, ", "))
	}
	if len(s.Unread) > 0 {
		parts = append(parts, "the assertions at "+strings.Join(s.Unread, ", ")+" cannot be read, and are not changed")
	}
	return strings.Join(parts, "; ")
}

// Values of [Summary.State].
const (
	Calibrated   = "calibrated"
	Uncalibrated = "uncalibrated"
	None         = "none"
)

// Try runs the tests with the edits applied, or unchanged if there are none.
type Try func(ctx context.Context, edits ...Edit) (Outcome, error)

// A Calibration says which edits of a task's tests can be used to judge candidates.
type Calibration struct {
	// Reference says that there was a reference solution.
	Reference bool `json:"reference"`
	// Edits can be used: the reference fails each at the changed assertion.
	Edits []Edit `json:"edits"`
	// Unobserved are edits that the reference passes.
	Unobserved []Edit `json:"unobserved,omitempty"`
	// Sets are for suites of tests, which have no Edits: those of two runs and, as drawn, a third
	// with an edit of every function, where Others fail without a solution. A set without edits is
	// not used.
	Sets []Set `json:"sets,omitempty"`
	// Canary and Broken are those of the [Listing].
	Canary []Edit   `json:"canary,omitempty"`
	Broken []string `json:"broken,omitempty"`
	// CannotFail says that the reference passes the tests with the canary.
	CannotFail bool `json:"cannot_fail,omitempty"`
	// Unread is that of the [Listing].
	Unread []string `json:"unread,omitempty"`
	// Sealed says that the reference passes in a process of its own, so that no edits are needed.
	Sealed bool `json:"sealed,omitempty"`
	// Repair says that the reference passes only if tests get its versions of what the prompt has.
	Repair bool `json:"repair,omitempty"`
}

// A Set holds edits of different test functions that are made together. The reference then
// fails these functions and passes the Others, which run before them.
type Set struct {
	Edits  []Edit `json:"edits"`
	Others []Edit `json:"others,omitempty"`
	// Named says that the command's output names the functions that fail. Otherwise Failures
	// is how many it counts; 0 if that is unknown, too.
	Named    bool `json:"named,omitempty"`
	Failures int  `json:"failures,omitempty"`
}

// Without returns the calibration of a task that has no reference.
func Without(found Listing) Calibration {
	return Calibration{Edits: slices.DeleteFunc(slices.Clone(found.Edits), func(e Edit) bool { return e.Kind != Value }), Unread: found.Unread}
}

// Calibrate tries the edits on the reference solution, one at a time. The error is
// [ErrReference] if it does not pass the unchanged tests.
func Calibrate(ctx context.Context, found Listing, try Try) (Calibration, error) {
	c := Calibration{Reference: true, Unread: found.Unread}
	switch outcome, err := try(ctx); {
	case err != nil:
		return c, err
	case outcome != Passed:
		return c, ErrReference
	}
	for _, e := range found.Edits {
		switch outcome, err := try(ctx, e); {
		case err != nil:
			return c, fmt.Errorf("calibrate line %d of %q: %w", e.Line, e.Path, err)
		case outcome == FailedThere:
			c.Edits = append(c.Edits, e)
		case outcome == Passed:
			c.Unobserved = append(c.Unobserved, e)
		}
	}
	return c, nil
}

// State returns the [Summary.State] for this calibration.
func (c Calibration) State() string {
	switch {
	case len(c.shuffled()) == 0:
		return None
	case c.Reference:
		return Calibrated
	}
	return Uncalibrated
}

// Weak returns the assertions, as "tests.py:7", that the reference passes whatever edit was
// tried, other than edits of the kinds [Negation] and [Bound].
func (c Calibration) Weak() (weak []string) {
	observed := slices.DeleteFunc(slices.Clone(c.Edits), Edit.Loose)
	for _, e := range c.Unobserved {
		at := fmt.Sprintf("%s:%d", e.Path, e.Line)
		if !slices.ContainsFunc(observed, e.samePlace) && !slices.Contains(weak, at) {
			weak = append(weak, at)
		}
	}
	return weak
}

// Loose reports whether the edit's kind shows nothing about how much its assertion observes.
func (e Edit) Loose() bool { return e.Kind == Negation || e.Kind == Bound }

func (e Edit) samePlace(o Edit) bool { return e.Path == o.Path && e.Place == o.Place }

// Pick returns at most n random edits, at different places as long as there are any, and of
// the best kind at each.
func (c Calibration) Pick(n int) []Edit {
	left := c.shuffled()
	var picked []Edit
	for round := 0; len(picked) < n && len(left) > 0; round++ {
		places := map[string]bool{}
		left = slices.DeleteFunc(left, func(e Edit) bool {
			at := fmt.Sprint(e.Path, " ", e.Place)
			if len(picked) == n || places[at] {
				return false
			}
			places[at] = true
			picked = append(picked, e)
			return true
		})
	}
	return picked
}

// another returns a different edit of the same kind and place, of the same literal if there
// is one.
func (c Calibration) another(e Edit) (another Edit, ok bool) {
	for _, o := range c.shuffled() {
		if o.Kind != e.Kind || !o.samePlace(e) || o == e || ok && o.Start != e.Start {
			continue
		}
		another, ok = o, true
		if o.Start == e.Start {
			break
		}
	}
	return another, ok
}

// shuffled returns the edits that judge candidates in random order, better kinds first.
func (c Calibration) shuffled() []Edit {
	edits := slices.DeleteFunc(slices.Clone(c.Edits), func(e Edit) bool { return e.Kind == Slack })
	rand.Shuffle(len(edits), func(i, j int) { edits[i], edits[j] = edits[j], edits[i] })
	slices.SortStableFunc(edits, func(a, b Edit) int { return a.Kind.rank() - b.Kind.rank() })
	return edits
}

// Judge tries a candidate with n edits and with the unchanged tests, in random order. real
// is how the unchanged tests ended; if they fail, Judge stops. After the first change that
// refuses the candidate, no others are tried. follows says whether the
// candidate follows the tests: at some place it did not fail as it should have. Edits that
// change only arguments are judged more leniently, since an honest candidate may do anything
// with them: each gets a second try, and the candidate must have followed all of them and
// more than one. Without a reference it may fail anywhere. The error is that of try.
func (c Calibration) Judge(ctx context.Context, n int, try Try) (real Outcome, follows bool, s Summary, err error) {
	picked := c.Pick(n)
	s = Summary{State: c.State(), Unobserved: c.Weak(), Unread: c.Unread}
	turns := rand.Perm(len(picked) + 1)
	arguments, followedArguments := 0, 0
	for _, turn := range turns {
		if turn == len(picked) {
			if real, err = try(ctx); err != nil || real != Passed {
				return real, false, s, err
			}
			continue
		}
		if follows && c.Reference { // which is enough
			continue
		}
		followed, err := c.follows(ctx, picked[turn], try, &s)
		if err != nil {
			return real, false, s, err
		}
		if picked[turn].Kind != Literal {
			follows = follows || followed
			continue
		}
		arguments++
		if followed {
			followedArguments++
		}
	}
	return real, follows || arguments > 1 && arguments == followedArguments, s, nil
}

// follows tries one edit and reports whether the candidate follows it. A changed argument
// gets a second try with another change. Other kinds do not: that would give the candidate
// one run without risk.
func (c Calibration) follows(ctx context.Context, e Edit, try Try, s *Summary) (bool, error) {
	s.Mutants++
	outcome, err := try(ctx, e)
	if err != nil || outcome == FailedThere || outcome != Passed && (e.Users == "*" || !c.Reference) { // it may fail anywhere
		return false, err
	}
	if other, ok := c.another(e); ok && e.Kind == Literal {
		outcome, err = try(ctx, other)
		if err == nil && outcome == FailedThere {
			s.Retried++
			return false, nil
		}
	}
	s.Followed++
	return err == nil, err
}
