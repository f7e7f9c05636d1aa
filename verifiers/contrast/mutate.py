"""Lists changes of what Python tests expect.

Reads {"files": [{"path", "text"}], "seed", "each", "names"} as JSON and
writes {"edits", "canary", "broken", "unread"}. An edit replaces the bytes from start to end of
the file at its path by new, on as many lines. Edits of one place change one assertion, in other
ways. If it is "shared", any test of the file may use what is changed and fail, too.
A "row" of a table is a test of its own. "canary" are edits that together make every test, or a program without tests, fail where it ends.
"broken" are paths of files that do not compile, "unread" those at which this program fails.
"""

import ast
import builtins
import collections
import json
import random
import re
import sys

# Equalities, those that hold within a tolerance if there are more arguments, and what a mock was called with.
ALMOST = {"assertAlmostEqual", "assert_allclose", "assert_almost_equal", "assert_array_almost_equal"}
EQUAL = ALMOST | {"assert_equal", "assert_array_equal", "assertRedirects", "assertIs", "assertEquals", "assertQuerysetEqual"} | {
    "assert%sEqual" % of for of in ("", "List", "Dict", "Tuple", "Set", "Sequence", "MultiLine", "Count", "QuerySet", "HTML", "XML", "JSON")}
CALLED = {"assert_called_with", "assert_called_once_with", "assert_any_call", "assert_awaited_with", "assert_awaited_once_with"}
HOLDERS = {"approx", "set", "frozenset", "tuple", "list", "dict", "sorted", "Counter", "Decimal", "Fraction", "deque", "bytearray", "OrderedDict"}
UNORDERED = {"set", "frozenset", "sorted", "Counter", "dict", "assertCountEqual"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LIBRARY = {"pytest", "numpy"} | set(getattr(sys, "stdlib_module_names", ("math", "random", "copy", "json", "unittest")))
# By these, suites reach what a candidate left.
REACH = {"open", "os", "io", "pathlib", "Path", "subprocess", "run", "check_output", "shutil", "urllib", "urlopen", "json", "csv", "sqlite3"}
PLACES, VARIANTS = 8, 2  # unless each: the most assertions that are changed in a file, and the least changes of each of them
OPPOSITES = 4  # unless each: the most assertions that are turned into their opposite
TURNED = {"<": ">=", ">": "<=", "==": "!=", "in": "not in", "is": "is not", "assertTrue": "assertFalse", "assertIn": "assertNotIn", "assertIs": "assertIsNot",
          "assertEqual": "assertNotEqual", "assertIsNone": "assertIsNotNone", "assertIsInstance": "assertNotIsInstance", "assertLess": "assertGreaterEqual",
          "assertGreater": "assertLessEqual", "assertRegex": "assertNotRegex"}
TURNED.update({new: old for old, new in TURNED.items()})
ROWS = 40  # literals that one assertion compares with: of more, a sample is changed
FAIL = "raise AssertionError('this test has to fail')"
PROGRAM_FAILS = "if __name__ == '__main__': import atexit, os; atexit.register(os._exit, 1); os.dup2(os.open(os.devnull, os.O_WRONLY), 1)"


def called(call):
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def letters(value):
    """What texts that some comparison takes for equal have in common: those of JSON, for example, differ in spaces and order."""
    return sorted(filter(str.isalnum, str(value).lower()))


class File:
    def __init__(self, text, rng, request):
        self.data, self.rng, self.each = text.encode("utf-8", "surrogatepass"), rng, request["each"]
        self.tree = ast.parse(text)
        self.lines, at = [], 0
        for line in self.data.splitlines(keepends=True):
            self.lines.append(at)
            at += len(line)
        self.parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}
        imported = {(a.asname or a.name).partition(".")[0]: not getattr(n, "level", 0) and (getattr(n, "module", None) or a.name).partition(".")[0] in LIBRARY
                    for n in ast.walk(self.tree) if isinstance(n, (ast.Import, ast.ImportFrom)) for a in n.names}
        self.foreign = {n for n in set(dir(builtins)) | set(imported) if imported.get(n, True)} - set(request["names"] or ()) - (REACH if self.each else set())
        self.edits, self.made, self.places = [], set(), {}
        self.known = {}  # the values that names have, by scope and name; None for one that is not known
        self.meant = {}  # what stands has found for names
        self.bindings()
        self.marks = {n for f in ast.walk(self.tree) for d in getattr(f, "decorator_list", []) for n in ast.walk(d)}
        self.loads = {}  # where each name is used
        for n in ast.walk(self.tree):
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load):
                self.loads.setdefault((self.home(n), n.id), []).append(n)
        self.bound = {}  # by value, the scopes and names that have it
        for key, values in self.known.items():
            for value in values:
                self.bound.setdefault(value, []).append(key)
        self.helpers = {n.name for n in ast.walk(self.tree) if isinstance(n, FUNCTIONS)}
        self.answers, self.sources = self.expected()
        self.questions = [n for n in ast.walk(self.tree) if self.question(n)]

    def span(self, node):
        return self.lines[node.lineno - 1] + node.col_offset, self.lines[node.end_lineno - 1] + node.end_col_offset

    def text(self, start, end):
        return self.data[start:end].decode("utf-8", "surrogatepass")

    def above(self, node):
        """A node and all that it is part of, from the inside out."""
        while node is not None:
            yield node
            node = self.parents.get(node)

    def scope(self, node):
        return next(n for n in self.above(node) if isinstance(n, FUNCTIONS + (ast.Module,)))

    def function(self, node):
        """The outermost function that a node is part of, if it is of one."""
        return ([n for n in self.above(node) if isinstance(n, FUNCTIONS)] or [None])[-1]

    def test(self, function):
        """The name of such a function, with its classes."""
        return "::".join([n.name for n in self.above(function) if isinstance(n, FUNCTIONS + (ast.ClassDef,))][::-1])

    # The values of names.

    def bind(self, target, value, scope):
        if isinstance(target, ast.Name):
            self.known.setdefault((scope, target.id), []).append(value)
            self.meant.clear()
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
            for i, part in enumerate(target.elts):
                self.bind(part, parts[i] if i < len(parts) else None, scope)

    def bindings(self):
        walked = list(ast.walk(self.tree))
        for n in walked:
            if isinstance(n, ast.Assign):
                for target in n.targets:
                    self.bind(target, n.value, self.scope(n))
            elif isinstance(n, (ast.AnnAssign, ast.NamedExpr, ast.AugAssign)):
                self.bind(n.target, None if isinstance(n, ast.AugAssign) else n.value, self.scope(n))
        self.parameters([n for n in walked if isinstance(n, FUNCTIONS) and not n.name.startswith("test")], [n for n in walked if isinstance(n, ast.Call)])
        for n in walked:
            if isinstance(n, (ast.For, ast.comprehension)):
                for row in self.rows(n.iter):
                    self.bind(n.target, row, self.scope(n))
            elif isinstance(n, FUNCTIONS):
                for mark in n.decorator_list:
                    if isinstance(mark, ast.Call) and called(mark) == "parametrize" and len(mark.args) > 1 and self.plain(mark.args[0]):
                        names = ast.literal_eval(mark.args[0])
                        names = [ast.Name(name.strip()) for name in (names.split(",") if isinstance(names, str) else names)]
                        for row in self.rows(mark.args[1]):
                            param = isinstance(row, ast.Call) and called(row) == "param"
                            self.bind(ast.Tuple(names), ast.Tuple(row.args if param else [row]) if param or len(names) == 1 else row, n)

    def parameters(self, helpers, calls):
        """Bind the parameters of the tests' own functions to what they are called with."""
        for call in calls:
            if not isinstance(call.func, (ast.Name, ast.Attribute)) or any(isinstance(a, ast.Starred) for a in call.args):
                continue
            method = isinstance(call.func, ast.Attribute)
            found = [f for f in helpers if f.name == called(call) and isinstance(self.parents[f], ast.ClassDef) == method]
            for f in [f for f in found if self.parents[f] in self.above(call)] or found:
                static = any(getattr(d, "id", "") == "staticmethod" for d in f.decorator_list)
                names = [a.arg for a in getattr(f.args, "posonlyargs", []) + f.args.args][method and not static:]
                for name, value in list(zip(names, call.args)) + [(k.arg, k.value) for k in call.keywords]:
                    self.known.setdefault((f, name), []).append(value)

    def home(self, name):
        """Where a name has its values: in its function or in the file."""
        return next((s for s in (self.scope(name), self.tree) if (s, name.id) in self.known), None) if name in self.parents else None

    def values(self, name):
        values = self.known.get((self.home(name), name.id), [])
        return [] if None in values else values

    def rows(self, table):
        """What a loop over a table gets in turn."""
        pairs = isinstance(table, ast.Call) and called(table) == "items" and isinstance(table.func, ast.Attribute)
        return [row for t in self.stands(table.func.value if pairs else table) for row in
                ([ast.Tuple([k, v]) if pairs else k for k, v in zip(t.keys, t.values) if k is not None] if isinstance(t, ast.Dict) else getattr(t, "elts", ()))]

    def resolve(self, node):
        """The literals that an expression stands for."""
        return [n for n in self.stands(node, HOLDERS) if self.plain(n)]

    def stands(self, node, through=()):
        """What an expression stands for, also as the argument of a call of a name in through."""
        if isinstance(node, ast.Subscript):
            return [w for v in self.stands(node.value) for i in self.items(v, node.slice) for w in self.stands(i, through)]
        if isinstance(node, ast.Name) and self.values(node):
            name = self.home(node), node.id, bool(through)
            if name not in self.meant:
                self.meant[name] = []  # for a name that is bound to itself
                self.meant[name] = list(dict.fromkeys(w for v in self.values(node) for w in self.stands(v, through)))
            return self.meant[name]
        if isinstance(node, ast.Call) and called(node) in through and node.args and not node.keywords:
            return self.stands(node.args[0], through)
        return [node]

    def items(self, table, key):
        """What a table has at a key or, if that is not known, at any: another key would be missed, whatever the answer."""
        if not isinstance(table, (ast.Dict, ast.List, ast.Tuple)) or table not in self.parents:
            return [table]
        try:
            at = ast.literal_eval(key)
            return [{ast.literal_eval(k): v for k, v in zip(table.keys, table.values)}[at] if isinstance(table, ast.Dict) else table.elts[at]]
        except (ValueError, TypeError, LookupError):
            return table.values if isinstance(table, ast.Dict) else [table]

    # What tests assert.

    def assertions(self):
        for node in list(ast.walk(self.tree)):
            made = len(self.edits)
            if isinstance(node, ast.Assert):
                self.truth(node, node.test, True)
            elif isinstance(node, ast.If) and len(node.body) == 1 and self.accuses(node.body[0]):
                self.truth(node.test, node.test, False)
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                call = node.value
                name, more = called(call), call.keywords or len(call.args) > 2
                if name in EQUAL and len(call.args) > 1 and not (name in ALMOST and more):
                    self.equality(node, *call.args[:2])
                elif name in ("assertTrue", "assertFalse") and call.args:
                    self.truth(node, call.args[0], name == "assertTrue")
                elif name in CALLED:
                    for literals in [self.resolve(value) for value in call.args + [k.value for k in call.keywords]]:
                        if not self.taken(node, literals):
                            self.vary(node, literals)
            if len(self.edits) == made and not self.each and not self.optional(node):
                self.opposite(node)

    @staticmethod
    def accuses(node):
        error = getattr(node, "exc", getattr(node, "value", None))
        name = called(error) if isinstance(error, ast.Call) else getattr(error, "id", "")
        return (isinstance(node, ast.Raise) and name in ("AssertionError", "Exception") or isinstance(node, ast.Expr) and name == "fail"
                or isinstance(node, ast.Assert) and isinstance(node.test, ast.Constant) and not node.test.value)

    def truth(self, at, test, holds):
        """Change the expected values of equalities that are asserted to hold, or of others not to."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self.truth(at, test.operand, not holds)
        elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) == holds:
            for value in test.values:
                self.truth(at, value, holds)
        elif isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Eq, ast.Is) if holds else ast.NotEq):
            self.equality(at, test.left, test.comparators[0])
        elif holds and self.alike(test):
            self.equality(at, *self.alike(test))
        elif self.question(test) and self.function(test) is self.function(at):
            self.swap(at, test, holds)

    def alike(self, test):
        """What has to be close to what, or to begin or end with what, if a changed value is neither."""
        if isinstance(test, ast.Compare) and isinstance(test.left, ast.Call) and called(test.left) in ("abs", "fabs") and isinstance(test.ops[0], (ast.Lt, ast.LtE)):
            difference, within = test.left.args[:1], test.comparators[0]
            if difference and isinstance(difference[0], ast.BinOp) and isinstance(difference[0].op, ast.Sub) and isinstance(within, ast.Constant):
                sides = difference[0].left, difference[0].right
                values = [ast.literal_eval(v) for side in sides for v in self.resolve(side)] + [within.value]
                if all(isinstance(v, (int, float)) for v in values) and within.value <= 0.1 and all(not v or abs(v) > 20 * within.value for v in values[:-1]):
                    return sides
        elif isinstance(test, ast.Call) and not test.keywords:
            if called(test) in ("isclose", "allclose") and len(test.args) == 2:
                return test.args
            if called(test) in ("startswith", "endswith") and isinstance(test.func, ast.Attribute) and len(test.args) == 1 and isinstance(test.args[0], ast.Constant):
                return test.func.value, test.args[0]

    def fresh(self, node):
        """Whether a value is not known, or begins as an empty list or the like, for the tests to fill."""
        found = self.resolve(node)
        return node not in found and not any(getattr(v, "elts", getattr(v, "keys", True)) for v in found)

    def equality(self, at, left, right):
        for side, other in ((right, left), (left, right)):
            if self.fresh(other) and not (self.resolve(other) and self.fresh(side)) and any(isinstance(n, ast.Name) and n.id not in self.foreign for n in ast.walk(other)):
                literals, name = self.resolve(side), isinstance(side, ast.Name) and (self.home(side), side.id)
                ordered = not any(isinstance(n, ast.Call) and called(n) in UNORDERED for n in ast.walk(at))
                early = self.each and any(not self.function(n) or n in self.marks for n in self.loads.get(name, ()))  # used when the file is loaded
                taken = self.taken(at, literals)
                if name and (early or taken) and len(literals) == 1 and self.inline(at, side, literals[0]) or not taken and self.vary(at, literals, len(self.loads.get(name, ())) > 1, ordered):
                    return

    def taken(self, at, literals):
        """Whether the test does more with values than compare them: the candidate may get them, and its answers change, too."""
        own, known = {self.function(n) for n in [at] + literals}, 0
        parts = {n for literal in literals for n in [*self.above(literal), *ast.walk(literal)]}
        while len(parts) > known:  # there are expressions with these values whose names have not been followed
            known = len(parts)
            for n in {n for part in parts for key in self.bound.get(part, ()) for n in self.loads.get(key, ()) if self.function(n) in own}:
                item = n
                while isinstance(self.parents[item], ast.Subscript) and self.parents[item].value is item:
                    item = self.parents[item]
                if parts.intersection(self.stands(item)):
                    if not self.compares(n):
                        return True
                    parts.update(self.above(item))
        return False

    def compares(self, n):
        """Whether a name only stands in an assertion, a print, a helper's call, a table, a loop's head or what another name
        gets, and not in the candidate's call."""
        below = n
        for a in self.above(n):
            if isinstance(a, ast.Call) and below is not a.func:
                if called(a).startswith("assert") or called(a) in ("subTest", "print") or called(a) in self.helpers and isinstance(self.parents[a], ast.Expr):
                    return True
                if any(isinstance(f, ast.Name) and f.id not in self.foreign for f in ast.walk(a.func)):
                    return False
            if isinstance(a, ast.stmt):
                return isinstance(a, (ast.Assert, ast.If, ast.For) + FUNCTIONS) or isinstance(a, ast.Assign) and any(b in self.bound for b in self.above(n))
            below = a

    def question(self, n):
        """What a call with literals asks, if that is asserted to be true or false."""
        if isinstance(n, ast.Call) and n.args and not n.keywords and all(map(self.plain, n.args)) and any(isinstance(f, ast.Name) and f.id not in self.foreign for f in ast.walk(n.func)):
            return ast.dump(n.func)

    def holds(self, n):
        """Whether a question is asserted to be true (or false); None if it is not asserted."""
        parent, holds = self.parents[n], True
        while isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not):
            parent, holds = self.parents[parent], not holds
        return holds if isinstance(parent, (ast.Assert, ast.BoolOp)) else None

    def swap(self, at, n, holds):
        """What is asked, by what is asked where the answer is the opposite."""
        others = [o for o in self.questions if self.question(o) == self.question(n) and self.holds(o) is (not holds)]
        for other in self.rng.sample(others, min(2, len(others))):
            start, end = self.span(n.args[0])[0], self.span(n.args[-1])[1]
            new = self.text(self.span(other.args[0])[0], self.span(other.args[-1])[1])
            if "\n" not in new and b"\n" not in self.data[start:end]:
                self.edit(at, "swap", n, start, end, new)

    def opposite(self, node):
        """Assert the opposite, or expect no exception. A candidate that passes the assertion fails its opposite."""
        if isinstance(node, ast.Assert) or isinstance(node, ast.If) and len(node.body) == 1 and self.accuses(node.body[0]):
            if self.asks(node.test):
                self.edit(node, "opposite", node.test, *self.span(node.test), self.denied(node.test))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and called(node.value) in TURNED and any(map(self.asks, node.value.args)):
            end = self.span(node.value.func)[1]
            self.edit(node, "opposite", node.value, end - len(called(node.value)), end, TURNED[called(node.value)])
        elif isinstance(node, ast.Try) and len(node.handlers) == 1 and not node.finalbody and self.demanded(node):
            body = [s for s in node.body if not self.accuses(s)]
            (start, _), (catch, _), (end, _) = map(self.span, (node, node.handlers[0], node.handlers[0].body[0]))
            head = re.match(r"except\b[^:\n]*:", self.text(catch, end))
            if head and any(map(self.asks, body)):
                self.edit(body[0], "opposite", node, start, catch + head.end(), "if 1" + self.text(start + len("try"), catch) + "elif 1:", last=body[-1])
        elif isinstance(node, ast.With) and len(node.items) == 1 and isinstance(node.items[0].context_expr, ast.Call) and any(map(self.asks, node.body)):
            item = node.items[0]
            start, end = self.span(node)[0], self.span(item.optional_vars or item.context_expr)[1]
            if called(item.context_expr) in ("raises", "assertRaises", "assertRaisesRegex") and self.text(end, end + 1) == ":" and "\n" not in self.text(start, end):
                self.edit(node.body[0], "opposite", node, start, end, "if 1", last=node.body[-1])

    def optional(self, node):
        """Whether a right candidate may choose that a node does not run."""
        return any(isinstance(above, ast.If) and n is not above.test and self.asks(above.test) or isinstance(n, ast.ExceptHandler) and not
                   (len(above.handlers) == 1 and self.demanded(above)) for n, above in [(n, self.parents[n]) for n in self.above(node) if n in self.parents])

    def demanded(self, node):
        """Whether the tests fail if a try statement meets no exception."""
        block = next(b for _, b in ast.iter_fields(self.parents[node]) if isinstance(b, list) and node in b)
        after = block[block.index(node) + 1:][:1]
        return any(map(self.accuses, node.body[1:] + node.orelse + after))

    def asks(self, node):
        """Whether something may be the candidate's."""
        return any(isinstance(n, ast.Name) and n.id not in self.foreign for n in ast.walk(node))

    def denied(self, test):
        """The opposite of a condition, as people write it."""
        start, end = self.span(test)
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return "(%s)" % self.text(start + len("not"), end)
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            after, before = self.span(test.left)[1], self.span(test.comparators[0])[0]
            op = self.text(after, before)
            if " ".join(op.split()) in TURNED and "\n" not in op:
                return self.text(start, after) + " %s " % TURNED[" ".join(op.split())] + self.text(before, end)
        return "not %s" % self.text(start, end) if isinstance(test, (ast.Call, ast.Name, ast.Attribute)) else "not (%s)" % self.text(start, end)

    # Changes.

    def vary(self, at, literals, again=False, ordered=False):
        made = len(self.edits)
        for literal in self.rng.sample(literals, min(ROWS, len(literals))):
            leaves = self.leaves(literal) if literal in self.parents else []
            lists = [n for n in ast.walk(literal) if ordered and leaves and len(getattr(n, "elts", ())) > 1 and not isinstance(n, ast.Set)]
            for leaf in self.rng.sample(leaves, min(3 - bool(lists), len(leaves))) + self.rng.sample(lists, min(1, len(lists))):
                for new in self.variants(leaf, literal)[:4 if leaf in lists else 2]:
                    self.edit(at, "value", leaf, *self.span(leaf), new, again)
        return len(self.edits) > made

    def inline(self, at, name, literal):
        """Put a changed literal in the place of its name."""
        (first, last), made = self.span(literal), len(self.edits)
        for leaf in self.rng.sample(self.leaves(literal), min(3, len(self.leaves(literal)))):
            for new in self.variants(leaf, literal)[:2]:
                text = self.text(first, self.span(leaf)[0]) + new + self.text(self.span(leaf)[1], last)
                if "\n" not in text:
                    self.edit(at, "value", name, *self.span(name), text)
        return len(self.edits) > made

    def told(self, at, start, end, new):
        """An edit that also changes what the assertion's message and its comment say about a value."""
        messages = [at.msg] if isinstance(at, ast.Assert) else (at.value.args[2:] + [k.value for k in at.value.keywords]) if isinstance(at, ast.Expr) else []
        first, last = self.span(at)
        rest = self.text(last, (self.lines + [len(self.data)])[at.end_lineno]).rstrip()
        stop = last + len(rest.encode()) if rest.lstrip().startswith("#") else last
        begin = min([self.span(m)[0] for m in messages if m is not None] + [last])
        value, changed = self.text(start, end).strip("'\""), new.strip("'\"")
        if not first <= start < end <= begin or not value:
            return end, new
        said = self.text(begin, stop)
        telling = re.sub(r"(?<![\w.])%s(?![\w])" % re.escape(value), lambda m: changed, said)
        return (end, new) if telling == said else (stop, new + self.text(end, begin) + telling)

    def edit(self, at, kind, node, start, end, new, again=False, last=None):
        if kind == "value":
            end, new = self.told(at, start, end, new)
        own, inside, test, row = self.function(at), self.function(node), "", False
        where = at if inside in (own, None) else next(n for n in self.above(node) if isinstance(n, ast.stmt))  # of a helper's call
        names = {n.id for b in self.above(node) if isinstance(b, ast.Assign) for target in b.targets for n in ast.walk(target) if isinstance(n, ast.Name)}
        uses = [] if self.each and inside else [self.function(n) for (_, name), found in self.loads.items() if name in names for n in found]
        if self.each:
            owner = next((f for f in (inside, own) if f is not None and f.name.startswith("test")), None)
            uses = uses if inside else [owner] + [f for f in uses if f is not owner]
            if owner is None or inside not in (owner, None) or self.handed(at) or not all(f is not None and f.name.startswith("test") for f in uses):
                return
            test, row = self.test(owner), any(n in owner.decorator_list for n in self.above(node))
        key = (start, end, new, test)
        if key not in self.made:
            self.made.add(key)
            place = self.places.setdefault((test, where.lineno, where.end_lineno), len(self.places))
            self.edits.append({"start": start, "end": end, "new": new, "kind": kind, "shared": again or len(uses) > 1, "place": place,
                               "test": test, "row": row, "line": where.lineno, "last": (last or where).end_lineno})

    def handed(self, at):
        """Whether an assertion is in a function that a test hands over: who calls it can catch what it raises."""
        inner = [f for f in self.above(at) if isinstance(f, FUNCTIONS)][:-1]
        uses = [n.id for n in ast.walk(self.tree) if isinstance(n, ast.Name) and getattr(self.parents[n], "func", None) is not n] if inner else []
        return any(f.decorator_list or isinstance(self.parents[f], ast.ClassDef) or f.name in uses for f in inner)

    @staticmethod
    def plain(node):
        """Whether an expression is made of literals only."""
        try:
            return not isinstance(node, (ast.BinOp, ast.Call)) and ast.literal_eval(node) is not Ellipsis
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError, AttributeError):
            return False

    def leaves(self, node):
        """The literals in one, and empty lists and the like."""
        children = [c for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr)]
        if isinstance(node, ast.UnaryOp) or not children and isinstance(node, (ast.Constant, ast.List, ast.Tuple, ast.Dict)):
            return [node] if getattr(node, "value", 0) is not None else []
        return [leaf for child in children for leaf in self.leaves(child)]

    def variants(self, leaf, whole):
        """Sources with another value of the same type and in the same form; whole changes with it."""
        (start, end), (first, last) = self.span(leaf), self.span(whole)
        old, found, value, before = self.text(start, end), [], ast.literal_eval(leaf), ast.literal_eval(whole)
        for new in self.exchanged(leaf) if getattr(leaf, "elts", ()) else self.others(value, old):
            try:
                changed = ast.literal_eval("(%s\n)" % new)
                if type(changed) is type(value) and changed != value and new.count("\n") == old.count("\n") and new not in found \
                        and ast.literal_eval("(%s\n)" % (self.text(first, start) + new + self.text(end, last))) != before:
                    found.append(new)
            except (ValueError, SyntaxError, TypeError):
                continue
        return found

    def exchanged(self, node):
        """A list with two neighbours exchanged, so that the elements are the same."""
        first, last = self.span(node)
        pairs = list(zip(map(self.span, node.elts), map(self.span, node.elts[1:])))
        for (a, b), (c, d) in self.rng.sample(pairs, len(pairs)):
            yield self.text(first, a) + self.text(c, d) + self.text(b, c) + self.text(a, b) + self.text(d, last)

    def others(self, value, old):
        if isinstance(value, bool):
            return [repr(not value)]
        if isinstance(value, (int, str)) and "\n" not in old and self.answers[value] > isinstance(value, int):
            # Where tests expect few answers, as "yes" and "no", a new one would show, and a misspelled word shows anywhere.
            few = self.answers[value] > 1
            alike = [v for v, n in self.answers.items() if n > few and type(v) is type(value) and v != value]
            alike = [self.sources[v] for v in self.rng.sample(alike, min(8, len(alike))) if letters(v) != letters(value)]
            if alike:
                return alike
        if isinstance(value, (int, float, str, bytes)):
            return self.digits(value, old) if isinstance(value, (int, float)) else self.texts(value, old)
        return {list: ["[0]", "[1]"], tuple: ["(0,)", "(1,)"], dict: ["{0: 1}", "{1: 1}"]}.get(type(value), [])

    def expected(self):
        """How often each int and str is what an equality, or the end of a row, expects, and how each is written."""
        expects = lambda n, by: isinstance(by, ast.Compare) and isinstance(by.ops[0], ast.Eq) or isinstance(by, ast.Call) and called(by) in EQUAL or isinstance(by, ast.Tuple) and n in by.elts[-1:]
        found = [(ast.literal_eval(n), self.text(*self.span(n))) for n, by in self.parents.items() if isinstance(n, (ast.Constant, ast.UnaryOp)) and expects(n, by) and self.plain(n)]
        return collections.Counter(v for v, _ in found if type(v) in (int, str)), {v: text for v, text in found if type(v) in (int, str)}

    def digits(self, value, old):
        """One digit of the number changed: the sign, the length and, of an int, the parity stay."""
        bare = old.lower().lstrip("+- ")
        begin = len(old) - len(bare)
        base = {"0x": 16, "0o": 8, "0b": 2}.get(bare[:2], 10)
        at = [i for i, c in enumerate(old.lower()) if i >= begin + 2 * (base != 10) and c in "0123456789abcdef"[:base]]
        if isinstance(value, float):
            power = old.lower().find("e")
            at = [i for i in at if power < 0 or i < power]
            at = [i for i in at if old[i] != "0"][:1] or at[:1]  # a tolerance does not hide it
        found = []
        for i in at:
            digit, letter = int(old[i], 16), old[i].isalpha()
            steps = (-2, 2, -4, 4) if i == at[-1] and isinstance(value, int) else (-1, 1, -2, 2)
            for d in (digit + s for s in steps):
                if 0 <= d < base and (d > 9) == letter and (d > 0 or i > at[0]):
                    new = "%x" % d
                    found.append(old[:i] + (new.upper() if old[i].isupper() else new) + old[i + 1:])
        self.rng.shuffle(found)
        return found + [repr(value + 2 if value >= 0 else value - 2)]

    def texts(self, value, old):
        """Two words or letters exchanged, so that the letters are the same, or one character changed into one of its kind."""
        quote = min([i for i in (old.find("'"), old.find('"')) if i >= 0])
        body = [i for i, c in enumerate(old) if i > quote and c.isascii() and c.isalnum() and "\\" not in old[max(0, i - 8):i]]
        kind = lambda c: (c.isdigit(), c.isupper())
        turned = [old[:i] + old[i + 1] + old[i] + old[i + 2:] for i in body if i + 1 in body and kind(old[i]) == kind(old[i + 1]) and "0" not in old[i:i + 2]]
        words = [m for m in re.finditer(r"[A-Za-z0-9]+", old) if m.start() in body] if "\\" not in old else []
        moved = [old[:a.start()] + b.group() + old[a.end():b.start()] + a.group() + old[b.end():] for a, b in zip(words, words[1:])]
        other = []
        for i in self.rng.sample(body, min(4, len(body))):
            among = "123456789" if old[i].isdigit() else "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if old[i].isupper() else "abcdefghijklmnopqrstuvwxyz"
            other.append(old[:i] + self.rng.choice(among.replace(old[i], "")) + old[i + 1:])
        self.rng.shuffle(turned)
        self.rng.shuffle(moved)
        return moved[:1] + turned + moved[1:] + other + [old[:quote + 1] + "x" + old[quote + 1:]]

    def canary(self):
        """Make every test fail where it ends or, if there is none, the file."""
        tests = [n for n in ast.walk(self.tree) if isinstance(n, FUNCTIONS) and n.name.startswith("test") and self.function(n) is n]
        for n in tests:
            start, end = self.span(n.body[0])[0], self.span(n.body[-1])[1]
            indent = self.text(self.lines[n.body[0].lineno - 1], start)
            yield {"start": end, "end": end, "new": "; " + FAIL if indent.strip() else "\n" + indent + FAIL}
            for r in ast.walk(n):
                if isinstance(r, ast.Return) and next(f for f in self.above(r) if isinstance(f, FUNCTIONS)) is n:
                    yield {"start": self.span(r)[0], "end": self.span(r)[0], "new": FAIL + "; "}
        if not tests:
            for n in [n for n in self.tree.body if not isinstance(n, ast.Expr) and getattr(n, "module", "") != "__future__"][:1]:
                at = self.lines[min(n.lineno, *(d.lineno for d in getattr(n, "decorator_list", [n]) or [n])) - 1]
                yield {"start": at, "end": at, "new": PROGRAM_FAILS + "\n"}  # it can end itself before its last line
            yield {"start": len(self.data), "end": len(self.data), "new": "\n" + FAIL + "\n"}


