package contrast_test

import (
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/verifiers/contrast"
)

// listed returns the listing of a file, which has to be read.
func listed(t *testing.T, text string) contrast.Listing {
	t.Helper()
	l, err := contrast.List(t.Context(), hostPython(t), []contrast.File{{Path: "t.py", Text: text}}, contrast.Options{})
	must.Do(t, err)
	if len(l.Files) != 1 || len(l.Unread) > 0 {
		t.Fatalf("%q: %+v", text, l)
	}
	return l
}

// TestSameWords: what a blind file asks does not tell the answer, whatever form the assertion has.
func TestSameWords(t *testing.T) {
	for _, c := range []struct{ name, yes, no string }{
		{"statement", "assert f(1)\n", "assert not f(1)\n"},
		{"denied equality", "assert f(1) == g(1)\n", "assert not f(1) == g(1)\n"},
		{"unequal", "assert f(1) == g(1)\n", "assert f(1) != g(1)\n"},
		{"denied twice", "assert not not f(1)\n", "assert not (not (not f(1)))\n"},
		{"unittest", "self.assertTrue(f(1))\n", "self.assertFalse(f(1))\n"},
		{"unittest, kinds", "self.assertIsInstance(f(1), int)\n", "self.assertNotIsInstance(f(1), int, 'text')\n"},
		{"unittest with a message", "self.assertTrue(f(1), 'right')\n", "self.assertFalse(f(1), msg='wrong')\n"},
		{"unittest, equality", "self.assertTrue(f(1) == g(1))\n", "self.assertFalse(f(1) == g(1))\n"},
		{"unittest, denied", "self.assertTrue(f(1))\n", "self.assertTrue(not f(1))\n"},
		{"order", "assert f(1) < g(1)\n", "assert not f(1) < g(1)\n"},
		{"bound", "self.assertTrue(f(1) <= 3)\n", "self.assertFalse(f(1) <= 3)\n"},
		{"bound of unittest", "self.assertGreater(f(1), 3)\n", "self.assertFalse(f(1) > 3)\n"},
		{"calls", "m.assert_called_once()\n", "m.assert_not_called()\n"},
		{"containment", "self.assertTrue(1 in f(1))\n", "self.assertFalse(1 in f(1))\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var texts []string
			for _, text := range []string{c.yes, c.no} {
				l := listed(t, text)
				if len(l.Questions) != 1 {
					t.Fatalf("%q: questions %v", text, l.Questions)
				}
				texts = append(texts, l.Files[0].Text)
			}
			if texts[0] != texts[1] || !strings.Contains(texts[0], "_sbench_ask(1, ") {
				t.Errorf("yes is asked by %q, no by %q", texts[0], texts[1])
			}
		})
	}
}

// TestWords: names of tests and variables do not tell what is expected, and what else has a name can still use it.
func TestWords(t *testing.T) {
	python := hostPython(t)
	ask := func(text, selects string) string {
		l, err := contrast.List(t.Context(), python, []contrast.File{{Path: "t.py", Text: text}, {Path: "u.py", Text: "from t import SHARED\n"}},
			contrast.Options{Selects: selects, Answers: "/a"})
		must.Do(t, err)
		if len(l.Unread)+len(l.Broken) > 0 {
			t.Fatalf("%q: %+v", text, l)
		}
		return l.Files[0].Text
	}
	right := "def check_right(x):\n    assert g(x) == 1\ncheck_right(1)\nclass TestRight:\n    def test_good(self):\n        for right in GOOD:\n            assert f(right)\nGOOD = [1]\n"
	wrong := "def check_wrong(x):\n    assert g(x) == 1\ncheck_wrong(1)\nclass TestWrong:\n    def test_invalid(self):\n        for bad in INVALID:\n            assert not f(bad)\nINVALID = [1]\n"
	if one, other := ask(right, ""), strings.ReplaceAll(ask(wrong, ""), "not _sbench", "_sbench"); one != other {
		t.Errorf("words tell what is expected: %q, not %q", one, other)
	}
	for name, text := range map[string]string{
		"SHARED":   "SHARED = 1\n",
		"setup":    "def setup_module():\n    setup()\ndef setup():\n    pass\n",
		"given":    "import pytest\n@pytest.mark.parametrize('given', [1])\ndef test(given):\n    f(given)\n",
		"LIMIT":    "LIMIT = 1\nprint(f'{LIMIT} of them')\n",
		"timeout":  "timeout = 1\nf(timeout=timeout)\n",
		"maxDiff":  "class T:\n    maxDiff = None\n",
		"count":    "count = 0\ndef g():\n    global count\n    count += 1\n",
		"test_one": "def test_one():\n    pass\n",
		"field":    "field = 1\nprint(vars())\n",
	} {
		if blind := ask(text, "pytest t.py::test_one"); !strings.Contains(blind, name) {
			t.Errorf("%s is gone: %q", name, blind)
		}
	}
	if blind := ask("def test_invalid():\n    pass\nfor name, test in list(globals().items()):\n    if name[:4] == 'test':\n        test()\n", ""); strings.Contains(blind, "invalid") {
		t.Errorf("the name of a test tells what is expected: %q", blind)
	}
	for _, command := range []string{"pytest -k a", "for t in a; do pytest t.py::test_$t; done", `pytest t.py::"$TEST"`} {
		if blind := ask("def test_a():\n    pass\n", command); !strings.Contains(blind, "test_a") {
			t.Errorf("%s does not find test_a: %q", command, blind)
		}
	}
}

