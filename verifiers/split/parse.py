"""Reads a candidate's table, calendar, array or repository, and never executes anything of it.

Reads {"parser", "files": {path: base64}} as JSON. Writes {"value"}, or {"code", "message"} if the files are refused, as
JSON with sorted keys. For a repository, the paths are relative to .git; any other parser has one file.
"""

import base64
import csv
import hashlib
import io
import json
import math
import re
import struct
import sys
import zlib

MAX_COLUMNS, MAX_ROWS, MAX_CELLS, MAX_CELL = 256, 100_000, 1_000_000, 64 << 10  # of a table; a cell in characters
MAX_LINES, MAX_LINE, MAX_NAMES = 100_000, 8192, 2 << 20  # of a calendar; lines and names with parameters in bytes
MAX_ELEMENTS, MAX_HEADER, MAX_DIMENSIONS = 1_000_000, 10_000, 8  # of an array; its header in bytes
MAX_OBJECTS, MAX_OBJECT, MAX_REPOSITORY = 512, 256 << 10, 1 << 20  # of a repository; an object and all in bytes
# The header of an array as NumPy writes it, with one dimension as "2,".
HEADER = re.compile(r"\{'descr': '([<>=]?)([^']*)', 'fortran_order': (True|False), 'shape': \(((?:[0-9]+, ?)+[0-9]*|)\),? *\} *\n")
KINDS = {1: "commit", 2: "tree", 3: "blob", 4: "tag"}  # of git's objects, by their numbers in a pack


class Refused(Exception):
    """A code and a message. Any other exception means that the files are malformed."""


def table(data):
    text, header, rows, cells = data.decode("utf-8-sig"), None, [], 0
    csv.field_size_limit(MAX_CELL)
    if "\0" in text:
        raise ValueError("a NUL byte")
    try:
        for row in csv.reader(io.StringIO(text, newline=""), strict=True):
            cells += len(row) or 1  # lines without any count, too
            if len(row) > MAX_COLUMNS:
                raise Refused("csv_too_many_columns", "more than %d columns" % MAX_COLUMNS)
            if cells > MAX_CELLS:
                raise Refused("csv_too_many_cells", "more than %d cells" % MAX_CELLS)
            if header is None and row:
                header = row
                if "" in header or len(set(header)) < len(header):
                    raise Refused("invalid_csv_header", "empty or equal names in the header")
            elif row:
                if len(row) != len(header):
                    raise Refused("invalid_csv_shape", "a row that is not as wide as the header")
                if len(rows) == MAX_ROWS:
                    raise Refused("csv_too_many_rows", "more than %d rows" % MAX_ROWS)
                rows.append(row)
    except csv.Error as e:
        if "limit" in str(e):
            raise Refused("csv_cell_too_large", "a cell of more than %d characters" % MAX_CELL)
        raise
    if header is None:
        raise ValueError("no header")
    return {"header": header, "rows": rows}


def calendar(data):
    data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if b"\0" in data or any(len(line) > MAX_LINE for line in data.split(b"\n")):
        raise ValueError("a NUL byte, or a long line")
    lines = [line for line in re.sub("\n[ \t]", "", data.decode()).split("\n") if line]
    if len(lines) > MAX_LINES or lines[0].upper() != "BEGIN:VCALENDAR" or lines[-1].upper() != "END:VCALENDAR":
        raise ValueError("many lines, or another begin or end than VCALENDAR")
    properties, events, event, stack, names = [], [], None, [], 0
    for line in lines:
        head, colon, value = line.partition(":")
        names += len(head.encode())
        if names > MAX_NAMES:
            raise Refused("artifact_too_large", "names and parameters of more than %d bytes" % MAX_NAMES)
        name, *parts = head.split(";")
        parameters = [part.partition("=") for part in parts]
        if not colon or not all(key and equal for key, equal, _ in parameters):
            raise ValueError("a malformed property")
        name = name.upper()
        found = {"name": name, "parameters": {key.upper(): of for key, _, of in parameters}, "value": value}
        if name == "BEGIN":
            stack.append(value.upper())
            if stack[-1] == "VEVENT":
                if event is not None:
                    raise ValueError("an event in an event")
                event = []
        elif name == "END":
            if stack.pop() != value.upper():
                raise ValueError("components that overlap")
            if value.upper() == "VEVENT":
                events.append({"type": "VEVENT", "properties": event})
                event = None
        elif event is not None:
            event.append(found)
        elif len(stack) == 1:
            properties.append(found)
    if stack:
        raise ValueError("a component without an end")
    return {"properties": properties, "events": events}


