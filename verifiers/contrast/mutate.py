"""Lists changes of what Python tests expect.

Reads {"files": [{"path", "text"}], "seed", "places", "variants", "each", "weak", "names"} as JSON
and writes {"edits", "broken", "unread"}. An edit replaces the bytes from start to end of the
file at its path by new, on as many lines. Edits of one place change one assertion, in other
ways. Its "users" are tests, separated by spaces, that use what is changed and may fail, too;
"*" is all of the file. "broken" are paths of files that do not compile. "unread" are assertions
in a form that this program fails at, as "tests.py:7", or paths of files.
"""

import ast
import builtins
import collections
import itertools
import json
import random
import sys

EQUAL = {"assertEqual", "assertEquals", "assertListEqual", "assertDictEqual", "assertTupleEqual", "assertSetEqual",
         "assertSequenceEqual", "assertMultiLineEqual", "assertCountEqual", "assertIs", "assertAlmostEqual", "assert_equal",
         "assert_array_equal", "assert_allclose", "assert_almost_equal", "assert_array_almost_equal", "assertQuerySetEqual",
         "assertQuerysetEqual", "assertHTMLEqual", "assertXMLEqual", "assertJSONEqual", "assertRedirects",
         "assert_frame_equal", "assert_series_equal", "assert_index_equal", "assert_identical"}
# What a mock was called with.
CALLED = {"assert_called_with", "assert_called_once_with", "assert_any_call", "assert_awaited_with", "assert_awaited_once_with"}
# Equalities that hold within a tolerance, if there are more arguments.
ALMOST = {"assertAlmostEqual", "assert_allclose", "assert_almost_equal", "assert_array_almost_equal"}
RAISES = {"raises", "assertRaises", "assertRaisesRegex", "assertRaisesMessage", "warns", "assertWarns", "assertWarnsRegex", "assertWarnsMessage"}
TEXTS = {"assertRaisesRegex", "assertRaisesMessage", "assertWarnsRegex", "assertWarnsMessage"}  # their second argument is one
OPPOSITE = [("assertTrue", "assertFalse"), ("assertIn", "assertNotIn"), ("assertIsNone", "assertIsNotNone"),
            ("assertIs", "assertIsNot"), ("assertIsInstance", "assertNotIsInstance"), ("assertEqual", "assertNotEqual"),
            ("assertGreater", "assertLessEqual"), ("assertLess", "assertGreaterEqual"), ("assertRegex", "assertNotRegex"),
            ("assertContains", "assertNotContains"), ("assertTemplateUsed", "assertTemplateNotUsed"),
            ("assert_called", "assert_not_called"), ("assert_called_once", "assert_not_called")]
UNLIKELY = [EOFError, ZeroDivisionError, BufferError]  # what a candidate's own errors hardly are
ERRORS = [ValueError, TypeError, KeyError, IndexError, ZeroDivisionError, AttributeError, RuntimeError]
WARNINGS = [BytesWarning, ImportWarning, UnicodeWarning]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# Kinds of changes, the best first.
VALUE, WRAPPED, SWAP, BOUND, NEGATION, LITERAL, SLACK = KINDS = ("value", "wrapped", "swap", "bound", "negation", "literal", "slack")
LIBRARY = {"pytest", "numpy"} | set(getattr(sys, "stdlib_module_names", ("math", "random", "copy", "json", "unittest")))
REACH = {"open", "os", "io", "pathlib", "Path", "subprocess", "run", "check_output", "shutil", "urllib", "urlopen", "json", "csv", "sqlite3"}  # by which suites reach what a candidate left
MANY = 50  # tests that use a helper: no more of them are listed
METHODS = {n for t in (str, bytes, list, dict, set) for n in dir(t)}
SYMBOLS = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.GtE: ">=", ast.Gt: ">", ast.LtE: "<=", ast.In: "in",
           ast.NotIn: "not in", ast.Is: "is", ast.IsNot: "is not"}
INVERSE = {a: b for pair in (("==", "!="), ("<", ">="), (">", "<="), ("in", "not in"), ("is", "is not")) for a, b in (pair, pair[::-1])}
RELATIONS = {"assertLess": "<", "assertLessEqual": "<=", "assertGreater": ">", "assertGreaterEqual": ">=", "assertIn": "in"}
CONTAINS = {"assertContains", "assertTemplateUsed"}  # Django's: the second argument is in the first
HOLDERS = {"approx", "set", "frozenset", "tuple", "list", "dict", "sorted", "Counter", "Decimal", "Fraction", "deque", "bytearray", "OrderedDict"}
# Assertions of which this program knows what they expect.
FAMILIAR = EQUAL | CALLED | RAISES | set(RELATIONS) | CONTAINS | {name for pair in OPPOSITE for name in pair}


def called(call):
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


