"""Prints the digest of the pack in a directory, whose manifest is on standard input as JSON.

digests.md describes the digests. A test compares this program with sbench."""
import hashlib, json, os, sys
from decimal import Decimal


class Number(str):
    pass


def canonical(v):
    if isinstance(v, dict):
        return "{" + ",".join(canonical(k) + ":" + canonical(v[k]) for k in sorted(v)) + "}"
    if isinstance(v, list):
        return "[" + ",".join(map(canonical, v)) + "]"
    if isinstance(v, Number):
        sign, digits, exponent = Decimal(v).as_tuple()
        text = "".join(map(str, digits)).lstrip("0")
        short = text.rstrip("0")
        if not short:
            return "0e0"
        return ("-" if sign else "") + short + "e" + str(exponent + len(text) - len(short))
    return json.dumps(v, ensure_ascii=False)


def load(text):
    return json.loads(text, parse_float=Number)


def digest(label, data):
    return "sha256:" + hashlib.sha256(label.encode() + b"\n" + data).hexdigest()


def records(root, paths):
    found = {}

    def add(path):
        full = os.path.join(root, path)
        if os.path.isdir(full):
            found[path] = "d 0755 -"
            for name in os.listdir(full):
                add(os.path.normpath(os.path.join(path, name)))
        else:
            mode = "0755" if os.stat(full).st_mode & 0o111 else "0644"
            with open(full, "rb") as f:
                found[path] = "f %s %s" % (mode, hashlib.sha256(f.read()).hexdigest())

    for path in paths:
        add(os.path.normpath(path))
    names = sorted(found, key=os.fsencode)
    return b"".join(found[n].encode() + b" " + os.fsencode(n) + b"\0" for n in names)


def eval_paths(row, family, root):
    values = row.get("eval") or {}
    for v in values.values():
        if isinstance(v, dict) and "path" in v and set(v) <= {"path", "mount", "read_only"}:
            yield v["path"]
    if family == "terminal_task" and values["checker"].get("source", "command") != "command":
        path = os.path.normpath(values["checker"]["path"])
        yield path if os.path.isdir(os.path.join(root, path)) else os.path.dirname(path) or path


def pack_digest(directory, manifest):
    roots = manifest.get("asset_roots") or {}
    public = os.path.join(directory, roots.get("public", "assets/"))
    hidden = os.path.join(directory, roots.get("eval", "hidden/"))
    default = (manifest.get("defaults") or {}).get("family")
    text = digest("sbench manifest 1", canonical(manifest).encode()) + "\n"
    with open(os.path.join(directory, "tasks.jsonl"), encoding="utf-8") as lines:
        for line in filter(str.strip, lines):
            row = load(line)
            values = canonical(row.get("eval") or {}).encode() + b"\n"
            text += " ".join((
                digest("sbench row 1", canonical(row).encode()),
                digest("sbench evaluation 1", values + records(hidden, eval_paths(row, row.get("family") or default, hidden))),
                digest("sbench assets 1", records(public, [a["path"] for a in row.get("assets") or []])),
            )) + "\n"
    return digest("sbench pack 1", text.encode())


if __name__ == "__main__":
    print(pack_digest(sys.argv[1], load(sys.stdin.read())))
