package suite

import (
	"testing"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers/contrast"
)

// TestOrder: a test that fails without a solution was skipped only if one that runs after it has failed.
func TestOrder(t *testing.T) {
	one, two := contrast.Edit{Path: "tests/test_a.py", Test: "test_one"}, contrast.Edit{Path: "tests/test_b.py", Test: "test_two"}
	drawn := contrast.Calibration{Sets: []contrast.Set{{}, {}, {Edits: []contrast.Edit{one, two}, Needed: []contrast.Edit{one}}}}
	stopped := runtime.Exit{Reason: runtime.Exited, Code: 1, Stdout: runtime.Output{Tail: []byte("FAILED tests/test_b.py::test_two - it has to\n")}}
	for command, want := range map[string]bool{
		"pytest -x tests": true, // by name
		"pytest -x tests/test_a.py tests/test_b.py":        true,
		"pytest -x tests/test_b.py tests/test_a.py":        false,
		"pytest tests/test_b.py && pytest tests/test_a.py": false,
	} {
		if got := (Suite{Selects: command}).skips(stopped, drawn); got != want {
			t.Errorf("%s: %v, want %v", command, got, want)
		}
	}
}
