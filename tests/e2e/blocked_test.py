#!/usr/bin/env python3
"""Threads that are blocked in system calls stay blocked, and get no EINTR, however often a tracer comes and goes."""

from harness import Harness

VISITS = 10


def main():
    harness = Harness(__doc__)
    target = harness.target("blocked")
    for visit in range(VISITS):
        done = harness.trace("-q", "-n", "pid$target:libc.so.6:malloc:entry { @ = count(); } tick-20ms { exit(0); }",
                             "-p", str(target.pid), timeout=30)
        harness.expect(done.returncode == 0, f"visit {visit}: exit status {done.returncode}\n{done.stderr.decode()}")
        harness.expect(target.unharmed(), f"visit {visit}: the target was harmed")
    status, text = target.end()
    harness.expect(status == 0 and text == "ready\nwoken 8\n", f"the target ended with {status}:\n{text}")
    harness.finish()


if __name__ == "__main__":
    main()
