#!/usr/bin/env python3
"""Statically defined probes: every form of argument with every engine, semaphores through all that can happen to a
tracer, modules that are loaded later, what -l says, and the probes of Debian's own programs."""

import os
import re
import signal
import struct
import subprocess
import time

from harness import Harness, Tracer

PROGRAM = r"""
usdt$target:::registers { printf("registers %d %x %d %d\n", arg0, arg1, arg2, arg3); }
usdt$target:::memory { printf("memory %d %d %d %x %d\n", arg0, arg1, arg2, arg3, arg4); }
usdt$target:::symbols { printf("symbols %d %d %d %d\n", arg0, arg1, arg2, arg9); }
usdt$target:::constants { printf("constants %d %d %d %d\n", arg0, arg1, arg2, arg3); }
usdt$target:::permuted { printf("permuted %d %d %d %d %d %d %d %d %d %d\n",
    arg0, arg1, arg2, arg3, arg4, arg5, arg6, arg7, arg8, arg9); }
usdt$target:::text-of { printf("text %s %s\n", copyinstr(arg0), probefunc); }
usdt$target:::guarded { printf("guarded %d %d %s\n", arg0, arg1, probename); }
"""
FLOATING = r'usdt$target:::floating { printf("floating %x %x\n", arg0, arg1); }'
ROUNDS = 3


def bits(code, value):
    return int.from_bytes(struct.pack(code, value), "little")


def expected(floating, function="text__of"):
    lines = []
    for i in range(1, ROUNDS + 1):
        lines += [f"registers {-i} {0x1122334455667788 + i:x} {200 + i} {-3 - i}",
                  f"memory {-i} {i - 100} {-i} {(1 << 40) + i:x} {3 * i}",
                  f"symbols {5 * i} {-i} 0 0",
                  "constants -7 4294967289 2147483647 -1",
                  "permuted " + " ".join(str(i + n) for n in range(10))]
        if floating:
            lines.append(f"floating {bits('<d', i + 0.5):x} {bits('<f', i):x}")
        lines += [f"text {'odd' if i & 1 else 'even'} {function}".rstrip(),
                  f"guarded {i} 1 guarded", f"guarded {i} 2 guarded"]
    return lines


def arguments(harness):
    library = f"--load {harness.targets}/libusdt_part.so"
    runs = [(engine, name, "") for engine in ("inline", "trap", "outside")
            for name in ("usdt", "usdt_O0", "usdt_nopie")] + [("inline", "usdt", library), ("trap", "usdt", library)]
    for engine, name, how in runs:
        floating = engine != "outside"
        done = harness.trace("-q", "-Z", "-x", f"engine={engine}", "-n", PROGRAM + (FLOATING if floating else ""),
                             "-c", f"{harness.targets}/{name} {how} {ROUNDS}")
        got = [line.rstrip() for line in done.stdout.decode().splitlines() if line]
        own = [line for line in got if line.startswith(("semaphore", "listened"))]
        traced = [line for line in got if line not in own]
        wanted = expected(floating)
        harness.expect(traced == wanted, f"{engine} {name} {how}:\n" + "\n".join(
            f"{a}   |   {b}" for a, b in zip(traced + [""] * len(wanted), wanted)) + done.stderr.decode())
        harness.expect(own == ["semaphore 1", f"listened {ROUNDS}"], f"{engine} {name} {how}: {own}")
        harness.expect(done.returncode == 0, f"{engine} {name}: {done}")


def what_cannot_be_read(harness):
    """An operand that is not understood: the place is refused and named; -l has the probe."""
    done = harness.trace("-q", "-v", "-n", "usdt$target:::strange { trace(1); }", "-c", f"{harness.targets}/usdt 1")
    harness.expect(b"4@%fs:0(%rdi) is not understood" in done.stderr, f"not told: {done}")
    done = harness.trace("-q", "-v", "-x", "engine=outside", "-n", FLOATING, "-c", f"{harness.targets}/usdt 1")
    harness.expect(b"vector register" in done.stderr, f"not told: {done}")


