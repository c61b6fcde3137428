#!/usr/bin/env python3
"""A process runs libraries whose files lie about their sections and symbols, and whose functions are called all the
time. Every function that such a file claims to have is traced: the tracer answers in words or traces, in bounded time,
and the process computes what it computed before."""

import os
import re

import damaged_elf
from harness import Harness

AT_ONCE = 20
WHOLE = "libgood.so"


def write_libraries(folder, original):
    with open(original, "rb") as file:
        good = file.read()
    paths = []
    for name, data in damaged_elf.cases(good):
        paths.append(os.path.join(folder, f"lib{name}.so"))
        with open(paths[-1], "wb") as file:
            file.write(data)
    return paths


def trace_each(harness, paths, counted):
    """Traces each of the libraries in one process that has loaded all of them."""
    target = harness.target("loads", *paths)
    pid = str(target.pid)
    for path in paths:
        name = os.path.basename(path)
        # A busy machine may not run the process at all within a moment; this one has to count.
        moment = "2s" if name == WHOLE else "30ms"
        done = harness.trace("-q", "-n", f"pid$target:{name}::entry, pid$target:{name}::return "
                             "{ @ = count(); } tick-%s { exit(0); }" % moment, "-p", pid, timeout=120)
        err = done.stderr.decode(errors="replace")
        harness.expect(done.returncode in (0, 1), f"{name}: exit status {done.returncode}\n{err[:2000]}")
        if done.returncode == 1:
            harness.expect(re.fullmatch("dtrace: [^\n]*\n", err), f"{name}: said {err[:2000]}")
        harness.expect("\x1b" not in err, f"{name}: control characters reach the terminal")
        counts = re.findall(rb"^ +(\d+)$", done.stdout, re.M)
        counted[name] = int(counts[0]) if counts else 0
        if not harness.expect(target.unharmed(), f"{name}: the target was harmed"):
            break
    else:
        done = harness.trace("-l", "-n", "pid$target:::entry", "-p", pid, timeout=120)
        err = done.stderr.decode(errors="replace")
        harness.expect(done.returncode == 0, f"-l: exit status {done.returncode}\n{err[:1000]}")
    status, text = target.end()
    harness.expect(status == 0 and "right 1" in text, f"the target ended with {status}: {text[-300:]}")


def main():
    harness = Harness(__doc__)
    paths = write_libraries(harness.folder.name, os.path.join(harness.targets, "libwork.so"))
    counted = {}
    for first in range(0, len(paths), AT_ONCE):
        trace_each(harness, paths[first:first + AT_ONCE], counted)
    harness.expect(counted.get(WHOLE, 0) > 0, "the library that is whole was not traced")
    harness.expect(sum(n > 0 for n in counted.values()) > len(paths) // 4,
                   f"only these were traced: {[name for name, n in counted.items() if n]}")
    harness.finish()


if __name__ == "__main__":
    main()
