"""Plain data, which is all that passes between a candidate's process and the tests'.

A message is its length in four bytes, and JSON: a word, values, and what is in the lists, dictionaries and sets that
the values refer to by number. A Graph numbers them for one question and its answer, so that a list that the candidate
changes is changed in the tests, too. Only exact built-in types are written, and nothing else can be read.
"""

import json
import os

BYTES = 32 << 20  # most in a message
DEPTH = 50  # most tuples within tuples; lists may be nested deeper
MUTABLE = {"list": list, "dict": dict, "set": set}
FIXED = {"tuple": tuple, "frozenset": frozenset}
OTHERS = {"int": lambda text: int(text, 16), "complex": complex, "bytes": lambda text: text.encode("latin-1")}


class NotPlain(Exception):
    """A value is no plain data. The argument names its type."""


class Graph:
    def __init__(self):
        self.objects, self.numbers = [], {}

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
        if kind in (tuple, frozenset) and depth < DEPTH:
            return [kind.__name__, [self.pack(v, depth + 1) for v in value]]
        if kind in (list, dict, set):
            return [self.number(value)]
        raise NotPlain(kind.__name__)

    def unpack(self, value):
        if type(value) is dict:
            raise ValueError("an object of JSON")
        if type(value) is not list:
            return value
        kind, *rest = value
        if type(kind) is int:
            return self.objects[kind]
        if kind in FIXED:
            return FIXED[kind]([self.unpack(v) for v in rest[0]])
        return OTHERS[kind](*rest)

    def write(self, fd, word, *values):
        values, contents = [self.pack(v) for v in values], []
        for o in self.objects:  # which packing makes more
            items = [x for pair in o.items() for x in pair] if type(o) is dict else o
            contents.append([type(o).__name__, [self.pack(i) for i in items]])
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
        for kind, _ in contents[len(self.objects):]:
            self.number(MUTABLE[kind]())
        for o, (kind, items) in zip(self.objects[:], contents):
            items = [self.unpack(i) for i in items]
            if type(o) is not MUTABLE[kind]:
                raise ValueError("another type")
            if kind == "list":
                o[:] = items
                continue
            new = set(items) if kind == "set" else dict(zip(items[::2], items[1::2]))
            if new != o if kind == "set" else list(new) != list(o):
                o.clear()
            o.update(new)
        return word, [self.unpack(v) for v in values]


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
