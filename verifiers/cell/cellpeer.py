"""One side of the conversation between a test cell and a candidate cell.

Both cells run this file. It turns Python values into bounded JSON frames and
back, keeps mutable values equal on both sides, and calls the other side. What
arrives is data: it is checked against the tags below and never evaluated.

A frame is a length (4 bytes, big endian) and JSON: [op, values, defs, extra].
The sides take turns: a request is answered by "=" or "!" (an exception), and
in between the answering side may make requests of its own.

Values are JSON scalars or tagged arrays:

  t  tuple            b  bytes             i  large int      c  complex
  z  frozenset        r  range             e  slice          v  value of a standard library type
  D  dict view        N  NotImplemented, Ellipsis            T  type, by its name
  S  mutable or identified value, by number; contents are in defs
  h  object of the sender    f  function     g  generator, coroutine   o  opaque, module
  k  class of the sender, known   K  the same with its description
  H  object of the receiver  M  bound method of an object of the receiver

A list, dict, set, bytearray or deque gets a number when it first crosses. From
then on each message carries the new contents of those that changed, so that
both sides see one object, until one side holds no other reference to it.
"""

import posix
import sys
import types
from _operator import is_
from _thread import RLock
from _weakref import ref as weakref

MAX_FRAME = 16 << 20
MAX_NAMES = 4096
MAX_NAME = 256

SCALARS = frozenset((type(None), bool, int, float, str))
MUTABLE = frozenset("ldsyq")

# Special methods that a stand-in may have. What is not here is never called
# for the other side.
CONVERSIONS = frozenset("""__abs__ __neg__ __pos__ __invert__ __int__ __float__ __complex__ __index__ __round__
    __trunc__ __floor__ __ceil__""".split())
ARITHMETIC = frozenset(
    p + n + "__" for p in ("__", "__r", "__i")
    for n in "add sub mul matmul truediv floordiv mod divmod pow lshift rshift and xor or".split())
ORDERING = frozenset("__lt__ __le__ __gt__ __ge__".split())
SPECIAL = CONVERSIONS | ARITHMETIC | ORDERING | frozenset("""__eq__ __ne__ __hash__ __bool__ __len__ __length_hint__
    __str__ __repr__ __format__ __bytes__ __fspath__ __iter__ __next__ __reversed__ __getitem__ __setitem__
    __delitem__ __contains__ __missing__ __call__ __enter__ __exit__ __aenter__ __aexit__ __aiter__
    __anext__""".split())

# Types that both sides have: they cross as names. The test cell resolves no
# name that is not listed here, and none of these runs what a candidate wrote.
BUILTIN_TYPES = {t.__name__: t for t in (
    object, type, int, float, complex, bool, str, bytes, bytearray, memoryview, list, tuple, dict, set, frozenset,
    range, slice, type(None), type(...), type(NotImplemented), types.FunctionType, types.GeneratorType)}
EXCEPTIONS = {n: t for n, t in vars(sys.modules["builtins"]).items()
              if isinstance(t, type) and issubclass(t, BaseException) and t.__name__ == n}
BUILTIN_TYPES.update(EXCEPTIONS)
LIBRARY_TYPES = {
    "collections": ("OrderedDict", "Counter", "defaultdict", "deque"),
    "decimal": ("Decimal",), "fractions": ("Fraction",), "uuid": ("UUID",),
    "datetime": ("date", "time", "datetime", "timedelta", "timezone"),
    "pathlib": ("PurePosixPath", "PosixPath"), "array": ("array",), "zoneinfo": ("ZoneInfo",),
    "ipaddress": ("IPv4Address", "IPv6Address", "IPv4Network", "IPv6Network"),
}
LIBRARY_EXCEPTIONS = frozenset("""json.decoder decimal queue _queue struct zlib binascii re statistics configparser
    _csv subprocess dataclasses copy _pickle pickle urllib.error xml.etree.ElementTree ipaddress asyncio.exceptions
    zoneinfo argparse fractions uuid""".split())
# What an exception of a builtin type carries beside its arguments.
EXCEPTION_FIELDS = ("code", "value", "errno", "strerror", "filename", "filename2", "name", "path", "msg", "lineno",
                    "offset", "text", "encoding", "object", "start", "end", "reason")

ID = "\0id"  # the key, in a stand-in's own dict, of its number

_base = object.__getattribute__


class Violation(Exception):
    """The other side sent what the protocol does not allow."""


