#!/usr/bin/env python3
"""Two tracers on one process: the second one is refused what the first one has patched, by name, and harms neither. When
the first one has left, everything can be had again. When it was killed, its probes are taken back by
the next one, in the process and in children that it forked."""

import re
import sys
import time

import processes
from harness import Harness, Target, Tracer

PROGRAM = 'BEGIN { printf("armed\\n"); } pid$target:a.out:tick:entry { @ = count(); seen = 1; } '


# Sleeps again and again; at a line it forks a child that does the same, and says who that is.
FORKER = """
import os, select, sys, time
print("ready", flush=True)
while True:
    time.sleep(0.002)
    if select.select([0], [], [], 0)[0]:
        if not sys.stdin.readline().startswith("fork"): break
        child = os.fork()
        if child == 0:
            while os.getppid() != 1: time.sleep(0.002)
        print("child", child, flush=True)
os.kill(child, 9)
"""
SLEEPS = "pid$target:libc.so.6:clock_nanosleep:entry { @ = count(); seen = 1; } tick-10ms /seen/ { exit(0); }"


def a_breakpoint_over_a_killed_tracers_jump(harness):
    """What the debugger saved is a jump into the region: it must find the region there when it is put back."""
    target = harness.target("ticker")
    killed = Tracer(harness, target.pid, PROGRAM)
    killed.kill_all()
    with open(f"/proc/{target.pid}/mem", "r+b", buffering=0) as memory:
        # The highest one is in libc's exec functions, which the target never calls.
        site = max(processes.patched_sites(target.pid))
        memory.seek(site)
        memory.write(b"\xcc")
        heir = Tracer(harness, target.pid, PROGRAM + "tick-50ms /seen/ { exit(0); }")
        harness.expect(heir.end(0), f"the heir counted nothing: {heir.child.text()}{heir.child.errors()}")
        harness.expect("written over by somebody else" in heir.child.errors(), f"not told: {heir.child.errors()}")
        harness.expect(any("r-xp" in line for line in processes.our_mappings(target.pid)), "the jump's region was unmapped")
        memory.seek(site)
        memory.write(b"\xe9")
    # Without the breakpoint all of it can go.
    last = Tracer(harness, target.pid, PROGRAM + "tick-50ms /seen/ { exit(0); }")
    harness.expect(last.end(0), f"the last one counted nothing: {last.child.errors()}")
    harness.expect(not processes.our_mappings(target.pid), f"left behind: {processes.our_mappings(target.pid)}")
    status, text = target.end()
    harness.expect(status == 0, f"the target ended with {status}: {text}")


def a_child_of_a_traced_process(harness):
    target = Target([sys.executable, "-c", FORKER])
    target.wait_for_ready()
    program = 'BEGIN { printf("armed\\n"); } pid$target:libc.so.6:clock_nanosleep:entry { @ = count(); }'
    first = Tracer(harness, target.pid, program)
    target.child.write(b"fork\n")
    told = target.watch.until(lambda: re.search(rb"child \d+\n", target.child.out), time.monotonic() + 30)
    if not harness.expect(told, f"no child: {target.child.text()}{target.child.errors()}"):
        return
    child = int(re.search(rb"child (\d+)\n", target.child.out)[1])
    harness.expect(processes.our_mappings(child), "the child inherited nothing: this tests nothing")
    done = harness.trace("-q", "-n", SLEEPS, "-p", str(child))
    harness.expect(done.returncode == 0 and re.search(rb"^ +[1-9]\d*$", done.stdout, re.M),
                   f"the child of a traced process was not counted: {done.stdout} {done.stderr}")
    harness.expect(not processes.our_mappings(child), f"left in the child: {processes.our_mappings(child)}")
    harness.expect(first.end(), f"its parent was not counted: {first.child.errors()}")
    harness.expect(not processes.our_mappings(target.pid), f"left in the parent: {processes.our_mappings(target.pid)}")
    status, text = target.end()
    harness.expect(status == 0, f"the parent ended with {status}: {text}")


def main():
    harness = Harness(__doc__)
    target = harness.target("ticker")

    first = Tracer(harness, target.pid, PROGRAM)
    second = Tracer(harness, target.pid, PROGRAM)
    harness.expect(second.end() is None, "the second tracer counted what the first one has patched")
    harness.expect("tick:entry" in second.child.errors(), f"the refusal is not named: {second.child.errors()}")
    harness.expect(target.unharmed(), "the target was harmed by the second tracer")
    harness.expect(first.end(), f"the first tracer counted nothing: {first.child.errors()}")
    harness.expect(target.unharmed(), "the target was harmed")

    done = harness.trace("-q", "-n", PROGRAM + "tick-10ms /seen/ { exit(0); }", "-p", str(target.pid))
    harness.expect(done.returncode == 0 and not done.stderr, f"not clean after the first one left: {done.stderr}")

    killed = Tracer(harness, target.pid, PROGRAM)
    killed.kill_all()
    harness.expect(target.unharmed(), "the target was harmed when its tracer was killed")
    heir = Tracer(harness, target.pid, PROGRAM + "tick-300ms { exit(0); }")
    count = heir.end(0)
    harness.expect(count, f"the heir counted nothing: {heir.child.text()}{heir.child.errors()}")
    harness.expect("of a tracer that was killed: taken back" in heir.child.errors(),
                   f"what was taken back is not told: {heir.child.errors()}")
    harness.expect(target.unharmed(), "the target was harmed by the tracer after the killed one")
    harness.expect(not processes.our_mappings(target.pid), f"left behind: {processes.our_mappings(target.pid)}")
    status, text = target.end()
    harness.expect(status == 0, f"the target ended with {status}: {text}")
    a_breakpoint_over_a_killed_tracers_jump(harness)
    a_child_of_a_traced_process(harness)
    harness.finish()


if __name__ == "__main__":
    main()
