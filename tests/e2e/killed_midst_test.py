#!/usr/bin/env python3
"""The target is killed at any moment of the tracer's work, from before it is found to after it was let go. The tracer
ends by itself, with exit status 0 or 1 and at most one line that says what happened, and leaves nothing behind."""

import os
import re
import signal
import subprocess
import time

from harness import Harness

ROUNDS = 60
# The rounds are spread over this many times the length of a whole visit.
SPREAD = 1.3
PROGRAMS = [
    ("pid$target:libc.so.6:malloc:entry { @ = quantize(arg0); }",),
    ("pid$target:libc.so.6:*alloc:entry, pid$target:libc.so.6:*alloc:return { @[probefunc] = count(); }",),
    ("pid$target:libc.so.6:malloc:entry { trace(arg0); }", "-n", "tick-1ms { printf(\"t\\n\"); }"),
]


def length_of_a_visit(harness):
    target = harness.target("storm")
    start = time.monotonic()
    harness.trace("-q", "-n", PROGRAMS[0][0] + " tick-1ms { exit(0); }", "-p", str(target.pid))
    length = time.monotonic() - start
    target.end()
    return length


def run_once(harness, number, span):
    target = harness.target("storm")
    program, *more = PROGRAMS[number % len(PROGRAMS)]
    with open(os.path.join(harness.folder.name, "out"), "wb") as out:
        tracer = subprocess.Popen([harness.trapline, "-q", "-n", program, *more, "-p", str(target.pid)], stdout=out,
                                  stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        time.sleep(span * number / ROUNDS)
        os.kill(target.pid, signal.SIGKILL)
        try:
            _, err = tracer.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            tracer.kill()
            tracer.communicate()
            harness.fail(f"round {number}: the tracer did not end")
            return None
        finally:
            target.child.process.wait()
    text = err.decode(errors="replace")
    harness.no_report(text)
    # What was dropped for want of room is told in lines of their own.
    said = [line for line in text.split("\n") if line and not re.search(r"\d+ drops?", line)]
    harness.expect(tracer.returncode in (0, 1), f"round {number}: exit status {tracer.returncode}\n{text}")
    harness.expect(len(said) == (tracer.returncode == 1) and all(line.startswith("dtrace: ") for line in said),
                   f"round {number}: exit status {tracer.returncode}, said:\n{text}")
    return tracer.returncode


def main():
    harness = Harness(__doc__)
    span = length_of_a_visit(harness) * SPREAD
    statuses = [run_once(harness, number, span) for number in range(ROUNDS)]
    harness.expect(0 in statuses, "no round came as far as tracing")
    for command in ("/bin/sh -c 'kill -9 $$'", "/bin/true", "/bin/false", "/bin/sh -c 'exit 3'"):
        done = harness.trace("-q", "-n", "pid$target::malloc:entry { @ = count(); }", "-c", command)
        harness.expect(done.returncode == 0 and done.stderr == b"",
                       f"{command}: exit status {done.returncode}\n{done.stderr.decode()}")
    harness.finish()


if __name__ == "__main__":
    main()
