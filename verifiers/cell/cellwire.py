"""JSON between two cells. What arrives becomes scalars, lists and dicts of exactly
the builtin types, and nothing else.
"""


class Violation(Exception):
    """The other side sent what the protocol does not allow."""


def _json():
    """Return dumps and loads. The C halves of json come without its imports."""
    try:
        import _json as c

        class Context:
            strict, object_hook, object_pairs_hook, memo = True, None, None, {}
            parse_float, parse_int = float, int
            parse_constant = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": -float("inf")}.__getitem__

        def refuse(x):
            raise TypeError("not JSON: " + type(x).__name__)

        scan = c.make_scanner(Context)
        encoder = c.make_encoder(None, refuse, c.encode_basestring_ascii, None, ":", ",", False, False, True)
        if "".join(encoder([0.5, "a"], 0)) != '[0.5,"a"]' or scan("[1]", 0) != ([1], 3):
            raise ImportError
    except (ImportError, AttributeError, TypeError):  # another interpreter
        import json
        return json.dumps, json.loads

    def dumps(x):
        return "".join(encoder(x, 0))

    def loads(s):
        try:
            x, end = scan(s, 0)
        except StopIteration:
            raise Violation("not JSON") from None
        if end != len(s):
            raise Violation("bytes after the JSON")
        return x

    return dumps, loads


dumps, loads = _json()


def widen(x):
    """Replace integers that decimal conversion refuses by tagged hexadecimal."""
    if type(x) is list:
        return [widen(v) for v in x]
    if type(x) is int and x.bit_length() > 10000:
        return ["i", hex(x)]
    return x
