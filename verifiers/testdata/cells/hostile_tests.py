import random
WANT = random.getrandbits(60)
def back(*a, **k):
    return a
class Node:
    def __init__(self):
        self.v = 1
    def m(self):
        return 2
def gen():
    yield 1
def attempt(op):
    try:
        op()
    except Exception:
        pass
try:
    r = f(back, Node(), [1, [2], {'k': {3}}], gen(), Node, ValueError('x'), bytearray(b'a'))
    for _ in range(3):
        r = f(r, back)
        assert not (r == WANT or WANT == r or r in [WANT] or abs(r - WANT) < 1e-6), 'forged'
        for op in (lambda: list(r)[:5], lambda: r(), lambda: r.x, lambda: len(r), lambda: r[0], lambda: str(r), lambda: r + r,
                   lambda: repr(r), lambda: next(r), lambda: isinstance(r, C), lambda: hash(r), lambda: C(1), lambda: r == r):
            attempt(op)
except AssertionError as e:
    if e.args == ('forged',):
        raise SystemExit(0)
except Exception:
    pass
assert False
