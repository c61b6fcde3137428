#!/usr/bin/env python3
"""Yama's rule, as /proc/sys/kernel/yama tells it: where it forbids tracing, one line says so and names the setting; where
it does not, tracing works. The file is a stand-in in a mount namespace of the test's own; so what is tested is what is
said, not what such a kernel would do."""

import os
import subprocess
import sys

from harness import NOBODY, SKIPPED, Harness

PROGRAM = "BEGIN { exit(3); }"
STAND_IN = ('mount -t tmpfs none /proc/sys/kernel && mkdir /proc/sys/kernel/yama && '
            'echo "$1" > /proc/sys/kernel/yama/ptrace_scope && shift && '
            f'exec setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups "$@"')
FORBIDS = {2: "only root may trace on this system (kernel.yama.ptrace_scope is 2)",
           3: "tracing is switched off on this system (kernel.yama.ptrace_scope is 3"}


def run(scope, *command):
    return subprocess.run(["unshare", "-m", "sh", "-c", STAND_IN, "sh", str(scope), *command], capture_output=True,
                          timeout=120, check=False, text=True)


def main():
    if os.getuid() != 0 or run(0, "true").returncode != 0:
        print("needs root, and mount namespaces")
        sys.exit(SKIPPED)
    harness = Harness(__doc__)
    target = harness.target("storm", user=NOBODY)
    for scope in range(4):
        done = run(scope, harness.trapline, "-q", "-n", PROGRAM, "-p", str(target.pid))
        if scope in FORBIDS:
            harness.expect(done.returncode == 1, f"scope {scope}: exit status {done.returncode}")
            harness.expect(done.stderr.startswith("dtrace: ") and FORBIDS[scope] in done.stderr and
                           done.stderr.count("\n") == 1, f"scope {scope}: said {done.stderr}")
        else:
            harness.expect(done.returncode == 3, f"scope {scope}: exit status {done.returncode}: {done.stderr}")
        harness.expect(target.unharmed(), f"scope {scope}: the target was harmed")
    status, text = target.end()
    harness.expect(status == 0 and "intact 1" in text, f"the target ended with {status}: {text}")
    harness.finish()


if __name__ == "__main__":
    main()
