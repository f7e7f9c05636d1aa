"""Runs a candidate's tests: the candidate is in a process of its own, or beside them.

In its own process it is sealed: see far.py. Beside them, candidate and tests share one namespace, as data sets run
them. The report is the request's token, a word and, for a candidate that is no Python, the line of the error.
"""

import __future__
import ast
import builtins
import json
import os
import posix
import re
import sys
import textwrap
import traceback
import types
import unittest

from far import Far, Names, Peer, missing

TESTS, CANDIDATE = "tests.py", "/tmp/candidate.py"
UNITTEST = unittest.TestProgram.runTests.__code__.co_filename
FUNCTIONS, IMPORTS = (ast.FunctionDef, ast.AsyncFunctionDef), (ast.Import, ast.ImportFrom)
DECLARATIONS, ASSIGNS = FUNCTIONS + (ast.ClassDef,), (ast.Assign, ast.AnnAssign)
WRITABLE = ("/tmp/", "/dev/shm/", "/run/")  # for the candidate; the rest of the sandbox is read-only
LOADERS = {"_frozen_importlib_external", "importlib._bootstrap_external", "zipimport", "runpy"}
PROGRAMS = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "pickle.find_class"}
SCOPES = DECLARATIONS + (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
BLOCKS = re.compile(r"(?ms)^ {0,3}```[^\n]*\n(.*?)^ {0,3}```|((?:^(?: {4}|\t)[^\n]*(?:\n+|\Z))+)")


def stub(node):
    """Whether a function, or one in a class, has nothing but a text in it."""
    if isinstance(node, ast.ClassDef):
        return any(map(stub, node.body))
    return isinstance(node, FUNCTIONS) and all(
        isinstance(s, (ast.Pass, ast.Raise)) or isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant) for s in node.body)


def literal(node):
    """Whether a statement only gives names values that nothing has to compute."""
    try:
        ast.literal_eval(getattr(node, "value", None))
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return False
    return isinstance(node, ASSIGNS)


def parsed(text):
    for attempt in (text, text + "\n    pass\n"):
        try:
            return ast.parse(attempt).body
        except (SyntaxError, ValueError, RecursionError):
            pass
    return []


def names(*nodes, closed=SCOPES):
    """The names that nodes bind, but for what is in closed nodes."""
    found, todo = set(), list(nodes)
    for n in todo:
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store):
            name = n.id
        else:  # of a parameter, an import, a declaration, a pattern
            name = n.arg if isinstance(n, ast.arg) else getattr(n, "asname", None) or getattr(n, "name", None) or getattr(n, "rest", None)
        if isinstance(name, str):
            found.add(name.partition(".")[0])
        if not isinstance(n, closed):
            todo += ast.iter_child_nodes(n)
    return found


def complete(body):
    """The declarations that are no stubs, and the assignments of what no other statement may change."""
    others = {n.id for s in body if not isinstance(s, DECLARATIONS + ASSIGNS) for n in ast.walk(s) if isinstance(n, ast.Name)}
    return [n for n in body if isinstance(n, DECLARATIONS) and not stub(n) or isinstance(n, ASSIGNS) and not names(n) & others]


def given(texts, repair=False, solution=""):
    """What the candidate's author was given: what the candidate finds of it, and what the tests find whatever
    the candidate says. These are the imports and, where something is to be written, the complete functions and the
    constants; where everything is complete, the task is to repair it. What the solution leaves as it is, the tests
    find in any case, unless it is a repair of something else that the tests use."""
    theirs, ours = [], []
    for body in map(parsed, texts):
        imports = [n for n in body if isinstance(n, IMPORTS)]
        whole = [n for n in complete(body) if isinstance(n, DECLARATIONS) or literal(n)]
        kept = not repair and (any(map(stub, body)) or not any(isinstance(n, DECLARATIONS) for n in body))
        theirs += imports + whole
        ours += imports + [n for n in whole if kept and not isinstance(n, ast.ClassDef)]
    return theirs, ours + ([] if repair or not solution else unchanged(texts, solution))


