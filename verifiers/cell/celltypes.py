"""How types cross: those that both sides have by their name, others by a number
and, once, a description.
"""

import sys
import types

from cellnames import BUILTIN_TYPES, LIBRARY_EXCEPTIONS, LIBRARY_TYPES, MAX_NAME, MAX_NAMES, SPECIAL
from cellpeer import Remote
from cellwire import Violation

LIBRARY = frozenset(getattr(sys, "stdlib_module_names", sys.builtin_module_names))
HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE
# Builtin types whose value a stand-in can hold, with the kind of their contents.
VALUES = {int: "I", float: "F", complex: "X", str: "U", bytes: "B", tuple: "P", frozenset: "Z",
          list: "l", dict: "d", set: "s", bytearray: "y"}


def remote(x):
    return issubclass(type(x), Remote)


def library_bases():
    c = sys.modules.get("collections")
    return (c.OrderedDict, c.Counter, c.defaultdict, c.deque) if c else ()


def value_base(parents):
    """Return the builtin value type below these classes, or None."""
    for t in parents:
        for b in t.__mro__:
            if b in VALUES:
                return b
    return None


def library_name(t):
    """Return "module:name" of a type that crosses by name, or None."""
    module, name = t.__module__, t.__name__
    if type(module) is not str or type(name) is not str:
        return None
    listed = name in LIBRARY_TYPES.get(module, ()) or module in LIBRARY_EXCEPTIONS and issubclass(t, BaseException)
    if listed and getattr(sys.modules.get(module), name, None) is t:
        return module + ":" + name
    return None


def library_path(x):
    """Return "=module:name" of what the standard library defines, or None."""
    module, name = getattr(x, "__module__", None), getattr(x, "__qualname__", None)
    if type(module) is not str or type(name) is not str or module.partition(".")[0] not in LIBRARY:
        return None
    y = sys.modules.get(module)
    for part in name.split("."):
        y = getattr(y, part, None)
    return "=" + module + ":" + name if y is x else None


def type_named(p, name):
    if type(name) is not str:
        raise Violation("type name")
    t = BUILTIN_TYPES.get(name)
    if t is not None:
        return p.substitutes.get(t, t)
    module, _, name = name.partition(":")
    if name not in LIBRARY_TYPES.get(module, ()) and module not in LIBRARY_EXCEPTIONS:
        raise Violation("unknown type")
    __import__(module)
    t = getattr(sys.modules[module], name)
    if not isinstance(t, type) or module in LIBRARY_EXCEPTIONS and name not in LIBRARY_TYPES.get(module, ()) and \
            not issubclass(t, BaseException):
        raise Violation("not a type")
    return t


def type_name(p, t):
    """Return the name by which a type crosses, or None."""
    for original, substitute in p.substitutes.items():
        if t is substitute:
            return original.__name__
    name = t.__name__
    return name if BUILTIN_TYPES.get(name) is t else library_name(t)


def enc_type(p, t):
    i = p.class_ids.get(t)
    if i is not None:
        return ["H", i]
    name = type_name(p, t)
    if name is not None:
        return ["T", name]
    i = p.export(t)
    if i in p.described:
        return ["k", i]
    p.described.add(i)
    return ["K", i, *describe(p, t)]


def enc_class(p, t):
    path = library_path(t) if p.guard and t not in p.class_ids and type_name(p, t) is None else None
    return ["T", path] if path else enc_type(p, t)


def enc_shape(p, t):
    """Encode the class of an object that does not cross as a value. A type that
    otherwise crosses by its name gets a stand-in for this."""
    if type_name(p, t) is None:
        return enc_type(p, t)
    i = p.shapes.get(t)
    if i is not None:
        return ["k", i]
    i = p.shapes[t] = p.next
    p.next += 2
    p.exports[i] = t
    return ["K", i, *describe(p, t)]


def describe(p, t):
    """Return name, name in collections.abc, documentation, bases, methods,
    properties and absent methods."""
    special, methods, properties, absent = [], [], [], []
    if not t.__flags__ & HEAP:
        special = [n for n in SPECIAL if any(n in b.__dict__ for b in t.__mro__[:-1])]
        absent = ["__hash__"] if t.__hash__ is None else []
        return [t.__name__, None, None, [], special, [], absent]
    for name, v in list(t.__dict__.items()):
        if type(name) is not str:
            continue
        if name in SPECIAL or name == "__init__":
            (absent if v is None else special).append(name)
        elif name[:2] == "__" or p.guard:
            continue  # the names of a test's methods stay here
        elif type(v) is types.FunctionType:
            methods.append(name)
        elif hasattr(type(v), "__set__") or type(v).__name__ == "cached_property":
            properties.append(name)
    bases = [enc_type(p, b) for b in t.__bases__]
    name, doc = t.__name__, t.__doc__
    if p.guard:
        return [discreet(name), None, None, bases, special, [], absent]
    doc = doc[:4096] if type(doc) is str else None
    abstract = name if t.__module__ == "collections.abc" else None
    return [name, abstract, doc, bases, special + methods, properties, absent]


def discreet(name):
    """Return a name that may be told to the other cell."""
    return "object" if name.lower().startswith("test") else name


def dec_type(p, v):
    t = p.dec(v)
    if not isinstance(t, type):
        raise Violation("not a type")
    return t


def names(v):
    if type(v) is not list or len(v) > MAX_NAMES or not all(
            type(n) is str and len(n) <= MAX_NAME and n.isidentifier() for n in v):
        raise Violation("names")
    return v
