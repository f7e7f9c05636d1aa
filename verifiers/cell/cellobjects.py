"""What crosses between two cells beside plain values: classes, their objects,
exceptions, generators, values of the standard library.

An object of the other side is a stand-in. Its class is a real class made here
from a description, so that type(), isinstance() and except are decided here. If
its class derives from a builtin value type, the stand-in holds that value and
behaves as it; no method of the other side is asked for what the builtin type
can say.

In the test cell a guard restricts the stand-ins further: see Guard.
"""

import sys
import types

import cellpeer
from cellpeer import (
    ARITHMETIC, BUILTIN_TYPES, CONVERSIONS, EXCEPTION_FIELDS, EXCEPTIONS, ID, LIBRARY_EXCEPTIONS, LIBRARY_TYPES,
    MAX_NAME, MAX_NAMES, ORDERING, SCALARS, SPECIAL, Callable, Function, Remote, Violation, _base)

TAINT = "\0taint"
LIBRARY = frozenset(getattr(sys, "stdlib_module_names", sys.builtin_module_names))
HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE

# Builtin types whose value a stand-in can hold, with the kind of their contents.
VALUES = {int: "I", float: "F", complex: "X", str: "U", bytes: "B", tuple: "P", frozenset: "Z",
          list: "l", dict: "d", set: "s", bytearray: "y"}
SUMS = frozenset("__add__ __sub__ __radd__ __rsub__ __iadd__ __isub__".split())
CONTAINERS = frozenset("""__len__ __iter__ __getitem__ __setitem__ __delitem__ __contains__ __reversed__""".split())
# Special methods of a class derived from a builtin type that do not stand for
# its value.
APART = frozenset("""__str__ __repr__ __format__ __call__ __enter__ __exit__ __missing__ __fspath__ __aenter__
    __aexit__ __aiter__ __anext__ __next__""".split())
EQUALITY = frozenset(("__eq__", "__ne__"))
# Questions about a value that its tests ask with what they expect. An object
# that was to be a plain value is not asked them.
PREDICATES = frozenset("""startswith endswith find rfind isalpha isdigit isalnum isascii isdecimal isidentifier islower
    isnumeric isprintable isspace istitle isupper issubset issuperset isdisjoint is_integer""".split())

PRIVATE = frozenset(("func", "args", "keywords"))  # of functools.partial
BUILTIN_CALLABLES = (types.BuiltinFunctionType, types.MethodType, types.MethodWrapperType, types.WrapperDescriptorType,
                     types.MethodDescriptorType, types.ClassMethodDescriptorType)
INNARDS = (types.FrameType, types.CodeType, types.TracebackType)
VIEWS = {type({}.keys()): "keys", type({}.values()): "values", type({}.items()): "items"}


def remote(x):
    return issubclass(type(x), Remote)


# Types.

class RemoteType(type):
    """The class of stand-in classes."""

    def __new__(meta, name, bases, namespace, **kwargs):
        cls = type.__new__(meta, name, bases, namespace)
        subclass(cellpeer.this, cls, name, bases, namespace)
        return cls

    def __init__(cls, name, bases, namespace, **kwargs):
        type.__init__(cls, name, bases, namespace)

    def __call__(cls, /, *args, **kwargs):
        return cellpeer.this.request("c", cls, args, tuple(kwargs.items()))

    def __getattr__(cls, name):
        return cellpeer.this.request("g", cls, name)

    def __setattr__(cls, name, value):
        if name[:2] == "__" or name == "_abc_impl":
            type.__setattr__(cls, name, value)
        else:
            cellpeer.this.request("s", cls, name, value)

    def __delattr__(cls, name):
        cellpeer.this.request("D", cls, name)

    def __iter__(cls):
        return cellpeer.this.request("d", cls, "__iter__", ())

    def __len__(cls):
        return cellpeer.this.request("d", cls, "__len__", ())

    def __getitem__(cls, key):
        return cellpeer.this.request("d", cls, "__getitem__", (key,))

    def __contains__(cls, x):
        return contains(cls, x)

    def __bool__(cls):
        return True


def library_name(t):
    """Return "module:name" of a type that crosses by name, or None."""
    module, name = t.__module__, t.__name__
    if type(module) is not str or type(name) is not str:
        return None
    listed = name in LIBRARY_TYPES.get(module, ()) or module in LIBRARY_EXCEPTIONS and issubclass(t, BaseException)
    if listed and getattr(sys.modules.get(module), name, None) is t:
        return module + ":" + name
    return None


