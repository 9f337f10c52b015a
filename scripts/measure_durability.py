#!/usr/bin/env python3
"""What saving and logging cost, and what others notice of it; RedisBloom beside SeenDB in the same run.

  measure_durability.py stall      longest replies while a snapshot is written (filter of 1.2 GB): C101's timed part
  measure_durability.py snapshot   ten million small filters: time of SAVE and of a start
  measure_durability.py log        server CPU of BF.ADD at 64 a write with the log, synced each second
  measure_durability.py always     writes per second of 50 clients under 'always', plain and with 5 ms more a sync
  measure_durability.py rewrite    a filter of 300 MB in the log that is rewritten: pings, memory (C071)
  measure_durability.py slow       a disk with 300 ms a sync under the log: pings, changes at risk, log lines (C108)
  measure_durability.py busy       100 adds a second while snapshots and rewrites follow each other (C109)
  measure_durability.py pause      2 GB, 20 items a command, a pause, 100 commands more (C106)
  measure_durability.py all        all of these

Times of replies are seen from one client. Each line of figures ends with what was demanded; the exit status is 1 if one
demand was not met. The server is target/release/seendb of this repository, or --ours 'COMMAND with {port} {dir}'.
"""
import argparse
import mmap
import os
import pathlib
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import measure
from measure import ROOT, Server, encode, item

PORT = 17191
PEER = "redis-server --port {port} --dir {dir} --loadmodule "
failed = []


def demand(line, met, what):
    print(f"{line}; demanded: {what}{'' if met else '  NOT MET'}", flush=True)
    if not met:
        failed.append(line)


def info(server, name):
    server.socket.sendall(encode([b"INFO"]))
    data = b""
    while True:
        data += server.socket.recv(1 << 20)
        head = re.match(rb"\$(\d+)\r\n", data)
        if head and len(data) >= head.end() + int(head[1]) + 2:
            break
    found = re.search(rb"^%s:(.*?)\r$" % name.encode(), data, re.M)
    return found[1].decode() if found else ""


def number(server, name):
    return int(info(server, name) or 0)


def ready(server):
    """The server, when it has loaded its data."""
    while True:
        server.socket.sendall(encode([b"PING"]))
        if server.socket.recv(200).startswith(b"+PONG"):
            return server
        time.sleep(0.05)


def wait_while(server, name):
    while number(server, name):
        time.sleep(0.05)


# What others notice of a snapshot

def timed(server, request, lines=1):
    start = time.perf_counter()
    server.socket.sendall(request)
    server.lines(lines)
    return (time.perf_counter() - start) * 1e3


