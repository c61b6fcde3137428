#!/usr/bin/env python3
"""A process that has mapped damaged ELF files as if they were libraries is traced all the same; naming one of them in
a probe gives an answer in words."""

import os
import shutil

from harness import Harness


def damaged(folder, original):
    """Writes the damaged files and gives their paths."""
    with open(original, "rb") as file:
        good = file.read()
    header_end = 64

    def patched(offset, data):
        return good[:offset] + data + good[offset + len(data):]

    cases = {
        "cut_in_header": good[:40],
        "cut_in_the_middle": good[:len(good) // 2],
        "only_magic": b"\x7fELF",
        "no_elf": b"#!/bin/sh\nexit 0\n" * 300,
        "sections_far_away": patched(40, (1 << 62).to_bytes(8, "little")),
        "many_sections": patched(60, b"\xff\xff"),
        "huge_section_entries": patched(58, b"\xff\xff"),
        "bad_string_index": patched(62, b"\xf0\xff"),
        "program_headers_far_away": patched(32, (1 << 63).to_bytes(8, "little")),
        "many_program_headers": patched(56, b"\xff\xff"),
        "wrong_machine": patched(18, b"\x08\x00"),
        "headers_of_ff": good[:header_end] + b"\xff" * (len(good) - header_end),
        "headers_of_00": good[:header_end] + bytes(len(good) - header_end),
    }
    paths = []
    for name, data in cases.items():
        path = os.path.join(folder, f"lib{name}.so")
        with open(path, "wb") as file:
            file.write(data)
        paths.append(path)
    return paths


def main():
    harness = Harness(__doc__)
    paths = damaged(harness.folder.name, os.path.join(harness.targets, "recursive"))
    deleted = os.path.join(harness.folder.name, "libdeleted.so")
    shutil.copy(os.path.join(harness.targets, "recursive"), deleted)
    target = harness.target("maps", *paths, deleted)
    os.unlink(deleted)
    pid = str(target.pid)

    for path in paths:
        done = harness.trace("-q", "-n", f"pid$target:{os.path.basename(path)}:*:entry {{ @ = count(); }}", "-p", pid,
                             timeout=20)
        harness.expect(done.returncode == 1 and done.stderr.startswith(b"dtrace: "),
                       f"{os.path.basename(path)}: exit status {done.returncode}\n{done.stderr.decode()}")
        harness.expect(target.unharmed(), f"{os.path.basename(path)}: the target was harmed")
    done = harness.trace("-l", "-n", "pid$target:::entry", "-p", pid, timeout=60)
    harness.expect(done.returncode == 0, f"-l: exit status {done.returncode}\n{done.stderr[:1000].decode()}")
    harness.expect(done.stdout.count(b"\n") > 1000, f"-l found only {done.stdout.count(chr(10).encode())} probes")
    done = harness.trace("-q", "-n", "pid$target:libc.so.6:malloc:entry { @ = count(); } tick-20ms { exit(0); }", "-p",
                         pid, timeout=20)
    harness.expect(done.returncode == 0, f"libc's malloc: exit status {done.returncode}\n{done.stderr.decode()}")
    status, text = target.end()
    harness.expect(status == 0, f"the target ended with {status}: {text}")
    harness.finish()


if __name__ == "__main__":
    main()
