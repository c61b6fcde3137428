#!/usr/bin/env python3
"""The engine `outside` gives what `inline` and `trap` give, exactly; and traces what nothing can be mapped into."""

import os
import re
import subprocess
import sys

import processes
from harness import Harness, Target

# A program, and the target that it traces. What it prints is the same each time.
PROGRAMS = [
    ('pid$target::malloc:entry { @[arg0] = count(); }', "mallocs 4 500"),
    ('pid$target::malloc:entry { @ = quantize(arg0); @l = lquantize(arg0, 0, 1000, 100); @s = stddev(arg0); '
     '@m = max(arg0); @n = min(arg0); @a = avg(arg0); @t = sum(arg0); }', "mallocs 2 500"),
    ('pid$target::malloc:entry { self->n = arg0; } '
     'pid$target::malloc:return /self->n/ { @[self->n, arg1 != 0] = count(); self->n = 0; }', "mallocs 4 500"),
    ('pid$target:a.out:step:entry { printf("%d %s %s %s\\n", (int)arg0, probemod, probefunc, probename); } '
     'pid$target:a.out:step:return { printf("%d\\n", (int)arg1); }', "nested"),
    ('pid$target:a.out:take_string:entry { printf("[%s]\\n", copyinstr(arg0)); @[copyinstr(arg0)] = count(); }',
     "strings"),
    ('pid$target:a.out:take_bad:entry { printf("[%s]\\n", copyinstr(arg0)); } '
     'ERROR { printf("fault %d\\n", arg4); }', "strings"),
    ('int calls; long by[int]; pid$target:a.out:fn_*:entry { calls++; by[arg0 & 3] += 1; } '
     'END { printf("%d %d %d\\n", calls, by[1], by[2]); }', "nested"),
    ('pid$target:a.out:fn_d:entry { self->s = speculation(); speculate(self->s); printf("d %d\\n", (int)arg0); } '
     'pid$target:a.out:fn_d:return { commit(self->s); }', "nested"),
    ('pid$target:a.out:step:entry /++n == 3/ { printf("third\\n"); exit(4); }', "nested"),
    ('pid$target:a.out:s_*:entry, pid$target:a.out:s_*:return { @[probefunc, probename] = count(); }', "shortfns 100"),
    ('pid$target:libc.so.6:free: { @[probename] = count(); }', "mallocs 4 50"),
    ('pid$target:a.out:fn_a: { @[probename, pid == $target, tid == pid, execname] = count(); }', "nested"),
]


def run(harness, engine, program, command):
    name, *arguments = command.split()
    # A speculation is free again once the tracer has seen its commit().
    done = harness.trace("-q", "-x", f"engine={engine}", "-x", "nspec=8", "-n", program, "-c",
                         " ".join([f"{harness.targets}/{name}", *arguments]))
    # The target's own lines come when they come; and after exit() they may not come at all, as it is ended.
    ended = "exit(" in program
    lines = [line for line in done.stdout.splitlines() if not ended or line.startswith(b"third")]
    return done.returncode, sorted(lines), done.stderr


def engines_agree(harness):
    for program, command in PROGRAMS:
        # What no jump reaches is refused inline.
        against = "trap" if "s_*" in program or ": {" in program else "inline"
        expected = run(harness, against, program, command)
        got = run(harness, "outside", program, command)
        harness.expect(got[:2] == expected[:2] and len(b"".join(got[1])) > 4,
                       f"{command}: {program}\n{against}: {expected}\noutside: {got}")


# A filter that kills for memfd_create (319), which the arena needs; the target itself never calls it.
FILTERED = r"""
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
program = b"".join(struct.pack("HBBI", *one) for one in [
    (0x20, 0, 0, 0), (0x15, 0, 1, 319), (0x06, 0, 0, 0x80000000), (0x06, 0, 0, 0x7fff0000)])
class Fprog(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_char_p)]
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Fprog(len(program) // 8, program)), 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""


def signals_during_hits(harness):
    """A timer's handler calls what is probed at each instruction, of which some are stepped."""
    done = harness.trace("-q", "-x", "engine=outside", "-n", 'pid$target:a.out:probed: { @[probename] = count(); }',
                         "-c", f"{harness.targets}/signals 1000 10000")
    counts = dict(re.findall(r"^ *(\S+) +(\d+)$", done.stdout.decode(), re.M))
    calls = counts.pop("probed", None)
    for ended in ("main", "handler"):
        counts.pop(ended, None)
    harness.expect(len(counts) > 4 and set(counts.values()) == {calls}, f"of {calls} calls: {counts}")


def a_filter_that_kills(harness):
    program = 'pid$target::malloc:entry /arg0 == 24/ { @ = count(); }'
    for engine in ("outside", "auto"):
        target = Target([sys.executable, "-c", FILTERED, f"{harness.targets}/mallocs", "--wait", "2", "1000"])
        target.wait_for_ready()
        refused = harness.trace("-q", "-n", program, "-p", str(target.pid))
        harness.expect(refused.returncode == 1 and b"-x engine=outside" in refused.stderr,
                       f"not refused, or without the way out: {refused}")
        harness.expect(target.unharmed(), "the refusal harmed the target")
        traced_to_the_end(harness, target, engine, program)


def traced_to_the_end(harness, target, engine, program):
    tracer = subprocess.Popen(
        [harness.trapline, "-q", "-x", f"engine={engine}", "-n", 'BEGIN { printf("armed\\n"); } ' + program,
         "-p", str(target.pid)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=harness.folder.name)
    harness.expect(tracer.stdout.readline() == b"armed\n", "not armed")
    status, text = target.end()
    out, errors = tracer.communicate(timeout=60)
    harness.expect(status == 0 and "24 4000" in text, f"the target was harmed: {status} {text!r}")
    harness.expect(b"4000" in out.split(), f"{engine}: {out} {errors}")


def the_worker_is_killed(harness):
    """In between hits: the keeper knows of the breakpoints, and takes them back."""
    target = harness.target("mallocs", "--wait", "2", "1000")
    tracer = subprocess.Popen(
        [harness.trapline, "-q", "-x", "engine=outside", "-n",
         'BEGIN { printf("armed\\n"); } pid$target::malloc:entry, pid$target::free:entry { @ = count(); }',
         "-p", str(target.pid)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=harness.folder.name)
    harness.expect(tracer.stdout.readline() == b"armed\n", "not armed")
    os.kill(processes.children(tracer.pid)[0], 9)
    _, errors = tracer.communicate(timeout=60)
    harness.expect(b"1 process restored" in errors, f"not told: {errors}")
    status, text = target.end()
    harness.expect(status == 0 and "24 4000" in text, f"the target was harmed: {status} {text!r}")


def main():
    harness = Harness(__doc__)
    engines_agree(harness)
    signals_during_hits(harness)
    a_filter_that_kills(harness)
    the_worker_is_killed(harness)
    harness.finish()


main()
