package contrast_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/securebench/sbench/internal/test/filetest"
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

var update = flag.Bool("update", false, "write the golden files anew")

// prelude matches what declares the functions of blind tests.
var prelude = regexp.MustCompile(`(?m)^_sbench_ask = .*\['ask'\](?:; |\n)`)

// TestBlind: what the tests in testdata/blind.txtar ask when they are blind, and what is right.
func TestBlind(t *testing.T) {
	path := must.Abs(t, filepath.Join("testdata", "blind.txtar"))
	archive, err := txtar.ParseFile(path)
	must.Do(t, err)
	texts, now := filetest.Archive(t, path), txtar.Archive{Comment: archive.Comment}
	for _, f := range archive.Files {
		name, kind, _ := strings.Cut(f.Name, "/")
		if kind == "blind.py" || kind == "right" {
			continue
		}
		if now.Files = append(now.Files, f); kind == "options" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			var o contrast.Options
			must.Do(t, json.Unmarshal([]byte(cmp.Or(texts[name+"/options"], "{}")), &o))
			found, err := contrast.List(t.Context(), hostPython(t), []contrast.File{{Path: "t.py", Text: string(f.Data)}}, o)
			if err != nil || len(found.Broken)+len(found.Unread) > 0 {
				t.Fatal(err, found)
			}
			blind := prelude.ReplaceAllString(found.Files[0].Text, "")
			for _, got := range []txtar.File{{Name: name + "/blind.py", Data: []byte(blind)}, {Name: name + "/right", Data: []byte(right(found.Questions))}} {
				if now.Files = append(now.Files, got); !*update {
					must.Equal(t, texts[got.Name], string(got.Data))
				}
			}
		})
	}
	if *update {
		must.Do(t, os.WriteFile(path, txtar.Format(&now), 0o644))
	}
}

// right says in a line of text each what the answers to questions have to be.
func right(questions []contrast.Question) (text string) {
	for _, q := range questions {
		text += fmt.Sprintf("%d %s", q.ID, cmp.Or(strings.Join(q.Expected, " or "), "as the reference"))
		if len(q.Raises) > 0 {
			text = fmt.Sprintf("%sraises %s", strings.TrimSuffix(text, "as the reference"), strings.Join(q.Raises, " or "))
		}
		if q.Near != [2]float64{} {
			text += fmt.Sprintf(", near %g %g", q.Near[0], q.Near[1])
		}
		if !slices.Equal(q.Told, []int{q.Line}) {
			text += fmt.Sprintf(", told at %d", q.Told)
		}
		if q.Loose {
			text += ", loose"
		}
		if q.Optional {
			text += ", optional"
		}
		if q.Weak {
			text += ", weak"
		}
		text += "\n"
	}
	return text
}

// TestBlindRuns: blind tests note what they are answered, also by exceptions, and pass.
func TestBlindRuns(t *testing.T) {
	const text = `"""A program."""
from __future__ import annotations
import unittest, weakref
from unittest import mock
def f(x):
    return 2 * x + "\udc80" * 0
def g(x):
    return {17: x}[x]
assert g(17) == 3
assert f("é") == "a"
assert f(1) == 2
try:
    g(1)
    assert False
except KeyError:
    pass
class Denied(unittest.SkipTest): pass
deny = lambda: (_ for _ in ()).throw(Denied())
class T(unittest.TestCase):
    def test_b(self):
        deny()
        raise SystemExit
    def test_a(self):
        with self.subTest():
            self.assertRaises(ValueError, g, 2)
        with self.assertRaises(ValueError):
            g(17)
        with mock.patch("hashlib.sha256"), mock.patch("os.getpid", None), mock.patch("json.dumps"):
            self.assertEqual(f("x"), "y")
        gone = weakref.proxy(type("Gone", (), {})())
        self.assertRaises(ReferenceError, getattr, gone, "x")
        self.assertEqual([g(17)] * 3000, [])
unittest.main()
`
	answers := filepath.Join(t.TempDir(), "answers")
	must.Do(t, os.WriteFile(answers, nil, 0o600))
	found, err := contrast.List(t.Context(), hostPython(t), []contrast.File{{Path: "t.py", Text: text}}, contrast.Options{Answers: answers, Names: []string{"f", "g"}})
	must.Do(t, err)
	if out, err := exec.Command("python3", "-c", found.Files[0].Text).CombinedOutput(); err != nil {
		t.Errorf("%v: %s\n%s", err, out, found.Files[0].Text)
	}
	noted, err := os.ReadFile(answers)
	must.Do(t, err)
	const key, kind = "raised KeyError LookupError Exception BaseException object", "raised TypeError Exception BaseException object"
	const gone = "raised ReferenceError Exception BaseException object"
	long := fmt.Sprintf("%x", sha256.Sum256([]byte("["+strings.Repeat("0x11,", 2999)+"0x11]")))
	want := contrast.Answers{1: {"0x11"}, 2: {`"\u00e9\u00e9"`}, 3: {kind}, 4: {key}, 6: {"0x11"}, 7: {gone}, 8: {long}, 9: {key}, 10: {`"xx"`}}
	must.Equal(t, want, contrast.ParseAnswers("not an answer\n"+string(noted)))
}

