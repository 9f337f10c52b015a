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
A combination that misses one of the two is measured once more with three times as many turns, and those count: whatever
else begins or ends on the machine changes single turns by a factor of two.
"""
import argparse
import itertools
import os
import statistics
import sys

sys.dont_write_bytecode = True
import measure  # noqa: E402

CAPACITIES = (100_000, 100_000_000, 400_000_000)
AT_LARGEST_AT_LEAST = 0.60
COMMANDS = {(False, 1): "BF.EXISTS", (False, 20): "BF.MEXISTS", (True, 1): "BF.ADD", (True, 20): "BF.MADD"}
# So that a turn takes about half a second, and adds bring the filter for 1e8 only a twentieth of its items.
COMMANDS_A_TURN = {(1, 1): 15_000, (1, 50): 40_000, (20, 1): 10_000, (20, 50): 25_000}
# Rates are commands a second; "of 1e5" is the share of the rate on the smallest filter, ours and the peer's; ns are the
# server's CPU an item, and CPU their ratio.
TITLES = "full command items clients capacity ours/s peer/s ratio of-1e5 peer's ours-ns peer-ns CPU".split()
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


def judge(share, adds, items, clients, turns):
    """The printed row of each capacity, and what is required of it: (name, rate to the peer's, share of the smallest's or None)."""
    rows, judged = [], []
    for capacity in CAPACITIES:
        ours, peer = turns[capacity, 0], turns[capacity, 1]
        ratio, cpu = median_ratio(ours, peer), median_ratio(ours, peer, 1)
        relative = [median_ratio(turns[capacity, i], turns[CAPACITIES[0], i]) for i in (0, 1)]
        middle = [statistics.median(t[field] for t in figures) for field in (0, 1) for figures in (ours, peer)]
        size = f"{capacity:.0e}".replace("e+0", "e")
        figures = [f"{x:.0f}" for x in middle[:2]] + [f"{x:.2f}" for x in (ratio, *relative)] + [f"{x:.0f}" for x in middle[2:]]
        rows.append(ROW.format(f"{share:.0%}", COMMANDS[adds, items], items, clients, size, *figures, f"{cpu:.2f}"))
        name = f"{COMMANDS[adds, items]}, {items} items, {clients} clients, {size}, {share:.0%} full"
        judged.append((name, ratio, relative[0] if capacity == CAPACITIES[-1] else None))
    return rows, judged


def misses(row, margin):
    _, ratio, relative = row
    return ratio < 1 - margin or (relative is not None and relative < AT_LARGEST_AT_LEAST)


def measure_and_judge(servers, runs, margin, share, *which):
    rows, judged = judge(share, *which, combination(servers, runs, *which))
    if any(misses(row, margin) for row in judged):
        rows, judged = judge(share, *which, combination(servers, 3 * runs, *which))
        rows[-1] += "  (measured again)"
    print("\n".join(rows), flush=True)
    return judged


def verdict(judged, margin):
    name, relative = min(((n, r) for n, _, r in judged if r is not None), key=lambda pair: pair[1])
    print(f"\nlowest rate at {CAPACITIES[-1]:,} items as a share of that at {CAPACITIES[0]:,}: {relative:.2f} ({name}); "
          f"required {AT_LARGEST_AT_LEAST:.2f}")
    lowest, ratio, _ = min(judged, key=lambda row: row[1])
    print(f"lowest ratio to the peer's rate: {ratio:.2f} ({lowest}); required 1 less a margin of {margin}")
    missed = [row[0] for row in judged if misses(row, margin)]
    print(f"rows: {len(judged)}; within the margin below the peer: {sum(1 - margin <= row[1] < 1 for row in judged)}; "
          f"misses: {'; '.join(missed) or 'none'}")
    return not missed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", default=measure.OURS)
    parser.add_argument("--peer", default=None)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--margin", type=float, default=0.05)
    a = parser.parse_args()
    judged = []
    with measure.both(a.ours, a.peer) as servers:
        print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; rates mean little where others are busy")
        print(ROW.format(*TITLES))
        for share in (0.5, 0.9):
            for server, capacity in itertools.product(servers, CAPACITIES):
                server.call("DEL", capacity)
                server.fill(str(capacity), capacity, share, known(capacity))
            for adds, items, clients in itertools.product((False, True), (1, 20), (1, 50)):
                judged += measure_and_judge(servers, a.runs, a.margin, share, adds, items, clients)
    sys.exit(0 if verdict(judged, a.margin) else 1)


if __name__ == "__main__":
    main()