// TestMockIsRead: the calls of a mock that a name stands for are asked.
func TestMockIsRead(t *testing.T) {
	text := "m = Mock()\n_ = f(m)\nm.assert_called_once_with(1)\n"
	l := listed(t, text)
	if !strings.Contains(l.Files[0].Text, "with _sbench_in(1): assert _sbench_ask(1, (m), 'call_args_list')") {
		t.Errorf("text %q", l.Files[0].Text)
	}
}

// TestModel: the candidate finds no function that computes what is expected, even if the tests test it.
func TestModel(t *testing.T) {
	text := "def slow(x):\n    return x + 1\n\ndef test_slow():\n    assert slow(1) == 2\n\ndef test_fast():\n    assert fast(3) == slow(3)\n"
	l := listed(t, text)
	if len(l.Questions) != 1 || !strings.Contains(l.Files[0].Text, "_sbench_ask(1, (fast(3)))") || strings.Contains(l.Files[0].Text, "x + 1") {
		t.Errorf("text %q", l.Files[0].Text)
	}
}

// TestFixture: what a fixture returns is neutral if it is only expected.
func TestFixture(t *testing.T) {
	text := "import pytest\n@pytest.fixture\ndef given():\n    return 'abc'\n@pytest.fixture(scope='module')\ndef want():\n    return 17\ndef test_f(given, want):\n    assert f(given) == want\n"
	l := listed(t, text)
	blind := strings.NewReplacer("17", "None", "test_f", "test_0000", "assert f(given) == want", "with _sbench_in(1): assert _sbench_ask(1, (f(given)))").Replace(text)
	if l.Files[0].Text != blind {
		t.Errorf("text %q", l.Files[0].Text)
	}
}

// TestInPlace: a value of the tests that the candidate may have changed is asked for.
func TestInPlace(t *testing.T) {
	for _, text := range []string{
		"xs = [3, 1]\n_ = f(xs)\nassert xs == [1, 3]\n",
		"import pytest\n@pytest.fixture\ndef xs():\n    return [3, 1]\ndef test_f(xs):\n    _ = f(xs)\n    assert [1, 3] == xs\n",
		"xs = {'a': 1}\n_ = f(xs)\nassert xs == {}\n",
	} {
		l := listed(t, text)
		if !strings.Contains(l.Files[0].Text, "_sbench_ask(1, (xs))") {
			t.Errorf("text %q", l.Files[0].Text)
		}
	}
}

// TestPartOfText: if the tests expect a part of a text, the text stays.
func TestPartOfText(t *testing.T) {
	text := "for x, want in [(1, 'abc'[1:])]:\n    assert f(x) == want\n"
	if l := listed(t, text); !strings.Contains(l.Files[0].Text, "'abc'[1:]") || len(l.Stays) == 0 {
		t.Errorf("text %q, stays %v", l.Files[0].Text, l.Stays)
	}
}

// TestOwnValues: what the candidate has a say in is no model of the tests, so both sides are asked.
func TestOwnValues(t *testing.T) {
	for name, text := range map[string]string{
		"parameter with a variable's name": "n = 3\ndef test_f(n):\n    assert f() == str(n)\n",
		"context":                          "n = 3\nwith g() as n:\n    assert f() == str(n)\n",
		"filled":                           "xs = []\nfor i in range(3):\n    xs.append(g(i))\nassert f() == sorted(xs)\n",
		"extended":                         "xs = {}\nxs['a'] = g(1)\nassert f() == str(xs)\n",
		"global":                           "n = 3\ndef setup():\n    global n\n    n = g(1)\ndef test_f():\n    assert f() == str(n)\n",
		"rows":                             "for x, y in (1, 2), (3, g(1)):\n    assert f() == str(x)\n",
	} {
		t.Run(name, func(t *testing.T) {
			l := listed(t, text)
			if !strings.Contains(l.Files[0].Text, "'equal')") {
				t.Errorf("text %q", l.Files[0].Text)
			}
		})
	}
}