// TestPlain: values that are equal have the same text, and no others have.
func TestPlain(t *testing.T) {
	const program = `import json, sys
from array import array
from collections import Counter, OrderedDict, deque, namedtuple
from collections.abc import Mapping, Set
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
Pair = namedtuple("Pair", "a b")
class Text(str):
    def __str__(self): return "other"
    __repr__ = __str__
class List(list):
    def __iter__(self): return iter([9])
class Dict(dict):
    def __iter__(self): return iter([9])
    def items(self): return [(9, 9)]
class Color(str, Enum): RED = "red"
class Number(IntEnum): ONE = 1
class Mode(Enum): ON, OFF = 1, 2
class Box:
    def __init__(self, *items): self.items = items
    def __eq__(self, other): return self.items == other
    def __iter__(self): return iter(self.items)
class Edges(Set, Mapping):
    def __len__(self): return 2
    def __iter__(self): return iter([1, 2])
    def __contains__(self, key): return key in (1, 2)
    def __getitem__(self, key): return 0
class Bare: pass
class Approx(Bare):
    __module__ = "_pytest.python_api"
    def __eq__(self, other): return True
class Real(float):
    def __eq__(self, other): return False
    def __float__(self): return 7.0
class Wild(str):
    def __eq__(self, other): return True
class Sly(int):
    def __index__(self): return 7
    def __repr__(self): return "7"
exec(sys.argv[1])
print(json.dumps([[answer(eval(e), how) for e in values] for how, *values in json.loads(sys.argv[2])]))
`
	groups := [][]string{ // what counts, and values that are equal
		{"", "1", "1.0", "True", "Decimal(1)", "Decimal('1.0')", "Fraction(1)", "1+0j", "Number.ONE", "Sly(1)"},
		{"", "0", "-0.0", "False", "0j"},
		{"", "0.5", "Decimal('0.50')", "Fraction(1, 2)", "Real(0.5)"},
		{"", "0.1"}, {"", "Decimal('0.1')", "Fraction(1, 10)"}, {"", "float('nan')"}, {"", "float('inf')"}, {"", "10 ** 400"}, {"", "2j", "-(-2j)", "complex(-0.0, 2)"}, {"", "-2j", "0-2j"},
		{"", "'red'", "Text('red')", "Color.RED"}, {"", "'1'"}, {"", "b'red'", "bytearray(b'red')", "memoryview(b'red')"}, {"", "None"}, {"", "'None'"},
		{"", "[1, 2]", "List([1.0, 2])", "deque([1, 2])", "Box(1, 2)"}, {"", "(1, 2)", "Pair(1, 2)"}, {"", "[2, 1]"}, {"", "{1, 2}", "frozenset([2, 1.0])", "{1: 0, 2: 0}.keys()", "Edges()"},
		{"", "{'a': 1, 'b': 2}", "OrderedDict(b=2, a=1.0)", "Counter('abb')", "Dict(a=1, b=2)"}, {"", "{}", "Counter()"}, {"", "[]"}, {"", "()"}, {"", "set()"},
		{"", "object()", "[object()]", "{1: object()}"}, {"", "Mode.ON"}, {"", "Mode.OFF"}, {"", "Mode"}, {"", "KeyError"}, {"", "'a' * 5000"}, {"", "'a' * 5001"}, {"", "'\\udc80'"},
		{"close", "[1.5, 2.5]", "(1.5, 2.5)"}, {"close", "1e16"}, {"truth", "[0]", "1"},
		{"equal", "(1, 2)", "(Wild('a'), 'b')", "('b', Wild('a'))", "(Wild(), [])", "([Wild('a')], ['b'])"}, {"equal", "(1, True)", "(Wild('a'), 'a')", "(Box(1), (1,))", "(Number, Number)"},
		{"solid", "{1: (2.5, 'a'), None: [Sly(1)]}", "[OrderedDict(), Decimal(1), Mapping]", "Number.ONE", "Bare()", "Approx()"}, {"solid", "[Box(1)]", "{1: (2, Box(1))}", "List()"},
		{"sorted", "['b', 'a', 1]", "(1, 'a', 'b')"}, {"list", "(7, 8)", "[7, 8]"},
	}
	request, err := json.Marshal(groups)
	must.Do(t, err)
	hostPython(t)
	out, err := exec.Command("python3", "-c", program, contrast.Ask, string(request)).Output()
	var answers [][]string
	must.Do(t, errors.Join(err, json.Unmarshal(out, &answers)))
	first := map[string]int{}
	for i, same := range answers {
		for j, answer := range same {
			if answer != same[0] || len(answer) > 4000 {
				t.Errorf("%s is %.100s, and %s is %.100s", groups[i][1], same[0], groups[i][j+1], answer)
			}
		}
		if before, found := first[same[0]]; found && groups[i][0] == groups[before][0] {
			t.Errorf("%s and %s are %.100s", groups[before][1], groups[i][1], same[0])
		}
		first[same[0]] = i
	}
}

