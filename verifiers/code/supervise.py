"""The first process of a sandbox in which one run of tests follows another.

A run is a frame on descriptor 0: three decimal numbers of ten digits (bytes of the request, its
limit of time in milliseconds, bytes of output to keep), and the request, which judge.py reads. Each run answers
with two lines of JSON on descriptor 1: how it ended, and "clean" if it left nothing. This process reads neither
requests nor output, so that no run finds anything of another in its memory; see docs/contrast.md.
"""

import base64
import json
import os
import pwd
import select
import signal
import sys
import time

FOLDER = os.path.dirname(os.path.abspath(__file__))
if sys.path[0] == FOLDER:
    sys.path[0] = "/tmp"
WRITABLE = ("/tmp", "/dev/shm", "/run")
NOBODY = 65534
KILLED = 48  # status with which the kernel's killing ends this process
GONE = 49  # status of a process that has nobody to read from
RESULT_BYTES = 1 << 16

# What tests and candidates import again and again, once for all of them.
import bisect, collections, copy, datetime, functools, heapq, itertools, math, operator, random, re, resource, string, traceback, typing, unittest

sys.path.insert(0, FOLDER)
import judge  # noqa: E402
del sys.path[0]


def owner(user):
    """The ids of a user as an image names it; those of nobody for root."""
    name, _, group = user.partition(":")
    try:
        entry = pwd.getpwuid(int(name or 0)) if not name or name.isdigit() else pwd.getpwnam(name)
        uid, gid = entry.pw_uid, entry.pw_gid
    except KeyError:
        uid = gid = int(name)
    if group.isdigit():
        gid = int(group)
    elif group:
        import grp
        gid = grp.getgrnam(group).gr_gid
    return (uid, gid) if uid else (NOBODY, NOBODY)


def become(ids):
    """Give up root and its capabilities for good."""
    os.setgroups([])
    os.setresgid(ids[1], ids[1], ids[1])
    os.setresuid(ids[0], ids[0], ids[0])


def write(fd, data):
    while data:
        data = data[os.write(fd, data):]


def send(answer):
    write(1, json.dumps(answer).encode() + b"\n")


def read(count):
    data = b""
    while len(data) < count:
        part = os.read(0, count - len(data))
        if not part:
            os._exit(GONE)
        data += part
    return data


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
    """Read a request, run it as another user, and say how it ended."""
    size, wall, output = (int(read(10)) for _ in range(3))
    request = read(size)
    os.seteuid(ids[0])  # who may open them by name, as /dev/stdout
    outputs, results = os.pipe(), os.pipe()
    os.seteuid(0)
    runner = child(start, ids, request, outputs, results)
    os.close(outputs[1])
    os.close(results[1])
    end, kept, total, result = watch(runner, time.monotonic() + wall / 1000, outputs[0], results[0], output)
    send({"end": end, "result": result.decode("latin-1"), "total": total, "output": base64.b64encode(kept).decode()})
    os._exit(KILLED if end == "killed" else 0)


def start(ids, request, outputs, results):
    null = os.open("/dev/null", os.O_RDWR)
    for target, source in ((0, null), (1, outputs[1]), (2, outputs[1])):
        os.dup2(source, target)
    report = results[1]
    os.closerange(3, report)
    os.closerange(report + 1, report + 16)
    os.setsid()
    resource.setrlimit(resource.RLIMIT_MSGQUEUE, (0, 0))
    become(ids)
    os.chdir("/tmp")
    if ids[0] == NOBODY:
        os.environ["HOME"] = "/tmp"
    judge.judge(request, report)


def watch(runner, deadline, output, result, limit):
    """Wait for the process, keeping the end of its output."""
    alive, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    poll = select.poll()
    for fd in (output, result, alive):
        os.set_blocking(fd, False)
        poll.register(fd, select.POLLIN)
    kept, results, total, end = bytearray(), bytearray(), 0, ""
    while not end:
        left = deadline - time.monotonic()
        if left <= 0:
            end = "timeout"
            break
        for fd, _ in poll.poll(min(left, 1) * 1000):
            total += drain(fd, output, kept, results, poll)
            del kept[:-limit]
        pid, status = os.waitpid(runner, os.WNOHANG)
        if pid:
            end = ended(status)
    for fd in (output, result):  # what is in the pipes, and no more
        for _ in range(16):
            total += drain(fd, output, kept, results, poll)
    del kept[:-limit]
    return end, kept, total, results[:RESULT_BYTES]


def drain(fd, output, kept, results, poll):
    try:
        part = os.read(fd, 1 << 16)
    except (BlockingIOError, OSError):
        return 0
    if not part:
        try:
            poll.unregister(fd)
        except KeyError:
            pass
    if fd == output:
        kept += part
        return len(part)
    if len(results) < RESULT_BYTES:  # also of the pipe that only wakes
        results += part if part.strip(b"\x11") else b""
    return 0


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
    become(ids)
    for directory in WRITABLE:
        remove(directory)
    os._exit(0)


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
    for directory in WRITABLE:
        os.utime(directory, (0, 0))
        if os.listdir(directory):
            return False
    for kind in ("shm", "sem", "msg"):
        with open("/proc/sysvipc/" + kind) as f:
            if len(f.readlines()) > 1:
                return False
    return True


def usable(ids):
    """Whether the candidate's user can use this interpreter and its library."""
    become(ids)
    with open(os.__file__) as f:
        f.read(1)
    os._exit(0 if os.access(sys.executable, os.X_OK) else 1)


def main():
    ids = owner(sys.argv[1])
    if os.getpid() != 1 or os.getuid() or sys.version_info < (3, 8):
        sys.exit("this is for root, and the first process of a sandbox: it kills and removes")
    if status_of(child(usable, ids)):
        sys.exit("the image's python3 is not readable for the user of the tests")
    os.chmod("/dev/shm", 0o1777)  # runc leaves it as it finds the directory
    if status_of(child(clear, ids)) or not clean():
        sys.exit("what is to be empty is not")
    send("ready")
    while True:
        select.select([0], [], [])
        status = status_of(child(keep, ids))
        bury()
        if status and os.WEXITSTATUS(status) == KILLED:
            os._exit(KILLED)
        if status:
            os._exit(0 if os.WEXITSTATUS(status) == GONE else 1)
        sound = status_of(child(clear, ids)) == 0 and clean()
        bury()
        send("clean" if sound else "unclean")
        if not sound:
            os._exit(1)


main()
