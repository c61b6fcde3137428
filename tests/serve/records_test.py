#!/usr/bin/env python3
"""Records are pushed, whole and in order; a client that does not read them loses some, is told so, and holds nobody up."""

import time

from serving import Harness, Serve, processes, total


def pushed(harness):
    target = harness.target("ticker")
    serve = Serve(harness)
    session = serve.call("open", target={"pid": target.pid}, records="push")["session"]
    serve.call("compile", session=session, text="""
        BEGIN { printf("begin %d", 1); trace("text"); }
        pid$target:a.out:tick:entry { printf("tick %d\\n", arg0); @ = count(); }
        tick-5ms { printa(@); @printed = count(); }
        END { trace(12); }""")
    earliest = time.monotonic_ns()
    serve.call("start", session=session)

    def enough():
        snapshot = serve.call("snapshot", session=session)
        return total(snapshot, "") > 100 and total(snapshot, "printed") > 1

    processes.wait_until(enough, 30)
    serve.call("stop", session=session)
    latest = time.monotonic_ns()
    snapshot = serve.call("snapshot", session=session)
    records = serve.records()
    harness.expect(all(earliest <= r["time"] <= latest for r in records),
                   f"times beyond {earliest} to {latest}: {[r['time'] for r in records if not earliest <= r['time'] <= latest]}")
    harness.expect(records[0]["probe"]["name"] == "BEGIN" and records[0]["actions"] ==
                   [{"printf": "begin 1", "values": [1]}, {"trace": "text"}], f"{records[0]}")
    harness.expect(records[-1]["probe"]["name"] == "END" and records[-1]["actions"] == [{"trace": 12}], f"{records[-1]}")
    ticks = [r for r in records if r["probe"]["function"] == "tick"]
    numbers = [r["actions"][0]["values"][0] for r in ticks]
    harness.expect(len(numbers) == total(snapshot, ""), f"{len(numbers)} records, {total(snapshot, '')} counted")
    harness.expect(numbers == list(range(numbers[0], numbers[0] + len(numbers))), f"out of order: {numbers}")
    harness.expect(ticks[0]["actions"][0]["printf"] == f"tick {numbers[0]}\n", f"{ticks[0]}")
    harness.expect(ticks[0]["tid"] == target.pid and ticks[0]["probe"]["provider"] == f"pid{target.pid}", f"{ticks[0]}")
    printed = [r["actions"][0]["printa"] for r in records if r["probe"]["provider"] == "profile"]
    harness.expect(printed and printed[-1][0]["function"] == "count", f"{printed[-1:]}")
    harness.expect(not any(snapshot["drops"].values()), f"{snapshot['drops']}")
    serve.close(harness)
    status, text = target.end()
    harness.expect(status == 0, f"the target: {status} {text}")


def faults(harness):
    target = harness.target("ticker")
    serve = Serve(harness)
    session = serve.call("open", target={"pid": target.pid})["session"]
    serve.call("compile", session=session, text="BEGIN { trace(*(int *)16); } ERROR { @errors = count(); }")
    serve.call("start", session=session)
    fault = serve.wait_for("fault")
    harness.expect(fault["fault"] == 1 and fault["address"] == 16 and fault["probe"]["name"] == "BEGIN" and
                   "invalid address" in fault["message"], f"{fault}")
    harness.expect(total(serve.call("snapshot", session=session), "errors") == 1, "ERROR did not fire")
    harness.expect(not serve.records(), "records that nobody asked for")
    serve.close(harness)
    status, text = target.end()
    harness.expect(status == 0, f"the target: {status} {text}")


def not_read(harness):
    """Nothing is read for a while: counting goes on, and all records are either here or counted as lost."""
    target = harness.target("storm")
    serve = Serve(harness)
    session = serve.call("open", target={"pid": target.pid}, records="push")["session"]
    serve.call("compile", session=session, options={"bufsize": "64m"},
               text="pid$target::malloc:entry { printf(\"%d %s\", arg0, probefunc); @ = count(); }")
    watcher = Serve(harness)
    watched = watcher.call("open", target={"pid": target.pid})["session"]
    watcher.call("compile", session=watched, text="pid$target::free:entry { @ = count(); }")
    watcher.call("start", session=watched)
    serve.call("start", session=session)
    # The answer comes when the queue is read again.
    asked = serve.request("snapshot", session=session)
    time.sleep(3)
    first = total(watcher.call("snapshot", session=watched), "")
    processes.wait_until(lambda: total(watcher.call("snapshot", session=watched), "") > first, 30)
    harness.expect(total(watcher.call("snapshot", session=watched), "") > first, "the target was held up")
    serve.answer(asked)
    serve.call("stop", session=session)
    snapshot = serve.call("snapshot", session=session)
    drops = snapshot["drops"]
    harness.expect(drops["client"] > 0, f"nothing was lost: {drops}")
    came, lost = len(serve.records()), drops["client"]
    # A firing whose record found no room did not run: it is in neither number.
    harness.expect(came + lost == total(snapshot, ""), f"{came} came, {lost} lost, of {total(snapshot, '')}: {drops}")
    told = sum(t["params"]["drops"]["client"] for t in serve.told if t["method"] == "drops")
    harness.expect(told == lost, f"{lost} were lost, {told} told")
    serve.close(harness)
    watcher.close(harness)
    status, text = target.end()
    harness.expect(status == 0, f"the target: {status} {text}")


def main():
    harness = Harness(__doc__)
    for test in (pushed, faults, not_read):
        test(harness)
    harness.finish()


if __name__ == "__main__":
    main()
