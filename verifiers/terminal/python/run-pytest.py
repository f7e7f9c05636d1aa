"""Runs the tests at argv[1] with the image's pytest. Without pytest it calls the functions test_*, the
methods test_* of classes Test*, and unittest's test cases itself, and reports them as pytest does.
Tests can import modules of the workspace, which is the working directory. Python's own modules and pytest cannot."""
import importlib.util
import inspect
import os
import runpy
import sys
import time
import traceback
import unittest
from importlib.machinery import PathFinder

WORKSPACE = os.path.realpath(os.getcwd())
OWN = tuple(d + os.sep for d in (WORKSPACE, os.path.realpath(sys.argv[1] if os.path.isdir(sys.argv[1]) else os.path.dirname(sys.argv[1]))))


class Finder:
    """Finds in the workspace what tests, or its own modules, import and nothing else provides."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        frame = sys._getframe(1)
        while frame and "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        if path is None and frame and os.path.realpath(frame.f_code.co_filename).startswith(OWN):
            return PathFinder.find_spec(name, [WORKSPACE])


def files(target):
    if os.path.isfile(target):
        return [target]
    return sorted(os.path.join(d, n) for d, _, names in os.walk(target) for n in names
                  if n.endswith(".py") and (n.startswith("test_") or n.endswith("_test.py")))


class NoPytest(SystemExit):
    pass


def missing(why):
    raise NoPytest("pytest: not found in the image, and %s needs it" % why)


def check(name, function):
    """Ends the program if only pytest can call the function."""
    needs = any(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
                for p in inspect.signature(function).parameters.values())
    if needs or inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        missing(name)
    return name, function


def tests(module):
    """Yields (name, function without arguments) of each test."""
    for name, value in list(vars(module).items()):
        if name.startswith(("setup_", "teardown_")):
            missing(name)
        if inspect.isfunction(value) and name.startswith("test"):
            yield check(name, value)
        elif inspect.isclass(value) and (name.startswith("Test") or issubclass(value, unittest.TestCase)):
            for method in unittest.TestLoader().getTestCaseNames(value):
                if issubclass(value, unittest.TestCase):
                    yield name + "::" + method, unittest.TestSuite([value(method)]).debug
                    continue
                for hook in ("setup_method", "teardown_method", "setup_class", "teardown_class"):
                    if hasattr(value, hook):
                        missing(name + "." + hook)
                yield check(name + "::" + method, getattr(value(), method))


def run(target):
    start, failed, count = time.time(), [], {"failed": 0, "passed": 0, "skipped": 0}

    def attempt(name, function, outcome="passed"):
        try:
            function()
        except NoPytest:
            raise
        except unittest.SkipTest:
            outcome = "skipped"
        except BaseException as error:
            traceback.print_exc()
            failed.append("FAILED %s - %s" % (name, type(error).__name__))
            outcome = "failed"
        if outcome:
            count[outcome] += 1

    for i, name in enumerate(files(target)):
        if os.path.exists(os.path.join(os.path.dirname(name), "conftest.py")):
            missing("conftest.py")
        spec = importlib.util.spec_from_file_location("checker_%d" % i, name)
        module = importlib.util.module_from_spec(spec)
        sys.path.insert(0, os.path.dirname(name))
        sys.modules[spec.name] = module
        found = []

        def load():
            try:
                spec.loader.exec_module(module)
            except ImportError as error:
                if error.name == "pytest":
                    missing(os.path.basename(name))
                raise
            found.extend(tests(module))

        attempt(os.path.basename(name), load, "")
        for test, function in found:
            attempt(os.path.basename(name) + "::" + test, function)
    for line in failed:
        print(line)
    print(", ".join("%d %s" % (n, what) for what, n in count.items() if n) or "0 passed", "in %.2fs" % (time.time() - start))
    return 1 if count["failed"] else 0 if count["passed"] else 5


sys.meta_path.append(Finder)
if importlib.util.find_spec("pytest"):
    sys.argv = ["pytest", "-q", "-p", "no:cacheprovider", sys.argv[1]]
    runpy.run_module("pytest", run_name="__main__", alter_sys=True)
else:
    sys.exit(run(sys.argv[1]))