def _json():
    """Return dumps and loads. The C halves of json come without its imports."""
    try:
        import _json as c

        class Context:
            strict, object_hook, object_pairs_hook, memo = True, None, None, {}
            parse_float, parse_int = float, int
            parse_constant = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": -float("inf")}.__getitem__

        def refuse(x):
            raise TypeError("not JSON: " + type(x).__name__)

        scan = c.make_scanner(Context)
        encoder = c.make_encoder(None, refuse, c.encode_basestring_ascii, None, ":", ",", False, False, True)
        encoder([0.5], 0), scan("[1]", 0)
    except Exception:
        import json
        return json.dumps, json.loads

    def dumps(x):
        return "".join(encoder(x, 0))

    def loads(s):
        try:
            x, end = scan(s, 0)
        except StopIteration:
            raise Violation("not JSON") from None
        if end != len(s):
            raise Violation("bytes after the JSON")
        return x

    return dumps, loads


dumps, loads = _json()


def widen(x):
    """Replace integers that decimal conversion refuses by tagged hexadecimal."""
    if type(x) is list:
        return [widen(v) for v in x]
    if type(x) is int and x.bit_length() > 10000:
        return ["i", hex(x)]
    return x


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


class Peer:
    """One side. number is 0 or 1, unlike the other's.

    fatal(reason) ends the process: it is called when the other side is gone or
    breaks the protocol, from where no caller can catch it.
    """

    guard = None                # what restricts the other side, in the test cell
    types, type_names = BUILTIN_TYPES, {}

    def __init__(self, number, infd, outfd, fatal):
        self.infd, self.outfd, self.fatal = infd, outfd, fatal
        self.handlers = {"c": self.call}
        self.next, self.mine = 2 + number, number
        self.lock = RLock()
        self.shared, self.shared_ids = {}, {}
        self.exports, self.export_ids = {}, {}
        self.proxies, self.released = {}, set()
        self.generators = {}        # id of a stand-in generator: number
        self.classes, self.class_ids = {}, {}
        self.described, self.shapes = set(), {}
        self.todo, self.pending = [], {}
        self.subclasses = set()     # classes derived here from stand-ins
        self.busy = 0               # what arrives is being read, or it is not our turn
        self.lean = 64              # sweep when more values than these are shared
        self.encoders = {
            tuple: self.enc_tuple, list: self.enc_list, dict: self.enc_dict, set: self.enc_set, bytes: self.enc_bytes,
            bytearray: self.enc_bytearray, frozenset: self.enc_frozenset, complex: self.enc_complex,
            types.FunctionType: self.enc_function, Function: self.enc_home,
        }
        self.decoders = {
            "t": self.dec_tuple, "S": self.dec_shared, "H": self.dec_home, "f": self.dec_function,
            "b": self.dec_bytes, "i": self.dec_int,
        }

    # Hooks: what a side adds to a message and takes from one, what it does around
    # the code it runs for the other, and what it lets be touched and asked.

    def extra(self, out):
        pass

    def take_output(self, output):
        pass

    def take_names(self, pairs):
        raise Violation("names")

    def leave(self):
        pass

    def enter(self):
        pass

    def touch(self, x):
        pass

    def may_ask(self, x, name):
        pass

    def arriving(self, e, op):
        return e

    def attribute(self, x, name):
        self.may_ask(x, name)
        return self.request("g", x, name)

    def objects(self):
        """Return the module of what is not a plain value, which few need."""
        folder = __file__.rpartition("/")[0]
        sys.path.insert(0, folder)
        try:
            import cellobjects
        finally:
            sys.path.remove(folder)
        self.objects = lambda: cellobjects
        return cellobjects

    # Frames.

    def write_frame(self, text):
        data = text.encode("ascii")
        if len(data) > MAX_FRAME:
            self.fatal("big")
        data = len(data).to_bytes(4, "big") + data
        try:
            n = posix.write(self.outfd, data)
            while n < len(data):
                data = data[n:]
                n = posix.write(self.outfd, data)
        except OSError:
            self.fatal("gone")

    def read_frame(self):
        size = int.from_bytes(self.read_bytes(4), "big")
        if not size:
            self.fatal("gone")
        if size > MAX_FRAME:
            self.fatal("protocol")
        return self.read_bytes(size)

    def read_bytes(self, n):
        data = posix.read(self.infd, n)
        if len(data) == n:
            return data
        parts = [data]
        while data:
            n -= len(data)
            if not n:
                return b"".join(parts)
            data = posix.read(self.infd, min(n, 1 << 20))
            parts.append(data)
        self.fatal("gone")

    # Messages.

    def request(self, op, *body):
        """Ask the other side, and return or raise its answer."""
        with self.lock:
            self.busy += 1
            try:
                self.send(op, [*body])
                got, value = self.await_answer()
            except BaseException:
                # A signal handler of the tests: the answer would come to the next
                # question.
                self.fatal("interrupted")
            self.busy -= 1
        if got == "=":
            return value
        raise self.arriving(value, op)

    def await_answer(self):
        """Serve the other side until it answers; return "=" or "!" and the value."""
        while True:
            got, values = self.receive()
            if got == "=":
                return got, values.pop()
            if got == "!":
                e = values.pop()
                if not isinstance(e, BaseException):
                    self.fatal("protocol")
                return got, e
            self.answer(got, values)

    def answer(self, op, values):
        """Do what the other side asks. Nothing here keeps the values alive."""
        handler = self.handlers.get(op) or self.more_handlers().get(op)
        if handler is None:
            self.fatal("protocol")
        busy, self.busy = self.busy, 0
        self.leave()
        try:
            out, op = [handler(self, values)], "="
        except BaseException as e:
            e.__traceback__ = None
            out, op = [e], "!"
        finally:
            self.enter()
            self.busy = busy
        self.send(op, out)

    def more_handlers(self):
        return self.objects().HANDLERS

    @staticmethod
    def call(self, values):
        f, args, kwargs = values
        values.clear()
        self.touch(f)
        return f(*args, **dict(kwargs))

    def send(self, op, body):
        try:
            values = [self.enc(v) for v in body]
            body.clear()
            defs = self.definitions()
            extra = {}
            self.extra(extra)
            if self.todo:
                defs += self.definitions()
            if self.released:
                extra["r"], self.released = [*self.released], set()
            if self.shared and self.busy == 1:
                dropped = self.sweep()
                if dropped:
                    extra["d"] = dropped
            message = [op, values, defs, extra or 0]
            try:
                text = dumps(message)
            except ValueError:
                text = dumps([op, *widen(message[1:3]), extra or 0])
        except (RecursionError, MemoryError):
            self.fatal("big")
        self.write_frame(text)

    def receive(self):
        data = self.read_frame()
        try:
            message = loads(data.decode("ascii"))
            del data
            if type(message) is not list or len(message) != 4:
                raise Violation("message")
            op, values, defs, extra = message
            if type(op) is not str or type(values) is not list or type(defs) is not list:
                raise Violation("message")
            if type(extra) is not dict:
                extra = {}
            drop = extra.get("d", ())
            if defs:
                self.define(defs, drop)
            values = [self.dec(v) for v in values]
            for i in extra.get("r", ()):
                self.export_ids.pop(id(self.exports.pop(i)))
            if "g" in extra:
                self.take_names(extra["g"])
            for i in drop:
                e = self.shared.pop(i)
                if e.remote:
                    raise Violation("drop")
                del self.shared_ids[id(e.obj)]
            if "o" in extra:
                self.take_output(extra["o"])
        except Exception:
            self.fatal("protocol")
        return op, values

    # Shared values.

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

    # Encoding.

    def enc(self, x):
        t = type(x)
        if t in SCALARS:
            return x
        f = self.encoders.get(t)
        return f(x) if f else self.objects().enc(self, x)

    def enc_tuple(self, x):
        return ["t", *x] if SCALARS.issuperset(map(type, x)) else ["t", *map(self.enc, x)]

    def enc_frozenset(self, x):
        return ["z", *map(self.enc, x)]

    def enc_list(self, x):
        i = self.shared_ids.get(id(x))
        return ["S", i or self.share(x, "l", list)]

    def enc_dict(self, x):
        i = self.shared_ids.get(id(x))
        return ["S", i or self.share(x, "d", dict)]

    def enc_set(self, x):
        i = self.shared_ids.get(id(x))
        return ["S", i or self.share(x, "s", set)]

    def enc_bytearray(self, x):
        i = self.shared_ids.get(id(x))
        return ["S", i or self.share(x, "y", bytearray)]

    def enc_bytes(self, x):
        return ["b", x.decode("latin-1")]

    def enc_complex(self, x):
        return ["c", x.real, x.imag]

    def enc_function(self, x):
        return self.objects().enc_function(self, x) if self.guard else ["f", self.export(x)]

    def enc_home(self, x):
        return ["H", _base(x, ID)]

    def enc_type(self, t):
        return self.objects().enc_type(self, t)

    def export(self, x):
        i = self.export_ids.get(id(x))
        if i is None:
            i = self.next
            self.next += 2
            self.exports[i] = x
            self.export_ids[id(x)] = i
        return i

    # Decoding.

    def dec(self, v):
        if type(v) is not list:
            if type(v) is dict:
                raise Violation("value")
            return v
        tag = v[0]
        if type(tag) is not str:
            raise Violation("tag")
        f = self.decoders.get(tag)
        return f(v) if f else self.objects().dec(self, tag, v)

    def dec_tuple(self, v):
        if SCALARS.issuperset(map(type, v)):
            return tuple(v[1:])
        dec = self.dec
        return tuple([dec(x) for x in v[1:]])

    def dec_bytes(self, v):
        return v[1].encode("latin-1")

    def dec_int(self, v):
        return int(v[1], 16)

    def dec_shared(self, v):
        i = v[1]
        e = self.shared.get(i)
        if e is None:
            if i not in self.pending:
                raise Violation("unknown number")
            e = self.create(i)
        return e.obj

    def dec_home(self, v):
        return self.exports[v[1]]

    def dec_function(self, v):
        if len(v) != 2:
            return self.objects().dec(self, "f", v)
        i = self.foreign(v[1])
        return self.proxy(i) or self.adopt(i, Function)

    def foreign(self, i):
        if type(i) is not int or i & 1 == self.mine:
            raise Violation("number")
        return i

    def proxy(self, i):
        """Return the living stand-in of a number, or None."""
        r = self.proxies.get(i)
        return r and r()

    def adopt(self, i, cls):
        """Make the stand-in of a number."""
        x = object.__new__(cls)
        object.__setattr__(x, ID, i)
        self.watch(i, x)
        return x

    def watch(self, i, x):
        self.proxies[i] = weakref(x, lambda _: self.release(i))
        self.released.discard(i)

    def release(self, i):
        """Note that a stand-in is gone. The collector may call this anywhere."""
        self.released.add(i)


