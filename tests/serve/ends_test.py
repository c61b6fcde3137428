#!/usr/bin/env python3
"""Whoever ends first, and however: the traced process is left as it was, or at least unharmed."""

import os
import signal
import subprocess
import sys
import time

from serving import Gone, Harness, Serve, code_of, exists, is_stopped_or_traced, processes, total, wait_status

TICKS = "pid$target:a.out:tick:entry { @ = count(); }"


def tracing(harness, target):
    serve = Serve(harness)
    session = serve.call("open", target={"pid": target.pid})["session"]
    serve.call("compile", session=session, text=TICKS)
    serve.call("start", session=session)
    return serve


def own_code(code):
    """Without mappings that have no file: a tracer that was killed between making one and filling it leaves it there."""
    return {line: data for line, data in code.items() if len(line.split()) > 5}


def clean(harness, target, before, what, of=lambda code: code):
    if not processes.wait_until(lambda: of(code_of(target.pid)) == of(before), 10):
        now = code_of(target.pid)
        changed = [line for line in now if now[line] != before.get(line)] + [line for line in before if line not in now]
        harness.fail(f"{what}: bytes are left behind: {changed}")
    harness.expect(not is_stopped_or_traced(target.pid), f"{what}: the target is not free")


def end(harness, target):
    status, text = target.end()
    harness.expect(status == 0, f"the target: {status} {text}")


def end_of_input(harness):
    target = harness.target("ticker")
    before = code_of(target.pid)
    serve = tracing(harness, target)
    harness.expect(code_of(target.pid) != before, "nothing was patched")
    serve.close(harness)
    clean(harness, target, before, "end of input")

    serve = tracing(harness, target)
    serve.call("shutdown")
    clean(harness, target, before, "shutdown")
    harness.expect(wait_status(serve.process) == 0, "serve goes on after shutdown")
    serve.close(harness)

    serve = tracing(harness, target)
    serve.process.send_signal(signal.SIGTERM)
    harness.expect(wait_status(serve.process) == 0, "serve goes on after SIGTERM")
    clean(harness, target, before, "SIGTERM")
    serve.close(harness)

    # What a terminal sends to its group is none of serve's business.
    serve = tracing(harness, target)
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGHUP, signal.SIGPIPE, signal.SIGTTOU):
        serve.process.send_signal(number)
    harness.expect(serve.call("snapshot", session=1)["state"] == "running", "a signal ended the session")
    serve.close(harness)
    clean(harness, target, before, "signals")
    end(harness, target)


def serve_is_killed(harness):
    """The process goes on, untraced; the next serve takes away what the first left."""
    target = harness.target("ticker")
    before = code_of(target.pid)
    for delay in (0.0, 0.003, 0.01, 0.03, 0.1):
        serve = Serve(harness)
        session = serve.call("open", target={"pid": target.pid})["session"]
        serve.call("compile", session=session, text=TICKS)
        serve.request("start", session=session)
        time.sleep(delay)
        serve.process.kill()
        serve.process.wait()
        try:
            while True:
                serve.line()
        except Gone:
            pass
        harness.expect(target.unharmed(), f"killed after {delay} s: the target was harmed")
    serve = tracing(harness, target)
    harness.expect(processes.wait_until(lambda: total(serve.call("snapshot", session=1), "") > 5, 30),
                   "the next serve counts nothing")
    serve.close(harness)
    clean(harness, target, before, "after a kill", own_code)
    end(harness, target)


def the_worker_is_killed(harness):
    """With breakpoints and nothing mapped, the other process of serve has to know where they stand."""
    target = harness.target("mallocs", "--wait", "1", "100")
    before = code_of(target.pid)
    serve = Serve(harness)
    session = serve.call("open", target={"pid": target.pid})["session"]
    serve.call("compile", session=session,
               text="#pragma D option engine=outside\npid$target:libc.so.6:malloc:entry { @ = count(); }")
    serve.call("start", session=session)
    harness.expect(code_of(target.pid) != before, "no breakpoint was laid")
    os.kill(processes.children(serve.process.pid)[0], signal.SIGKILL)
    serve.process.wait(30)
    clean(harness, target, before, "the worker was killed")
    end(harness, target)


