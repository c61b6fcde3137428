#!/usr/bin/env python3
"""Runs the examples and checks what they print. Usage: examples_test.py --examples FOLDER --trapline COMMAND"""

import argparse
import os
import re
import subprocess
import sys
import unittest

given = argparse.Namespace(examples=None, trapline=None)


def run(name, *arguments, lines=""):
    done = subprocess.run([os.path.join(given.examples, name), *arguments], input=lines, capture_output=True, text=True,
                          timeout=120, check=False, env={**os.environ, "TRAPLINE_COMMAND": given.trapline})
    if done.returncode != 0 or done.stderr:
        raise AssertionError(f"{name}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class Examples(unittest.TestCase):
    def test_malloc_sizes(self):
        said = run("malloc_sizes")
        # A node and a string for each name, and the string's copy or temporary where the library makes one.
        calls, bytes_ = map(int, re.match(r"1000 names: (\d+) calls of malloc, (\d+) bytes\n", said).groups())
        buckets = {(int(low), int(high)): int(count)
                   for low, high, count in re.findall(r"^  (-?\d+) to (\d+): (\d+)$", said, re.M)}
        self.assertEqual(sum(buckets.values()), calls)
        self.assertEqual(buckets, {(64, 127): 1000, (128, 255): 1000})
        self.assertEqual((bytes_ - 1000 * 201) % 1000, 0)

    def test_own_latency(self):
        said = run("own_latency")
        self.assertIn("\n500 calls, nanoseconds each:\n", said)
        buckets = [(int(low), int(high), int(count))
                   for low, high, count in re.findall(r"^  (-?\d+) to (\d+): (\d+)$", said, re.M)]
        self.assertEqual(sum(count for _, _, count in buckets), 500)
        slowest = int(re.search(r"^slowest (\d+)$", said, re.M)[1])
        self.assertTrue(buckets[-1][0] <= slowest <= buckets[-1][1], said)

    def test_live_histogram(self):
        said = run("live_histogram", lines="abc\ndef\nsizes\nghi\nsizes\nreset\nsizes\njkl\nsizes\n")
        self.assertEqual(re.findall(r"^(?:[a-z]{3}|\d+ allocations.*)$", said, re.M), [
            "cba", "fed", "4 allocations of 100 bytes and more", "ihg", "6 allocations of 100 bytes and more",
            "0 allocations of 100 bytes and more", "lkj", "2 allocations of 100 bytes and more"])
        self.assertEqual(len(re.findall(r"value  -+ Distribution -+ count", said)), 3)

    def test_watchdog(self):
        said = run("watchdog", "query", os.path.join(given.examples, "slow_service"))
        calls = re.findall(r"^query\((\d+), (\d+)\): (\d+) ms in thread \d+$", said, re.M)
        # A busy machine may make others slow, too.
        slow = [(int(table), int(rows)) for table, rows, _ in calls if int(rows) == 5000]
        self.assertEqual(slow, [(5, 5000), (10, 5000)])
        for table, rows, milliseconds in calls:
            self.assertGreaterEqual(int(milliseconds), 20 if rows == "5000" else 10, table)

    def test_watchdog_says_mistakes(self):
        done = subprocess.run([os.path.join(given.examples, "watchdog"), "no_such_function", "/bin/true"],
                              capture_output=True, text=True, timeout=120, check=False,
                              env={**os.environ, "TRAPLINE_COMMAND": given.trapline})
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("no_such_function", done.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--examples", required=True)
    parser.add_argument("--trapline", required=True)
    given, rest = parser.parse_known_args()
    unittest.main(argv=sys.argv[:1] + rest)
