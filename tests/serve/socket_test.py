#!/usr/bin/env python3
"""serve --socket: its owner's alone, one client after another; and the target self, over it and over a socketpair."""

import ctypes
import os
import signal
import socket
import stat
import subprocess

from serving import Gone, Harness, Serve, processes, total, wait_status

PROGRAM = "pid$target::getppid:entry { @ = count(); }"
PR_SET_PTRACER = 0x59616D61
libc = ctypes.CDLL(None)


def trace_self(harness, serve, what):
    opened = serve.call("open", target={"self": True})
    harness.expect(opened["pid"] == os.getpid(), f"{what}: self is {opened['pid']}")
    session = opened["session"]
    serve.call("compile", session=session, text=PROGRAM)
    for rounds in range(1, 4):
        serve.call("start", session=session)
        for _ in range(1000):
            libc.getppid()
        serve.call("stop", session=session)
        counted = total(serve.call("snapshot", session=session), "")
        harness.expect(counted == rounds * 1000, f"{what}: {counted} of {rounds * 1000}")
    serve.call("close", session=session)


def listening(harness):
    path = os.path.join(harness.folder.name, "socket")
    arguments = [harness.trapline, "serve", "--socket", path]
    server = subprocess.Popen(arguments, stderr=subprocess.PIPE)
    libc.prctl(PR_SET_PTRACER, server.pid, 0, 0, 0)
    harness.expect(processes.wait_until(lambda: os.path.exists(path), 20), "no socket")
    harness.expect(stat.S_IMODE(os.stat(path).st_mode) == 0o600, f"mode {os.stat(path).st_mode:o}")
    again = subprocess.run(arguments, capture_output=True, check=False, timeout=30)
    harness.expect(again.returncode == 1 and b"in use" in again.stderr, f"a second one: {again}")

    first = Serve(harness, connect=path)
    trace_self(harness, first, "the first client")
    # The next one waits until the first has gone.
    second = Serve(harness, connect=path, initialize=False)
    number = second.request("initialize", protocol=1, client="second")
    second.socket.settimeout(0.3)
    try:
        second.line()
        harness.fail("two clients at once")
    except socket.timeout:
        pass
    second.socket.settimeout(60)
    first.close(harness)
    second.answer(number)
    trace_self(harness, second, "the second client")
    # A line without end closes the connection, and no more.
    try:
        for _ in range(2000):
            second.send(b"x" * (1 << 16))
        harness.fail("no bound for a line")
    except Gone:
        pass
    second.close(harness)
    third = Serve(harness, connect=path)
    third.close(harness)

    server.send_signal(signal.SIGTERM)
    harness.expect(wait_status(server) == 0, "SIGTERM does not end it")
    harness.expect(not os.path.exists(path) and server.stderr.read() == b"", "the socket is left behind")

    # One that a killed server left is replaced.
    server = subprocess.Popen(arguments, stderr=subprocess.PIPE)
    processes.wait_until(lambda: os.path.exists(path), 20)
    processes.kill_family(server.pid)
    server.wait()
    harness.expect(os.path.exists(path), "the socket of a killed server is gone")
    server = subprocess.Popen(arguments, stderr=subprocess.PIPE)

    def answers():
        try:
            Serve(harness, connect=path).close(harness)
        except OSError:
            return False
        return True

    harness.expect(processes.wait_until(answers, 20), "a left socket is in the way")
    client = Serve(harness, connect=path)
    client.call("shutdown")
    harness.expect(wait_status(server) == 0, "shutdown does not end it")


def over_pipes(harness):
    """Pipes will do; who is at their other end cannot be told."""
    lines = ['{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocol":1}}',
             '{"jsonrpc":"2.0","id":2,"method":"open","params":{"target":{"self":true}}}',
             '{"jsonrpc":"2.0","id":3,"method":"shutdown"}']
    done = subprocess.run([harness.trapline, "serve"], input="\n".join(lines).encode() + b"\n", capture_output=True,
                          timeout=60, check=False)
    answers = done.stdout.decode().splitlines()
    harness.expect(done.returncode == 0 and not done.stderr and len(answers) == 3, f"{done}")
    harness.expect('"code":-32602' in answers[1] and '"result":{}' in answers[2], f"{answers}")


def main():
    harness = Harness(__doc__)
    serve = Serve(harness)
    libc.prctl(PR_SET_PTRACER, serve.process.pid, 0, 0, 0)
    trace_self(harness, serve, "a socketpair")
    serve.close(harness)
    listening(harness)
    over_pipes(harness)
    harness.finish()


if __name__ == "__main__":
    main()