CLIENT = """
import os, sys
sys.path.insert(0, sys.argv[1])
sys.argv[1:] = sys.argv[2:]
from serving import Harness, Serve
harness = Harness("the client that is killed")
serve = Serve(harness)
session = serve.call("open", target={"pid": int(os.environ["TARGET"])})["session"]
serve.call("compile", session=session, text=os.environ["PROGRAM"])
serve.call("start", session=session)
if os.fork() == 0:
    # A child that holds the socket as well.
    os.read(0, 1)
    os._exit(0)
print(serve.process.pid, flush=True)
os.read(0, 1)
"""


def client_is_killed(harness):
    target = harness.target("ticker")
    before = code_of(target.pid)
    environment = dict(os.environ, TARGET=str(target.pid), PROGRAM=TICKS)
    client = subprocess.Popen([sys.executable, "-B", "-c", CLIENT, os.path.dirname(os.path.abspath(__file__)),
                               "--trapline", harness.trapline, "--targets", harness.targets],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    helper = int(client.stdout.readline())
    harness.expect(code_of(target.pid) != before, "nothing was patched")
    client.kill()
    client.wait()
    harness.expect(processes.wait_until(lambda: not exists(helper), 20), "serve outlives its client")
    clean(harness, target, before, "the client was killed")
    client.stdin.close()
    client.stdout.close()
    end(harness, target)


def target_is_killed(harness):
    target = harness.target("ticker")
    serve = tracing(harness, target)
    processes.wait_until(lambda: total(serve.call("snapshot", session=1), "") > 5, 30)
    target.child.kill()
    ended = serve.wait_for("ended")
    harness.expect(ended["reason"] == "target", f"{ended}")
    harness.expect(total(serve.call("snapshot", session=1), "") > 5, "the counts are gone with the process")
    target.child.process.wait()
    harness.expect(serve.failure("compile", session=1, text=TICKS).kind == "gone", "compile after the process's end")
    serve.close(harness)


def commands(harness):
    """One that waits for its start is ended with serve; one that runs goes on."""
    serve = Serve(harness)
    waits = serve.call("open", target={"argv": [f"{harness.targets}/ticker"]})["pid"]
    serve.close(harness)
    harness.expect(processes.wait_until(lambda: not exists(waits), 10), "a command that never ran is still there")

    serve = Serve(harness)
    opened = serve.call("open", target={"argv": ["sleep", "1000"]}, stdio=[0, 1, 1])
    serve.call("compile", session=opened["session"], text="BEGIN {}")
    serve.call("start", session=opened["session"])
    serve.call("stop", session=opened["session"])
    harness.expect(not is_stopped_or_traced(opened["pid"]), "a command that was let go of is not free")
    serve.close(harness)
    harness.expect(exists(opened["pid"]), "a command that ran was ended")
    os.kill(opened["pid"], signal.SIGKILL)

    # Standard files of its own.
    read_end, write_end = os.pipe()
    serve = Serve(harness, keep=(write_end,))
    os.close(write_end)
    opened = serve.call("open", target={"command": "echo hello"}, stdio=[0, write_end, 2])
    serve.call("compile", session=opened["session"], text="BEGIN {}")
    serve.call("start", session=opened["session"])
    serve.wait_for("ended")
    with os.fdopen(read_end, "rb") as output:
        harness.expect(output.read() == b"hello\n", "the command's output")
    failure = serve.failure("open", target={"command": "echo hello"}, stdio=[0, write_end, 2])
    harness.expect(failure.kind == "parameters", f"{failure}")
    serve.close(harness)


def main():
    harness = Harness(__doc__)
    for test in (end_of_input, serve_is_killed, the_worker_is_killed, client_is_killed, target_is_killed, commands):
        test(harness)
    harness.finish()


if __name__ == "__main__":
    main()
