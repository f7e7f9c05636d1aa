"""Answers to what the other side asks of objects.
"""

import types

import cellpeer
from cellgenerators import run_async
from cellnames import ARITHMETIC, ORDERING, SPECIAL
from celltypes import discreet


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
