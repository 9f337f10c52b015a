"""redis-py against a started server: every BF call of its own Bloom client, its transactions and its calls on keys, in RESP2
and RESP3.

  python redis_py.py PROGRAM    starts PROGRAM (seendb) on a free port, checks, stops it; exits 1 at the first wrong reply
"""
import socket
import subprocess
import sys
import tempfile
import time

import redis


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def check(what, got, expected):
    if got != expected or type(got) is not type(expected):
        raise SystemExit(f"{what}: expected {expected!r}, got {got!r}")
    check.count += 1


check.count = 0


def check_error(what, text, call):
    try:
        got = call()
    except redis.ResponseError as error:
        check(what, str(error), text)
        return
    raise SystemExit(f"{what}: expected the error {text!r}, got {got!r}")


def in_protocol(port, protocol):
    r = redis.Redis(port=port, protocol=protocol)
    # redis-py makes integers of RESP2 and booleans of RESP3 by itself; which of the two is the server's doing.
    yes, no = (True, False) if protocol == 3 else (1, 0)
    name = f"RESP{protocol}"
    bf = r.bf()

    check(f"{name} ping", r.ping(), True)
    r.client_setname("checker")
    # redis-py decodes this reply in RESP2 only.
    check(f"{name} client name", r.client_getname() in ("checker", b"checker"), True)
    for key in ("s", "n", "i", "d", "copy", "p"):
        r.delete(key)

    check(f"{name} create", bf.create("s", 0.01, 1000), True)
    check(f"{name} create nonscaling", bf.create("n", 0.01, 2, noScale=True), True)
    check(f"{name} create with expansion", bf.create("d", 0.01, 4, expansion=3), True)
    check_error(f"{name} create again", "item exists", lambda: bf.create("s", 0.01, 1000))
    check_error(f"{name} bad rate", "error rate must be in the range (0.000000, 1.000000)", lambda: bf.create("x", 2, 1000))

    check(f"{name} add", bf.add("s", "a"), yes)
    check(f"{name} add again", bf.add("s", "a"), no)
    check(f"{name} madd", bf.madd("s", "a", "b", "c"), [no, yes, yes])
    check(f"{name} exists", bf.exists("s", "b"), yes)
    check(f"{name} exists not", bf.exists("s", "z"), no)
    check(f"{name} mexists", bf.mexists("s", "a", "z"), [yes, no])
    check(f"{name} card", bf.card("s"), 3)
    check(f"{name} card missing", bf.card("missing"), 0)
    check(f"{name} insert", bf.insert("i", ["a", "b"], capacity=500, error=0.001, expansion=4), [yes, yes])
    check(f"{name} insert nocreate", bf.insert("i", ["a"], noCreate=True), [no])
    check_error(f"{name} insert nocreate, missing", "not found", lambda: bf.insert("missing", ["a"], noCreate=True))
    check(f"{name} binary items", bf.madd("s", b"", b"\x00\xff", b"\r\n"), [yes, yes, yes])

    full = bf.madd("n", "a", "b", "c", "d")
    check(f"{name} full filter", [*full[:2], str(full[2]), len(full)], [yes, yes, "non scaling filter is full", 3])

    # In RESP2 redis-py looks the five names up and gives an object; in RESP3 it hands the map on.
    fields = ("capacity", "size", "filterNum", "insertedNum", "expansionRate")
    names = (b"Capacity", b"Size", b"Number of filters", b"Number of items inserted", b"Expansion rate")
    info, no_growth = bf.info("i"), bf.info("n")
    check(f"{name} info", [info.get(field) for field in (names if protocol == 3 else fields)], [500, 1088, 1, 2, 4])
    check(f"{name} info of a nonscaling filter", no_growth.get(names[4] if protocol == 3 else fields[4]), None)

    for n in range(30):
        bf.add("d", f"item:{n}")
    cursor, data = bf.scandump("d", 0)
    while cursor:
        check(f"{name} loadchunk", bf.loadchunk("copy", cursor, data), b"OK")
        cursor, data = bf.scandump("d", cursor)
    check(f"{name} copy", bf.mexists("copy", *(f"item:{n}" for n in range(30))), [yes] * 30)
    check(f"{name} counts of the copy", bf.card("copy"), bf.card("d"))

    pipe = r.pipeline(transaction=False)
    for n in range(100):
        pipe.bf().add("p", f"item:{n}")
    for n in range(100):
        pipe.bf().exists("p", f"item:{n}")
    answers = pipe.execute()
    check(f"{name} pipeline", answers[100:], [yes] * 100)
    check(f"{name} pipeline adds", {type(answer) for answer in answers[:100]}, {type(yes)})
    check(f"{name} type", r.type("p"), b"MBbloom--")
    check(f"{name} delete", r.delete("p", "missing"), 1)
    transactions(r, name, yes, no)
    keys(r, name)