def names(harness):
    target = harness.target("usdt", "--wait")
    pid = str(target.pid)
    done = harness.trace("-l", "-n", "usdt$target:::", "-p", pid)
    rows = sorted(tuple(line.split()[1:]) for line in done.stdout.decode().splitlines()[1:])
    harness.expect(rows == sorted((f"usdt{pid}", "usdt", function, name) for function, name in (
        ("registers", "registers"), ("memory", "memory"), ("symbols", "symbols"), ("constants", "constants"),
        ("permuted", "permuted"), ("floating", "floating"), ("strange", "strange"), ("text__of", "text-of"),
        ("guarded", "guarded"))), f"-l: {done}")
    for spec in (["-P", "us*t*"], ["-n", f"usdt{pid}:a.out:text__of:text__of"], ["-n", "usdt$target:::text-*"],
                 ["-n", "text-of"], ["-f", "usdt$target::text__of"]):
        done = harness.trace("-l", *spec, "-p", pid)
        harness.expect(re.search(rf"usdt{pid} +usdt +text__of text-of$", done.stdout.decode(), re.M),
                       f"{spec}: {done}")
    # Without -p: the process that the name says.
    done = harness.trace("-l", "-n", f"usdt{pid}:::memory")
    harness.expect(done.stdout.count(b"memory memory") == 1, f"by the number alone: {done}")
    done = harness.trace("-lv", "-n", "usdt$target:::registers", "-p", pid)
    for line in (b"args[0]: int32_t", b"args[1]: uint64_t", b"args[2]: uint8_t", b"args[3]: int16_t"):
        harness.expect(line in done.stdout, f"no {line}: {done}")
    done = harness.trace("-n", "usdt:::memory { }", "-p", pid)
    harness.expect(done.returncode == 1 and b"usdt$target or usdt" + pid.encode() in done.stderr,
                   f"a provider without a number: {done}")
    done = harness.trace("-n", "usdt$target:::nothing { }", "-p", pid)
    harness.expect(done.returncode == 1 and b"does not match any probes" in done.stderr, f"{done}")
    status, _ = target.end()
    harness.expect(status == 0, f"the target was harmed: {status}")
    done = harness.trace("-q", "-n", 'usdt$target:::memory { printf("%s:%s:%s:%s", probeprov, probemod, probefunc, '
                         'probename); exit(0); }', "-c", f"{harness.targets}/usdt 1")
    harness.expect(re.search(rb"usdt\d+:usdt:memory:memory", done.stdout), f"names in clauses: {done}")
    done = harness.trace("-q", "-n", 'usdt$target:::memory, usdt$target:::guarded { @[probefunc, probename] = count(); }',
                         "-c", f"{harness.targets}/usdt_stripped 5")
    harness.expect(b"memory" in done.stdout and b" 10\n" in done.stdout, f"stripped: {done}")


def ask(target, what):
    """What the target says then: a line that begins so."""
    before = len(target.child.out)
    target.child.write(what.encode() + b"\n")
    return answer(target, before)


def answer(target, before):
    target.watch.until(lambda: target.child.out[before:].endswith(b"\n"), time.monotonic() + 30)
    return target.child.out[before:].decode().strip()


def child_says(target, child):
    before = len(target.child.out)
    os.kill(child, signal.SIGUSR1)
    return answer(target, before)


GUARDED = 'BEGIN { printf("armed\\n"); } usdt$target:::guarded { @ = count(); }'


def semaphores(harness):
    target = harness.target("usdt", "--wait")
    harness.expect(ask(target, "fire") == "listened 0", "raised before anybody came")
    one = Tracer(harness, target.pid, GUARDED)
    harness.expect(one.armed and ask(target, "semaphore") == "semaphore 1", "not raised once")
    harness.expect(ask(target, "fire") == "listened 10", "nobody listens")
    # A second tracer that wants the other probes does not raise it; and the first one's is its own.
    harness.trace("-q", "-n", "usdt$target:::memory { } tick-100ms { exit(0); }", "-p", str(target.pid))
    harness.expect(ask(target, "semaphore") == "semaphore 1", "touched by another tracer")
    harness.expect(one.end() == 20 and ask(target, "semaphore") == "semaphore 0", "not lowered at the end")
    for kill in ("worker", "all"):
        two = Tracer(harness, target.pid, GUARDED)
        harness.expect(two.armed and ask(target, "semaphore") == "semaphore 1", "not raised again")
        if kill == "worker":
            os.kill(two.worker(), signal.SIGKILL)
            two.end()
        else:
            two.kill_all()
            harness.expect(ask(target, "semaphore") == "semaphore 1", "lowered by nobody")
            harness.trace("-q", "-n", "pid$target::malloc:entry { } tick-100ms { exit(0); }", "-p", str(target.pid))
        harness.expect(ask(target, "semaphore") == "semaphore 0", f"not taken back after the end of {kill}")
    status, text = target.end()
    harness.expect(status == 0 and "semaphore at the end 0" in text, f"{status} {text}")


