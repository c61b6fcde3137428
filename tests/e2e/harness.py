"""What the test scripts (x_test.py) share: arguments, a target that waits, a run of trapline."""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

import processes

SKIPPED = 77
NOBODY = 65534


class Harness:
    def __init__(self, description):
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("--trapline", required=True)
        parser.add_argument("--targets", required=True)
        options = parser.parse_args()
        self.trapline = os.path.abspath(options.trapline)
        self.targets = os.path.abspath(options.targets)
        self.failures = 0
        self.folder = tempfile.TemporaryDirectory(prefix="trapline-e2e-")
        os.chmod(self.folder.name, 0o755)
        processes.adopt_orphans()

    def fail(self, text):
        print(f"FAILED: {text}")
        self.failures += 1

    def expect(self, holds, text):
        if not holds:
            self.fail(text)
        return holds

    def no_report(self, text):
        self.expect(not processes.SANITIZER_REPORT.search(text), f"a sanitizer reports: {text[:20000]}")

    def target(self, name, *arguments, user=None, path=None):
        """Starts a target and waits for its `ready`."""
        child = Target([path or os.path.join(self.targets, name), *arguments], user)
        child.wait_for_ready()
        return child

    def trace(self, *arguments, timeout=60, stdin=None, user=None):
        """Runs trapline to its end. A run that does not end is a failure, not an exception."""
        extra = {"user": user, "group": user, "extra_groups": []} if user is not None else {}
        try:
            done = subprocess.run([self.trapline, *arguments], capture_output=True, timeout=timeout, check=False,
                                  input=stdin if stdin is not None else b"", cwd=self.folder.name, **extra)
            self.no_report(done.stderr.decode(errors="replace"))
            return done
        except subprocess.TimeoutExpired as expired:
            self.fail(f"did not end in {timeout} s: {' '.join(arguments)[:200]}")
            return subprocess.CompletedProcess(arguments, None, expired.stdout or b"", expired.stderr or b"")

    def finish(self):
        def none_left():
            processes.reap()
            return not processes.descendants()

        if not processes.wait_until(none_left, 5):
            self.fail(f"processes were left behind: {processes.descendants()}")
        self.folder.cleanup()
        sys.exit(1 if self.failures else 0)


class Target:
    def __init__(self, arguments, user=None):
        self.watch = processes.Watch()
        self.child = processes.Child(self.watch, "target", arguments, user=user)
        self.pid = self.child.pid

    def wait_for_ready(self):
        if not self.watch.until(lambda: b"ready\n" in self.child.out, time.monotonic() + 30):
            sys.exit("the target never said ready")

    def unharmed(self):
        """Runs, is not stopped, and nobody traces it."""
        state = processes.status_field(self.pid, "State") or "gone"
        return self.child.running() and state[0] in "RSD" and processes.status_field(self.pid, "TracerPid") == "0"

    def end(self, seconds=30):
        """Lets it end, and gives its exit status (None: it did not end) and what it printed."""
        self.child.write(b"end\n")
        self.child.close_stdin()
        if not self.watch.until(lambda: not self.child.running(), time.monotonic() + seconds):
            self.child.kill()
            return None, self.child.text()
        self.watch.drain(self.child, time.monotonic() + 5)
        return self.child.process.returncode, self.child.text()


class Tracer:
    """A trapline that runs until it is told to end. Its program prints `armed` first."""

    def __init__(self, harness, pid, program, stdout_to=None):
        self.watch = processes.Watch()
        self.child = processes.Child(self.watch, "trapline", [harness.trapline, "-q", "-n", program, "-p", str(pid)],
                                     stdout_to=stdout_to)
        self.armed = self.watch.until(lambda: b"armed\n" in self.child.out or not self.child.running(),
                                      time.monotonic() + 60)

    def worker(self):
        """The process that traces: the child of the one that was started."""
        return processes.children(self.child.pid)[0]

    def kill_all(self):
        """Both of its processes, so that neither sees the other's end."""
        processes.kill_family(self.child.pid)
        self.watch.until(lambda: not self.child.running(), time.monotonic() + 60)

    def end(self, number=signal.SIGINT):
        """The count that it printed last, or None if it printed none."""
        self.child.signal(number)
        if not self.watch.until(lambda: not self.child.running(), time.monotonic() + 60):
            return None
        self.watch.drain(self.child, time.monotonic() + 5)
        counts = re.findall(r"^ +(\d+)$", self.child.text(), re.M)
        return int(counts[0]) if counts else None
