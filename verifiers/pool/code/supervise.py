"""The first process of a sandbox in which one run of tests follows another.

A run is a frame on descriptor 0: four decimal numbers of ten digits (bytes of the request, its limit of time in
milliseconds, bytes of output to keep, 1 if the candidate gets a process of its own), and the request, which judge.py
reads. Each run answers with two lines of JSON on descriptor 1: how it ended, and "clean" if it left nothing. This
process reads neither requests nor output, so that no run finds anything of another in its memory.
"""

import base64
import grp
import json
import os
import pwd
import select
import signal
import sys
import time

FOLDER = os.path.dirname(os.path.abspath(__file__))
if sys.path[0] == FOLDER:
    del sys.path[0]
NOBODY, STRANGER = 65534, 65533
KILLED = 48  # status with which the kernel's killing ends this process
RESULT_BYTES = 1 << 16
GVISOR = not os.path.exists("/proc/sysvipc")
if GVISOR:
    import ctypes

# What tests and candidates import again and again, once for all of them.
import bisect, collections, copy, datetime, functools, heapq, itertools, math, operator, random, re, resource, socket, string, traceback, typing, unittest

sys.path.insert(0, FOLDER)
import codec, host, judge  # noqa: E402
del sys.path[0]


def owner(user):
    """The ids of a user as an image names it; those of nobody for root."""
    name, _, group = user.partition(":")
    try:
        entry = pwd.getpwuid(int(name or 0)) if not name or name.isdigit() else pwd.getpwnam(name)
        uid, gid = entry.pw_uid, entry.pw_gid
    except KeyError:
        uid = gid = int(name)
    if group:
        gid = int(group) if group.isdigit() else grp.getgrnam(group).gr_gid
    return (uid, gid) if uid else (NOBODY, NOBODY)


def stranger(ids):
    """A user who owns nothing in the image."""
    return (STRANGER - (ids[0] == STRANGER),) * 2


def become(ids):
    """Give up root and its capabilities for good."""
    os.setgroups([])
    os.setresgid(ids[1], ids[1], ids[1])
    os.setresuid(ids[0], ids[0], ids[0])


def say(answer):
    codec.send(1, json.dumps(answer).encode() + b"\n")


def child(f, *args):
    """Run f in a process of its own; return its id."""
    pid = os.fork()
    if not pid:
        try:
            f(*args)
        finally:
            os._exit(70)
    return pid


def status_of(pid):
    return os.waitpid(pid, 0)[1]


# One run.

def keep(ids):
    """Read a request, run it as other users, and say how it ended."""
    size, wall, limit, sealed = (int(codec.receive(0, 10)) for _ in range(4))
    outputs, (result, report), channel = [piped(ids)], os.pipe(), []
    if sealed:  # the candidate's process begins before this one knows what the tests are
        outputs.append(piped(stranger(ids)))
        ours, theirs = socket.socketpair()
        child(start, stranger(ids), outputs[1][1], [theirs.fileno()], host.serve)
        theirs.close()
        channel = [ours.detach()]
    requests = [codec.receive(0, size)]
    runner = child(start, ids, outputs[0][1], [report] + channel, judge.judge, requests)
    for fd in channel:
        os.close(fd)
    end, total, output, said = watch(runner, time.monotonic() + wall / 1000, [o[0] for o in outputs], result, limit)
    say({"end": end, "result": said[:RESULT_BYTES].decode("latin-1"), "total": total, "output": base64.b64encode(output).decode()})
    os._exit(KILLED if end == "killed" else 0)


def piped(ids):
    """A pipe that its user may open by name, as /dev/stdout."""
    os.seteuid(ids[0])
    ends = os.pipe()
    os.seteuid(0)
    return ends


def start(ids, output, kept, f, *args):
    """Become a user who has nothing open but the output and what is kept, and run f."""
    null = os.open("/dev/null", os.O_RDWR)
    for target, source in ((0, null), (1, output), (2, output)):
        os.dup2(source, target)
    low = 3
    for fd in sorted(kept) + [64]:
        os.closerange(low, fd)
        low = fd + 1
    os.setsid()
    os.chdir("/")
    if not GVISOR:  # in which the filter denies queues
        resource.setrlimit(resource.RLIMIT_MSGQUEUE, (0, 0))
    become(ids)
    f(*args, *kept)