FRESH = {"l": list, "d": dict, "s": set, "y": bytearray}

# The one peer of this process, for the stand-ins.
this = None


class Remote:
    """The part that all stand-ins have, of whatever class.

    What it can do beyond that is in the module cellobjects. It has no equality
    of its own: an object of the other side equals itself.
    """

    def __getattr__(self, name):
        return this.attribute(self, name)

    def __setattr__(self, name, value):
        this.request("s", self, name, value)

    def __delattr__(self, name):
        this.request("D", self, name)

    def __dir__(self):
        return this.request("dir", self)

    def __repr__(self):
        return this.request("d", self, "__repr__", ())

    def __str__(self):
        return this.request("d", self, "__str__", ())

    def __copy__(self):
        return this.request("copy", self, False)

    def __deepcopy__(self, memo):
        return this.request("copy", self, True)

    def __reduce_ex__(self, protocol):
        raise TypeError("cannot pickle %r object" % type(self).__name__)

    @property
    def __dict__(self):
        return this.request("g", self, "__dict__")


def _asked(name):
    """Return a property that is not what the stand-in's class says."""
    return property(lambda self: this.request("g", self, name))


class Callable(Remote):
    # A callable of the other side that does not become a method.
    __doc__, __module__ = _asked("__doc__"), _asked("__module__")

    def __call__(self, /, *args, **kwargs):
        return this.request("c", self, args, tuple(kwargs.items()) if kwargs else ())

    @property
    def __signature__(self):
        return this.objects().signature(self)


class Function(Callable):
    # A function of the other side.
    __doc__, __module__ = _asked("__doc__"), _asked("__module__")

    def __get__(self, obj, cls=None):
        return self if obj is None else types.MethodType(self, obj)


class Packages:
    """Finds the image's packages when something is imported that the standard
    library lacks. The interpreter starts without them."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if path is not None:
            return None
        sys.meta_path.remove(cls)
        import site
        site.main()
        from _frozen_importlib_external import PathFinder
        return PathFinder.find_spec(name)


def prepare():
    """Set the interpreter up as a program expects it, and return private copies
    of the descriptors 0 and 1. What is written to 1 from now on goes to 2."""
    import builtins
    pipes = posix.dup(0), posix.dup(1)
    null = posix.open("/dev/null", posix.O_RDWR)
    posix.dup2(null, 0)
    posix.dup2(2, 1)
    posix.close(null)
    sys.meta_path.append(Packages)
    sys.setrecursionlimit(4000)

    def leave(code=None):
        raise SystemExit(code)

    builtins.exit = builtins.quit = leave
    return pipes
