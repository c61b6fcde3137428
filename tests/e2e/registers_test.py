#!/usr/bin/env python3
"""An instrumented function leaves every general, vector, mask and x87 register, the flags, the control words and the red
zone as it would without probes: checked by the target itself, against the same code unprobed, from random states, with
probes at its entry, its returns and a random choice of its instructions, under bodies of every kind. That the target
would notice is tested first."""

import random
import re
import subprocess

from harness import Harness

TIMES = 300
HARMS = "r11 carry direction adjust overflow redzone below xmm x87 control mxcsr".split()
# Each names what it prints, so that it can be seen to have run.
BODIES = {
    "count": "{ @ = count(); }",
    "quantize": "{ @ = quantize(arg0); }",
    "keyed": "{ @[probename, tid, arg1 % 7] = count(); }",
    "text": '{ @[strjoin(probename, probefunc)] = sum(arg2); self->x = arg3; }',
    "time": "{ this->t = timestamp; @ = max(this->t); self->n++; }",
    "printf": '{ printf("%s %d %x\\n", probename, tid, arg4); }',
    "memory": '{ this->p = alloca(200); bcopy(alloca(200), this->p, 200); printf("%s\\n", copyinstr(arg5)); }',
}


def offsets(harness, path):
    listed = harness.trace("-l", "-n", "pid$target:a.out:r_subject:", "-c", f"{path} 1 1").stdout.decode()
    return re.findall(r"r_subject ([0-9a-f]+)$", listed, re.M)


def intact(harness, path, points, body, seed, *options):
    program = ",".join(f"pid$target:a.out:r_subject:{point}" for point in points) + BODIES[body]
    done = harness.trace("-q", *options, "-n", program,
                         "-c", f"{path} {seed} {TIMES}", "-o", f"{harness.folder.name}/out")
    told = done.stdout.decode()
    harness.expect(done.returncode == 0 and re.search(rf"^intact.* {TIMES}$", told, re.M),
                   f"{body}, seed {seed}, {options}: {done.returncode}\n{told}{done.stderr.decode()[-3000:]}\n{program}")


def notices(harness, path):
    for harm in HARMS:
        done = subprocess.run([path, "1", str(TIMES), "harm", harm], capture_output=True, text=True, check=False)
        harness.expect(done.returncode == 4 and "damaged" in done.stdout, f"{harm} is not noticed: {done.stdout}")
    done = subprocess.run([path, "1", str(TIMES)], capture_output=True, text=True, check=False)
    harness.expect(done.returncode == 0, f"without a tracer: {done.stdout}")
    print(done.stdout.strip())


def counts(harness, path, points, *options):
    """Every one of them fires each time, or is refused by name."""
    program = "pid$target:a.out:r_subject: { @[probename] = count(); }"
    done = harness.trace("-q", "-v", *options, "-n", program, "-c", f"{path} 1 {TIMES}")
    found = dict(re.findall(r"^ +(\w+) +(\d+)$", done.stdout.decode(), re.M))
    refused = re.findall(r"r_subject:(\w+) at 0x\w+ cannot be probed", done.stderr.decode())
    print(f"{options}: {len(found)} points counted, refused: {refused}")
    harness.expect(int(found.get("entry", 0)) == TIMES and int(found.get("return", 0)) == TIMES, f"{found}")
    harness.expect(len(found) + len(refused) >= len(points) - 1, f"{found} {refused}")  # ud2 is never reached


def main():
    harness = Harness(__doc__)
    path = f"{harness.targets}/registers"
    notices(harness, path)
    known = offsets(harness, path)
    harness.expect(len(known) > 70, f"too few offsets: {known}")
    counts(harness, path, known)
    for body in BODIES:
        seed = random.randrange(1 << 32)
        choice = random.Random(seed)
        intact(harness, path, ["entry", "return", *known], body, seed)
        for _ in range(2):
            intact(harness, path, ["entry", "return", *choice.sample(known, choice.randrange(1, 30))], body, seed)
    harness.finish()


main()
