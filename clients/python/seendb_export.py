"""Asks an exported filter of SeenDB without the server. Needs the package xxhash.

    seen = ExportedRing(redis.execute_command("CHAIN.EXPORT", "user:7"))
    fresh = [item for item in recalled if item not in seen]

    cached = ExportedCounting(redis.execute_command("CBF.EXPORT", "proxy:2"))
    worth_asking = address in cached

The format: docs/export-format.md; the hash: docs/hashing.md. Items are bytes, or text that is encoded as UTF-8.
"""
import struct
from bisect import bisect_left

import xxhash

MASK = 2**64 - 1
HEAD = struct.Struct("<8s6BH2I4Qd")
COUNTING_HEAD = struct.Struct("<8s4BI3QdQ")
PART = struct.Struct("<2QI4B")


def mix64(x):
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def siphash24(key, data):
    def rotate(x, bits):
        return (x << bits | x >> 64 - bits) & MASK

    def rounds(count):
        nonlocal a, b, c, d
        for _ in range(count):
            a, c = (a + b) & MASK, (c + d) & MASK
            b, d = rotate(b, 13) ^ a, rotate(d, 16) ^ c
            a, c = (rotate(a, 32) + d) & MASK, (c + b) & MASK
            b, d, c = rotate(b, 17) ^ c, rotate(d, 21) ^ a, rotate(c, 32)

    k0, k1 = struct.unpack("<2Q", key)
    a, b, c, d = k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573
    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 255])
    for (word,) in struct.iter_unpack("<Q", padded):
        d ^= word
        rounds(2)
        a ^= word
    c ^= 255
    rounds(4)
    return a ^ b ^ c ^ d


def check(data, head, kind, name):
    if data is None:
        raise TypeError(f"no export but None: with NEWER there is nothing newer, so keep the {name} that you have")
    if isinstance(data, str):
        raise TypeError("an export is bytes, not text: use a connection without decode_responses")
    if len(data) < head.size + 8 or data[:8] != b"SEENXPRT" or data[8:10] != bytes((1, kind)):
        raise ValueError(f"no export of a {name} in a known version")
    if xxhash.xxh3_64_intdigest(data[:-8]) != int.from_bytes(data[-8:], "little"):
        raise ValueError("the export is damaged")


def item_hash(item, key):
    item = item.encode() if isinstance(item, str) else item
    if not isinstance(item, (bytes, bytearray, memoryview)):
        raise TypeError(f"an item is bytes or text, not {type(item).__name__}: write a number as clients send it, str(item)")
    return siphash24(key, item) if key else xxhash.xxh3_64_intdigest(item)


class ExportedCounting:
    def __init__(self, data):
        """Reads an export; ValueError if it is none, or damaged; TypeError if it is not bytes."""
        check(data, COUNTING_HEAD, 2, "counting filter")
        (_, _, _, hash_, self._hashes, _, self.version, self.items, self.capacity, self.error_rate,
         self._bits) = COUNTING_HEAD.unpack_from(data)
        at = COUNTING_HEAD.size + (16 if hash_ == 2 else 0)
        self._key, self._held = data[COUNTING_HEAD.size:at], data[at:-8]
        if len(self._held) != (self._bits + 7) // 8:
            raise ValueError("the export is damaged")

    def __contains__(self, item):
        return _all_set(self._held, self._bits, self._hashes, item_hash(item, self._key))


class ExportedRing:
    def __init__(self, data):
        """Reads an export; ValueError if it is none, or damaged; TypeError if it is not bytes."""
        check(data, HEAD, 5, "ring")
        (_, _, _, hash_, mode, self.clock, _, self._links, count, _,
         self.version, self._slice_ms, self.time, self.capacity, self.error_rate) = HEAD.unpack_from(data)
        at = HEAD.size + (16 if hash_ == 2 else 0)
        self._key = data[HEAD.size:at]
        self._parts, content = [], at + count * PART.size
        for number in range(count):
            slice_, bits, listed, hashes, is_list, _, _ = PART.unpack_from(data, at + number * PART.size)
            end = content + (8 * listed if is_list else (bits + 7) // 8)
            held = data[content:end]
            if is_list:
                held = struct.unpack(f"<{listed}Q", held)
            self._parts.append((slice_, bits, hashes, is_list, held))
            content = end
        if content != len(data) - 8:
            raise ValueError("the export is damaged")

    def __contains__(self, item):
        return self.contains_at(item, self.time)

    def contains_at(self, item, now):
        """Whether the server would say that it was seen at this time (ms since 1970), had nothing been written since."""
        h = item_hash(item, self._key)
        present = now // self._slice_ms if self._slice_ms else 0
        return any(part[0] + self._links > present and _holds(part, h) for part in self._parts)


def _holds(part, h):
    _, bits, hashes, is_list, held = part
    if is_list:
        place = bisect_left(held, h)
        return place < len(held) and held[place] == h
    return _all_set(held, bits, hashes, h)


def _all_set(held, bits, hashes, h):
    a, b = h, mix64(h)
    for i in range(1, hashes + 1):
        x = a * bits >> 64
        if not held[x >> 3] >> (x & 7) & 1:
            return False
        a, b = (a + b) & MASK, (b + i * 0x9E3779B97F4A7C15) & MASK
    return True