def probe(server, until, rng):
    times = []
    while not until():
        for key in (b"large", b"small"):
            times.append(timed(server, encode([b"BF.ADD", key, b"%d" % rng.randrange(10**12)])))
    times.sort()
    return times[len(times) // 2], times[int(len(times) * 0.999)], times[-1]


def saving(server):
    """A function that says whether the BGSAVE begun now is still running."""
    time.sleep(1.1)  # LASTSAVE counts seconds
    mark, next_look, state = server.call("LASTSAVE"), [0.0], [True]
    server.call("BGSAVE")

    def running():
        if time.time() > next_look[0]:
            next_look[0] = time.time() + 0.1
            state[0] = server.call("LASTSAVE") == mark
        return state[0]
    return running


def madd(server, rng):
    words = [b"BF.MADD", b"large"] + [b"%d" % rng.randrange(10**12) for _ in range(1000)]
    return timed(server, encode(words), 1001)


def stall_of(name, command, megabytes, runs):
    server, rng = Server(command, PORT), random.Random(3)
    try:
        server.fill("large", int(megabytes * 8e6 / 11.03), 1.0, 1000)
        without, during = [], []
        for _ in range(runs):
            end = time.time() + 3
            without.append(probe(server, lambda: time.time() > end, rng))
            running = saving(server)
            during.append(probe(server, lambda: not running(), rng))
        plain = statistics.median(madd(server, rng) for _ in range(300))
        before, running, batches, peak = server.rss(), saving(server), [], 0
        for i in range(1000):
            batches.append(madd(server, rng))
            if i % 20 == 0:
                peak = max(peak, server.rss())
                running()
        a, b = ([round(statistics.median(row[i] for row in rows), 3) for i in range(3)] for rows in (without, during))
        slow, extra = statistics.median(batches) / plain, (peak - before) / 1e6
        line = (f"{name}: p50 p99.9 longest ms without {a}, during BGSAVE {b}; MADD x1000 {plain:.2f} ms, "
                f"during {slow:.2f} times, longest {max(batches):.1f} ms; memory +{extra:.0f} MB")
        return line, b[1] <= 1.0 and b[2] <= max(5.0, 2 * a[2]) and slow <= 3 and extra <= 200
    finally:
        server.stop()


def stall(a):
    line, met = stall_of("SeenDB", a.ours, a.megabytes, a.runs)
    demand(line, met, "p99.9 <= 1 ms, longest <= max(5 ms, twice that without), MADD <= 3 times, memory <= 200 MB")
    print(stall_of("RedisBloom", PEER + measure.peer_module() + " --save", a.megabytes, a.runs)[0], flush=True)


# Saving and loading many small filters

def fill_small(server, keys):
    """Filters for 50 items at 1 %, one item in each, in pipelines."""
    for start in range(0, keys, 5000):
        requests = []
        for i in range(start, min(start + 5000, keys)):
            name = b"user:%09d" % i
            requests.append(encode([b"BF.RESERVE", name, b"0.01", b"50"]))
            requests.append(encode([b"BF.ADD", name, b"%d" % (i % 99991)]))
        server.socket.sendall(b"".join(requests))
        server.lines(len(requests))


def restart(server, command):
    """Kill it and start it in the same folder; seconds until it answers."""
    server.process.kill()
    server.process.wait()
    begun = time.perf_counter()
    server.process = subprocess.Popen(command.format(port=server.port, dir=server.dir).split(), stdout=server.log,
                                      stderr=server.log, cwd=server.dir)
    while True:
        try:
            server.socket = socket.create_connection(("127.0.0.1", server.port), timeout=300)
            server.socket.sendall(encode([b"PING"]))
            if server.socket.recv(100).startswith(b"+PONG"):
                return time.perf_counter() - begun
        except OSError:
            pass
        time.sleep(0.02)


def snapshot_times(command, keys, runs):
    server = Server(command, PORT)
    try:
        fill_small(server, keys)
        save = statistics.median(timed(server, encode([b"SAVE"])) / 1e3 for _ in range(runs))
        size = os.path.getsize(server.dir + "/dump.rdb")
        load = statistics.median(restart(server, command) for _ in range(runs))
        if server.call("DBSIZE") != b":%d\r\n" % keys:
            raise SystemExit("keys are missing after the start")
        return save, load, size
    finally:
        server.stop()


def snapshot(a):
    ours = snapshot_times(a.ours + " --save", a.keys, a.runs)
    peer = snapshot_times(PEER + measure.peer_module() + " --save", a.keys, a.runs)
    save, load = ours[0] / peer[0], ours[1] / peer[1]
    demand(f"snapshot of {a.keys} small filters: SAVE {ours[0]:.2f} s of {peer[0]:.2f} s ({save:.2f}), start {ours[1]:.2f} s of "
           f"{peer[1]:.2f} s ({load:.2f}), file {ours[2] / 1e6:.0f} of {peer[2] / 1e6:.0f} MB", save <= 0.5 and load <= 0.5,
           "both at most 0.50 of RedisBloom's")


# The log

LOGGED = " --save --appendonly yes --appendfsync "


def log(a):
    ratios, figures = [], []
    ours, peer = Server(a.ours + LOGGED + "everysec", PORT), Server(PEER + measure.peer_module() + LOGGED + "everysec", PORT + 1)
    try:
        for server in (ours, peer):
            server.call("BF.RESERVE", "k", "0.01", 100_000_000)
        for _ in range(a.runs + 1):
            pair = [measure.benchmark(s, 1_000_000, 50, 64, 2_000_000_000, "BF.ADD", "k", "item:__rand_int__")[1]
                    for s in (ours, peer)]
            figures.append(pair)
            ratios.append(pair[0] / pair[1])
        ratio = statistics.median(ratios[1:])
        middle = [statistics.median(pair[i] for pair in figures[1:]) for i in (0, 1)]
        demand(f"log, everysec: BF.ADD at 64 a write {middle[0]:.3f} us of CPU, RedisBloom {middle[1]:.3f} us, ratio {ratio:.3f}",
               ratio <= 0.55, "at most 0.55")
    finally:
        ours.stop()
        peer.stop()


def shim(folder):
    """The library that makes syncs slow."""
    path = folder + "/slow_sync.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", path, ROOT + "/benches/slow_sync.c", "-ldl"], check=True)
    return path


