"""clients/python/seendb_export.py against exports and the answers that belong to them, and the hashes of docs/hashing.md.

  python exports.py FOLDER    FOLDER has NAME.export and NAME.answers, which holds a later time, then lines: item, answer, answer
                              at that time (of counting filters only lines: item, answer); exits 1 at the first wrong answer
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "clients/python"))

import seendb_export
from seendb_export import ExportedCounting, ExportedRing


def check_answers(path):
    if path.name.startswith("counting"):
        return check_counting(path)
    data = path.read_bytes()
    seen = ExportedRing(data)
    later, *lines = path.with_suffix(".answers").read_text(encoding="utf-8").splitlines()
    for line in lines:
        item, answer, answer_later = line.rsplit(" ", 2)
        got = int(item in seen), int(seen.contains_at(item.encode(), int(later)))
        if got != (int(answer), int(answer_later)):
            raise SystemExit(f"{path.name}: {item!r}: {got}, not {answer} {answer_later}")
    check_damage(path, ExportedRing, data)
    return len(lines)


def check_counting(path):
    data = path.read_bytes()
    held = ExportedCounting(data)
    lines = path.with_suffix(".answers").read_text(encoding="utf-8").splitlines()
    for line in lines:
        item, answer = line.rsplit(" ", 1)
        if int(item in held) != int(answer):
            raise SystemExit(f"{path.name}: {item!r}: not {answer}")
    check_damage(path, ExportedCounting, data)
    return len(lines)


def check_damage(path, reader, data):
    for damaged in (data[:-1], data[:20], bytes([data[0] ^ 1]) + data[1:], data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]):
        try:
            reader(damaged)
        except ValueError:
            continue
        raise SystemExit(f"{path.name}: a damaged export was taken")


def check_hashes():
    rows = re.findall(r"^\| (\d+) \| `(\w{16})` \| `(\w{16})` \|$", (ROOT / "docs/hashing.md").read_text(encoding="utf-8"), re.M)
    for length, plain, keyed in rows:
        item = bytes(i % 251 for i in range(int(length)))
        got = seendb_export.xxhash.xxh3_64_hexdigest(item), f"{seendb_export.siphash24(bytes(range(16)), item):016x}"
        if got != (plain, keyed):
            raise SystemExit(f"{length} bytes: {got}, not {plain} {keyed}")
    return len(rows)


def check_mistakes(ring):
    for what, mistake in (("nothing newer", lambda: ExportedRing(None)), ("without decode_responses", lambda: ExportedRing("text")),
                          ("bytes or text, not int", lambda: 5 in ring)):
        try:
            mistake()
        except TypeError as error:
            if what in str(error):
                continue
            raise SystemExit(f"{what!r} is not in {error}")
        raise SystemExit(f"{what}: no error")


exports = sorted(pathlib.Path(sys.argv[1]).glob("*.export"))
check_mistakes(ExportedRing(exports[0].read_bytes()))
items = sum(check_answers(path) for path in exports)
print(f"{len(exports)} exports, {items} items, {check_hashes()} hashes: equal answers")
