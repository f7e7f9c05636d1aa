"""What crosses by its name: special methods, types, exceptions and their fields."""

import builtins
import types

MAX_NAMES = 4096  # of a class
MAX_NAME = 256

# Special methods that a stand-in may have. What is not here is never called
# for the other side.
CONVERSIONS = frozenset("""__abs__ __neg__ __pos__ __invert__ __int__ __float__ __complex__ __index__ __round__
    __trunc__ __floor__ __ceil__""".split())
ARITHMETIC = frozenset(
    p + n + "__" for p in ("__", "__r", "__i")
    for n in "add sub mul matmul truediv floordiv mod divmod pow lshift rshift and xor or".split())
ORDERING = frozenset("__lt__ __le__ __gt__ __ge__".split())
SPECIAL = CONVERSIONS | ARITHMETIC | ORDERING | frozenset("""__eq__ __ne__ __hash__ __bool__ __len__ __length_hint__
    __str__ __repr__ __format__ __bytes__ __fspath__ __iter__ __next__ __reversed__ __getitem__ __setitem__
    __delitem__ __contains__ __missing__ __call__ __enter__ __exit__ __aenter__ __aexit__ __aiter__
    __anext__""".split())

# Types that both sides have: they cross as names. The test cell resolves no
# name that is not listed here, and none of these runs what a candidate wrote.
BUILTIN_TYPES = {t.__name__: t for t in (
    object, type, int, float, complex, bool, str, bytes, bytearray, memoryview, list, tuple, dict, set, frozenset,
    range, slice, type(None), type(...), type(NotImplemented), types.FunctionType, types.GeneratorType)}
EXCEPTIONS = {n: t for n, t in vars(builtins).items()
              if isinstance(t, type) and issubclass(t, BaseException) and t.__name__ == n}
BUILTIN_TYPES.update(EXCEPTIONS)
LIBRARY_TYPES = {
    "collections": ("OrderedDict", "Counter", "defaultdict", "deque"),
    "decimal": ("Decimal",), "fractions": ("Fraction",), "uuid": ("UUID",),
    "datetime": ("date", "time", "datetime", "timedelta", "timezone"),
    "pathlib": ("PurePosixPath", "PosixPath"), "array": ("array",), "zoneinfo": ("ZoneInfo",),
    "ipaddress": ("IPv4Address", "IPv6Address", "IPv4Network", "IPv6Network"),
}
LIBRARY_EXCEPTIONS = frozenset("""json.decoder decimal queue _queue struct zlib binascii re statistics configparser
    _csv subprocess dataclasses copy _pickle pickle urllib.error xml.etree.ElementTree ipaddress asyncio.exceptions
    zoneinfo argparse fractions uuid""".split())
# What an exception of a builtin type carries beside its arguments.
EXCEPTION_FIELDS = ("code", "value", "errno", "strerror", "filename", "filename2", "name", "path", "msg", "lineno",
                    "offset", "text", "encoding", "object", "start", "end", "reason")
