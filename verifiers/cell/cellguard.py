"""What the test cell does not let a candidate do through its objects.
"""

import types

import cellpeer
from cellpeer import Remote
from cellspecial import TAINT, tainted
from celltypes import HEAP, remote, value_base

SUMS = frozenset("__add__ __sub__ __radd__ __rsub__ __iadd__ __isub__".split())
# Questions about a value that its tests ask with what they expect. An object
# that was to be a plain value is not asked them.
PREDICATES = frozenset("""startswith endswith find rfind isalpha isdigit isalnum isascii isdecimal isidentifier islower
    isnumeric isprintable isspace istitle isupper issubset issuperset isdisjoint is_integer""".split())
PRIVATE = frozenset(("func", "args", "keywords"))  # of functools.partial
BUILTIN_CALLABLES = (types.BuiltinFunctionType, types.MethodType, types.MethodWrapperType, types.WrapperDescriptorType,
                     types.MethodDescriptorType, types.ClassMethodDescriptorType)
INNARDS = (types.FrameType, types.CodeType, types.TracebackType)


class Guard:
    """What the test cell lets stand-ins do, and lets the candidate ask.

    An object that a function returned in place of a plain value must not learn
    what it is compared with, nor answer the comparison. So == with a plain value
    is never asked. Arithmetic, order, truth and containment are asked only of
    classes that the tests use by name; arithmetic and order with a plain value
    only of those that the tests construct with arguments. Arithmetic with a plain
    value must give an object again, and sums and differences of that kind are
    never converted to a number, a truth or an order.
    """

    def __init__(self, named, valued):
        self.named_ids, self.valued_ids = named, valued  # numbers of classes
        self.known = {}

    def named(self, cls):
        return self.has(cls, self.named_ids, "named")

    def valued(self, cls):
        return self.has(cls, self.valued_ids, "valued")

    def has(self, cls, numbers, what):
        answer = self.known.get((cls, what))
        if answer is None:
            ids = cellpeer.this.class_ids
            answer = self.known[cls, what] = any(ids.get(c) in numbers for c in cls.__mro__)
        return answer

    def compute(self, p, x, name, other, rest):
        """Do x.name(other), or leave it to other."""
        taint = tainted(x) or remote(other) and tainted(other)
        strict = taint
        if rest or not remote(other):
            if not self.valued(type(x)):
                return NotImplemented
            strict = True
            if name in SUMS and not (name == "__radd__" and type(other) is int and other == 0):
                taint = True
        result = p.request("d", x, name, (other, *rest))
        if result is NotImplemented:
            return result
        if strict and (not remote(result) or value_base([type(result)])):
            raise TypeError("%s with a plain value gave a plain value" % name)
        if taint:
            object.__setattr__(result, TAINT, True)
        return result

    def check(self, p, x):
        """Let the candidate touch only what it was handed, and no innards."""
        i = p.shared_ids.get(id(x))
        if id(x) not in p.export_ids and (i is None or not p.shared[i].keep):
            raise TypeError("not an object of the tests")
        if isinstance(x, INNARDS + (types.ModuleType,)):
            raise TypeError("not accessible")

    def attribute(self, x, name):
        """Return whether the candidate may read an attribute."""
        if type(name) is not str:
            return False
        if isinstance(x, (types.FunctionType, *BUILTIN_CALLABLES)):
            return name == "__name__" or name == "__qualname__"
        if any(b.__module__ == "unittest.case" for b in type(x).__mro__) or \
                type(x).__name__ == "partial" and name in PRIVATE or \
                name[:3] in ("gi_", "cr_", "ag_"):
            return False
        if name[:2] == "__":
            return name == "__dict__" and self.test_class(type(x)) or name == "__name__" and isinstance(x, type)
        return not name.startswith("_") or self.test_class(type(x))

    def settable(self, x, name):
        """Return whether the candidate may set an attribute: of an object of a
        test's class, and hiding no method."""
        t = type(x)
        if not self.test_class(t) or type(name) is not str or name[:2] == "__":
            return False
        for b in t.__mro__:
            if name in b.__dict__:
                v = b.__dict__[name]
                return hasattr(type(v), "__set__") or not hasattr(type(v), "__get__")
        return True

    def test_class(self, t):
        return t.__module__ == "__main__" and t.__flags__ & HEAP and not issubclass(t, Remote)
