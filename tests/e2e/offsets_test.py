#!/usr/bin/env python3
"""Probes at offsets: every instruction of a dozen functions is counted, and each count must be what single steps of the
same program find; whatever cannot be probed is named, and no other is left out. What the program computes must not
change, and neither must it where a random choice of the instructions is probed."""

import os
import random
import re
import subprocess

from harness import Harness

FUNCTIONS = "pid$target:a.out:o_*:"
COUNT = "{ @[probefunc, probename] = count(); }"
# Of a random choice, so many runs.
CHOICES = 6


def functions(path):
    """name -> (address, size) of the functions of interest."""
    symbols = subprocess.run(["nm", "-S", "--defined-only", path], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^(\w+) (\w+) [tT] (o_\w+)$", symbols, re.M)
    return {name: (int(address, 16), int(size, 16)) for address, size, name in found}


def stepped(harness, path):
    """(function, offset) -> how often it was executed; and what the program printed."""
    known = functions(path)
    first = min(address for address, _ in known.values())
    last = max(address + size for address, size in known.values())
    done = subprocess.run([os.path.join(harness.targets, "steps"), f"{first:x}", f"{last:x}", path],
                          capture_output=True, text=True, timeout=300, check=True)
    counts = {}
    for address, count in re.findall(r"^(\w+) (\d+)$", done.stderr, re.M):
        for name, (start, size) in known.items():
            if start <= int(address, 16) < start + size:
                counts[name, int(address, 16) - start] = int(count)
    return counts, done.stdout


def counted(output):
    return {(function, name): int(n) for function, name, n in re.findall(r"^  (o_\w+) +(\w+) +(\d+)$", output, re.M)}


def refused(errors):
    return set(re.findall(r":(o_\w+):(\w+) at 0x\w+ cannot be probed", errors))


def every_instruction(harness, path, expected, printed):
    done = harness.trace("-q", "-v", "-n", FUNCTIONS + COUNT, "-c", path)
    output = done.stdout.decode()
    errors = done.stderr.decode()
    harness.expect(done.returncode == 0 and printed in output, f"{path}: {done.returncode}\n{output}\n{errors}")
    counts = counted(output)
    missing = refused(errors)
    print(f"{path}: {len(counts)} counted, {len(missing)} refused: {sorted(missing)}")
    for (name, offset), n in expected.items():
        probe = (name, f"{offset:x}")
        if probe not in missing:
            harness.expect(counts.get(probe) == n, f"{probe}: {counts.get(probe)} counted, {n} executed")
    for name in {name for name, _ in expected}:
        if (name, "entry") not in missing:
            harness.expect(counts.get((name, "entry")) == expected[name, 0], f"entries of {name}: {counts}")
    for name, probe in counts:
        known = probe in ("entry", "return") or (name, int(probe, 16)) in expected
        harness.expect(known, f"{name}:{probe} is no instruction that is executed")
    # Most places can be had.
    harness.expect(len(missing) * 10 < len(expected), f"too many refused:\n{errors}")
    return missing


def some_instructions(harness, path, expected, printed, missing, seed):
    choice = random.Random(seed)
    names = sorted(key for key in expected if (key[0], f"{key[1]:x}") not in missing)
    chosen = choice.sample(names, choice.randrange(1, len(names)))
    program = ",".join(f"pid$target:a.out:{name}:{offset:x}" for name, offset in chosen) + COUNT
    done = harness.trace("-q", "-n", program, "-c", path)
    output = done.stdout.decode()
    expectation = {(name, f"{offset:x}"): expected[name, offset] for name, offset in chosen}
    harness.expect(printed in output, f"seed {seed}: the program was harmed: {done.returncode}\n{output}")
    harness.expect(counted(output) == expectation,
                   f"seed {seed}: {counted(output)}, not {expectation}\n{done.stderr.decode()}")


def main():
    harness = Harness(__doc__)
    expected, printed = stepped(harness, os.path.join(harness.targets, "offsets_static"))
    harness.expect(len(expected) > 150, f"too few instructions: {len(expected)}")
    for name in ("offsets_static", "offsets"):
        path = os.path.join(harness.targets, name)
        missing = every_instruction(harness, path, expected, printed)
        for _ in range(CHOICES):
            some_instructions(harness, path, expected, printed, missing, random.randrange(1 << 32))
    harness.finish()


main()