def array(data):
    if data[:6] != b"\x93NUMPY" or data[6] not in (1, 2, 3) or data[7] != 0:
        raise ValueError("no such format")
    begin, length = (10, struct.unpack_from("<H", data, 8)[0]) if data[6] == 1 else (12, struct.unpack_from("<I", data, 8)[0])
    end = begin + length
    if length > MAX_HEADER or end > len(data) or end % 64 != 0:
        raise ValueError("the header's length")
    order, kind, fortran, shape = HEADER.fullmatch(data[begin:end].decode("latin-1")).groups()
    if kind not in ("f2", "f4", "f8", "f16"):
        raise Refused("unsupported_npy_dtype", "the array has no floats")
    shape = [int(n) for n in re.findall("[0-9]+", shape)]
    if len(shape) > MAX_DIMENSIONS:
        raise ValueError("many dimensions")
    count = 1
    for n in shape:
        count *= n
    if count > MAX_ELEMENTS:
        raise Refused("npy_too_many_elements", "more than %d elements" % MAX_ELEMENTS)
    body = data[end:]
    if len(body) != count * int(kind[1:]):
        raise ValueError("the data's length")
    if kind == "f16":
        raw = [pair[::-1] if order == ">" else pair for pair in struct.iter_unpack(">6xHQ" if order == ">" else "<QH6x", body)]
        finite, values = all(exponent & 0x7FFF != 0x7FFF for _, exponent in raw), [extended(*pair) for pair in raw]
    else:
        values = [f for f, in struct.iter_unpack((order or "=") + {"f2": "e", "f4": "f", "f8": "d"}[kind], body)]
        finite = all(map(math.isfinite, values))
    s = {"all_finite": finite, "all_positive": finite and all(f > 0 for f in values), "minimum": None, "maximum": None, "sum": None, "sum_log": None, "sum_x_log_x": None}
    if all(map(math.isfinite, values)):
        s.update(minimum=min(values, default=None), maximum=max(values, default=None), sum=total(values))
        if s["all_positive"]:
            s.update(sum_log=total(math.log(f) for f in values), sum_x_log_x=total(f * math.log(f) for f in values))
    return {"format": "npy", "version": [data[6], 0], "dtype": order + kind, "shape": shape, "fortran_order": fortran == "True", "count": count, "statistics": s}


def extended(significand, exponent):
    """An extended float of the x87, whose significand has no implicit bit; infinite if it is too large for a float."""
    try:
        value = math.ldexp(significand, max(exponent & 0x7FFF, 1) - 16383 - 63)
    except OverflowError:
        value = math.inf
    return -value if exponent & 0x8000 else value


def total(values):
    try:
        value = math.fsum(values)
    except OverflowError:
        return None
    return value if math.isfinite(value) else None


def repository(files):
    objects, roots = {}, ""

    def add(kind, data):
        if len(data) > MAX_OBJECT:
            raise Refused("git_object_too_large", "an object of more than %d bytes" % MAX_OBJECT)
        if len(objects) == MAX_OBJECTS or len(data) + sum(len(other) for _, other in objects.values()) > MAX_REPOSITORY:
            raise Refused("git_repository_too_large", "more than %d objects, or %d bytes in them" % (MAX_OBJECTS, MAX_REPOSITORY))
        oid = hashlib.sha1(b"%s %d\0" % (kind.encode(), len(data)) + data).hexdigest()
        objects[oid] = kind, data
        return oid

    for name, data in sorted(files.items()):
        if not name.startswith("objects/"):
            roots += "\n" + data.decode("latin-1")
        elif name.endswith(".pack"):
            unpack(data, objects, add)
        else:
            head, _, body = inflate(data, 0)[0].partition(b"\0")
            kind, _, size = head.decode().partition(" ")
            if kind not in KINDS.values() or size != str(len(body)) or add(kind, body) != name[8:].replace("/", ""):
                raise ValueError("an object that is not what its name says")
    if "HEAD" not in files:
        raise ValueError("no HEAD")
    reached, reach = set(), re.findall(r"\b[0-9a-f]{40}\b", roots)
    while reach:
        oid = reach.pop()
        if oid in objects and oid not in reached:
            reached.add(oid)
            reach += shown(*objects[oid])[1]
    return [{"oid": oid, "kind": kind, "size": len(data), "reachable": oid in reached, "content": shown(kind, data)[0]} for oid, (kind, data) in sorted(objects.items())]