// TestWrong: what a candidate has to answer, and which answers are wrong.
func TestWrong(t *testing.T) {
	question := func(expected ...string) contrast.Question { return contrast.Question{ID: 1, Expected: expected} }
	near, optional, weak, loose := question("1.5", "2.5"), question("0x1"), question("0x1"), question("0x1", "0x2")
	near.Near, optional.Optional, weak.Weak, loose.Loose = [2]float64{0.01, 0}, true, true, true
	relative := question("1.5")
	relative.Near[1] = 1e-6
	raises := contrast.Question{ID: 1, Raises: []string{"LookupError"}}
	const key = "raised KeyError LookupError Exception"
	for _, c := range []struct {
		name                  string
		question              contrast.Question
		one, other, candidate string // answers of the reference solution in two runs, and the candidate's
		want                  string // without a reference, and with one: - is not asked
	}{
		{"right", question("0x1"), "0x1", "0x1", "0x1", "right right"},
		{"wrong", question("0x1"), "0x1", "0x1", "0x2", "wrong wrong"},
		{"not answered", question("0x1"), "0x1", "0x1", "", "- wrong"},
		{"fewer answers", question("0x1", "0x2"), "0x1,0x2", "0x1,0x2", "0x1", "right wrong"},
		{"another order", question("0x1", "0x2"), "0x1,0x2", "0x1,0x2", "0x2,0x1", "right wrong"},
		{"an order that varies", question("0x1", "0x2"), "0x1,0x2", "0x2,0x1", "0x2,0x1", "right right"},
		{"an order that the candidate chooses", loose, "0x1,0x2", "0x1,0x2", "0x2,0x1", "right right"},
		{"as often as one wants", question("0x1"), "0x1,0x1", "0x1", "0x1,0x1,0x1", "right right"},
		{"varies", question(), "0x1", "0x2", "0x1", "- -"},
		{"only the reference tells", question(), "0x1", "0x1", "0x2", "- wrong"},
		{"the reference is wrong", question("0x1"), "0x2", "0x2", "0x2", "wrong -"},
		{"no plain data", question(), "!f", "!f", "0x2", "- -"},
		{"near", near, "1.5,2.5", "1.5,2.5", "1.51,2.49", "right right"},
		{"nearer to the reference's than to the right one", near, "1.509,2.5", "1.509,2.5", "1.512,2.5", "wrong wrong"},
		{"not near", near, "1.5,2.5", "1.5,2.5", "1.6,2.5", "wrong wrong"},
		{"near in proportion", relative, "1.5", "1.5", "1.500001", "right right"},
		{"near to nothing", relative, "1.5", "1.5", "1e999", "wrong wrong"},
		{"another that is expected", near, "1.5,2.5", "1.5,2.5", "2.5,2.5", "right wrong"},
		{"raises", raises, key, key, "raised IndexError LookupError Exception", "right right"},
		{"raises another", raises, key, key, "raised ValueError Exception", "wrong wrong"},
		{"raises nothing", raises, key, key, "None", "wrong wrong"},
		{"raises, not asked", raises, key, key, "", "- wrong"},
		{"raises where it should not", question("0x1"), "0x1", "0x1", key, "wrong wrong"},
		{"weak", weak, "0x1", "0x1", "0x0", "- -"},
		{"optional, not asked", optional, "0x1", "0x1", "", "- right"},
		{"optional, wrong", optional, "0x1", "0x1", "0x2", "wrong wrong"},
	} {
		t.Run(c.name, func(t *testing.T) {
			answers := func(texts string) contrast.Answers {
				return contrast.ParseAnswers(regexp.MustCompile(`([^,]+),?`).ReplaceAllString(texts, "1 $1\n"))
			}
			var got []string
			for _, reference := range []bool{false, true} {
				calibration := contrast.Calibration{Listing: contrast.Listing{Questions: []contrast.Question{c.question}}, Reference: reference}
				if reference {
					calibration.Learn(answers(c.one), answers(c.other))
				}
				got = append(got, [][]string{{"-"}, {"right", "wrong"}}[len(calibration.Asked(answers(c.candidate)))][len(calibration.Wrong(answers(c.candidate)))])
			}
			must.Equal(t, c.want, strings.Join(got, " "))
		})
	}
}

