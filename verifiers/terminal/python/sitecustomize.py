"""Imported by every Python that a checker starts: what the candidate left in the
workspace takes the place of no module of Python's own or of pytest's, and pytest
loads the plug-ins that are installed, by name."""

import os
import sys
from importlib.machinery import PathFinder

WORKSPACE, TESTS = "@WORKSPACE@", "@TESTS@"
TRUSTED = [t for t in "@TRUSTED@".split(":") if t]  # in a machine, all else is the candidate's
RUNNER = {"pytest", "_pytest", "coverage"}
NEEDED = {"py", "pluggy", "iniconfig", "packaging", "exceptiongroup", "attr", "attrs", "tomli", "pygments"}  # by pytest
LIBRARY = os.path.dirname(os.__file__) + os.sep


def within(path, directory):
    return bool(directory) and (path == directory or path.startswith(directory + os.sep))


def left(path):
    """Whether the candidate may have written what is at path."""
    try:
        path = os.path.realpath(path or os.getcwd())
    except OSError:
        return True
    outside = TRUSTED and not any(within(path, t) for t in TRUSTED + [os.path.dirname(os.path.realpath(__file__))])
    return (within(path, WORKSPACE) or bool(outside)) and not within(path, TESTS)


def elsewhere():
    return [p for p in sys.path if not left(p)]


class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if path is not None or len(elsewhere()) == len(sys.path):
            return None
        spec = PathFinder.find_spec(name, elsewhere())
        origin = spec and spec.origin or ""
        own = origin.startswith(LIBRARY) and "-packages" not in origin
        runs = name in RUNNER or name in NEEDED and "_pytest" in sys.modules
        return spec if runs or own else None


def arguments():
    try:
        with open("/proc/self/cmdline", "rb") as f:
            return [os.fsdecode(a) for a in f.read().split(b"\0")[1:-1]]
    except OSError:
        return []


def program(args):
    """The script that is run; None for a module, a line of code or a terminal."""
    args = iter(args)
    for a in args:
        flags = a[1:].partition("W")[0].partition("X")[0] if a[:1] == "-" != a[1:2] else ""
        if a == "-" or set(flags) & set("cm"):
            return None
        if a in ("-" + flags + "W", "-" + flags + "X", "--check-hash-based-pycs"):
            next(args, None)
        elif not a.startswith("-"):
            return a
    return None


def plugins():
    from importlib.metadata import distributions
    found = {e.name for d in distributions(path=elsewhere()) for e in d.entry_points if e.group == "pytest11"}
    options = ["-p '%s'" % name for name in sorted(found)] + [os.environ.get("PYTEST_ADDOPTS", "")]
    os.environ.update(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", PYTEST_ADDOPTS=" ".join(options))


def start():
    args = arguments()
    script = program(args)
    if script is not None and left(script):
        return  # the candidate's own program
    sys.meta_path.insert(0, Finder)
    if any("pytest" in a or "py.test" in a for a in args) and "PYTEST_DISABLE_PLUGIN_AUTOLOAD" not in os.environ:
        plugins()


try:
    start()
finally:
    here = os.path.dirname(os.path.abspath(__file__))
    image = PathFinder.find_spec("sitecustomize", [p for p in elsewhere() if os.path.abspath(p) != here])
    if image is not None and image.loader is not None:
        image.loader.exec_module(sys.modules[__name__])
