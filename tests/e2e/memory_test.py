#!/usr/bin/env python3
"""Probes that would take much of the process's memory are refused before anything is done there, in a line that says how much
and how to allow it."""

import os
import re
import shutil
import sys

from harness import SKIPPED, Harness, Target

SLEEPS = "console.log('ready'); process.stdin.once('data', () => process.exit(0))"


def main():
    node = shutil.which("node", path="/usr/bin:" + os.environ["PATH"])
    if node is None:
        print("skipped: node, which has functions enough, is not installed")
        sys.exit(SKIPPED)
    harness = Harness(__doc__)
    target = Target([node, "-e", SLEEPS])
    target.wait_for_ready()
    done = harness.trace("-q", "-n", "pid$target:::entry, pid$target:::return { @ = count(); } BEGIN { exit(0); }",
                         "-p", str(target.pid), timeout=300)
    harness.expect(done.returncode == 1 and
                   re.search(rb"^dtrace: pid \d+: these probes would take \d+ MB of the process's memory.*-x force$",
                             done.stderr, re.M), f"exit status {done.returncode}: {done.stderr}")
    harness.expect(target.unharmed(), "the target was harmed")
    status, text = target.end()
    harness.expect(status == 0, f"the target ended with {status}: {text}")
    harness.finish()


if __name__ == "__main__":
    main()