// TestUnasked: assertions that stay tell a candidate what they expect, and so do questions to which the reference solution's
// answers do not count.
func TestUnasked(t *testing.T) {
	place := func(line int) contrast.Place { return contrast.Place{Path: "t.py", Line: line} }
	for _, c := range []struct {
		name, one, other string // answers of the reference solution in two runs
		hidden           bool
	}{
		{"asked", "1 0x1\n2 yes\n-2 yes", "1 0x1\n2 yes\n-2 yes", true},
		{"not met", "1 0x1", "1 0x1", true},
		{"an object", "1 0x1\n2 !TypeError", "1 0x1\n2 !TypeError", false},
		{"another answer in each run", "1 0x1\n2 yes", "1 0x1\n2 no", false},
		{"once in two runs", "1 0x1\n2 yes", "1 0x1", false},
		{"the candidate's ==", "1 0x1\n2 yes\n-2 no", "1 0x1\n2 yes\n-2 no", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			listing := contrast.Listing{Questions: []contrast.Question{{ID: 1, Place: place(1), Expected: []string{"0x1"}}, {ID: 2, Place: place(2), Expected: []string{"yes"}, Weak: true}}}
			for _, stays := range []bool{false, true} {
				if stays {
					listing.Stays = []contrast.Place{place(3)}
				}
				calibration := contrast.Calibration{Listing: listing, Reference: true}
				calibration.Learn(contrast.ParseAnswers(c.one), contrast.ParseAnswers(c.other))
				if hidden := c.hidden && !stays; calibration.Hidden() != hidden {
					t.Errorf("unasked %v", calibration.Unasked)
				}
				var want []string
				if stays {
					want = append(want, "t.py:3")
				}
				if !c.hidden {
					want = append(want, "t.py:2")
				}
				sum, _ := calibration.Judge(nil)
				must.Equal(t, want, sum.Places)
				must.Equal(t, len(want), sum.Unasked)
			}
		})
	}
}

