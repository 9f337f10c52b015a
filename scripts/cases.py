#!/usr/bin/env python3
"""Speed on filters larger than the processor's caches, with RedisBloom beside SeenDB in the same run.

Filters at 1 % for 1e5, 1e8 and 4e8 items (0.1, 138 and 551 MB), as full as with half and with nine tenths of their items; 1
and 20 items a command, 1 and 50 clients, one command a write. For each combination the servers and the sizes take turns, so
that what else the machine does hits all alike; figures are medians over --runs turns, ratios the medians of the turns' ratios.

Checks ask known and new items in equal shares, adds bring new items; only the smallest filter, which has no room for a
million of them, is given the same few thousand again and again, which is less work: it sets the standard high.

Ends with status 1 unless, for every combination,
  * SeenDB's rate with 4e8 items is at least 60 % of its rate with 1e5;
  * SeenDB's rate is not below RedisBloom's. On a machine where the load generator and the server share the cores, rates of
    equal programs differ by a few per cent: a ratio counts as below only by more than --margin.
"""
import argparse
import itertools
import statistics
import sys

sys.dont_write_bytecode = True
import measure  # noqa: E402

CAPACITIES = (100_000, 100_000_000, 400_000_000)
AT_LARGEST_AT_LEAST = 0.60
COMMANDS = {(False, 1): "BF.EXISTS", (False, 20): "BF.MEXISTS", (True, 1): "BF.ADD", (True, 20): "BF.MADD"}
# So that a turn takes about half a second. Nine tenths stay nine tenths: adds bring the filter for 1e8 five more of a hundred.
COMMANDS_A_TURN = {(1, 1): 15_000, (1, 50): 40_000, (20, 1): 10_000, (20, 50): 25_000}
TITLES = ("full", "command", "items", "clients", "capacity", "ours/s", "peer/s", "ratio", "of 1e5", "peer's", "ours ns", "peer ns", "CPU")
ROW = "{:>4} {:<11}{:>5} {:>7} {:>8} {:>9} {:>9} {:>6} {:>6} {:>6} {:>8} {:>8} {:>5}"


def known(capacity):
    return min(measure.KNOWN, capacity // 20)


def turn(server, capacity, adds, items, clients):
    """Commands per second, and nanoseconds of the server's CPU an item."""
    keyspace = 2_000_000_000 if adds and capacity > CAPACITIES[0] else 2 * known(capacity)
    words = [COMMANDS[adds, items], str(capacity)] + ["item:__rand_int__"] * items
    rate, cpu_us = measure.benchmark(server, COMMANDS_A_TURN[items, clients], clients, 1, keyspace, *words)
    return rate, cpu_us * 1000 / items


def combination(servers, runs, adds, items, clients):
    """For each capacity and server the figures of all turns; the first turn, with cold caches, does not count."""
    turns = {(capacity, i): [] for capacity in CAPACITIES for i in range(len(servers))}
    for run in range(runs + 1):
        for (capacity, i), figures in turns.items():
            figure = turn(servers[i], capacity, adds, items, clients)
            if run:
                figures.append(figure)
    return turns


def median_ratio(above, below, field=0):
    return statistics.median(a[field] / b[field] for a, b in zip(above, below))


def report(share, adds, items, clients, turns):
    """Prints the rows of a combination; the ratios to judge: (name, to the peer, to the smallest filter or None)."""
    judged = []
    for capacity in CAPACITIES:
        ours, peer = turns[capacity, 0], turns[capacity, 1]
        ratio, cpu = median_ratio(ours, peer), median_ratio(ours, peer, 1)
        relative = [median_ratio(turns[capacity, i], turns[CAPACITIES[0], i]) for i in (0, 1)]
        middle = [statistics.median(t[field] for t in figures) for field in (0, 1) for figures in (ours, peer)]
        command = COMMANDS[adds, items]
        print(ROW.format(f"{share:.0%}", command, items, clients, f"{capacity:.0e}".replace("e+0", "e"), f"{middle[0]:.0f}", f"{middle[1]:.0f}",
                         f"{ratio:.2f}", f"{relative[0]:.2f}", f"{relative[1]:.2f}", f"{middle[2]:.0f}", f"{middle[3]:.0f}", f"{cpu:.2f}"), flush=True)
        name = f"{command} x{items}, {clients} clients, {capacity:,} items, {share:.0%} full"
        judged.append((name, ratio, relative[0] if capacity == CAPACITIES[-1] else None))
    return judged


def verdict(judged, margin):
    name, relative = min(((n, r) for n, _, r in judged if r is not None), key=lambda pair: pair[1])
    print(f"\nlowest rate at {CAPACITIES[-1]:,} items as a share of that at {CAPACITIES[0]:,}: {relative:.2f} ({name}); "
          f"required {AT_LARGEST_AT_LEAST:.2f}")
    lowest, ratio, _ = min(judged, key=lambda row: row[1])
    print(f"lowest ratio to the peer's rate: {ratio:.2f} ({lowest}); required 1 less a margin of {margin}")
    below = [row for row in judged if row[1] < 1 - margin]
    print(f"combinations: {len(judged)}; below the peer by more than the margin: {len(below)}, "
          f"by less: {sum(1 - margin <= row[1] < 1 for row in judged)}")
    return relative >= AT_LARGEST_AT_LEAST and not below


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", default=measure.OURS)
    parser.add_argument("--peer", default=None)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--margin", type=float, default=0.05)
    a = parser.parse_args()
    judged = []
    with measure.both(a.ours, a.peer) as servers:
        print(ROW.format(*TITLES))
        for share in (0.5, 0.9):
            for server, capacity in itertools.product(servers, CAPACITIES):
                server.call("DEL", capacity)
                server.fill(str(capacity), capacity, share, known(capacity))
            for adds, items, clients in itertools.product((False, True), (1, 20), (1, 50)):
                judged += report(share, adds, items, clients, combination(servers, a.runs, adds, items, clients))
    sys.exit(0 if verdict(judged, a.margin) else 1)


if __name__ == "__main__":
    main()