class File:
    def __init__(self, text, rng, request):
        self.data, self.rng, self.by_test = text.encode("utf-8", "surrogatepass"), rng, request["each"]
        self.judging = request["each"] and not request["weak"]
        self.tree = ast.parse(text)
        self.lines, at = [], 0
        for line in self.data.splitlines(keepends=True):
            self.lines.append(at)
            at += len(line)
        self.edits, self.made, self.place, self.stated, self.unread = [], set(), 0, set(), set()
        self.parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}
        self.helpers, self.origin = self.calls(), {}
        self.helped = {call for calls in self.helpers.values() for call, _ in calls}
        self.known = {}  # the values that names have: by scope and name, all there are
        self.bindings()
        self.held, self.loads, self.uses = {}, {}, {}  # which names have a value, and where a name, or one of an attribute, is used
        for name, values in self.known.items():
            for value in values:
                self.held.setdefault(value, []).append(name)
        for n in ast.walk(self.tree):
            if isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Load):
                self.uses.setdefault(getattr(n, "attr", getattr(n, "id", "")), []).append(n)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load):
                self.loads.setdefault(n.id, []).append(n)
        imported = {(a.asname or a.name).partition(".")[0]: not getattr(n, "level", 0) and (getattr(n, "module", None) or a.name).partition(".")[0] in LIBRARY
                    for n in ast.walk(self.tree) if isinstance(n, (ast.Import, ast.ImportFrom)) for a in n.names}
        self.foreign = {n for n in set(dir(builtins)) | set(imported) if imported.get(n, True)} - set(request["names"] or ())
        self.strange = self.foreign - (REACH if self.by_test else set())  # names that lead to nothing of a candidate
        self.asked = self.questions()
        self.answers = self.expected()

    def span(self, node):
        return self.lines[node.lineno - 1] + node.col_offset, self.lines[node.end_lineno - 1] + node.end_col_offset

    def source(self, node):
        return self.text(*self.span(node))

    def text(self, start, end):
        return self.data[start:end].decode("utf-8", "surrogatepass")

    def scope(self, node):
        while not isinstance(node, FUNCTIONS + (ast.Module,)):
            node = self.parents[node]
        return node

    def above(self, node):
        """A node and all that it is part of, from the inside out."""
        while node is not None:
            yield node
            node = self.parents.get(node)

    def function(self, node):
        """The outermost function that a node is part of, if it is of one."""
        return ([n for n in self.above(node) if isinstance(n, FUNCTIONS)] or [None])[-1]

    def calls(self):
        """The calls of each of the tests' own functions but the tests: a list of the values of its parameters."""
        own, found = {}, {}
        for n in ast.walk(self.tree):
            if isinstance(n, FUNCTIONS) and not n.name.startswith("test"):
                own.setdefault((n.name, isinstance(self.parents[n], ast.ClassDef)), []).append(n)
        for call in ast.walk(self.tree):
            if not isinstance(call, ast.Call) or not isinstance(call.func, (ast.Name, ast.Attribute)) \
                    or any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
                continue
            functions = own.get((called(call), isinstance(call.func, ast.Attribute)), [])
            near = [f for f in functions if self.parents[f] in self.above(call)]
            for f in near or functions:
                static = any(getattr(d, "id", "") == "staticmethod" for d in f.decorator_list)
                names = [a.arg for a in getattr(f.args, "posonlyargs", []) + f.args.args]
                names = names[isinstance(self.parents[f], ast.ClassDef) and not static:]
                found.setdefault(f, []).append((call, list(zip(names, call.args)) + [(k.arg, k.value) for k in call.keywords]))
        return found

    def bind(self, target, value, at):
        if isinstance(target, ast.Name):
            self.known.setdefault((self.scope(at), target.id), []).append(value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for i, part in enumerate(target.elts):
                whole = value if isinstance(value, (ast.Tuple, ast.List)) else None
                self.bind(part, whole.elts[i] if whole and i < len(whole.elts) else None, at)

    def bindings(self):
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self.bind(target, node.value, node)
            elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
                self.bind(node.target, node.value, node)
            elif isinstance(node, ast.AugAssign):
                self.bind(node.target, None, node)
        for function, calls in self.helpers.items():
            for call, values in calls:
                for name, value in values:
                    self.known.setdefault((function, name), []).append(value)
                    self.origin[function, value] = call
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.For, ast.comprehension)):
                at = node if isinstance(node, ast.For) else self.parents[node]
                table = self.resolve(node.iter)
                for table in self.values(table) if isinstance(table, ast.Name) else [table]:
                    for row in self.rows(table):
                        self.bind(node.target, row, at)
            elif isinstance(node, FUNCTIONS):
                for mark in node.decorator_list:
                    self.parametrized(mark, node)

    def parametrized(self, mark, function):
        if isinstance(mark, ast.Call) and isinstance(mark.func, ast.Attribute) and mark.func.attr == "parametrize" and len(mark.args) > 1:
            try:
                names = ast.literal_eval(mark.args[0])
            except ValueError:
                return
            names = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)
            if not names:
                return
            target = ast.Tuple([ast.Name(n) for n in names])
            for row in self.rows(self.resolve(mark.args[1])):
                if isinstance(row, ast.Call):  # pytest.param
                    row = ast.Tuple(row.args)
                self.bind(target if len(names) > 1 else target.elts[0], row, function.body[0])

    @staticmethod
    def rows(table):
        if isinstance(table, ast.Dict):
            return [ast.Tuple([k, v]) for k, v in zip(table.keys, table.values) if k is not None]
        return table.elts if isinstance(table, (ast.List, ast.Tuple, ast.Set)) else []

    def resolve(self, node):
        """What a name stands for, if that is one thing."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "items" and not node.args:
            node = node.func.value
        values = self.values(node) if isinstance(node, ast.Name) else []
        return values[0] if len(values) == 1 else node

    def values(self, name):
        if name in self.parents:
            for scope in (self.scope(name), self.tree):
                if (scope, name.id) in self.known:
                    values = self.known[scope, name.id]
                    return [] if None in values else values
        return []

    # What tests assert.

    def assertions(self):
        for read in (self.statement, self.decision):
            for node in ast.walk(self.tree):
                try:
                    read(node)
                except Exception:  # a form that nobody thought of must not cost other assertions theirs
                    self.unread.add(node.lineno)

    def statement(self, node):
        if isinstance(node, ast.Assert):
            self.condition(node, node.test)
        elif isinstance(node, ast.If) and len(node.body) == 1 and self.accuses(node.body[0]):
            self.condition(node, node.test, node.test.lineno, node.body[0].end_lineno)
        elif isinstance(node, ast.Try) and any(map(self.fails, node.body)):
            for handler in node.handlers:
                self.exception(self.begin(node), handler.type)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            self.call(node, node.value)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                self.raises(node, item.context_expr)

    def decision(self, node):
        """A condition by which a helper of the tests decides."""
        if not isinstance(node, (ast.Compare, ast.BoolOp)) or not self.decides(node) or any(n in self.stated for n in self.above(node)):
            return
        at = self.begin(node, 1, len(self.lines))
        at["tests"] = {at["test"]: at["place"]}  # what the tests that use it do with it is not known
        if isinstance(node, ast.BoolOp):
            self.bounds(at, lambda: self.stricter(node, True))
        elif len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq):
            self.equality(at, node.left, node.comparators[0])

    def accuses(self, node):
        """Whether a statement fails for a wrong answer, and is not what a stand-in, which the candidate calls, does."""
        if not isinstance(node, ast.Raise):
            return self.fails(node)
        error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        return isinstance(self.scope(node), ast.Module) or getattr(error, "id", "") in ("AssertionError", "Exception")

    @staticmethod
    def fails(node):
        return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and called(node.value) == "fail"

    def decides(self, node):
        """Whether a condition is all that is returned or kept, or that something is counted by: otherwise there
        may be others, of which one is enough."""
        parent = self.parents[node]
        counted = isinstance(parent, ast.If) and any(isinstance(s, ast.AugAssign) for s in parent.body)
        return counted or isinstance(parent, (ast.Assign, ast.AugAssign, ast.Yield)) \
            or isinstance(parent, ast.Return) and sum(isinstance(n, ast.Return) for n in ast.walk(self.scope(node))) == 1

    def condition(self, statement, test, first=0, last=0):
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) and isinstance(statement, ast.Assert):
            for part in test.values:
                self.condition(statement, part, first, last)
            return
        if not self.candidates(test):
            return
        at = self.begin(statement, first, last)
        if not self.truth(at, test, isinstance(statement, ast.Assert)):
            for n in ast.walk(test):
                self.swap(at, n)
            self.bounds(at, lambda: self.stricter(test, isinstance(statement, ast.Assert)))
            self.replace(at, NEGATION, test, self.negated(test))
        self.literals(at, test)

    def negated(self, test):
        """The opposite of a condition, as one would write it."""
        text = self.source(test)
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self.source(test.operand)
            return "(%s)" % inner if "\n" in text or isinstance(test.operand, (ast.BoolOp, ast.IfExp)) else inner
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            left, right = self.span(test.left)[1], self.span(test.comparators[0])[0]
            between, (start, end) = self.data[left:right].decode(), self.span(test)
            if between.strip() == SYMBOLS[type(test.ops[0])]:
                return "%s %s %s" % (self.text(start, left), INVERSE[between.strip()], self.text(right, end))
        return "not " + text if isinstance(test, (ast.Call, ast.Name, ast.Attribute, ast.Subscript)) else "not (%s)" % text

    def candidates(self, node):
        """Whether something of a candidate may be in it."""
        return any(isinstance(n, ast.Name) and n.id not in self.strange for n in ast.walk(node))

    def truth(self, at, test, holds):
        """Changes of the expected values of equalities that are asserted to hold, or of others not to."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self.truth(at, test.operand, not holds)
        if isinstance(test, ast.BoolOp):
            return isinstance(test.op, ast.And) == holds and any([self.truth(at, v, holds) for v in test.values])
        if holds and isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and test.func.id == "all" and len(test.args) == 1:
            of = test.args[0]
            if isinstance(of, ast.Call) and getattr(of.func, "id", "") == "map" and isinstance(of.args[0], ast.Lambda):
                return self.truth(at, of.args[0].body, holds)
            return self.each(test, "all") and self.truth(at, of.elt, holds)
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Eq, ast.Is) if holds else ast.NotEq):
            return self.equality(at, test.left, test.comparators[0])
        return False

    def equality(self, at, left, right):
        for side, other in ((right, left), (left, right)):
            if self.plain(other) or not self.candidates(other):
                continue
            if self.plain(side):
                return self.vary(at, VALUE, side)
            item = isinstance(side, ast.Subscript)
            while isinstance(side, ast.Subscript):
                side = side.value
            if isinstance(side, ast.Name):
                values = [v for v in self.named(side) if self.plain(v)]
                if item:  # another key would be missed, whatever the answer
                    values = [w for v in values for w in (v.values if isinstance(v, ast.Dict) else [v])]
                if values and not any(map(self.plain, self.named(other))):
                    self.rng.shuffle(values)
                    given = self.arguments(side)
                    done = [self.vary(at, VALUE, v) for v in (values if given else values[:4])]
                    if not given and any(self.users(at, v) for v in values):
                        given = [side]
                    return any(done + [self.wrap(at, v) for v in given if not self.plain(v)])
            name = called(side) if isinstance(side, ast.Call) and side.args else ""
            if name == "approx" and side.keywords:
                self.bounds(at, lambda: self.beyond(self.numbers(side.args[0]), self.numbers(side)))
                return True
            if name in HOLDERS and self.plain(side.args[0]):
                return self.vary(at, VALUE, side.args[0])
        if self.plain(left) or self.plain(right):
            return False
        return any([self.wrap(at, v) for side in (right, left) for v in [side] + self.arguments(side)])

    def arguments(self, node):
        """The values that a helper of the tests is called with, if a name is its parameter."""
        values = self.values(node) if isinstance(node, ast.Name) else []
        return [v for v in values if (self.scope(node), v) in self.origin]

    def wrap(self, at, node):
        """Whatever it is, a pair of it and something is not equal to it."""
        return self.replace(at, WRAPPED, node, "(%s, 1)" % self.source(node)) if hasattr(node, "lineno") else False

    def call(self, statement, call):
        name = called(call)
        at = self.begin(statement)
        done = False
        if name in ALMOST and (call.keywords or len(call.args) > 2):
            self.bounds(at, lambda: self.beyond([n for a in call.args[:2] for n in self.numbers(a)], self.numbers(call)))
        elif name in EQUAL and len(call.args) > 1:
            done = self.equality(at, call.args[0], call.args[1])
        elif name in ("assertTrue", "assertFalse") and call.args:
            done = self.truth(at, call.args[0], name == "assertTrue")
        elif name in CALLED:
            done = any([self.given(at, v) for v in call.args + [k.value for k in call.keywords]])
        elif name in RELATIONS and len(call.args) > 1:
            self.bounds(at, lambda: self.relation(call.args[0], RELATIONS[name], call.args[1]))
        elif name in CONTAINS and len(call.args) > 1:
            self.bounds(at, lambda: [[(call.args[1], new)] for new in self.needle(call.args[1])])
        if name == "assertTrue" and call.args and not done:
            self.bounds(at, lambda: self.stricter(call.args[0], True))
        if isinstance(call.func, ast.Attribute) and not done:
            for a, b in OPPOSITE + [(b, a) for a, b in OPPOSITE]:
                if name == a:
                    end = self.span(call.func)[1]
                    self.edit(at, NEGATION, end - len(a.encode()), end, b)
        if name in RAISES and len(call.args) > 1:
            self.error(at, call)
        if name.lower().startswith("assert") and call not in self.helped:
            self.literals(at, call)
            if self.by_test and name not in FAMILIAR:
                self.unread.add(call.lineno)

    def given(self, at, node):
        """Change what a mock is asserted to have been called with."""
        values = [v for v in [node] + self.named(node) if self.plain(v)]
        return any([self.vary(at, VALUE, v) for v in values]) or not values and not isinstance(node, ast.Starred) and self.wrap(at, node)

    def raises(self, statement, call):
        if isinstance(call, ast.Call) and called(call) in RAISES and call.args:
            self.error(self.begin(statement), call)

    def error(self, at, call):
        """Change which exception or warning is expected, and the text that it is to have."""
        self.exception(at, call.args[0])
        expected = (call.args[1:2] if called(call) in TEXTS else []) + [k.value for k in call.keywords if k.arg in ("match", "expected_regex", "expected_message")]
        once = [v for v in expected if not isinstance(v, ast.Name) or len(self.loads[v.id]) == 1]  # or a candidate may be called with it
        for text in [n for v in once for n in [v] + self.named(v) if isinstance(getattr(n, "value", None), str)]:
            self.bounds(at, lambda: [[(text, new)] for new in self.needle(text)])

    def exception(self, at, node):
        if isinstance(node, (ast.Name, ast.Attribute)):
            expected = getattr(builtins, getattr(node, "id", ""), None)
            among = WARNINGS if isinstance(expected, type) and issubclass(expected, Warning) else ERRORS
            others = UNLIKELY if expected in (None, Exception) else [e for e in among if not issubclass(e, expected) and not issubclass(expected, e)]
            for e in self.rng.sample(others, min(3, len(others))):
                self.replace(at, NEGATION, node, e.__name__)

    def literals(self, at, node):
        """Any other literal: those that a candidate is called with, and by a little those that its
        answers are compared with."""
        if self.judging:
            return  # they judge no suite
        leaves = [] if any(e["place"] == at["place"] and e["kind"] == VALUE for e in self.edits) else list(self.leaves(node))
        self.rng.shuffle(leaves)
        for turn in range(4):
            for leaf in leaves[:12]:
                self.vary(at, LITERAL if self.argument(leaf, node) else SLACK, leaf, 1)

    # Conditions that may hold for several answers. A change is of use only if it
    # fails for every answer for which the condition holds, not just for the
    # reference's.

    def bounds(self, at, changes):
        """Make each of the changes, which are lists of what replaces which nodes."""
        of = at
        for change in [c for turn in range(4) for c in changes()]:
            at, node = self.stated_at(of, change[0][0]), change[0][0]
            spans = sorted(self.span(node) + (new,) for node, new in change)
            start, end = spans[0][0], max(s[1] for s in spans)
            inside = len(spans) == 1 or self.span(at["statement"])[0] <= start and end <= self.span(at["statement"])[1]
            new, last = "", start
            for a, b, text in spans:
                new, last = new + self.text(last, a) + text, b
            if inside and new.count("\n") == self.text(start, end).count("\n"):
                self.edit(at, BOUND, start, end, new, node)

    def stricter(self, test, holds):
        """Changes after which no answer has the condition hold (or not hold) that had before."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self.stricter(test.operand, not holds)
        if isinstance(test, ast.BoolOp):
            parts = [self.stricter(v, holds) for v in test.values]
            if isinstance(test.op, ast.And) == holds:
                return sum(parts, [])
            changes = [sum(change, []) for change in zip(*parts)]
            return [c for c in changes if not any(ast.literal_eval("(%s\n)" % new) == ast.literal_eval(old) for _, new in c for old, _ in c)]
        if isinstance(test, ast.Compare):
            links = [self.relation(a, SYMBOLS[type(op)] if holds else INVERSE[SYMBOLS[type(op)]], b)
                     for a, op, b in zip([test.left] + test.comparators, test.ops, test.comparators)]
            return sum(links, []) if holds or len(links) == 1 else []
        if isinstance(test, ast.Call):
            name = called(test)
            if self.each(test, name):
                return self.stricter(test.args[0].elt, holds)
            if holds and name in ("startswith", "endswith") and len(test.args) == 1 and isinstance(test.args[0], ast.Constant):
                return [[(test.args[0], new)] for new in self.strange_to(test.args)]
            if holds and name == "isclose":
                return self.beyond([n for a in test.args for n in self.numbers(a)], self.numbers(test))
        return []

    def each(self, call, name):
        """Whether it asks something of each of what a test has: if it is of an answer, that may be empty."""
        if len(call.args) != 1 or not isinstance(call.args[0], (ast.GeneratorExp, ast.ListComp)):
            return False
        sources = [s for g in call.args[0].generators for n in ast.walk(g.iter) for s in [n] + self.named(n) if s is not None]
        return name == "any" or name == "all" and not any(isinstance(n, ast.Call) and self.asks(n) for s in sources for n in ast.walk(s))

    def named(self, node, seen=None):
        """The values of a name, those of other names that it may have included."""
        seen = set() if seen is None else seen
        if not isinstance(node, ast.Name) or node in seen:
            return []
        seen.add(node)
        found = []
        for value in self.values(node):
            if value in seen:
                continue
            others = self.named(value, seen)
            for other in others:
                call = value in self.parents and self.origin.get((self.scope(value), other)) or self.origin.get((self.scope(node), value))
                if call:
                    self.origin[self.scope(node), other] = call
            found += others or [value]
        return found

    def relation(self, left, symbol, right):
        sides = [(side, asked) for side, asked in ((right, left), (left, right)) if self.candidates(asked) and not self.candidates(side)]
        if len(sides) != 1:
            return []
        side, asked = sides[0]
        if symbol in ("==", "is"):
            leaves = [side] if self.plain(side) else list(self.leaves(side))[:1] if isinstance(side, ast.Call) else []
            return [[(leaf, new)] for leaf in leaves for new in self.strange_to([leaf])]
        if symbol == "in" and side is left:
            return [[(left, new)] for new in self.needle(left)]
        if symbol == "in" and isinstance(side, (ast.List, ast.Tuple, ast.Set)) and self.plain(side):
            new = self.strange_to(side.elts)
            return [list(zip(side.elts, new))] if new else []
        if symbol in ("<", "<=", ">", ">="):
            less = (symbol[0] == "<") == (side is right)
            if less and isinstance(asked, ast.Call) and getattr(asked.func, "id", "") == "abs" and self.numbers(asked):
                inner = {n for c in ast.walk(asked) if isinstance(c, ast.Call) and c is not asked and self.candidates(c) for n in ast.walk(c)}
                return self.beyond([n for n in self.numbers(asked) if n not in inner], self.numbers(side))
            if any(isinstance(n, (ast.Set, ast.Tuple, ast.List, ast.Dict, ast.Pow, ast.LShift)) for n in ast.walk(side)):
                return []  # of which one element may not matter, or far too much
            far = self.rng.randint(10 ** 9, 10 ** 10)
            return [[(n, self.moved(n, -far if less else far))] for n in self.numbers(side)]
        return []

    def beyond(self, compared, tolerances):
        """Move what is compared by much more than a tolerance."""
        far = max([10 * abs(ast.literal_eval(n)) for n in tolerances] + [1])
        return [[(n, self.moved(n, far * self.rng.randint(1, 9)))] for n in compared]

    def numbers(self, node):
        """The numbers in an expression, and those that names in it stand for, but for what a
        candidate is called with."""
        found = [n for n in self.leaves(node) if not self.argument(n, node)]
        for n in ast.walk(node):
            found += [v for v in self.named(n) if self.plain(v) and not self.argument(n, node)]
        return [n for n in found if isinstance(n, (ast.Constant, ast.UnaryOp)) and type(ast.literal_eval(n)) in (int, float)]

    def moved(self, node, by):
        value = ast.literal_eval(node)
        return repr(value + by if isinstance(value, float) else value + int(by))

    def strange_to(self, nodes):
        """For each of the nodes another value of its type that none of them has; nothing if there is no such."""
        taken, new = [ast.literal_eval(n) for n in nodes], []
        for node in nodes:
            leaves = [] if isinstance(node, ast.Constant) and node.value is None else list(self.leaves(node))
            self.rng.shuffle(leaves)
            found = [text for leaf in leaves for text in self.variants(leaf, node) if ast.literal_eval("(%s\n)" % text) not in taken]
            if not found:
                return []
            new.append(found[0])
        return new

    def needle(self, node):
        """What is not found by accident where a number or text is."""
        value = ast.literal_eval(node) if isinstance(node, ast.Constant) else None
        if isinstance(value, str) and "\n" not in self.source(node):
            return [repr("".join(self.rng.choice("bcdfghjkmnpqrstvwxz") for _ in value[:8] + "....")[:max(4, len(value))])]
        return [repr(value + self.rng.randint(10 ** 6, 10 ** 9))] if type(value) in (int, float) else []

    def argument(self, node, top):
        """Whether a literal is in an argument of a call of a candidate's."""
        while node is not top:
            node, inner = self.parents[node], node
            if isinstance(node, ast.Call) and inner is not node.func and self.asks(node):
                return True
        return False

    def asks(self, call):
        """Whether it is a call of a candidate's."""
        if isinstance(call.func, ast.Name):
            return call.func.id not in self.strange
        return isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) and call.func.value.id not in self.strange \
            and call.func.attr not in METHODS and not call.func.attr.startswith("assert")

    def questions(self):
        """Calls that are asserted to be true or false: by what is called and that."""
        found = {}
        for n in ast.walk(self.tree):
            if self.question(n) is not None:
                found.setdefault(self.question(n), []).append(n)
        return found

    def question(self, n):
        if not isinstance(n, ast.Call) or n.keywords or not n.args or not all(map(self.plain, n.args)) \
                or not any(isinstance(f, ast.Name) and f.id not in self.foreign for f in ast.walk(n.func)):
            return None
        parent = self.parents[n]
        if isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not):
            return ast.dump(n.func), False
        if isinstance(parent, (ast.Assert, ast.BoolOp, ast.List, ast.Tuple)):
            return ast.dump(n.func), True
        return None

    def swap(self, at, n):
        """What is asked, by what is asked where the answer is the opposite."""
        asked = self.question(n)
        if asked is None:
            return
        others = self.asked.get((asked[0], not asked[1]), [])
        for other in self.rng.sample(others, min(3, len(others))):
            start, end = self.span(n.args[0])[0], self.span(n.args[-1])[1]
            new = self.text(self.span(other.args[0])[0], self.span(other.args[-1])[1])
            if "\n" not in new and b"\n" not in self.data[start:end]:
                self.edit(at, SWAP, start, end, new)

    # Changes.

    def begin(self, statement, first=0, last=0):
        self.place += 1
        self.stated.add(statement.test if isinstance(statement, ast.If) else statement)
        return {"statement": statement, "own": self.function(statement) or statement, "places": {}, "place": self.place, "tests": None, "many": False,
                "test": self.test(statement), "line": first or statement.lineno, "last": last or statement.end_lineno}

    def test(self, node):
        """The name of the outermost function that a node is part of, with its classes."""
        names = []
        for n in self.above(node):
            if isinstance(n, FUNCTIONS):
                names = [n.name]
            elif isinstance(n, ast.ClassDef):
                names.insert(0, n.name)
        return "::".join(names)

    def callers(self, helper):
        """The tests that use a helper of theirs, or one that uses it."""
        helpers, found = [helper], set()
        for h in helpers:
            for use in self.uses.get(h.name, ()):
                if getattr(self.parents[use], "func", None) is not use:  # a stand-in, which the candidate calls
                    continue
                user = self.function(use)
                if user is not None and user.name.startswith("test"):
                    found.add(self.test(use))
                elif user is not None and user not in helpers:
                    helpers.append(user)
        return found

    def stated_at(self, at, node):
        """Where an assertion in a helper is made that a change of node concerns: at the helper's call."""
        for n in self.above(node):
            call = self.origin.get((self.scope(at["statement"]), n))
            if call:
                if call not in at["places"]:
                    at["places"][call] = self.begin(call)
                return at["places"][call]
        return at

    def users(self, at, node):
        """The tests that use what a change of node changes, and not only as what they expect."""
        outside = list(self.above(node))
        if at["own"] in outside:
            return ""
        uses = [use for n in outside for scope, name in self.held.get(n, ()) for use in self.loads.get(name, ())
                if scope in self.above(use) and (scope is self.scope(use) or (self.scope(use), name) not in self.known)]
        found = set()
        for use in uses:
            within, function = list(self.above(use)), self.function(use)
            if at["own"] not in within and not self.expects(use):
                tests = function is not None and function.name.startswith("test") and not any(d in within for d in function.decorator_list)
                found.add(self.test(use) if tests and self.by_test else "*")
        return "*" if "*" in found else " ".join(sorted(found))

    def expects(self, use):
        """Whether a name is used for what is expected, or for a value of which other names are known."""
        node, parent = use, self.parents[use]
        while isinstance(parent, ast.Subscript) and parent.value is node:
            node, parent = parent, self.parents[parent]
        if isinstance(parent, ast.Attribute) and parent.attr == "items":
            node, parent = self.parents[parent], self.parents[self.parents[parent]]
        if isinstance(parent, ast.Call):
            return called(parent) in EQUAL and node in parent.args[:2] or called(parent) == "parametrize" or parent in self.helped
        return isinstance(parent, ast.Compare) and isinstance(parent.ops[0], ast.Eq) \
            or isinstance(parent, (ast.For, ast.comprehension)) and parent.iter is node

    @staticmethod
    def plain(node):
        """Whether an expression is made of literals only."""
        if isinstance(node, ast.Constant):
            return node.value is not Ellipsis
        if isinstance(node, ast.UnaryOp):
            return isinstance(node.op, (ast.USub, ast.UAdd)) and isinstance(node.operand, ast.Constant)
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            return all(map(File.plain, node.elts))
        if isinstance(node, ast.Dict):
            return all(k is not None and File.plain(k) for k in node.keys) and all(map(File.plain, node.values))
        return False

    def leaves(self, node):
        """Literals, and empty lists and the like."""
        if isinstance(node, (ast.JoinedStr, ast.Lambda)):
            return
        if isinstance(node, ast.Constant):
            if node.value is not Ellipsis and node.value is not None:
                yield node
        elif isinstance(node, (ast.List, ast.Tuple)) and not node.elts or isinstance(node, ast.Dict) and not node.keys:
            yield node
        elif isinstance(node, ast.UnaryOp) and self.plain(node):
            yield node
        else:
            for child in ast.iter_child_nodes(node):
                yield from self.leaves(child)

    def vary(self, at, kind, node, count=3):
        """Change one literal in node, and others until there are count."""
        if not hasattr(node, "lineno") or isinstance(node, ast.Constant) and node.value is None:
            return False
        leaves, done = list(self.leaves(node)), 0
        self.rng.shuffle(leaves)
        for turn in range(count if kind != VALUE else 8):
            for leaf in leaves[turn:] + leaves[:turn]:
                if self.leaf(at, kind, leaf):
                    done += 1
                    self.leaf(at, kind, leaf)  # another change of it, to try again with
                    break
        return done > 0

    def leaf(self, at, kind, node):
        words = self.vocabulary(node) if kind == VALUE else []
        return any(self.replace(at, kind, node, new) for new in words or self.variants(node, node))

    def vocabulary(self, node):
        """Where tests expect few answers, as "yes" and "no", the others of them: a new one would show."""
        value = ast.literal_eval(node)
        if type(value) not in (int, str) or "\n" in self.source(node):
            return []
        again = sum(n for n in self.answers.values() if n > 1)
        if 2 * again < sum(self.answers.values()):  # most are expected once: one that is expected again would show
            return []
        among = [v for v in self.answers if type(v) is type(value) and v != value]
        often = [v for v in among if self.answers[v] > 1] or (among if self.answers[value] > 1 else [])
        return [repr(v) for v in self.rng.sample(often, len(often))]

    def expected(self):
        """How often each int and str is what an equality, or the end of a row, expects."""
        found = collections.Counter()
        for n, parent in self.parents.items():
            name = getattr(getattr(parent, "func", None), "attr", "")
            if isinstance(parent, ast.Compare) and isinstance(parent.ops[0], ast.Eq) or name in EQUAL or isinstance(parent, ast.Tuple) and n in parent.elts[-1:]:
                if self.plain(n) and isinstance(n, (ast.Constant, ast.UnaryOp)) and type(ast.literal_eval(n)) in (int, str):
                    found[ast.literal_eval(n)] += 1
        return found

    def variants(self, leaf, node):
        """Sources of node, or of a larger literal that it is in, with another value of the same type."""
        old = self.source(leaf)
        try:
            value, whole = ast.literal_eval(leaf), ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError):
            return
        options = [new for new in self.others(value, old) if new != old and new.count("\n") == old.count("\n")]
        self.rng.shuffle(options)
        for new in options:
            (start, end), (first, last) = self.span(leaf), self.span(node)
            text = self.text(first, start) + new + self.text(end, last)
            try:
                changed = ast.literal_eval("(%s\n)" % new)
                if type(changed) is type(value) and changed != value and ast.literal_eval("(%s\n)" % text) != whole:
                    yield text
            except (ValueError, SyntaxError):
                continue

    def others(self, value, old):
        if isinstance(value, bool):
            return [repr(not value)]
        if isinstance(value, int):
            return [repr(v) for v in (value + 1, value + 2, value - 1, value - 2) if (v < 0) <= (value <= 0)] or [repr(value + 1)]
        if isinstance(value, float):
            if value != value or value in (float("inf"), -float("inf")):
                return ["1.5"]
            step = max(1.0, 10.0 ** (len(str(int(abs(value)))) - 1)) if abs(value) < 1e15 else abs(value)
            return [repr(round(v, 10)) for v in (value + step, value + step / 2, value - step / 2) if (v < 0) == (value < 0)] or [repr(value + step)]
        if isinstance(value, complex):
            return [repr(value + 1)]
        if isinstance(value, (str, bytes)):
            return self.texts(value, old)
        return {list: ["[0]", "[1]"], tuple: ["(0,)", "(1,)"], dict: ["{0: 1}", "{1: 1}"]}.get(type(value), [])

    def texts(self, value, old):
        """One character of the content changed, in the source as it is written."""
        letters = "abcdefghijklmnopqrstuvwxyz"
        body = [i for i, c in enumerate(old) if c.isascii() and c.isalnum() and i and "\\" not in old[max(0, i - 8):i]]
        quote = min([i for i in (old.find("'"), old.find('"')) if i >= 0])
        found = []
        for i in self.rng.sample(body, min(8, len(body))):
            if i > quote:
                c = old[i]
                among = "123456789" if c.isdigit() else letters.upper() if c.isupper() else letters
                found.append(old[:i] + self.rng.choice(among.replace(c, "")) + old[i + 1:])
        return found or [repr(value + (b"x" if isinstance(value, bytes) else "x"))]

    def replace(self, at, kind, node, new):
        if not hasattr(node, "lineno"):
            return False
        return self.edit(self.stated_at(at, node), kind, *self.span(node), new, node)

    def edit(self, at, kind, start, end, new, node=None):
        if (start, end, new) in self.made:
            return False
        self.made.add((start, end, new))
        users = self.users(at, node) if node is not None else ""
        if at["tests"] is None:
            at["tests"] = {at["test"]: at["place"]}
            if self.by_test and isinstance(at["own"], FUNCTIONS) and not at["own"].name.startswith("test"):
                callers = sorted(self.callers(at["own"]))
                at["many"] = len(callers) > MANY
                callers = self.rng.sample(callers, min(MANY, len(callers)))
                at["tests"] = {name: self.place + i for i, name in enumerate(callers, 1)}
                self.place += len(at["tests"])
        if at["many"]:
            users = "*"
        for test, place in at["tests"].items():  # in a helper, for each of the tests that use it
            others = users if users == "*" else " ".join(sorted((set(users.split()) | set(at["tests"])) - {test}))
            self.edits.append({"start": start, "end": end, "new": new, "kind": kind, "users": others, "place": place, "test": test,
                               "line": at["line"], "last": at["last"]})
        return True

    def compiles(self, edit):
        """Whether the statement of the file or of a class that has the edit does."""
        start, end, body = 0, len(self.data), self.tree.body
        while body:
            within, body = body, []
            for node in within:
                first = self.lines[min([n.lineno for n in getattr(node, "decorator_list", [])] + [node.lineno]) - 1]
                if first <= edit["start"] and edit["end"] <= self.span(node)[1]:
                    start, end = first, self.span(node)[1]
                    body = node.body if isinstance(node, ast.ClassDef) else []
        changed = (b"if 1:\n" if self.data[start:start + 1].isspace() else b"") + self.data[start:edit["start"]] + edit["new"].encode("utf-8", "surrogatepass") + self.data[edit["end"]:end]
        try:
            compile(changed.decode("utf-8", "surrogatepass"), "tests", "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
        return True


def chosen(file, request):
    """Of all edits those of so many places, or of so many in each test."""
    groups, by_place, each, variants = {}, {}, request["each"], request["variants"]
    for e in file.edits:
        by_place.setdefault(e["place"], []).append(e)
    for place, own in by_place.items():
        groups.setdefault(own[0]["test"] if each else "", []).append(place)
    if each:
        groups = {name: found for name, found in groups.items() if name.rpartition("::")[2].startswith("test")}
        if len(groups) == 1:
            request = dict(request, places=max(request["places"], 4))
            variants = max(variants, 4)
    kept = []
    for found in groups.values():
        file.rng.shuffle(found)
        found.sort(key=lambda place: min((e["kind"] != VALUE or e["users"] == "*", e["users"] > "") for e in by_place[place]))
        kept += found[:request["places"]]
    if not each and kept:
        variants = max(variants, -(-variants * 4 // len(kept)))  # more of few
    if each:  # of different parts first
        for own in by_place.values():
            turns = collections.Counter()
            order = [(turns.update([e["start"]]) or turns[e["start"]], e) for e in own]
            own[:] = [e for _, e in sorted(order, key=lambda o: (o[1]["users"], o[0]))]
    for kind in KINDS[:-2] if file.judging else KINDS:  # without arguments, about which nothing is promised
        of = [itertools.islice((e for e in by_place[place] if e["kind"] == kind and file.compiles(e)), variants) for place in sorted(kept)]
        for turn in itertools.zip_longest(*of):
            yield from filter(None, turn)


def listed(file, request, found):
    """Add to what is found that of a file."""
    path = file["path"]
    try:
        compile(file["text"], path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        found["broken"].append(path)
        return
    try:
        f = File(file["text"], random.Random("%s %s" % (request["seed"], path)), request)
        f.assertions()
        edits = [dict(e, path=path) for e in chosen(f, request)]
        unread = ["%s:%d" % (path, line) for line in sorted(f.unread)]
    except Exception:  # it must not cost the other files theirs
        edits, unread = [], [path]
    found["edits"] += edits
    found["unread"] += unread


def main():
    sys.setrecursionlimit(10000)
    request = json.loads(sys.stdin.buffer.read())
    found = {"edits": [], "broken": [], "unread": []}
    for file in request["files"]:
        listed(file, request, found)
    if request["each"] and any(e["users"] != "*" for e in found["edits"]):
        found["edits"] = [e for e in found["edits"] if e["users"] != "*"]
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
