#!/usr/bin/env python3
"""Asserts that .clang-tidy really turns on the checks that matter: a misspelt name would switch one off silently."""

import pathlib
import shutil
import subprocess
import sys

WANTED = """
bugprone-dangling-handle bugprone-use-after-move bugprone-unchecked-optional-access bugprone-narrowing-conversions
bugprone-sizeof-expression bugprone-suspicious-memory-comparison bugprone-infinite-loop bugprone-integer-division
clang-analyzer-core.NullDereference clang-analyzer-cplusplus.NewDeleteLeaks clang-analyzer-unix.Malloc
cppcoreguidelines-slicing cppcoreguidelines-pro-type-member-init google-explicit-constructor
misc-unused-using-decls misc-definitions-in-headers modernize-use-override modernize-use-nullptr
performance-unnecessary-copy-initialization performance-move-const-arg readability-identifier-naming
cert-err34-c concurrency-mt-unsafe
""".split()


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    if shutil.which("clang-tidy-19") is None:
        print("skipped: clang-tidy-19 is not installed")
        return 77
    done = subprocess.run(["clang-tidy-19", "--list-checks", "-p", ".", str(root / "src" / "base" / "result.h"), "--"],
                          capture_output=True, text=True, cwd=root, check=False)
    enabled = {line.strip() for line in done.stdout.splitlines()}
    missing = [name for name in WANTED if name not in enabled]
    config = subprocess.run(["clang-tidy-19", "--verify-config", "-p", ".", "--"], capture_output=True, text=True,
                            cwd=root, check=False)
    if config.returncode != 0 or "warning" in config.stderr or "warning" in config.stdout:
        print(config.stdout + config.stderr)
        return 1
    print(f"{len(enabled)} checks are on; missing: {', '.join(missing) or 'none'}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