def chosen(file):
    """The edits of all places or, unless each, of PLACES."""
    by_place = {}
    for e in file.edits:
        by_place.setdefault(e["place"], []).append(e)
    if file.each:
        return sorted(file.edits, key=lambda e: (e["kind"] != "value", e["shared"]))
    turned = [place for place, edits in by_place.items() if edits[0]["kind"] == "opposite"]
    others = sorted(by_place.keys() - turned)
    kept = file.rng.sample(others, min(PLACES, len(others)))
    variants = max(VARIANTS, -(-VARIANTS * 4 // len(kept))) if kept else 0  # more of few
    kept += file.rng.sample(turned, min(OPPOSITES, len(turned)))
    return [e for place in kept for e in file.rng.sample(by_place[place], min(variants or 1, len(by_place[place])))]


def main():
    sys.setrecursionlimit(10000)
    request = json.loads(sys.stdin.buffer.read())
    found = {"edits": [], "canary": [], "broken": [], "unread": []}
    for file in request["files"]:
        path = file["path"]
        try:
            compile(file["text"], path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            found["broken"].append(path)
            continue
        try:
            f = File(file["text"], random.Random("%s %s" % (request["seed"], path)), request)
            found["canary"] += [dict(e, path=path) for e in f.canary()]
            f.assertions()
            found["edits"] += [dict(e, path=path) for e in chosen(f)]
        except Exception:  # a form that nobody thought of must not cost the other files theirs
            found["unread"].append(path)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
