"""The test cell: runs tests with stand-ins for what the candidate defines.

No candidate code runs here. The exit status is the verdict.
"""

import posix
import sys
import types

FOLDER = __file__.rpartition("/")[0]
sys.path.insert(0, FOLDER)
import cellpeer  # noqa: E402
import cellstart  # noqa: E402
del sys.path[0]

# Exit statuses. Any other is no verdict of this file.
PASSED, FAILED, RAISED, NOT_LOADED, GONE, PROTOCOL, BROKEN_TESTS, BIG, INTERRUPTED = 0, 40, 41, 42, 43, 44, 45, 46, 47
FATAL = {"gone": GONE, "protocol": PROTOCOL, "big": BIG, "interrupted": INTERRUPTED}

# Names under which modules are customarily imported.
ALIASES = {"np": "numpy", "pd": "pandas", "plt": "matplotlib.pyplot", "dt": "datetime", "mp": "multiprocessing",
           "ET": "xml.etree.ElementTree", "tk": "tkinter", "sp": "scipy", "nx": "networkx", "th": "threading"}


class RemoteExit(SystemExit):
    """The candidate's SystemExit: caught as one, but it never ends the tests well."""


class Process:
    """What the end of this process needs to know."""
    judge = None
    clean = None  # a descriptor that is told that nothing is left unread


def end(status, text=""):
    """End the process at once. Nobody can catch this."""
    for f in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        try:
            f.flush()
        except Exception:
            pass
    if text:
        posix.write(2, ("securebench: %s\n" % text).encode("utf-8", "replace"))
    judge = Process.judge
    if Process.clean is not None and judge and judge.lock.acquire(False) and not judge.busy:
        posix.write(Process.clean, b"c")
    posix._exit(status)


class Judge(cellpeer.Peer):
    substitutes = {SystemExit: RemoteExit}

    def __init__(self, pipes):
        cellpeer.Peer.__init__(self, 0, *pipes, fatal=lambda reason: end(FATAL[reason]))
        self.handlers["in"] = Judge.read_input
        self.bound, self.space = {}, {}
        self.pid = posix.getpid()
        self.named, self.valued = set(), set()
        self.guard = Gate(self)

    def request(self, op, *body):
        if posix.getpid() != self.pid:
            raise RuntimeError("the candidate cannot be asked from a forked process")
        return cellpeer.Peer.request(self, op, *body)

    def arriving(self, e, op):
        """Turn what controls loops and generators into an error, except where it
        belongs: a function that raises it does not end the tests' loops."""
        if isinstance(e, StopIteration) and op != "n" or isinstance(e, StopAsyncIteration) and op != "a" or \
                isinstance(e, GeneratorExit):
            error = RuntimeError("the candidate raised " + type(e).__name__)
            error.__cause__ = e
            return error
        return e

    def touch(self, x):
        self.guard.check(self, x)

    def may_ask(self, x, name):
        objects = self.objects()
        if name in objects.PREDICATES and type(type(x)) is objects.RemoteType and not self.guard.named(type(x)):
            raise AttributeError("%r object has no attribute %r" % (type(x).__name__, name))

    def take_output(self, output):
        for number, text in output:
            if type(text) is not str:
                raise cellpeer.Violation("output")
            try:
                (sys.stderr if number == 2 else sys.stdout).write(text)
            except Exception:
                pass

    def take_names(self, pairs):
        """Rebind names that the candidate rebound, unless the tests did as well."""
        for name, value in pairs:
            value = self.dec(value)
            if name in self.bound and self.space.get(name) is self.bound[name]:
                self.bound[name] = self.space[name] = value

    def read_input(self, values):
        what = values.pop(0)
        if what == "input":
            return input(*values)
        return sys.stdin.readline() if what == "readline" else sys.stdin.read()


class Gate:
    """The guard, loaded when it is first asked."""

    def __init__(self, judge):
        self.judge = judge

    def __getattr__(self, name):
        self.judge.guard = self.judge.objects().Guard(self.judge.named, self.judge.valued)
        return getattr(self.judge.guard, name)


def words(code):
    """Return all names and string constants of a code object."""
    found = {*code.co_names, *code.co_freevars}
    for c in code.co_consts:
        if type(c) is str:
            found.add(c)
        elif type(c) is types.CodeType:
            found |= words(c)
        elif type(c) in (tuple, frozenset):
            found |= {v for v in c if type(v) is str}
    return found