def type_named(p, name):
    if type(name) is not str:
        raise Violation("type name")
    t = p.types.get(name)
    if t is not None:
        return t
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
    name = p.type_names.get(t)
    if name is None:
        name = t.__name__
        if BUILTIN_TYPES.get(name) is not t:
            name = library_name(t)
    return name


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


def new_class(p, i, name, abstract, doc, bases, methods, properties, absent):
    """Make the stand-in class of number i."""
    if type(name) is not str or len(name) > MAX_NAME or doc is not None and type(doc) is not str:
        raise Violation("class name")
    parents = []
    for b in bases:
        b = dec_type(p, b)
        if issubclass(b, (Remote, BaseException)) or b in VALUES or b in library_bases():
            parents.append(b)
    plain = [b for b in parents if not issubclass(b, Remote)]
    if len(plain) == len(parents):
        parents.append(Remote)
    base = value_base(parents)
    space = {"__module__": "__main__", "__doc__": doc, "__qualname__": name}
    for n in names(absent):
        if n in SPECIAL:
            space[n] = None
    for n in names(methods):
        if n in SPECIAL:
            stub = special_method(p, n, base)
            if stub:
                space[n] = stub
        elif n == "__init__" or n[:2] != "__":
            space[n] = Method(n, base)
    for n in names(properties):
        if n[:2] != "__":
            space[n] = Property(n)
    if "__eq__" in space and "__hash__" not in space:
        space["__hash__"] = base.__hash__ if base else Remote.__hash__
    cls = make_class(name, parents, space)
    p.classes[i], p.class_ids[cls] = cls, i
    import _collections_abc
    if abstract in _collections_abc.__all__:
        getattr(_collections_abc, abstract).register(cls)
    return cls


def make_class(name, parents, space):
    try:
        return type.__new__(RemoteType, name, tuple(parents), space)
    except (TypeError, ValueError):  # no common layout or order
        return type.__new__(RemoteType, name, (Remote,), space)


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


class Method:
    """A method in a stand-in class: it asks only when it is called. One that
    replaces a builtin type's is asked only of classes the tests name."""
    __slots__ = ("name", "owner", "builtin")

    def __init__(self, name, base):
        self.name, self.owner, self.builtin = name, None, getattr(base, name, None)

    def __set_name__(self, owner, name):
        self.owner = owner

    def __get__(self, obj, cls=None):
        p = cellpeer.this
        if obj is None:
            return p.request("g", self.owner, self.name)
        if self.builtin is not None and p.guard and not p.guard.named(type(obj)):
            return self.builtin.__get__(obj, type(obj))
        return Bound(obj, self.name, overridden(self, obj))


def overridden(member, obj):
    """Return the member's class if a test's class hides it from obj, else None."""
    return member.owner if type(obj) in cellpeer.this.subclasses else None


class Property:
    __slots__ = ("name", "owner")

    def __init__(self, name):
        self.name, self.owner = name, None

    def __set_name__(self, owner, name):
        self.owner = owner

    def __get__(self, obj, cls=None):
        if obj is None:
            return cellpeer.this.request("g", self.owner, self.name)
        owner = overridden(self, obj)
        return cellpeer.this.request("g", obj, self.name, owner) if owner else cellpeer.this.attribute(obj, self.name)

    def __set__(self, obj, value):
        cellpeer.this.request("s", obj, self.name, value)

    def __delete__(self, obj):
        cellpeer.this.request("D", obj, self.name)


class Bound:
    """A method of a stand-in, not yet called."""
    __slots__ = ("__self__", "__name__", "_owner")

    def __init__(self, obj, name, owner):
        self.__self__, self.__name__, self._owner = obj, name, owner

    def __call__(self, /, *args, **kwargs):
        p = cellpeer.this
        p.may_ask(self.__self__, self.__name__)
        return p.request("m", self.__self__, self.__name__, args, tuple(kwargs.items()), self._owner)

    def __getattr__(self, name):
        method = cellpeer.this.request("g", self.__self__, self.__name__)
        return getattr(method, name)

    def __eq__(self, other):
        return type(other) is Bound and self.__self__ is other.__self__ and self.__name__ == other.__name__

    def __hash__(self):
        return hash((id(self.__self__), self.__name__))

    @property
    def __doc__(self):
        return self.__getattr__("__doc__")