def watch(runner, deadline, outputs, result, limit):
    """Wait for the process. Return how it ended, the size and the end of the output, and the beginning of the result."""
    alive, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    poll, total, output, said = select.poll(), 0, b"", b""
    for fd in (*outputs, result, alive):
        os.set_blocking(fd, False)
        poll.register(fd, select.POLLIN)
    end, left = "", 1
    while left:
        if end:
            left -= 1  # what is in the pipes, and no more
        for fd, _ in poll.poll(0 if end else max(0, min(deadline - time.monotonic(), 1)) * 1000):
            try:
                part = os.read(fd, 1 << 16)
            except BlockingIOError:
                continue
            if not part:
                poll.unregister(fd)
            if fd in outputs:
                total, output = total + len(part), (output + part)[-limit:]
            elif fd == result:
                said = (said + part)[:RESULT_BYTES]
        if end:
            continue
        pid, status = os.waitpid(runner, os.WNOHANG)
        if pid:
            end, left = ended(status), 16
        elif time.monotonic() >= deadline:
            end, left = "timeout", 16
    return end, total, output, said


def ended(status):
    if os.WIFSIGNALED(status):
        return "killed" if os.WTERMSIG(status) == signal.SIGKILL else "signal %d" % os.WTERMSIG(status)
    return "exit %d" % os.WEXITSTATUS(status)


# Between runs.

def bury():
    """Kill and bury every process but this one."""
    try:
        while True:
            os.kill(-1, signal.SIGKILL)
            os.waitpid(-1, 0)
    except (ChildProcessError, ProcessLookupError):
        pass


def clear(ids):
    """Remove what a user left. It fails for one who cannot use this interpreter and its library."""
    become(ids)
    with open(os.__file__) as f:
        f.read(1)
    for directory in judge.WRITABLE:
        remove(directory)
    os._exit(0 if os.access(sys.executable, os.X_OK) else 1)


def remove(directory):
    with os.scandir(directory) as entries:
        for e in entries:
            if e.is_dir(follow_symlinks=False):
                os.chmod(e.path, 0o700)
                remove(e.path)
                os.rmdir(e.path)
            else:
                os.unlink(e.path)


def clean():
    """Whether nothing is left by which one run could speak to the next, and their times are
    set, by which it could, too."""
    for directory in judge.WRITABLE:
        os.utime(directory, (0, 0))
        if os.listdir(directory):
            return False
    if GVISOR:
        return not any(objects())
    for kind in ("shm", "sem", "msg"):
        with open("/proc/sysvipc/" + kind) as f:
            if len(f.readlines()) > 1:
                return False
    return True


def objects():
    """How many objects of System V there are: segments, sets of semaphores, and queues (shmctl(2), semctl(2), msgctl(2))."""
    libc = ctypes.CDLL(None, use_errno=True)
    for call, place, *arguments in ((libc.shmctl, 0, 0, 14), (libc.semctl, 7, 0, 0, 19), (libc.msgctl, 0, 0, 12)):
        info = (ctypes.c_int * 64)()
        if call(*arguments, ctypes.byref(info)) < 0:
            raise OSError(ctypes.get_errno(), "objects of System V")
        yield info[place]


def main():
    ids = owner(sys.argv[1])
    if os.getpid() != 1 or os.getuid() or sys.version_info < (3, 8):
        sys.exit("this is for root, and the first process of a sandbox: it kills and removes")
    os.chmod("/dev/shm", 0o1777)  # runc leaves it as it finds the directory
    if status_of(child(clear, ids)) or not clean():
        sys.exit("the user of the tests cannot use the image's python3, or what is to be empty is not")
    say("ready")
    while True:
        select.select([0], [], [])
        status = status_of(child(keep, ids))
        bury()
        if status:
            os._exit(KILLED if os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == KILLED else 1)
        sound = any(status_of(child(clear, user)) == 0 and clean() for user in (stranger(ids), ids))
        bury()
        say("clean" if sound else "unclean")
        if not sound:
            os._exit(1)


main()
