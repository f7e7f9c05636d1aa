"""Special methods of stand-ins: what each asks the other side, and what the guard
of the test cell keeps it from asking.
"""

import cellpeer
from cellnames import ARITHMETIC, CONVERSIONS, ORDERING
from cellpeer import Callable, base_get
from celltypes import remote

TAINT = "\0taint"
CONTAINERS = frozenset("""__len__ __iter__ __getitem__ __setitem__ __delitem__ __contains__ __reversed__""".split())
# Special methods of a class derived from a builtin type that do not stand for
# its value.
APART = frozenset("""__str__ __repr__ __format__ __call__ __enter__ __exit__ __missing__ __fspath__ __aenter__
    __aexit__ __aiter__ __anext__ __next__""".split())
EQUALITY = frozenset(("__eq__", "__ne__"))


def special_method(p, name, base):
    """Return the function for a special method, or None if the builtin base has
    it to itself."""
    if base and p.guard and name not in APART:
        if name in EQUALITY or name in ORDERING or name in ARITHMETIC:
            return among_remote(name, base)
        return if_named(name, base) if name in CONTAINERS else None
    maker = MAKERS.get(name)
    return maker(name) if maker else ask(name)


def ask(name):
    def special(self, *args):
        return cellpeer.this.request("d", self, name, args)
    special.__name__ = name
    return special


def ask_unless_tainted(name):
    def special(self, *args):
        if tainted(self):
            raise TypeError("%s of an object that was computed with a plain value" % name)
        return cellpeer.this.request("d", self, name, args)
    return special


def tainted(x):
    try:
        return base_get(x, TAINT)
    except AttributeError:
        return False


def among_remote(name, base):
    builtin = getattr(base, name, None)

    def special(self, other, *rest):
        if remote(other):
            return cellpeer.this.request("d", self, name, (other, *rest))
        return builtin(self, other, *rest) if builtin else NotImplemented
    return special


def if_named(name, base):
    builtin = getattr(base, name, None)

    def special(self, *args):
        p = cellpeer.this
        if p.guard.named(type(self)):
            return p.request("d", self, name, args)
        if builtin is None:
            raise TypeError("%s object has no %s" % (type(self).__name__, name))
        return builtin(self, *args)
    return special


def equality(name):
    def special(self, other):
        p = cellpeer.this
        if p.guard and not remote(other):
            return NotImplemented  # an object is no plain value
        return p.request("d", self, name, (other,))
    return special


def ordering(name):
    def special(self, other):
        p = cellpeer.this
        if p.guard and not remote(other) and (not p.guard.valued(type(self)) or tainted(self)):
            return NotImplemented
        return p.request("d", self, name, (other,))
    return special


def arithmetic(name):
    def special(self, other, *rest):
        p = cellpeer.this
        if not p.guard:
            return p.request("d", self, name, (other, *rest))
        return p.guard.compute(p, self, name, other, rest)
    return special


def contains_method(name):
    return contains


def contains(self, x):
    p = cellpeer.this
    if p.guard and not remote(x) and not p.guard.named(self if isinstance(self, type) else type(self)):
        return any(v is x or v == x for v in iter(self))
    return p.request("d", self, "__contains__", (x,))


def truth(name):
    def special(self):
        p = cellpeer.this
        if p.guard and (tainted(self) or not p.guard.named(type(self))):
            raise TypeError("truth of an object whose class the tests do not know")
        return p.request("d", self, name, ())
    return special


def hashing(name):
    def special(self):
        p = cellpeer.this
        h = p.request("d", self, name, ())
        if type(h) is not int:
            raise TypeError("__hash__ method should return an integer")
        return hash((id(hashing), h)) if p.guard else h
    return special


def leaving(name):
    def special(self, kind=None, value=None, traceback=None):
        return cellpeer.this.request("d", self, name, (kind, value, None))
    return special


def calling(name):
    return Callable.__call__


def advancing(name):
    def special(self):
        return cellpeer.this.request("n", self)
    return special


MAKERS = {
    "__contains__": contains_method, "__bool__": truth, "__hash__": hashing, "__exit__": leaving, "__aexit__": leaving,
    "__call__": calling, "__next__": advancing,
    **dict.fromkeys(EQUALITY, equality), **dict.fromkeys(ORDERING, ordering), **dict.fromkeys(ARITHMETIC, arithmetic),
    **dict.fromkeys(CONVERSIONS, ask_unless_tainted),
}
