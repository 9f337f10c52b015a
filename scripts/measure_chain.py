#!/usr/bin/env python3
"""Seen-lists of many users in the server, rings of SeenDB beside filters of a real RedisBloom, in one run on one machine.

  measure_chain.py memory   resident bytes a user beyond the empty server: keys seen:N, five links, LINKERROR 0.02, capacity 400, with 3, 100 and
                            500 items; RedisBloom with one filter `0.02 500` a user and 500 items
  measure_chain.py cpu      server CPU at 64 commands a write: CHAIN.ADD and CHAIN.EXISTS beside BF.ADD and BF.EXISTS, CHAIN.UNSEEN with 200
                            candidates beside BF.MEXISTS
  measure_chain.py turn     100,000 windows that all turn in the same second: the longest reply, beside the same load without a turn
  measure_chain.py all

Items arrive as in life, some for every user in turn, in ten rounds (three items in three), so that rings grow beside each other; three items are
measured at once as well. Each user gets the same names, which changes no size. Beside the resident bytes stands the growth of used_memory: the
rest is room that the allocator holds free. For `cpu` each user has 450 items (--filled): all five links are in use, and the filter is nearly full. An EXISTS is measured with items that are new and with one
that is known, UNSEEN and MEXISTS with as many of the one as of the other. CPU is the run time of the server's threads in nanoseconds; figures are the
median of --runs pairs of back-to-back runs, with the spread of their ratio.

A turn happens when a key is first written to in a new slice: slices of 5 s, five in a ring, while a client writes to all keys in turn at 50,000
commands a second; another sends one command at a time and keeps the longest delay. Without a turn: the same with slices of ten days.

Each line ends with what was demanded, and says NOT MET where it was not; the exit status is then 1. The server is target/release/seendb, or
--ours 'COMMAND with {port} {dir}'. --users 100000 is enough to try it.
"""
import argparse
import array
import contextlib
import multiprocessing
import random
import re
import signal
import statistics
import sys
import time

from measure import OURS, Server, benchmark, encode, peer_module
from measure_keys import Connection, batches, run_parts, show_delays

PORTS = (17191, 17192)
RING = (b"CAPACITY", b"400", b"ERROR", b"0.02", b"LINKS", b"5", b"LINKERROR")
ROUNDS = 10
DEMANDED_SHARE = 0.85
DEMANDED_CPU = {"ADD": 0.6, "EXISTS": 0.6, "UNSEEN": 0.35}
CANDIDATES = 200
FILLED = 450
TURNING = 100_000
FLOOR_MS = 5.0


def verdict(line, met):
    print(line + ("" if met else "  NOT MET"), flush=True)
    return met


@contextlib.contextmanager
def server(command, port):
    running = Server(command, port)
    try:
        yield running
    finally:
        running.stop()


def peer_command(a):
    return a.peer or "redis-server --port {port} --dir {dir} --save --loadmodule " + peer_module()


def item(number):
    return b"item:%012d" % number


def user(number):
    return b"seen:%d" % number


def padded(number):
    """As redis-benchmark writes its numbers."""
    return b"seen:%012d" % number


