"""The candidate as its tests see it from a process of their own.

Any use that plain data cannot answer is refused: that ends the process, whose report says so.
"""

import builtins
import os
import sys
import threading

from codec import Graph, NotPlain, Shared, refuse

NOTED = 100  # most containers that are compared


class Peer:
    """Asks the candidate's process. end ends this process with a report. Only the candidate's classes of these names,
    and their instances, have attributes. names are the tests' own, which the candidate may need."""

    def __init__(self, channel, end, classes, names):
        self.channel, self.end, self.classes, self.names = channel, end, classes, names
        self.turn, self.world, self.handles, self.shared = threading.Lock(), world(), {}, Shared()

    def refuse(self, why):
        os.write(2, b"not by plain data: %s\n" % ascii(why).encode())
        self.end("refused")

    def load(self, *request):
        """Load the candidate and return the names of what can be called in it."""
        word, values = self.exchange("load", *request)
        if word == "loaded" and type(values[0]) is tuple:
            return [n for n in values[0] if type(n) is str and not n.startswith("__")]
        if word == "unloaded" and values[0] in self.names:
            self.refuse(values[0])
        if word == "malformed" and type(values[0]) is str:
            self.end(word, values[0][:9])
        self.end("unloaded")

    def exchange(self, question, *values):
        answered = question == "call" or question == "get" and values[0]  # other names may be of what tests judge by
        graph, gone = Graph(place, self.handle if answered else refuse), self.gone()
        try:
            if self.shared.changed():
                raise NotPlain("what the tests change after the candidate has had it")
            graph.write(self.channel, question, gone, *values)
            word, values = graph.read(self.channel)
        except NotPlain as e:
            self.refuse(str(e))
        except Exception:  # there is no answer, or it is none
            self.end("ended")
        if word == "refused":
            self.refuse("the candidate's answer")
        if question != "load":
            self.shared.note(graph.objects)
        return word, values

    def gone(self):
        """Forget containers that the tests do not have any more, or that crossed once more, or long ago. Return their
        numbers."""
        last = {id(o): n for n, (o, _) in self.shared.items()}
        self.shared[None] = [], []  # which nobody else has
        users = {n: sys.getrefcount(o) for n, (o, _) in self.shared.items()}
        gone = tuple(n for n, (o, _) in self.shared.items() if n is not None and (
            users[n] <= users[None] or last[id(o)] > n or n < self.shared.count - NOTED))
        for n in (None, *gone):
            del self.shared[n]
        return gone

    def ask(self, question, number, path, args=(), kwargs={}):
        if world() != self.world:
            self.refuse("the tests change what the candidate finds")
        if len(path) > 1 + (number == 0 and path[0] in self.classes):  # a method of the right answer, perhaps
            self.refuse(path)
        if not self.turn.acquire(blocking=False):
            self.refuse("calls from several threads")
        word, values = self.exchange(question, number, path, args, kwargs)
        self.turn.release()
        try:
            if word == "value":
                made_here = question == "call" and number == 0 and path[0] in self.classes and len(path) == 1
                return Far(*values[0]._far) if made_here and type(values[0]) is Handle else values[0]
            if word == "iterator" and type(values[0]) is list:
                return iter(values[0])
            if word == "callable":
                return Far(self, number, path)
            error = made(*values) if word == "error" else None
            if missing(error) in self.names:
                self.refuse("a name of the tests")
        except Exception:
            error = None
        if error is None:
            self.end("ended")
        raise error from None

    def handle(self, number):
        return self.handles.setdefault(number, Handle(self, int(number), ()))


def place(value):
    """Where the candidate finds something of its own; any other object is refused."""
    _, number, path = value._far if type(value) in (Far, Handle) else refuse(value)
    return [number, *path]


def world():
    """What the candidate would find in the tests' process."""
    return sys.stdin, sys.stdout, sys.stderr, "unittest.mock" in sys.modules


def missing(error):
    """The name that an error says is not defined; "" if it says none."""
    return (str(error).split("'") + [""])[1] if type(error) is NameError else ""


def made(names, text, args):
    """An exception of the first built-in type among names."""
    kinds = [getattr(builtins, n, None) for n in names]
    kind = next(k for k in kinds if isinstance(k, type) and issubclass(k, Exception))
    if issubclass(kind, (StopIteration, StopAsyncIteration)):  # which would end loops of the tests
        return RuntimeError(text)
    try:
        error = kind(*args)
    except Exception:
        error = None
    return error if error is not None and str(error) == text else kind(text)


class Far:
    # Something of the candidate: a path of names below a thing with a number. A text here would be its __doc__.

    __doc__ = property(lambda self: self.__getattr__("__doc__"))

    def __init__(self, *where):
        object.__setattr__(self, "_far", where)

    def __getattr__(self, name):
        peer, number, path = self._far
        if name == "__name__" and path:  # which unittest asks for
            return path[-1]
        if name.startswith("__"):  # by which libraries ask for more than plain data
            peer.refuse(name)
        return peer.ask("get", number, path + (name,))

    def __call__(self, *args, **kwargs):
        peer, number, path = self._far
        return peer.ask("call", number, path, args, kwargs)


OWN = {"__new__", "__init__", "__class__", "__getattribute__", "__init_subclass__", "__subclasshook__", "__doc__"}
MORE = {"__next__", "__enter__", "__exit__", "__await__", "__aiter__", "__matmul__", "__instancecheck__", "__subclasscheck__", "__mro_entries__"}
for name in {n for kind in (float, int, str, list, dict, set) for n in dir(kind) if n.startswith("__")} - OWN | MORE:
    setattr(Far, name, lambda self, *_, name=name: self._far[0].refuse(name))


class Handle(Far):
    """An object that the candidate has answered with. The tests can call it and give it back. They may ask for a
    method of the right answer (`f(x).startswith('a')`), which the candidate's object would answer."""

    __class__ = property(lambda self: self._far[0].refuse("isinstance"))

    def __getattr__(self, name):
        self._far[0].refuse(name)


class Names(dict):
    """The built-ins, and behind them the candidate's names."""

    def __init__(self, peer):
        super().__init__(builtins.__dict__)
        self.peer = peer

    def __missing__(self, name):
        try:
            return self.peer.ask("get", 0, (name,))
        except AttributeError:
            raise KeyError(name) from None
