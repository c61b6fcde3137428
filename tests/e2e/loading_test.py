#!/usr/bin/env python3
"""Modules that come and go: while a tracer comes and goes, in several processes, in python, with the other C library,
and in a process that cannot tell that it has loaded one."""

import os
import re
import shutil
import signal
import sys
import time

import processes
from harness import Harness

STEPS = "pid$target::plugin_step:entry"


def number(pattern, text):
    found = re.search(pattern, text, re.M)
    return int(found.group(1)) if found else None


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(child) for child in file.read().split()]


class Tracer:
    def __init__(self, harness, *arguments):
        self.watch = processes.Watch()
        self.child = processes.Child(self.watch, "trapline", [harness.trapline, *arguments])

    def wait_for(self, text):
        return self.watch.until(lambda: text in self.child.out or not self.child.running(), time.monotonic() + 60)

    def end(self, number_of_signal=None):
        if number_of_signal is not None:
            self.child.signal(number_of_signal)
        self.watch.until(lambda: not self.child.running(), time.monotonic() + 60)
        self.watch.drain(self.child, time.monotonic() + 5)
        return self.child.text()


def a_tracer_comes_and_goes(harness):
    """While four threads load and unload: the target is right, and each tracer has counted something."""
    library = os.path.join(harness.targets, "libplugin.so")
    target = harness.target("plugins", "--wait", library, "20000", "4")
    target.child.write(b"go\n")
    for _ in range(6):
        program = 'BEGIN { printf("armed\\n"); } ' + STEPS + " { @ = count(); seen = 1; } tick-20ms /seen/ { exit(0); }"
        done = harness.trace("-q", "-Z", "-n", program, "-p", str(target.pid))
        if not target.child.running():
            break
        harness.expect(done.returncode == 0 and number(r"^ +(\d+)$", done.stdout.decode()),
                       f"a tracer of a loading process: {done}")
        harness.expect(b"patched over" not in done.stderr, f"it left something: {done.stderr}")
    status, text = target.end(120)
    harness.expect(status == 0, f"the target ended with {status}: {text}")


def two_processes(harness):
    library = os.path.join(harness.targets, "libplugin.so")
    targets = [harness.target("plugins", "--wait", library, str(times)) for times in (10, 20)]
    tracer = Tracer(harness, "-q", "-Z", "-n",
                    'BEGIN { printf("armed\\n"); } ' + STEPS + " { @[pid] = count(); }",
                    *[word for target in targets for word in ("-p", str(target.pid))])
    harness.expect(tracer.wait_for(b"armed\n"), "the tracer did not start")
    for target in targets:
        target.end()
    text = tracer.end()
    for target, steps in zip(targets, (180, 360)):
        harness.expect(number(rf"^ +{target.pid} +(\d+)$", text) == steps, f"pid {target.pid}, {steps}: {text}")


def python_imports(harness):
    python = shutil.which("python3")
    program = ("import _json\n"
               "for i in range(50): _json.encode_basestring_ascii('x' * i)\n")
    done = harness.trace("-q", "-Z", "-n", "pid$target:_json*:*encode*:entry { @[probefunc] = count(); }",
                         "-c", f"{python} -I -c \"{program}\"")
    if b"_json" not in done.stdout + done.stderr and done.stdout.strip() == b"":
        print("python3 has _json built in: not looked at")
        return
    counts = [int(n) for n in re.findall(r"(\d+)$", done.stdout.decode(), re.M)]
    harness.expect(50 in counts, f"python's own module: {done}")


def another_c_library(harness):
    library = os.path.join(harness.targets, "libplugin_musl.so")
    if not os.path.exists(library):
        print("no musl-gcc: musl's loader is not looked at")
        return
    target = os.path.join(harness.targets, "plugins_musl")
    # musl never unloads: the destructor runs when the program ends, after it has said how many it were.
    done = harness.trace("-q", "-Z", "-n", STEPS + " { @ = count(); }", "-c", f"{target} {library} 5")
    text = done.stdout.decode()
    steps = number(r"^steps (\d+)$", text)
    harness.expect(steps == 35 and number(r"^ +(\d+)$", text) == 38, f"musl: {done}")


def one_that_cannot_tell(harness):
    """Its filter might kill a system call that is not its own: so it is not made to tell, and is armed late."""
    if os.geteuid() != 0:
        print("needs root: the process under a filter is not looked at")
        return
    library = os.path.join(harness.targets, "libplugin.so")
    target = harness.target("plugins", "--wait", "--filtered", library, "0")
    tracer = Tracer(harness, "-q", "-Z", "-n", 'BEGIN { printf("armed\\n"); } ' + STEPS +
                    ' { @ = count(); seen = 1; } tick-10ms /seen/ { printf("seen\\n"); exit(0); }', "-p", str(target.pid))
    harness.expect(tracer.wait_for(b"armed\n"), "the tracer did not start")
    target.child.write(b"go\n")
    harness.expect(tracer.wait_for(b"seen\n"), "a late library was never traced")
    tracer.end()
    harness.expect(b"loaded libplugin.so before its probes could be armed: earlier calls were missed"
                   in tracer.child.err, f"the gap is told: {bytes(tracer.child.err)}")
    status, _ = target.end()
    harness.expect(status == 0, f"the target ended with {status}")


def a_tracer_that_is_stopped(harness):
    """Nobody answers: the process loads all the same, a moment later, and the miss is told."""
    library = os.path.join(harness.targets, "libplugin.so")
    target = harness.target("plugins", "--wait", library, "0")
    tracer = Tracer(harness, "-q", "-Z", "-n",
                    'BEGIN { printf("armed\\n"); } ' + STEPS + ' { @ = count(); seen = 1; } tick-10ms /seen/ { exit(0); }',
                    "-p", str(target.pid))
    harness.expect(tracer.wait_for(b"armed\n"), "the tracer did not start")
    everyone = [tracer.child.pid, *children_of(tracer.child.pid)]
    for pid in everyone:
        os.kill(pid, signal.SIGSTOP)
    target.child.write(b"go\n")
    harness.expect(target.watch.until(lambda: b"loaded\n" in target.child.out, time.monotonic() + 30),
                   "the target waits for ever")
    for pid in everyone:
        os.kill(pid, signal.SIGCONT)
    tracer.end()
    harness.expect(b"earlier calls were missed" in tracer.child.err, f"the miss is told: {bytes(tracer.child.err)}")
    status, _ = target.end()
    harness.expect(status == 0, f"the target ended with {status}")


def main():
    harness = Harness(__doc__)
    for test in (two_processes, a_tracer_comes_and_goes, python_imports, another_c_library, one_that_cannot_tell,
                 a_tracer_that_is_stopped):
        test(harness)
        sys.stdout.flush()
    harness.finish()


main()
