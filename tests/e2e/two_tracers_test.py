#!/usr/bin/env python3
"""Two tracers on one process: the second one is refused what the first one has patched, by name, and harms neither. When
the first one has left, everything can be had again. When it was killed, its jumps are still there: they are refused, or
taken over; the process goes on either way."""

import re
import signal
import time

import processes
from harness import Harness

PROGRAM = 'BEGIN { printf("armed\\n"); } pid$target:a.out:tick:entry { @ = count(); seen = 1; } '


class Tracer:
    """A trapline that runs until it is told to end."""

    def __init__(self, harness, pid, program):
        self.watch = processes.Watch()
        self.child = processes.Child(self.watch, "trapline", [harness.trapline, "-q", "-n", program, "-p", str(pid)])
        self.armed = self.watch.until(lambda: b"armed\n" in self.child.out or not self.child.running(),
                                      time.monotonic() + 60)

    def end(self, number=signal.SIGINT):
        """Its count of ticks, or None if it printed none."""
        self.child.signal(number)
        if not self.watch.until(lambda: not self.child.running(), time.monotonic() + 60):
            return None
        self.watch.drain(self.child, time.monotonic() + 5)
        counts = re.findall(r"^ +(\d+)$", self.child.text(), re.M)
        return int(counts[0]) if counts else None


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
    killed.end(signal.SIGKILL)
    harness.expect(target.unharmed(), "the target was harmed when its tracer was killed")
    heir = Tracer(harness, target.pid, PROGRAM + "tick-300ms { exit(0); }")
    count = heir.end(0)
    harness.expect(count or "tick:entry" in heir.child.errors(),
                   f"neither counted nor refused by name: {heir.child.text()}{heir.child.errors()}")
    harness.expect(target.unharmed(), "the target was harmed by the tracer after the killed one")
    status, text = target.end()
    harness.expect(status == 0, f"the target ended with {status}: {text}")
    harness.finish()


if __name__ == "__main__":
    main()
