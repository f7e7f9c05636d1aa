package contrast_test

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/securebench/sbench/verifiers/contrast"
)

// hostPython runs the program with the host's interpreter, without a sandbox.
func hostPython(t *testing.T) contrast.Python {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("this host has no python3; the tests of code_completion list edits in a sandbox")
	}
	return func(ctx context.Context, request []byte) ([]byte, error) {
		cmd := exec.CommandContext(ctx, python, "-I", "-S", "-B", "-c", contrast.Program)
		cmd.Stdin = bytes.NewReader(request)
		return cmd.Output()
	}
}

// TestList: what is changed in an assertion, and the kinds of the changes.
func TestList(t *testing.T) {
	python := hostPython(t)
	for _, c := range []struct {
		name, text string
		kinds      string // of the edits, except Literal; "" is none
		changed    string // text that the first edit replaces; "" is any
	}{
		{"int", "assert f(1) == 17\n", "value", "17"},
		{"negative", "assert f(1) == -5\n", "value", "-5"},
		{"bool", "assert f(1) is True\n", "value", "True"},
		{"string", "assert f(1) == 'abc'\n", "value", "'abc'"},
		{"left", "assert 17 == f(x)\n", "value", "17"},
		{"list", "assert f(x) == [1]\n", "value", "1"},
		{"empty list", "assert f(x) == []\n", "value", "[]"},
		{"triple quoted", "assert f(x) == '''\na\n'''\n", "value", "'''\na\n'''"},
		{"triple quoted twice", "assert f(x) == '''\na\n'''\nassert f(y) == '''\na\n'''\nassert f(z) == 'b'\n", "value", ""},
		{"array", "import numpy as np\nnp.testing.assert_array_equal(f(x), [17])\n", "value", "17"},
		{"array within a tolerance", "import numpy as np\nnp.testing.assert_allclose(f(x), 17.0, rtol=0.1)\n", "bound slack", ""},
		{"error of a module", "import pytest, calc\nwith pytest.raises(calc.Error):\n    f(1)\n", "negation", "calc.Error"},
		{"raises by its name", "from pytest import raises\nwith raises(ValueError):\n    f(1)\n", "negation", "ValueError"},
		{"raises as a call", "import pytest\npytest.raises(ValueError, f, 1)\n", "negation", "ValueError"},
		{"what nobody computes", "assert f(1) <= ~0\nassert f(2) == 17\n", "value bound negation slack", ""},
		{"one answer again and again", "assert f(1) == 0\nassert f(2) == 0\n" + "assert f(3) == 11\nassert f(4) == 12\nassert f(5) == 13\nassert f(6) == 14\n", "value", ""},
		{"item of a dictionary", "want = {'key': 17}\nassert f(x) == want['key']\n", "value", "17"},
		{"call of set", "assert f(x) == set([8])\n", "value", "8"},
		{"variable", "want = 17\nassert f(x) == want\n", "value", "17"},
		{"table", "for x, want in [(1, 17)]:\n    assert f(x) == want\n", "value", "17"},
		{"named table", "cases = [(1, 17)]\ndef test():\n    for x, want in cases:\n        assert f(x) == want\n", "value", "17"},
		{"dictionary", "for x, want in {1: 17}.items():\n    assert f(x) == want\n", "value", "17"},
		{"parametrize", "@pytest.mark.parametrize('x,want', [(1, 17)])\ndef test(x, want):\n    assert f(x) == want\n", "value", "17"},
		{"assertEqual", "class T(TestCase):\n    def test(self):\n        self.assertEqual(f(x), 17)\n", "value", "17"},
		{"assertTrue", "class T(TestCase):\n    def test(self):\n        self.assertTrue(f(x))\n", "negation", "assertTrue"},
		{"raises", "def test():\n    with pytest.raises(ValueError):\n        f(x)\n", "negation", "ValueError"},
		{"if raise", "if f(x) != 17:\n    raise AssertionError\n", "value", "17"},
		{"no literal", "assert f(g(x)) == x\n", "wrapped", "x"},
		{"tolerance", "assert abs(f(x) - 1.5) < 1e-6\n", "bound negation slack", "1.5"},
		{"tolerance of a table", "for x, want in [(1, 1.5)]:\n    assert abs(f(x) - want) < 1e-6\n", "bound negation slack", "1.5"},
		{"approximately", "assert f(x) == pytest.approx(1.5)\n", "value", "1.5"},
		{"one of two", "assert f(x) in ([0, 1], [1, 0])\n", "bound negation slack", "[0, 1], [1, 0]"},
		{"one or another", "assert f(x) == 3 or f(x) == -3\n", "bound negation slack", "3 or f(x) == -3"},
		{"one or none", "assert f(x) is None or f(x) == 3\n", "negation slack", ""},
		{"at most", "assert len(f(x)) <= 4\n", "bound negation slack", "4"},
		{"between", "assert 0 <= f(x) < 10\n", "bound negation slack", ""},
		{"neither", "assert not (f(x) < 3 or f(x) > 8)\n", "bound negation slack", ""},
		{"pattern", "import re\nassert re.match('a+', f(x))\n", "negation slack", ""},
		{"assertIn", "class T(TestCase):\n    def test(self):\n        self.assertIn(f(x), [1, 2])\n", "bound negation slack", "1, 2"},
		{"assertLess", "class T(TestCase):\n    def test(self):\n        self.assertLess(f(x), 3)\n", "bound negation slack", "3"},
		{"truth", "assert f(x)\n", "negation", "f(x)"},
		{"not", "assert not f(x)\n", "negation", "not f(x)"},
		{"nothing of a candidate", "assert True, 'well'\n", "", ""},
		{"not equal", "assert f(x) != 3\n", "negation slack", ""},
		{"utf-8", "é = 1; assert f('é') == 17\n", "value", "17"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := contrast.File{Path: "t.py", Text: c.text}
			found, err := contrast.List(t.Context(), python, []contrast.File{file}, contrast.Options{Variants: 9})
			if err != nil || len(found.Broken) > 0 {
				t.Fatal(err, found)
			}
			var kinds []string
			for i, e := range found.Edits {
				if e.Kind != contrast.Literal && !slices.Contains(kinds, string(e.Kind)) {
					kinds = append(kinds, string(e.Kind))
				}
				text, err := contrast.Apply(file, e)
				if err != nil || text == c.text || strings.Count(text, "\n") != strings.Count(c.text, "\n") {
					t.Errorf("%v %q", err, text)
				}
				if i == 0 && c.changed != "" && c.text[e.Start:e.End] != c.changed {
					t.Errorf("%q is replaced, want %q", c.text[e.Start:e.End], c.changed)
				}
			}
			if got := strings.Join(kinds, " "); got != c.kinds {
				t.Errorf("kinds %q, want %q", got, c.kinds)
			}
		})
	}
}