// TestForms: what means the same is asked the same.
func TestForms(t *testing.T) {
	for text, asked := range map[string]string{
		"self.assertLess(abs(f(1) - 1.5), 0.25)\n": "(1, (f(1)), 'close')",
		"self.assertIs(f(1), g(1))\n":              "(1, ((f(1)) is (g(1))), 'truth')",
		"assert 1.5 == pytest.approx(f(1))\n":      "(1, (f(1)), 'close')",
		"self.assertTrue(*f(1))\n":                 "(1, (self.assertTrue(*f(1))), 'call')",
		"(f(1))\n":                                 "assert _sbench_ask(1, (f(1)), 'call')",
		"(self.assertRaises(ValueError, f, 1))\n":  "assert _sbench_ask(1, (f(1)))",
	} {
		l := listed(t, text)
		if !strings.Contains(l.Files[0].Text, asked) {
			t.Errorf("%q: text %q", text, l.Files[0].Text)
		}
	}
}

// TestStays: which assertions tell a candidate what they expect.
func TestStays(t *testing.T) {
	for _, c := range []struct {
		text  string
		stays bool
	}{
		{"assert f(1) == 2 and f(2)\n", false},
		{"assert f(1) == 2 or f(2)\n", true},
		{"assert 1 < f(1) < 3\n", true},
		{"with raises(ValueError):\n    f(1)\n", false},
		{"with raises(ValueError) as e:\n    f(1)\n", true},
		{"with self.assertWarns(UserWarning):\n    f(1)\n", true},
		{"self.assertTrue(f(1), 'text')\n", false},
		{"self.assertRegex(f(1), 'a+')\n", true},
		{"from helpers import assert_f\nassert_f(1, 2)\n", true},
		{"def assert_f(x, y):\n    assert f(x) == y\nassert_f(1, 2)\n", false},
		{"if f(1) != 2:\n    raise AssertionError(f(1))\n", false},
		{"if f(1) != 2 and g(1):\n    raise AssertionError\n", true},
		{"if f(1) != 2:\n    print('wrong')\n    exit(1)\n", true},
		{"if f(1) != 2:\n    print('wrong')\n    self.fail('wrong')\n", true},
		{"job.fail(1)\nexit()\n", false},
		{"try:\n    f(1)\nexcept ValueError:\n    raised = True\n", true},
		{"try:\n    import f\nexcept ImportError:\n    f = None\n", false},
		{"try:\n    f(1)\n    assert False\nexcept ValueError:\n    pass\n", false},
		{"want = (HERE / 'golden').read_text()\nassert f(1) == want\n", true},
		{"want = list(range(3))\nassert f(3) == want\n", true},
		{"import datetime\nfor want in [datetime.date(2024, 1, 31)]:\n    assert f(1) == want\n", true},
		{"assert f(1) != 'a'\n", false},
		{"assert f(1) == g(1)\n", false},
		{"text = 'a, b'\nassert join(split(text)) == text\n", true},
		{"want = load('golden')\nassert f(1) == want\n", false},
		{"assert f(1) in (2, 3)\n", true},
		{"assert 'line 3' in f(1)\n", true},
		{"assert 'line 3' not in f(1)\nassert 3 in f(1)\n", false},
		{"for row in [(1, 2), (3, 4)]:\n    assert f(row[0]) == row[1]\n", false},
		{"for row in [(1, 2), (3, 4)]:\n    assert f(row[0]) == row[1] and g(*row)\n", true},
		{"assert f(1).read() == 'text'\n", false},
	} {
		l := listed(t, c.text)
		if len(l.Stays) > 0 != c.stays {
			t.Errorf("%q: stays %v, text %q", c.text, l.Stays, l.Files[0].Text)
		}
	}
}

// TestNear: how far numbers may be apart, by the place of an argument or by its name.
func TestNear(t *testing.T) {
	for _, text := range []string{
		"assert f() == approx(1.5, 0.25, 0.125)\n",
		"assert f() == approx(1.5, rel=0.25, abs=0.125)\n",
		"np.testing.assert_allclose(f(), 1.5, 0.25, 0.125)\n",
	} {
		l := listed(t, text)
		if len(l.Questions) != 1 || l.Questions[0].Near != [2]float64{0.125, 0.25} {
			t.Errorf("%q: questions %v", text, l.Questions)
		}
	}
}

// TestNothingAsked: a file without a question is read, too.
func TestNothingAsked(t *testing.T) {
	l, err := contrast.List(t.Context(), hostPython(t), []contrast.File{{Path: "t.py", Text: "# Helpers.\n'A doc.'\n"}}, contrast.Options{Answers: "/dev/null"})
	must.Do(t, err)
	if len(l.Unread) > 0 || l.Files[0].Text != "\n"+`""`+"\n" {
		t.Errorf("unread %v, text %q", l.Unread, l.Files[0].Text)
	}
}
