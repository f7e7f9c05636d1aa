# A candidate that answers its tests by itself, with frames made at random: most
# keep to the grammar, so that they get far. SEED is set in the line before this.
import builtins
import json
import os
import random
import cellpeer

r = random.Random(SEED)
IN, OUT = cellpeer.this.infd, cellpeer.this.outfd
NAMES = """object type int str SystemExit ValueError decimal:Decimal os:system =os:system builtins:eval collections:deque
    json.decoder:JSONDecodeError datetime:datetime queue:Empty function NoneType __class__ __dict__ __init__ __globals__
    v m x f C __len__ __eq__ __call__ __iter__ __next__ __getitem__ l d s y q I U P n g c a builtins:open
    unittest.case:SkipTest zoneinfo:ZoneInfo""".split()
TYPES = """object type int SystemExit ValueError decimal:Decimal collections:Counter function AssertionError
    StopIteration""".split()
EXCEPTIONS = [n for n, t in vars(builtins).items() if isinstance(t, type) and issubclass(t, BaseException)]
TAGS = list("tbzrevDNTShfgokKHMicxq")
SPECIAL = """__len__ __eq__ __iter__ __hash__ __getitem__ __call__ foo __add__ __sub__ __abs__ __lt__ __bool__ __str__
    __next__ __del__ __class__""".split()
BASE, KIND = r.choice([("list", "l"), ("int", "I"), ("str", "U"), ("ValueError", "x"), ("dict", "d"), ("tuple", "P"),
                       ("float", "F"), ("SystemExit", "x")])
home, shared, mine, last = [], [], [], [1001]


def new():
    last[0] += 2
    return last[0]


def scan(v):
    """Learn the numbers that the tests' cell has given out."""
    if isinstance(v, list):
        if len(v) > 1 and isinstance(v[0], str) and isinstance(v[1], int):
            (home if v[0] in "fhgkKo" else shared if v[0] == "S" else []).append(v[1])
        for x in v:
            scan(x)


def value(defs, depth=0):
    k = r.random()
    if depth > 3 or k < .3:
        return r.choice([None, True, 1, "a", 2.5, 0, -3, 10 ** 30])
    if k < .4 and home:
        return ["H", r.choice(home)]
    if k < .5 and shared + mine:
        return ["S", r.choice(shared + mine)]
    if k < .6:
        return ["h", new() if r.random() < .6 else 1001, ["k", 3]]
    if k < .7:
        return ["t"] + [value(defs, depth + 1) for _ in range(r.randrange(3))]
    if k < .75:
        return ["f", new()]
    if k < .8:
        return ["g", new(), r.choice("gca")]
    if k < .83:
        return ["T", r.choice(TYPES)]
    if k < .86:
        return r.choice([["N", 0], ["N", 1], ["c", 1, 2], ["b", "ab"], ["z", 1, 2], ["r", 1, 5, 1], ["D", "keys", 1],
                         ["v", "decimal:Decimal", "1.5"], ["v", "datetime:date", 2020, 1, 1]])
    if k < .863:
        return [r.choice(TAGS)] + [value(defs, depth + 1) for _ in range(r.randrange(5))]
    i = new()
    mine.append(i)
    defs.append(definition(defs, i, depth))
    return ["S", i]


def definition(defs, i, depth):
    v = [value(defs, depth + 1) for _ in range(2)]
    kind = r.choice("lldsx" + KIND)
    contents = {"l": [v], "d": [[["k", 2], v]], "s": [[1, 2]], "P": [["t", 1, 2]], "U": ["abc"], "I": [5], "F": [1.5],
                "x": [[[v[0]], None, [["code", 0], ["args", v[1]]]]]}[kind]
    if kind == "x":
        contents.append(["T", r.choice(EXCEPTIONS)] if KIND != "x" else ["k", 7])
    elif kind == KIND:
        contents += [["k", 7], None]
    return [i, kind, *contents]


def message():
    defs = []
    target = ["H", r.choice(home)] if home else value(defs)
    op = r.choice(["="] * 10 + list("!!ccggddmmssnya"))
    if r.random() < .01:
        op = r.choice(["in", "sub", "zz", "names"])
    more = {
        "c": [["t", value(defs)], ["t"]], "g": [r.choice(NAMES)], "m": [r.choice(NAMES), ["t"], ["t"], None],
        "d": [r.choice(SPECIAL), ["t"] + [value(defs)] * r.randrange(2)], "s": [r.choice(NAMES), value(defs)],
        "y": [r.choice("nstc"), value(defs)],
    }.get(op, [])
    values = [target, *more]
    if op == "=":
        values = [value(defs)]
    if op == "!":
        i = new()
        defs.append([i, "x", [[value(defs)], None, []], ["T", r.choice(EXCEPTIONS)]])
        values = [["S", i]]
    extra = {}
    if r.random() < .03 and mine:
        extra["d"] = [mine.pop()]
    if r.random() < .02 and home:
        extra["r"] = [home.pop(0)]
    if r.random() < .05:
        extra["g"] = [[r.choice(["f", "C", "Node", "WANT"]), value(defs)]]
    if r.random() < .05:
        extra["o"] = [[r.choice([1, 2]), "hi"]]
    return [op, values, defs, extra or 0]


def first():
    """Describe a class of objects, 3, and one of values, 7."""
    plain = ["K", 3, "C", None, None, [["T", "object"]], r.sample(SPECIAL, 7), ["p"], []]
    values = ["K", 7, "D", None, None, [["T", BASE]], r.sample(SPECIAL, 7), ["p"], []]
    return ["=", [["t", plain, ["f", 5]]], [], {"g": [["unused", values]]}]


def send(m):
    body = json.dumps(m).encode()
    if r.random() < .01:
        i = r.randrange(len(body))
        body = body[:i] + bytes([r.choice(b'[]{}",:0123456789abS')]) + body[i + 1:]
    os.write(OUT, len(body).to_bytes(4, "big") + body)


def receive():
    def exactly(n):
        data = b""
        while len(data) < n:
            chunk = os.read(IN, n - len(data))
            if not chunk:
                os._exit(0)
            data += chunk
        return data
    scan(json.loads(exactly(int.from_bytes(exactly(4), "big"))))


send(["=", [["t", "f", "C"]], [], 0])
receive()
send(first())
for _ in range(60):
    receive()
    send(message())
os._exit(0)
