package suite

import (
	"slices"
	"testing"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers/contrast"
)

// TestEndsAs: a candidate has to fail the changed tests that the reference fails, and none that the reference does not
// fail, whatever names them. What the reference fails beside them, by chance, is not required.
func TestEndsAs(t *testing.T) {
	edits := []contrast.Edit{{Path: "tests/test_a.py", Test: "test_one"}, {Path: "tests/test_a.py", Test: "T::test_two"}}
	ended := func(text string) runtime.Exit {
		return runtime.Exit{Reason: runtime.Exited, Code: 1, Stdout: runtime.Output{Tail: []byte(text)}}
	}
	for reference, candidates := range map[string]map[string]bool{
		"FAILED tests/test_a.py::test_one - assert 1 == 3\n1 failed in 0.1s\n": {
			"FAILED tests/test_a.py::test_one - assert 7 == 3\n2 failed in 0.1s\n":            true,
			"tests/test_a.py::test_one \x1b[31mFAILED\x1b[0m   [ 50%]\n":                      true,
			"FAILED tests/test_a.py::test_one\nFAILED tests/test_a.py::test_three - assert\n": false,
			"FAILED tests/test_a.py::test_three - assert\n":                                   false,
		},
		"FAILED tests/test_a.py::test_one[1 2-x] - assert 1 == 3\n": {
			"FAILED tests/test_a.py::test_one[1 2-x]\n":                                            true,
			"FAILED tests/test_a.py::test_one[1 2-x]\nERROR tests/test_a.py::test_one[3-y] - no\n": false,
		},
		"FAIL: test_two (tests.test_a.T.test_two)\n": {
			"test_two (tests.test_a.T.test_two) ... ERROR\nERROR: test_two (tests.test_a.T.test_two)\n": true,
			"test_two (tests.test_a.T.test_two) ... 1 ERROR\n":                                          true,
			"FAIL: test_two (tests.test_a.T.test_two)\nFAIL: test_one (tests.test_a.T.test_one)\n":      false,
		},
		"FAIL: test_two (tests.test_a.T.test_two) (f=<f at 0x7f1>)\n": {
			"FAIL: test_two (tests.test_a.T.test_two) (f=<f at 0x7f2>)\n": true,
		},
		"FAILED tests/test_a.py::test_one - assert 1 == 3\nFAILED tests/test_a.py::B::test_two\nFAILED tests/test_b.py::test_slow\n": {
			"FAILED tests/test_a.py::test_one\n":                                          true,
			"FAILED tests/test_a.py::test_one\nFAILED tests/test_b.py::test_slow\n":       true,
			"FAILED tests/test_a.py::test_one\nFAILED tests/test_b.py::test_three - no\n": false,
			"FAILED tests/test_a.py::B::test_two\nFAILED tests/test_b.py::test_slow\n":    false,
		},
		// the candidate's objects name the rows, and it prints beside the names
		"FAILED tests/test_a.py::test_one[<a.A object at 0x7f1>] - assert 1 == 3\n": {
			"tests/test_a.py::test_one[A(1, 2)] step 1 FAILED  [ 50%]\nFAILED tests/test_a.py::test_one[A(1, 2)] - assert 1 == 3\n": true,
			"FAILED tests/test_a.py::test_one[A(1)]\nFAILED tests/test_a.py::test_one[A(2)]\n":                                      false,
		},
		"2 failed in 0.1s\n": {"2 failed in 0.1s\n": true, "1 failed in 0.1s\n": false, "3 failed in 0.1s\n": false},
		"":                   {"": true, "1 failed in 0.1s\n": true},
	} {
		set := setOf(ended(reference), edits)
		for candidate, want := range candidates {
			if got := endsAs(ended(candidate), set); got != want {
				t.Errorf("%q as %q: %v", candidate, reference, got)
			}
		}
	}
}

// TestOneFunction: where the output does not name all tests that fail, a run changes one function.
func TestOneFunction(t *testing.T) {
	var of [][]contrast.Edit
	for i, name := range []string{"test_a", "test_b", "test_c", "test_d"} {
		of = append(of, []contrast.Edit{{Path: "t.py", Test: name, Start: 100 * i, End: 100*i + 1, Place: 2 * i}, {Path: "t.py", Test: name, Start: 100*i + 50, End: 100*i + 51, Place: 2*i + 1}})
	}
	for range 20 {
		for _, one := range [][][]contrast.Edit{of, of[:1]} {
			if s := sets(one, of, nil, true); len(s[0].Edits) != 1 || len(s[1].Edits) != 1 || len(s[allSet].Edits) != 4 || s[0].Edits[0] == s[1].Edits[0] {
				t.Fatalf("%+v", s)
			}
		}
	}
	changed := map[int]bool{}
	for range 60 { // a function is changed in one run, except for one, and not always at its first assertion
		s := sets(of, of, nil, false)
		both := slices.Concat(s[0].Edits, s[1].Edits)
		if len(both) != len(of)+1 {
			t.Fatalf("%+v", s)
		}
		for _, e := range both {
			changed[e.Start] = true
		}
	}
	if len(changed) != 2*len(of) {
		t.Errorf("changed are %v", changed)
	}
	unsolved := failureLines{"FAILED t.py::test_a - assert"}
	for range 20 { // what passes without a solution is changed in one run, and the other shows nothing else
		s := sets(of, of, unsolved, false)
		if n := len(s[0].Edits) * len(s[1].Edits); n != 4 || len(s[0].Edits) == 2 {
			t.Fatalf("%+v", s)
		}
	}
	for command, want := range map[string]bool{"pytest -x tests": true, "pytest -qx": true, "python -m unittest -v -f tests": true, "pytest --maxfail=1": true, "pytest -q tests": false, "python -m pytest --ext -f": false,
		"set -x\npytest -q tests": false, "cd tests && bash -x run": false, "pytest tests | grep -qx ok": false, "pytest \\\n -x": true, "tox -e py -- -x": true, "./runtests.py -vx": true} {
		if got := stopsEarly.MatchString(command); got != want {
			t.Errorf("%s: %v", command, got)
		}
	}
}