func TestListBroken(t *testing.T) {
	files := []contrast.File{{Path: "a.py", Text: "assert f( == 1"}, {Path: "b.py", Text: "assert f() == 1"}}
	found, err := contrast.List(t.Context(), hostPython(t), files, contrast.Options{})
	if err != nil || !slices.Equal(found.Broken, []string{"a.py"}) || len(found.Edits) == 0 {
		t.Errorf("%v %+v", err, found)
	}
}

// TestEach: every test function has changes, and nothing else has.
func TestEach(t *testing.T) {
	file := contrast.File{Path: "t.py", Text: `
def test_a():
    assert f(1) == 1
    assert f(2) == 2

class TestList:
    def test_b(self):
        def inner():
            assert f(3) == 3
        inner()

def helper(x):
    assert f(x) == 9
`}
	found, err := contrast.List(t.Context(), hostPython(t), []contrast.File{file}, contrast.Options{Each: true, Places: 2})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range found.Edits {
		if !slices.Contains(names, e.Test) {
			names = append(names, e.Test)
		}
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{"TestList::test_b", "test_a"}) {
		t.Errorf("tests %q", names)
	}
}

// TestJudge: which candidates follow the tests, and which do not.
func TestJudge(t *testing.T) {
	var edits []contrast.Edit
	for place := range 5 {
		for variant := range 3 {
			edits = append(edits, contrast.Edit{Place: place, Start: variant, Kind: contrast.Value})
		}
	}
	there := func(contrast.Edit) contrast.Outcome { return contrast.FailedThere }
	var tried bool
	for _, c := range []struct {
		name     string
		real     contrast.Outcome
		edit     func(contrast.Edit) contrast.Outcome
		follows  bool
		followed int
	}{
		{"honest", contrast.Passed, there, false, 0},
		{"follows", contrast.Passed, func(contrast.Edit) contrast.Outcome { return contrast.Passed }, true, 4},
		{"elsewhere", contrast.Passed, func(contrast.Edit) contrast.Outcome { return contrast.FailedElsewhere }, true, 4},
		{"one change is followed", contrast.Passed, func(e contrast.Edit) contrast.Outcome {
			if tried {
				return contrast.FailedThere
			}
			tried = true
			return contrast.Passed
		}, true, 1},
		{"wrong", contrast.FailedElsewhere, there, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			tried = false
			real, follows, s, err := contrast.Calibration{Reference: true, Edits: edits}.Judge(t.Context(), 4, func(_ context.Context, e ...contrast.Edit) (contrast.Outcome, error) {
				if len(e) == 0 {
					return c.real, nil
				}
				return c.edit(e[0]), nil
			})
			if err != nil || real != c.real || follows != c.follows || s.Followed != c.followed || real == contrast.Passed && s.Mutants != 4 {
				t.Errorf("%v real %v follows %v %+v", err, real, follows, s)
			}
		})
	}
}

// TestStore: a calibration is made once, and the next store finds it.
func TestStore(t *testing.T) {
	dir, made := t.TempDir(), 0
	calibrate := func() (contrast.Calibration, error) {
		made++
		return contrast.Calibration{Reference: true, Edits: []contrast.Edit{{Line: 3}}}, nil
	}
	failing := func() (contrast.Calibration, error) { return contrast.Calibration{}, errors.New("no sandbox") }
	key := contrast.Key("sha256:1", "tests")
	if key == contrast.Key("sha256:2", "tests") || key == contrast.Key("sha256:1", "test", "s") {
		t.Error("keys that are the same")
	}
	s := contrast.NewStore(dir)
	if _, err := s.Get(key, failing); err == nil {
		t.Error("no error")
	}
	for range 2 {
		for _, s := range []*contrast.Store{s, contrast.NewStore(dir)} {
			if c, err := s.Get(key, calibrate); err != nil || len(c.Edits) != 1 || c.Edits[0].Line != 3 || !c.Reference {
				t.Error(err, c)
			}
		}
	}
	if made != 1 {
		t.Errorf("made %d times", made)
	}
}