def shown(kind, data):
    """An object as git cat-file -p shows it, and the names of the objects that it refers to."""
    if kind == "tree":
        entries = [(mode.decode(), name.decode("utf-8", "replace"), oid.hex()) for mode, name, oid in re.findall(rb"([0-7]+) ([^\0]+)\0(.{20})", data, re.DOTALL)]
        kinds = {"40000": "tree", "160000": "commit"}
        return "".join("%s %s %s\t%s\n" % (mode.zfill(6), kinds.get(mode, "blob"), oid, name) for mode, name, oid in entries), [oid for _, _, oid in entries]
    text = data.decode("utf-8", "replace")
    return text, re.findall("(?m)^(?:tree|parent|object) ([0-9a-f]{40})$", text.partition("\n\n")[0]) if kind != "blob" else []


def inflate(data, at):
    """The stream at a position, and the position after it."""
    z = zlib.decompressobj()
    window = data[at:at + 2 * MAX_OBJECT]  # an object that is not too large is smaller
    out = z.decompress(window, MAX_OBJECT + 64)
    if len(out) == MAX_OBJECT + 64:
        raise Refused("git_object_too_large", "an object of more than %d bytes" % MAX_OBJECT)
    if not z.eof:
        raise ValueError("a stream without an end")
    return out, at + len(window) - len(z.unused_data)


def unpack(data, objects, add):
    """Adds the objects of a pack (gitformat-pack(5)). A delta's base is in the same repository, and was read before."""
    count, = struct.unpack_from(">I", data, 8)
    if data[:4] != b"PACK" or count > MAX_OBJECTS:
        raise ValueError("no pack, or one of many objects")
    at, names = 12, {}  # by where an object begins
    for _ in range(count):
        begin, kind, base = at, data[at] >> 4 & 7, None
        at = number(data, at)[1]  # the size, which the stream has, too
        if kind == 6:
            offset, after = 0, number(data, at)[1]
            for byte in data[at:after]:
                offset = (offset << 7 | byte & 0x7F) + 1
            base, at = names[begin - offset + 1], after
        elif kind == 7:
            base, at = data[at:at + 20].hex(), at + 20
        body, at = inflate(data, at)
        names[begin] = add(objects[base][0], undelta(objects[base][1], body)) if base else add(KINDS[kind], body)


def number(data, at):
    """A number of at most ten bytes, the lowest seven bits first, and the position after it."""
    value = 0
    for i in range(10):
        value |= (data[at + i] & 0x7F) << 7 * i
        if data[at + i] < 0x80:
            return value, at + i + 1
    raise ValueError("a number without an end")


def undelta(base, delta):
    """What a delta makes of a base: instructions copy from the base, or add what follows them."""
    before, at = number(delta, 0)
    size, at = number(delta, at)
    if before != len(base) or size > MAX_OBJECT:
        raise ValueError("a delta of another base")
    out = bytearray()
    while at < len(delta) and len(out) <= size:
        op, at = delta[at], at + 1
        if op & 0x80:
            fields = bytearray(8)  # four bytes of the offset, three of the length
            for i in range(7):
                if op >> i & 1:
                    fields[i], at = delta[at], at + 1
            offset, length = struct.unpack("<II", fields)
            length = length or 0x10000
            part = base[offset:offset + length]
        else:
            part, length, at = delta[at:at + op], op or -1, at + op
        if len(part) != length:
            raise ValueError("an instruction that reaches too far")
        out += part
    if len(out) != size:
        raise ValueError("another size")
    return bytes(out)


def main():
    request = json.loads(sys.stdin.read())
    files = {path: base64.b64decode(text) for path, text in request["files"].items()}
    parse, code = {
        "strict-csv/v1": (table, "invalid_csv"), "ics/v1": (calendar, "invalid_ics"), "strict-npy-float-summary/v1": (array, "invalid_npy"),
        "git-repository/v1": (repository, "invalid_git_repository"),
    }[request["parser"]]
    try:
        answer = {"value": parse(files if parse is repository else files[""])}
    except Refused as e:
        answer = dict(zip(("code", "message"), e.args))
    except Exception as e:
        answer = {"code": code, "message": "the artifact is malformed: %s" % type(e).__name__}
    sys.stdout.buffer.write(json.dumps(answer, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False).encode())


main()
