"""The first process of a sandbox in which one run of tests follows another.

A run begins with two numbers of ten decimal digits on descriptor 0: its limit of time in milliseconds, and 1 if the
candidate gets a process of its own. The request follows, which only the process of judge.py reads. What this process
writes on descriptor 1 are messages: a letter, the length in nine digits, and the content. "o" is output of the run, "r" a
part of its result, "e" how it ended. The last one, without content, is "c" if the run left nothing, else "u". Output and
result pass through PART and are in no other memory of this process, so that no run finds anything of another in its own.
"""

import contextlib
import gc
import grp
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
HEAD = 10  # bytes before the content of a message
PART = memoryview(bytearray(HEAD + (1 << 16)))
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


def say(letter, text):
    codec.send(1, b"%s%09d%s" % (letter, len(text), text.encode()))


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

def run(ids):
    """Run the next request as other users, and say how it ended."""
    wall, sealed = int(codec.receive(0, 10)), int(codec.receive(0, 10))
    (result, report), outputs, channel = os.pipe(), [piped(ids)], []
    if sealed:  # the candidate's process begins before its tests are read
        outputs.append(piped(stranger(ids)))
        channel = [s.detach() for s in socket.socketpair()]
        child(start, stranger(ids), outputs[1][1], channel[1:], host.serve)
    runner = child(start, ids, outputs[0][1], [report] + channel[:1], judge.judge, request)
    for fd in [report, *channel] + [o[1] for o in outputs]:
        os.close(fd)
    letters = {result: b"r", **{o[0]: b"o" for o in outputs}}
    end = watch(runner, time.monotonic() + wall / 1000, letters)
    bury()
    for fd, letter in letters.items():
        while forward(fd, letter):
            pass
        os.close(fd)
    PART[:] = bytes(len(PART))
    if end == "killed":
        os._exit(KILLED)
    say(b"e", end)  # before clean, which may take long: a run can leave many files
    say(b"c" if clean(ids) else b"u", "")


def request():
    return [codec.receive(0, int(codec.receive(0, 10)))]


def piped(ids):
    """A pipe that its user may open by name, as /dev/stdout."""
    os.seteuid(ids[0])
    ends = os.pipe()
    os.seteuid(0)
    return ends


def start(ids, output, kept, f, *inputs):
    """Become a user who has nothing open but the output and what is kept, and run f with the inputs."""
    inputs = [i() for i in inputs]
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
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
    f(*inputs, *kept)


def watch(runner, deadline, letters):
    """Pass on what the run writes until its process ends. Return how it ended."""
    poll = select.poll()
    for fd in (WAKE, *letters):
        os.set_blocking(fd, False)
        poll.register(fd, select.POLLIN)
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)  # also of processes whose parents have left them
        left = deadline - time.monotonic()
        if pid == runner or left <= 0:
            return ended(status) if pid == runner else "timeout"
        for fd, _ in poll.poll(0 if pid else left * 1000 + 1):
            if fd == WAKE:
                os.read(WAKE, 64)
            elif not forward(fd, letters[fd]):
                poll.unregister(fd)


def forward(fd, letter):
    """Pass on what there is, as a message. Return how many bytes that were."""
    try:
        count = os.readv(fd, [PART[HEAD:]])
    except BlockingIOError:
        return 0
    PART[:HEAD] = b"%s%09d" % (letter, count)
    codec.send(1, PART[:HEAD + count])
    return count


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


def clean(ids):
    """Whether nothing is left by which one run could speak to the next, and their times are set, by which it could, too.
    This process reads no names of files before they are gone: a file system in memory tells by its size that there are any."""
    with contextlib.suppress(OSError):
        os.unlink(judge.CANDIDATE)
    for user in (stranger(ids), ids):
        if sizes() != EMPTY:
            status_of(child(clear, user))
            bury()
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


def sizes():
    return [os.stat(directory).st_size for directory in judge.WRITABLE]


def objects():
    """How many objects of System V there are: segments, sets of semaphores, and queues (shmctl(2), semctl(2), msgctl(2))."""
    libc = ctypes.CDLL(None, use_errno=True)
    for call, place, *arguments in ((libc.shmctl, 0, 0, 14), (libc.semctl, 7, 0, 0, 19), (libc.msgctl, 0, 0, 12)):
        info = (ctypes.c_int * 64)()
        if call(*arguments, ctypes.byref(info)) < 0:
            raise OSError(ctypes.get_errno(), "objects of System V")
        yield info[place]


def main():
    global EMPTY, WAKE
    ids = owner(sys.argv[1])
    if os.getpid() != 1 or os.getuid() or sys.version_info < (3, 8):
        sys.exit("this is for root, and the first process of a sandbox: it kills and removes")
    os.chmod("/dev/shm", 0o1777)  # runc leaves it as it finds the directory
    EMPTY = []
    if status_of(child(clear, ids)) or not clean(ids):
        sys.exit("the user of the tests cannot use the image's python3, or what is to be empty is not")
    EMPTY = sizes()
    WAKE, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    gc.freeze()
    say(b"c", "ready")
    while True:
        run(ids)


main()
