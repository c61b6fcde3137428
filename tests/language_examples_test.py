#!/usr/bin/env python3
"""Runs the examples of docs/language.md and compares what they print.

    tests/language_examples_test.py build/test/bin/trapline            # compares
    tests/language_examples_test.py build/test/bin/trapline --write    # puts what they print into the page

An example stands in a block marked `console`: a line that begins with "$ ", which a shell executes in a folder of its own, lines
that begin with "> " (more of the command), and what comes of it on standard output and then on standard error."""

import os
import re
import subprocess
import sys
import tempfile

PAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "docs", "language.md")
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.M | re.S)
EXAMPLE = re.compile(r"^(\$ [^\n]*\n(?:> [^\n]*\n)*)((?:(?!\$ )[^\n]*\n)*)", re.M)


def run(command, trapline, folder):
    lines = [line[2:] for line in command.splitlines()]
    environment = os.environ | {"PATH": os.path.dirname(trapline) + ":" + os.environ["PATH"], "LC_ALL": "C"}
    done = subprocess.run(["sh", "-c", "\n".join(lines)], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60, check=False)
    # The page has no blanks at the ends of lines, and no blank lines around.
    text = "\n".join(line.rstrip() for line in (done.stdout + done.stderr).splitlines()).strip("\n")
    return text + "\n" if text else ""


def main():
    trapline = os.path.abspath(sys.argv[1])
    with open(PAGE, encoding="utf-8") as file:
        page = file.read()
    count = failures = 0
    with tempfile.TemporaryDirectory(prefix="trapline-language-") as folder:
        def example(match):
            nonlocal count, failures
            count += 1
            got = run(match[1], trapline, folder)
            if got != match[2]:
                failures += 1
                print(f"{match[1]}--- the page says\n{match[2]}--- it prints\n{got}")
            return match[1] + got
        written = BLOCK.sub(lambda block: "```console\n" + EXAMPLE.sub(example, block[1]) + "```", page)
    if "--write" in sys.argv:
        with open(PAGE, "w", encoding="utf-8") as file:
            file.write(written)
        return
    print(f"{count} examples, {failures} failures")
    sys.exit(1 if failures or count < 20 else 0)


if __name__ == "__main__":
    main()
