#!/usr/bin/env python3
"""Every entry and return of libc, by whatever form of jump each place takes, under eight threads that never pause: a
tracer comes and goes, and is killed midst, and the next one takes back what that one left. The target must not be
harmed, every function must be left as often as it is entered, and next to no place may be refused."""

import re
import signal
import subprocess
import time

import processes
from harness import Harness

VISITS = 6
KILLED = 3
ALL = "pid$target:libc.so.6::entry,pid$target:libc.so.6::return"
COUNT = ALL + " { @[probename] = count(); seen = 1; } tick-100ms /seen/ { exit(0); }"


def visit(harness, target, n):
    done = harness.trace("-q", "-n", COUNT, "-p", str(target.pid), timeout=60)
    counts = dict(re.findall(r"(entry|return) +(\d+)$", done.stdout.decode(), re.M))
    harness.expect(done.returncode == 0 and {"entry", "return"} <= counts.keys(),
                   f"visit {n}: exit status {done.returncode}, {counts}\n{done.stderr.decode()[-2000:]}")
    # Eight threads may be in the midst of a call at either end of the visit.
    if {"entry", "return"} <= counts.keys():
        apart = abs(int(counts["entry"]) - int(counts["return"]))
        harness.expect(apart <= max(1000, int(counts["entry"]) // 20), f"visit {n}: {counts}")
    # The second process of a tracer that was killed may still be giving pages back.
    return harness.expect(processes.wait_until(target.unharmed, 5), f"visit {n}: the target was harmed: {target.child.process.poll()}")


def places(harness, target):
    """What of libc is refused: at most 0.1 % of the entries and 1 % of the returns."""
    listed = harness.trace("-lv", "-n", ALL, "-p", str(target.pid), timeout=60).stdout.decode()
    forms = dict.fromkeys(["jump", "padding", "island"], 0)
    for form in re.findall(r"^\t\tinline \((\w+)\)", listed, re.M):
        forms[form] += 1
    refused = re.findall(r"^\t\trefused: .*", listed, re.M)
    print(f"{forms}, {len(refused)} refused")
    harness.expect(all(count > 0 for count in forms.values()), f"forms that no place takes: {forms}")
    harness.expect(len(refused) * 100 < sum(forms.values()), f"{len(refused)} refused of {forms}:\n" + "\n".join(refused))


def kill_midst(harness, target, n):
    tracer = subprocess.Popen([harness.trapline, "-q", "-n", ALL + " { @ = count(); } END { }", "-p", str(target.pid)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    time.sleep(0.1 * (n + 1))  # anywhere: before, while or after the jumps are written
    tracer.send_signal(signal.SIGKILL)
    tracer.wait()
    harness.expect(target.child.running(), f"killed tracer {n}: the target ended")


def main():
    harness = Harness(__doc__)
    target = harness.target("storm")
    places(harness, target)
    for n in range(VISITS):
        if not visit(harness, target, n):
            break
    for n in range(KILLED):
        kill_midst(harness, target, n)
        if not visit(harness, target, VISITS + n):
            break
    status, text = target.end()
    harness.expect(status == 0 and "intact 1" in text, f"the target ended with {status}: {text}")
    harness.finish()


if __name__ == "__main__":
    main()
