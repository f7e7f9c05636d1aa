"""Runs a candidate and its tests as two modules of one process.

The tests are the module __main__. A name is the tests' own, a built-in, or else the candidate's. The
report is the request's token, a word, and the lines of the tests at which they failed: "7,12;9" is
two failures, the first of them on line 12, called from line 7.
"""

import ast
import builtins
import json
import os
import posix
import sys
import traceback
import types
import unittest

TESTS, CANDIDATE = "tests.py", "/tmp/candidate.py"
UNITTEST = unittest.TestProgram.runTests.__code__.co_filename


class Names(dict):
    """The built-ins as the tests find them, and behind them the candidate's names."""

    def __init__(self, candidate):
        super().__init__(builtins.__dict__)
        self.candidate = candidate

    def __missing__(self, name):
        return self.candidate[name]


class Main(types.ModuleType):
    """The tests' module. As if it were one with the candidate's for those who patch it."""

    def __init__(self, candidate):
        super().__init__("__main__")
        types.ModuleType.__setattr__(self, "__builtins__", Names(candidate))
        Main.shared, Main.removed = candidate, set()

    def __getattr__(self, name):
        try:
            return Main.shared[name]
        except KeyError:
            raise AttributeError("module '__main__' has no attribute %r" % name) from None

    def __setattr__(self, name, value):
        own = name in self.__dict__
        if name in Main.shared and (not own or self.__dict__[name] is Main.shared[name]) or name in Main.removed:
            Main.shared[name] = value
            if not own:
                return
        types.ModuleType.__setattr__(self, name, value)

    def __delattr__(self, name):
        if name not in self.__dict__ and name in Main.shared:
            Main.removed.add(name)
            del Main.shared[name]
        else:
            types.ModuleType.__delattr__(self, name)


def stub(function):
    """Whether there is nothing but a text in it."""
    return all(isinstance(s, (ast.Pass, ast.Raise)) or isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant) for s in function.body)


def helpers(texts):
    """What the candidate's author was given: imports, complete functions but for the last one, and
    constants."""
    kept = []
    for text in texts:
        for attempt in (text, text + "\n    pass\n"):
            try:
                body = ast.parse(attempt).body
                break
            except (SyntaxError, ValueError, RecursionError):
                body = []
        functions = [n for n in body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
        for n in body:
            if isinstance(n, (ast.Import, ast.ImportFrom)) or n in functions[:-1] and not stub(n) or isinstance(n, ast.Assign) and literal(n.value):
                kept.append(n)
    return ast.Module(body=kept, type_ignores=[])


def literal(node):
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return False
    return True


def lines(tb):
    """The lines of the tests in a traceback."""
    found = []
    while tb is not None:
        if tb.tb_frame.f_code.co_filename == TESTS:
            found.append(str(tb.tb_lineno))
        tb = tb.tb_next
    return ",".join(found)


def record(failures):
    """Note what the tests of unittest fail at."""
    def noting(method):
        def note(self, *args):
            error = args[-1]
            if error is not None:  # as of a subtest that passes
                failures.append(lines(error[2]))
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


def judge(request, report):
    write, leave, show, caught = posix.write, posix._exit, traceback.print_exception, sys.exc_info
    request = json.loads(request)
    token, source, tests = request["token"], request["candidate"], request["tests"]
    failures = []

    def end(word, where="", error=None):
        write(report, ("%s %s %s" % (token, word, ";".join(failures) or where)).encode())
        if error is not None:
            show(*error)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        leave(0)

    candidate = types.ModuleType("candidate")
    main = Main(candidate.__dict__)
    space = main.__dict__
    sys.modules["candidate"], sys.modules["__main__"] = candidate, main
    sys.argv[:] = [TESTS]
    try:
        compiled = compile(tests.lstrip("\ufeff"), TESTS, "exec", dont_inherit=True)
        given = helpers(request["given"])
        exec(compile(given, TESTS, "exec", dont_inherit=True), space)
    except BaseException:
        end("broken", error=caught())
    record(failures)
    with open(CANDIDATE, "w", encoding="utf-8", errors="surrogatepass") as f:
        f.write(source)
    candidate.__file__ = CANDIDATE
    sys.setrecursionlimit(sys.getrecursionlimit() + 8)  # frames of this program's
    try:
        exec(compile(source.lstrip("\ufeff"), CANDIDATE, "exec", dont_inherit=True), candidate.__dict__)
    except BaseException:
        end("unloaded", error=caught())
    for name, value in list(candidate.__dict__.items()):  # for those who look into globals()
        if name not in space and (name in request["declared"] or callable(value) and not hasattr(builtins, name)):
            space[name] = value
    try:
        exec(compiled, space)
    except SystemExit as e:
        error = caught()
        if not left_by_tests(error[2]):
            end("ended", error=error)
        end("failed" if e.code else "passed", lines(error[2]))
    except AssertionError:
        error = caught()
        end("failed", lines(error[2]), error)
    except BaseException:
        error = caught()
        end("raised", lines(error[2]), error)
    end("passed")
