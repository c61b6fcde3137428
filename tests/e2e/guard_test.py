#!/usr/bin/env python3
"""A tracer has two processes. Whichever is killed, at whatever moment, the other one takes the probes back: within a second
the target is as it was, and so are children that it forked. If all of them are killed, the next tracer does it."""

import os
import random
import signal
import subprocess
import sys
import time

import processes
from harness import Harness, Target, Tracer

COUNT = 'BEGIN { printf("armed\\n"); } pid$target:a.out:tick:entry { @ = count(); seen = 1; } '
# All of libc: some tenths of a second from the start to the last jump.
WIDE = 'BEGIN { printf("armed\\n"); } pid$target:libc.so.6::entry, pid$target:libc.so.6::return { @ = count(); } '
FLOOD = 'BEGIN { printf("armed\\n"); } pid$target:a.out:tick:entry { printf("%512s", "x"); seen = 1; } '
AT_ONCE = 1.0  # seconds; and again that much for a machine that is busy
RANDOM_KILLS = 12

FORKER = """
import os, sys, time
print("ready", flush=True)
children = []
while True:
    line = sys.stdin.readline()
    if not line.startswith("fork"): break
    child = os.fork()
    if child == 0:
        while True: time.sleep(0.002)
    children.append(child)
    print("child", child, flush=True)
for child in children: os.kill(child, 9)
"""


def untraced(harness, target, why):
    """Nothing of ours is left, soon."""
    clean = processes.wait_until(lambda: not processes.our_mappings(target.pid), 2 * AT_ONCE)
    harness.expect(clean, f"{why}: left behind: {processes.our_mappings(target.pid)}")
    harness.expect(processes.wait_until(target.unharmed, AT_ONCE), f"{why}: the target was harmed")
    return clean


def traced_again(harness, target, why):
    done = harness.trace("-q", "-n", COUNT + "tick-10ms /seen/ { exit(0); }", "-p", str(target.pid))
    harness.expect(done.returncode == 0 and not done.stderr, f"{why}: not to be traced again: {done.stderr}")


def the_first_is_killed(harness, target):
    tracer = Tracer(harness, target.pid, COUNT)
    worker = tracer.worker()
    tracer.child.signal(signal.SIGKILL)
    untraced(harness, target, "the first process was killed")
    gone = processes.wait_until(lambda: processes.status_field(worker, "State") in (None, "Z (zombie)"), AT_ONCE)
    harness.expect(gone, "the worker outlives the process that was killed")
    tracer.end(0)
    harness.expect(tracer.child.text() == "armed\n", f"it still printed: {tracer.child.text()!r}")
    traced_again(harness, target, "the first process was killed")


