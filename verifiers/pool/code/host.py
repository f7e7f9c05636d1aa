"""A candidate's own process: it answers questions with plain data and never sees a test."""

import contextlib
import functools
import os
import sys
import time
import types

from codec import Graph, NotPlain, Shared
from judge import CANDIDATE, Alone, given, load, written

ITEMS, SECONDS = 10000, 3  # most of an iterator


def serve(channel):
    _, (_, source, texts, eased) = Graph().read(channel)
    module = sys.modules["candidate"] = sys.modules["__main__"] = types.ModuleType("candidate")
    sys.argv[:] = [CANDIDATE]
    space, things, numbers, graph, shared = module.__dict__, [module], {}, Graph(), Shared()

    def place(value):
        number = numbers.setdefault(id(value), len(things))
        if number == len(things):
            things.append(value)
        return [number]

    def thing(number, *path):
        return functools.reduce(getattr, path, things[number])

    word, *values = load(source, given(texts)[0], space)
    if word == "loaded":
        values = [tuple(n for n, v in list(space.items()) if callable(v) and not exception(v))]
    while True:
        if eased:
            share()
        if shared.changed():
            word, values = "refused", []
        try:
            graph.write(channel, word, *values)
        except NotPlain:
            Graph().write(channel, "refused")
        shared.note(graph.objects)
        graph = Graph(place, thing, eased)
        question, (gone, *values) = graph.read(channel)
        for n in gone:
            shared.pop(n, None)
        try:
            with Alone():
                word, *values = answer(thing, question, *values)
        except Exception as e:
            kinds = tuple(k.__name__ for k in type(e).__mro__ if k.__module__ == "builtins")
            own = (type(e).__module__ in ("builtins", "candidate") or kinds[0] != "Exception") and kinds[0] != "ExceptionGroup"
            word, values = "error" if own else "refused", [kinds, str(e), plain(e.args)]
        except BaseException:
            word, values = "ended", []


def answer(thing, question, number, path, args, kwargs):
    value = thing(number, *path)
    if question == "call":
        result = value(*args, **kwargs)
        if hasattr(type(result), "__next__") and type(result).__module__ in ("builtins", "itertools"):
            return finite(result)
        return "value", result
    if exception(value):
        return ("refused",)
    return ("callable",) if callable(value) else ("value", value)


def share():
    """Let the tests read what this process's user has written."""
    for path, folder in written():
        with contextlib.suppress(OSError):
            os.chmod(path, os.stat(path).st_mode | (0o555 if folder else 0o444))


def finite(iterator):
    """What an iterator has, if that is not too much, and no error is in it."""
    items, end = [], time.monotonic() + SECONDS
    try:
        for item in iterator:
            items.append(item)
            if len(items) > ITEMS or time.monotonic() > end:
                return ("refused",)
    except Exception:
        return ("refused",)
    return "iterator", items


def exception(value):
    return isinstance(value, type) and issubclass(value, BaseException)


def plain(args):
    try:
        Graph().pack(args)
    except NotPlain:
        return ()
    return args
