#!/usr/bin/env python3
"""profile-N samples three threads that spin, each in a function of its own: every one of them, there, in each of the
ways in which samples are taken; and the process is afterwards as it was before."""

import re
import subprocess

from harness import Harness

ENOUGH = 300  # samples
STOPPED_ENOUGH = 60


def functions(harness, target):
    """By thread's name: the first address of its function, and the one behind its last."""
    sizes = {}
    for line in subprocess.run(["nm", "-S", f"{harness.targets}/spinners"], capture_output=True, check=True,
                               text=True).stdout.splitlines():
        found = re.match(r"\w+ (\w+) [tT] spin_(\w+)$", line)
        if found:
            sizes[found[2]] = int(found[1], 16)
    starts = {name: int(at, 16) for name, at in re.findall(r"^(\w+) (0x\w+)$", target.child.text(), re.M)}
    return {name: (start, start + sizes[name]) for name, start in starts.items()}


def sample(harness, target, way, rate, enough):
    where = " ".join(f'profile-{rate} /pid == {target.pid} && execname == "{name}" && arg1 != 0/ '
                     f"{{ @[execname, arg1 >= {start} && arg1 < {end}] = count(); n++; }}"
                     for name, (start, end) in functions(harness, target).items())
    done = harness.trace("-q", "-v", "-x", f"sampling={way}", "-p", str(target.pid), "-n",
                         f"{where} profile-{rate} /n >= {enough}/ {{ exit(0); }}", timeout=120)
    text = done.stdout.decode()
    harness.expect(done.returncode == 0, f"{way}: exit status {done.returncode}\n{done.stderr.decode()}")
    counts = {(name, int(there)): int(count)
              for name, there, count in re.findall(r"^ +(\w+) +(\d) +(\d+)$", text, re.M)}
    total = sum(counts.values())
    harness.expect(total >= enough, f"{way}: {total} samples\n{text}")
    for name in ("one", "two", "three"):
        there = counts.get((name, 1), 0)
        harness.expect(there >= total / 10, f"{way}: thread {name} has {there} of {total} samples\n{text}")
        harness.expect(counts.get((name, 0), 0) <= total / 10, f"{way}: thread {name} was elsewhere\n{text}")
    harness.expect(target.unharmed(), f"{way}: the target was harmed")
    return done.stderr.decode()


def main():
    harness = Harness(__doc__)
    target = harness.target("spinners")
    said = sample(harness, target, "stop", 97, STOPPED_ENOUGH)
    harness.expect("by stopping them" in said, f"stop: it does not say so:\n{said}")
    said = sample(harness, target, "stop", 997, STOPPED_ENOUGH)
    harness.expect(re.search(r"\d+ profile drops?\n", said), f"stop: lost samples were not told:\n{said}")
    for way, words in (("process", "threads alone"), ("machine", "every processor")):
        probe = harness.trace("-q", "-x", f"sampling={way}", "-n", "BEGIN { exit(0); } profile-97 { }", "-p",
                              str(target.pid))
        if b"does not allow perf events" in probe.stderr or b"no perf events" in probe.stderr:
            print(f"{way}: left out: {probe.stderr.decode()}")
            continue
        said = sample(harness, target, way, 997, ENOUGH)
        harness.expect(words in said, f"{way}: it does not say so:\n{said}")
    status, text = target.end()
    harness.expect(status == 0 and text.endswith("signals lost 0\n"), f"the target ended with {status}:\n{text}")
    harness.finish()


if __name__ == "__main__":
    main()
