#!/usr/bin/env python3
"""A user may not trace a set-user-ID program that runs with another's rights; told in words, and the program lives.
Started by the tracer (-c) such a program runs, as the kernel arranges it, without those rights, or is refused."""

import os
import shutil
import sys

from harness import NOBODY, SKIPPED, Harness


def main():
    if os.getuid() != 0:
        print("skipped: needs root, to make a set-user-ID program")
        sys.exit(SKIPPED)
    harness = Harness(__doc__)
    # A copy of each where an ordinary user can reach it.
    target = shutil.copy(os.path.join(harness.targets, "ticker"), harness.folder.name)
    os.chmod(target, 0o4755)
    harness.trapline = shutil.copy(harness.trapline, harness.folder.name)
    if os.statvfs(harness.folder.name).f_flag & os.ST_NOSUID:
        print("skipped: the temporary folder does not allow set-user-ID programs")
        sys.exit(SKIPPED)
    running = harness.target("", path=target, user=NOBODY)
    done = harness.trace("-q", "-n", "pid$target:a.out:tick:entry { @ = count(); } tick-50ms { exit(0); }", "-p",
                         str(running.pid), user=NOBODY, timeout=20)
    harness.expect(done.returncode == 1, f"exit status {done.returncode}\n{done.stdout.decode()}")
    harness.expect(done.stderr.startswith(f"dtrace: failed to grab pid {running.pid}: ".encode()),
                   f"unexpected message: {done.stderr.decode()}")
    harness.expect(running.unharmed(), "the program was harmed")
    status, text = running.end()
    harness.expect(status == 0, f"the program ended with {status}: {text}")

    identity = os.path.join(harness.folder.name, "id")
    shutil.copy("/usr/bin/id", identity)
    os.chmod(identity, 0o4755)
    done = harness.trace("-q", "-n", "BEGIN { started = 1; }", "-c", identity, user=NOBODY, timeout=20)
    harness.expect(b"euid=0" not in done.stdout, f"it ran with root's rights: {done.stdout.decode()}")
    harness.expect(done.returncode in (0, 1), f"exit status {done.returncode}\n{done.stderr.decode()}")
    harness.finish()


if __name__ == "__main__":
    main()
