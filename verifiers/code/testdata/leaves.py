import builtins, ctypes, mmap, os, signal, subprocess, sys, time

for folder in ('/tmp', '/dev/shm', '/run'):
    assert [n for n in os.listdir(folder) if n != 'candidate.py'] == [], folder
assert len([p for p in os.listdir('/proc') if p.isdigit() and int(p) not in (1, os.getpid(), os.getppid())]) <= 1, 'processes'  # the tests'
assert not hasattr(builtins, 'left') and 'LEFT' not in os.environ and os.getcwd() == '/tmp'
assert ctypes.CDLL(None).shmget(77, 0, 0) == -1, 'shared memory'
if os.path.exists('/proc/sysvipc'):  # which gVisor does not have
    for kind in 'shm', 'sem', 'msg':
        assert len(open('/proc/sysvipc/' + kind).readlines()) == 1, kind

for folder in ('/tmp', '/dev/shm'):
    os.makedirs(folder + '/a/b')
    open(folder + '/a/b/left', 'w').write('x')
    os.symlink('/etc', folder + '/a/link')
    os.mkfifo(folder + '/a/pipe')
    os.chmod(folder + '/a', 0)
builtins.left = 1
os.environ['LEFT'] = '1'
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if not os.fork():
    os.setsid()
    time.sleep(1000)
    os._exit(0)
os.umask(0)
ctypes.CDLL(None).shmget(77, 4096, 0o1666)


def add(a, b):
    return a + b
