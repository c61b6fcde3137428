#!/usr/bin/env python3
"""Processes that are special in one way (limits, locked memory, another root, own stacks, short threads ...), dynamic
and static: each call is counted, and the process computes what it must; or the process is refused in one line that says
why, and goes on."""

import os
import re
import sys
import time

import processes
from harness import NOBODY, Harness

PROGRAM = ('BEGIN { printf("armed\\n"); } pid$target:a.out:probed:entry, pid$target:a.out:probed:return '
           '{ @[probename] = count(); @threads[tid] = count(); }')
KINDS = ["plain", "no_descriptors", "no_file_size", "little_address_space", "no_core", "no_new_executable_memory", "locked_memory",
         "not_dumpable", "own_mounts", "other_root", "signal_stack", "short_threads", "coroutines"]
# Of an ordinary user: with the right to raise limits (CAP_SYS_RESOURCE) it is a kind like the others.
REFUSED = {"no_descriptors_ever": "no free file descriptor"}
CANNOT = 77


def trace(harness, pid, user):
    child = processes.Child(harness.watch, "trapline", [harness.trapline, "-q", "-n", PROGRAM, "-p", str(pid)], user=user)
    harness.watch.until(lambda: b"armed\n" in child.out or not child.running(), time.monotonic() + 60)
    return child


def end_of(harness, child):
    harness.watch.until(lambda: not child.running(), time.monotonic() + 60)
    harness.watch.drain(child, time.monotonic() + 5)
    harness.no_report(child.errors())
    return child.process.returncode


def try_kind(harness, program, kind, refused=None):
    """`refused`: what is said instead of tracing it, to an ordinary user."""
    name = f"{program} {kind}"
    user = NOBODY if refused and os.geteuid() == 0 else None
    target = harness.target(program, kind, harness.folder.name, user=user)
    if "cannot" in target.child.text():
        target.end()
        print(f"not here: {name}")
        return
    tracer = trace(harness, target.pid, user)
    if refused:
        harness.expect(end_of(harness, tracer) == 1, f"{name}: exit status {tracer.process.returncode}")
        harness.expect(re.fullmatch(f"dtrace: [^\n]*{refused}[^\n]*\n", tracer.errors()),
                       f"{name}: said {tracer.errors()}")
        harness.expect(target.unharmed(), f"{name}: the target was harmed")
    status, text = target.end()
    harness.expect(status == 0 and "calls 1000\nright 1\n" in text, f"{name}: ended with {status}: {text}")
    if refused:
        return
    harness.expect(end_of(harness, tracer) == 0, f"{name}: {tracer.errors()}")
    counts = dict(re.findall(r"^  (entry|return) +(\d+)$", tracer.text(), re.M))
    harness.expect(counts == {"entry": "1000", "return": "1000"}, f"{name}: counted {counts}\n{tracer.text()}")
    harness.expect(sum(map(int, re.findall(r"^ +\d+ +(\d+)$", tracer.text(), re.M))) == 2000,
                   f"{name}: not every call has its thread")


def main():
    harness = Harness(__doc__)
    harness.watch = processes.Watch()
    for program in ("kinds", "kinds_static", "kinds_musl"):
        if not os.path.exists(os.path.join(harness.targets, program)):
            print(f"not here: {program}")
            continue
        for kind in KINDS:
            try_kind(harness, program, kind)
        for kind, text in REFUSED.items():
            try_kind(harness, program, kind, text)
    sys.stdout.flush()
    harness.finish()


if __name__ == "__main__":
    main()
