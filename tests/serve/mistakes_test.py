#!/usr/bin/env python3
"""Mistakes in programs come as data, mistakes in requests as errors with their code; serve goes on after each."""

import json
import os

from serving import Harness, Serve, processes, total

LINES = [
    (b"", -32700), (b"{", -32700), (b"\xff\xfe", -32700), (b"[" * 100000, -32700), (b"1e999", -32700),
    (b"[]", -32600), (b"null", -32600), (b'{"jsonrpc":"2.0","id":1}', -32600),
    (b'{"jsonrpc":"2.0","id":1,"method":"dance","params":{}}', -32601),
    (b'{"jsonrpc":"2.0","id":1,"method":"start","params":{"session":1e30}}', -32602),
    (b'{"jsonrpc":"2.0","id":1,"method":"start","params":{"session":99999999999999999999999999}}', -32602),
    (b'{"jsonrpc":"2.0","id":1,"method":"start","params":{"session":9223372036854775807}}', -32002),
    (b'{"jsonrpc":"2.0","id":1,"method":"start","params":[1]}', -32602),
    (b'{"jsonrpc":"2.0","id":1,"method":"open","params":{"target":{"pid":-1}}}', -32602),
    (b'{"jsonrpc":"2.0","id":1,"method":"open","params":{"target":{"pid":1},"more":1}}', -32602),
    (b'{"jsonrpc":"2.0","id":1,"method":"open","params":{"target":{"command":"\'"}}}', -32602),
    (b'{"jsonrpc":"2.0","id":1,"method":"open","params":{"target":{"command":"true"},"stdio":[77,78,79]}}', -32602),
    (b'{"jsonrpc":"2.0","id":1,"method":"open","params":{"target":{"argv":["/no/such/command"]}}}', -32004),
    (b'{"jsonrpc":"2.0","id":1,"method":"open","params":{"target":{"pid":2147483647}}}', -32004),
    (b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocol":2}}', -32006),
]


def requests(harness):
    serve = Serve(harness)
    for line, code in LINES:
        serve.send(line + b"\n")
        answer = serve.line()
        harness.expect(answer.get("error", {}).get("code") == code and answer["error"]["message"],
                       f"{line[:90]!r}: {json.dumps(answer)[:300]}")
    # What wants no answer gets none.
    serve.send(b'{"jsonrpc":"2.0","method":"dance"}\n')
    harness.expect(serve.failure("start", session=1).kind == "state", "no session yet")
    serve.close(harness)

    serve = Serve(harness, initialize=False)
    harness.expect(serve.failure("open", target={"pid": 1}).kind == "state", "open before initialize")
    greeting = serve.call("initialize", protocol=1, client="x")
    harness.expect(greeting["protocol"] == 1 and greeting["version"], f"{greeting}")
    serve.close(harness)

    # Many at once, answered in order.
    serve = Serve(harness)
    serve.send(b"".join(b'{"jsonrpc":"2.0","id":%d,"method":"stop","params":{"session":5}}\n' % n for n in range(5000)))
    harness.expect([serve.line()["id"] for _ in range(5000)] == list(range(5000)), "answers out of order")
    serve.close(harness)


def programs(harness):
    target = harness.target("ticker")
    serve = Serve(harness)
    session = serve.call("open", target={"pid": target.pid})["session"]
    for call in ("start", "stop", "snapshot", "clear"):
        harness.expect(serve.failure(call, session=session).kind == "state", f"{call} without a program")

    failure = serve.failure("compile", session=session, name="my program",
                            text="BEGIN { trace(x);\n  nonsense(1); }\nEND { trace(\"\xe4\", 1 +; }")
    harness.expect(failure.code == -32001 and failure.kind == "compile", f"{failure.code}")
    errors = failure.data["diagnostics"]
    harness.expect(errors and errors[0]["file"] == "my program" and errors[0]["severity"] == "error", f"{errors}")
    harness.expect(any(e["line"] == 3 and e["tag"] == "SYNTAX" for e in errors), f"{errors}")

    failure = serve.failure("compile", session=session, text="BEGIN { @a = count(); }\nBEGIN {   nonsense(1); }")
    error = failure.data["diagnostics"][0]
    harness.expect((error["line"], error["column"]) == (2, 11) and "nonsense" in error["text"], f"{error}")
    harness.expect(error["file"] == "program" and str(failure).startswith("program:2:11: "), f"{failure}")

    failure = serve.failure("compile", session=session, text="BEGIN {}\npid$target::nowhere:entry {}")
    error = failure.data["diagnostics"][0]
    harness.expect(error["tag"] == "PDESC_ZERO" and error["line"] == 2 and "nowhere" in error["text"], f"{error}")
    done = serve.call("compile", session=session, text="BEGIN {}\npid$target::nowhere:entry {}", options={"zdefs": True})
    harness.expect(done["matched"] == 1, f"zdefs: {done}")
    harness.expect(serve.failure("compile", session=session, text="fbt::x:entry {}", options={"zdefs": True}).kind ==
                   "compile", "a provider that is not offered")
    harness.expect(serve.failure("compile", session=session, text="").kind == "compile", "an empty program")
    harness.expect(serve.failure("start", session=session).kind == "state", "the program before is gone")

    for options in ({"nosuch": "1"}, {"bufsize": "much"}, {"quiet": "perhaps"}):
        failure = serve.failure("compile", session=session, text="BEGIN {}", options=options)
        harness.expect(failure.code == -32602 and list(options)[0] in str(failure), f"{options}: {failure}")

    # After all that, a good one; arguments and options reach it.
    serve.call("compile", session=session, text='BEGIN { @[$$1, strlen("abcdef"), $target] = sum($2); }',
               arguments=["word", "-1"], options={"strsize": "64"})
    serve.call("start", session=session)
    failure = serve.failure("compile", session=session, text="BEGIN {}")
    harness.expect(failure.kind == "state", "compile while running")
    harness.expect(serve.failure("start", session=session).kind == "state", "start while running")
    serve.call("stop", session=session)
    serve.call("stop", session=session)
    aggregation = serve.call("snapshot", session=session)["aggregations"][0]
    harness.expect(aggregation["types"][0] == "string" and aggregation["entries"] ==
                   [{"key": ["word", 6, target.pid], "value": -1}], f"{aggregation}")
    serve.call("close", session=session)
    harness.expect(serve.failure("close", session=session).kind == "state", "close twice")
    serve.close(harness)
    status, text = target.end()
    harness.expect(status == 0, f"the target: {status} {text}")


def forbidden(harness):
    """Whose fault it is that a process may not be traced."""
    serve = Serve(harness)
    if os.geteuid() != 0:
        failure = serve.failure("open", target={"pid": 1})
        harness.expect(failure.kind == "permission" and failure.data["rule"] == "owner", f"{failure} {failure.data}")
    # A command that another session holds is traced already.
    first = serve.call("open", target={"argv": [f"{harness.targets}/ticker"]})
    failure = serve.failure("open", target={"pid": first["pid"]})
    harness.expect(failure.kind == "permission" and failure.data["rule"] == "tracer", f"{failure} {failure.data}")
    harness.expect(serve.failure("open", target={"pid": processes.children(serve.process.pid)[0]}).kind == "unsupported", "serve itself")
    serve.close(harness)


def values(harness):
    """Great numbers, strings that are no UTF-8, and signs."""
    target = harness.target("ticker")
    serve = Serve(harness)
    session = serve.call("open", target={"pid": target.pid})["session"]
    serve.call("compile", session=session, text="""
        BEGIN { @great = sum(0x7fffffffffffffff); @least = min(-9007199254740993); @exact = max(9007199254740992);
                @bytes["\\377\\001"] = count(); @text["\u00e4"] = count(); @s[-1, 5ULL] = stddev(3); @a = avg(7);
                @l = lquantize(12, 0, 100, 10); @under = lquantize(-1, 0, 100, 10); }""")
    serve.call("start", session=session)
    serve.call("stop", session=session)
    snapshot = serve.call("snapshot", session=session)
    harness.expect(total(snapshot, "great") == {"integer": "9223372036854775807"}, f"{snapshot}")
    harness.expect(total(snapshot, "least") == {"integer": "-9007199254740993"}, f"{snapshot}")
    harness.expect(total(snapshot, "exact") == 9007199254740992, f"{snapshot}")
    found = {a["name"]: a for a in snapshot["aggregations"]}
    harness.expect(found["bytes"]["entries"][0]["key"] == [{"hex": "ff01"}], f"{found['bytes']}")
    harness.expect(found["text"]["entries"][0]["key"] == ["\u00e4"], f"{found['text']}")
    harness.expect(found["s"]["types"] == ["int", "uint"] and found["s"]["entries"] ==
                   [{"key": [-1, 5], "value": {"count": 1, "sum": 3, "squares": {"integer": "9"}}}], f"{found['s']}")
    harness.expect(total(snapshot, "a") == {"count": 1, "sum": 7}, f"{snapshot}")
    harness.expect(total(snapshot, "l") == [{"low": 10, "high": 19, "count": 1}], f"{snapshot}")
    harness.expect(total(snapshot, "under") == [{"low": None, "high": -1, "count": 1}], f"{snapshot}")
    serve.close(harness)
    status, text = target.end()
    harness.expect(status == 0, f"the target: {status} {text}")


def main():
    harness = Harness(__doc__)
    for test in (requests, programs, forbidden, values):
        test(harness)
    harness.finish()


if __name__ == "__main__":
    main()
