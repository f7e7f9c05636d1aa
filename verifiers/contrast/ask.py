# How blind tests note an answer: see blind.py. The name write is a function that keeps a line.
import collections.abc
import fractions
import hashlib
import json
import numbers
import os

LONG = 4000  # characters of an answer that are noted as they are; of a longer one, a digest


def number(value, close=False):
    """A text that equal numbers share: 1, 1.0 and True are equal."""
    if isinstance(value, numbers.Integral):
        return "%d." % value if close else hex(value)
    if not isinstance(value, numbers.Real) and hasattr(value, "as_integer_ratio") and value.is_finite():  # Decimal
        value = fractions.Fraction(value)
    if isinstance(value, numbers.Real):
        if close or float(value) == value or value != value:
            return repr(float(value)) if close or not float(value).is_integer() else hex(int(value))
        return str(value)
    if isinstance(value, numbers.Complex) and not value.imag:
        return number(value.real, close)
    return repr(value)


def plain(value, close=False):
    """A text that values of plain data share if they are equal; it begins with "!" for anything else. What a class that is
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
        return json.dumps(str.__str__(value))
    if isinstance(value, (bytes, bytearray)):
        return "b" + bytes(value).hex()
    if isinstance(value, dict):
        return "{%s}" % ",".join(sorted(each((k, dict.__getitem__(value, k))) for k in dict.__iter__(value)))
    if isinstance(value, collections.abc.Mapping):
        return "{%s}" % ",".join(sorted(each((k, value[k])) for k in value))
    if isinstance(value, collections.abc.Set):
        return "<%s>" % ",".join(sorted(plain(v, close) for v in value))
    if isinstance(value, tuple) and not close:
        return "(%s)" % each(tuple.__iter__(value))
    if isinstance(value, collections.deque):
        return "deque(%s)" % each(value)
    if isinstance(value, collections.abc.Sequence) and not isinstance(value, range):
        return "[%s]" % each(list.__iter__(value) if isinstance(value, list) else value)
    return "!" + kind.__name__


def answer(value, how):
    """An answer as it is noted; how says what of it counts."""
    try:
        text = {"call": lambda: "returned", "truth": lambda: "yes" if value else "no", "type": lambda: type(value).__name__ + " " + plain(value), "close": lambda: plain(value, True),
                "sorted": lambda: plain(sorted(map(plain, value))), "list": lambda: plain(list(value))}.get(how, lambda: plain(value))()
    except Exception as e:
        text = "!" + type(e).__name__
    return text if len(text) <= LONG or how == "close" else hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def ask(question, value, how=""):
    """Note an answer. The assertion holds: what it expects is not here."""
    write(("%d %s\n" % (question, answer(value, how))).encode("utf-8", "surrogatepass"))
    return True


class asking:
    """The context of a question, in which an exception is the answer."""

    def __init__(self, question):
        self.question, self.process = question, os.getpid()

    def __enter__(self):
        pass

    def __exit__(self, kind, error, trace):
        if kind is None or not issubclass(kind, Exception) or kind.__name__ == "SkipTest" or os.getpid() != self.process:
            return False
        write(("%d raised %s\n" % (self.question, " ".join(c.__name__ for c in kind.__mro__))).encode("utf-8", "replace"))
        return True
