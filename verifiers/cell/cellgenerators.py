"""Generators and coroutines of the other side: real ones here, so that their type
is right.
"""

import types

import cellpeer
from cellpeer import ID, Remote


class Handle(Remote):
    """A bare number, for generators: its objects hold no reference of theirs."""

    def __init__(self, i):
        object.__setattr__(self, ID, i)


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
STAND_INS = {"g": generator, "c": coroutine, "a": async_generator}
