"""What the names of a test file stand for, and what else the tests do with it. blind.py follows in the same program."""

import ast
import builtins
import itertools
import os
import sys

# What makes other values of the same data, and what changes a value in place.
HOLDERS = {"approx", "set", "frozenset", "tuple", "list", "dict", "sorted",
           "Counter", "Decimal", "Fraction", "deque", "bytearray", "OrderedDict"}
CHANGES = {"append", "appendleft", "extend", "insert", "remove", "pop", "popleft", "popitem", "clear",
           "sort", "reverse", "update", "setdefault", "add", "discard"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
STANDARD = getattr(sys, "stdlib_module_names", None) or [n.partition(".")[0] for n in os.listdir(os.path.dirname(os.__file__))]
LIBRARY = {"pytest", "numpy", "math", "time"}.union(STANDARD)
# By these, tests reach what a candidate left.
REACH = {"open", "os", "io", "pathlib", "Path", "subprocess", "run", "check_output", "shutil",
         "urllib", "urlopen", "json", "csv", "sqlite3"}
# What may say something else in each run.
VARY = REACH | {"random", "numpy", "np", "time", "datetime", "uuid", "secrets", "tempfile", "threading",
                "id", "hash", "input", "object", "next", "mock", "ANY"}


def named(node):
    """The last part of a dotted name, or of the name of what is called; "" for anything else."""
    node = getattr(node, "func", node)
    return getattr(node, "attr", getattr(node, "id", ""))


def calls(node, *names):
    """Whether a node calls something with one of these names."""
    return isinstance(node, ast.Call) and named(node) in names


def variable(node):
    """Whether a node is a name, or an attribute of what the tests are methods of."""
    return isinstance(node, ast.Name) or isinstance(node, ast.Attribute) and getattr(node.value, "id", "") in ("self", "cls")


def label(node):
    """What a variable is called in its scope: x, or .x for an attribute."""
    return "." + node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


class Names:
    """The variables of a file, and what the nodes of its tree stand for. A variable is a scope, which is a function or the
    file, and a label; attributes of the tests have the file as their scope."""

    def __init__(self, text, request):
        self.data, self.request = text.encode(), request
        self.lines = list(itertools.accumulate(map(len, [b""] + self.data.splitlines(keepends=True))))  # where each begins, and the end
        self.tree = ast.parse(text)
        self.walked = list(ast.walk(self.tree))
        self.parents = {child: node for node in self.walked for child in ast.iter_child_nodes(node)}
        self.functions = [n for n in self.walked if isinstance(n, FUNCTIONS)]
        self.helpers = {f.name for f in self.functions}
        self.models = {n.name: n for n in self.tree.body  # what may compute what the tests expect
                       if isinstance(n, FUNCTIONS + (ast.ClassDef,)) and not n.decorator_list and not n.name.startswith("test")}
        modules = self.modules()
        tested = {name for name, module in modules.items() if module not in LIBRARY} | set(request["names"] or ())
        tested |= REACH if request["answers"] else set()
        self.foreign = (set(dir(builtins)) | set(modules)) - tested  # names of what is not the candidate's
        self.fixed = self.foreign - VARY - {name for name, module in modules.items() if module in VARY}  # and is the same in each run

        reads = [n for n in self.walked if isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Load)]
        self.passed = {named(n) for n in reads if getattr(self.parents[n], "func", None) is not n}  # names that are read and not called
        self.known = {}  # what each variable gets; None for what is not known
        self.sources = {}  # what this is computed from
        self.bound = {}  # the variables that get a value
        self.meant = {}  # what stands has found for variables
        self.unfollowed = set()  # functions of the tests that are called with what is not known
        self.bindings()
        self.variables = {name for _, name in self.sources} | {n.arg for n in self.walked if isinstance(n, ast.arg)}
        self.loads, self.uses = {}, {}  # where each variable is read, and where all with its label are
        for n in reads:
            self.loads.setdefault(self.key(n), []).append(n)
            self.uses.setdefault(label(n), []).append(n)
        self.owned = set()  # variables in which only the tests have a say
        self.gone = set()  # nodes that blind tests do not have

    def modules(self):
        """The module that each imported name is of, without its submodules; "" for one of the tests' own package."""
        top = lambda dotted: dotted.partition(".")[0]
        return {top(a.asname or a.name): "" if getattr(n, "level", 0) else top(getattr(n, "module", None) or a.name)
                for n in self.walked if isinstance(n, (ast.Import, ast.ImportFrom)) for a in n.names}

    def span(self, node):
        """Where a node begins and ends, in bytes."""
        return self.lines[node.lineno - 1] + node.col_offset, self.lines[node.end_lineno - 1] + node.end_col_offset

    def begin(self, statement):
        """Where the line begins in which a statement begins, with its decorators."""
        return self.lines[min(n.lineno for n in [statement, *getattr(statement, "decorator_list", [])]) - 1]

    def text(self, start, end):
        return self.data[start:end].decode()

    def above(self, node):
        """A node and all that it is part of, from the inside out."""
        while node is not None:
            yield node
            node = self.parents.get(node)

    def steps(self, node):
        """A node and all that it is part of, each with what has it as a part."""
        return [(n, self.parents[n]) for n in self.above(node) if n in self.parents]

    def scope(self, node):
        """The innermost function that a node is part of, or the file."""
        return next(n for n in self.above(node) if isinstance(n, FUNCTIONS + (ast.Module,)))

    def function(self, node):
        """The outermost function that a node is part of, if it is of one."""
        return ([n for n in self.above(node) if isinstance(n, FUNCTIONS)] or [None])[-1]

    def bind(self, target, value, source, scope):
        """Let the variables of a target get a value, which is None if it is not known. It is computed from the source, which
        is None if the candidate may have a say in it."""
        if variable(target):
            key = scope if isinstance(target, ast.Name) else self.tree, label(target)
            self.known.setdefault(key, []).append(value)
            self.sources.setdefault(key, []).append(source)
            self.bound.setdefault(value, []).append(key)
            self.meant.clear()
        elif isinstance(target, (ast.Tuple, ast.List)):
            pairs = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
            for part, own in zip(target.elts, value.elts if pairs else [None] * len(target.elts)):
                self.bind(part, own, own if pairs and source is value else source, scope)
        elif isinstance(target, ast.Starred):
            self.bind(target.value, None, source, scope)

    def bindings(self):
        """Bind all variables: first those that tables may be made of, then those that get rows of these."""
        for n in self.walked:
            self.assigned(n, self.scope(n))
        for f in self.functions:
            self.fixture(f)
            self.parametrized(f)
        for n in self.walked:  # a parameter of which nothing is known is no variable of the file
            inner = isinstance(n, ast.arg) and isinstance(self.parents[self.parents[n]], ast.Lambda)
            if isinstance(n, ast.arg) and not inner and (self.scope(n), n.arg) not in self.known:
                self.bind(ast.Name(n.arg), None, None, self.scope(n))
        for n in self.walked:
            if isinstance(n, (ast.For, ast.AsyncFor, ast.comprehension)):
                for row in self.rows(n.iter) or [None]:
                    self.bind(n.target, row, n.iter, self.scope(n))
        for n in self.walked:
            self.altered(n)

    def assigned(self, n, scope):
        """Bind what a node assigns."""
        if isinstance(n, ast.Assign):
            for target in n.targets:
                self.bind(target, n.value, n.value, scope)
                if isinstance(self.parents[n], ast.ClassDef) and isinstance(target, ast.Name):
                    self.bind(ast.Attribute(ast.Name("cls"), target.id), n.value, n.value, scope)
        elif isinstance(n, ast.Call):
            self.arguments(n)
        elif isinstance(n, ast.AugAssign):
            self.bind(n.target, None, n.value, scope)
        elif isinstance(n, (ast.AnnAssign, ast.NamedExpr)) and n.value:
            self.bind(n.target, n.value, n.value, scope)
        elif isinstance(n, ast.withitem):
            self.bind(n.optional_vars, None, None, scope)
        elif isinstance(n, ast.ExceptHandler) and n.name:
            self.bind(ast.Name(n.name), None, None, scope)
        elif isinstance(n, (ast.Global, ast.Nonlocal)):  # a function gives these names other values
            for above in [s for s in self.above(n) if isinstance(s, FUNCTIONS + (ast.Module,))]:
                self.bind(ast.Tuple(list(map(ast.Name, n.names))), None, None, above)

    def parametrized(self, f):
        """Bind the parameters that get rows of a mark's table."""
        for mark in f.decorator_list:
            if calls(mark, "parametrize") and len(mark.args) > 1 and self.plain(mark.args[0]):
                names = ast.literal_eval(mark.args[0])
                names = [ast.Name(name.strip()) for name in (names.split(",") if isinstance(names, str) else names)]
                for row in self.rows(mark.args[1]):
                    param = calls(row, "param")
                    values = ast.Tuple(row.args if param else [row]) if param or len(names) == 1 else row
                    self.bind(ast.Tuple(names), values, values, f)

    def altered(self, n):
        """Bind a variable whose value a node changes in place."""
        if calls(n, *CHANGES) and isinstance(n.func, ast.Attribute):
            root, source = n.func.value, ast.Tuple(n.args + [k.value for k in n.keywords])
        elif isinstance(n, (ast.Subscript, ast.Attribute)) and not isinstance(n.ctx, ast.Load) and not variable(n):
            root, source = n.value, getattr(next(s for s in self.above(n) if isinstance(s, ast.stmt)), "value", None)
        else:
            return
        while isinstance(root, (ast.Subscript, ast.Call, ast.Attribute)) and not variable(root):
            root = getattr(root, "value", getattr(root, "func", None))
        scope, _ = self.key(root)
        if scope:
            self.bind(root, None, source, scope)

    def arguments(self, call):
        """Bind the parameters of the tests' own functions to what a call gives them, and to what they are without it."""
        unknown = named(call) in self.passed or any(isinstance(a, ast.Starred) for a in call.args) or None in [k.arg for k in call.keywords]
        method = isinstance(call.func, ast.Attribute)
        own = [f for f in self.functions if f.name == named(call) and not f.name.startswith("test")]
        found = [f for f in own if isinstance(self.parents[f], ast.ClassDef) == method]
        for f in [f for f in found if self.parents[f] in self.above(call)] or found:
            self.unfollowed |= {f.name} if unknown else set()
            first = method and "staticmethod" not in map(named, f.decorator_list)  # the parameter that no argument is for
            names = [a.arg for a in getattr(f.args, "posonlyargs", []) + f.args.args][first:]
            given = dict(zip(names[::-1], f.args.defaults[::-1]))
            given.update((a.arg, d) for a, d in zip(f.args.kwonlyargs, f.args.kw_defaults) if d)
            given.update([*zip(names, call.args), *((k.arg, k.value) for k in call.keywords if k.arg)])
            for name, value in given.items():
                self.bind(ast.Name(name), None if unknown else value, None, f)

    def fixture(self, f):
        """Bind the parameters that get what a function returns, if it is a fixture."""
        if "fixture" in map(named, f.decorator_list):
            returned = [n.value for n in ast.walk(f) if isinstance(n, (ast.Return, ast.Yield)) and n.value and self.scope(n) is f]
            for user in [u for u in self.functions if f.name in [a.arg for a in u.args.args]]:
                for value in returned:
                    self.bind(ast.Name(f.name), value, None, user)

    def key(self, name):
        """The variable that a name or an attribute reads: its scope, which is None if it gets nothing in the file, and its label."""
        scopes = [self.tree] if isinstance(name, ast.Attribute) else self.above(name) if name in self.parents else []
        return next((s for s in scopes if isinstance(s, FUNCTIONS + (ast.Module,)) and (s, label(name)) in self.known), None), label(name)

    def rows(self, table):
        """What a loop over a table gets in turn."""
        pairs = calls(table, "items") and isinstance(table.func, ast.Attribute)
        rows = []
        for t in self.stands(table.func.value if pairs else table, {"list"}):
            if isinstance(t, ast.Dict):
                rows += [ast.Tuple([k, v]) if pairs else k for k, v in zip(t.keys, t.values) if k is not None]
            else:
                rows += getattr(t, "elts", ())
        return rows

    def resolve(self, node):
        """The literals among what an expression stands for, also in a set() or the like."""
        return [n for n in self.stands(node, HOLDERS) if self.plain(n)]

    def stands(self, node, through=()):
        """What an expression stands for, also as the argument of a call of a name in through."""
        if isinstance(node, ast.Subscript):
            tables = self.stands(node.value)
            if isinstance(node.slice, ast.Slice) and any(isinstance(t, ast.Constant) for t in tables):
                return [node]  # a part of a text
            items = [self.items(t, node.slice) for t in tables]
            if not all(items):  # what it stands for is a part of the table that is not known
                return self.stands(node.value, through) if "list" in through else [node]
            return [w for found in items for i in found for w in self.stands(i, through)]
        values = self.known.get(self.key(node), []) if variable(node) else []
        if values and None not in values:
            asked = self.key(node), frozenset(through)
            if asked not in self.meant:
                self.meant[asked] = []  # for a variable that gets itself
                self.meant[asked] = list(dict.fromkeys(w for v in values for w in self.stands(v, through)))
            return self.meant[asked]
        if calls(node, *through) and node.args and (not node.keywords or calls(node, "approx")):
            return self.stands(node.args[0], through)
        return [node]

    def items(self, table, key):
        """What a table has at a key or, if that is not known, at any: another key would be missed, whatever the answer.
        Nothing for a slice, and for what is no table."""
        if not isinstance(table, (ast.Dict, ast.List, ast.Tuple)) or table not in self.parents or isinstance(key, ast.Slice):
            return []
        parts = table.values if isinstance(table, ast.Dict) else table.elts
        try:
            at = ast.literal_eval(getattr(key, "value", key) if type(key).__name__ == "Index" else key)  # an Index before Python 3.9
            return [dict(zip(map(ast.literal_eval, table.keys), parts))[at] if isinstance(table, ast.Dict) else parts[at]]
        except (ValueError, TypeError, LookupError):
            return parts

    def fresh(self, node):
        """Whether an expression is no literal and stands for none, except for empty lists and the like, which are filled later."""
        found = self.resolve(node)
        return node not in found and not any(getattr(v, "elts", getattr(v, "keys", True)) for v in found)

    def asks(self, node):
        """Whether something may be the candidate's."""
        return any(isinstance(n, ast.Name) and n.id not in self.foreign for n in ast.walk(node))

    def own(self, node):
        """Whether only the tests have a say in an expression's value, the same in each run."""
        todo, seen = [node], set()
        for part in todo:
            if part is None or isinstance(part, ast.Await):
                return False
            inside = list(ast.walk(part))
            inner = {n.id for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            inner |= {n.arg for n in inside if isinstance(n, ast.arg)} | ({"self"} if isinstance(part, ast.ClassDef) else set())
            seeded = [c for c in inside if calls(c, "Random") and c.args and self.plain(c.args[0])]
            for name in {n for n in inside if isinstance(n, ast.Name) and n.id not in inner}.difference(*map(ast.walk, seeded)):
                key = self.key(name)
                if key not in self.owned and key not in seen:
                    more = self.sources.get(key, [self.models[name.id]] if name.id in self.models else [])
                    if not more and name.id not in self.fixed:
                        return False
                    seen.add(key)
                    todo += dict.fromkeys(more)
        self.owned |= seen
        return True

    def selected(self, literal):
        """Whether the command names the row of a table that has a literal by its values."""
        return any(n in getattr(f, "decorator_list", ()) and f.name + "[" in self.request["selects"] for n, f in self.steps(literal))

    def taken(self, literal):
        """Whether the tests do more with a value than expect it: the candidate may get it, and its answers change, too."""
        known, parts = 0, {*self.above(literal), *ast.walk(literal)}
        while len(parts) > known:  # there are expressions with these values whose names have not been followed
            known = len(parts)
            for n in {n for part in parts for key in self.bound.get(part, ()) for n in self.loads.get(key, ())} - self.gone:
                item = n  # with the subscripts that follow the name
                while isinstance(self.parents[item], ast.Subscript) and self.parents[item].value is item:
                    item = self.parents[item]
                if not variable(n) or parts.intersection(self.stands(item, HOLDERS)):
                    if not self.harmless(n):
                        return True
                    parts.update(self.above(item))
        return False

    def harmless(self, name):
        """Whether a name only stands in a print, a helper's call, a table, a loop's head or what another name gets."""
        for part, above in self.steps(name):
            if isinstance(above, ast.Call) and part is not above.func and named(above) not in HOLDERS:
                if named(above) in ("subTest", "print"):
                    return "file" not in [k.arg for k in above.keywords]
                method = getattr(above.func, "value", None)
                own = method is None or getattr(method, "id", "") in ("self", "cls")
                return own and named(above) in self.helpers - self.unfollowed and isinstance(self.parents[above], ast.Expr)
            if isinstance(above, ast.stmt):
                given = isinstance(above, ast.Assign) and any(n in self.bound for n in self.above(name))
                return given or isinstance(above, (ast.For,) + FUNCTIONS)

    @staticmethod
    def plain(node):
        """Whether an expression is made of literals only."""
        try:
            return not isinstance(node, (ast.BinOp, ast.Call)) and ast.literal_eval(node) is not Ellipsis
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError, AttributeError):
            return False
