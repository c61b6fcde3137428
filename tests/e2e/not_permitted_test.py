#!/usr/bin/env python3
"""Processes that may not or cannot be traced: each is refused by one line that says which rule it is, and is not
touched."""

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys

import processes
from harness import NOBODY, SKIPPED, Harness

PR_SET_DUMPABLE = 4
KERNEL_THREAD = 0x00200000


def kernel_thread():
    """The pid of one, or None where none is seen."""
    for entry in sorted(filter(str.isdigit, os.listdir("/proc")), key=int):
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[6]) & KERNEL_THREAD:
            return entry
    return None


def child(prepare):
    """The pid of a process that did `prepare` and then waits."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        prepare()
        os.write(write_end, b"x")
        while True:
            signal.pause()
    os.read(read_end, 1)
    os.close(read_end)
    os.close(write_end)
    return pid


def become_nobody():
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def hide():
    become_nobody()
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def zombie():
    """The pid of a zombie, and that of its parent."""
    read_end, write_end = os.pipe()
    parent = os.fork()
    if parent == 0:
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        os.write(write_end, str(pid).encode())
        while True:
            signal.pause()
    pid = int(os.read(read_end, 20))
    os.close(read_end)
    os.close(write_end)
    return pid, parent


class Checks:
    def __init__(self, harness):
        self.harness = harness

    def refused(self, what, pid, text, user=None, prefix=()):
        """Whether -p and a pid in a probe's name are both refused by one line."""
        for arguments in (("-n", "BEGIN { exit(0); }", "-p", str(pid)), ("-n", f"pid{pid}::malloc:entry {{ }}"),
                          ("-l", "-n", "pid$target:::entry", "-p", str(pid))):
            command = [*prefix, self.harness.trapline, *arguments]
            extra = {"user": user, "group": user, "extra_groups": []} if user is not None else {}
            done = subprocess.run(command, capture_output=True, timeout=60, check=False, cwd="/", **extra)
            err = done.stderr.decode(errors="replace")
            self.harness.no_report(err)
            self.harness.expect(done.returncode == 1 and done.stdout == b"" and
                                re.fullmatch(f"dtrace: failed to grab pid {pid}: .*{text}.*\n", err),
                                f"{what}, {arguments}: exit status {done.returncode}\n{err}")

    def untouched(self, what, pid):
        state = processes.status_field(pid, "State") or "gone"
        self.harness.expect(state[0] in "RSZ" and processes.status_field(pid, "TracerPid") == "0",
                            f"{what}: it was touched: {state}")


def main():
    if os.getuid() != 0:
        print("skipped: needs root, to be several users")
        sys.exit(SKIPPED)
    harness = Harness(__doc__)
    harness.trapline = shutil.copy(harness.trapline, harness.folder.name)
    checks = Checks(harness)

    target = harness.target("ticker")
    checks.refused("another user's process", target.pid, r"belongs to user root \(0\), and you are nobody", user=NOBODY)
    harness.expect(target.unharmed(), "another user's process was harmed")
    target.end()

    hidden = child(hide)
    checks.refused("a process that is not dumpable", hidden, "not dumpable", user=NOBODY)
    checks.untouched("a process that is not dumpable", hidden)
    os.kill(hidden, signal.SIGKILL)
    os.waitpid(hidden, 0)

    dead, parent = zombie()
    checks.refused("a zombie", dead, "it is a zombie that its parent, .*, has not waited for")
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)

    thread = kernel_thread()
    if thread is not None:
        checks.refused("a kernel thread", thread, "is a kernel thread")
        checks.refused("a kernel thread, as nobody", thread, "is a kernel thread", user=NOBODY)

    # Root of a user namespace of its own has all capabilities there, and none over what is outside.
    outside = harness.target("ticker")
    inside = ("unshare", "--user", "--map-root-user")
    if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode == 0:
        checks.refused("a process of another user namespace", outside.pid, "user namespace", prefix=inside)
        harness.expect(outside.unharmed(), "a process of another user namespace was harmed")
    outside.end()

    # Itself, and pid 1 where that is itself.
    done = subprocess.run(["sh", "-c", f"exec {harness.trapline} -n 'BEGIN {{ exit(0); }}' -p $$"], capture_output=True,
                          timeout=60, check=False)
    harness.expect(done.returncode == 1 and b"cannot trace itself" in done.stderr, f"itself: {done.stderr.decode()}")
    harness.finish()


if __name__ == "__main__":
    main()
