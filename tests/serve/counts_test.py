#!/usr/bin/env python3
"""Counts are exact: one session, two at once, one program after another, a command from its start."""

import subprocess

from serving import Harness, Serve, by_name, code_of, is_stopped_or_traced, processes, total

MALLOCS = """
pid$target:libc.so.6:malloc:entry { @sizes[arg0] = count(); @ = quantize(arg0); @sum = sum(arg0); @calls = count(); }
pid$target:libc.so.6:malloc:return { @returns = count(); }
"""
SIZES = {("4",): 1, ("24",): 2, ("100",): 1, ("5000",): 1}


def check_mallocs(harness, snapshot, rounds, what):
    """`rounds`: of all threads together."""
    found = by_name(snapshot)
    # The thread library may allocate a little itself.
    for size, weight in SIZES.items():
        harness.expect(found["sizes"].get(size) == weight * rounds, f"{what}: {size}: {found['sizes']}")
    calls = found["calls"][()]
    harness.expect(calls == sum(found["sizes"].values()), f"{what}: {calls} calls")
    harness.expect(found["returns"][()] == calls, f"{what}: {found['returns']} returns of {calls}")
    bins = found[""][()]
    harness.expect(sum(b["count"] for b in bins) == calls, f"{what}: the histogram: {bins}")
    harness.expect({"low": 4096, "high": 8191, "count": rounds} in bins, f"{what}: the bin of 5000: {bins}")
    harness.expect(not any(snapshot["drops"].values()), f"{what}: losses: {snapshot['drops']}")


def one_after_another(harness):
    """Counting goes on after a stop; another program begins anew; all bytes are as they were in the end."""
    target = harness.target("mallocs", "--wait", "4", "5000")
    before = code_of(target.pid)
    serve = Serve(harness)
    session = serve.call("open", target={"pid": target.pid})["session"]
    # Programs that come and go before the work begins.
    serve.call("compile", session=session, text="pid$target::free:entry { @ = count(); }")
    serve.call("start", session=session)
    harness.expect(code_of(target.pid) != before, "nothing was patched")
    serve.call("stop", session=session)
    harness.expect(code_of(target.pid) == before, "a stop left something behind")
    done = serve.call("compile", session=session, text=MALLOCS)
    harness.expect(done["matched"] == 2 and done["diagnostics"] == [], f"compile: {done}")
    for _ in range(3):
        started = serve.call("start", session=session)
        harness.expect(started["armed"] == 2 and not started["refused"], f"start: {started}")
        serve.call("stop", session=session)
    serve.call("start", session=session)
    status, text = target.end()
    harness.expect(status == 0 and "5000 20000" in text, f"the target: {status} {text}")
    ended = serve.wait_for("ended")
    harness.expect(ended["reason"] == "target" and ended["session"] == session, f"ended: {ended}")
    snapshot = serve.call("snapshot", session=session, text=True)
    check_mallocs(harness, snapshot, 20000, "one process")
    harness.expect(snapshot["state"] == "ended", f"state {snapshot['state']}")
    harness.expect("@@@" in snapshot["text"] and "4096 |" in snapshot["text"], f"text:\n{snapshot['text']}")
    serve.call("stop", session=session)
    harness.expect(serve.failure("start", session=session).kind == "gone", "a start after the process's end")
    serve.call("close", session=session)
    serve.close(harness)


def counting_goes_on(harness):
    """Two stretches of a process that never rests add up; clear() forgets."""
    target = harness.target("ticker")
    serve = Serve(harness)
    session = serve.call("open", target={"pid": target.pid})["session"]
    serve.call("compile", session=session, text="""
        BEGIN { @begins = count(); n = 0; } END { @ends = count(); }
        pid$target:a.out:tick:entry { @ticks = count(); @last = max(arg0); n++; @n = max(n); }""")

    def stretch(more_than):
        serve.call("start", session=session)
        processes.wait_until(lambda: total(serve.call("snapshot", session=session), "ticks") > more_than, 30)
        serve.call("stop", session=session)
        return serve.call("snapshot", session=session)

    first = stretch(20)
    second = stretch(total(first, "ticks") + 20)
    ticks = total(second, "ticks")
    harness.expect(ticks > total(first, "ticks") + 20, f"{first} {second}")
    harness.expect(total(second, "begins") == 2 and total(second, "ends") == 2, f"BEGIN and END: {second}")
    harness.expect(total(second, "n") < ticks, f"variables begin anew: {second}")
    harness.expect(second == serve.call("snapshot", session=session), "a stopped session's snapshot changes")
    serve.call("clear", session=session)
    harness.expect(all(not a["entries"] for a in serve.call("snapshot", session=session)["aggregations"]), "clear")
    third = stretch(20)
    harness.expect(20 < total(third, "ticks") < total(third, "last"), f"after clear: {third}")
    harness.expect(not is_stopped_or_traced(target.pid), "the target is not free")
    serve.close(harness)
    status, text = target.end()
    harness.expect(status == 0, f"the target: {status} {text}")


