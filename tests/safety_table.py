#!/usr/bin/env python3
"""The table of docs/safety.md: where the functions of well-known files can be probed, by form, and what is refused; and
docs/refused.md, which names those that no jump reaches, one by one.

    tests/safety_table.py build/dev/bin/plan_file            # prints it
    tests/safety_table.py build/dev/bin/plan_file --write    # puts both into docs
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
DOCS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "docs")
MARKS = "<!-- made by tests/safety_table.py -->", "<!-- end -->"
FORMS = {"entry": ["jump", "padding", "island"], "return": ["jump", "padding", "island", "ways"]}
# What is a rule, and not named one by one.
RULES = {"a function of Go's that does not check its stack"}


def read(plan_file, path):
    """Counts by (kind, form) of places, the functions, the reasons of refusals, and by (kind, reason) the functions that
    no jump reaches."""
    done = subprocess.run([plan_file, path, "-v"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{path}: {done.stderr.strip()}")
    functions = 0
    places, reasons, names = Counter(), Counter(), {}
    for line in done.stdout.splitlines():
        if match := re.fullmatch(r"functions (\d+)", line):
            functions = int(match[1])
        elif match := re.fullmatch(r"places (entry|return) (\w+) (\d+)", line):
            places[match[1], match[2]] = int(match[3])
        elif match := re.fullmatch(r"reason (entry|return) (\d+) (.*)", line):
            reasons[match[3]] += int(match[2])
        elif match := re.fullmatch(r"trap (entry|return) \w+ (.*)", line):
            names.setdefault((match[1], "a breakpoint reaches it"), []).append(match[2])
        elif match := re.fullmatch(r"refused (entry|return) \w+ (.*?): (.*?): .*", line):
            names.setdefault((match[1], match[3]), []).append(match[2])
    return functions, places, reasons, names


def cells(kind, places):
    asked, refused, trap = (places[kind, what] for what in ("asked", "refused", "trap"))
    without = refused + trap
    reached = 100 * (asked - without) / asked if asked else 100
    # 100.00 only where it is all.
    return [*(f"{places[kind, form]:,}" for form in FORMS[kind]), f"{min(reached, 99.99) if without else reached:.2f} %",
            f"{trap:,}", f"{refused:,}"]


def listing(name, names):
    """The section of docs/refused.md."""
    lines = [f"## {name}", ""]
    for (kind, reason), functions in sorted(names.items()):
        counts = Counter(functions)
        shown = ", ".join(f"`{f}`" + (f" ({n})" if n > 1 else "") for f, n in sorted(counts.items()))
        if reason in RULES:
            shown = f"{len(counts):,} functions"
        lines += [f"- *{kind}*, {reason}: {shown}"]
    return lines + [""] if names else []


def table(plan_file, files):
    heading = ["file", "functions"]
    for kind in FORMS:
        heading += [f"{kind}: {form}" if n == 0 else form for n, form in enumerate(FORMS[kind])]
        heading += ["by jump", "trap", "refused"]
    lines = ["| " + " | ".join(heading) + " |", "|---" + "|--:" * (len(heading) - 1) + "|"]
    total = Counter()
    listed = []
    for path in files:
        name, _, path = path.rpartition("=")
        functions, places, reasons, names = read(plan_file, path)
        total += reasons
        name = name or os.path.basename(path)
        listed += listing(name, names)
        row = [name, f"{functions:,}", *cells("entry", places), *cells("return", places)]
        lines.append("| " + " | ".join(row) + " |")
    lines += ["", "Why, in all of them together:", "", "| places | reason |", "|--:|---|"]
    lines += [f"| {count:,} | {reason} |" for reason, count in total.most_common()]
    return "\n".join(lines), "\n".join(listed)


def replace(page, text):
    path = os.path.join(DOCS, page)
    with open(path, encoding="utf-8") as file:
        old = file.read()
    start, end = old.index(MARKS[0]) + len(MARKS[0]), old.index(MARKS[1])
    with open(path, "w", encoding="utf-8") as file:
        file.write(old[:start] + "\n" + text + "\n" + old[end:])


def main():
    arguments = [a for a in sys.argv[1:] if a != "--write"]
    if not arguments:
        sys.exit(__doc__)
    given = arguments[1:]
    files = [] if any("=" not in path for path in given) else [path for path in FILES if os.path.exists(path)]
    files += given
    text, listed = table(arguments[0], files)
    if "--write" not in sys.argv:
        print(text, listed, sep="\n\n")
        return
    replace("safety.md", text)
    replace("refused.md", listed)


if __name__ == "__main__":
    main()
