"""How what is no plain value is decoded. Whatever does not fit is a Violation or
another exception, of which the caller makes an end.
"""

import builtins
import sys

from cellclasses import Module, new_class
from cellencode import CONTAINER_KINDS
from cellgenerators import STAND_INS, Handle
from cellnames import EXCEPTION_FIELDS
from cellpeer import SCALARS, Callable, Remote
from celltypes import VALUES, dec_type, library_bases, library_name, type_named
from cellwire import Violation


def dec(p, tag, v):
    f = DECODERS.get(tag)
    if f is None:
        raise Violation("unknown tag")
    return f(p, *v[1:])


def dec_object(p, i, cls):
    i = p.foreign(i)
    cls = dec_type(p, cls)  # first: it may bring a description
    return p.proxy(i) or p.adopt(i, cls)


def dec_callable(p, i, bound):
    i = p.foreign(i)
    return p.proxy(i) or p.adopt(i, Callable)


def dec_class(p, i, *description):
    i = p.foreign(i)
    if description:
        if i in p.classes:
            raise Violation("class described twice")
        return new_class(p, i, *description)
    return p.classes[i]


def dec_named(p, name):
    if name[:1] != "=" or p.guard:
        return type_named(p, name)
    module, _, name = name[1:].partition(":")
    __import__(module)
    x = sys.modules[module]
    for part in name.split(".") if name else ():
        x = getattr(x, part)
    return x


def dec_method(p, target, name):
    if p.guard:
        raise Violation("method of an object of the tests")
    return getattr(p.dec(target), name)


def dec_module(p, i, name):
    i = p.foreign(i)
    x = p.proxy(i) or p.adopt(i, Module)
    object.__setattr__(x, "\0module", name)
    return x


def dec_library(p, name, *args):
    t = type_named(p, name)
    args = [p.dec(a) for a in args]
    for a in args:
        if type(a) not in SCALARS and library_name(type(a)) is None:
            raise Violation("argument of a library value")
    if t.__name__ in ("time", "datetime"):
        return t(*args[:-1], fold=args[-1])
    if t.__name__ in CONTAINER_KINDS or issubclass(t, BaseException) or t.__name__ == "array":
        raise Violation("library value")
    return t(*args)


def dec_view(p, what, *items):
    items = [p.dec(v) for v in items]
    if what == "keys":
        return dict.fromkeys(items).keys()
    return dict(enumerate(items)).values() if what == "values" else dict(items).items()


def dec_generator(p, i, kind):
    i = p.foreign(i)
    x = p.proxy(i)
    if x is None:
        x = STAND_INS[kind](Handle(i))
        key = id(x)
        p.generators[key] = i
        p.watch(i, x, lambda: p.generators.pop(key, None))
    return x


DECODERS = {
    "z": lambda p, *v: frozenset([p.dec(x) for x in v]),
    "c": lambda p, real, imag: complex(real, imag),
    "r": lambda p, *v: range(*[p.dec(x) for x in v]),
    "e": lambda p, *v: slice(*[p.dec(x) for x in v]),
    "N": lambda p, which: (NotImplemented, ...)[which],
    "f": dec_callable, "h": dec_object, "k": dec_class, "K": dec_class, "T": dec_named, "M": dec_method,
    "o": dec_module, "v": dec_library, "D": dec_view, "g": dec_generator,
}
MAKE = {"I": int, "F": float, "X": complex, "U": str, "B": bytes, "P": tuple, "Z": frozenset}


def create(p, i, d):
    """Make the value of a definition; fill puts in what can be put in later."""
    kind = d[1]
    cls = dec_type(p, d[3])
    if kind == "x":
        if not issubclass(cls, BaseException):
            raise Violation("not an exception")
        x = new_exception(cls)
        p.register(i, x, kind, BaseException, remote=issubclass(cls, Remote))
    elif kind in MAKE:
        base = MAKE[kind]
        value = p.dec(d[2])
        if type(value) is not base or i in p.shared:
            raise Violation("contents of another type")
        x = base.__new__(cls, value) if issubclass(cls, base) else object.__new__(cls)
        p.register(i, x, kind, base, remote=True)
    else:
        base = next((b for b in (*library_bases(), list, dict, set, bytearray) if issubclass(cls, b)), None)
        if base is None or VALUES.get(base, CONTAINER_KINDS.get(base.__name__)) != kind:
            raise Violation("container of another kind")
        x = base.__new__(cls)
        extra = p.dec(d[4])
        if base.__name__ == "defaultdict":
            x.default_factory = extra
        elif kind == "q":
            base.__init__(x, (), extra)
        p.register(i, x, kind, base, remote=issubclass(cls, Remote))
    return p.shared[i]


BaseExceptionGroup = getattr(builtins, "BaseExceptionGroup", None)  # from 3.11 on


def new_exception(cls):
    if BaseExceptionGroup and issubclass(cls, BaseExceptionGroup):
        return cls.__new__(cls, "", [Exception()])
    return cls.__new__(cls)


def fill(p, e, d):
    if e.kind != "x":
        return
    x = e.obj
    args, cause, fields = d[2]
    x.args = tuple([p.dec(a) for a in args])
    cause = p.dec(cause)
    if isinstance(cause, BaseException):
        x.__cause__ = cause
    for n, v in fields:
        v = p.dec(v)
        if n in EXCEPTION_FIELDS or n == "__notes__" or n.isidentifier() and n[:2] != "__" and not hasattr(type(x), n):
            try:
                object.__setattr__(x, n, v)
            except (TypeError, AttributeError):
                pass
