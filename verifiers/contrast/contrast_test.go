package contrast_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers/contrast"
)

// hostPython runs the program with the host's interpreter, without a sandbox.
func hostPython(t *testing.T) contrast.Python {
	t.Helper()
	return hostPythonRuns(t, contrast.Program, nil)
}

// hostPythonRuns returns a [contrast.Python] that runs another program, with its standard error.
func hostPythonRuns(t *testing.T, program string, stderr io.Writer) contrast.Python {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("this host has no python3; the tests of code_completion list edits in a sandbox")
	}
	return func(ctx context.Context, request []byte) ([]byte, error) {
		cmd := exec.CommandContext(ctx, python, "-I", "-S", "-B", "-c", program)
		cmd.Stdin, cmd.Stderr = bytes.NewReader(request), stderr
		return cmd.Output()
	}
}

// TestList: what is changed in an assertion, and the kinds of the changes.
func TestList(t *testing.T) {
	python := hostPython(t)
	for _, c := range []struct {
		name, text string
		kinds      string // of the edits; "" is none
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
		{"triple quoted twice", "assert f(x) == '''\na\n'''\nassert f(y) == '''\na\n'''\nassert f(z) == 'b'\n", "value opposite", ""},
		{"array", "import numpy as np\nnp.testing.assert_array_equal(f(x), [17])\n", "value", "17"},
		{"array within a tolerance", "import numpy as np\nnp.testing.assert_allclose(f(x), 17.0, rtol=0.1)\n", "", ""},
		{"error of a module", "import pytest, calc\nwith pytest.raises(calc.Error):\n    f(1)\n", "opposite", ""},
		{"raises by its name", "from pytest import raises\nwith raises(ValueError):\n    f(1)\n", "opposite", ""},
		{"raises as a call", "import pytest\npytest.raises(ValueError, f, 1)\n", "", ""},
		{"what nobody computes", "assert f(1) <= ~0\nassert f(2) == 17\n", "value opposite", "17"},
		{"one answer again and again", "assert f(1) == 0\nassert f(2) == 0\n" + "assert f(3) == 11\nassert f(4) == 12\nassert f(5) == 13\nassert f(6) == 14\n", "value", ""},
		{"item of a dictionary", "want = {'key': 17}\nassert f(x) == want['key']\n", "value", "17"},
		{"call of set", "assert f(x) == set([8])\n", "value", "8"},
		{"variable", "want = 17\nassert f(x) == want\n", "value", "17"},
		{"table", "for x, want in [(1, 17)]:\n    assert f(x) == want\n", "value", "17"},
		{"given, and expected", "x = 'abc'\nassert f(x) == x\n", "value", "x"},
		{"given as a whole", "x = {'a': 3, 'b': 4}\ny = f(x)\nassert y['a'] == x['a']\n", "opposite", ""},
		{"given one by one", "xs = [4, 5]\nfor x in xs:\n    f(x)\nassert g() == xs[-1]\n", "opposite", ""},
		{"given to another", "from unittest import mock\nx, m = 'abc', mock.Mock()\nf(m, x)\nm.assert_called_with(x)\n", "", ""},
		{"keys given", "x = {'abc': 3}\nfor k in x:\n    f(k)\nassert g() == x\n", "value", "x"},
		{"a key that stands twice", "assert f(1) == {'a': 3, 'a': 17}['a']\n", "value", "17"},
		{"one item given, another expected", "cases = [{'in': 3, 'out': 17}]\nfor case in cases:\n    assert f(case['in']) == case['out']\n", "value", "17"},
		{"one element given, another expected", "for row in [([3], 17)]:\n    y = f(*row[0])\n    assert y == row[-1]\n", "value", "17"},
		{"items under names", "case = {'in': 3, 'out': 17}\nx, want = case['in'], case['out']\nassert f(x) == want\n", "value", "17"},
		{"items of another literal", "case = {'in': open, 'out': 17}\nassert f(case['in']) == case['out']\n", "value", "17"},
		{"sorted before", "for x, want in [(1, [17])]:\n    want = sorted(want)\n    assert f(x) == want\n", "value", "17"},
		{"the same item given", "x = {'a': 3, 'b': 4}\nassert f(x['a'])['a'] == x['a']\n", "opposite", ""},
		{"an item that holds it given", "x = {'a': {'b': 3}}\nassert f(x['a'])['b'] == x['a']['b']\n", "opposite", ""},
		{"an item given that is not known", "x = {'a': 3}\nfor k in x:\n    f(x[k])\nassert g() == x['a']\n", "opposite", ""},
		{"given under another name", "x = {'a': 3}\ny = x['a']\nz = [y]\nf(z)\nassert g() == x['a']\n", "opposite", ""},
		{"elements of an item given", "x = {'a': [3, 4]}\nfor y in x['a']:\n    f(y)\nassert g() == x['a'][0]\n", "opposite", ""},
		{"given by a helper", "def check(x, want):\n    f(x, want)\n    assert g() == want['a']\ncase = {'in': 3, 'out': {'a': 17}}\ncheck(case['in'], case['out'])\n", "opposite", ""},
		{"printed", "for x, want in [(1, 17)]:\n    print(x, want)\n    assert f(x) == want\n", "value", "17"},
		{"compared twice", "x = {'a': 3}\ny = f(1)\nassert y['a'] == x['a']\nassert y == x, x\n", "value", "3"},
		{"named table", "cases = [(1, 17)]\ndef test():\n    for x, want in cases:\n        assert f(x) == want\n", "value", "17"},
		{"dictionary", "for x, want in {1: 17}.items():\n    assert f(x) == want\n", "value", "17"},
		{"parametrize", "@pytest.mark.parametrize('x,want', [(1, 17)])\ndef test(x, want):\n    assert f(x) == want\n", "value", "17"},
		{"parametrize with a call without arguments", "@pytest.mark.parametrize('x', [pytest.param(id='a'), dict()])\ndef test(x):\n    assert f(x) == 17\n", "value", "17"},
		{"parametrize with a call", "@pytest.mark.parametrize('want', [pow(2, 3)])\ndef test(want):\n    assert f(1) == want\n", "opposite", ""},
		{"assertEqual", "class T(TestCase):\n    def test(self):\n        self.assertEqual(f(x), 17)\n", "value", "17"},
		{"assertTrue", "class T(TestCase):\n    def test(self):\n        self.assertTrue(f(x))\n", "opposite", ""},
		{"raises", "def test():\n    with pytest.raises(ValueError):\n        f(x)\n", "opposite", ""},
		{"if raise", "if f(x) != 17:\n    raise AssertionError\n", "value", "17"},
		{"no literal", "assert f(g(x)) == x\n", "opposite", ""},
		{"tolerance", "assert abs(f(x) - 1.5) < 1e-6\n", "value", "1.5"},
		{"tolerance that hides a change", "assert abs(f(x) - 1.5) < 0.1\n", "opposite", ""},
		{"tolerance, denied", "assert not abs(f(x) - 1.5) < 1e-6\n", "opposite", ""},
		{"isclose", "assert math.isclose(f(x), 1.5)\n", "value", "1.5"},
		{"isclose within more", "assert math.isclose(f(x), 1.5, abs_tol=1)\n", "opposite", ""},
		{"beginning", "assert f(x).startswith('abc')\n", "value", "'abc'"},
		{"one of two beginnings", "assert f(x).startswith(('abc', 'def'))\n", "opposite", ""},
		{"list that the tests fill", "seen = []\nf(seen.append)\nassert seen == [17] and seen[-1] == 17\n", "value", "17"},
		{"lists that the tests fill", "a = []\nb = []\nf(a.append, b.append)\nassert a == b\n", "opposite", ""},
		{"list that the tests fill before", "a = [1]\nb = [2]\nassert a != f(b)\nassert a == b\n", "opposite", ""},
		{"tolerance of a table", "for x, want in [(1, 1.5)]:\n    assert abs(f(x) - want) < 1e-6\n", "value", "1.5"},
		{"approximately", "assert f(x) == pytest.approx(1.5)\n", "value", "1.5"},
		{"one of two", "assert f(x) in ([0, 1], [1, 0])\n", "opposite", ""},
		{"one or another", "assert f(x) == 3 or f(x) == -3\n", "opposite", ""},
		{"one or none", "assert f(x) is None or f(x) == 3\n", "opposite", ""},
		{"at most", "assert len(f(x)) <= 4\n", "opposite", ""},
		{"between", "assert 0 <= f(x) < 10\n", "opposite", ""},
		{"neither", "assert not (f(x) < 3 or f(x) > 8)\n", "opposite", ""},
		{"pattern", "import re\nassert re.match('a+', f(x))\n", "opposite", ""},
		{"assertIn", "class T(TestCase):\n    def test(self):\n        self.assertIn(f(x), [1, 2])\n", "opposite", ""},
		{"assertLess", "class T(TestCase):\n    def test(self):\n        self.assertLess(f(x), 3)\n", "opposite", ""},
		{"truth", "assert f(x)\n", "opposite", ""},
		{"not", "assert not f(x)\n", "opposite", ""},
		{"nothing of a candidate", "assert True, 'well'\n", "", ""},
		{"not equal", "assert f(x) != 3\n", "opposite", ""},
		{"exception that a loop expects", "for x in (1, 2):\n    try:\n        f(x)\n    except ValueError as e:  # a: b\n        continue\n    raise AssertionError\n", "opposite", "try:\n        f(x)\n    except ValueError as e:"},
		{"exception that a block expects", "try:\n    f(x)\n    assert False\nexcept ValueError:\n    pass\n", "opposite", ""},
		{"exception that a block may have", "try:\n    y = f(x)\nexcept ValueError:\n    y = None\n", "", ""},
		{"exception of the tests", "try:\n    open('x')\nexcept OSError:\n    pass\n", "", ""},
		{"a branch that a candidate chooses", "r = f(1)\nif isinstance(r, list):\n    assert len(r) < 4\nelif r:\n    assert r.x in (3, 4)\n", "", ""},
		{"a branch that a candidate does not choose", "if __name__ == '__main__':\n    assert f(1) < 4\n", "opposite", ""},
		{"text of an exception that a block may have", "try:\n    f(2)\nexcept ValueError as e:\n    assert 'abc' in str(e)\n", "", ""},
		{"text of an exception that a block has", "try:\n    f(2)\n    assert False\nexcept ValueError as e:\n    assert 'abc' in str(e)\n", "opposite", ""},
		{"two exceptions", "try:\n    f(x)\nexcept ValueError:\n    pass\nexcept KeyError:\n    pass\n", "", ""},
		{"denied over lines", "assert not (\n    f(x) and\n    f(y))\n", "opposite", ""},
		{"utf-8", "é = 1; assert f('é') == 17\n", "value", "17"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := contrast.File{Path: "t.py", Text: c.text}
			found, err := contrast.List(t.Context(), python, []contrast.File{file}, contrast.Options{})
			if err != nil || len(found.Broken) > 0 {
				t.Fatal(err, found)
			}
			var kinds []string
			for i, e := range found.Edits {
				if !slices.Contains(kinds, string(e.Kind)) {
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
			must.Equal(t, c.kinds, strings.Join(kinds, " "))
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

// TestListUnread: the listing names a file that the program cannot read.
func TestListUnread(t *testing.T) {
	whole := func(context.Context, []byte) ([]byte, error) {
		return []byte(`{"unread": ["t.py"], "edits": []}`), nil
	}
	found, err := contrast.List(t.Context(), whole, nil, contrast.Options{})
	if err != nil || !slices.Equal(found.Unread, []string{"t.py"}) {
		t.Errorf("%v %+v", err, found)
	}
	for _, reference := range []contrast.Try{nil, func(context.Context, ...contrast.Edit) (contrast.Outcome, error) { return contrast.Passed, nil }} {
		c := contrast.Without(found)
		if reference != nil {
			c, err = contrast.Calibrate(t.Context(), found, reference)
		}
		_, _, sum, also := c.Judge(t.Context(), 4, func(context.Context, ...contrast.Edit) (contrast.Outcome, error) { return contrast.Passed, nil })
		if err != nil || also != nil || !slices.Equal(sum.Unread, []string{"t.py"}) {
			t.Errorf("%v %v %+v", err, also, sum)
		}
	}
}

// endedSandbox is a sandbox in which every process ends the same way.
type endedSandbox struct {
	runtime.Sandbox
	exit runtime.Exit
}

func (s endedSandbox) Create(context.Context, runtime.Config) (runtime.Sandbox, error) { return s, nil }

func (s endedSandbox) Exec(context.Context, runtime.Process) (runtime.Exit, error) {
	return s.exit, nil
}

func (endedSandbox) Close(context.Context) error { return nil }

// TestInSandboxLimits: a limit that the program meets is not the interpreter's fault.
func TestInSandboxLimits(t *testing.T) {
	for _, c := range []struct {
		exit runtime.Exit
		want error
	}{
		{runtime.Exit{Reason: runtime.WallTime}, contrast.ErrLimit},
		{runtime.Exit{Reason: runtime.OutOfMemory}, contrast.ErrLimit},
		{runtime.Exit{Reason: runtime.PidsLimit}, contrast.ErrLimit},
		{runtime.Exit{Reason: runtime.Exited, Code: 1}, contrast.ErrPython},
		{runtime.Exit{Reason: runtime.Signaled}, contrast.ErrPython},
	} {
		_, err := contrast.InSandbox(endedSandbox{exit: c.exit}, runtime.Config{})(t.Context(), nil)
		if !errors.Is(err, c.want) || errors.Is(err, contrast.ErrPython) != (c.want == contrast.ErrPython) {
			t.Errorf("%s: %v", c.exit, err)
		}
	}
}

// TestEach: which test functions have changes, and what those of the first kind of each
// function replace.
func TestEach(t *testing.T) {
	for _, c := range []struct{ name, text, changed string }{
		{"functions", "def test_a():\n    assert f(1) == 11\nclass TestList:\n    def test_b(self):\n        def inner():\n            assert f(3) == 33\n        inner()\ndef helper(x):\n    assert f(x) == 9\n", "TestList::test_b: 33; test_a: 11"},
		{"helper", "class T(TestCase):\n    def check(self, x, want):\n        self.assertEqual(f(x), want)\n    def test_a(self):\n        self.check(1, 17)\n    def test_b(self):\n        w = 'abc'\n        self.check(2, want=w)\n    def test_c(self):\n        self.check(3, g(4))\n", "T::test_a: 17; T::test_b: 'abc'"},
		{"helper of a helper", "def outer(x, want):\n    inner(x, want)\ndef inner(x, want):\n    assert f(x) == want\n@pytest.mark.parametrize('x,want', [(1, 17)])\ndef test_a(x, want):\n    outer(x, want)\ndef test_b():\n    for x, want in [(1, 19)]:\n        outer(x, want)\n", "test_a: 17; test_b: 19"},
		{"helper with a tolerance", "def close(x, want):\n    assert abs(f(x) - want) < 1e-6\ndef test_a():\n    close(1, 1.5)\ndef test_b():\n    close(2, 2.5)\n", "test_a: 1.5; test_b: 2.5"},
		{"helper with a table", "def table(rows):\n    for x, want in rows:\n        assert f(x) == want\ndef test_a():\n    table([(1, 21)])\ndef test_b():\n    table([(1, 31)])\n", "test_a: 21; test_b: 31"},
		{"helper that asserts by its name", "class T(TestCase):\n    def assertSum(self, x, want):\n        self.assertEqual(f(x), want)\n    def test_a(self):\n        self.assertSum([5, 6], 11)\n", "T::test_a: 11"},
		{"helpers of two classes", "class A(TestCase):\n    def check(self, x, want):\n        self.assertEqual(f(x), want)\n    def test_a(self):\n        self.check(1, 17)\nclass B(TestCase):\n    def check(self, want, x):\n        self.assertEqual(f(x), want)\n    def test_b(self):\n        self.check(18, 2)\n", "A::test_a: 17; B::test_b: 18"},
		{"arguments that are not known", "def check(x, want):\n    assert f(x) == want\ndef test_a():\n    check(*row)\ndef test_b():\n    check(1, 17)\n", "test_b: 17"},
		{"helper without what is expected", "def check(x):\n    y = f(x)\n    assert not y.bad\ndef test_a():\n    check(1)\ndef test_b():\n    check(2)\ndef test_c():\n    assert f(3) == 33\n", "test_c: 33"},
		{"method without what is expected", "class T(TestCase):\n    def check(self, x):\n        self.twice(x)\n    def twice(self, x):\n        self.assertIsNone(f(x))\n    def test_a(self):\n        self.check(1)\n", ""},
		{"stand-in that asserts", "def fake(url):\n    assert url == 'abc'\ndef test_a(monkeypatch):\n    monkeypatch.setattr(m, 'send', fake)\n    assert save(1) == 17\n", "test_a: 17"},
		{"helper that only decides", "def same(x):\n    return f(x) == 3\ndef test_a():\n    assert not same(1)\n", ""},
		{"helper that calls itself", "def check(x, want):\n    assert f(x) == want\n    check(x, want)\ndef test_a():\n    check(1, 17)\n", "test_a: 17"},

		{"shared as an argument", "KEY = 17\ndef test_a():\n    assert f(1) == KEY\ndef test_b():\n    assert g(KEY) == 3\n", "test_a: 17; test_b: 3"},
		{"shared as a parameter", "KEY = 'abcdef'\ndef test_a():\n    assert f(1) == KEY\n@pytest.mark.parametrize('x', [TABLE[KEY]])\ndef test_b(x):\n    assert g(x) == 3\n", "test_a: KEY; test_b: 3"},
		{"shared as what is expected", "KEY = 17\ndef test_a():\n    assert f(1) == KEY\ndef test_b():\n    assert g(1) == KEY\n", "test_a: 17; test_b: 17"},
		{"shared table", "CASES = [(1, 17)]\ndef test_a():\n    for x, want in CASES:\n        assert f(x) == want\ndef test_b():\n    for x, want in CASES:\n        assert g(want) == x\n", "test_a: 17; test_b: 1"},
		{"not shared", "KEY = 17\ndef test_a():\n    assert f(1) == KEY\ndef test_b():\n    KEY = 2\n    assert g(KEY) == 3\n", "test_a: 17; test_b: 3"},

		{"several rows of one function", "@pytest.mark.parametrize('x,want', [(1, 17), (2, 18), (3, 19), (4, 20)])\ndef test_a(x, want):\n    assert f(x) == want\n", "test_a: 17, 18, 19, 20"},

		{"Django's page", "class T(TestCase):\n    def test_a(self):\n        self.assertContains(page, 'abc', 2)\n    def test_b(self):\n        self.assertRedirects(page, '/login')\n    def test_c(self):\n        self.assertNotContains(page, 'abc')\n", "T::test_b: '/login'"},
		{"warning", "import pytest\ndef test_a():\n    with pytest.warns(UserWarning):\n        f(1)\nclass T(TestCase):\n    def test_b(self):\n        with self.assertWarns(DeprecationWarning):\n            f(1)\n", ""},
		{"calls of a mock", "def test_a():\n    f(m)\n    m.assert_called_once_with(17)\ndef test_b():\n    f(m)\n    m.assert_called_with(x, key=y)\ndef test_c():\n    f(m)\n    m.assert_called_once()\ndef test_d():\n    f(m)\n    m.assert_not_called()\n", "test_a: 17"},
		{"fail", "import pytest\ndef test_a():\n    if f(1) != 17:\n        pytest.fail('no')\ndef test_b():\n    try:\n        f(1)\n        pytest.fail('no')\n    except ValueError:\n        pass\nclass T(TestCase):\n    def test_c(self):\n        if not f(1):\n            self.fail()\n", "test_a: 17"},
		{"text of an exception", "import pytest\ndef test_a():\n    with pytest.raises(ValueError, match='abc'):\n        f(1)\nclass T(TestCase):\n    def test_b(self):\n        msg = 'abc'\n        with self.assertRaisesMessage(ValueError, msg):\n            f(1)\n    def test_c(self):\n        self.assertRaisesRegex(ValueError, 'abc', f, 1)\n", ""},
		{"arguments of the candidate's", "class T(TestCase):\n    def test_a(self):\n        self.assertRaises(ValueError, f, kind='abc')\n    def test_b(self):\n        kind = 'abc'\n        with self.assertRaisesRegex(ValueError, kind):\n            f(kind)\n", ""},
		{"what a program left", "import subprocess, json\nfrom pathlib import Path\ndef test_a():\n    assert subprocess.check_output(['x', '1'], text=True) == 'abc'\ndef test_b():\n    assert Path('/x').read_text().strip() == 'def'\nclass T(TestCase):\n    def test_c(self):\n        self.assertEqual(json.load(open('/y')), 17)\n", "T::test_c: 17; test_a: 'abc'; test_b: 'def'"},
		{"pandas", "import pandas as pd\nfrom pandas.testing import assert_frame_equal\ndef test_a():\n    assert_frame_equal(f(1), pd.DataFrame([1]))\n", ""},
		{"functions that are handed over", "def test_a():\n    def seen(x):\n        assert x.value == 17\n    each([17], seen)\ndef test_b():\n    def check():\n        assert f(1) == 18\n    check()\ndef test_c():\n    @on('a')\n    def g(x):\n        assert x.value == 19\n    emit('a', 19)\ndef test_d():\n    class H:\n        def get(self, x):\n            assert x.value == 20\n    serve(H())\ndef test_e():\n    async def main():\n        assert await f(1) == 21\n    asyncio.run(main())\n", "test_b: 18; test_e: 21"},
		{"names of built-ins", "from calc import sum\nimport math\ndef test_a():\n    assert sum(1, 2) == 3\ndef test_b():\n    assert math.floor(1.5) == 1\ndef test_c():\n    assert len([1]) == 1\n", "test_a: 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			found, err := contrast.List(t.Context(), hostPython(t), []contrast.File{{Path: "t.py", Text: c.text}}, contrast.Options{Each: true})
			must.Do(t, err)
			changes := map[string][]string{} // by test, of the best kind
			kinds := map[string]contrast.Kind{}
			for _, e := range found.Edits {
				text := c.text[e.Start:e.End]
				if _, ok := kinds[e.Test]; !ok {
					kinds[e.Test] = e.Kind
				}
				if kinds[e.Test] == e.Kind && !slices.Contains(changes[e.Test], text) {
					changes[e.Test] = append(changes[e.Test], text)
				}
			}
			var got []string
			for _, test := range slices.Sorted(maps.Keys(changes)) {
				slices.Sort(changes[test])
				got = append(got, test+": "+strings.Join(changes[test], ", "))
			}
			if got := strings.Join(got, "; "); got != c.changed {
				t.Errorf("changed are %s, want %s", got, c.changed)
			}
		})
	}
}

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
		{"follows", contrast.Passed, func(contrast.Edit) contrast.Outcome { return contrast.Passed }, true, 1},
		{"elsewhere", contrast.Passed, func(contrast.Edit) contrast.Outcome { return contrast.FailedElsewhere }, true, 1},
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
			if err != nil || real != c.real || follows != c.follows || s.Followed != c.followed || real == contrast.Passed && !follows && s.Mutants != 4 {
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
	if _, err := s.Get(t.Context(), key, failing); err == nil {
		t.Error("no error")
	}
	for range 2 {
		for _, s := range []*contrast.Store{s, contrast.NewStore(dir)} {
			if c, err := s.Get(t.Context(), key, calibrate); err != nil || len(c.Edits) != 1 || c.Edits[0].Line != 3 || !c.Reference {
				t.Error(err, c)
			}
		}
	}
	if made != 1 {
		t.Errorf("made %d times", made)
	}
}

// TestStoreWaits: whoever waits for a calibration stops when its context is done.
func TestStoreWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, release, enough := contrast.NewStore(""), make(chan struct{}), errors.New("enough")
		go func() {
			_, _ = s.Get(t.Context(), "key", func() (c contrast.Calibration, err error) {
				<-release
				return c, nil
			})
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, enough)
		defer cancel()
		_, err := s.Get(ctx, "key", func() (c contrast.Calibration, err error) { return c, errors.New("made twice") })
		must.Is(t, err, enough)
		close(release)
	})
}

// TestForms: a changed literal keeps its form, its sign, its parity, its length and its letters.
func TestForms(t *testing.T) {
	for old, form := range map[string]string{
		"0xFF": "0x[A-F]{2}", "1_000": "[1-9]_[0-9]{3}", "17": "[1-9][13579]", "-4": "-[2468]", "1.50": "[1-9]\\.50", "0.05": "0\\.0[1-9]",
		"'Hello-World'": "'(?i)([hello]{5}-[world]{5}|World-Hello)'", "b'ab1'": "b'[a-z]{2}[1-9]'", "True": "False",
		"[1, 1, 3]": `[1357]|\[1, 3, 1\]`, "17, 'not 17?'": `(15, 'not 15|19, 'not 19|13, 'not 13|37, 'not 37|27, 'not 27|21, 'not 21)\?'`, "17  # not 175": "[1-9][13579]",
	} {
		for seed := range 4 {
			file := contrast.File{Path: "t.py", Text: "def test_a():\n    assert f(1) == " + old + "\n"}
			found, err := contrast.List(t.Context(), hostPython(t), []contrast.File{file}, contrast.Options{Each: true, Seed: fmt.Sprint(seed)})
			if err != nil || len(found.Edits) == 0 {
				t.Fatal(err, found)
			}
			for _, e := range found.Edits {
				if !regexp.MustCompile("^(?:" + form + ")$").MatchString(e.New) {
					t.Errorf("%s becomes %s", old, e.New)
				}
			}
		}
	}
}

// TestTexts: a text becomes one that another assertion expects, as that has it, so that neither spelling nor quotes show
// that it has changed.
func TestTexts(t *testing.T) {
	file := contrast.File{Path: "t.py", Text: "def test_a():\n    assert f(7) == \"seven\"\n    assert f(15) == \"fifteen\"\n    assert f(1) == ['one']\n"}
	found, err := contrast.List(t.Context(), hostPython(t), []contrast.File{file}, contrast.Options{Each: true})
	must.Do(t, err)
	var got []string
	for _, e := range found.Edits {
		if old := file.Text[e.Start:e.End]; old != "'one'" {
			got = append(got, old+" to "+e.New)
		}
	}
	slices.Sort(got)
	if want := []string{`"fifteen" to "seven"`, `"seven" to "fifteen"`}; !slices.Equal(got, want) {
		t.Errorf("changed are %q, want %q", got, want)
	}
}

// TestTextsAlike: a text does not become one that a comparison may take for the same.
func TestTextsAlike(t *testing.T) {
	file := contrast.File{Path: "t.py", Text: "def test_a(self):\n    self.assertJSONEqual(f(1), '{\"a\": 1, \"b\": 2}')\n    self.assertJSONEqual(f(2), '{\"b\":2,\"a\":1}')\n"}
	found, err := contrast.List(t.Context(), hostPython(t), []contrast.File{file}, contrast.Options{Each: true})
	must.Do(t, err)
	for _, e := range found.Edits {
		if strings.Count(file.Text, e.New) > 0 {
			t.Errorf("%s became %s", file.Text[e.Start:e.End], e.New)
		}
	}
}

// TestListLarge: twice as many tests that expect texts, or values of one name, take about twice as many calls.
func TestListLarge(t *testing.T) {
	tests := func(n int) (text string) {
		for i := range n {
			text += fmt.Sprintf("def test_%d():\n    x = {'in': %d, 'out': 'word %d'}\n    assert f(x['in']) == x['out']\n", i, i, i)
		}
		return text
	}
	names := func(n int) string {
		text := "def test_a():\n"
		for i := range n {
			text += fmt.Sprintf("    r = f(%d)\n    r = r['a']\n    assert r['b'] == 'word %d'\n", i, i)
		}
		return text
	}
	calls := func(text string) (n int) {
		var counted bytes.Buffer
		python := hostPythonRuns(t, countCalls+contrast.Program, &counted)
		found, err := contrast.List(t.Context(), python, []contrast.File{{Path: "t.py", Text: text}}, contrast.Options{Each: true})
		must.Do(t, err)
		if len(found.Edits) < 20 {
			t.Errorf("%d edits", len(found.Edits))
		}
		n, err = strconv.Atoi(counted.String())
		must.Do(t, err)
		return n
	}
	if once, twice := calls(tests(100)), calls(tests(200)); twice > once*5/2 {
		t.Errorf("%d calls, and %d for twice as many tests", once, twice)
	}
	if once, twice := calls(names(20)), calls(names(40)); twice > once*5/2 {
		t.Errorf("%d calls, and %d for twice as many values", once, twice)
	}
}

// countCalls makes a program write the number of its calls to standard error when it ends.
const countCalls = `import atexit, sys
calls = 0
def count(*_):
    global calls
    calls += 1
atexit.register(lambda: sys.stderr.write(str(calls)))
sys.setprofile(count)
`

// TestCanary: every test of a file fails where it ends, and only there.
func TestCanary(t *testing.T) {
	const text = "import unittest\nran = []\ndef helper(): pass\ndef test_a():\n    ran.append(1)  # a comment\nclass T(unittest.TestCase):\n    def test_b(self): ran.append(2)\n    async def test_c(self):\n        if ran:\n            ran.append(3)\ndef test_d():\n    def inner():\n        return 4\n    for _ in range(2):\n        try:\n            ran.append(inner()); return\n        except OSError: pass\n    assert False\n"
	file := contrast.File{Path: "t.py", Text: text}
	found, err := contrast.List(t.Context(), hostPython(t), []contrast.File{file, {Path: "u.py", Text: "x = 1"}}, contrast.Options{Each: true})
	must.Do(t, err)
	broken, err := contrast.Apply(file, found.Canary...)
	must.Do(t, err)
	broken += "\nimport asyncio\nfor test in (test_a, T('test_b').test_b, lambda: asyncio.run(T('test_c').test_c()), test_d):\n    try:\n        test()\n    except AssertionError:\n        continue\n    raise SystemExit('it passes')\nhelper()\nassert ran == [1, 2, 3, 4]\n"
	if out, err := exec.Command("python3", "-c", broken).CombinedOutput(); err != nil {
		t.Errorf("%v: %s\n%s", err, out, broken)
	}
	program := contrast.File{Path: "p.py", Text: "\"\"\"A program.\"\"\"\nfrom __future__ import annotations\nimport sys\nsys.exit(0)\n"}
	found, err = contrast.List(t.Context(), hostPython(t), []contrast.File{program, {Path: "u.py", Text: "x = 1"}}, contrast.Options{Each: true})
	must.Do(t, err)
	broken, err = contrast.Apply(program, found.Canary...)
	must.Do(t, err)
	if out, err := exec.Command("python3", "-c", broken).CombinedOutput(); err == nil || len(out) > 0 {
		t.Errorf("a program that ends itself succeeds, or does not run: %s\n%s", out, broken)
	}
	if at := found.Canary[len(found.Canary)-1]; at.Path != "u.py" || at.Start != len("x = 1") {
		t.Errorf("%+v", at)
	}
}
