"""Plain data, which is all that passes between a candidate's process and the tests'.

A message is its length in four bytes, and JSON: a word, values, and what is in the lists, dictionaries and sets that
the values refer to by number. A Graph numbers them for one question and its answer, so that a list that the candidate
changes is changed in the tests, too. Only exact types of Python are written, and nothing else can be read. Any other
object stays in the candidate's process, and a number stands for it.
"""

import array
import collections
import copy
import datetime
import decimal
import fractions
import json
import os

BYTES = 32 << 20  # most in a message
DEPTH = 50  # most tuples within tuples; lists may be nested deeper


def named(*types):
    return {t.__name__: t for t in types}


MUTABLE = named(list, dict, set, bytearray, array.array, collections.deque, collections.Counter, collections.OrderedDict, collections.defaultdict)
FACTORIES = named(bool, int, float, str, tuple, list, dict, set)  # of a defaultdict; other factories are lost
FIXED = named(tuple, frozenset)
# They are made again with what they themselves say to pickle.
MADE = named(range, slice, decimal.Decimal, fractions.Fraction, datetime.date, datetime.time, datetime.datetime, datetime.timedelta, datetime.timezone)
VIEWS = {"dict_keys": lambda *v: dict.fromkeys(v).keys(), "dict_values": lambda *v: dict(enumerate(v)).values(), "dict_items": lambda *v: dict(v).items()}
MAKERS = {"int": lambda text: int(text, 16), "complex": complex, "bytes": lambda text: text.encode("latin-1"), **MADE, **VIEWS}


# The values of instances of classes that are derived from plain types.
VALUES = {int: int.__index__, float: float.__float__, str: str.__str__, list: list.copy, dict: dict.copy,
          tuple: lambda v: (*tuple.__iter__(v),), set: lambda v: {*set.__iter__(v)}}


class NotPlain(Exception):
    """A value is no plain data. The argument names its type."""


def refuse(value, *_):
    raise NotPlain(type(value).__name__)


class Graph:
    """place returns the number of an object that is no plain data, and names of attributes; thing finds it by them.
    With derived, instances of classes that are derived from plain types are written as these."""

    def __init__(self, place=refuse, thing=refuse, derived=False):
        self.objects, self.numbers, self.place, self.thing, self.derived = [], {}, place, thing, derived

    def number(self, value):
        if id(value) not in self.numbers:
            self.numbers[id(value)] = len(self.objects)
            self.objects.append(value)
        return self.numbers[id(value)]

    def pack(self, value, depth=0):
        kind = type(value)
        if value is None or kind in (bool, float, str) or kind is int and -1 << 53 < value < 1 << 53:
            return value
        if kind is int:
            return ["int", hex(value)]
        if kind is complex:
            return ["complex", value.real, value.imag]
        if kind is bytes:
            return ["bytes", value.decode("latin-1")]
        if kind in MUTABLE.values():
            return [self.number(value)]
        if kind in MADE.values():
            value = value.__reduce_ex__(4)[1]
        elif kind not in FIXED.values() and kind.__name__ not in VIEWS:
            base = self.derived and next((k for k in kind.__mro__ if k in VALUES), None)
            return self.pack(VALUES[base](value), depth) if base else ["object", *self.place(value)]
        if depth == DEPTH:
            raise NotPlain("too deep")
        return [kind.__name__] + [self.pack(v, depth + 1) for v in value]

    def unpack(self, value):
        if type(value) is dict:
            raise ValueError("an object of JSON")
        if type(value) is not list:
            return value
        kind, *rest = value
        if type(kind) is int:
            return self.objects[kind]
        if kind == "object":
            return self.thing(*rest)
        if kind in FIXED:
            return FIXED[kind](map(self.unpack, rest))
        return MAKERS[kind](*map(self.unpack, rest))

    def write(self, fd, word, *values):
        values, contents = [self.pack(v) for v in values], []
        for o in self.objects:  # which packing makes more
            items = [x for pair in o.items() for x in pair] if isinstance(o, dict) else o
            contents.append([type(o).__name__, option(o), [self.pack(i) for i in items]])
        data = json.dumps([word, values, contents]).encode()
        if len(data) > BYTES:
            raise NotPlain("too much data")
        send(fd, len(data).to_bytes(4, "big") + data)

    def read(self, fd):
        """Read a message: its word and its values. What is known from an earlier one is changed in place."""
        size = int.from_bytes(receive(fd, 4), "big")
        if size > BYTES:
            raise ValueError("a message of %d bytes" % size)
        word, values, contents = json.loads(receive(fd, size))
        for kind, made_with, _ in contents[len(self.objects):]:
            self.number(empty(kind, made_with))
        for o, (kind, _, items) in zip(self.objects[:], contents):
            if type(o) is not MUTABLE[kind]:
                raise ValueError("another type")
            fill(o, [self.unpack(i) for i in items])
        return word, [self.unpack(v) for v in values]


class Shared(dict):
    """Lists and other containers that crossed, each with a copy of what it had then. Both processes number them alike."""

    count = 0

    def note(self, objects):
        for o in objects:
            self[self.count] = o, copy.copy(o)
            self.count += 1

    def changed(self):
        """Whether a container has changed here since. The other process does not see that."""
        try:
            return any(o != was for o, was in self.values())
        except Exception:  # objects of the candidate that cannot be compared
            return True


def option(o):
    """What an empty object of the same kind is made with, beside its type."""
    factory = getattr(o, "default_factory", None)
    return factory.__name__ if factory in FACTORIES.values() else getattr(o, "typecode", getattr(o, "maxlen", None))


def empty(kind, made_with):
    if kind == "deque":
        return collections.deque((), made_with)
    if kind == "defaultdict":
        return collections.defaultdict(FACTORIES.get(made_with))
    return array.array(made_with) if kind == "array" else MUTABLE[kind]()


def fill(o, items):
    """Put items in the place of what an object has."""
    if isinstance(o, dict):
        new = dict(zip(items[::2], items[1::2]))
        if list(new) != list(o) or type(o) is collections.Counter:  # which would add
            o.clear()
        o.update(new)
    elif isinstance(o, set):
        if set(items) != o:
            o.clear()
        o.update(items)
    elif isinstance(o, collections.deque):
        o.clear()
        o.extend(items)
    else:
        o[:] = array.array(o.typecode, items) if isinstance(o, array.array) else items


def send(fd, data):
    while data:
        data = data[os.write(fd, data):]


def receive(fd, count):
    data = bytearray()
    while len(data) < count:
        part = os.read(fd, min(count - len(data), 1 << 20))
        if not part:
            raise EOFError
        data += part
    return bytes(data)
