"""Lists changes of what Python tests expect.

Reads {"files": [{"path", "text"}], "seed", "places", "variants", "each"} as JSON
and writes {"files": [{"path", "error", "assertions", "edits"}]}. An edit replaces the bytes
from start to end by new, on as many lines. Edits of one place change one assertion,
in other ways.
"""

import ast
import builtins
import json
import random
import sys

EQUAL = {"assertEqual", "assertEquals", "assertListEqual", "assertDictEqual", "assertTupleEqual", "assertSetEqual",
         "assertSequenceEqual", "assertMultiLineEqual", "assertCountEqual", "assertIs", "assertAlmostEqual", "assert_equal"}
OPPOSITE = [("assertTrue", "assertFalse"), ("assertIn", "assertNotIn"), ("assertIsNone", "assertIsNotNone"),
            ("assertIs", "assertIsNot"), ("assertIsInstance", "assertNotIsInstance"), ("assertEqual", "assertNotEqual"),
            ("assertGreater", "assertLessEqual"), ("assertLess", "assertGreaterEqual"), ("assertRegex", "assertNotRegex")]
ERRORS = [ValueError, TypeError, KeyError, IndexError, ZeroDivisionError, AttributeError, RuntimeError]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# Kinds of changes, the best first.
VALUE, WRAPPED, SWAP, BOUND, NEGATION, LITERAL = KINDS = ("value", "wrapped", "swap", "bound", "negation", "literal")
LIBRARY = {"pytest", "numpy"} | set(getattr(sys, "stdlib_module_names", ("math", "random", "copy", "json", "unittest")))
METHODS = {n for t in (str, bytes, list, dict, set) for n in dir(t)}


