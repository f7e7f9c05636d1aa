"""Makes Python tests blind: they ask what they asked, and no longer say what they expect.

It reads a request as JSON: "files", each with "path" and "text"; "ask", the text of ask.py; "answers", the file that answers
are noted in, or "" if the tests are run with ask.py; "names", which belong to the candidate though they are built-in;
"selects", the command, whose rows of tables stay; and "bare", if only assertions are changed. In a blind file, ask(number,
answer) stands in the place of an assertion that is a question. Unless bare, a neutral value (a "blank") is in the place of
what it expected, where that stands elsewhere, tests and their variables have neutral names, and comments and docstrings are
gone.

It writes "questions", as in contrast.go; "stays", where an assertion stays, or what it expects; "files", which are blind;
"canary", edits that make every test fail where it ends or, without tests, the file; "broken", paths of files that do not
compile; and "unread", paths at which it fails: these files are as they were.
"""

import ast
import builtins
import collections
import io
import json
import os
import re
import sys
import tokenize
import types

# What methods and functions assert: equality in which answers count in a way of their own (ask.py), a comparison, a truth,
# an exception, or what of a mock's calls.
CLOSE = {"assertAlmostEqual", "assert_allclose", "assert_almost_equal", "assert_array_almost_equal"}
HOW = {"assertCountEqual": "sorted", "assertSequenceEqual": "list", **dict.fromkeys(CLOSE, "close")}
EQUAL = {"assert%sEqual" % of for of in ("", "List", "Dict", "Tuple", "Set", "MultiLine")} | {"assertEquals", "assert_equal", "assert_array_equal"}
COMPARES = {**dict.fromkeys(EQUAL, ast.Eq), "assertNotEqual": ast.NotEq, "assertIs": ast.Is, "assertIsNot": ast.IsNot, "assertIn": ast.In,
            "assertNotIn": ast.NotIn, "assertLess": ast.Lt, "assertLessEqual": ast.LtE, "assertGreater": ast.Gt, "assertGreaterEqual": ast.GtE}
TRUTHS = {"assertTrue": True, "assertFalse": False}
KINDS = {"assertIsInstance": True, "assertNotIsInstance": False}
RAISES = {"raises", "assertRaises", "assertRaisesRegex"}
CALLED = {"assert_called_with": "call_args", "assert_called_once_with": "call_args_list", "assert_not_called": "call_count",
          "assert_called_once": "call_count", "assert_awaited_with": "await_args", "assert_awaited_once_with": "await_args_list"}