def transactions(r, name, yes, no):
    """What a pipeline is by default, and the loop around WATCH."""
    for key in ("t", "u", "made"):
        r.delete(key)
    pipe = r.pipeline()
    for n in range(100):
        pipe.bf().add("t", f"item:{n}")
    pipe.bf().card("t")
    pipe.expire("t", 1000)
    pipe.ttl("t")
    check(f"{name} transaction", pipe.execute(), [yes] * 100 + [100, True, 1000])
    check(f"{name} empty transaction", r.pipeline().execute(), [])
    pipe.bf().madd("t", *(f"item:{n}" for n in range(6000)))
    pipe.bf().exists("t", "item:5999")
    answers = pipe.execute()
    check(f"{name} long transaction", [len(answers[0]), answers[0][0], answers[1]], [6000, no, yes])

    # An error of one command: the others are done.
    pipe.bf().create("t", 0.01, 10).bf().add("t", "other")
    check_error(f"{name} transaction with an error", "Command # 1 (BF.RESERVE t 0.01 10) of pipeline caused error: item exists", pipe.execute)
    pipe.bf().create("t", 0.01, 10)
    pipe.bf().add("u", "a")
    answers = pipe.execute(raise_on_error=False)
    check(f"{name} errors as replies", [str(answers[0]), answers[1]], ["item exists", yes])
    # A command that is refused at once: none is done.
    pipe.execute_command("NOSUCH", "a").bf().add("made", "a")
    try:
        pipe.execute()
        raise SystemExit(f"{name} transaction with an unknown command was done")
    except redis.ResponseError as error:
        check(f"{name} unknown command in a transaction", "unknown command 'NOSUCH'" in str(error), True)
    check(f"{name} nothing was done", r.exists("made"), 0)

    # Optimistic locking: what is watched changes once under way.
    with r.pipeline() as pipe:
        rounds = 0
        while True:
            try:
                pipe.watch("u", "t")
                counted = pipe.execute_command("BF.CARD", "u")
                if rounds == 0:
                    r.bf().add("u", "in between")
                rounds += 1
                pipe.multi()
                pipe.bf().add("u", f"counted:{counted}")
                check(f"{name} watched and done", pipe.execute(), [yes])
                break
            except redis.WatchError:
                check(f"{name} watched and changed", rounds, 1)
    check(f"{name} rounds of the loop", [rounds, r.bf().exists("u", "counted:2"), r.bf().card("u")], [2, yes, 3])

    def move(pipe):
        taken = pipe.execute_command("BF.EXISTS", "u", "a")
        pipe.multi()
        pipe.rename("u", "made").bf().add("made", f"{bool(taken)}")

    check(f"{name} transaction function", r.transaction(move, "u"), [True, yes])
    with r.pipeline() as pipe:
        pipe.watch("made")
        pipe.unwatch()
        r.bf().add("made", "changed")
        pipe.multi()
        pipe.exists("made")
        check(f"{name} unwatched", pipe.execute(), [1])
    r.delete("t", "made")


def keys(r, name):
    """Lives and moves."""
    r.flushall()
    r.bf().add("k", "a")
    at = int(time.time()) + 5000
    check(f"{name} expire of a missing key", r.expire("missing", 10), False)
    check(f"{name} expireat", r.expireat("k", at), True)
    check(f"{name} expiretime", [r.expiretime("k"), r.pexpiretime("k")], [at, at * 1000])
    check(f"{name} expire nx", r.expire("k", 10, nx=True), False)
    check(f"{name} expire gt", [r.expire("k", 10, gt=True), r.expire("k", 9000, gt=True)], [False, True])
    check(f"{name} ttl", 8990 <= r.ttl("k") <= 9000 and 8_990_000 <= r.pttl("k") <= 9_000_000, True)
    check(f"{name} persist", [r.persist("k"), r.persist("k"), r.ttl("k"), r.ttl("missing")], [True, False, -1, -2])
    r.pexpireat("k", at * 1000 + 7)
    check(f"{name} copy", [r.copy("k", "j"), r.copy("k", "j"), r.copy("k", "j", replace=True)], [True, False, True])
    check(f"{name} life of the copy", r.pexpiretime("j"), at * 1000 + 7)
    check(f"{name} rename", [r.rename("j", "i"), r.renamenx("i", "k"), r.renamenx("i", "h")], [True, False, True])
    check_error(f"{name} rename of a missing key", "no such key", lambda: r.rename("j", "i"))
    check(f"{name} move", [r.move("h", 1), r.exists("h"), r.swapdb(1, 2)], [True, 0, True])
    payload = r.dump("k")
    check(f"{name} restore", r.restore("j", 0, payload), b"OK")
    check_error(f"{name} restore over a key", "BUSYKEY Target key name already exists.", lambda: r.restore("j", 0, payload))
    check(f"{name} restore with options", r.restore("j", at * 1000, payload, replace=True, absttl=True, idletime=5), b"OK")
    check(f"{name} restored", [r.bf().exists("j", "a") in (1, True), r.pexpiretime("j")], [True, at * 1000])
    check(f"{name} unlink and touch", [r.unlink("j", "missing"), r.touch("k", "missing"), r.dbsize()], [1, 1, 1])
    check(f"{name} keys", [r.keys("*"), list(r.scan_iter()), r.randomkey()], [[b"k"], [b"k"], b"k"])
    check(f"{name} flushdb", [r.flushdb(), r.dbsize()], [True, 0])


def main():
    program = sys.argv[1]
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="seendb-clients-") as folder:
        with open(f"{folder}/log", "w") as log:
            server = subprocess.Popen([program, "--port", str(port), "--dir", folder], stdout=log, stderr=log)
        try:
            for _ in range(200):
                try:
                    redis.Redis(port=port).ping()
                    break
                except redis.ConnectionError:
                    time.sleep(0.05)
            for protocol in (2, 3):
                in_protocol(port, protocol)
        except BaseException:
            print(open(f"{folder}/log").read(), file=sys.stderr)
            raise
        finally:
            server.terminate()
            server.wait(30)
    print(f"redis-py {redis.__version__}: {check.count} replies as expected")


main()
