package run

import (
	"slices"
	"strings"
	"testing"

	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/verifiers/contrast"
)

// TestWeaknesses: the pack's author is told where assertions stay, and of many, how many more there are.
func TestWeaknesses(t *testing.T) {
	for _, places := range []int{0, 1, 10, 12} {
		sum := contrast.Summary{Places: slices.Repeat([]string{"t.py:7"}, places)}
		text := weaknesses(verifiers.Verdict{Contrast: &sum})
		if n := strings.Count(text, "t.py:7"); n != min(places, shownPlaces) || strings.Contains(text, "and 2 more places") != (places == 12) {
			t.Errorf("%d places: %q", places, text)
		}
	}
}