def the_first_is_killed_before_arming(harness, target):
    """The worker arms nothing any more: the next tracer may have looked at what stands there already."""
    tracer = subprocess.Popen([harness.trapline, "-q", "-n", WIDE, "-p", str(target.pid)], stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    processes.wait_until(lambda: processes.children(tracer.pid), 30)
    worker = processes.children(tracer.pid)[0]
    os.kill(worker, signal.SIGSTOP)
    harness.expect(not processes.our_mappings(target.pid), "it has arrived already: this tests nothing")
    tracer.kill()
    tracer.wait()
    os.kill(worker, signal.SIGCONT)
    status = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
    harness.expect(status == 1, f"the worker went on, and ended with {status}")
    untraced(harness, target, "the first process was killed before anything was armed")


def the_worker_is_killed(harness, target):
    tracer = Tracer(harness, target.pid, COUNT)
    os.kill(tracer.worker(), signal.SIGKILL)
    untraced(harness, target, "the worker was killed")
    tracer.end(0)
    harness.expect(tracer.child.process.returncode == -signal.SIGKILL, f"exit {tracer.child.process.returncode}")
    harness.expect("was killed (SIGKILL): 1 process restored" in tracer.child.errors(),
                   f"not told: {tracer.child.errors()!r}")
    traced_again(harness, target, "the worker was killed")


def the_group_is_killed(harness, target):
    tracer = Tracer(harness, target.pid, COUNT)
    os.killpg(tracer.child.pid, signal.SIGKILL)  # it leads a session, and so a group
    untraced(harness, target, "the process group was killed")
    tracer.end(0)
    traced_again(harness, target, "the process group was killed")


def a_place_with_other_bytes(harness, target):
    """It was refused, so what stands there is no reason to leave the others."""
    tracer = Tracer(harness, target.pid, COUNT)
    site = max(processes.patched_sites(target.pid))  # in an exec function of libc, which is never called
    tracer.end()
    with open(f"/proc/{target.pid}/mem", "r+b", buffering=0) as memory:
        memory.seek(site)
        before = memory.read(1)
        memory.seek(site)
        memory.write(b"\xcc")
        tracer = Tracer(harness, target.pid, WIDE)
        harness.expect(site not in processes.patched_sites(target.pid), "other bytes were written over")
        os.kill(tracer.worker(), signal.SIGKILL)
        untraced(harness, target, "the worker was killed; a place had other bytes")
        tracer.end(0)
        harness.expect("1 process restored" in tracer.child.errors(), f"not told: {tracer.child.errors()!r}")
        memory.seek(site)
        memory.write(before)
    traced_again(harness, target, "a place had other bytes")


def nobody_reads_its_output(harness, target):
    """The worker is in the midst of a write that waits for a reader."""
    fifo = os.path.join(harness.folder.name, "fifo")
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    tracer = Tracer.__new__(Tracer)
    tracer.watch = processes.Watch()
    tracer.child = processes.Child(tracer.watch, "trapline", [harness.trapline, "-q", "-n", FLOOD, "-p", str(target.pid)],
                                   stdout_to=fifo)
    blocked = processes.wait_until(lambda: processes.children(tracer.child.pid) and
                                   "pipe_write" in wait_channel(tracer.worker()), 30)
    harness.expect(blocked, f"the worker never waited for a reader: {wait_channel(tracer.worker())}")
    tracer.child.signal(signal.SIGKILL)
    untraced(harness, target, "killed while its output is not read")
    os.close(reader)
    tracer.end(0)


def wait_channel(pid):
    try:
        with open(f"/proc/{pid}/wchan", encoding="ascii") as file:
            return file.read()
    except OSError:
        return ""


def at_random_moments(harness, target):
    seed = int.from_bytes(os.urandom(4), "little")
    print(f"seed {seed}")
    chance = random.Random(seed)
    for n in range(RANDOM_KILLS):
        tracer = Tracer.__new__(Tracer)
        tracer.watch = processes.Watch()
        tracer.child = processes.Child(tracer.watch, "trapline",
                                       [harness.trapline, "-q", "-n", WIDE, "-p", str(target.pid)])
        time.sleep(chance.uniform(0, 1.2))
        workers = processes.children(tracer.child.pid)
        first = chance.random() < 0.5 or not workers
        try:
            os.kill(tracer.child.pid if first else workers[0], signal.SIGKILL)
        except ProcessLookupError:
            pass
        tracer.end(0)
        said = tracer.child.errors()[-500:]
        if not untraced(harness, target, f"random kill {n} of the {'first' if first else 'worker'}: {said}"):
            break
    traced_again(harness, target, "after kills at random moments")


def children_of_the_target(harness):
    target = Target([sys.executable, "-c", FORKER])
    target.wait_for_ready()
    program = 'BEGIN { printf("armed\\n"); } pid$target:libc.so.6:clock_nanosleep:entry { @ = count(); }'
    tracer = Tracer(harness, target.pid, program)
    for _ in range(3):
        target.child.write(b"fork\n")
    told = target.watch.until(lambda: target.child.out.count(b"child") == 3, time.monotonic() + 30)
    harness.expect(told, "no children")
    everyone = [target.pid, *processes.children(target.pid)]
    harness.expect(all(processes.our_mappings(pid) for pid in everyone), "a child inherited nothing: this tests nothing")
    os.kill(tracer.worker(), signal.SIGKILL)
    clean = processes.wait_until(lambda: not any(processes.our_mappings(pid) for pid in everyone), 2 * AT_ONCE)
    harness.expect(clean, f"left behind: {[processes.our_mappings(pid) for pid in everyone]}")
    tracer.end(0)
    harness.expect("4 processes restored" in tracer.child.errors(), f"not told: {tracer.child.errors()!r}")
    status, text = target.end()
    harness.expect(status == 0, f"the target ended with {status}: {text}")


def main():
    harness = Harness(__doc__)
    target = harness.target("ticker")
    the_first_is_killed(harness, target)
    the_first_is_killed_before_arming(harness, target)
    the_worker_is_killed(harness, target)
    the_group_is_killed(harness, target)
    a_place_with_other_bytes(harness, target)
    nobody_reads_its_output(harness, target)
    at_random_moments(harness, target)
    status, text = target.end()
    harness.expect(status == 0, f"the target ended with {status}: {text}")
    children_of_the_target(harness)
    harness.finish()


if __name__ == "__main__":
    main()
