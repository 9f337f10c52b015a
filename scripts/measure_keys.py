#!/usr/bin/env python3
"""What keys cost besides their filters: lives, the memory limit, giving memory back, and what others notice of it.

  measure_keys.py lives       keys that all fall due within a minute: how late they go, and what a client that sends one
                              command at a time notices, beside the same load on keys without lives
  measure_keys.py life-bytes  bytes that a life costs a key, by the resident memory and by used_memory
  measure_keys.py maxmemory   four writers against a limit under every policy: resident memory, errors, victims (where the
                              use of keys counts, writers pause between batches: 14 MB a second in all)
  measure_keys.py give-back   resident memory after FLUSHALL, twice with a load in between
  measure_keys.py large       what a client notices while a filter of 1 GB goes or a filter grows by one
  measure_keys.py all

A virtual machine gets its memory from its host when it is first touched, which may take milliseconds a page; so --warm
gigabytes are touched and given back before anything is measured. The server is target/release/seendb of this repository, or --ours 'COMMAND with {port} {dir}'. Each line of figures ends with
what was demanded; the exit status is 1 if one demand was not met.
"""
import argparse
import array
import mmap
import multiprocessing
import os
import random
import socket
import statistics
import sys
import time

from measure import ROOT, Server, encode

PORT = 17181
OOM = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"
POLICIES = ["noeviction", "allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-lfu",
            "volatile-random", "volatile-ttl"]
MB = 1 << 20


