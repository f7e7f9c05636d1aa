// Package verdicttest has what the tests of verifiers share: which of many candidates are judged, and the
// count of their verdicts.
package verdicttest

import (
	"cmp"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/securebench/sbench/verifiers"
)

// Forged and Honest are the kinds of candidates that [Tally] counts.
const (
	Forged = "forged"
	Honest = "honest"
)

// Tally records the verdict on a candidate of a kind, for the table that `make test-verdicts` prints.
func Tally(t *testing.T, family, kind string, v verifiers.Verdict) {
	t.Helper()
	t.Attr("verdict", family+" "+kind+" "+cmp.Or(string(v.Assurance), string(v.Status)))
}

// OneOfEach keeps the first candidate of each class, and all of them with SBENCH_SOAK.
func OneOfEach[T any](all []T, class func(T) string) []T {
	if os.Getenv("SBENCH_SOAK") != "" {
		return all
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(all), func(c T) bool {
		again := seen[class(c)]
		seen[class(c)] = true
		return again
	})
}

// Taken reports whether the i-th of many cases is tried: every sixteenth, and with SBENCH_SOAK all
// of them.
func Taken(i int) bool { return os.Getenv("SBENCH_SOAK") != "" || i%16 == 0 }

// Short keeps the cases that are taken.
func Short[T any](cases []T) []T {
	var kept []T
	for i, c := range cases {
		if Taken(i) {
			kept = append(kept, c)
		}
	}
	return kept
}

// Repeats returns how often commands are run: SBENCH_TEST_REPEAT times, or once.
func Repeats() int {
	n, _ := strconv.Atoi(os.Getenv("SBENCH_TEST_REPEAT"))
	return max(n, 1)
}
