#!/usr/bin/env python3
"""The table of docs/safety.md: where the functions of well-known files can be probed, by form, and what is refused.

    tests/safety_table.py build/dev/bin/plan_file            # prints it
    tests/safety_table.py build/dev/bin/plan_file --write    # puts it into docs/safety.md
    tests/safety_table.py build/dev/bin/plan_file FILE...    # other files
    tests/safety_table.py build/dev/bin/plan_file "a Go program=/tmp/a.out"    # a row more, under this name

Files that are not installed are left out. No process is looked at: plan_file reads the files alone."""

import os
import re
import subprocess
import sys
from collections import Counter

FILES = [
    "/lib/x86_64-linux-gnu/libc.so.6",
    "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
    "/lib64/ld-linux-x86-64.so.2",
    "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
    "/usr/lib/x86_64-linux-gnu/libLLVM-19.so",
    "/usr/lib/jvm/java-17-openjdk-amd64/lib/server/libjvm.so",
    "/usr/bin/python3.11",
    "/usr/bin/node",
    "/usr/lib/postgresql/15/bin/postgres",
    "/usr/bin/bash",
    "/usr/bin/perl",
]
PAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "docs", "safety.md")
MARKS = "<!-- made by tests/safety_table.py -->", "<!-- end -->"
FORMS = {"entry": ["jump", "padding", "island"], "return": ["jump", "padding", "island", "ways"]}


def read(plan_file, path):
    """Counts by (kind, form) of places, the functions, and the reasons of refusals."""
    done = subprocess.run([plan_file, path], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{path}: {done.stderr.strip()}")
    functions = 0
    places, reasons = Counter(), Counter()
    for line in done.stdout.splitlines():
        if match := re.fullmatch(r"functions (\d+)", line):
            functions = int(match[1])
        elif match := re.fullmatch(r"places (entry|return) (\w+) (\d+)", line):
            places[match[1], match[2]] = int(match[3])
        elif match := re.fullmatch(r"reason (entry|return) (\d+) (.*)", line):
            reasons[match[3]] += int(match[2])
    return functions, places, reasons


def cells(kind, places):
    asked, refused = places[kind, "asked"], places[kind, "refused"]
    reached = 100 * (asked - refused) / asked if asked else 100
    # 100.00 only where it is all.
    return [*(f"{places[kind, form]:,}" for form in FORMS[kind]), f"{refused:,}",
            f"{min(reached, 99.99) if refused else reached:.2f} %"]


def table(plan_file, files):
    heading = ["file", "functions"]
    for kind in FORMS:
        heading += [f"{kind}: {form}" if n == 0 else form for n, form in enumerate(FORMS[kind])] + ["refused", "reached"]
    lines = ["| " + " | ".join(heading) + " |", "|---" + "|--:" * (len(heading) - 1) + "|"]
    total = Counter()
    for path in files:
        name, _, path = path.rpartition("=")
        functions, places, reasons = read(plan_file, path)
        total += reasons
        row = [name or os.path.basename(path), f"{functions:,}", *cells("entry", places), *cells("return", places)]
        lines.append("| " + " | ".join(row) + " |")
    lines += ["", "Why, in all of them together:", "", "| places | reason |", "|--:|---|"]
    lines += [f"| {count:,} | {reason} |" for reason, count in total.most_common()]
    return "\n".join(lines)


def main():
    arguments = [a for a in sys.argv[1:] if a != "--write"]
    if not arguments:
        sys.exit(__doc__)
    given = arguments[1:]
    files = [] if any("=" not in path for path in given) else [path for path in FILES if os.path.exists(path)]
    files += given
    text = table(arguments[0], files)
    if "--write" not in sys.argv:
        print(text)
        return
    with open(PAGE, encoding="utf-8") as file:
        page = file.read()
    start, end = page.index(MARKS[0]) + len(MARKS[0]), page.index(MARKS[1])
    with open(PAGE, "w", encoding="utf-8") as file:
        file.write(page[:start] + "\n" + text + "\n" + page[end:])


if __name__ == "__main__":
    main()
