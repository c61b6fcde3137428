"""Runs regression tests of Python's own until a line comes; says `intact 1` if all of them passed."""

import gc
import io
import select
import sys
import unittest

MODULES = ["test.test_json", "test.test_list", "test.test_dict", "test.test_set", "test.test_bisect", "test.test_heapq",
           "test.test_generators", "test.test_exceptions", "test.test_struct", "test.test_array"]
# These measure the interpreter's stack or its references, or take seconds.
LEFT_OUT = ("recursion", "recursive", "bigmem", "refcount", "memory", "free_after_iterating", "big_")


def flatten(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flatten(test)
        elif not any(word in test.id().lower() for word in LEFT_OUT):
            yield test


def main():
    loader = unittest.TestLoader()
    intact, rounds = True, 0
    tests = list(flatten(loader.loadTestsFromNames(MODULES)))
    print("ready", flush=True)
    while True:
        for test in tests:
            out = io.StringIO()
            result = unittest.TextTestRunner(stream=out).run(unittest.TestSuite([test]))
            if not result.wasSuccessful():
                intact = False
                print(out.getvalue(), flush=True)
            rounds += 1
            if select.select([sys.stdin], [], [], 0)[0]:
                print(f"rounds {rounds}\nintact {int(intact)}", flush=True)
                return
        gc.collect()


main()
