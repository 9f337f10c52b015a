#!/usr/bin/env python3
"""Side-by-side measurements of SeenDB and a real RedisBloom, in one run on one machine.

  measure.py pipeline   server CPU per command at 64 commands a write, 50 clients
  measure.py single     the same with one command a write
  measure.py batch      server CPU per item of MADD and MEXISTS with 1000 items, on a filter five times as large
  measure.py memory     resident bytes per key of many small filters
  measure.py all

The peer is redis-server with the RedisBloom module, as scripts/peer makes it available. Ours is target/release/seendb of this
repository, or --ours 'COMMAND with {port} {dir}'.
Both filters are first given the same random bits (BF.LOADCHUNK), half of them set as in a filter at its capacity; then
1,000,000 known items are added, and checks ask known and new items in equal shares. CPU is the run time of the
server's threads in nanoseconds (schedstat), not ticks. Each figure is the median of --runs pairs of back-to-back runs, with
the spread of their ratio. --at-most X exits 1 above X.
"""
import argparse
import contextlib
import glob
import math
import os
import random
import re
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OURS = ROOT + "/target/release/seendb --port {port} --dir {dir}"
KNOWN = 1_000_000


def peer_module():
    peer = os.path.join(ROOT, "scripts", "peer")
    return subprocess.run([peer], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def encode(args):
    return b"*%d\r\n" % len(args) + b"".join(b"$%d\r\n%s\r\n" % (len(a), a) for a in args)


def item(n):
    return b"item:%012d" % n


class Server:
    def __init__(self, command, port):
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind(("127.0.0.1", port))
            except OSError as error:
                raise SystemExit(f"port {port}: {error.strerror}; another measurement may be running, end it first") from None
        self.port, self.dir = port, tempfile.mkdtemp(prefix="measure-")
        self.log = open(self.dir + "/log", "w")
        command = command.format(port=port, dir=self.dir)
        self.process = subprocess.Popen(command.split(), stdout=self.log, stderr=self.log, cwd=self.dir)
        for _ in range(100):
            try:
                self.socket = socket.create_connection(("127.0.0.1", port), timeout=300)
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return
            except OSError:
                time.sleep(0.1)
        raise SystemExit(f"no answer on port {port}: {command}\n" + open(self.dir + "/log").read()[-2000:])

    def cpu_ns(self):
        total = 0
        for path in glob.glob(f"/proc/{self.process.pid}/task/*/schedstat"):
            try:
                total += int(open(path).read().split()[0])
            except OSError:
                pass
        return total

    def rss(self):
        return int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{self.process.pid}/status").read())[1]) * 1024

    def call(self, *args):
        self.socket.sendall(encode([a if isinstance(a, bytes) else str(a).encode() for a in args]))
        reply = self.socket.recv(65536)  # short replies only: each comes in one piece
        if reply.startswith(b"-"):
            raise SystemExit(f"port {self.port}: {[str(a)[:40] for a in args]}: {reply!r}")
        return reply

    def lines(self, n):
        got = 0
        while got < n:
            data = self.socket.recv(1 << 20)
            if not data:
                raise SystemExit(f"port {self.port} closed the connection")
            got += data.count(b"\r\n")

    def fill(self, key, capacity, share=1.0, known=KNOWN):
        """A filter for `capacity` items at 1 % with as many bits set as if `share` of its capacity were used; the items numbered
        below `known` are in it. It counts only these, so that adds do not make it grow."""
        self.call("BF.RESERVE", key, "0.01", capacity)
        header = self.call("BF.SCANDUMP", key, 0)
        header = header[header.index(b"\r\n", header.index(b"$")) + 2:]
        total, bits = struct.unpack_from("<QQ", header, 20)
        hashes, entries = struct.unpack_from("<IQ", header, 60)
        others = max(0, share * entries - known)
        block, done = random_bits(8 << 20, 1 - math.exp(-hashes * others / bits)), 0
        while done < total:
            piece = block[: min(len(block), total - done)]
            done += len(piece)
            self.call("BF.LOADCHUNK", key, 1 + done, piece)
        for start in range(0, known, 1000):
            self.socket.sendall(encode([b"BF.MADD", key.encode()] + [item(i) for i in range(start, start + 1000)]))
            self.lines(1001)

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
        shutil.rmtree(self.dir, ignore_errors=True)


def random_bits(length, share):
    """`length` bytes in which each bit is set with the probability `share`, given to 16 binary digits; always the same ones."""
    stream, digits, block = random.Random(7), round(share * 65536), 0
    for place in range(16):
        mask = int.from_bytes(stream.randbytes(length), "little")
        block = block | mask if digits >> place & 1 else block & mask
    return block.to_bytes(length, "little")


def benchmark(server, n, clients, pipeline, keyspace, *command):
    """Commands per second and the server's CPU per command, in microseconds."""
    before = server.cpu_ns()
    out = subprocess.run(["redis-benchmark", "-q", "-p", str(server.port), "-n", str(n), "-P", str(pipeline), "-c", str(clients),
                          "-r", str(keyspace), *command], capture_output=True, text=True)
    cpu_us = (server.cpu_ns() - before) / n / 1e3
    rates = re.findall(r"([\d.]+) requests per second", out.stdout)
    if not rates:
        raise SystemExit(f"redis-benchmark said: {out.stdout[-300:]} {out.stderr[-300:]}")
    return float(rates[-1]), cpu_us


def items_ns(server, command, key, items, rounds, seed):
    rng, total = random.Random(seed), 0
    for _ in range(rounds):
        if command == b"BF.MEXISTS":
            names = [item(rng.randrange(KNOWN)) if i & 1 else item(2 * 10**11 + rng.randrange(10**11)) for i in range(items)]
        else:
            names = [item(3 * 10**11 + rng.randrange(10**11)) for _ in range(items)]
        request = encode([command, key] + names)
        before = server.cpu_ns()
        server.socket.sendall(request)
        server.lines(items + 1)
        total += server.cpu_ns() - before
    return total / items / rounds


def small_filters(server, n, batch=1000):
    before = server.rss()
    for start in range(0, n, batch):
        server.socket.sendall(b"".join(
            encode([b"BF.RESERVE", b"user:%d" % i, b"0.02", b"100"]) + encode([b"BF.ADD", b"user:%d" % i, b"x"])
            for i in range(start, start + batch)))
        server.lines(2 * batch)
    return (server.rss() - before) / n


@contextlib.contextmanager
def both(ours, peer):
    """Our server and the peer, started by these commands; both end with the block."""
    peer = peer or "redis-server --port {port} --dir {dir} --save --loadmodule " + peer_module()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as an exception it ends the servers too
    with contextlib.ExitStack() as stack:
        servers = []
        for command, port in ((ours, 17171), (peer, 17172)):
            servers.append(Server(command, port))
            stack.callback(servers[-1].stop)
        yield servers


def compare(name, runs, ours, peer, measure, at_most):
    measure(ours, 0), measure(peer, 0)  # not counted: fresh pages, cold caches
    pairs = [(measure(ours, i), measure(peer, i)) for i in range(1, runs + 1)]
    ratios = sorted(a / b for a, b in pairs)
    ratio = statistics.median(ratios)
    print(f"{name}: ours {statistics.median(a for a, _ in pairs):.3f} peer {statistics.median(b for _, b in pairs):.3f} "
          f"ratio {ratio:.3f} ({ratios[0]:.3f}..{ratios[-1]:.3f})" + (f", at most {at_most}" if at_most else ""), flush=True)
    return at_most is None or ratio <= at_most


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["pipeline", "single", "batch", "memory", "all"])
    parser.add_argument("--ours", default=OURS)
    parser.add_argument("--peer", default=None)
    parser.add_argument("--command", help="only this one, e.g. BF.MADD")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--capacity", type=int, default=100_000_000)
    parser.add_argument("--at-most", type=float)
    a = parser.parse_args()
    ok = True
    with both(a.ours, a.peer) as (ours, peer):
        if a.what in ("pipeline", "single", "all"):
            ours.fill("big", a.capacity)
            peer.fill("big", a.capacity)
            for kind, pipeline, n in (("pipeline", 64, a.n), ("single", 1, max(50_000, a.n // 10))):
                if a.what in (kind, "all"):
                    for command, keyspace in (("BF.EXISTS", 2 * KNOWN), ("BF.ADD", 2_000_000_000)):
                        if a.command not in (None, command):
                            continue
                        words = (command, "big", "item:__rand_int__")
                        ok &= compare(f"{command} pipeline {pipeline}, server CPU us/command", a.runs, ours, peer,
                                      lambda s, i: benchmark(s, n, 50, pipeline, keyspace, *words)[1], a.at_most)
        if a.what in ("batch", "all"):
            ours.fill("huge", 5 * a.capacity)
            peer.fill("huge", 5 * a.capacity)
            for command in (b"BF.MEXISTS", b"BF.MADD"):
                if a.command not in (None, command.decode()):
                    continue
                ok &= compare(f"{command.decode()} x1000, server CPU ns/item", a.runs, ours, peer,
                              lambda s, i: items_ns(s, command, b"huge", 1000, 1000, i), a.at_most)
        if a.what in ("memory", "all"):
            mine, other = small_filters(ours, a.n), small_filters(peer, a.n)
            print(f"resident bytes per small filter: ours {mine:.1f} peer {other:.1f} ratio {mine / other:.3f}")
            ok &= a.at_most is None or mine / other <= a.at_most
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
