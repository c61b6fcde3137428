#!/usr/bin/env python3
"""Tracers come to real programs under load, arm much, and go, or are killed; nothing may change for the programs.

    soak.py --trapline T --targets D                       a few cycles with each program
    soak.py ... --workload storm --cycles 1000 --log L     a slice of a long run; its result is added to the log
    soak.py --sum L...                                     adds up logs

In each cycle a tracer with a random program (most of them: every function of every module, entry and return) is started,
ends by itself or by SIGINT after a random time, or, in one of ten, one or both of its processes are killed with -9 at
a random moment. Then: it ended as it should; within two seconds the program is not stopped, not traced, has no
mapping and no descriptor of ours. Where both processes were killed, the next tracer that comes as far as tracing has to take
back what they left. At the end the program says whether
its own results were right. What is needed and not installed is left out, with a word."""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import workloads
from workloads import processes

SKIPPED = 77
PATIENCE = 300  # seconds, for whatever a cycle waits for: the machine may be busy with something else
BOOK, ARENA = b"TPLBOOK1", b"TRAPLIN1"


def ours(pid):
    """Mappings of pid that start with a magic of ours, by their start."""
    found = {}
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as maps, \
                open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            for line in maps:
                if "r-xp" not in line and "/memfd:" not in line:
                    continue
                try:
                    memory.seek(int(line.split("-")[0], 16))
                    if memory.read(8) in (BOOK, ARENA):
                        found[line.split("-")[0]] = line.strip()
                except OSError:
                    continue  # the vsyscall page, or gone by now
    except (FileNotFoundError, ProcessLookupError):
        pass
    return found


def descriptors(pid):
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def state(pid):
    return (processes.status_field(pid, "State") or "gone")[0]


