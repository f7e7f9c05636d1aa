"""The candidate's cell: runs candidate.py and answers what its tests ask.

Nothing here is trusted: the candidate shares this interpreter and may replace
any part of it. It can thereby change its own answers and nothing else.
"""

import posix
import sys
import types

FOLDER = __file__.rpartition("/")[0]
sys.path.insert(0, FOLDER)
import cellpeer  # noqa: E402
import cellstart  # noqa: E402
del sys.path[0]

MAX_NAMES = 4096
MAX_OUTPUT = 1 << 20  # characters that reach the tests' sys.stdout and sys.stderr


class Server(cellpeer.Peer):
    def __init__(self, pipes):
        cellpeer.Peer.__init__(self, 1, *pipes, fatal=lambda reason: posix._exit(3))
        self.module = types.ModuleType("candidate")
        self.watched = {}
        self.output, self.room = [], MAX_OUTPUT
        self.handlers["names"] = Server.names

    def load(self, path):
        """Run the candidate and return the names it defines."""
        space = self.module.__dict__
        space["__file__"] = path
        sys.modules["candidate"] = self.module
        with open(path, encoding="utf-8-sig") as f:
            source = f.read()
        exec(compile(source, path, "exec", dont_inherit=True), space)
        return tuple([n for n in space if type(n) is str and n[:2] != "__"][:MAX_NAMES])

    def names(self, values):
        """Return the values of some names, and from now on tell when they change."""
        space = self.module.__dict__
        self.watched = {n: space.get(n) for n in values}
        return tuple(self.watched.values())

    def serve(self):
        try:
            out, op = [self.load(FOLDER + "/candidate.py")], "="
        except BaseException as e:
            e.__traceback__ = None
            out, op = [e], "!"
        with self.lock:
            self.busy = 1
            self.send(op, out)
            while True:
                op, values = self.receive()
                self.answer(op, values)

    def more_handlers(self):
        return self.objects().SERVER_HANDLERS

    def leave(self):
        self.lock.release()

    def enter(self):
        self.lock.acquire()

    def extra(self, out):
        if self.output:
            out["o"], self.output = self.output, []
        space = self.module.__dict__
        for n, v in self.watched.items():
            if space.get(n, v) is not v:
                self.watched[n] = space[n]
                out.setdefault("g", []).append([n, self.enc(space[n])])


class Writer:
    """sys.stdout or sys.stderr: the text goes to the tests with the next message."""
    encoding, errors, closed, newlines, line_buffering = "utf-8", "strict", False, None, True

    def __init__(self, server, number):
        self._server, self._number = server, number
        self.name = "<stdout>" if number == 1 else "<stderr>"

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError("write() argument must be str, not " + type(text).__name__)
        s = self._server
        if s.room > 0:
            s.output.append([self._number, str(text)[:s.room]])
            s.room -= len(text)
        return len(text)

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    def flush(self):
        pass

    def close(self):
        pass

    def isatty(self):
        return False

    def readable(self):
        return False

    def writable(self):
        return True

    def seekable(self):
        return False

    def fileno(self):
        import io
        raise io.UnsupportedOperation("fileno")

    @property
    def buffer(self):
        return Buffer(self)


class Buffer:
    def __init__(self, writer):
        self._writer = writer

    def write(self, data):
        self._writer.write(bytes(data).decode("utf-8", "replace"))
        return len(data)

    def flush(self):
        pass


class Reader:
    """sys.stdin: the tests' own."""
    encoding, errors, closed, name = "utf-8", "strict", False, "<stdin>"

    def __init__(self, server):
        self._server = server

    def readline(self, size=-1):
        return self._server.request("in", "readline")

    def read(self, size=-1):
        return self._server.request("in", "read")

    def readlines(self, hint=-1):
        return self.read().splitlines(True)

    def __iter__(self):
        return iter(self.readline, "")

    def close(self):
        pass  # what multiprocessing does in a process of its own

    def isatty(self):
        return False

    def readable(self):
        return True


def main():
    import builtins
    server = cellpeer.this = Server(cellstart.prepare())
    sys.stdout, sys.stderr, sys.stdin = Writer(server, 1), Writer(server, 2), Reader(server)
    sys.__stdout__, sys.__stderr__, sys.__stdin__ = sys.stdout, sys.stderr, sys.stdin
    sys.argv = ["candidate.py"]
    builtins.input = lambda prompt="": server.request("in", "input", str(prompt))
    server.serve()


main()