def two_at_once(harness):
    """Two sessions on one process, and a third on another; each counts its own."""
    targets = [harness.target("mallocs", "--wait", "2", "3000"), harness.target("mallocs", "--wait", "3", "2000")]
    serve = Serve(harness)
    programs = [(targets[0], "malloc"), (targets[0], "free"), (targets[1], "malloc")]
    sessions = []
    for target, function in programs:
        session = serve.call("open", target={"pid": target.pid})["session"]
        serve.call("compile", session=session,
                   text=f"pid$target:libc.so.6:{function}:entry /arg0/ {{ @[arg0 == 5000] = count(); }}")
        serve.call("start", session=session)
        sessions.append(session)
    harness.expect(len(set(sessions)) == 3, f"sessions {sessions}")
    for target in targets:
        status, text = target.end()
        harness.expect(status == 0, f"the target: {status} {text}")
    wanted = [("1", 6000), ("0", 30000), ("1", 6000)]
    for session, (key, count) in zip(sessions, wanted):
        ended = serve.wait_for("ended")
        harness.expect(ended["session"] in sessions, f"{ended}")
        found = by_name(serve.call("snapshot", session=session))[""]
        # Nobody frees what the program's own start has allocated, so that this is exact or more.
        exact = found.get((key,)) == count if key == "1" else found.get((key,), 0) >= count
        harness.expect(exact, f"session {session}: {found}")
    serve.close(harness)


def same_function_twice(harness):
    """A place that another session holds is refused, and named; the first one counts on."""
    target = harness.target("ticker")
    serve = Serve(harness)
    text = "pid$target:a.out:tick:entry { @ = count(); }"
    for expected in (1, 0):
        session = serve.call("open", target={"pid": target.pid})["session"]
        serve.call("compile", session=session, text=text)
        started = serve.call("start", session=session)
        harness.expect(started["armed"] == expected and len(started["refused"]) == 1 - expected, f"start: {started}")
    harness.expect(started["refused"][0]["probe"] == f"pid{target.pid}:ticker:tick:entry", f"refused: {started}")
    harness.expect(total(serve.call("snapshot", session=session), "") == 0, "the second session counts")
    serve.call("stop", session=2)
    harness.expect(processes.wait_until(lambda: total(serve.call("snapshot", session=1), "") > 5, 30),
                   "the first session counts no more")
    serve.call("shutdown")
    harness.expect(not is_stopped_or_traced(target.pid), "the target is not free")
    serve.close(harness)
    status, text = target.end()
    harness.expect(status == 0, f"the target: {status} {text}")


def commands(harness):
    """A command counts from its first instruction in main on, and does nothing before start."""
    serve = Serve(harness)
    path = f"{harness.targets}/mallocs"
    session = serve.call("open", target={"argv": [path, "2", "1000"]})
    pid, session = session["pid"], session["session"]
    serve.call("compile", session=session, text=MALLOCS)
    harness.expect(processes.status_field(pid, "State")[0] == "t", "a command runs before start")
    serve.call("start", session=session)
    ended = serve.wait_for("ended")
    harness.expect(ended["reason"] == "target" and ended["status"] == 0, f"ended: {ended}")
    check_mallocs(harness, serve.call("snapshot", session=session), 2000, "a command")

    # exit() ends the command, as the command line does.
    session = serve.call("open", target={"command": f"'{path}' 1 100000000"})["session"]
    serve.call("compile", session=session, text="pid$target::malloc:entry /arg0 == 5000/ { exit(7); }")
    serve.call("start", session=session)
    ended = serve.wait_for("ended")
    harness.expect(ended["reason"] == "exit" and ended["status"] == 7, f"ended: {ended}")

    # One that was never let run is ended.
    opened = serve.call("open", target={"argv": [path]})
    serve.call("compile", session=opened["session"], text=MALLOCS)
    serve.call("close", session=opened["session"])
    harness.expect(processes.status_field(opened["pid"], "State") is None, "a command that never ran is still there")
    serve.close(harness)


def libraries(harness):
    """A library that is loaded after compile is matched at start; one that is unloaded is not."""
    script = ("import ctypes, sys\nprint('ready', flush=True)\nw = None\n"
              "for line in sys.stdin:\n"
              "    if line == 'load\\n': w = ctypes.CDLL(sys.argv[1])\n"
              "    elif line == 'call\\n': [w.work(3) for _ in range(500)]\n"
              "    elif line == 'unload\\n': ctypes.CDLL(None).dlclose(ctypes.c_void_p(w._handle))\n"
              "    print('done', flush=True)\n")
    child = subprocess.Popen(["/usr/bin/python3", "-Bc", script, f"{harness.targets}/libwork.so"], text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()

    def tell(word):
        child.stdin.write(word + "\n")
        child.stdin.flush()
        child.stdout.readline()

    serve = Serve(harness)
    session = serve.call("open", target={"pid": child.pid})["session"]
    done = serve.call("compile", session=session, options={"zdefs": True},
                      text="pid$target:libwork.so:work:entry { @ = count(); @n[probemod] = count(); }")
    harness.expect(done["matched"] == 0, f"compile: {done}")
    for step, (words, armed, counted) in enumerate([
            ((), 0, 0), (("load",), 1, 500), ((), 1, 1000), (("unload",), 0, 1000), (("load",), 1, 1500)]):
        for word in words:
            tell(word)
        started = serve.call("start", session=session)
        harness.expect(started["armed"] == armed, f"step {step}: {started}")
        if armed:
            tell("call")
        serve.call("stop", session=session)
        snapshot = serve.call("snapshot", session=session)
        harness.expect(total(snapshot, "") == counted, f"step {step}: {snapshot}")
    harness.expect(by_name(snapshot)["n"] == {("libwork.so",): 1500}, f"{snapshot}")
    serve.close(harness)
    child.stdin.close()
    harness.expect(child.wait(30) == 0, "the target was harmed")
    child.stdout.close()


def main():
    harness = Harness(__doc__)
    for test in (libraries, one_after_another, counting_goes_on, two_at_once, same_function_twice, commands):
        test(harness)
    harness.finish()


if __name__ == "__main__":
    main()
