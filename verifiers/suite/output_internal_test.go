package suite

import (
	"testing"

	"github.com/securebench/sbench/runtime"
)

// TestFailures: the failures of all runners that a command starts count, in any order.
func TestFailures(t *testing.T) {
	for text, want := range map[string]int{
		"":                                       0,
		"1 passed in 0.01s\n":                    0,
		"2 failed, 1 passed in 0.03s\n":          2,
		"1 failed in 0.02s\n2 failed in 0.03s\n": 3,
		"2 failed in 0.03s\n1 passed in 0.01s\n": 2,
		"== 1 failed, 2 errors in 61.02s (0:01:01) ==\nFAILED (failures=2, errors=1)\n": 6,
		"9 failed tests were found in 2 files\n":                                        0,
	} {
		if got := failures(runtime.Output{Tail: []byte(text)}); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