class File:
    def __init__(self, text, rng):
        self.data, self.rng = text.encode("utf-8", "surrogatepass"), rng
        self.tree = ast.parse(text)
        self.lines, at = [], 0
        for line in self.data.splitlines(keepends=True):
            self.lines.append(at)
            at += len(line)
        self.edits, self.place, self.stated = [], 0, []
        self.parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}
        self.known = self.bindings()
        self.strange = set(dir(builtins)) | {(a.asname or a.name).partition(".")[0] for n in ast.walk(self.tree)
                                             if isinstance(n, (ast.Import, ast.ImportFrom)) for a in n.names
                                             if (getattr(n, "module", None) or a.name).partition(".")[0] in LIBRARY}
        self.asked = self.questions()

    def span(self, node):
        return self.lines[node.lineno - 1] + node.col_offset, self.lines[node.end_lineno - 1] + node.end_col_offset

    def source(self, node):
        start, end = self.span(node)
        return self.data[start:end].decode("utf-8", "surrogatepass")

    def scope(self, node):
        while not isinstance(node, FUNCTIONS + (ast.Module,)):
            node = self.parents[node]
        return node

    def bindings(self):
        """The values that names have: by scope and name, all there are."""
        found = {}

        def bind(target, value, at):
            if isinstance(target, ast.Name):
                found.setdefault((self.scope(at), target.id), []).append(value)
            elif isinstance(target, (ast.Tuple, ast.List)):
                for i, part in enumerate(target.elts):
                    whole = value if isinstance(value, (ast.Tuple, ast.List)) else None
                    bind(part, whole.elts[i] if whole and i < len(whole.elts) else None, at)

        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    bind(target, node.value, node)
            elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
                bind(node.target, node.value, node)
            elif isinstance(node, ast.AugAssign):
                bind(node.target, None, node)
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.For, ast.comprehension)):
                at = node if isinstance(node, ast.For) else self.parents[node]
                table = self.resolve(node.iter)
                if isinstance(table, ast.Call) and isinstance(table.func, ast.Attribute) and table.func.attr == "items":
                    table = self.resolve(table.func.value, found)
                for row in self.rows(self.resolve(node.iter, found)):
                    bind(node.target, row, at)
            elif isinstance(node, FUNCTIONS):
                for mark in node.decorator_list:
                    self.parametrized(mark, node, bind, found)
        return found

    def parametrized(self, mark, function, bind, found):
        if isinstance(mark, ast.Call) and isinstance(mark.func, ast.Attribute) and mark.func.attr == "parametrize" and len(mark.args) > 1:
            try:
                names = ast.literal_eval(mark.args[0])
            except ValueError:
                return
            names = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)
            target = ast.Tuple([ast.Name(n) for n in names])
            for row in self.rows(self.resolve(mark.args[1], found)):
                if isinstance(row, ast.Call):  # pytest.param
                    row = ast.Tuple(row.args)
                bind(target if len(names) > 1 else target.elts[0], row, function.body[0])

    @staticmethod
    def rows(table):
        if isinstance(table, ast.Dict):
            return [ast.Tuple([k, v]) for k, v in zip(table.keys, table.values) if k is not None]
        return table.elts if isinstance(table, (ast.List, ast.Tuple, ast.Set)) else []

    def resolve(self, node, found=None):
        """What a name stands for, if that is one thing."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "items" and not node.args:
            node = node.func.value
        if not isinstance(node, ast.Name) or found is None and not hasattr(self, "known"):
            return node
        values = self.values(node, self.known if found is None else found)
        return values[0] if len(values) == 1 else node

    def values(self, name, known):
        if name in self.parents:
            for scope in (self.scope(name), self.tree):
                if (scope, name.id) in known:
                    values = known[scope, name.id]
                    return [] if None in values else values
        return []

    # What tests assert.

    def assertions(self):
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assert):
                self.condition(node, node.test)
            elif isinstance(node, ast.If) and len(node.body) == 1 and isinstance(node.body[0], ast.Raise):
                self.condition(node, node.test, node.test.lineno, node.body[0].end_lineno)
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                self.call(node, node.value)
            elif isinstance(node, (ast.With, ast.AsyncWith)):
                for item in node.items:
                    self.raises(node, item.context_expr)
        asserted = {n for s in self.stated for n in ast.walk(s)}
        for node in ast.walk(self.tree):  # by which helpers of the tests decide
            if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq) and node not in asserted:
                at = self.begin(node, 1, len(self.lines))
                self.equality(at, node.left, node.comparators[0])

    def condition(self, statement, test, first=0, last=0):
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) and isinstance(statement, ast.Assert):
            for part in test.values:
                self.condition(statement, part, first, last)
            return
        if not self.candidates(test):
            return
        at = self.begin(statement, first, last)
        found = self.truth(at, test)
        if not found:
            for n in ast.walk(test):
                self.swap(at, n)
            whole = self.source(test)
            inner = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else None
            self.replace(at, NEGATION, test, "(%s)" % self.source(inner) if inner is not None and "\n" not in whole else "not (%s)" % whole)
        self.literals(at, test)

    def candidates(self, node):
        """Whether something of a candidate may be in it."""
        return any(isinstance(n, ast.Name) and n.id not in self.strange for n in ast.walk(node))

    def truth(self, at, test):
        """Changes of the expected values of equalities."""
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            return any([self.truth(at, v) for v in test.values])
        if isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and test.func.id == "all" and len(test.args) == 1 \
                and isinstance(test.args[0], (ast.GeneratorExp, ast.ListComp)):
            return self.truth(at, test.args[0].elt)
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Eq, ast.NotEq, ast.Is)):
            if isinstance(test.ops[0], ast.NotEq) and not isinstance(at["statement"], ast.If):
                return False
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
                values = [v for v in self.values(side, self.known) if self.plain(v)]
                if item:  # another key would be missed, whatever the answer
                    values = [w for v in values for w in (v.values if isinstance(v, ast.Dict) else [v])]
                if values and not any(self.plain(v) for v in (self.values(other, self.known) if isinstance(other, ast.Name) else [])):
                    self.rng.shuffle(values)
                    return any([self.vary(at, VALUE, v) for v in values[:4]])
            if isinstance(side, ast.Call) and isinstance(side.func, ast.Name) and side.func.id in ("set", "frozenset", "tuple", "list", "dict", "sorted", "Counter",
                                                                                                "Decimal", "Fraction", "deque", "bytearray", "OrderedDict") \
                    and len(side.args) == 1 and self.plain(side.args[0]):
                return self.vary(at, VALUE, side.args[0])
        if self.plain(left) or self.plain(right):
            return False
        # Whatever it is, a pair of it and something is not equal to it.
        return any([self.replace(at, WRAPPED, side, "(%s, 1)" % self.source(side)) for side in (right, left)])

    def call(self, statement, call):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""
        at = self.begin(statement)
        done = False
        if name in EQUAL and len(call.args) > 1:
            done = self.equality(at, call.args[0], call.args[1])
        elif name in ("assertTrue", "assertFalse") and call.args:
            done = self.truth(at, call.args[0])
        if isinstance(call.func, ast.Attribute) and not done:
            for a, b in OPPOSITE + [(b, a) for a, b in OPPOSITE]:
                if name == a:
                    end = self.span(call.func)[1]
                    self.edit(at, NEGATION, end - len(a.encode()), end, b)
        if name == "assertRaises" and len(call.args) > 1:
            self.error(at, call.args[0])
        self.literals(at, call, name.lower().startswith("assert"))

    def raises(self, statement, call):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in ("raises", "assertRaises", "assertRaisesRegex") and call.args:
            self.error(self.begin(statement), call.args[0])

    def error(self, at, node):
        if isinstance(node, ast.Name):
            expected = getattr(__builtins__, node.id, None)
            others = [e for e in ERRORS if not (isinstance(expected, type) and (issubclass(e, expected) or issubclass(expected, e))) or expected is Exception and e is KeyError]
            for e in self.rng.sample(others, min(3, len(others))):
                self.replace(at, NEGATION, node, e.__name__)

    def literals(self, at, node, wanted=True):
        """Any other literal: those that a candidate is called with, and those that its answers
        are compared with."""
        leaves = list(self.leaves(node)) if wanted and not any(e["place"] == at["place"] and e["kind"] == VALUE for e in self.edits) else []
        self.rng.shuffle(leaves)
        for turn in range(4):
            for leaf in leaves[:12]:
                self.vary(at, LITERAL if self.argument(leaf, node) else BOUND, leaf, 1)

    def argument(self, node, top):
        """Whether a literal is in an argument of a call of a candidate's."""
        while node is not top:
            node, inner = self.parents[node], node
            if isinstance(node, ast.Call) and inner is not node.func:
                if isinstance(node.func, ast.Name) and node.func.id not in self.strange:
                    return True
                if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) \
                        and node.func.value.id not in self.strange and node.func.attr not in METHODS and not node.func.attr.startswith("assert"):
                    return True
        return False

    def questions(self):
        """Calls that are asserted to be true or false: by what is called and that."""
        found = {}
        for n in ast.walk(self.tree):
            if self.question(n) is not None:
                found.setdefault(self.question(n), []).append(n)
        return found

    def question(self, n):
        if not isinstance(n, ast.Call) or n.keywords or not n.args or not all(map(self.plain, n.args)) or not self.candidates(n.func):
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
            new = self.data[self.span(other.args[0])[0]:self.span(other.args[-1])[1]].decode("utf-8", "surrogatepass")
            if "\n" not in new and b"\n" not in self.data[start:end]:
                self.edit(at, SWAP, start, end, new)

    # Changes.

    def begin(self, statement, first=0, last=0):
        self.place += 1
        self.stated.append(statement.test if isinstance(statement, ast.If) else statement)
        names, node = [], statement
        while node in self.parents:
            if isinstance(node, FUNCTIONS):
                names = [node.name]
            elif isinstance(node, ast.ClassDef):
                names.insert(0, node.name)
            node = self.parents[node]
        return {"statement": statement, "place": self.place, "test": "::".join(names),
                "line": first or statement.lineno, "last": last or statement.end_lineno}

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
        elif isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant):
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
        old = self.source(node)
        try:
            value = ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError):
            return False
        options = [new for new in self.others(value, old) if new != old and new.count("\n") == old.count("\n")]
        self.rng.shuffle(options)
        for new in options:
            try:
                changed = ast.literal_eval("(%s\n)" % new)
            except (ValueError, SyntaxError):
                continue
            if type(changed) is type(value) and changed != value and self.replace(at, kind, node, new):
                return True
        return False

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
        return self.edit(at, kind, *self.span(node), new)

    def edit(self, at, kind, start, end, new):
        if any(e["start"] == start and e["end"] == end and e["new"] == new for e in self.edits):
            return False
        changed = self.data[:start] + new.encode("utf-8", "surrogatepass") + self.data[end:]
        try:
            compile(changed.decode("utf-8", "surrogatepass"), "tests", "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
        except (SyntaxError, ValueError):
            return False
        self.edits.append({"start": start, "end": end, "new": new, "kind": kind,
                           **{k: v for k, v in at.items() if k != "statement"}})
        return True


def chosen(edits, places, variants, each, rng):
    """Of all edits those of so many places, or of so many in each test."""
    groups, by_place = {}, {}
    for e in edits:
        by_place.setdefault(e["place"], []).append(e)
    for place, own in by_place.items():
        groups.setdefault(own[0]["test"] if each else "", []).append(place)
    kept = []
    for name, found in groups.items():
        if each and not name.rpartition("::")[2].startswith("test"):
            continue
        strong = [p for p in found if any(e["kind"] == VALUE for e in by_place[p])]
        weak = [p for p in found if p not in strong]
        rng.shuffle(strong)
        rng.shuffle(weak)
        kept += (strong + weak)[:places]
    if not each and kept:
        variants = max(variants, -(-variants * 4 // len(kept)))  # more of few
    for place in sorted(kept):
        for kind in KINDS:
            yield from [e for e in by_place[place] if e["kind"] == kind][:variants]


def listed(file, request):
    rng = random.Random("%s %s" % (request["seed"], file["path"]))
    try:
        f = File(file["text"], rng)
        compile(file["text"], file["path"], "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
        return {"path": file["path"], "error": type(e).__name__}
    f.assertions()
    edits = list(chosen(f.edits, request["places"], request["variants"], request["each"], rng))
    return {"path": file["path"], "assertions": f.place, "edits": [dict(e, path=file["path"]) for e in edits]}


def main():
    sys.setrecursionlimit(10000)
    request = json.loads(sys.stdin.buffer.read())
    json.dump({"files": [listed(f, request) for f in request["files"]]}, sys.stdout)


if __name__ == "__main__":
    main()