def forked_children(harness):
    target = harness.target("usdt", "--wait")
    tracer = Tracer(harness, target.pid, GUARDED)
    child = int(ask(target, "fork").split()[1])
    harness.expect(child_says(target, child) == "child semaphore 1", "not what the parent had")
    harness.trace("-q", "-n", "pid$target::malloc:entry { } tick-100ms { exit(0); }", "-p", str(child))
    harness.expect(child_says(target, child) == "child semaphore 0", "not taken back in the child")
    harness.expect(ask(target, "semaphore") == "semaphore 1", "lowered in the parent")
    harness.expect(tracer.end() is None, "counted")
    status, text = target.end()
    harness.expect(status == 0 and "semaphore at the end 0" in text, f"{status} {text}")


def followed_children(harness):
    target = harness.target("usdt", "--wait")
    tracer = subprocess.Popen([harness.trapline, "-q", "-x", "follow", "-n", GUARDED, "-p", str(target.pid)],
                              stdout=subprocess.PIPE, cwd=harness.folder.name)
    harness.expect(tracer.stdout.readline() == b"armed\n", "not armed")
    child = int(ask(target, "fork").split()[1])
    harness.expect(child_says(target, child) == "child semaphore 1", "not one tracer's")
    tracer.send_signal(signal.SIGINT)
    tracer.communicate(timeout=60)
    harness.expect(child_says(target, child) == "child semaphore 0", "not lowered in the child")
    status, text = target.end()
    harness.expect(status == 0 and "semaphore at the end 0" in text, f"{status} {text}")


PYTHON = r"""
def inner(n):
    return n + 1

def outer():
    for i in range(50):
        inner(i)
outer()
"""


def python(harness):
    notes = subprocess.run(["readelf", "-n", "/usr/bin/python3"], capture_output=True, check=False)
    if b"function__entry" not in notes.stdout:
        print("not tested: python3 without probes")
        return
    script = os.path.join(harness.folder.name, "calls.py")
    with open(script, "w", encoding="ascii") as file:
        file.write(PYTHON)
    done = harness.trace(
        # What CPython 3.11 calls without entering C again, it does not show as an entry.
        "-q", "-n", 'python$target:::function__return /basename(copyinstr(arg0)) == "calls.py"/ '
        '{ @[copyinstr(arg1), arg2] = count(); }', "-n", 'python$target:::gc-start { @gc[arg0] = count(); }',
        "-c", f"/usr/bin/python3 {script}")
    counts = re.findall(r"^ +(\S+) +(\d+) +(\d+)$", done.stdout.decode(), re.M)
    harness.expect(sorted(counts) == [("<module>", "8", "1"), ("inner", "3", "50"), ("outer", "6", "1")],
                   f"{counts} {done}")


def exceptions(harness):
    """libstdc++'s own."""
    done = harness.trace("-q", "-n", 'libstdcxx$target:libstdc*::throw, libstdcxx$target:::*row, '
                         'libstdcxx$target::__cxa_begin_catch: { @[probename] = count(); }',
                         "-c", f"{harness.targets}/exceptions 20")
    if b"does not match any probes" in done.stderr:
        print("not tested: libstdc++ without probes")
        return
    counts = re.findall(r"^ +(\w+) +(\d+)$", done.stdout.decode(), re.M)
    harness.expect(sorted(counts) == [("catch", "40"), ("rethrow", "20"), ("throw", "20")], f"{counts} {done}")


def main():
    harness = Harness(__doc__)
    for test in (arguments, what_cannot_be_read, names, semaphores, forked_children, followed_children, python, exceptions):
        test(harness)
    harness.finish()


if __name__ == "__main__":
    main()