# What positional arguments after the values say about how near they have to be.
NEAR = {"assertAlmostEqual": ["places"], "assert_allclose": ["rel", "atol"], "approx": ["rel", "abs"]}
# How questions compare: without a not, so that they do not tell what is right.
ASKED = {ast.Eq: "==", ast.NotEq: "==", ast.Is: "is", ast.IsNot: "is", ast.In: "in", ast.NotIn: "in",
         ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
CATCHES = {"AssertionError", "Exception", "BaseException"}  # what catches a failure
READS = {"open", "read", "read_text", "read_bytes", "load", "loads"}  # what reads a file
ASSERTS = re.compile("assert|raises$|warns$|deprecated_call$")  # how names of what asserts begin
UNCAUGHT = {"BaseException", "SystemExit", "KeyboardInterrupt", "GeneratorExit",
            "CancelledError", "Cancelled", "SkipTest"}  # exceptions that are no answers
ASK, IN = "_sbench_ask", "_sbench_in"
KEEP = "\nwrite = lambda line, write=os.write, file=os.open(%r, os.O_WRONLY | os.O_APPEND): write(file, line)\n"
ask = types.ModuleType("ask")  # ask.py
FAIL = "raise AssertionError('this test has to fail')"
PROGRAM_FAILS = "if __name__ == '__main__': import atexit, os; atexit.register(os._exit, 1); os.dup2(os.open(os.devnull, os.O_WRONLY), 1)"


class Blind(Names):
    def __init__(self, path, text, request, first):
        super().__init__(text, request)
        self.path, self.first = path, first
        self.tokens = list(tokenize.tokenize(io.BytesIO(self.data).readline))
        self.questions, self.edits = [], []
        if not request["bare"]:
            self.words()
        self.settled = set()  # statements that assert nothing but what is asked
        self.beside = set()  # sides of comparisons whose other side tells what is expected
        self.told = []  # questions, and the literals that they expect
        self.kept = []  # those of the literals that have to stay where they stand

    # What tests ask. The place of a question is what it stands for, an expression or a statement, and what that has to be.

    def assertions(self):
        """Ask what can be asked in the place of assertions."""
        for node in [n for n in self.walked if isinstance(n, (ast.Assert, ast.If, ast.Expr, ast.With, ast.Try)) and not self.caught(n)]:
            known = len(self.questions)
            whole = self.asserted(node)
            asked = self.questions[known] if whole and self.questions[known:] else None
            if whole and not (asked and asked["expected"] == ["returned"]):  # such a call may assert what its arguments say
                self.settled.add(node)
            if asked and (asked["raises"] or self.guarded(node)):  # an exception has to be the answer, or may be
                self.insert(self.span(node)[0], "with %s(%d): " % (IN, asked["id"]))
        for question, literals in self.told:
            if any(isinstance(n, (ast.List, ast.Dict, ast.Set)) and n not in self.gone and self.taken(n) for n in literals):
                question["expected"] = None  # who else gets such a value may change it

    def unasked(self):
        """Assertions that stay as they are, or whose expectation stays where a candidate can find it."""
        stay = [n.lineno for n in self.walked if n in self.beside or (
            self.asserts(n) and n not in self.gone and not self.settled.intersection(self.above(n)))]
        stay += [n.lineno for n in self.kept]
        return [{"path": self.path, "line": line, "told": [line]} for line in dict.fromkeys(stay)]

    def asserts(self, node):
        """Whether a node fails a test, or says that it expects an exception."""
        if isinstance(node, ast.Try):
            return bool(node.handlers) and any(map(self.asks, node.body))
        if isinstance(node, ast.Call):
            name, given = named(node), getattr(node.args[0], "value", None) if node.args else None
            fails = name == "fail" and self.accuses(ast.Expr(node)) or name in ("exit", "_exit") and given
            return bool(fails or name not in self.helpers and ASSERTS.match(name))
        return isinstance(node, ast.Assert) or isinstance(node, ast.Raise) and named(node.exc) == "AssertionError"

    def asserted(self, node):
        """Ask what a statement asserts. Return whether all of it is asked, and an exception may be the answer."""
        if isinstance(node, ast.Assert):
            asked = self.truth(node.test, True)
            if asked and node.msg:
                self.leave_out(node.msg, "''")
            return asked
        if isinstance(node, ast.If):
            if len(node.body) == 1 and self.accuses(node.body[0]) and self.truth(node.test, False):
                self.leave_out(node.body[0], "pass")
            return False
        if not isinstance(node, ast.Expr):
            return self.raising(node)
        call = node.value
        if not isinstance(call, ast.Call) or named(call) in self.helpers:
            return False
        if self.called(node, call):
            return True
        return node not in self.gone and self.asks(call) and self.guarded(node) and self.put(
            (node, True), [call], how="call", expected=["returned"])  # it may have to raise, for all that a candidate knows

    def called(self, node, call):
        """Ask what a call asserts. Return whether it is asked."""
        name, args, place = named(call), call.args, (node, True)
        if name in TRUTHS and args and self.truth(args[0], TRUTHS[name], place):
            for message in args[1:] + [k.value for k in call.keywords]:
                self.leave_out(message, "''")
            return True
        if name in HOW and len(args) > 1:
            return self.equality(place, *args[:2], how=HOW[name], near=self.within(call) if HOW[name] == "close" else (0, 0))
        if name in COMPARES and len(args) > 1:
            return self.comparison(place, args[0], COMPARES[name], args[1], True)
        if name in KINDS and len(args) > 1:
            return self.asks(args[0]) and self.put(place, args[:2], "(isinstance({}, {}))", "truth", expected=[ask.answer(KINDS[name], "truth")])
        if name == "assertIsNone" and args and self.asks(args[0]):
            return self.put(place, args[:1], expected=[ask.plain(None)])
        if name in RAISES and len(args) > 1:
            return self.raised(node, call, args[:1] + args[2:] if name == "assertRaisesRegex" else args)
        if name in CALLED and isinstance(call.func, ast.Attribute):
            literals = [self.resolve(v) for v in args + [k.value for k in call.keywords]]
            return all(literals) and self.put(place, [call.func.value], how=CALLED[name], expected=None, told=sum(literals, []))
        return False

    def raised(self, node, call, args):
        """Ask for the exception of a call that is given in parts, as if it was written out. Return whether it is asked."""
        function, more, end = args[1], args[2:] + call.keywords, self.span(call)[1]
        if isinstance(function, ast.Lambda) and not more:
            return self.raises(node, args[0], [function.body])
        if not isinstance(function, (ast.Name, ast.Attribute)):
            return False
        if not more:
            return self.raises(node, args[0], [function], "({}())")
        after = self.data[self.span(function)[1]:end].split(b",", 1)[-1].lstrip()
        asked = self.raises(node, args[0], [function, (end - len(after), end)], "({}({})")
        self.gone.difference_update(n for part in more for n in ast.walk(part))
        return asked

    def raising(self, node):
        """Ask for the exception of a statement, if a with or a try has to catch one. Return whether it is asked."""
        error = None
        if isinstance(node, ast.With):
            item, call = node.items[0], node.items[0].context_expr
            if len(node.items + node.body) == 2 and not item.optional_vars and calls(call, *RAISES - self.helpers) and call.args:
                error = call.args[0]
        else:
            last, handler = node.body[1:] + node.orelse, (node.handlers + [None])[0]
            if len(node.handlers) == len(last) == 1 and not node.finalbody and self.accuses(last[0]) and isinstance(handler.body[0], ast.Pass):
                error = handler.type
        asked = node.body[0]
        return bool(error) and isinstance(asked, ast.Expr) and self.asks(asked) and self.raises(node, error, [asked])

    def raises(self, node, error, parts, form="({})"):
        """Ask for an exception in the place of a statement. Return whether it is asked."""
        kinds = self.alone(node) and not self.tried(node) and self.kinds(error)
        return bool(kinds) and self.put((node, True), parts, form, expected=None, raises=kinds)

    def kinds(self, error):
        """The names of the exceptions that an expression stands for; none if they are not known."""
        parts = getattr(error, "elts", [error])
        for n in parts:
            if named(n) in UNCAUGHT or not isinstance(n, ast.Attribute) and not (isinstance(n, ast.Name) and n.id not in self.variables):
                return []
        return [n.attr if isinstance(n, ast.Attribute) else getattr(getattr(builtins, n.id, n), "__name__", n.id) for n in parts]

    def guarded(self, node):
        """Whether an exception only matters to the statement that meets it."""
        function = self.scope(node)
        contexts = [i.context_expr for n in self.above(node) if isinstance(n, (ast.With, ast.AsyncWith)) for i in n.items]
        if not all(calls(c, "subTest") for c in contexts) or any(isinstance(n, ast.Try) for n in self.above(node)) or not self.alone(node):
            return False
        return function is self.tree or (  # who calls a function within another, or a test, may catch what it raises
            function is self.function(node) and function.name.startswith("test") and function.name not in self.uses)

    def alone(self, node):
        """Whether a statement shares its lines with no other."""
        (start, end), (first, after) = self.span(node), (self.lines[node.lineno - 1], self.lines[node.end_lineno])
        rest = self.text(end, after).strip()
        return not self.text(first, start).strip() and (not rest or rest.startswith("#"))

    def leave_out(self, node, new):
        """Replace a node by a text that asks nothing."""
        self.edit(*self.span(node), new)
        self.gone.update(ast.walk(node))

    @staticmethod
    def accuses(node):
        """Whether a statement fails a test."""
        if isinstance(node, ast.Assert):
            return isinstance(node.test, ast.Constant) and not node.test.value
        value = getattr(node, "exc", getattr(node, "value", None))
        name, of = named(value), getattr(getattr(getattr(value, "func", None), "value", None), "id", "self")
        return isinstance(node, ast.Raise) and name in ("AssertionError", "Exception") or (
            isinstance(node, ast.Expr) and name == "fail" and of in ("self", "cls", "pytest"))

    def caught(self, node):
        """Whether the tests may go on if an assertion does not hold: they may try again, for example."""
        for below, above in self.steps(node):
            catching = []  # what may name what is caught; None is everything
            if isinstance(above, ast.Try) and below in above.body:
                catching = [h.type for h in above.handlers]
            elif isinstance(above, (ast.With, ast.AsyncWith)) and below in above.body:
                catching = above.items
            if any(c is None or any(getattr(n, "id", "") in CATCHES for n in ast.walk(c)) for c in catching):
                return True
            inner = isinstance(above, FUNCTIONS) and above is not self.function(above)
            if inner and (above.decorator_list or isinstance(self.parents[above], ast.ClassDef) or above.name in self.passed):
                return True  # who gets this function can catch what it raises
            marks = [n for d in getattr(above, "decorator_list", []) for n in ast.walk(d)]
            if any(named(n).lower() in ("expectedfailure", "xfail") for n in marks):
                return True
        return False

    def tried(self, node):
        """Whether the tests may catch another exception than the expected one."""
        return any(isinstance(above, ast.Try) and below in above.body and above.handlers for below, above in self.steps(node))

    def truth(self, test, holds, place=None):
        """Ask what is asserted to hold, or not to. Return whether all of it is asked. What denies it is part of the place, so
        that the question's words do not tell the answer."""
        place = place or (test, holds)
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self.truth(test.operand, not holds, place)
        if isinstance(test, ast.BoolOp):
            return isinstance(test.op, ast.And) == holds and all([self.truth(value, holds) for value in test.values])
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            return self.comparison(place, test.left, type(test.ops[0]), test.comparators[0], holds)
        if isinstance(test, ast.Call) and holds and test.args:
            name, arg, alone = named(test), test.args[0], len(test.args) == 1
            if name == "all" and alone and isinstance(arg, (ast.GeneratorExp, ast.ListComp)):
                return self.truth(arg.elt, True)
            near = name == "isclose" and len(test.args) == 2 and not test.keywords
            if near and self.equality(place, *test.args, how="close", near=(0, 1e-8)):
                return True
            text = arg.value if name in ("startswith", "endswith") and alone and isinstance(arg, ast.Constant) else None
            if text and isinstance(text, (str, bytes)) and isinstance(test.func, ast.Attribute) and self.asks(test.func):
                form = "({})[:%d]" if name == "startswith" else "({})[-%d:]"
                return self.put(place, [test.func.value], form % len(text), expected=[ask.plain(text)])
        known = place[0] is not test or isinstance(test, (ast.Call, ast.Name, ast.Attribute, ast.Subscript))
        return known and self.asks(test) and self.put(place, [test], how="truth", expected=[ask.answer(holds, "truth")])

    def comparison(self, place, left, op, right, holds):
        """Ask for what has to be equal or near to what the tests expect, or else how the two compare. Return whether it is asked."""
        equal = op in ((ast.Eq, ast.Is) if holds else (ast.NotEq, ast.IsNot))
        near = holds and self.difference(left, op, right)
        return (equal and self.equality(place, left, right)
                or near and self.equality(place, *near[:2], how="close", near=near[2:]) or self.compared(place, left, op, right, holds))

    def compared(self, place, left, op, right, holds):
        """Ask how two values compare, in the same words whether they have to or must not. Return whether it is asked."""
        yes = holds == (op not in (ast.NotEq, ast.IsNot, ast.NotIn))
        form, how = ("(({}), ({}))", "equal") if ASKED[op] == "==" else ("(({}) %s ({}))" % ASKED[op], "truth")
        asked = (self.asks(left) or self.asks(right)) and self.put(place, [left, right], form, how, expected=[ask.answer(yes, "truth")])
        if asked and yes and self.tells(left, ASKED[op], right):
            self.beside.add(left)
        return asked

    def tells(self, left, op, right):
        """Whether one side of a comparison that has to hold says what the other has to be or, if it is a text, to have."""
        sides = self.stands(left), self.stands(right)
        left_own, right_own = [self.own(side) or not any(map(self.asks, values)) for side, values in zip((left, right), sides)]
        if op == "in":
            return right_own or any(isinstance(getattr(v, "value", None), (str, bytes)) for v in sides[0])
        reads = [n for values in sides for v in values for n in ast.walk(v) if calls(n, *READS)]
        file = any(isinstance(n.func, ast.Attribute) or named(n) == "open" for n in reads)  # load(x) may be the candidate's
        return op == "==" and (file or left_own or right_own)

    def difference(self, left, op, right):
        """The two sides of a difference, and how small it has to be, absolutely and in proportion; None for another comparison."""
        inside = left.args[:1] if calls(left, "abs", "fabs") and op in (ast.Lt, ast.LtE) else []
        if inside and isinstance(inside[0], ast.BinOp) and isinstance(inside[0].op, ast.Sub) and self.number(right) is not None:
            return inside[0].left, inside[0].right, self.number(right), 0

    def number(self, node):
        return node.value if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) else None

    def within(self, call):
        """How far the values of an equality may be apart, absolutely and in proportion; None if that is not known."""
        given = {k.arg: self.number(k.value) for k in call.keywords if k.arg not in ("msg", "err_msg", "verbose", "nan_ok")}
        given.update(zip(NEAR.get(named(call), ["decimal"]), map(self.number, call.args[1 if named(call) == "approx" else 2:])))
        if None in given.values():
            return None
        places = [part * 10.0 ** -given[name] for name, part in (("places", 0.5), ("decimal", 1.5)) if name in given]
        return (max([given.get("delta", 0), given.get("abs", 0), given.get("atol", 0)] + (places or [1e-6])),
                max(given.get("rel", 0), given.get("rtol", 0), 0 if "almost" in named(call).lower() else 1e-6))

    def approximate(self, side, how, near):
        """How answers count and how far they may be apart, if one side of an equality has approx, and else as given."""
        given = [self.within(n) for v in [side] + self.stands(side) for n in ast.walk(v) if calls(n, "approx")]
        return ("close", None if None in given else tuple(map(max, zip(*given)))) if given else (how, near)

    def equality(self, place, left, right, how="", near=(0, 0)):
        """Ask for the side of an equality that may be the candidate's, if the tests say or compute the other side. Return
        whether it is asked."""
        computable = not how
        for side in left, right:
            how, near = self.approximate(side, how, near)
        left, right = [n.args[0] if calls(n, "approx") and n.args else n for n in (left, right)]
        sides = ((right, left), (left, right)) if near else ()
        return (any(self.expected(place, side, other, how, near) for side, other in sides)
                or computable and any(self.computed(place, side, other, how, near) for side, other in sides))

    def expected(self, place, side, other, how, near):
        """Ask for one side of an equality, if the other side is made of literals. What only tests a model of the tests is left
        out, so that the model can be, too. Return whether this is done."""
        literals, through = self.resolve(side), self.stands(side, HOLDERS)
        if literals and calls(other, *self.models) and named(other) not in (self.request["names"] or ()) and self.own(other):
            self.leave_out(place[0], str(place[1]))
            return True
        if not literals or len(literals) < len(through) or not self.asks(other):
            return False
        if self.fresh(side) and (self.resolve(other) or variable(side) and any(map(self.taken, literals))):
            return False  # the tests fill it
        if not self.fresh(other) and (side not in literals or other in self.resolve(other)):
            return False
        direct = self.stands(side, {"approx"}) == through
        answers = [ask.answer(ast.literal_eval(n), how) for n in literals] if direct else None
        return self.put(place, [other], how=how, expected=answers, near=near, told=literals, loose=not self.own(side))

    def computed(self, place, side, other, how, near):
        """Ask for one side of an equality, if the tests compute the other side without the candidate. Return whether it is asked."""
        changes = any(isinstance(n, ast.NamedExpr) or calls(n, *CHANGES) for n in ast.walk(side))
        if changes or isinstance(side, (ast.Name, ast.Attribute, ast.Subscript)) or not self.asks(other):
            return False
        return self.own(side) and not self.own(other) and self.put(place, [other], how=how, expected=None, near=near)

    def question(self, at, expected, near=(0, 0), told=(), loose=False, raises=()):
        """Note a question that is asked where at stands, and return its number. told are the literals that it expects, and it
        is loose if the candidate has a say in which of them."""
        number = self.first + len(self.questions)
        statement = next(n for n in self.above(at) if isinstance(n, ast.stmt))
        self.questions.append({
            "id": number, "path": self.path, "line": statement.lineno,
            "told": sorted({n.lineno for n in told or [statement] if n in self.parents}), "expected": expected, "near": near, "raises": raises,
            "weak": expected in (["yes"], ["returned"]), "loose": loose, "optional": self.optional(at), "looped": self.looped(at)})
        self.told.append((self.questions[-1], told))
        return number

    def optional(self, node):
        """Whether a right candidate may choose that a node does not run."""
        for n, above in self.steps(node):
            if isinstance(above, (ast.If, ast.While)) and n is not above.test and self.asks(above.test):
                return True
            if isinstance(above, ast.Try) and n not in above.finalbody and not any(map(self.accuses, above.body + above.orelse)):
                if isinstance(n, ast.ExceptHandler) or any(not isinstance(h.body[-1], ast.Raise) and not self.accuses(h.body[-1]) for h in above.handlers):
                    return True
        return False

    def looped(self, node):
        """Whether a node stands in a loop over something in which the candidate has a say."""
        loops = [above for n, above in self.steps(node) if isinstance(above, (ast.For, ast.AsyncFor)) and n is not above.iter]
        return not all(self.own(loop.iter) for loop in loops)

    def put(self, place, parts, form="({})", how="", **question):
        """Let a question stand in a place. Its answer has a form, in which parts of the file stand for the braces: nodes, or
        where they begin and end; how says what counts of it. Return whether the question is asked."""
        (whole, holds), nodes = place, [part for part in parts if isinstance(part, ast.AST)]
        number = 0 if any(isinstance(n, ast.Starred) for n in nodes) else self.question(nodes[0], **question)
        if number:
            before = "assert " if isinstance(whole, ast.stmt) else "" if holds else "not "
            asked = "%s%s(%d, %s%s)" % (before, ASK, number, form, ", %r" % how if how else "")
            (at, end), texts = self.span(whole), asked.split("{}")
            for part, text in zip(parts, texts):
                first, last = self.span(part) if part in nodes else part
                self.edit(at, first, text)
                at = last
            self.edit(at, end, texts[-1])
            self.gone.update(set(ast.walk(whole)).difference(*map(ast.walk, nodes)))
        return bool(number)

    def edit(self, start, end, new):
        self.edits.append({"start": start, "end": end, "new": new})

    def insert(self, at, new):
        """Insert a text before what else is inserted there."""
        self.edits.insert(0, {"start": at, "end": at, "new": new})

    # What else tells what is expected.

    def blanks(self):
        """Put neutral values in the place of expected ones that nothing else is done with."""
        held = {n for call in self.walked if calls(call, *HOLDERS) for arg in call.args for n in self.stands(arg, HOLDERS)}
        for literal in dict.fromkeys(n for _, literals in self.told for n in literals):
            if literal not in self.parents or literal in self.gone:
                continue
            if self.selected(literal) or self.taken(literal):
                self.kept.append(literal)
            else:
                value = ast.literal_eval(literal)
                decimal = isinstance(value, str) and value.lstrip("-")[:1].isdigit()  # perhaps
                self.edit(*self.span(literal), "None" if literal not in held else "'0'" if decimal else repr(type(value)()))

    def unused(self):
        """Leave out functions and classes that only computed what was expected."""
        known = -1
        while known < len(self.gone):
            known = len(self.gone)
            for name, model in self.models.items():
                uses = [n for n in self.uses.get(name, ()) if model not in self.above(n)]
                if uses and model not in self.gone and self.gone.issuperset(uses):
                    self.leave_out(model, "%s = None" % name)

    def places(self):
        """Where each variable, function and class that can be found under another name has its name; none of a class's fields."""
        places, fields = {}, set()
        for n in self.walked:
            if isinstance(n, FUNCTIONS + (ast.ClassDef,)):
                places.setdefault(n.name, []).append(re.compile(rb"(def|class)\s+").search(self.data, self.span(n)[0]).end())
                fields |= {f.id for s in n.body if isinstance(n, ast.ClassDef) and not isinstance(s, FUNCTIONS) for f in ast.walk(s) if isinstance(f, ast.Name)}
            elif isinstance(n, ast.Name):
                places.setdefault(n.id, []).append(self.span(n)[0])
        counts = collections.Counter(t.string for t in self.tokens if t.type == tokenize.NAME)
        texts = [t.string for t in self.tokens if t.type not in (tokenize.NAME, tokenize.COMMENT)]
        others = " ".join(texts + [self.request["selects"]] + [f["text"] for f in self.request["files"] if f["path"] != self.path])
        return {name: found for name, found in places.items() if counts[name] == len(found) and name not in fields and not re.search(r"\b%s\b" % name, others)}

    def words(self):
        """Neutral names for tests, and for variables and helpers that nothing else can name: a word like "invalid" tells what
        is expected."""
        if re.search(" -k|::\\w*['\"]?[$`]", self.request["selects"]):  # the command makes names of tests
            return
        places, used = self.places(), {n.id for n in self.walked if isinstance(n, ast.Name)}
        stored = {n.id for n in self.walked if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and not n.id.startswith(("_", "pytest", "collect"))}
        if not self.request["answers"] or used & {"locals", "vars", "globals", "eval", "exec", "dir"}:
            stored = set()
        defined = {n.name for n in self.walked if isinstance(n, FUNCTIONS + (ast.ClassDef,))}
        tests = sorted(n for n in defined.intersection(places) if n.lower().startswith("test"))  # unittest runs them in this order
        renamed = {n: "%s_%04d" % (n[:4], i) for i, n in enumerate(tests)}
        helpers = {n for n, f in self.models.items() if isinstance(f, FUNCTIONS) and not n.startswith(("_", "pytest", "setup", "teardown", "load"))}
        renamed.update({n: "name_%04d" % i for i, n in enumerate(places) if n in stored - defined or stored and n in helpers})
        for name, new in renamed.items():
            for at in places[name]:
                self.edit(at, at + len(name.encode()), new)

    def strings(self):
        """Leave out what only people read: docstrings and comments."""
        for n in [] if "__doc__" in map(named, self.parents) else self.walked:
            text = n.value.value if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant) else None
            if isinstance(text, str) and ">>>" not in text and not self.given(self.parents[n]):
                self.edit(*self.span(n), '""')
        for token in self.tokens:
            (row, column), comment = token.start, token.string
            if token.type == tokenize.COMMENT and not (row < 3 and ("coding" in comment or comment.startswith("#!"))):
                at = self.lines[row - 1] + len(self.text(*self.lines[row - 1:row + 1])[:column].encode())
                self.edit(at, at + len(comment.encode()), "")

    def given(self, node):
        """Whether the candidate gets a function or a class, and so can read its docstring."""
        return (isinstance(node, FUNCTIONS + (ast.ClassDef,)) and not node.name.startswith("test")
                and (node.name in self.passed or any(map(self.asks, node.decorator_list))))

    def prelude(self):
        """Declare ask where the file's own statements begin."""
        own = self.tree.body[ast.get_docstring(self.tree) is not None:]
        first = next(n for n in own if getattr(n, "module", "") != "__future__")
        self.insert(self.begin(first), "{0} = {{}}; exec({1!r}, {0}); {2}, {0} = {0}['asking'], {0}['ask']{3}".format(
            ASK, self.request["ask"] + KEEP % self.request["answers"], IN, "\n" if hasattr(first, "body") else "; "))

    def blind(self):
        """Return the text that asks."""
        self.assertions()
        if not self.request["bare"]:
            self.unused()
            self.blanks()
            self.strings()
        if self.questions and self.request["answers"]:
            self.prelude()
        text, at = b"", 0
        for e in sorted(self.edits, key=lambda e: (e["start"], e["start"] != e["end"], -e["end"])):
            if e["start"] >= at:
                text += self.data[at:e["start"]] + e["new"].encode()
                at = e["end"]
        return (text + self.data[at:]).decode()

    def canary(self):
        """Where texts have to stand so that every test fails at its end or, if there is none, the file. Yields them."""
        tests = [f for f in self.functions if f.name.startswith("test") and self.function(f) is f]
        for n in tests:
            start, end = self.span(n.body[0])[0], self.span(n.body[-1])[1]
            indent = self.text(self.lines[n.body[0].lineno - 1], start)
            yield end, "; " + FAIL if indent.strip() else "\n" + indent + FAIL
            for r in ast.walk(n):
                if isinstance(r, ast.Return) and self.scope(r) is n:
                    yield self.span(r)[0], FAIL + "; "
        if not tests:
            for n in [n for n in self.tree.body if not isinstance(n, ast.Expr) and getattr(n, "module", "") != "__future__"][:1]:
                yield self.begin(n), PROGRAM_FAILS + "\n"  # it can end itself before its last line
            yield len(self.data), "\n" + FAIL + "\n"


def main():
    sys.setrecursionlimit(10000)
    request = json.loads(sys.stdin.buffer.read())
    exec(request["ask"], ask.__dict__)
    found = {"questions": [], "stays": [], "files": [], "canary": [], "broken": [], "unread": []}
    for file in request["files"]:
        path, text = file["path"], file["text"]
        try:
            compile(text, path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            found["broken"].append(path)
            continue
        try:
            f = Blind(path, text, request, len(found["questions"]) + 1)
            found["canary"] += [{"path": path, "start": at, "end": at, "new": new} for at, new in f.canary()]
            blind = f.blind()
            compile(blind, path, "exec", dont_inherit=True)
            found["questions"] += f.questions
            found["stays"] += f.unasked()
        except Exception:  # a form that nobody thought of must not cost the other files theirs
            found["unread"].append(path)
            blind = text
        found["files"].append({"path": path, "text": blind})
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