def slowed(command, library, milliseconds):
    return f"env SLOW_SYNC_MS={milliseconds} LD_PRELOAD={library} {command}"


def always_rates(command, runs, count):
    server = ready(Server(command, PORT))
    try:
        server.call("BF.RESERVE", "k", "0.01", 10_000_000)
        before = number(server, "aof_syncs"), number(server, "total_commands_processed")
        rates = [measure.benchmark(server, count, 50, 1, 2_000_000_000, "BF.ADD", "k", "item:__rand_int__")[0] for _ in range(runs)]
        syncs, commands = number(server, "aof_syncs") - before[0], number(server, "total_commands_processed") - before[1]
        return statistics.median(rates), commands / max(syncs, 1)
    finally:
        server.stop()


def always(a):
    peer = PEER + measure.peer_module() + LOGGED + "always"
    with tempfile.TemporaryDirectory() as folder:
        library = shim(folder)
        for milliseconds, least, count in ((0, 1.0, 30_000), (5, 0.95, 10_000)):
            ours_command, peer_command = (slowed(c, library, milliseconds) for c in (a.ours + LOGGED + "always", peer))
            ours, theirs = [], []
            for _ in range(a.runs):
                ours.append(always_rates(ours_command, 1, count))
                theirs.append(always_rates(peer_command, 1, count)[0])
            ratio = statistics.median(o[0] / t for o, t in zip(ours, theirs))
            group = statistics.median(o[1] for o in ours)
            demand(f"log, always, {milliseconds} ms more a sync: {statistics.median(o[0] for o in ours):.0f} writes/s, RedisBloom "
                   f"{statistics.median(theirs):.0f}, ratio {ratio:.2f}; {group:.1f} writes a sync",
                   ratio >= least and (milliseconds == 0 or group >= 20), f"ratio at least {least}" + (
                       "" if milliseconds == 0 else ", 20 writes a sync or more"))


def pings(port, until, gap=0.001):
    """Longest PING until then, on a connection of its own."""
    link, longest = socket.create_connection(("127.0.0.1", port), timeout=60), 0
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while not until():
        start = time.perf_counter()
        link.sendall(encode([b"PING"]))
        link.recv(100)
        longest = max(longest, (time.perf_counter() - start) * 1e3)
        time.sleep(gap)
    return longest


def in_thread(work):
    result = []
    thread = threading.Thread(target=lambda: result.append(work()))
    thread.start()
    return thread, result


def rewrite(a):
    server = Server(a.ours + LOGGED + "everysec", PORT)
    try:
        server.fill("k", int(300 * 8e6 / 11.03), 1.0, 1000)
        time.sleep(1)
        before, peak, done = server.rss(), 0, []
        thread, longest = in_thread(lambda: pings(server.port, lambda: bool(done)))
        server.call("BGREWRITEAOF")
        while number(server, "aof_rewrite_in_progress"):
            peak = max(peak, server.rss())
            time.sleep(0.01)
        done.append(True)
        thread.join()
        info_before = server.call("BF.CARD", "k")
        seconds = restart(server, a.ours + LOGGED + "everysec")
        same = server.call("BF.CARD", "k") == info_before
        extra = max(0, peak - before) / 1e6
        demand(f"C071: 300 MB in the log rewritten: longest ping {longest[0]:.1f} ms, memory +{extra:.0f} MB, loaded again in {seconds:.2f} s",
               longest[0] <= 100 and extra <= 64 and same, "ping <= 100 ms, memory <= 64 MB, the log loads")
    finally:
        server.stop()


def slow(a):
    with tempfile.TemporaryDirectory() as folder:
        server = ready(Server(slowed(a.ours + LOGGED + "everysec", shim(folder), 300), PORT))
        try:
            server.call("BF.RESERVE", "k", "0.01", 10_000_000)
            end, risk, rng = time.time() + a.seconds, 0, random.Random(1)
            thread, longest = in_thread(lambda: pings(server.port, lambda: time.time() > end))
            while time.time() < end:
                madds = encode([b"BF.MADD", b"k"] + [item(rng.randrange(10**11)) for _ in range(100)])
                timed(server, madds, 101)
                risk = max(risk, number(server, "aof_unsynced_milliseconds"))
            thread.join()
            lag = info(server, "aof_last_sync_milliseconds")
            lines = len(open(server.dir + "/log").read().splitlines())
            demand(f"C108: 300 ms a sync, {a.seconds} s of adds: longest ping {longest[0]:.1f} ms, oldest unsynced change {risk} ms, last sync "
                   f"{lag} ms by INFO, {lines} lines in the server's log", longest[0] <= 100 and risk <= 2000 and int(lag) >= 300,
                   "ping <= 100 ms, at most 2 s at risk, lag in INFO")
        finally:
            server.stop()


