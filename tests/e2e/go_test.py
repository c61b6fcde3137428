#!/usr/bin/env python3
"""Go: goroutines on small stacks that the runtime moves, functions that begin anew when it has, arguments in other registers
than C's, threads without a thread pointer of the C library. Entries and returns are exact; what has no room for a probe is
refused in words; and the program computes what it does without us, with all of its runtime probed as well."""

import os
import re
import shutil
import subprocess
import sys
import time

from harness import SKIPPED, Harness, Target, Tracer

SOURCE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "targets", "goroutines")
RESULT = "calls 10000 total 27250000\n"
ARMED = 'BEGIN { printf("armed\\n"); } '
COUNTS = ARMED + """
  pid$target:a.out:main.probed:entry, pid$target:a.out:main.probed:return,
  pid$target:a.out:main.deep:entry, pid$target:a.out:main.deep:return,
  pid$target:a.out:main.work:entry, pid$target:a.out:main.work:return { @[probefunc, probename] = count(); @all = count(); }
  pid$target:a.out:main.probed:entry { @sum[0] = sum(arg0); @sum[2] = sum(arg2); @sum[3] = sum(arg3);
                                       @text[copyinstr(arg1, 4)] = count(); }
  pid$target:a.out:main.probed:return { @sum[-1] = sum(arg1); }
  pid$target:a.out:main.many:entry
  { printf("%d %d %d %d %d %d %d %d %d %d\\n", arg0, arg1, arg2, arg3, arg4, arg5, arg6, arg7, arg8, arg9); }
  pid$target:a.out:main.onStack.abi0:entry
  { printf("%d %d %d %d %d %d %d %d %d\\n", arg0, arg1, arg2, arg3, arg4, arg5, arg6, arg7, arg8); }"""
EVERYTHING = ARMED + "pid$target:::entry, pid$target:::return { @ = count(); }"


def build(harness):
    go = shutil.which("go") or shutil.which("go", path="/usr/lib/go/bin")
    if go is None:
        print("skipped: go is not installed (golang-go)")
        sys.exit(SKIPPED)
    program = os.path.join(harness.folder.name, "goroutines")
    environment = dict(os.environ, GO111MODULE="off", GOFLAGS="", CGO_ENABLED="0",
                       GOCACHE=os.path.join(harness.folder.name, "cache"), HOME=harness.folder.name)
    subprocess.run([go, "build", "-o", program], env=environment, check=True, cwd=SOURCE)
    return program


def start(program):
    target = Target([program])
    target.wait_for_ready()
    return target


def finish(harness, target, tracer, what):
    target.child.write(b"go\n")
    ended = target.watch.until(lambda: not target.child.running(), time.monotonic() + 60)
    target.watch.drain(target.child, time.monotonic() + 5)
    harness.expect(ended and target.child.process.returncode == 0 and RESULT in target.child.text(),
                   f"{what}: the program ended with {target.child.process.returncode}: {target.child.text()}"
                   f"{target.child.errors()[-2000:]}")
    tracer.end(0)
    return tracer.child.text()


def exact(harness, program):
    target = start(program)
    tracer = Tracer(harness, target.pid, COUNTS)
    text = finish(harness, target, tracer, "counts")
    counts = {(function, point): int(n) for function, point, n in
              re.findall(r"^  main\.(\w+) +(entry|return) +(\d+)$", text, re.M)}
    wanted = {("probed", 10000), ("deep", 50050), ("work", 50)}
    harness.expect(counts == {(f, p): n for f, n in wanted for p in ("entry", "return")}, f"counted {counts}")
    sums = dict(re.findall(r"^ +(-?\d+) +(\d+)$", text, re.M))
    # arg3: the third argument; the string takes two registers. Of 0 to 199, 50 times; i + i % 40 + 3 is returned.
    harness.expect(sums == {"-1": str(50 * (19900 + 5 * 780 + 600)), "0": "995000", "2": "30000", "3": "995000"},
                   f"sums {sums}")
    harness.expect(re.search(r"^  abc +10000$", text, re.M), f"strings: {text}")
    harness.expect("\n1 2 3 4 5 6 7 8 9 10\n11 12 13 14 15 16 17 18 19\n" in text, f"arguments: {text}")


def everything(harness, program):
    for _ in range(3):
        target = start(program)
        tracer = Tracer(harness, target.pid, EVERYTHING)
        told = tracer.watch.until(lambda: "in all are refused" in tracer.child.errors(), time.monotonic() + 10)
        harness.expect(told and re.search(r"refused: a function of Go's that does not check its stack \([^)]*\)",
                                          tracer.child.errors()), f"refusals: {tracer.child.errors()}")
        harness.expect(finish(harness, target, tracer, "everything"), "nothing was counted")
    target = start(program)
    tracer = Tracer(harness, target.pid, EVERYTHING)
    tracer.end()
    harness.expect(tracer.child.process.returncode == 0, f"ended with {tracer.child.process.returncode}")
    harness.expect(target.unharmed(), "harmed when the tracer left")
    tracer = Tracer(harness, target.pid, COUNTS)
    finish(harness, target, tracer, "traced again")


def refused(harness, program):
    target = start(program)
    done = harness.trace("-q", "-n", "pid$target:a.out:main.tiny:entry {} BEGIN { exit(0); }",
                         "-p", str(target.pid))
    harness.expect(b"a function of Go's that does not check its stack (goroutines:main.tiny:entry)" in done.stderr,
                   f"{done.stderr}")
    target.child.write(b"go\n")
    target.end()


def main():
    harness = Harness(__doc__)
    program = build(harness)
    exact(harness, program)
    everything(harness, program)
    refused(harness, program)
    # From its first instruction on, when no thread has a pointer yet.
    done = harness.trace("-q", "-n", "pid$target:a.out:main.deep:entry, pid$target:a.out:runtime.main:entry "
                         "{ @[probefunc] = count(); }", "-c", program)
    harness.expect(re.search(rb"^  runtime.main +1\n  main.deep +50050$", done.stdout, re.M) and RESULT.encode() in done.stdout,
                   f"from its start: {done.stdout} {done.stderr}")
    harness.finish()


if __name__ == "__main__":
    main()