// TestUnaskedOnce: a place counts once, and those that stay are as they were.
func TestUnaskedOnce(t *testing.T) {
	place := contrast.Place{Path: "t.py", Line: 1}
	stays := append(make([]contrast.Place, 0, 4), place)
	c := contrast.Calibration{Listing: contrast.Listing{Questions: []contrast.Question{{ID: 1, Place: place}, {ID: 2, Place: contrast.Place{Path: "t.py", Line: 2}}}, Stays: stays}}
	c.Learn(contrast.ParseAnswers("1 !TypeError\n2 !TypeError"), contrast.ParseAnswers("1 !TypeError\n2 !TypeError"))
	sum, _ := c.Judge(nil)
	must.Equal(t, []string{"t.py:1", "t.py:2"}, sum.Places)
	c.Unasked[0].Line = 3
	must.Equal(t, 1, c.Stays[0].Line)
}

// TestAskMocks: how a candidate gives an argument to a mock that has a signature does not count.
func TestAskMocks(t *testing.T) {
	const program = `import sys
from unittest import mock
exec(sys.argv[1])
class T:
    def m(self, a, b): pass
for call in ("m(1, 2)", "m(1, b=2)", "m(b=2, a=1)", "m(1, 3)"):
    for m in (mock.create_autospec(lambda a, b: None), mock.create_autospec(T, instance=True).m):
        eval(call)
        print(answer(m, "call_args"), answer(m, "call_args_list"), answer(m, "call_count"))
`
	out, err := exec.Command("python3", "-c", program, contrast.Ask).Output()
	must.Do(t, err)
	lines := strings.Split(string(out), "\n")
	for i, line := range lines[:8] {
		if strings.Contains(line, "!") || (line == lines[i%2]) != (i < 6) {
			t.Errorf("%s", out)
		}
	}
}

// TestAskNames: an exception has the names of its classes and those that the test has for them.
func TestAskNames(t *testing.T) {
	const program = `import sys, types
exec(sys.argv[1])
shop, lines = types.ModuleType("shop"), []
shop.Broken = Alias = type("Other", (OSError,), {})
EITHER = Alias, KeyError
write = lines.append
with asking(1):
    raise Alias
print(lines[0].decode())
`
	out, err := exec.Command("python3", "-c", program, contrast.Ask).Output()
	must.Do(t, err)
	for _, name := range []string{"Other", "OSError", "IOError", "Alias", "Broken", "EITHER"} {
		if !slices.Contains(strings.Fields(string(out)), name) {
			t.Errorf("%s is not in %s", name, out)
		}
	}
}

// TestAskTest: the row of a parametrized test, which may be named by what the candidate gives, does not count.
func TestAskTest(t *testing.T) {
	const program = `import os, sys
exec(sys.argv[1])
write = lambda line: print(line.decode(), end="")
for test in "t.py::test_a[<U at 0x7f02a1>-1] (call)", "t.py::test_a[V(1) [] (call)", "t.py::test_b[V(1)] (call)":
    os.environ["PYTEST_CURRENT_TEST"] = test
    ask(1, 17)
`
	hostPython(t)
	out, err := exec.Command("python3", "-c", program, contrast.Ask).Output()
	must.Do(t, err)
	if lines := strings.Split(string(out), "\n"); len(lines) != 4 || lines[0] != lines[1] || lines[1] == lines[2] {
		t.Errorf("%s", out)
	}
}

// TestParseAnswers: in which order the tests run does not count, but the order of a test's answers does.
func TestParseAnswers(t *testing.T) {
	one, other := "1/a 0x1\n2 0x5\n1/b 0x2\n1/b 0x0\nx\n", "1/b 0x2\n1/b 0x0\n2 0x5\n1/a 0x1\n"
	must.Equal(t, contrast.Answers{1: {"0x1", "0x2", "0x0"}, 2: {"0x5"}}, contrast.ParseAnswers(one))
	must.Equal(t, contrast.ParseAnswers(one), contrast.ParseAnswers(other))
	var flood strings.Builder
	for i := range 2 << 20 {
		fmt.Fprintf(&flood, "%d \n", i)
	}
	if n := len(contrast.ParseAnswers(flood.String())); n > 1<<20 {
		t.Errorf("a flood of %d answers", n)
	}
}

