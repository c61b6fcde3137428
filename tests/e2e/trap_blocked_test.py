#!/usr/bin/env python3
"""Breakpoints are answered whatever the tracer waits for: nobody reads what it prints, and the target goes on to its end."""

import os
import subprocess

from harness import Harness

CALLS = 3000


def blocked_pipe(harness):
    reader, writer = os.pipe()
    tracer = subprocess.Popen(
        [harness.trapline, "-q", "-x", "engine=trap", "-n",
         'pid$target:libc.so.6:malloc:entry { printf("%120d\\n", arg0); }',
         "-c", f"{harness.targets}/mallocs 1 {CALLS}", "-o", "/dev/stderr"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=writer, cwd=harness.folder.name)
    os.close(writer)
    # The target's own output ends when the target does.
    told = b""
    while not told.endswith(b"5000 %d\n" % CALLS):
        part = os.read(tracer.stdout.fileno(), 4096)
        if not part:
            break
        told += part
    harness.expect(b"5000 %d\n" % CALLS in told, f"the target did not come to its end: {told}")
    printed = 0
    while part := os.read(reader, 1 << 16):  # more than a pipe holds
        printed += len(part)
    os.close(reader)
    harness.expect(printed > 1 << 16, f"only {printed} bytes were printed: nothing was blocked")
    harness.expect(tracer.wait() == 0, f"exit status {tracer.returncode}")


def main():
    harness = Harness(__doc__)
    blocked_pipe(harness)
    harness.finish()


main()
