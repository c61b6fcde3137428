#!/usr/bin/env python3
"""Entry and return counts of some forty functions of varied shapes, compared with what the program itself says and,
where valgrind is there, with callgrind's counts of the same run. Exit status 0 passed, 1 failed.

    own_functions_test.py --trapline BINARY --targets FOLDER
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

# How many of the points may be refused (a return in a function too short for a jump, say), of a hundred. What is refused
# is named; what is not refused counts exactly.
REFUSED_AT_MOST = {"entry": 5, "return": 40}


def own_counts(target):
    text = subprocess.run([target], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout
    return {name: int(count) for name, count in (line.split() for line in text.splitlines())}


def callgrind_counts(target):
    """Calls of each function, or None without valgrind."""
    if shutil.which("valgrind") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        subprocess.run(["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={out}", target],
                       stdin=subprocess.DEVNULL, capture_output=True, check=True)
        names, counts, called = {}, {}, None
        with open(out, encoding="utf-8") as file:
            for line in file:
                match = re.match(r"c?fn=\((\d+)\)(?: (.*))?$", line)
                if match:
                    number, name = match.groups()
                    if name:
                        names[number] = re.sub(r"'\d+$", "", name)
                    called = names[number]
                match = re.match(r"calls=(\d+)", line)
                if match:
                    counts[called] = counts.get(called, 0) + int(match.group(1))
    return counts


def trace(trapline, target):
    """(counts by function and point, the refused ones)."""
    program = "pid$target:a.out:fn_*:entry, pid$target:a.out:fn_*:return { @[probefunc, probename] = count(); }"
    done = subprocess.run([trapline, "-q", "-v", "-n", program, "-c", target], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        sys.exit(f"trapline ended with {done.returncode}\n{done.stdout}{done.stderr}")
    counts = {(name, point): int(count)
              for name, point, count in re.findall(r"^  (fn_\w+) +(entry|return) +(\d+)$", done.stdout, re.M)}
    refused = set(re.findall(r":(fn_\w+):(entry|return)\b", done.stderr))
    return counts, refused


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--trapline", required=True)
    parser.add_argument("--targets", required=True)
    options = parser.parse_args()
    wrong = 0
    for variant in ("own_functions_O0", "own_functions_O2"):
        target = os.path.join(options.targets, variant)
        wanted = own_counts(target)
        counted = callgrind_counts(target)
        traced, refused = trace(options.trapline, target)
        for name, count in wanted.items():
            if counted is not None and counted.get(name) != count:
                print(f"{variant}: {name}: the program says {count}, callgrind {counted.get(name)}")
                wrong += 1
            for point in ("entry", "return"):
                found = traced.get((name, point), 0)
                if found != count and not (found == 0 and (name, point) in refused):
                    print(f"{variant}: {name}:{point}: {count} calls, {found} traced")
                    wrong += 1
        for point, limit in REFUSED_AT_MOST.items():
            named = sorted(name for name, p in refused if p == point)
            print(f"{variant}: {len(named)} of {len(wanted)} {point} points refused: {' '.join(named)}")
            if len(named) * 100 > limit * len(wanted):
                print(f"{variant}: more than {limit} in a hundred")
                wrong += 1
        if counted is None:
            print(f"{variant}: not compared with callgrind, as valgrind is not installed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