class Cycle:
    def __init__(self, options, workload, chance, number, orphans):
        self.options, self.workload, self.chance, self.number = options, workload, chance, number
        self.orphans = orphans  # by process: what tracers left of which both processes were killed
        self.result = {"workload": workload.name, "cycle": number, "how": "", "wrong": []}

    def wrong(self, text):
        self.result["wrong"].append(text)

    def run(self):
        """What happened; None: there was no process to trace just now, or it has ended meanwhile."""
        candidates = self.workload.processes()
        if not candidates:
            return None
        pid = self.chance.choice(candidates)
        how = self.chance.choices(["ends", "interrupted", "killed"], [50, 40, 10])[0]
        if how == "killed":
            how = self.chance.choice(["first killed", "worker killed", "both killed"])
        self.result |= {"how": how, "program": self.chance.choice(self.workload.programs)}
        before = descriptors(pid)
        status, errors = self.trace(pid, how)
        alive = state(pid) not in "gXZ"
        self.look_after(pid, how, before)
        if self.result["wrong"]:
            self.wrong(f"the tracer said: {errors[-800:]}")
        if not alive and not self.result["wrong"]:
            return None
        # Interrupted before it has taken its signals, it dies of it; nothing was armed then.
        if "killed" not in how and status not in (0, -signal.SIGINT):
            self.wrong(f"exit status {status}, and the tracer said: {errors[-800:]}")
        return self.result

    def trace(self, pid, how):
        body = self.chance.choice(["@ = count();", "@[probefunc] = count();", "@[probename] = quantize(arg0);",
                                   "@[tid] = max(arg1);", "self->t = timestamp; @ = avg(self->t);"])
        ends = f"tick-{self.chance.randint(1, 300)}ms {{ exit(0); }}" if how == "ends" else ""
        tracer = subprocess.Popen([self.options.trapline, "-q", "-x", "force", "-n",
                                   f"{self.result['program']} {{ {body} }} {ends}", "-p", str(pid)],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                  start_new_session=True,
                                  preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        if how != "ends":
            time.sleep(self.chance.uniform(0, 2.5))
            self.hit(tracer.pid, how)
        try:
            errors = tracer.communicate(timeout=PATIENCE)[1].decode(errors="replace")
        except subprocess.TimeoutExpired:
            self.wrong(f"the tracer did not end in {PATIENCE} s")
            tracer.kill()
            errors = tracer.communicate()[1].decode(errors="replace")
        return tracer.returncode, errors

    def hit(self, first, how):
        workers = processes.children(first)
        victims = {"interrupted": [first], "first killed": [first], "worker killed": workers,
                   "both killed": [first, *workers]}[how] or [first]
        numbers = [signal.SIGINT] if how == "interrupted" else [signal.SIGSTOP, signal.SIGKILL]
        for number in numbers:
            for pid in victims:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass

    def look_after(self, pid, how, before):
        if how == "both killed":
            self.orphans[pid] = set(ours(pid))
        else:
            # Killed or interrupted early, it has not come to what others left.
            excused = set() if how == "ends" else self.orphans.get(pid, set())
            if not processes.wait_until(lambda: ours(pid).keys() <= excused, PATIENCE):
                self.wrong(f"left behind: {ours(pid)}, of which earlier: {excused}")
        untraced = processes.wait_until(lambda: processes.status_field(pid, "TracerPid") in ("0", None), PATIENCE)
        if not untraced:
            self.wrong(f"still traced by {processes.status_field(pid, 'TracerPid')}")
        if not processes.wait_until(lambda: state(pid) not in "Tt", PATIENCE):
            self.wrong("left stopped")
        # Its own come and go as well.
        self.result["descriptors"] = descriptors(pid) - before


def run_workload(options, kind, cycles, seed):
    """One line of the log."""
    folder = tempfile.mkdtemp(prefix="trapline-soak-")
    chance = random.Random(seed)
    workload = kind(options.targets, folder)
    begin = time.monotonic()
    done, hows, wrong, descriptor_sum, orphans = 0, {}, [], 0, {}
    try:
        workload.start()
        while done < cycles and not wrong and not workload.wrong:
            result = Cycle(options, workload, chance, done, orphans).run()
            if result is None:
                time.sleep(0.01)
                if time.monotonic() - begin > cycles * PATIENCE:
                    wrong.append("there is never a process to trace")
                continue
            done += 1
            hows[result["how"]] = hows.get(result["how"], 0) + 1
            descriptor_sum += result["descriptors"]
            wrong += [f"cycle {done}: {result['how']}, {result['program']}: {text}" for text in result["wrong"]]
        wrong += workload.finish()
    finally:
        for child in workload.children:
            if child.poll() is None:
                child.kill()
                child.wait()
        shutil.rmtree(folder, ignore_errors=True)
    return {"workload": workload.name, "cycles": done, "seed": seed, "how": hows, "wrong": wrong,
            "descriptors": descriptor_sum, "seconds": round(time.monotonic() - begin)}


def sum_up(paths):
    sums = {}
    for path in paths:
        with open(path, encoding="utf-8") as log:
            for line in log:
                entry = json.loads(line)
                total = sums.setdefault(entry["workload"], {"cycles": 0, "killed": 0, "wrong": 0, "seconds": 0})
                total["cycles"] += entry["cycles"]
                total["killed"] += sum(n for how, n in entry["how"].items() if "killed" in how)
                total["wrong"] += len(entry["wrong"])
                total["seconds"] += entry["seconds"]
    for name, total in sums.items():
        print(f"{name:10} {total['cycles']:5} cycles, {total['killed']:4} of them killed, {total['wrong']} wrong, "
              f"{total['seconds']} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trapline")
    parser.add_argument("--targets")
    parser.add_argument("--workload", choices=[kind.name for kind in workloads.ALL], action="append")
    parser.add_argument("--cycles", type=int, default=4)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--log")
    parser.add_argument("--sum", nargs="+")
    options = parser.parse_args()
    if options.sum:
        return sum_up(options.sum)
    processes.adopt_orphans()
    options.trapline, options.targets = os.path.abspath(options.trapline), os.path.abspath(options.targets)
    failed, ran = False, False
    for kind in workloads.ALL:
        if options.workload and kind.name not in options.workload:
            continue
        missing = kind.missing()
        if missing:
            print(f"{kind.name}: left out, {missing}", flush=True)
            continue
        seed = options.seed if options.seed is not None else int.from_bytes(os.urandom(4), "little")
        entry = run_workload(options, kind, options.cycles, seed)
        ran, failed = True, failed or bool(entry["wrong"])
        print(json.dumps(entry), flush=True)
        if options.log:
            with open(options.log, "a", encoding="utf-8") as log:
                print(json.dumps(entry), file=log)
    sys.exit(1 if failed else 0 if ran else SKIPPED)


if __name__ == "__main__":
    main()
