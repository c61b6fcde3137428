#!/usr/bin/env python3
"""A process runs libraries whose files lie about their sections and symbols, and whose functions are called all the
time. Every function that such a file claims to have is traced: the tracer answers in words or traces, in bounded time,
and the process computes what it computed before."""

import os
import re

import damaged_elf
from harness import Harness


def write_libraries(folder, original):
    with open(original, "rb") as file:
        good = file.read()
    paths = []
    for name, data in damaged_elf.cases(good):
        paths.append(os.path.join(folder, f"lib{name}.so"))
        with open(paths[-1], "wb") as file:
            file.write(data)
    return paths


def main():
    harness = Harness(__doc__)
    paths = write_libraries(harness.folder.name, os.path.join(harness.targets, "libwork.so"))
    target = harness.target("loads", *paths)
    pid = str(target.pid)
    counted = {}
    for path in paths:
        name = os.path.basename(path)
        done = harness.trace("-q", "-n", f"pid$target:{name}::entry, pid$target:{name}::return "
                             "{ @ = count(); } tick-30ms { exit(0); }", "-p", pid, timeout=60)
        harness.expect(done.returncode in (0, 1), f"{name}: exit status {done.returncode}\n{done.stderr[:2000].decode()}")
        if done.returncode == 1:
            harness.expect(re.fullmatch(rb"dtrace: [^\n]*\n", done.stderr), f"{name}: said {done.stderr[:2000]}")
        harness.expect(b"\x1b" not in done.stdout + done.stderr, f"{name}: control characters reach the terminal")
        counts = re.findall(rb"^ +(\d+)$", done.stdout, re.M)
        counted[name] = int(counts[0]) if counts else 0
        if not harness.expect(target.unharmed(), f"{name}: the target was harmed"):
            break
    harness.expect(counted.get("libgood.so", 0) > 0, "the library that is whole was not traced")
    harness.expect(sum(n > 0 for n in counted.values()) > len(paths) // 3,
                   f"only these were traced: {[name for name, n in counted.items() if n]}")
    if target.unharmed():
        done = harness.trace("-l", "-n", "pid$target:::entry", "-p", pid, timeout=120)
        harness.expect(done.returncode == 0, f"-l: exit status {done.returncode}\n{done.stderr[:1000].decode()}")
    status, text = target.end()
    harness.expect(status == 0 and "right 1" in text, f"the target ended with {status}: {text[-300:]}")
    harness.finish()


if __name__ == "__main__":
    main()
