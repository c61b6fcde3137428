#!/usr/bin/env python3
"""Eight threads allocate and free without pause while a tracer comes and goes a hundred times: the target must never
crash, never be left stopped, never be corrupted, and each visit must have counted something."""

import re

from harness import Harness

VISITS = 100
# Each visit ends when something has been counted, however slow the machine is.
END = "tick-10ms /seen/ { exit(0); }"
PROGRAMS = [
    "pid$target:libc.so.6:malloc:entry { @n = count(); seen = 1; }",
    "pid$target:libc.so.6:malloc:entry { @s = quantize(arg0); @n = count(); } "
    "pid$target:libc.so.6:free:entry { @f = count(); seen = 1; }",
    "pid$target:libc.so.6:malloc:return { @n = count(); @b = max(arg1); seen = 1; }",
    "pid$target:libc.so.6:malloc:entry { @k[arg0] = count(); @n = count(); seen = 1; }",
]


def main():
    harness = Harness(__doc__)
    target = harness.target("storm")
    for visit in range(VISITS):
        done = harness.trace("-q", "-n", PROGRAMS[visit % len(PROGRAMS)] + END, "-p", str(target.pid), timeout=30)
        text = done.stdout.decode()
        counted = max([int(n) for n in re.findall(r"^ +(\d+)$", text, re.M)], default=0)
        if not harness.expect(target.unharmed(), f"visit {visit}: the target was harmed: {target.child.process.poll()}"):
            break
        harness.expect(done.returncode == 0 and counted > 0,
                       f"visit {visit}: exit status {done.returncode}, {counted} calls\n{done.stderr.decode()}")
        if harness.failures > 3:
            break
    status, text = target.end()
    harness.expect(status == 0 and "intact 1" in text, f"the target ended with {status}: {text}")
    harness.finish()


if __name__ == "__main__":
    main()
