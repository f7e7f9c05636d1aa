"""Runs candidate and tests in one interpreter, for tasks that ask for it.

The candidate can do here whatever the tests can.
"""

import posix
import sys
import types

FOLDER = __file__.rpartition("/")[0]


def read(name):
    with open(FOLDER + "/" + name, encoding="utf-8-sig") as f:
        return f.read()


def main():
    token = posix.read(0, 64)
    out = posix.dup(1)
    posix.dup2(2, 1)
    null = posix.open("/dev/null", posix.O_RDONLY)
    posix.dup2(null, 0)
    candidate, tests = read("candidate.py"), read("tests.py")
    import site
    site.main()
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = sys.modules["candidate"] = module
    sys.argv = ["tests.py"]
    module.__name__ = "candidate"
    exec(compile(candidate, "candidate.py", "exec", dont_inherit=True), module.__dict__)
    module.__name__ = "__main__"
    try:
        exec(compile(tests, "tests.py", "exec", dont_inherit=True), module.__dict__)
    except SystemExit as e:
        tb = e.__traceback__
        while tb is not None:
            if tb.tb_frame.f_code.co_filename == "candidate.py":
                raise SystemExit(1) from None  # it is not the candidate's to end the tests
            tb = tb.tb_next
        if e.code:
            raise
    posix.write(out, token)


main()
