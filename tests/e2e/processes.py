"""Starts the processes of a scenario, watches what they print, and sees that nothing stays behind."""

import ctypes
import os
import re
import selectors
import signal
import struct
import subprocess
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
# What a binary that was built with a sanitizer writes when it finds something.
SANITIZER_REPORT = re.compile(r"(Address|Leak|Thread|UndefinedBehavior)Sanitizer\b|: runtime error: ")
SANITIZER_OPTIONS = ("ASAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS")
_libc = ctypes.CDLL(None, use_errno=True)


def adopt_orphans():
    """Whatever a child leaves behind becomes our child, and is found by `descendants`."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def status_field(pid, name):
    """A line of /proc/PID/status, or None if the process has gone."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith(name + ":"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return None


def descendants():
    """(pid, command) of all living descendants of this process, zombies not counted."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            parent = status_field(entry, "PPid")
            state = status_field(entry, "State") or "Z"
            if parent is not None and state[0] not in "ZX":
                parents[int(entry)] = int(parent)
    found, frontier = [], {os.getpid()}
    while frontier:
        frontier = {pid for pid, parent in parents.items() if parent in frontier}
        found += frontier
    return [(pid, status_field(pid, "Name")) for pid in found]


def children(pid):
    """Living children of a process, also of one that has ended and was not waited for."""
    return [int(entry) for entry in os.listdir("/proc")
            if entry.isdigit() and status_field(entry, "PPid") == str(pid)]


def kill_family(pid):
    """A process and its children, so that none of them sees another's end."""
    family = [pid, *children(pid)]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for member in family:
            os.kill(member, number)


def our_mappings(pid):
    """Mappings that a tracer may have made: code without a file, and shared memory."""
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
            return [line for line in maps if re.search(r"r-xp \S+ 00:00 0 *$|/memfd:", line)]
    except (FileNotFoundError, ProcessLookupError):
        return []


def patched_sites(pid):
    """Where jumps of ours stand, as the books of the process's code regions have it."""
    sites = []
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in our_mappings(pid):
            memory.seek(int(line.split("-")[0], 16))
            book = memory.read(72)
            if book[:8] != b"TPLBOOK1":
                continue
            for (site,) in struct.iter_unpack("<Q16x", memory.read(24 * struct.unpack("<I", book[12:16])[0])):
                memory.seek(site)
                if memory.read(1) == b"\xe9":
                    sites.append(site)
    return sites


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0] > 0:
            pass
    except ChildProcessError:
        pass


def wait_until(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


class Child:
    """A process with its output collected by the Watch it belongs to."""

    def __init__(self, watch, name, arguments, stdin=None, env=None, cwd=None, user=None, stdout_to=None):
        self.name, self.out, self.err = name, bytearray(), bytearray()
        self.pending = stdin

        def prepare():
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            if user is not None:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
                _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

        stdout = subprocess.PIPE if stdout_to is None else open(stdout_to, "wb")
        self.process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=stdout, stderr=subprocess.PIPE,
                                        env=env, cwd=cwd, preexec_fn=prepare, start_new_session=True)
        self.pid = self.process.pid
        if stdout_to is not None:
            stdout.close()
        watch.add(self)

    def write(self, data):
        try:
            self.process.stdin.write(data)
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError):
            pass

    def close_stdin(self):
        try:
            self.process.stdin.close()
        except (BrokenPipeError, ValueError):
            pass

    def signal(self, number):
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            pass

    def text(self):
        return self.out.decode("utf-8", "replace")

    def errors(self):
        return self.err.decode("utf-8", "replace")

    def running(self):
        return self.process.poll() is None

    def kill(self):
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        self.process.kill()


class Watch:
    """Collects the output of children, and calls back on every new piece."""

    def __init__(self):
        self.selector = selectors.DefaultSelector()
        self.on_output = lambda: None

    def add(self, child):
        for stream, sink in ((child.process.stdout, child.out), (child.process.stderr, child.err)):
            if stream is not None:
                os.set_blocking(stream.fileno(), False)
                self.selector.register(stream, selectors.EVENT_READ, sink)

    def poll(self, seconds):
        for key, _ in self.selector.select(seconds):
            data = key.fileobj.read()
            if data:
                key.data.extend(data)
                self.on_output()
            elif data is not None:
                self.selector.unregister(key.fileobj)
                key.fileobj.close()

    def until(self, condition, deadline):
        """Whether the condition came to hold before the deadline (of time.monotonic)."""
        while not condition():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self.poll(min(left, 0.05))
        return True

    def drain(self, child, deadline):
        """Reads what a finished child left in its pipes; others may still hold their ends, so not for ever."""
        streams = [s for s in (child.process.stdout, child.process.stderr) if s is not None]
        return self.until(lambda: all(s.closed for s in streams), deadline)