# Special methods of stand-ins.

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
        return _base(x, TAINT)
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
        return hash((id(RemoteType), h)) if p.guard else h
    return special


def leaving(name):
    def special(self, kind=None, value=None, traceback=None):
        return cellpeer.this.request("d", self, name, (kind, value, None))
    return special


def calling(name):
    return Function.__call__


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


# Encoding.

def enc(p, x):
    t = type(x)
    i = p.shared_ids.get(id(x))
    if i is not None:
        return ["S", i]
    if issubclass(t, Remote):
        return ["H", _base(x, ID)]
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


def library_path(x):
    """Return "=module:name" of what the standard library defines, or None."""
    module, name = getattr(x, "__module__", None), getattr(x, "__qualname__", None)
    if type(module) is not str or type(name) is not str or module.partition(".")[0] not in LIBRARY:
        return None
    y = sys.modules.get(module)
    for part in name.split("."):
        y = getattr(y, part, None)
    return "=" + module + ":" + name if y is x else None


def enc_class(p, t):
    path = library_path(t) if p.guard and t not in p.class_ids and type_name(p, t) is None else None
    return ["T", path] if path else enc_type(p, t)


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
GENERATORS = {types.GeneratorType: "g", types.CoroutineType: "c", types.AsyncGeneratorType: "a"}


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


CONTAINER_KINDS = {"OrderedDict": "d", "Counter": "d", "defaultdict": "d", "deque": "q"}


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


# Decoding.

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
        x = {"g": generator, "c": coroutine, "a": async_generator}[kind](Handle(i))
        key = id(x)
        p.generators[key] = i

        def gone(_):
            p.generators.pop(key, None)
            p.release(i)
        p.proxies[i] = cellpeer.weakref(x, gone)
        p.released.discard(i)
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


def new_exception(cls):
    if issubclass(cls, BaseExceptionGroup):
        return cls.__new__(cls, "", [Exception()])
    return cls.__new__(cls)


if sys.version_info < (3, 11):
    class BaseExceptionGroup(BaseException):
        pass


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


class Handle(Remote):
    """A bare number, for generators: its objects hold no reference of theirs."""

    def __init__(self, i):
        object.__setattr__(self, ID, i)


class Module(Remote):
    """A module of the other side."""


# Generators: real ones, so that their type is right.

def generator(handle):
    mode, value = "n", None
    while True:
        done, result = cellpeer.this.request("y", handle, mode, value)
        if done:
            return result
        try:
            value = yield result
            mode = "n" if value is None else "s"
        except GeneratorExit:
            if not cellpeer.this.busy:
                cellpeer.this.request("y", handle, "c", None)
            raise
        except BaseException as e:
            mode, value = "t", e


async def coroutine(handle):
    return cellpeer.this.request("a", handle)


async def async_generator(handle):
    while True:
        try:
            value = cellpeer.this.request("a", handle)
        except StopAsyncIteration:
            return
        yield value


def run_async(x):
    """Run a coroutine, or one step of an asynchronous generator, to its end."""
    import asyncio
    if isinstance(x, types.AsyncGeneratorType):
        x = x.__anext__()

    async def wait():
        return await x

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return loop().run_until_complete(wait())
    import threading
    out = []

    def other():
        try:
            out.append((True, asyncio.run(wait())))
        except BaseException as e:
            out.append((False, e))

    t = threading.Thread(target=other)
    t.start()
    t.join()
    ok, value = out[0]
    if ok:
        return value
    raise value


def loop():
    """Return the one event loop of this side."""
    global _loop
    if _loop is None:
        import asyncio
        _loop = asyncio.new_event_loop()
    return _loop


_loop = None


# Answers to the other side's requests.

def advance(p, v):
    x = v.pop()
    p.touch(x)
    del v
    return type(x).__next__(x)


def step(p, v):
    x, mode, value = v
    v.clear()
    p.touch(x)
    try:
        if mode == "n":
            return False, next(x)
        if mode == "s":
            return False, x.send(value)
        if mode == "t":
            return False, x.throw(value)
        x.close()
        return True, None
    except StopIteration as e:
        return True, e.value