// TestManyNumbers: an answer with very many numbers, none of them wrong, costs no more than to read it.
func TestManyNumbers(t *testing.T) {
	q := contrast.Question{ID: 1, Expected: []string{"-1.5"}, Near: [2]float64{0.1, 0}}
	c := contrast.Calibration{Listing: contrast.Listing{Questions: []contrast.Question{q}}}
	answers := contrast.Answers{1: {strings.Repeat("-1", 2<<20)}}
	var before, after goruntime.MemStats
	goruntime.ReadMemStats(&before)
	wrong := c.Wrong(answers)
	goruntime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; len(wrong) != 1 || allocated > 64<<20 {
		t.Errorf("%d wrong, %d bytes allocated", len(wrong), allocated)
	}
}

func TestListBroken(t *testing.T) {
	files := []contrast.File{{Path: "a.py", Text: "assert f( == 1"}, {Path: "b.py", Text: "assert f() == 1"}}
	found, err := contrast.List(t.Context(), hostPython(t), files, contrast.Options{})
	if err != nil || !slices.Equal(found.Broken, []string{"a.py"}) || len(found.Questions) != 1 {
		t.Errorf("%v %+v", err, found)
	}
}

// TestListUnread: the listing names a file at which the program fails, and has the questions of the others.
func TestListUnread(t *testing.T) {
	files := []contrast.File{{Path: "a.py", Text: "x = 1\n" + strings.Repeat("assert f(1) == 1\n", 2)}, {Path: "b.py", Text: "assert f() == 1\n"}}
	failing := strings.Replace(contrast.Program, "        text, at = b\"\", 0\n", "        assert self.path != 'a.py'\n        text, at = b\"\", 0\n", 1)
	found, err := contrast.List(t.Context(), hostPythonRuns(t, failing, nil), files, contrast.Options{})
	if err != nil || !slices.Equal(found.Unread, []string{"a.py"}) || len(found.Questions) != 1 || found.Files[0] != files[0] {
		t.Errorf("%v %+v", err, found)
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

// TestStore: a calibration is made once, and the next store finds it.
func TestStore(t *testing.T) {
	dir, made := t.TempDir(), 0
	calibrate := func() (contrast.Calibration, error) {
		made++
		return contrast.Calibration{Reference: true, Want: map[int]contrast.Want{3: {}}}, nil
	}
	failing := func() (contrast.Calibration, error) { return contrast.Calibration{}, errors.New("no sandbox") }
	key := contrast.Key("sha256:1", "tests")
	if key == contrast.Key("sha256:2", "tests") || key == contrast.Key("sha256:1", "test", "s") {
		t.Error("keys that are the same")
	}
	ask := contrast.Ask
	contrast.Ask += "#"
	if key == contrast.Key("sha256:1", "tests") {
		t.Error("answers that are noted in another way have the same key")
	}
	contrast.Ask = ask
	s := contrast.NewStore(dir)
	if _, err := s.Get(t.Context(), key, failing); err == nil {
		t.Error("no error")
	}
	for range 2 {
		for _, s := range []*contrast.Store{s, contrast.NewStore(dir)} {
			if c, err := s.Get(t.Context(), key, calibrate); err != nil || len(c.Want) != 1 || !c.Reference {
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

// TestListLarge: twice as much of what tests have takes about twice as many steps.
func TestListLarge(t *testing.T) {
	repeat := func(once string) func(n int) string {
		return func(n int) (text string) {
			for i := range n {
				text += strings.ReplaceAll(once, "N", strconv.Itoa(i))
			}
			return text
		}
	}
	steps := func(text string) int {
		var counted bytes.Buffer
		found, err := contrast.List(t.Context(), hostPythonRuns(t, countSteps+contrast.Program, &counted), []contrast.File{{Path: "t.py", Text: text}}, contrast.Options{})
		must.Do(t, err)
		if len(found.Questions) == 0 || len(found.Unread) > 0 {
			t.Errorf("%d questions, unread %q", len(found.Questions), found.Unread)
		}
		n, err := strconv.Atoi(counted.String())
		must.Do(t, err)
		return n
	}
	for name, text := range map[string]func(n int) string{
		"tests": repeat("def test_N():\n    x = {'in': N, 'out': 'word N'}\n    assert f(x['in']) == x['out']\n"),
		"values": func(n int) string {
			return "def test_a():\n" + repeat("    r = f(N)\n    r = r['a']\n    assert r['b'] == 'word N'\n")(n)
		},
		"rows": func(n int) string {
			return "def test_a():\n    for x, want in [" + repeat("(N, 'word N'),")(4*n) + "]:\n        assert f(x) == want\n"
		},
		"computed": func(n int) string {
			return "def test_a():\n    x0 = 1\n" + repeat("    xN = x0 + 2\n    x0 = xN + xN\n    assert f(N) == str(x0)\n")(n)
		},
		"models":         repeat("def mN(x):\n    return x + 1\ndef test_N():\n    assert f(N) == mN(N)\n"),
		"models in turn": repeat("def mN(x):\n    return mN(x) + m0(x)\ndef test_N():\n    assert f(N) == mN(N)\n"),
		"tries": func(n int) string {
			return "def test_a():\n" + repeat("    try:\n        assert f(N) == N\n    except ValueError:\n        pass\n")(n)
		},
		"helpers": func(n int) string {
			return "def check(x, want):\n    assert f(x) == want\n" + repeat("def test_N():\n    check(N, 'word N')\n")(n)
		},
	} {
		t.Run(name, func(t *testing.T) {
			if once, twice := steps(text(25)), steps(text(50)); twice > once*5/2 {
				t.Errorf("%d steps, and %d for twice as much", once, twice)
			}
		})
	}
}

// countSteps makes a program write the number of its steps to standard error when it ends.
const countSteps = `import atexit, sys
steps = 0
def count(*_):
    global steps
    steps += 1
    return count
atexit.register(lambda: sys.stderr.write(str(steps)))
sys.settrace(count)
`

// TestCanary: every test of a file fails where it ends, and only there.
func TestCanary(t *testing.T) {
	const text = "import unittest\nran = []\ndef helper(): pass\ndef test_a():\n    ran.append(1)  # a comment\nclass T(unittest.TestCase):\n    def test_b(self): ran.append(2)\n    async def test_c(self):\n        if ran:\n            ran.append(3)\ndef test_d():\n    def inner():\n        return 4\n    for _ in range(2):\n        try:\n            ran.append(inner()); return\n        except OSError: pass\n    assert False\n"
	file := contrast.File{Path: "t.py", Text: text}
	found, err := contrast.List(t.Context(), hostPython(t), []contrast.File{file, {Path: "u.py", Text: "x = 1"}}, contrast.Options{})
	must.Do(t, err)
	broken, err := contrast.Apply(file, found.Canary...)
	must.Do(t, err)
	broken += "\nimport asyncio\nfor test in (test_a, T('test_b').test_b, lambda: asyncio.run(T('test_c').test_c()), test_d):\n    try:\n        test()\n    except AssertionError:\n        continue\n    raise SystemExit('it passes')\nhelper()\nassert ran == [1, 2, 3, 4]\n"
	if out, err := exec.Command("python3", "-c", broken).CombinedOutput(); err != nil {
		t.Errorf("%v: %s\n%s", err, out, broken)
	}
	program := contrast.File{Path: "p.py", Text: "\"\"\"A program.\"\"\"\nfrom __future__ import annotations\nimport sys\nsys.exit(0)\n"}
	found, err = contrast.List(t.Context(), hostPython(t), []contrast.File{program, {Path: "u.py", Text: "x = 1"}}, contrast.Options{})
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
