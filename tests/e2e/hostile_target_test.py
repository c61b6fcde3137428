#!/usr/bin/env python3
"""A process that writes nonsense all over the memory that it shares with its tracer. What it counts is worthless then, and it may
bring itself down; but the tracer neither crashes nor hangs nor takes memory without end, ends as its program says, and
puts the process back. (fuzz/ forges arenas by the thousand; here is the live thing.)"""

import re
import resource
import signal

from harness import Harness

BODIES = {
    "direct": "@ = count(); @q = quantize(arg0);",
    "keyed": "@[arg0] = count(); @s[probefunc, tid] = sum(arg0);",
    "records": 'printf("%d %s\\n", arg0, probefunc);',
    "variables": "a[arg0] = timestamp; self->b = a[arg0 - 1]; g++; @ = max(self->b);",
    "speculations": 'self->s = speculation(); speculate(self->s); trace(arg0); } pid$target::probed:entry { commit(self->s);',
    "strings": '@[strjoin(execname, lltostr(arg0))] = count();',
}
SEEDS = 3
MEMORY = 4 << 30  # bytes of address space that a run may take: nonsense is no reason for more


def attempt(harness, name, seed):
    target = harness.target("scribbler", str(seed))
    program = f"pid$target::probed:entry {{ {BODIES[name]} }} tick-300ms {{ exit(7); }}"
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.RLIM_INFINITY))
    done = harness.trace("-q", "-n", program, "-p", str(target.pid), timeout=60)
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    # Nonsense may say that exit() ran, or that the process cannot be restored; it is told in a line then.
    why = f"{name}, seed {seed}: exit status {done.returncode}: {done.stderr.decode(errors='replace')[-600:]}"
    harness.expect(done.returncode in (0, 7) or
                   (done.returncode == 1 and re.search(rb"^dtrace: (?!invalid probe)", done.stderr, re.M)), why)
    if target.child.running():
        harness.expect(target.unharmed(), f"{name}, seed {seed}: left stopped or traced")
    status, _ = target.end()
    harness.expect(status in (0, -signal.SIGSEGV, -signal.SIGBUS), f"{name}, seed {seed}: the process ended with {status}")
    return done.returncode


def main():
    harness = Harness(__doc__)
    statuses = [attempt(harness, name, seed) for name in BODIES for seed in range(1, SEEDS + 1)]
    print(f"exit statuses: {statuses}")
    harness.finish()


if __name__ == "__main__":
    main()
