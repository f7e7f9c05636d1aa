"""Values that both cells hold, such as lists, and how they are kept equal.

A list, dict, set, bytearray or deque gets a number when it first crosses. From
then on each message carries the new contents of those that changed, so that
both sides see one object, until one side holds no other reference to it.
"""

import sys
from _operator import is_

from cellwire import Violation

SCALARS = frozenset((type(None), bool, int, float, str))
MUTABLE = frozenset("ldsyq")
FRESH = {"l": list, "d": dict, "s": set, "y": bytearray}


class Entry:
    """A value that both sides hold.

    snap is a copy of the contents both sides agree on, None if they cannot
    change; kids are the numbers of values directly inside. The side that
    created an object of its own class keeps it until the other lets go.
    """
    __slots__ = ("obj", "kind", "base", "snap", "kids", "keep", "remote")

    def __init__(self, obj, kind, base, keep=False, remote=False):
        self.obj, self.kind, self.base = obj, kind, base
        self.snap, self.kids, self.keep, self.remote = None, (), keep, remote


def _members(kind, base, x):
    """Return what is in x, asking no method that a subclass may have replaced."""
    if kind == "d":
        return [*base.__iter__(x)], [*(dict.__getitem__(x, k) for k in base.__iter__(x))]
    if kind == "y":
        return bytes(memoryview(x))
    return [*base.__iter__(x)]


def _unchanged(e):
    kind, x, snap = e.kind, e.obj, e.snap
    if kind == "d":
        return dict.__len__(x) == len(snap[0]) and all(map(is_, e.base.__iter__(x), snap[0])) and \
            all(map(is_, dict.values(x) if e.base is dict else _members(kind, e.base, x)[1], snap[1]))
    if kind == "y":
        return len(snap) == bytearray.__len__(x) and bytes(memoryview(x)) == snap
    return e.base.__len__(x) == len(snap) and all(map(is_, e.base.__iter__(x), snap))


class Sync:
    """The part of a peer that keeps values equal. enc and dec are the peer's."""

    def __init__(self):
        self.shared, self.shared_ids = {}, {}
        self.todo = []      # numbers of values that are yet to be sent
        self.pending = {}   # definitions of values that are yet to be made
        self.lean = 64      # sweep when more values than these are shared

    def share(self, x, kind, base, keep=False):
        i = self.next
        self.next += 2
        self.shared[i] = Entry(x, kind, base, keep)
        self.shared_ids[id(x)] = i
        self.todo.append(i)
        return i

    def definitions(self):
        """Return the contents of new values, and of those that changed."""
        defs = []
        for i, e in [*self.shared.items()] if self.shared and self.busy == 1 else ():
            if e.snap is not None and not _unchanged(e):
                defs.append([i, e.kind, self.contents(e)])
        while self.todo:
            i = self.todo.pop()
            e = self.shared[i]
            if e.kind in MUTABLE:
                d = [i, e.kind, self.contents(e)]
                if type(e.obj) is not e.base or e.base not in self.encoders:
                    d += [self.enc_type(type(e.obj)), self.enc(self.objects().rest(e))]
            else:
                d = [i, e.kind, *self.objects().contents(self, e)]
            defs.append(d)
        return defs

    def contents(self, e):
        kind = e.kind
        snap = e.snap = _members(kind, e.base, e.obj)
        if kind == "y":
            return snap.decode("latin-1")
        if kind == "d":
            keys, kids = self.enc_all(snap[0])
            values, e.kids = self.enc_all(snap[1])
            return [keys, values]
        items, e.kids = self.enc_all(snap)
        return items

    def enc_all(self, items):
        if SCALARS.issuperset(map(type, items)):
            return items, ()
        out = [self.enc(v) for v in items]
        ids = self.shared_ids
        return out, [ids[id(v)] for v in items if id(v) in ids]

    def sweep(self):
        """Forget the values that only the table refers to, and return their numbers."""
        shared = self.shared
        if 64 < len(shared) < self.lean:
            return ()
        inner = {}
        for e in shared.values():
            for k in e.kids:
                inner[k] = inner.get(k, 0) + 2  # from the value and from its snapshot
        count = sys.getrefcount
        alive = {i for i, e in shared.items() if e.keep or count(e.obj) - 2 > inner.get(i, 0)}
        if len(alive) < len(shared):
            todo = [*alive]
            while todo:
                for k in shared[todo.pop()].kids:
                    if k in shared and k not in alive:
                        alive.add(k)
                        todo.append(k)
        dropped = [i for i in shared if i not in alive]
        for i in dropped:
            del self.shared_ids[id(shared[i].obj)], shared[i]
        self.lean = max(64, 2 * len(shared))
        return dropped

    def define(self, defs, drop):
        fill = []
        for d in defs:
            i, kind = d[0], d[1]
            if type(i) is not int or type(kind) is not str:
                raise Violation("definition")
            e = self.shared.get(i)
            if e is not None:
                if e.kind != kind or kind not in MUTABLE or len(d) != 3:
                    raise Violation("definition of another kind")
                e.snap = None
                fill.append((e, d))
            elif i & 1 == self.mine or i in self.pending:
                raise Violation("definition of a foreign number")
            elif len(d) == 3 and kind in FRESH:
                e = self.register(i, FRESH[kind](), kind, FRESH[kind])
                fill.append((e, d))
            else:
                self.pending[i] = d
                fill.append((None, d))
        for k, (e, d) in enumerate(fill):
            if e is None:
                e = self.shared[d[0]] if d[0] not in self.pending else self.create(d[0])
                fill[k] = e, d
        drop = frozenset(drop)
        for e, d in fill:
            self.fill(e, d, d[0] not in drop)

    def register(self, i, x, kind, base, remote=False):
        e = self.shared[i] = Entry(x, kind, base, remote=remote)
        self.shared_ids[id(x)] = i
        return e

    def create(self, i):
        return self.objects().create(self, i, self.pending.pop(i))

    def fill(self, e, d, lasting):
        kind, x, c = e.kind, e.obj, d[2]
        if kind == "l" or kind == "s" or kind == "q":
            c, kids = self.dec_all(c)
            if kind == "l":
                list.__setitem__(x, slice(None), c)
            else:
                e.base.clear(x)
                (e.base.update if kind == "s" else e.base.extend)(x, c)
        elif kind == "d":
            keys, _ = self.dec_all(c[0])
            values, kids = self.dec_all(c[1])
            if len(keys) != len(values) or len(c) != 2:
                raise Violation("dict")
            e.base.clear(x)
            put = dict.__setitem__ if e.base.__setitem__ is dict.__setitem__ else e.base.__setitem__
            for k, v in zip(keys, values):
                put(x, k, v)
        elif kind == "y":
            bytearray.__setitem__(x, slice(None), c.encode("latin-1"))
            kids = ()
        else:
            self.objects().fill(self, e, d)
            return
        if lasting:
            e.snap, e.kids = _members(kind, e.base, x), kids

    def dec_all(self, items):
        if type(items) is not list:
            raise Violation("items")
        if SCALARS.issuperset(map(type, items)):
            return items, ()
        out = [self.dec(v) for v in items]
        ids = self.shared_ids
        return out, [ids[id(v)] for v in out if id(v) in ids]
