"""Stand-in classes: real classes, made from a description, so that type(),
isinstance() and except are decided here.

If the class derives from a builtin value type, its stand-ins hold that value and
behave as it; no method of the other side is asked for what the builtin type can
say.
"""

import _collections_abc

import cellpeer
from cellnames import MAX_NAME, SPECIAL
from cellpeer import Remote
from cellspecial import contains, special_method
from celltypes import VALUES, dec_type, discreet, library_bases, names, value_base
from cellwire import Violation


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


class Module(Remote):
    """A module of the other side."""


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
