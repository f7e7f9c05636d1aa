"""How what is no plain value is encoded.
"""

import types

from cellclasses import Bound
from cellguard import BUILTIN_CALLABLES, INNARDS
from cellnames import EXCEPTION_FIELDS, EXCEPTIONS
from cellpeer import ID, SCALARS, Remote, base_get
from celltypes import (
    LIBRARY, VALUES, enc_class, enc_shape, enc_type, library_bases, library_name, library_path, type_name)

VIEWS = {type({}.keys()): "keys", type({}.values()): "values", type({}.items()): "items"}


def enc(p, x):
    t = type(x)
    i = p.shared_ids.get(id(x))
    if i is not None:
        return ["S", i]
    if issubclass(t, Remote):
        return ["H", base_get(x, ID)]
    if t is Bound:
        return ["M", p.enc(x.__self__), x.__name__]
    if issubclass(t, type):
        return enc_class(p, x)
    f = ENCODERS.get(t)
    if f:
        return f(p, x)
    if issubclass(t, BaseException):
        return ["S", p.share(x, "x", BaseException, keep=type_name(p, t) is None)]
    library = library_name(t)
    if library:
        v = enc_library(p, x, library)
        if v:
            return v
    for b in t.__mro__:
        if b in VALUES:
            base = next((c for c in library_bases() if issubclass(t, c)), b)
            return ["S", p.share(x, VALUES[b], base, keep=True)]
    if issubclass(t, types.ModuleType):
        return enc_module(p, x)
    return ["h", p.export(x), enc_shape(p, t)]


def enc_function(p, x):
    """Encode a function. What the tests pass on of the library becomes the
    candidate's own: it shall open its files, not the tests'."""
    path = library_path(x) if p.guard and x.__module__ != "__main__" else None
    return ["T", path] if path else ["f", p.export(x)]


def enc_callable(p, x):
    path = library_path(x) if p.guard else None
    return ["T", path] if path else ["f", p.export(x), 1]


def enc_module(p, x):
    name = x.__name__
    if type(name) is not str:
        name = ""
    if p.guard:
        return ["T", "=" + name + ":"] if name.partition(".")[0] in LIBRARY else ["o", p.export(x), ""]
    return ["o", p.export(x), name]


def enc_innards(p, x):
    return ["o", p.export(x), ""] if p.guard else ["h", p.export(x), enc_shape(p, type(x))]


GENERATORS = {types.GeneratorType: "g", types.CoroutineType: "c", types.AsyncGeneratorType: "a"}


def enc_generator(p, x):
    i = p.generators.get(id(x))
    if i is not None:
        return ["H", i]
    return ["g", p.export(x), GENERATORS[type(x)]]


def enc_view(p, x):
    return ["D", VIEWS[type(x)], *[p.enc(v) for v in x]]


ENCODERS = {
    range: lambda p, x: ["r", *map(p.enc, (x.start, x.stop, x.step))],
    slice: lambda p, x: ["e", *map(p.enc, (x.start, x.stop, x.step))],
    type(NotImplemented): lambda p, x: ["N", 0],
    type(...): lambda p, x: ["N", 1],
    types.ModuleType: enc_module,
    **dict.fromkeys(BUILTIN_CALLABLES, enc_callable),
    **dict.fromkeys(INNARDS, enc_innards),
    **dict.fromkeys(VIEWS, enc_view),
    **dict.fromkeys((types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType), enc_generator),
}
CONTAINER_KINDS = {"OrderedDict": "d", "Counter": "d", "defaultdict": "d", "deque": "q"}


def library_arguments(x, name):
    """Return the arguments that make an equal value, or None for a container."""
    if name == "Decimal" or name.startswith("IP") or name.endswith("Path"):
        return (str(x),)
    if name == "Fraction":
        return x.numerator, x.denominator
    if name == "UUID":
        return (x.hex,)
    if name == "ZoneInfo":
        return (x.key,)
    if name == "date":
        return x.year, x.month, x.day
    if name == "timedelta":
        return x.days, x.seconds, x.microseconds
    if name == "timezone":
        return x.utcoffset(None), x.tzname(None)
    clock = x.hour, x.minute, x.second, x.microsecond, x.tzinfo
    return clock if name == "time" else (x.year, x.month, x.day, *clock)


def enc_library(p, x, library):
    name = library.partition(":")[2]
    kind = CONTAINER_KINDS.get(name)
    if kind:
        return ["S", p.share(x, kind, type(x))]
    if name == "array":
        return None
    args = [p.enc(a) for a in library_arguments(x, name)]
    if any(type(a) is list and a[0] != "v" for a in args) or name == "ZoneInfo" and not args[0]:
        return None
    return ["v", library, *args, x.fold] if name in ("time", "datetime") else ["v", library, *args]


def rest(e):
    """Return what a container carries beside its items."""
    return getattr(e.obj, "default_factory", None) if e.kind == "d" and type(e.obj) in library_bases() else \
        e.obj.maxlen if e.kind == "q" else None


def contents(p, e):
    """Return the definition, after its number and kind, of a value that does not
    change."""
    x, t = e.obj, type(e.obj)
    if e.kind == "x":
        return [exception_contents(p, x, e.keep), enc_type(p, t)]
    exact = {
        "I": lambda: int.__int__(x), "F": lambda: float.__float__(x), "U": lambda: str.__str__(x),
        "B": lambda: bytes.__getitem__(x, slice(None)), "P": lambda: tuple(tuple.__iter__(x)),
        "Z": lambda: frozenset([*frozenset.__iter__(x)]),
        "X": lambda: complex(complex.real.__get__(x), complex.imag.__get__(x)),
    }[e.kind]()
    return [p.enc(exact), enc_type(p, t)]


def exception_contents(p, x, keep):
    """Return arguments, cause and fields. Of the tests' own exceptions the
    candidate learns only what is in the arguments, and of assertions nothing."""
    args = () if p.guard and isinstance(x, AssertionError) else x.args
    fields = []
    for b in type(x).__mro__:
        if EXCEPTIONS.get(b.__name__) is b and b is not BaseException:
            for n in EXCEPTION_FIELDS:
                if n in b.__dict__ and type(getattr(x, n, None)) in SCALARS | {bytes}:
                    fields.append([n, p.enc(getattr(x, n))])
    if p.guard:
        return [[p.enc(a) for a in args], None, fields]
    if not keep:
        fields += [[n, p.enc(v)] for n, v in vars(x).items() if type(n) is str]
    cause = x.__cause__
    return [[p.enc(a) for a in args], p.enc(cause) if isinstance(cause, BaseException) else None, fields]
