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
"""

import posix
import sys
import types
from _thread import RLock
from _weakref import ref as weakref

from cellsync import SCALARS, Sync
from cellwire import Violation, dumps, loads, widen

MAX_FRAME = 16 << 20  # bytes; cell_exchange.go has the same number

ID = "\0id"  # the key, in a stand-in's own dict, of its number

base_get = object.__getattribute__  # reads a stand-in's own dict and asks nobody


class Peer(Sync):
    """One side. number is 0 or 1, unlike the other's.

    fatal(reason) ends the process: it is called when the other side is gone or
    breaks the protocol, from where no caller can catch it.
    """

    guard = None                # what restricts the other side, in the test cell
    substitutes = {}            # types in the place of builtin ones, by these

    def __init__(self, number, infd, outfd, fatal):
        self.infd, self.outfd, self.fatal = infd, outfd, fatal
        self.handlers = {"c": call}
        self.next, self.mine = 2 + number, number
        self.lock = RLock()
        self.exports, self.export_ids = {}, {}
        self.proxies, self.released = {}, set()
        self.generators = {}        # id of a stand-in generator: number
        self.classes, self.class_ids = {}, {}
        self.described, self.shapes = set(), {}
        self.subclasses = set()     # classes derived here from stand-ins
        self.busy = 0               # what arrives is being read, or it is not our turn
        Sync.__init__(self)
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
        return ["H", base_get(x, ID)]

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

    def watch(self, i, x, forget=None):
        """Tell the other side when the stand-in x is gone. The collector may find
        that anywhere, so it goes with the next message."""
        def gone(r):
            if self.proxies.get(i) is r:
                del self.proxies[i]
                self.released.add(i)
            if forget:
                forget()

        self.proxies[i] = weakref(x, gone)
        self.released.discard(i)


def call(p, values):
    """Answer a call. The frame must not keep what it passed on."""
    f, args, kwargs = values
    values.clear()
    p.touch(f)
    return f(*args, **dict(kwargs))


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
