package contrast

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
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
	// "none" (nothing could be changed), or "off".
	State string `json:"state"`
	// Mutants counts the changes that were tried, Followed those with which the tests passed
	// or failed elsewhere.
	Mutants  int `json:"mutants"`
	Followed int `json:"followed"`
	// Unread are files that sbench cannot read and so did not change.
	Unread []string `json:"unread,omitempty"`
}

// An Effort says how many changed tests a candidate is tried with. The zero Effort means Full.
type Effort string

// The efforts.
const (
	Full  Effort = "full"
	Quick Effort = "quick" // one run with changed tests
	Off   Effort = "off"   // no run with changed tests, and no canary
)

// Mutants returns how many changes code beside its tests is tried with.
func (e Effort) Mutants() int {
	switch e {
	case Off:
		return 0
	case Quick:
		return 1
	}
	return Mutants
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
	// Sets are for suites of tests, which have no Edits: two runs' sets and, as drawn, a third set with an edit
	// of every function. A set without edits is not used.
	Sets []Set `json:"sets,omitempty"`
	// Seen says that the sets change only what authors of candidates can read.
	Seen bool `json:"seen,omitempty"`
	// Canary and Broken are copied from the [Listing].
	Canary []Edit   `json:"canary,omitempty"`
	Broken []string `json:"broken,omitempty"`
	// CannotFail says that the reference passes the tests with the canary.
	CannotFail bool `json:"cannot_fail,omitempty"`
	// Unread is copied from the [Listing].
	Unread []string `json:"unread,omitempty"`
	// Sealed says that the reference passes in a process of its own, so that no edits are needed.
	Sealed bool `json:"sealed,omitempty"`
	// Repair says that the reference passes only if tests get its versions of what the prompt has.
	Repair bool `json:"repair,omitempty"`
}

// A Set holds edits of different test functions that are made together. The reference then fails these functions.
type Set struct {
	Edits []Edit `json:"edits"`
	// Failed are the tests that the reference then fails, sorted, as the command's output names them. If it names
	// none, Failures is how many it counts; 0 if that is unknown, too.
	Failed   []string `json:"failed,omitempty"`
	Failures int      `json:"failures,omitempty"`
	// Needed are the edits of functions that fail without a solution, in the set of all functions.
	Needed []Edit `json:"needed,omitempty"`
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
		}
	}
	return c, nil
}

// Expects reports whether an edit changes what the tests expect. An [Opposite] only finds candidates that look at the
// form of an assertion, so opposites alone show nothing.
func (c Calibration) Expects() bool {
	return slices.ContainsFunc(c.Edits, func(e Edit) bool { return e.Kind != Opposite })
}

// State returns the [Summary.State] for this calibration.
func (c Calibration) State() string {
	switch {
	case len(c.Edits) == 0:
		return None
	case c.Reference:
		return Calibrated
	}
	return Uncalibrated
}

// pick returns at most n random edits, a third of them opposites if there are enough of both. They are at different
// places as long as there are any, and values before swaps at each.
func (c Calibration) pick(n int) []Edit {
	var opposites, others []Edit
	for _, e := range c.shuffled() {
		if e.Kind == Opposite {
			opposites = append(opposites, e)
		} else {
			others = append(others, e)
		}
	}
	picked := spread(others, max(n-len(opposites), n-n/3))
	return append(picked, spread(opposites, n-len(picked))...)
}

// spread returns the first n edits, at different places as long as there are any.
func spread(left []Edit, n int) (picked []Edit) {
	for len(picked) < n && len(left) > 0 {
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

// shuffled returns the edits in random order, values first.
func (c Calibration) shuffled() []Edit {
	edits := slices.Clone(c.Edits)
	rand.Shuffle(len(edits), func(i, j int) { edits[i], edits[j] = edits[j], edits[i] })
	swap := func(e Edit) int { return map[bool]int{true: 1}[e.Kind == Swap] }
	slices.SortStableFunc(edits, func(a, b Edit) int { return swap(a) - swap(b) })
	return edits
}

// Judge tries a candidate with n edits and with the unchanged tests, in random order. It stops when the unchanged
// tests fail, or an edit refuses the candidate. real is how the unchanged tests ended. follows says that with some edit
// the candidate did not fail as it should have; without a reference it may fail anywhere. An error is try's own.
func (c Calibration) Judge(ctx context.Context, n int, try Try) (real Outcome, follows bool, s Summary, err error) {
	picked := c.pick(n)
	s = Summary{State: c.State(), Unread: c.Unread}
	for _, turn := range rand.Perm(len(picked) + 1) {
		if turn == len(picked) {
			if real, err = try(ctx); err != nil || real != Passed {
				return real, false, s, err
			}
			continue
		}
		if s.Followed > 0 && c.Reference { // which is enough
			continue
		}
		s.Mutants++
		outcome, err := try(ctx, picked[turn])
		if err != nil {
			return real, false, s, err
		}
		if outcome == Passed || outcome == FailedElsewhere && c.Reference && !picked[turn].Shared {
			s.Followed++
		}
	}
	return real, s.Followed > 0, s, nil
}
