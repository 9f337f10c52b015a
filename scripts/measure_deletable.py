#!/usr/bin/env python3
"""Filters that one can delete from, beside the cuckoo filter of a real RedisBloom, in one run on one machine.

  measure_deletable.py cpu      server CPU a command at 64 commands a write: ADD of new items, EXISTS of items of which half are there, DEL of
                                items that are there; CBF and DLCBF beside CF
  measure_deletable.py memory   bits an item of filters for --capacity items that are full, by MEMORY USAGE: DLCBF beside the CBF that finds as
                                many strangers, asked 0.01 and 0.001, and what growth costs
  measure_deletable.py all

All filters are made for --capacity items (10,000,000) and hold half of them; ours at 0.01. A run adds --n items, asks for as many, deletes those that
were added: so each begins with the same filter. CPU is the run time of the server's threads in nanoseconds; figures are the median of --runs runs,
with the spread of the ratio. Replies are counted: a wrong one ends the measurement.

Each line ends with what was demanded, and says NOT MET where it was not; the exit status is then 1. The server is target/release/seendb, or
--ours 'COMMAND with {port} {dir}'. --capacity 1000000 --n 200000 is enough to try it.
"""
import argparse
import signal
import socket
import statistics
import sys

from measure import OURS, encode, item
from measure_chain import peer_command, server, verdict
from measure_keys import run_parts

PORTS = (18391, 18392)
CONNECTIONS = 8
PIPELINE = 64
DEMANDED = {"ADD": 0.8, "EXISTS": 0.6, "DEL": 0.6}
FAMILIES = ("CBF", "DLCBF")
STRANGERS = 1_000_000
# At the same measured rate, of the bytes of CBF: by the rate that is asked for.
MOST_SHARE = {0.01: 0.55, 0.001: 0.45}


def receive(connection, replies):
    got = []
    while replies > 0:
        data = connection.recv(1 << 16)
        if not data:
            raise SystemExit("a server closed the connection")
        replies -= data.count(b"\n")
        got.append(data)
    return b"".join(got)


class Load:
    """Sends commands of one item each, 64 a write, over a few connections in turn."""

    def __init__(self, running):
        self.running, self.connections = running, []
        for _ in range(CONNECTIONS):
            connection = socket.create_connection(("127.0.0.1", running.port))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections.append(connection)

    def run(self, command, key, numbers):
        """Nanoseconds of the server's CPU a command, and how many were answered with 1."""
        head = encode([command, key, b""])[:-6]
        written = [b"%b$17\r\n%b\r\n" % (head, item(n)) for n in numbers]
        requests = [(b"".join(written[at:at + PIPELINE]), len(written[at:at + PIPELINE])) for at in range(0, len(written), PIPELINE)]
        before, yes = self.running.cpu_ns(), 0
        for at in range(0, len(requests), CONNECTIONS):
            under_way = list(zip(self.connections, requests[at:at + CONNECTIONS]))
            for connection, (request, _) in under_way:
                connection.sendall(request)
            for connection, (_, count) in under_way:
                got = receive(connection, count)
                if b"-" in got:
                    raise SystemExit(f"port {self.running.port}: {got[got.index(b'-'):][:100]!r}")
                yes += got.count(b":1")
        return (self.running.cpu_ns() - before) / len(written), yes


def fill(running, command, key, numbers):
    """In large commands; how many were refused."""
    refused = 0
    for at in range(0, len(numbers), 1000):
        names = [item(n) for n in numbers[at:at + 1000]]
        running.socket.sendall(encode([command, key, *([b"ITEMS"] if command == b"CF.INSERT" else []), *names]))
        got = receive(running.socket, len(names) + 1)
        refused += got.count(b"-")
    return refused


def reserve(running, family, capacity, error=0.01, *more):
    key = f"k:{family}:{capacity}:{error}:{len(more)}"
    words = (error, capacity, *more) if family != "CF" else (capacity,)
    running.call(f"{family}.RESERVE", key, *words)
    return key.encode()