def special(p, v):
    x, name, args = v
    v.clear()
    p.touch(x)
    if name not in SPECIAL:
        raise TypeError("not a special method")
    t = type(x)
    if name == "__getitem__" and isinstance(x, type):
        return x[args[0]]
    if name == "__hash__":
        return hash(x)
    method = getattr(t, name, None)
    if method is None:
        if name in ARITHMETIC or name in ORDERING:
            return NotImplemented
        raise TypeError("%r object has no %s" % (t.__name__, name))
    return method(x, *args)


def get(p, v):
    x, name, *owner = v
    v.clear()
    p.touch(x)
    if p.guard:
        if not p.guard.attribute(x, name):
            raise AttributeError("%r object has no attribute %r" % (discreet(type(x).__name__), name))
        value = getattr(x, name)
        if name == "__dict__":
            return dict(value)
        return discreet(value.rpartition(".")[2]) if name in ("__name__", "__qualname__") else value
    if owner and owner[0] is not None:
        return owner[0].__dict__[name].__get__(x, type(x))
    if name == "__dict__" and isinstance(x, type):
        return dict(x.__dict__)
    return getattr(x, name)


def put(p, v):
    x, name, value = v
    v.clear()
    p.touch(x)
    if p.guard and not p.guard.settable(x, name):
        raise AttributeError("cannot set %r" % name)
    setattr(x, name, value)


def delete(p, v):
    x, name = v
    v.clear()
    p.touch(x)
    if p.guard and not p.guard.settable(x, name):
        raise AttributeError("cannot delete %r" % name)
    delattr(x, name)


def method(p, v):
    x, name, args, kwargs, owner = v
    v.clear()
    if p.guard:
        return get(p, [x, name])(*args, **dict(kwargs))
    if owner is not None:
        return owner.__dict__[name].__get__(x, type(x))(*args, **dict(kwargs))
    return getattr(x, name)(*args, **dict(kwargs))


def finish(p, v):
    x = v.pop()
    p.touch(x)
    if not isinstance(x, (types.CoroutineType, types.AsyncGeneratorType)):
        raise TypeError("not a coroutine")
    return run_async(x)


HANDLERS = {"n": advance, "y": step, "d": special, "g": get, "s": put, "D": delete, "m": method, "a": finish}


# Classes that a test derives from one of the candidate's.

def subclass(p, cls, name, bases, namespace):
    parts = []
    for n, v in namespace.items():
        t = type(v)
        if n in ("__module__", "__qualname__", "__classcell__", "__doc__", "__dict__", "__weakref__"):
            continue
        if t in (staticmethod, classmethod):
            parts.append((n, t.__name__, v.__func__))
        elif t is property:
            parts.append((n, "property", (v.fget, v.fset, v.fdel)))
        else:
            parts.append((n, "", v))
    i = p.request("sub", discreet(name), tuple(b for b in bases if b is not Remote), tuple(parts))
    p.classes[p.foreign(i)], p.class_ids[cls] = cls, i
    p.subclasses.add(cls)


def derive(p, v):
    name, bases, parts = v
    v.clear()
    wrap = {"": lambda x: x, "staticmethod": staticmethod, "classmethod": classmethod,
            "property": lambda x: property(*x)}

    def body(space):
        space["__module__"] = bases[0].__module__ if bases else "candidate"
        for n, kind, value in parts:
            space[n] = wrap[kind](value)

    i = p.export(types.new_class(name, bases, {}, body))
    p.described.add(i)
    return i


def signature(f):
    """Return the signature of the other side's function."""
    import inspect
    parameters, result = [], inspect.Signature.empty
    for name, kind, *default in cellpeer.this.request("sig", f):
        parameters.append(inspect.Parameter(name, inspect._ParameterKind(kind), default=default[0] if default else inspect.Parameter.empty))
    return inspect.Signature(parameters, return_annotation=result)


def parameters(p, v):
    import inspect
    f = v.pop()
    return tuple(
        (q.name, int(q.kind)) if q.default is inspect.Parameter.empty else (q.name, int(q.kind), q.default)
        for q in inspect.signature(f).parameters.values())


def duplicate(p, v):
    import copy
    x, deep = v
    return copy.deepcopy(x) if deep else copy.copy(x)


def attributes(p, v):
    return dir(v.pop())


SERVER_HANDLERS = {**HANDLERS, "sub": derive, "sig": parameters, "copy": duplicate, "dir": attributes}
