#!/usr/bin/env python3
"""-x follow: the ways in which a program starts another, a child that ends by a signal, one that outlives its parent, and
many short ones, which must not pile up in the tracer."""

import os
import re
import shutil
import time

import processes
from harness import Harness

# mallocs 1 10 allocates 24 bytes 20 times; python does so itself, so one that allocates a size of its own is counted.
PROGRAM = 'pid$target:libc.so.6:malloc:entry /arg0 == 5000 && execname == "mallocs"/ { @ = count(); } ' \
          'END { printa("counted %@d\\n", @); }'


def counted(done):
    found = re.search(r"^counted (\d+)$", done.stdout.decode(), re.M)
    return int(found.group(1)) if found else None


def ways_to_start_one(harness):
    python = shutil.which("python3")
    mallocs = os.path.join(harness.targets, "mallocs")
    ways = {
        "subprocess": f"import subprocess; subprocess.run(['{mallocs}', '1', '10'])",
        "system": f"import os; os.system('{mallocs} 1 10')",
        "popen": f"import os; os.popen('{mallocs} 1 10').read()",
        "posix_spawn": f"import os; os.posix_spawn('{mallocs}', ['mallocs', '1', '10'], os.environ); os.wait()",
        "fork and exec": f"import os; os.fork() or os.execv('{mallocs}', ['mallocs', '1', '10']); os.wait()",
        "a chain": f"import os; os.fork() or os.fork() or os.fork() or os.execv('{mallocs}', ['mallocs', '1', '10']); os.wait()",
    }
    for name, program in ways.items():
        script = os.path.join(harness.folder.name, "way.py")
        with open(script, "w", encoding="utf-8") as file:
            file.write(program + "\n")
        done = harness.trace("-q", "-x", "follow", "-n", PROGRAM, "-c", f"{python} -I {script}")
        harness.expect(counted(done) == 10, f"{name}: {done}")


def outlives_its_parent(harness):
    mallocs = os.path.join(harness.targets, "mallocs")
    done = harness.trace("-q", "-x", "follow", "-n", PROGRAM, "-c", f"sh -c '(sleep 0.5; {mallocs} 1 40) & exit 0'")
    harness.expect(counted(done) == 40, f"a child that outlives its parent: {done}")


def ends_by_a_signal(harness):
    mallocs = os.path.join(harness.targets, "mallocs")
    done = harness.trace("-q", "-x", "follow", "-n", PROGRAM, "-c",
                         f"sh -c '(kill -9 $(exec sh -c \"echo \\$PPID\")); {mallocs} 1 10; true'")
    harness.expect(done.returncode == 0 and counted(done) == 10, f"a child that is killed: {done}")


def one_that_runs(harness):
    script = os.path.join(harness.folder.name, "script.sh")
    with open(script, "w", encoding="utf-8") as file:
        file.write(f"echo ready; read line; {os.path.join(harness.targets, 'mallocs')} 1 70 & wait\n")
    target = harness.target("sh", script, path="/bin/sh")
    watch = processes.Watch()
    tracer = processes.Child(watch, "trapline", [harness.trapline, "-q", "-x", "follow", "-n",
                                                 'BEGIN { printf("armed\\n"); } ' + PROGRAM, "-p", str(target.pid)])
    watch.until(lambda: b"armed\n" in tracer.out or not tracer.running(), time.monotonic() + 60)
    status, _ = target.end()
    watch.until(lambda: not tracer.running(), time.monotonic() + 60)
    watch.drain(tracer, time.monotonic() + 5)
    harness.expect(status == 0 and "counted 70" in tracer.text(), f"a running process's child: {status} {tracer.text()}")


def many_short_ones(harness):
    """The tracer's descriptors and mappings are as many after 150 more as they were after 50."""
    mallocs = os.path.join(harness.targets, "mallocs")
    script = os.path.join(harness.folder.name, "many.sh")
    with open(script, "w", encoding="utf-8") as file:
        file.write(f"i=0; while [ $i -lt 200 ]; do {mallocs} 1 1 >/dev/null; i=$((i+1)); "
                   "if [ $i = 50 ] || [ $i = 199 ]; then echo at $i; read line; fi; done\n")
    watch = processes.Watch()
    tracer = processes.Child(watch, "trapline", [harness.trapline, "-q", "-x", "follow", "-n", PROGRAM, "-c", f"sh {script}"])

    def size():
        sizes = []
        with open(f"/proc/{tracer.pid}/task/{tracer.pid}/children", encoding="ascii") as file:
            for pid in [tracer.pid, *file.read().split()]:
                with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
                    sizes.append((len(os.listdir(f"/proc/{pid}/fd")), sum("memfd" in line for line in maps)))
        return [max(column) for column in zip(*sizes)]

    found = []
    for number in (50, 199):
        if not harness.expect(watch.until(lambda n=number: f"at {n}\n".encode() in tracer.out or not tracer.running(),
                                          time.monotonic() + 200), f"the script did not come to {number}"):
            break
        time.sleep(0.3)
        found.append(size())
        tracer.write(b"go\n")
    watch.until(lambda: not tracer.running(), time.monotonic() + 60)
    watch.drain(tracer, time.monotonic() + 5)
    harness.expect("counted 200" in tracer.text(), f"every one is counted: {tracer.text()[-500:]} {bytes(tracer.err)[-500:]}")
    harness.expect(len(found) == 2 and all(b <= a + 3 for a, b in zip(*found)), f"it grows: {found}")


def main():
    harness = Harness(__doc__)
    for test in (ways_to_start_one, outlives_its_parent, ends_by_a_signal, one_that_runs, many_short_ones):
        test(harness)
    harness.finish()


main()