def rounds(load, family, key, held, n, number):
    """What ADD, EXISTS and DEL take in one round."""
    new = range(held + number * n, held + (number + 1) * n)
    # As many that are there as ones that never were.
    asked = [(at // 2 * 2654435761 + number) % held if at & 1 else 10 ** 11 + number * n + at for at in range(n)]
    took = {}
    took["ADD"], added = load.run(f"{family}.ADD".encode(), key, new)
    took["EXISTS"], found = load.run(f"{family}.EXISTS".encode(), key, asked)
    took["DEL"], deleted = load.run(f"{family}.DEL".encode(), key, new)
    if deleted != n or not n // 2 <= found < n * 0.6 or added < n * 0.9:
        raise SystemExit(f"{family}: of {n}, {added} were new, {found} of {n // 2} found, {deleted} deleted")
    return took


def cpu(a):
    held, met = a.capacity // 2, True
    with server(a.ours, PORTS[0]) as ours, server(peer_command(a), PORTS[1]) as peer:
        loads = {family: (Load(ours), reserve(ours, family, a.capacity)) for family in FAMILIES}
        loads["CF"] = (Load(peer), reserve(peer, "CF", a.capacity))
        for family, (load, key) in loads.items():
            fill(load.running, b"CF.INSERT" if family == "CF" else f"{family}.MADD".encode(), key, range(held))
        took = {family: [] for family in loads}
        for number in range(a.runs + 1):
            for family, (load, key) in loads.items():
                took[family].append(rounds(load, family, key, held, a.n, number))
        for family in FAMILIES:
            for verb, most in DEMANDED.items():
                # The first round is not counted.
                mine, other = ([took[which][number][verb] for number in range(1, a.runs + 1)] for which in (family, "CF"))
                ratios = sorted(x / y for x, y in zip(mine, other))
                ratio = statistics.median(ratios)
                met &= verdict(f"{family}.{verb}, half of {a.capacity} items, server CPU ns: ours {statistics.median(mine):.0f} "
                               f"CF.{verb} {statistics.median(other):.0f} ratio {ratio:.3f} ({ratios[0]:.3f}..{ratios[-1]:.3f}); "
                               f"demanded: at most {most}", ratio <= most)
    return met


def full(running, family, capacity, error, *more, held=None):
    """Bits an item of a filter that is filled to the last of `held` items, and the share of strangers that it finds."""
    held = held or capacity
    key = reserve(running, family, capacity, error, *more)
    refused = fill(running, b"CF.INSERT" if family == "CF" else f"{family}.MADD".encode(), key, range(held))
    bits = int(running.call("MEMORY", "USAGE", key)[1:]) * 8 / held
    rate = sum(found_strangers(running, family, key)) / STRANGERS
    words = " ".join(map(str, (f"{family}.RESERVE", *((error,) if family != "CF" else ()), capacity, *more)))
    print(f"{words}: {held} items, {refused} refused, {bits:.2f} bits an item, {100 * rate:.4f} % of {STRANGERS} strangers are found",
          flush=True)
    running.call("UNLINK", key)
    return bits, rate


def found_strangers(running, family, key):
    for at in range(0, STRANGERS, 1000):
        names = [item(10 ** 11 + n) for n in range(at, at + 1000)]
        running.socket.sendall(encode([f"{family}.MEXISTS".encode(), key, *names]))
        yield receive(running.socket, len(names) + 1).count(b":1")


def memory(a):
    """Full filters; a counting filter beside each d-left filter that finds as many strangers."""
    met = True
    with server(a.ours, PORTS[0]) as ours, server(peer_command(a), PORTS[1]) as peer:
        full(peer, "CF", a.capacity, None)
        for error, most in MOST_SHARE.items():
            full(ours, "CBF", a.capacity, error)
            bits, rate = full(ours, "DLCBF", a.capacity, error)
            beside, same = full(ours, "CBF", a.capacity, rate)
            # Two that are counted once each differ by chance.
            if abs(same - rate) > 5 * (2 * rate / STRANGERS) ** 0.5 + 0.02 * rate:
                raise SystemExit(f"the counting filter finds {same:.6f} of strangers, the d-left filter {rate:.6f}")
            share = bits / beside
            met &= verdict(f"DLCBF beside CBF, asked {error}, both find {100 * rate:.4f} %: {share:.3f}; demanded: at most {most}", share <= most)
            grows, _ = full(ours, "DLCBF", a.capacity, error, "EXPANSION", 2)
            grown, _ = full(ours, "DLCBF", a.capacity // 16, error, "EXPANSION", 2, "FINAL", a.capacity * 31 // 16, held=a.capacity * 31 // 16)
            print(f"cost of growth, asked {error}: {grows / bits:.3f} of the bits at once, {grown / bits:.3f} after four growths", flush=True)
    return met


PARTS = {"cpu": cpu, "memory": memory}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=["all"], metavar="part", help="cpu, memory, all (default: all)")
    parser.add_argument("--capacity", type=int, default=10_000_000, help="items that the filters are made for (default: 10000000)")
    parser.add_argument("--n", type=int, default=500_000, help="commands of a run of cpu")
    parser.add_argument("--runs", type=int, default=5, help="rounds of cpu")
    parser.add_argument("--warm", type=float, default=0, help="gigabytes touched beforehand")
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
