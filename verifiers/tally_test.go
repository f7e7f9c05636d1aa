package verifiers_test

import (
	"cmp"
	"testing"

	"github.com/securebench/sbench/verifiers"
)

// forged and honest are the kinds of candidates that tally counts.
const (
	forged = "forged"
	honest = "honest"
)

// tally records the verdict on a candidate of a kind, for the table that `make test-verdicts` prints.
func tally(t *testing.T, family, kind string, v verifiers.Verdict) {
	t.Helper()
	t.Attr("verdict", family+" "+kind+" "+cmp.Or(string(v.Assurance), string(v.Status)))
}