def shown(texts):
    """The statements of the texts, or of the blocks of code in their Markdown."""
    blocks = lambda t: [n for found in BLOCKS.findall(t) for n in parsed(textwrap.dedent("".join(found)))]
    return [n for t in texts for n in parsed(t) or blocks(t) if not isinstance(n, IMPORTS)]


def unsure(texts, ours, tests, solution):
    """Whether tests may judge by something that is not what the task asks for, and that the candidate may have replaced:
    a yes or no of what was given complete and the solution leaves as it is, or a name that neither the tests define nor
    anybody was asked to."""
    nodes, solved, judging = shown(texts), parsed(solution), ast.Module(ours + tests.body, [])
    mine, used = names(judging, closed=()), {n.id for n in ast.walk(judging) if isinstance(n, ast.Name)}
    same = {ast.dump(n) for n in ast.walk(ast.Module(solved, [])) if isinstance(n, ast.stmt)}
    kept = {n.name for d in nodes for n in ast.walk(d) if isinstance(n, FUNCTIONS) and not stub(n) and (ast.dump(n) in same if solution else stub(d))}
    attributes = {n.attr for n in ast.walk(tests) if isinstance(n, ast.Attribute)}
    if kept & asked(tests, kept) - mine or constants(nodes, solved) & attributes - mine:
        return True
    task = names(*filter(stub, nodes), *(n for n in solved if isinstance(n, DECLARATIONS + ASSIGNS)))
    task -= names(*(n for n in nodes if not isinstance(n, DECLARATIONS) and ast.dump(n) in same))
    others = used - mine - task - set(dir(builtins))
    return len(others) > (not task)  # one may be what the task is about


