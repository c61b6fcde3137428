#!/usr/bin/env python3
"""A kernel uprobe at a place: that place is refused, its neighbours are probed, and both count what they should. (The other way round,
a uprobe laid over a jump that stands, is out of our hands: docs/safety.md.) Needs the right to make one."""

import ctypes
import os
import re
import struct
import subprocess
import sys
import time

from harness import SKIPPED, Harness, Tracer

PMU = "/sys/bus/event_source/devices/uprobe/type"
PERF_EVENT_OPEN = 298
ATTRIBUTES = 136  # bytes of struct perf_event_attr, as of PERF_ATTR_SIZE_VER8
PROGRAM = ('BEGIN { printf("armed\\n"); } pid$target:a.out:fn_?:entry { @[probefunc] = count(); }')


class Uprobe:
    """At an instruction of a file, in one process; counts its hits. Source: perf_event_open(2)."""

    def __init__(self, pid, path, offset):
        with open(PMU, encoding="ascii") as file:
            kind = int(file.read())
        self.path = ctypes.create_string_buffer(path.encode())
        # type, size; config1 (path) and config2 (offset) at byte 56
        fields = bytearray(ATTRIBUTES)
        struct.pack_into("<II", fields, 0, kind, ATTRIBUTES)
        struct.pack_into("<QQ", fields, 56, ctypes.addressof(self.path), offset)
        buffer = ctypes.create_string_buffer(bytes(fields), ATTRIBUTES)
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.syscall(PERF_EVENT_OPEN, buffer, pid, -1, -1, 0)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def hits(self):
        return struct.unpack("<Q", os.read(self.fd, 8))[0]


def offset_of(path, function):
    """In the file, of a function's first instruction."""
    symbols = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout
    address = int(re.search(rf"^(\w+) [tT] {function}$", symbols, re.M)[1], 16)
    segments = subprocess.run(["readelf", "-lW", path], capture_output=True, text=True, check=True).stdout
    for file_offset, begin, size in re.findall(r"LOAD +(\w+) (\w+) \w+ (\w+) .*", segments):
        if int(begin, 16) <= address < int(begin, 16) + int(size, 16):
            return address - int(begin, 16) + int(file_offset, 16)
    raise LookupError(function)


def main():
    harness = Harness(__doc__)
    path = os.path.join(harness.targets, "nested")
    target = harness.target("nested", "--wait")
    try:
        uprobe = Uprobe(target.pid, path, offset_of(path, "fn_b"))
    except OSError as error:
        print(f"skipped: no uprobe here: {error}")
        target.end()
        sys.exit(SKIPPED)
    tracer = Tracer(harness, target.pid, PROGRAM)
    refused = tracer.watch.until(lambda: "nested:fn_b:entry" in tracer.child.errors(), time.monotonic() + 10)
    harness.expect(refused and "other bytes in memory than in the file" in tracer.child.errors(),
                   f"the refusal is not told: {tracer.child.errors()}")
    harness.expect(target.unharmed(), "the target was harmed")
    status, text = target.end()
    harness.expect(status == 0 and "fn_b 5" in text, f"the target ended with {status}: {text}")
    tracer.end(0)
    counts = dict(re.findall(r"^  (fn_\w) +(\d+)$", tracer.child.text(), re.M))
    harness.expect(counts == {"fn_a": "1", "fn_c": "1", "fn_d": "2"}, f"counted {counts}")
    harness.expect(uprobe.hits() == 5, f"the uprobe counted {uprobe.hits()} of 5")
    harness.finish()


if __name__ == "__main__":
    main()