class Usage:
    """How the tests use a name: called, called with arguments, as a module."""

    def __init__(self, source):
        self.called, self.constructed, self.dotted = set(), set(), set()
        todo = [compile(source, "tests.py", "exec", 0x400)]  # PyCF_ONLY_AST
        while todo:
            node = todo.pop()
            kind = type(node).__name__
            if kind == "Call" and type(node.func).__name__ == "Name":
                self.called.add(node.func.id)
                if node.args or node.keywords:
                    self.constructed.add(node.func.id)
            elif kind == "Attribute" and type(node.value).__name__ == "Name":
                self.dotted.add(node.value.id)
            for field in node._fields:
                value = getattr(node, field, None)
                for v in value if type(value) is list else (value,):
                    if hasattr(v, "_fields"):
                        todo.append(v)


def bind(judge, space, source, wanted, defined, task):
    """Bind what the candidate defines and the tests mention."""
    import builtins
    defined = set(defined)
    declared = {*task["functions"], *task["classes"]}
    names = sorted(n for n in wanted & defined
                   if n[:2] != "__" and (n in declared or not hasattr(builtins, n)))
    if not names:
        return
    values = judge.request("names", *names)
    if type(values) is not tuple or len(values) != len(names):
        judge.fatal("protocol")
    usage = None
    library = getattr(sys, "stdlib_module_names", ())
    for name, value in zip(names, values):
        if type(value) is not cellpeer.Function:
            objects = judge.objects()
            if type(value) is objects.Module:
                value = real_module(name, value, library)
                if value is None:
                    continue
            elif type(value) is objects.RemoteType:
                usage = usage or Usage(source)
                if name in library and name in usage.dotted and name not in declared:
                    continue
                admit(judge, name, judge.class_ids[value], usage, task)
            elif name in library and name not in declared:
                continue
        space[name] = judge.bound[name] = value


def real_module(name, value, library):
    """Return this cell's module that the candidate's name stands for, or None."""
    module = object.__getattribute__(value, "\0module")
    if type(module) is not str or not all(part.isidentifier() for part in module.split(".")):
        return None
    if name not in (module, module.rpartition(".")[2]) and ALIASES.get(name) != module:
        return None if name in library else value
    try:
        __import__(module)
    except ImportError:
        return None
    return sys.modules[module]


def admit(judge, name, number, usage, task):
    """Let a class be asked what only classes are asked. A function in the place of
    which the candidate defined a class is none."""
    if name in task["classes"] or name.lstrip("_")[:1].isupper() and name not in task["functions"]:
        judge.named.add(number)
        if name in usage.constructed:
            judge.valued.add(number)


def run(code, space):
    """Run the tests and return the exit status and a text for people."""
    try:
        exec(code, space)
        return PASSED, ""
    except SystemExit as e:
        if not isinstance(e, RemoteExit) and (e.code is None or type(e.code) in (int, bool) and e.code == 0):
            return PASSED, ""
        status, error = (RAISED if isinstance(e, RemoteExit) else FAILED), e
    except AssertionError as e:
        status, error = FAILED, e
    except BaseException as e:
        status, error = RAISED, e
    line, tb = 0, error.__traceback__
    while tb is not None:
        if tb.tb_frame.f_code.co_filename == "tests.py":
            line = tb.tb_lineno
        tb = tb.tb_next
    return status, "tests, line %d: %s" % (line, type(error).__name__)


def judge(pipes, source, task):
    """Run the tests against the candidate at the other end of the pipes, and end
    the process with the verdict."""
    try:
        code = compile(source, "tests.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as e:
        end(BROKEN_TESTS, "the tests do not compile: line %s" % getattr(e, "lineno", None))
    peer = cellpeer.this = Judge(pipes)
    peer.busy = 1
    got, defined = peer.await_answer()
    peer.busy = 0
    Process.judge = peer
    if got == "!":
        end(NOT_LOADED, "the candidate raised %s when it was loaded" % type(defined).__name__)
    if type(defined) is not tuple or not all(type(n) is str for n in defined):
        end(PROTOCOL)
    module = types.ModuleType("__main__")
    peer.space = space = module.__dict__
    sys.modules["__main__"] = module
    sys.argv = ["tests.py"]
    bind(peer, space, source, words(code), defined, task)
    end(*run(code, space))


def main():
    pipes = cellstart.prepare()
    with open(FOLDER + "/tests.py", encoding="utf-8") as f:
        source = f.read()
    with open(FOLDER + "/task.json", encoding="ascii") as f:
        task = cellpeer.loads(f.read())
    judge(pipes, source, task)


if __name__ == "__main__":
    main()