def constants(nodes, solved):
    """The names to which classes give values, and nobody else does."""
    changed = {n.attr for d in nodes + solved for n in ast.walk(d) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
    return names(*(s for d in nodes if isinstance(d, ast.ClassDef) for s in d.body
                   if isinstance(s, ast.Assign) or isinstance(s, ast.AnnAssign) and s.value and not d.bases + d.decorator_list)) - changed


def callee(call):
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def asked(tests, kept):
    """The names of what the tests call for its result, unless they compare this result, perhaps after arithmetic. The
    comparison does not count if it is with True or False, or if two of its sides call names of kept."""
    compared = []
    says = lambda side: any(isinstance(n, ast.Call) and callee(n) in kept for n in ast.walk(side))
    for n in ast.walk(tests):
        called = getattr(n.func, "attr", "") if isinstance(n, ast.Call) else ""
        sides = [n.left, *n.comparators] if isinstance(n, ast.Compare) else [n.value] if isinstance(n, ast.Expr) else \
            n.args if "Equal" in called or called == "isclose" else []
        if not any(isinstance(s, ast.Constant) and isinstance(s.value, bool) for s in sides) and sum(map(says, sides)) < 2:
            compared += sides
    for n in compared:
        number = isinstance(n, ast.Call) and getattr(n.func, "id", "") in ("abs", "round")
        compared += [n.left, n.right] if isinstance(n, ast.BinOp) else n.args if number else []
    calls = {n for n in ast.walk(tests) if isinstance(n, ast.Call)} - set(compared)
    return set(map(callee, calls))


def unchanged(texts, solution):
    """What the solution leaves as it was given, but for what uses something that it changes. If it changes and
    adds nothing, nobody knows what the task is about."""
    solved = [n for n in parsed(solution) if isinstance(n, DECLARATIONS + ASSIGNS)]
    whole = complete(shown(texts))
    written, dumps = names(*solved), {ast.dump(n) for n in solved}
    same = [n for n in whole if ast.dump(n) in dumps or not names(n) & written and (isinstance(n, DECLARATIONS) or literal(n))]
    changed = names(*whole) - names(*same)
    while True:
        using = [n for n in same if any(getattr(m, "id", None) in changed for m in ast.walk(n))]
        if not using:
            return same if written - names(*same) else []
        same = [n for n in same if n not in using]
        changed |= names(*using)


def imported(texts, solution):
    """What the solution imports to solve the task: the tests may use it, too. A name that a text has may be the task."""
    body, words = parsed(solution), {"*"}.union(*(re.findall(r"\w+", t) for t in texts))
    declares = any(isinstance(n, DECLARATIONS) for n in body)
    return [n for n in body if declares and isinstance(n, IMPORTS) and not words & {a.asname or a.name for a in n.names}]


def written():
    """Each path where a candidate can write, and whether it is a directory."""
    for top in WRITABLE:
        for folder, folders, files in os.walk(top):
            yield from ((os.path.join(folder, n), n in folders) for n in folders + files)


def compiled(tree):
    return compile(tree, TESTS, "exec", dont_inherit=True)


def run(nodes, space):
    exec(compiled(ast.Module(nodes, [])), space)


def define(nodes, space):
    """Run the statements that can be run."""
    for node in nodes:
        try:
            run([node], space)
        except Exception:
            traceback.print_exc()


class Alone:
    """The candidate's code runs in this context. A process that the candidate forks ends here, as Python ends one, and does
    not run sbench's code."""

    def __enter__(self):
        self.process = os.getpid()

    def __exit__(self, kind, error, _):
        if os.getpid() == self.process:
            return
        code = error.code if isinstance(error, SystemExit) else error
        if code is error is not None:
            traceback.print_exc()
        try:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
        finally:  # the candidate may have closed them
            os._exit(code & 255 if isinstance(code, int) else code is not None)


def load(source, nodes, space):
    """Load the candidate. Return how that ended and, as a text, the line or the name that was missing."""
    define(nodes, space)
    os.chdir("/tmp")
    sys.path.insert(0, "/tmp")
    if not os.access(os.environ.get("HOME", ""), os.W_OK):
        os.environ["HOME"] = "/tmp"
    sys.setrecursionlimit(sys.getrecursionlimit() + 8)  # frames of these programs
    with open(CANDIDATE, "w", encoding="utf-8", errors="surrogatepass") as f:
        f.write(source)
    space["__file__"] = CANDIDATE
    for flags in 0, __future__.annotations.compiler_flag:
        try:
            code = compile(source.lstrip("\ufeff"), CANDIDATE, "exec", flags, dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
            return "malformed", str(getattr(e, "lineno", 0))
        try:
            with Alone():
                exec(code, space)
            return "loaded", ""
        except BaseException as e:
            traceback.print_exc()
            name = missing(e)
        if not name:  # that could be in an annotation only, such as List or the class of a node
            break
    return "unloaded", name


def report_to(failed):
    """Call failed with each error that the tests of unittest fail with."""
    def noting(method):
        def note(self, *args):
            error = args[-1]
            if error is not None:  # as of a subtest that passes
                failed(error[1])
            return method(self, *args)
        return note

    for name in ("addFailure", "addError", "addSubTest"):
        setattr(unittest.TestResult, name, noting(getattr(unittest.TestResult, name)))


def left_by_tests(tb):
    """Whether it is the tests themselves, or unittest for them, that end the process."""
    while tb is not None:
        if tb.tb_frame.f_code.co_filename not in (TESTS, UNITTEST, __file__):
            return False
        tb = tb.tb_next
    return True


def beside(source, theirs, space, end):
    """Load the candidate into the tests' namespace."""
    space["__name__"], sys.modules["candidate"] = "candidate", sys.modules["__main__"]
    word, where = load(source, theirs, space)
    if word != "loaded":
        end(word, where)
    space.update(__name__="__main__", __builtins__=builtins)


def watch(peer):
    """Refuse tests that start programs, or run code that the candidate may have answered or left in a file."""
    def own_file(path):
        try:
            return os.path.realpath(path).startswith(WRITABLE) and os.stat(path).st_uid == os.getuid()
        except (OSError, TypeError, ValueError):
            return False

    def hook(event, args):
        file = None  # with the code
        if event == "open" and not args[2] & (os.O_WRONLY | os.O_RDWR) and own_file(args[0]):
            peer.refuse("tests that read what they wrote where the candidate can read it")
        own = event in ("exec", "function.__new__", "marshal.loads") and sys._getframe(1).f_code.co_filename == TESTS
        if event == "import":  # of an extension; None for other modules, which loaders open
            file = args[1]
        elif event == "open" and sys._getframe(1).f_globals.get("__name__") in LOADERS:
            file = os.path.join(".", args[0])
        elif event in ("exec", "ctypes.dlopen"):
            file = getattr(args[0], "co_filename", args[0])
        left = isinstance(file, str) and "/" in file and os.path.realpath(file).startswith(WRITABLE)
        if own or left or event in PROGRAMS:
            peer.refuse("tests that run code")

    sys.addaudithook(hook)


def sealed(peer, request, space):
    """Let the tests find the names of a candidate in its own process."""
    watch(peer)
    space["__builtins__"] = Names(peer)
    for name in peer.load(request["candidate"], request["given"], request["eased"]):
        if name not in space and (name in request["declared"] or not hasattr(builtins, name)):
            space[name] = Far(peer, 0, (name,))


def judge(requests, report, channel=None):
    """Judge by the only request, of which nothing is left where a candidate could look for it."""
    write, leave, show, caught = posix.write, posix._exit, traceback.print_exception, sys.exc_info
    ask = {"write": lambda line: write(report, line)}
    request = json.loads(requests.pop())
    token, word, peer = request["token"], "passed", None

    def end(word, where="", error=None):
        write(report, ("%s %s %s" % (token, word, where)).encode())
        if error is not None:
            show(*error)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        leave(0)

    def judged(error):
        """Refuse what may be an error only because the candidate is apart: another user's file, the candidate as a
        module, or an object of the candidate that no code asks, such as that of json."""
        unread = lambda: not all(os.access(path, os.R_OK | os.X_OK * folder) for path, folder in written() if not os.path.islink(path))
        apart = isinstance(error, PermissionError) or getattr(error, "name", "") == "candidate"
        if peer and (apart or isinstance(error, TypeError) and peer.handles or unread()):
            peer.refuse(type(error).__name__)

    def failed(error):
        nonlocal word
        judged(error)
        word = "failed"

    main = sys.modules["__main__"] = types.ModuleType("__main__")
    space = main.__dict__
    sys.argv[:] = [TESTS]
    try:
        body = ast.parse(request["tests"].lstrip("\ufeff"), TESTS)
        code, after = compiled(body), compiled(ast.parse(request["after"]))
        theirs, ours = given(request["given"], request["repair"], request["solution"])
        run([n for n in ours if isinstance(n, IMPORTS)], space)
    except BaseException:
        end("broken", error=caught())
    ours = imported(request["given"], request["solution"]) + ours
    define(ours, space)
    report_to(failed)
    if channel is not None:
        if unsure(request["given"], ours, body, request["solution"]):
            word = "unsure"
        peer = Peer(channel, end, request["classes"], code.co_names)
        sealed(peer, request, space)
    else:
        source = request["candidate"]
        exec(request["ask"], ask)
        del request, body
        beside(source, theirs, space, end)
        define(ours, space)
        space.update(_sbench_ask=ask["ask"], _sbench_in=ask["asking"])  # of blind tests
    try:
        try:
            with Alone():
                exec(code, space)
        except SystemExit as e:
            if e.code or not left_by_tests(caught()[2]):
                raise
        exec(after, space)
    except SystemExit:
        error = caught()
        end("failed" if left_by_tests(error[2]) else "ended", error=error)
    except BaseException as e:
        error = caught()
        judged(e)
        end("failed" if isinstance(e, AssertionError) else "raised", error=error)
    end(word)