def fill(running, users, items, head, name, rounds=ROUNDS):
    """Gives each user so many items, in rounds. `head` is what stands before and behind the key's name."""
    connection, before, behind = Connection(running.port), *head
    each = -(-items // rounds)
    for first in range(0, items, each):
        names = [item(n) for n in range(first, min(items, first + each))]
        words = encode([*before, b"", *behind, *names])
        # Only the name differs.
        mark = encode([*before])[4:] if before else b""
        start = words.index(b"$0\r\n\r\n", words.index(mark))
        lead, tail = words[:start], words[start + 6:]
        for begin, end in batches(0, users, 200):
            keys = [name(n) for n in range(begin, end)]
            request = b"".join(b"%b$%d\r\n%b\r\n%b" % (lead, len(key), key, tail) for key in keys)
            replies = connection.lines(request, len(keys) * (len(names) + 1))
            if b"-" in replies:
                raise SystemExit(f"port {running.port}: {replies[replies.index(b'-'):][:100]!r}")


def fill_rings(running, users, items, name=user, rounds=ROUNDS):
    fill(running, users, items, ((b"CHAIN.INSERT",), (*RING, b"ITEMS")), name, rounds)


def fill_filters(running, users, items, name=user):
    fill(running, users, items, ((b"BF.INSERT",), (b"CAPACITY", b"500", b"ERROR", b"0.02", b"ITEMS")), name)


def used_memory(running):
    return int(Connection(running.port).info()["used_memory"])


def bytes_a_user(command, port, users, fill_users):
    """Resident, and of used_memory."""
    with server(command, port) as running:
        # An empty server, but one that has seen such a load: what it keeps for its connections is not the users'.
        fill_users(running, 1000)
        running.call("FLUSHALL")
        time.sleep(5)
        empty = running.rss(), used_memory(running)
        fill_users(running, users)
        time.sleep(5)  # what the load itself needed is given back
        return [(after - before) / users for before, after in zip(empty, (running.rss(), used_memory(running)))]


def fitting(users, bytes_each):
    """So many of the users as fit in three quarters of the memory."""
    free = int(re.search(r"MemAvailable:\s+(\d+)", open("/proc/meminfo").read())[1]) * 1024
    fit = min(users, int(free * 0.75 / bytes_each))
    if fit < users:
        print(f"of {users} users, {fit} fit in memory", flush=True)
    return fit


def memory(a):
    met, resident = True, 0.0
    for items, rounds, most, how in ((3, 1, 110, " at once"), (3, 3, 110, ""), (100, ROUNDS, 190, ""), (500, ROUNDS, None, "")):
        users = fitting(a.users, most or 800)
        resident, used = bytes_a_user(a.ours, PORTS[0], users, lambda running, count: fill_rings(running, count, items, user, rounds))
        line = f"{users} users with {items} items{how}: {resident:.1f} bytes a user resident, {used:.1f} of used_memory"
        if most:
            met &= verdict(f"{line}; demanded: at most {most}, ratio {resident / most:.3f}", resident <= most)
        else:
            print(line, flush=True)
    users = fitting(min(a.users, a.peer_users), 1200)
    peer, used = bytes_a_user(peer_command(a), PORTS[1], users, lambda running, count: fill_filters(running, count, 500))
    ratio = resident / peer
    return met & verdict(f"  RedisBloom, {users} users with 500 items in one filter: {peer:.1f} bytes a user resident, {used:.1f} of used_memory; "
                         f"ratio {ratio:.3f}; demanded: at most {DEMANDED_SHARE}", ratio <= DEMANDED_SHARE)


def cpu(a):
    users = fitting(a.cpu_users or min(a.users, 1_000_000), 2000)
    with server(a.ours, PORTS[0]) as ours, server(peer_command(a), PORTS[1]) as peer:
        fill_rings(ours, users, a.filled, padded)
        fill_filters(peer, users, a.filled, padded)
        time.sleep(1)
        key, new, known = "seen:__rand_int__", "item:__rand_int__", item(a.filled // 2).decode()
        candidates = [new if n % 2 else item(n * a.filled // CANDIDATES).decode() for n in range(CANDIDATES)]
        met = True
        # What adds comes last: the filters are nearly full.
        for what, mine, other, demanded, n, unit in (
                ("EXISTS of new items", ["CHAIN.EXISTS", key, new], ["BF.EXISTS", key, new], "EXISTS", a.n, 1),
                ("EXISTS of a known item", ["CHAIN.EXISTS", key, known], ["BF.EXISTS", key, known], "EXISTS", a.n, 1),
                (f"UNSEEN and MEXISTS of {CANDIDATES} items", ["CHAIN.UNSEEN", key, *candidates], ["BF.MEXISTS", key, *candidates],
                 "UNSEEN", max(6400, a.n // 20), CANDIDATES),
                ("ADD of new items", ["CHAIN.ADD", key, new], ["BF.ADD", key, new], "ADD", a.n, 1)):
            def pair(n):
                # Each side on its own, one directly after the other.
                return tuple(benchmark(running, n, 50, 64, users, *words)[1] * 1e3 / unit for running, words in ((ours, mine), (peer, other)))
            pair(n // 4)  # not counted
            pairs = [pair(n) for _ in range(a.runs)]
            ratios = sorted(x / y for x, y in pairs)
            ratio, most = statistics.median(ratios), DEMANDED_CPU[demanded]
            met &= verdict(f"{what}, {users} users, server CPU ns an item: ours {statistics.median(x for x, _ in pairs):.0f} "
                           f"RedisBloom {statistics.median(y for _, y in pairs):.0f} ratio {ratio:.3f} ({ratios[0]:.3f}..{ratios[-1]:.3f}); "
                           f"demanded: at most {most}", ratio <= most)
        return met


def probe(port, keys, stop, results):
    connection, rng, times = Connection(port), random.Random(1), array.array("d")
    while not stop.is_set():
        request = encode([rng.choice((b"CHAIN.ADD", b"CHAIN.EXISTS")), user(rng.randrange(keys)), item(rng.randrange(1000))])
        begun = time.perf_counter()
        reply = connection.lines(request, 1)
        times.append(time.perf_counter() - begun)
        assert reply[:1] == b":", reply
        time.sleep(0.0002)
    results.put(times.tobytes())


def load(port, keys, rate, stop, written):
    """Writes to all keys in turn, a new item in each round."""
    connection, mark = Connection(port), item(0)
    pieces = [(b"".join(encode([b"CHAIN.ADD", user(n), mark]) for n in range(begin, end)), end - begin)
              for begin, end in batches(0, keys, 64)]
    began, number = time.perf_counter(), 0
    while True:
        number += 1
        fresh = item(10 ** 9 + number)
        for piece, count in pieces:
            if stop.is_set():
                return
            connection.lines(piece.replace(mark, fresh), count)
            written.value += count
            ahead = written.value / rate - (time.perf_counter() - began)
            if ahead > 0:
                time.sleep(ahead)


def longest_reply(a, window_s, what):
    """Of a client beside the load, in ms."""
    with server(a.ours, PORTS[0]) as running:
        connection = Connection(running.port)
        for begin, end in batches(0, a.turning):
            words = [encode([b"CHAIN.RESERVE", user(n), b"0.02", b"400", b"LINKS", b"5", b"WINDOW", b"%d" % window_s]) for n in range(begin, end)]
            connection.lines(b"".join(words), len(words))
        stop, results, written = multiprocessing.Event(), multiprocessing.Queue(), multiprocessing.Value("q", 0)
        loader = multiprocessing.Process(target=load, args=(running.port, a.turning, a.rate, stop, written))
        loader.start()
        # Every key has items, in a slice of its own.
        while written.value < 2 * a.turning and loader.is_alive():
            time.sleep(0.05)
        client_stop = multiprocessing.Event()
        client = multiprocessing.Process(target=probe, args=(running.port, a.turning, client_stop, results))
        client.start()
        before, began = written.value, time.time()
        time.sleep(a.seconds)
        rate = (written.value - before) / (time.time() - began)
        client_stop.set()
        times = array.array("d", results.get())
        client.join()
        stop.set()
        loader.join()
        show_delays(f"{what}, {rate:.0f} writes a second beside it", sorted(times))
        return max(times) * 1e3


def turn(a):
    # In turn, so that what else the machine does meets both.
    turning, still = [], []
    for _ in range(a.runs):
        still.append(longest_reply(a, 40 * 86_400, "without a turn"))
        turning.append(longest_reply(a, 20, f"{a.turning} keys turn every 5 s"))
    mine, most = statistics.median(turning), max(FLOOR_MS, 2 * statistics.median(still))
    shown = lambda values: " ".join(f"{value:.2f}" for value in values)
    return verdict(f"{a.turning} keys turn in the same second: longest reply, each time, ms {shown(turning)}; without a turn {shown(still)}; "
                   f"ratio of the medians {mine / statistics.median(still):.2f}; demanded: at most {most:.2f} ms", mine <= most)


PARTS = {"memory": memory, "cpu": cpu, "turn": turn}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=["all"], metavar="part", help="memory, cpu, turn, all (default: all)")
    parser.add_argument("--users", type=int, default=2_000_000, help="of memory (default: 2000000)")
    parser.add_argument("--peer-users", type=int, default=500_000, help="of memory, with RedisBloom at most (default: 500000)")
    parser.add_argument("--cpu-users", type=int, help="of cpu (default: as of memory, at most 1000000)")
    parser.add_argument("--n", type=int, default=1_000_000, help="commands of a run of cpu")
    parser.add_argument("--filled", type=int, default=FILLED, help="items a user of cpu (default: 450)")
    parser.add_argument("--runs", type=int, default=3, help="pairs of cpu, and of turn")
    parser.add_argument("--turning", type=int, default=TURNING, help="keys that turn")
    parser.add_argument("--rate", type=int, default=50_000, help="writes a second of turn")
    parser.add_argument("--seconds", type=float, default=20, help="of each measurement of turn")
    parser.add_argument("--warm", type=float, default=4, help="gigabytes touched beforehand")
    parser.add_argument("--ours", default=OURS)
    parser.add_argument("--peer")
    a = parser.parse_args()
    unknown = set(a.what) - {*PARTS, "all"}
    if unknown:
        parser.error(f"no part {', '.join(sorted(unknown))}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as an exception it ends the servers too
    run_parts(PARTS, a)


if __name__ == "__main__":
    main()