def busy(a):
    server = Server(a.ours + LOGGED + "everysec", PORT)
    try:
        server.fill("large", 50_000_000, 1.0, 1000)
        fill_small(server, 200_000)
        end, times, rng = time.time() + a.seconds, [], random.Random(1)
        other, next_task = socket.create_connection(("127.0.0.1", PORT)), 0
        tasks = [b"BGSAVE", b"BGREWRITEAOF"]
        while time.time() < end:
            if time.time() >= next_task:
                other.sendall(encode([tasks[0]]))
                tasks.reverse()
                next_task = time.time() + 2.5
            times.append(timed(server, encode([b"BF.ADD", rng.choice([b"large", b"user:%09d" % rng.randrange(200_000)]), b"%d" % rng.randrange(10**9)])))
            time.sleep(0.01)
        demand(f"C109: 100 adds a second for {a.seconds} s, BGSAVE and BGREWRITEAOF every 5 s: {len(times)} adds, longest {max(times):.1f} ms",
               max(times) <= 100, "no disconnect, none later than 100 ms")
    finally:
        server.stop()


def keep_in_place(pid, until):
    """Reads all memory of a process from outside, again and again, so that the machine does not take it away as unused. The process
    itself does nothing for it."""
    piece = bytearray(1 << 20)
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        while time.monotonic() < until:
            for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
                start, end = (int(word, 16) for word in line.split()[0].split("-"))
                if line.split()[1][0] == "r" and "[v" not in line:
                    for at in range(start, end, len(piece)):
                        try:
                            os.preadv(memory.fileno(), [memoryview(piece)[:min(len(piece), end - at)]], at)
                        except OSError:
                            break
            time.sleep(5)


def pause(a):
    # Plain memory tells what the machine does to what nobody uses.
    size = 1 << 30
    plain = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for page in range(0, size, 4096):
        plain[page] = 1
    server = Server(a.ours + " --save", PORT)
    try:
        server.fill("k", int(2000 * 8e6 / 11.03), 1.0, 1000)
        rng = random.Random(2)

        def commands(count):
            longest = 0
            for i in range(count):
                verb = (b"BF.MADD", b"BF.MEXISTS")[i % 2]
                longest = max(longest, timed(server, encode([verb, b"k"] + [item(rng.randrange(10**11)) for _ in range(20)]), 21))
            return longest

        def touch_us(count):
            places = [rng.randrange(size) for _ in range(count)]
            start = time.perf_counter()
            for place in places:
                plain[place] = 2
            return (time.perf_counter() - start) * 1e6 / count
        before, plain_before = commands(2000), touch_us(1000)
        keep_in_place(server.process.pid, time.monotonic() + a.pause)
        after, plain_after = commands(100), touch_us(1000)
        demand(f"C106: 2 GB, 20 items a command, pause of {a.pause} s, all memory read from outside every five seconds: longest of 2000 before "
               f"{before:.1f} ms, of 100 after {after:.1f} ms (plain memory that nobody read: {plain_before:.1f} us a place before, {plain_after:.1f} after)",
               after <= 5, "none over 5 ms after the pause")
    finally:
        server.stop()


PARTS = {f.__name__: f for f in (stall, snapshot, log, always, rewrite, slow, busy, pause)}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("parts", nargs="*", default=["all"], choices=[*PARTS, "all"], metavar="part")
    p.add_argument("--ours", default=measure.OURS)
    p.add_argument("--runs", type=int, default=5)
    p.add_argument("--megabytes", type=int, default=1200)
    p.add_argument("--keys", type=int, default=10_000_000)
    p.add_argument("--seconds", type=int, default=60)
    p.add_argument("--pause", type=int, default=300)
    a = p.parse_args()
    for name in PARTS if "all" in a.parts else a.parts:
        PARTS[name](a)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
