package contrast

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
)

// Reason is the reason of a candidate's failure that this package finds.
const Reason = "answer_follows_test"

// Outcome is how changed tests ended.
type Outcome int

// The outcomes. The zero Outcome is invalid.
const (
	// Passed: all of them hold.
	Passed Outcome = iota + 1
	// FailedThere: the changed assertion does not hold, and all before it do.
	FailedThere
	// FailedElsewhere: an assertion that was not changed does not hold, or the
	// tests ended otherwise.
	FailedElsewhere
)

// Summary is what a record says of contrast.
type Summary struct {
	// State is "calibrated", "uncalibrated" (no reference: a pass is not refused),
	// or "none": nothing could be changed.
	State string `json:"state"`
	// Mutants were tried, and Followed of them passed or failed in another place.
	Mutants  int `json:"mutants"`
	Followed int `json:"followed"`
	// Retried mutants were Followed, and another change of that place was not.
	Retried int `json:"retried,omitempty"`
	// Unobserved are assertions, "tests.py:7", of which the reference observes no
	// change: what they expect may be anything.
	Unobserved []string `json:"unobserved,omitempty"`
}

// States of a Summary.
const (
	Calibrated   = "calibrated"
	Uncalibrated = "uncalibrated"
	None         = "none"
)

// Try runs the tests with the edits, or as they are without any.
type Try func(ctx context.Context, edits ...Edit) (Outcome, error)

// A Calibration is what is known of a task's edits.
type Calibration struct {
	// Reference says that a reference solution was there.
	Reference bool `json:"reference"`
	// Edits can be used: the reference fails each in its place.
	Edits []Edit `json:"edits"`
	// Unobserved are edits that the reference passes.
	Unobserved []Edit `json:"unobserved,omitempty"`
}

// Without returns the calibration of a task that has no reference.
func Without(edits []Edit) Calibration {
	return Calibration{Edits: slices.DeleteFunc(slices.Clone(edits), func(e Edit) bool { return e.Kind != Value })}
}

// Calibrate tries the edits on the reference solution, one at a time.
func Calibrate(ctx context.Context, edits []Edit, try Try) (Calibration, error) {
	c := Calibration{Reference: true}
	switch outcome, err := try(ctx); {
	case err != nil:
		return c, err
	case outcome != Passed:
		return c, ErrReference
	}
	for _, e := range edits {
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

// State returns the state of summaries.
func (c Calibration) State() string {
	switch {
	case len(c.Edits) == 0:
		return None
	case c.Reference:
		return Calibrated
	}
	return Uncalibrated
}

// Weak returns one edit for each assertion of which the reference observes no
// change that was tried, but for its negation.
func (c Calibration) Weak() []Edit {
	var weak []Edit
	observed := slices.DeleteFunc(slices.Clone(c.Edits), func(e Edit) bool { return e.Kind == Negation })
	for _, e := range c.Unobserved {
		if !slices.ContainsFunc(append(observed, weak...), e.samePlace) {
			weak = append(weak, e)
		}
	}
	return weak
}

func (e Edit) samePlace(o Edit) bool { return e.Path == o.Path && e.Place == o.Place }

// Pick returns n edits, or fewer, at random: of places that differ as long as there
// are any, and of the best kind there.
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

// Another returns an edit of the same kind and place that is not among those used,
// and of the same literal if there is one.
func (c Calibration) Another(e Edit, used ...Edit) (another Edit, ok bool) {
	for _, o := range c.shuffled() {
		if o.Kind != e.Kind || !o.samePlace(e) || slices.Contains(used, o) || o == e || ok && o.Start != e.Start {
			continue
		}
		another, ok = o, true
		if o.Start == e.Start {
			break
		}
	}
	return another, ok
}

// EachTest returns one edit for each test function that has any, none of them among
// those used. With used only functions that these are of are looked at.
func (c Calibration) EachTest(used ...Edit) []Edit {
	var picked []Edit
	same := func(e Edit) func(Edit) bool { return func(o Edit) bool { return o.Path == e.Path && o.Test == e.Test } }
	for _, e := range c.shuffled() {
		if e.Test == "" || slices.Contains(used, e) || slices.ContainsFunc(picked, same(e)) ||
			len(used) > 0 && !slices.ContainsFunc(used, same(e)) {
			continue
		}
		picked = append(picked, e)
	}
	return picked
}

// shuffled returns the edits in random order, better kinds first.
func (c Calibration) shuffled() []Edit {
	edits := slices.Clone(c.Edits)
	rand.Shuffle(len(edits), func(i, j int) { edits[i], edits[j] = edits[j], edits[i] })
	slices.SortStableFunc(edits, func(a, b Edit) int { return a.Kind.rank() - b.Kind.rank() })
	return edits
}

// Judge tries a candidate with n edits and with the tests as they are, in random
// order. It returns how the tests as they are ended, and whether the candidate
// follows the tests: whether there is a place where it did not fail, by two changes.
// Of changed arguments alone, with which an honest candidate may do as it likes, it
// has to follow all, and more than one. It stops when the tests as they are fail.
func (c Calibration) Judge(ctx context.Context, n int, try Try) (real Outcome, follows bool, s Summary, err error) {
	picked := c.Pick(n)
	s.State = c.State()
	for _, e := range c.Weak() {
		s.Unobserved = append(s.Unobserved, fmt.Sprintf("%s:%d", e.Path, e.Line))
	}
	turns := rand.Perm(len(picked) + 1)
	arguments, followedArguments := 0, 0
	for _, turn := range turns {
		if turn == len(picked) {
			if real, err = try(ctx); err != nil || real != Passed {
				return real, false, s, err
			}
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

// follows tries one edit, and a second one if that is not failed in its place.
func (c Calibration) follows(ctx context.Context, e Edit, try Try, s *Summary) (bool, error) {
	s.Mutants++
	outcome, err := try(ctx, e)
	if err != nil || outcome == FailedThere {
		return false, err
	}
	if other, ok := c.Another(e); ok {
		outcome, err = try(ctx, other)
		if err == nil && outcome == FailedThere {
			s.Retried++
			return false, nil
		}
	}
	s.Followed++
	return err == nil, err
}
