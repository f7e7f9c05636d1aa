"""The test cell, kept for one task after another.

Each task is judged in a process of its own, forked from this one, which never
sees what a candidate sends. A task arrives as a control frame (the length has its
top bit set): [tests, functions, classes, mark]. When its process has ended, mark
is written to descriptor 2 and a control frame with the exit status to 1.
"""

import posix
import sys

FOLDER = __file__.rpartition("/")[0]
sys.path.insert(0, FOLDER)
import cellobjects  # noqa: E402,F401  for the children
import cellpeer  # noqa: E402
import cellstart  # noqa: E402
import judge  # noqa: E402
del sys.path[0]

CONTROL = 1 << 31
WRITABLE = ("/tmp", "/dev/shm")
SIGKILL = 9
KILLED, UNCLEAN = 48, 49  # statuses with which this process ends itself


class Inbox(cellpeer.Peer):
    """Reads tasks."""

    def __init__(self, pipes):
        cellpeer.Peer.__init__(self, 0, *pipes, fatal=lambda reason: posix._exit(0 if reason == "gone" else UNCLEAN))

    def task(self):
        while True:
            size = int.from_bytes(self.read_bytes(4), "big")
            if size > CONTROL:
                return cellpeer.loads(self.read_bytes(size - CONTROL).decode())
            if size:  # only the end of a candidate may have been left unread
                posix._exit(UNCLEAN)


def attempt(pipes, source, task):
    """Judge one task in a process of its own; return its wait status, and
    whether it left nothing unread."""
    clean, judge.Process.clean = posix.pipe()
    pid = posix.fork()
    if not pid:
        try:
            posix.close(clean)
            judge.judge(pipes, source, task)
        finally:
            posix._exit(70)
    posix.close(judge.Process.clean)
    status = posix.waitpid(pid, 0)[1]
    reap()
    said = posix.read(clean, 1)
    posix.close(clean)
    return status, said == b"c"


def clear(folder):
    """Remove what the tests left."""
    with posix.scandir(folder) as entries:
        for e in entries:
            if e.is_dir(follow_symlinks=False):
                clear(e.path)
                posix.rmdir(e.path)
            else:
                posix.unlink(e.path)


def reap():
    """Kill and bury every process but this one, which is the first."""
    try:
        while True:
            posix.kill(-1, SIGKILL)
            posix.waitpid(-1, 0)
    except (ChildProcessError, ProcessLookupError):
        pass


def main():
    if posix.getpid() != 1:
        sys.exit("this is for the first process of a sandbox only: it kills and removes")
    pipes = cellstart.prepare()
    inbox = Inbox(pipes)
    while True:
        source, functions, classes, mark = inbox.task()
        status, clean = attempt(pipes, source, {"functions": functions, "classes": classes})
        if posix.WIFSIGNALED(status) and posix.WTERMSIG(status) == SIGKILL:
            posix._exit(KILLED)
        for folder in WRITABLE:
            clear(folder)
        posix.write(2, mark.encode())
        code = 128 + posix.WTERMSIG(status) if posix.WIFSIGNALED(status) else posix.WEXITSTATUS(status)
        posix.write(pipes[1], (CONTROL + 2).to_bytes(4, "big") + bytes((code, clean)))
        if not clean:
            posix._exit(UNCLEAN)


main()