class Connection:
    """Sends pipelines of commands whose replies are lines."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=300)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.rest = b""

    def lines(self, request, count):
        """The replies as one text of `count` lines."""
        self.socket.sendall(request)
        got, data = [self.rest], self.rest
        have = data.count(b"\r\n")
        while have < count:
            data = self.socket.recv(1 << 20)
            if not data:
                raise SystemExit("the server closed the connection")
            have += data.count(b"\n")
            got.append(data)
        return b"".join(got)

    def cmd(self, line):
        return self.lines(encode(line.encode().split()), 1)

    def info(self):
        self.socket.sendall(encode([b"INFO"]))
        text = b""
        while b"\r\n" not in text:
            text += self.socket.recv(65536)
        length, text = text[1:].split(b"\r\n", 1)
        while len(text) < int(length) + 2:
            text += self.socket.recv(65536)
        fields = (line.split(":", 1) for line in text.decode().split("\r\n") if ":" in line)
        return dict(fields)

    def size(self):
        return int(self.cmd("DBSIZE")[1:])


def reserve(name, capacity, *words):
    return encode([b"BF.RESERVE", name, b"0.01", b"%d" % capacity, *words])


def batches(start, end, size=1000):
    return ((at, min(at + size, end)) for at in range(start, end, size))


def warm(gigabytes):
    """Has a process touch so much memory, and ends it."""
    def touch():
        memory = mmap.mmap(-1, int(gigabytes * (1 << 30)), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_HUGEPAGE)
        for offset in range(0, len(memory), 4096):
            memory[offset] = 1
    process = multiprocessing.Process(target=touch)
    process.start()
    process.join()


# A client that notices delays

PROBED = 100_000


def make_probed(connection):
    for start, end in batches(0, PROBED):
        connection.lines(b"".join(reserve(b"p:%d" % n, 100) for n in range(start, end)), end - start)


def probe(port, stop, results, pause):
    connection, rng, times = Connection(port), random.Random(1), array.array("d")
    while not stop.is_set():
        n = rng.randrange(PROBED)
        request = encode([rng.choice((b"BF.ADD", b"BF.EXISTS")), b"p:%d" % n, b"item:%d" % rng.randrange(1000)])
        begun = time.perf_counter()
        reply = connection.lines(request, 1)
        times.append(time.perf_counter() - begun)
        assert reply[:1] == b":", reply
        if pause:
            time.sleep(pause)
    results.put(times.tobytes())


class Probe:
    """A process that sends one command after the other and keeps all delays."""

    def __init__(self, port, pause=0.0):
        self.stop, self.results = multiprocessing.Event(), multiprocessing.Queue()
        self.process = multiprocessing.Process(target=probe, args=(port, self.stop, self.results, pause))
        self.process.start()

    def end(self):
        self.stop.set()
        times = array.array("d", self.results.get())
        self.process.join()
        return sorted(times)


def at(times, share):
    return times[min(len(times) - 1, int(len(times) * share))] * 1e3


def show_delays(what, times):
    shares = ((0.5, "p50"), (0.99, "p99"), (0.999, "p99.9"), (0.9999, "p99.99"), (1, "max"))
    print(f"{what}: {len(times)} replies, ms " + " ".join(f"{name} {at(times, share):.3f}" for share, name in shares), flush=True)


# Lives

def lives(a):
    """All keys fall due within a minute, evenly."""
    ok, longest = True, {}
    for kind in ("without lives", "with lives"):
        server = Server(a.ours, PORT)
        try:
            connection = Connection(PORT)
            make_probed(connection)
            first = int((time.time() + 15 + a.keys / 40_000) * 1000)
            due = [first + n * 60_000 // a.keys for n in range(a.keys)]
            order = list(range(a.keys))
            random.Random(5).shuffle(order)
            for start, end in batches(0, a.keys):
                words = (lambda n: (b"PXAT", b"%d" % due[n])) if kind == "with lives" else (lambda _: ())
                request = b"".join(reserve(b"u:%d" % n, 10, *words(order[n])) for n in range(start, end))
                if b"-" in connection.lines(request, end - start):
                    raise SystemExit("a key could not be made in time")
            if time.time() * 1000 > first:
                raise SystemExit("the keys took too long to make; the machine is too busy")
            time.sleep(max(0.0, first / 1000 - time.time() - 1))
            client, cpu, begun = Probe(PORT), server.cpu_ns(), time.time()
            late = watch(connection, due, a.keys, kind == "with lives")
            times = client.end()
            cpu = (server.cpu_ns() - cpu) / (time.time() - begun) / 1e9
            show_delays(f"{a.keys} keys {kind}", times)
            print(f"  server CPU {cpu:.2f} cores")
            longest[kind] = times[-1]
            if kind == "with lives":
                print(f"  latest removal {late * 1e3:.0f} ms after its time; demanded: below 1000 ms")
                ok &= late < 1
        finally:
            server.stop()
    bound = max(0.010, 2 * longest["without lives"])
    print(f"  longest reply {longest['with lives'] * 1e3:.2f} ms; demanded: at most {bound * 1e3:.2f} ms")
    return ok and longest["with lives"] <= bound


def watch(connection, due, keys, expires):
    """Seconds by which the removals are late at the most, seen from outside: by counts alone, no key is touched."""
    end, late = due[-1] / 1000 + 3, 0.0
    while time.time() < end:
        # Read before the question, so that the answer is no older than this.
        now = time.time()
        expired = int(connection.info()["expired_keys"])
        if expires and expired < keys:
            late = max(late, now - due[expired] / 1000)
        time.sleep(0.05)
    size = connection.size()
    if size != PROBED + (0 if expires else keys):
        raise SystemExit(f"{size} keys are left")
    return late


def life_bytes(a):
    figures = {}
    for kind, words in (("without", ()), ("with", (b"EX", b"100000"))):
        server = Server(a.ours, PORT)
        try:
            connection = Connection(PORT)
            time.sleep(0.3)
            before = (server.rss(), int(connection.info()["used_memory"]))
            for start, end in batches(0, a.many):
                connection.lines(b"".join(reserve(b"u:%d" % n, 10, *words) for n in range(start, end)), end - start)
            time.sleep(4)  # what the load itself needed is given back
            after = (server.rss(), int(connection.info()["used_memory"]))
            figures[kind] = [(y - x) / a.many for x, y in zip(before, after)]
            print(f"{a.many} keys {kind} lives: resident {figures[kind][0]:.2f}, used_memory {figures[kind][1]:.2f} bytes a key", flush=True)
        finally:
            server.stop()
    more = [y - x for x, y in zip(figures["without"], figures["with"])]
    print(f"  a life costs {more[0]:.2f} bytes resident, {more[1]:.2f} of used_memory; demanded: at most 16")
    return max(more) <= 16


# The memory limit

LIMIT_MB = 200
CAPACITIES = [10] * 4 + [100] * 8 + [1000] * 8 + [10_000] * 3 + [100_000]
MEAN_BYTES = 7_000


def writer(port, number, words, pause, stop, results):
    """Makes filters of mixed sizes and adds to them; counts replies."""
    connection, rng, n = Connection(port), random.Random(number), 0
    counts = {"written": 0, "refused": 0, "other": 0}
    while not stop.is_set():
        requests = []
        for n in range(n, n + 50):
            name, capacity = b"w%d:%d" % (number, n), rng.choice(CAPACITIES)
            requests.append(reserve(name, capacity, *words))
            # So many that nearly every page of the filter is touched: what is zero takes no memory.
            requests += [encode([b"BF.ADD", name, b"%d" % i]) for i in range(1 + min(10, capacity // 2_500))]
        n += 1
        for reply in connection.lines(b"".join(requests), len(requests)).split(b"\r\n")[:-1]:
            if reply in (b"+OK", b":1"):
                counts["written"] += 1
            elif reply + b"\r\n" == OOM:
                counts["refused"] += 1
            elif reply == b":0" or reply.startswith(b"-ERR item exists"):
                counts["written"] += 1
            else:
                counts["other"] += 1
                print(reply)
        if pause:
            time.sleep(pause)
    results.put(counts)


def toucher(port, names, command, stop, rounds):
    """Uses these keys over and over."""
    connection = Connection(port)
    while not stop.is_set():
        for start, end in batches(0, len(names)):
            connection.lines(b"".join(encode([command, name, b"x"]) for name in names[start:end]), end - start)
        rounds.value += 1


def preload(connection, words_of, sizes):
    """Keys for four fifths of the limit."""
    rng = random.Random(11)
    keys = LIMIT_MB * MB * 4 // 5 // (MEAN_BYTES if sizes == "same" else 1400)
    capacity = (lambda: rng.choice(CAPACITIES)) if sizes == "same" else (lambda: 1000)
    for start, end in batches(0, keys, 50):
        sizes_here = [capacity() for _ in range(start, end)]
        requests = [reserve(b"k:%d" % n, size, *words_of(n)) for n, size in zip(range(start, end), sizes_here)]
        requests += [encode([b"BF.ADD", b"k:%d" % n, b"%d" % i]) for n, size in zip(range(start, end), sizes_here)
                     for i in range(min(10, size // 2_500))]
        connection.lines(b"".join(requests), len(requests))
    return keys


def left(connection, numbers):
    """How many of these keys are there."""
    found = 0
    for start, end in batches(0, len(numbers)):
        found += connection.lines(b"".join(encode([b"EXISTS", b"k:%d" % n]) for n in numbers[start:end]), end - start).count(b":1")
    return found


def maxmemory(a):
    return all([one_policy(a, policy) for policy in ([a.policy] if a.policy else POLICIES)])


def one_policy(a, policy):
    server = Server(a.ours + f" --maxmemory {LIMIT_MB}mb --maxmemory-policy {policy}", PORT)
    try:
        return limit_holds(a, policy, server)
    finally:
        server.stop()


def limit_holds(a, policy, server):
    connection = Connection(PORT)
    volatile = policy.startswith("volatile")
    # With a volatile policy every second key has a life; the later its number the later it ends.
    keys = preload(connection, lambda n: (b"EX", b"%d" % (10_000 + n)) if volatile and n % 2 else (), a.sizes)
    time.sleep(2)
    # The half that is used: of those that may go, where only some may.
    may_go = [n for n in range(keys) if not volatile or n % 2]
    rng = random.Random(3)
    used = sorted(rng.sample(may_go, len(may_go) // 2))
    stop, results, rounds = multiprocessing.Event(), multiprocessing.Queue(), multiprocessing.Value("i", 0)
    touch = multiprocessing.Process(target=toucher, args=(PORT, [b"k:%d" % n for n in used], b"BF.EXISTS", stop, rounds))
    touches = policy.endswith(("lru", "lfu"))
    if touches:
        touch.start()
        while rounds.value < 3:
            time.sleep(0.1)
    # A batch is about 350 KB. Where the use counts, a key that is new must get older than the rounds of use take.
    pause = 0.1 if touches else 0
    words = (b"EX", b"9000") if policy == "volatile-ttl" else (b"EX", b"1000000") if volatile else ()
    writers = [multiprocessing.Process(target=writer, args=(PORT, n, words, pause, stop, results)) for n in range(4)]
    for process in writers:
        process.start()
    most_resident, most_used, end, cpu = 0, 0, time.time() + a.seconds, server.cpu_ns()
    while time.time() < end:
        most_resident = max(most_resident, server.rss())
        most_used = max(most_used, int(connection.info()["used_memory"]))
        time.sleep(0.02)
    refused_works = policy != "noeviction" or (connection.cmd("BF.ADD more x") == OOM and connection.cmd("BF.EXISTS k:1 x")[:1] == b":"
                                               and connection.cmd("DEL k:0") == b":1\r\n")
    stop.set()
    counts = [results.get() for _ in writers]
    cpu = server.cpu_ns() - cpu
    for process in writers + ([touch] if touches else []):
        process.join()
    total = {key: sum(c[key] for c in counts) for key in counts[0]}
    evicted = int(connection.info()["evicted_keys"])
    used_left = left(connection, used) / len(used)
    others = sorted(set(may_go) - set(used))
    others_left = left(connection, others) / len(others)
    line = (f"{policy}: resident at most {most_resident / MB:.0f} MB, used_memory at most {most_used / MB:.1f} MB; "
            f"{total['written']} writes, {total['refused']} refused, {evicted} evicted, "
            f"{cpu / 1e3 / max(1, total['written'] + total['refused']):.1f} us of server CPU a write")
    ok = most_resident < 240 * MB and total["other"] == 0 and refused_works
    if touches:
        line += (f"; each of the used half used every {a.seconds / max(1, rounds.value - 3):.2f} s; "
                 f"left: {used_left:.1%} of it, {others_left:.1%} of the other half")
        ok &= used_left >= 0.85
    if volatile:
        kept = [n for n in range(keys) if n % 2 == 0]
        kept_left = left(connection, kept)
        line += f"; {len(kept) - kept_left} keys without a life gone"
        ok &= kept_left == len(kept)
    if policy == "volatile-ttl":
        # What the writers make ends before all of the preloaded: so that is what goes.
        line += f"; left: {(used_left + others_left) / 2:.1%} of those that end later"
        ok &= (used_left + others_left) / 2 > 0.99
    if policy != "noeviction":
        ok &= total["refused"] == 0 and evicted > 0
    print(line + ("" if ok else "  <-- NOT AS DEMANDED"), flush=True)
    return ok


def give_back(a):
    server = Server(a.ours, PORT)
    try:
        connection, ok = Connection(PORT), True
        time.sleep(1)
        idle = server.rss()
        for flush in ("FLUSHALL", "FLUSHALL ASYNC", "FLUSHALL SYNC"):
            stop, results = multiprocessing.Event(), multiprocessing.Queue()
            writers = [multiprocessing.Process(target=writer, args=(PORT, n, (), 0, stop, results)) for n in range(4)]
            for process in writers:
                process.start()
            end = time.time() + 120
            while server.rss() < 500 * MB and time.time() < end:
                time.sleep(0.02)
            stop.set()
            for _ in writers:
                results.get()
            for process in writers:
                process.join()
            full, begun = server.rss(), time.time()
            connection.cmd(flush)
            answered, back, took = time.time() - begun, full, None
            while time.time() < begun + 15 and took is None:
                back = server.rss()
                if back < idle + 16 * MB:
                    took = time.time() - begun
                time.sleep(0.05)
            print(f"{flush}: resident {full / MB:.0f} MB, answered after {answered * 1e3:.1f} ms, "
                  f"{back / MB:.0f} MB after {took or 15:.1f} s (idle {idle / MB:.0f} MB); demanded: within 16 MB of idle in 10 s", flush=True)
            ok &= took is not None and took <= 10
        return ok
    finally:
        server.stop()


# Large values

GIGABYTE_CAPACITY = 890_000_000


def large(a):
    """What the client notices of each, beside the same time with nothing else."""
    server = Server(a.ours, PORT)
    try:
        connection = Connection(PORT)
        make_probed(connection)
        still = []
        for _ in range(2 * a.rounds + 1):
            client = Probe(PORT, 0.0002)
            time.sleep(0.8)
            still.append(client.end()[-1])
        bound = max(0.010, 2 * statistics.median(still))
        print(f"nothing else: longest reply, each time, ms {' '.join(f'{t * 1e3:.2f}' for t in still)}")
        cases = {command: lambda command=command: delete_big(connection, server, command)
                 for command in ("UNLINK big", "DEL big", "FLUSHALL", "FLUSHALL SYNC", "COPY small big REPLACE")}
        cases["growth of 100 filters to 40 MB, an item at a time"] = lambda: grow(connection, 100, b"3000", 1)
        cases["growth of a filter to 480 MB, an item at a time"] = lambda: grow(connection, 1, b"32768", 1)
        cases["growth of 100 filters to 40 MB, 100 items at a time"] = lambda: grow(connection, 100, b"3000", 100)
        cases["growth of a filter to 480 MB, 100 items at a time"] = lambda: grow(connection, 1, b"32768", 100)
        ok = True
        for what, case in cases.items():
            longest = [case() for _ in range(a.rounds)]
            print(f"{what}: longest reply of others, each time, ms {' '.join(f'{t * 1e3:.2f}' for t in longest)}; "
                  f"demanded: at most {bound * 1e3:.2f}", flush=True)
            ok &= statistics.median(longest) <= bound
        return ok
    finally:
        server.stop()


def delete_big(connection, server, command):
    """Lets a filter of one gigabyte go; the longest delay of the other client."""
    if connection.size() < PROBED:
        make_missing(connection)
    connection.cmd("BF.ADD small x")
    fill_big(connection, server)
    resident = server.rss()
    client = Probe(PORT, 0.0002)
    time.sleep(0.3)
    reply = connection.cmd(command)
    assert reply[:1] in b":+", reply
    until(lambda: server.rss() < resident - 900 * MB)
    time.sleep(0.3)
    return client.end()[-1]


def make_missing(connection):
    connection.cmd("FLUSHALL")
    make_probed(connection)


def grow(connection, count, growth, at_once):
    """Lets so many full filters grow; the longest delay of the other client."""
    names = [b"grows:%d" % n for n in range(count)]
    for name in names:
        connection.lines(reserve(name, 10_000, b"EXPANSION", growth), 1)
        connection.lines(encode([b"BF.MADD", name] + [b"%d" % n for n in range(9_990)]), 9_991)
    client = Probe(PORT, 0.0002)
    time.sleep(0.3)
    for name in names:
        for start in range(0, 100, at_once):
            items = [b"n%d" % n for n in range(start, start + at_once)]
            connection.lines(encode([b"BF.MADD", name] + items), at_once + 1)
    time.sleep(0.1)
    longest = client.end()[-1]
    for name in names:
        connection.lines(encode([b"UNLINK", name]), 1)
    return longest


def until(ready):
    end = time.time() + 10
    while not ready() and time.time() < end:
        time.sleep(0.01)
    return ready()


def fill_big(connection, server):
    """A filter of one gigabyte, all of it resident."""
    block = random.Random(7).randbytes(8 << 20)
    connection.cmd("DEL big")
    connection.lines(reserve(b"big", GIGABYTE_CAPACITY, b"NONSCALING"), 1)
    usage = int(connection.cmd("MEMORY USAGE big")[1:])
    before, done = server.rss(), 0
    while done + len(block) < usage - (1 << 16):
        done += len(block)
        connection.lines(encode([b"BF.LOADCHUNK", b"big", b"%d" % (1 + done), block]), 1)
    assert server.rss() - before > 900 * MB, (server.rss() - before, usage)


def run_parts(parts, a):
    """Runs those that were asked for, on warmed memory; the exit status is 1 if one demand was not met."""
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    if a.warm:
        warm(a.warm)
    results = [parts[part](a) for part in (parts if "all" in a.what else a.what)]
    sys.exit(0 if all(results) else 1)


PARTS = {"lives": lives, "life-bytes": life_bytes, "maxmemory": maxmemory, "give-back": give_back, "large": large}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+", choices=[*PARTS, "all"])
    parser.add_argument("--ours", default=ROOT + "/target/release/seendb --port {port} --dir {dir}")
    parser.add_argument("--keys", type=int, default=1_000_000, help="keys that fall due")
    parser.add_argument("--many", type=int, default=10_000_000, help="keys of life-bytes")
    parser.add_argument("--seconds", type=float, default=60, help="of writing under each policy")
    parser.add_argument("--sizes", choices=["same", "other"], default="same",
                        help="of the keys that are there when the writers come: of their sizes, or all of 1.3 KB")
    parser.add_argument("--warm", type=float, default=6, help="gigabytes touched beforehand")
    parser.add_argument("--rounds", type=int, default=3, help="of each case of large")
    parser.add_argument("--policy", choices=POLICIES, help="only this one")
    a = parser.parse_args()
    run_parts(PARTS, a)


if __name__ == "__main__":
    main()
