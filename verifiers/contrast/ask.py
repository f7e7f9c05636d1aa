# How blind tests note an answer: see blind.py. The name write is a function that keeps a line.
import builtins
import collections.abc
import enum
import fractions
import numbers
import os
import sys
from hashlib import sha256  # names of its own, which tests do not replace
from json import dumps
from os import environ, getpid

KNOWN = {"_pytest", "numpy"}.union(getattr(sys, "stdlib_module_names", ["builtins"]))  # modules that are not the candidate's
LONG = 4000  # characters of an answer that are noted as they are; of a longer one, a digest


def number(value, close=False):
    """A text that equal numbers share: 1, 1.0 and True are equal."""
    if isinstance(value, float):
        value = float.__float__(value)  # without a derived class
    if isinstance(value, numbers.Integral):
        return "%d." % value if close else hex(value)
    if not isinstance(value, numbers.Real) and hasattr(value, "as_integer_ratio") and value.is_finite():  # Decimal
        value = fractions.Fraction(value)
    if isinstance(value, numbers.Real):
        if close or float(value) == value or value != value:
            return repr(float(value)) if close or not float(value).is_integer() else hex(int(value))
        return str(value)
    if isinstance(value, numbers.Complex):
        return number(value.real, close) + (" %sj" % number(value.imag, close) if value.imag else "")
    return repr(value)


def plain(value, close=False):
    """A text that values of plain data share if they are equal; it is an error for anything else. What a class that is
    derived from a plain type says of itself does not count."""
    each = lambda values: ",".join([plain(v, close) for v in values])
    kind = type(value)
    if kind.__module__.partition(".")[0] in ("array", "numpy", "pandas") and hasattr(value, "tolist"):
        value = value.tolist()
    if value is None:
        return "None"
    if isinstance(value, numbers.Number):
        return number(value, close)
    if isinstance(value, str):
        return dumps(str.__str__(value))
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "b" + bytes(value).hex()
    if isinstance(value, dict):
        return "{%s}" % ",".join(sorted(each((k, dict.__getitem__(value, k))) for k in dict.__iter__(value)))
    if isinstance(value, collections.abc.Mapping) and kind.__eq__ is not collections.abc.Set.__eq__:
        return "{%s}" % ",".join(sorted(each((k, value[k])) for k in value))
    if isinstance(value, collections.abc.Set):
        return "<%s>" % ",".join(sorted(plain(v, close) for v in value))
    if isinstance(value, list):
        return "[%s]" % each(list.__iter__(value))
    if isinstance(value, tuple):
        return ("[%s]" if close else "(%s)") % each(tuple.__iter__(value))  # of what is near, the kind does not count
    if isinstance(value, collections.abc.Sequence) or kind.__eq__ is not object.__eq__ and hasattr(kind, "__iter__") and not hasattr(kind, "__next__"):
        return "[%s]" % each(value)
    if isinstance(value, enum.Enum) and kind.__eq__ is object.__eq__:
        return "member %s.%s" % (kind.__name__, value._name_)
    if issubclass(kind, type):
        return "class " + type.__dict__["__name__"].__get__(value)
    raise TypeError("no plain data")


def calls(mock, name):
    """What a mock was called with; for one that has a signature, whether by position or by name does not count."""
    found = getattr(mock, name)
    match = (mock if hasattr(type(mock), "_call_matcher") else mock.mock)._call_matcher
    if isinstance(found, int):
        return found
    return [match(c) for c in found] if name.endswith("_list") else match(found)


def solid(value):
    """Whether no class of the candidate says what a value is equal to."""
    kind = type(value)
    if kind is dict:
        return all(map(solid, [*value, *value.values()]))
    if kind in (list, tuple, set, frozenset):
        return all(map(solid, value))
    known = isinstance(value, (str, bytes, bytearray, numbers.Number)) or kind.__module__.partition(".")[0] in KNOWN
    return known or kind.__eq__ is object.__eq__ and kind.__ne__ is object.__ne__


def equal(one, other):
    """Whether two values are equal; for texts and numbers, whatever a class that is derived from these says."""
    try:
        same = not solid((one, other)) or plain(one) == plain(other)
    except TypeError:
        same = True
    return same and one == other


# What counts of an answer. A question names it or, for the calls of a mock, names an attribute of the mock.
HOW = {
    "": plain,
    "call": lambda value: "returned",
    "truth": lambda value: "yes" if value else "no",
    "equal": lambda value: "yes" if equal(*value) else "no",
    "solid": lambda value: "yes" if solid(value) else "no",
    "close": lambda value: plain(value, True),
    "sorted": lambda value: plain(sorted(map(plain, value))),
    "list": lambda value: plain(list(value)),
}


def answer(value, how):
    """An answer as it is noted; how says what of it counts."""
    try:
        text = HOW[how](value) if how in HOW else plain(calls(value, how))
    except Exception as e:
        text = "!" + type(e).__name__
    return text if len(text) <= LONG or how == "close" else sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def note(question, text):
    """Keep a line: the question, the function of the test that asks it, since tests may run in any order, and the answer. The
    name of a row is left out: it may be made of what the candidate gives."""
    test = environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0].partition("[")[0].encode("utf-8", "surrogateescape")
    write(("%d/%s %s\n" % (question, sha256(test).hexdigest()[:8], text)).encode("utf-8", "surrogatepass"))


def names(kind, frame):
    """The names of an exception's classes, also those that the test and its modules have for them."""
    modules = [builtins] + [m for m in list(frame.f_globals.values()) if issubclass(type(m), type(os))]
    known, errors = [c.__name__ for c in kind.__mro__], [c for c in kind.__mro__ if issubclass(c, Exception)]
    own = lambda v: any(c is e for c in (v if issubclass(type(v), tuple) else [v]) for e in errors)  # v may be a dead weakref.proxy
    spaces = [frame.f_globals, frame.f_locals, *map(vars, modules)]
    return known + sorted({n for space in spaces for n, v in list(space.items()) if own(v)}.difference(known))


def ask(question, value, how=""):
    """Note an answer, and below the negative number of the question, whether the candidate's classes have no say in it. The
    assertion holds: what it expects is not here."""
    note(question, answer(value, how))
    if how == "equal":
        note(-question, answer(value, "solid"))
    return True


class asking:
    """The context of a question, in which an exception is the answer."""

    def __init__(self, question):
        self.question, self.process = question, getpid()

    def __enter__(self):
        pass

    def __exit__(self, kind, error, trace):
        if kind is None or not issubclass(kind, Exception) or "SkipTest" in [c.__name__ for c in kind.__mro__] or getpid() != self.process:
            return False
        note(self.question, " ".join(["raised"] + names(kind, sys._getframe(1))))
        return True
