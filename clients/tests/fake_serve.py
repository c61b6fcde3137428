#!/usr/bin/env python3
"""Stands in for `trapline serve` in the clients' tests: the protocol with canned answers, chosen by the D text.

It traces nothing. What it was asked is appended to the file FAKE_SERVE_LOG, a JSON value a line. Words of the D text
and what they cause:

    mistake   compile fails with two diagnostics         records N   start pushes N records
    slow      start answers late, after a notification   late        records and `ended` come 50 ms after start answered
    die       start kills the helper                     garbage     start answers a line that is no JSON
    exits     the program ends right after start         reports     start sends a note, a fault and drops
    torn      the answer of start comes in two pieces
"""

import json
import os
import re
import signal
import sys
import time

KINDS = {-32001: "compile", -32002: "state", -32003: "permission", -32004: "not_found", -32005: "gone",
         -32006: "unsupported", -32007: "os", -32008: "internal", -32602: "parameters"}
PROBE = {"id": 7, "provider": "pid9", "module": "libc.so.6", "function": "malloc", "name": "entry"}
BIG = {"integer": "18446744073709551615"}
LEAST = {"integer": "-9223372036854775808"}
AGGREGATIONS = [
    {"name": "calls", "function": "count", "normal": 1, "types": [], "entries": [{"key": [], "value": 1011}]},
    {"name": "bytes", "function": "sum", "normal": 1, "types": [], "entries": [{"key": [], "value": BIG}]},
    {"name": "sizes", "function": "quantize", "normal": 1, "types": [], "entries": [{"key": [], "value": [
        {"low": LEAST, "high": -1, "count": 1}, {"low": 64, "high": 127, "count": 1000}]}]},
    {"name": "linear", "function": "lquantize", "normal": 1, "types": [], "entries": [{"key": [], "value": [
        {"low": None, "high": 9, "count": 2}, {"low": 100, "high": None, "count": BIG}]}]},
    {"name": "by", "function": "min", "normal": 1000, "types": ["string", "int", "bytes"], "entries": [
        {"key": ["größe", -5, {"hex": "00ff"}], "value": LEAST},
        {"key": [{"hex": "ff41"}, 9007199254740992, {"hex": ""}], "value": 3}]},
    {"name": "mean", "function": "avg", "normal": 1, "types": [], "entries": [
        {"key": [], "value": {"count": 4, "sum": 10}}]},
    {"name": "spread", "function": "stddev", "normal": 1, "types": [], "entries": [
        {"key": [], "value": {"count": 2, "sum": 10, "squares": {"integer": str(2 ** 128 - 1)}}}]},
    {"name": "none", "function": "count", "normal": 1, "types": [], "entries": []},
    {"name": "nothing", "function": "max", "normal": 1, "types": [], "entries": []},
]
DROPS = {"record": 0, "aggregation": 0, "dynamic": 0, "speculation": 0, "speculative": 0, "level": 0, "no_slot": 0,
         "samples": 0, "malformed": 0, "client": 0}
DIAGNOSTICS = [
    {"severity": "error", "tag": "SYNTAX", "file": "script.d", "line": 2, "column": 17, "text": "unexpected }",
     "hint": "a ; is missing"},
    {"severity": "warning", "tag": "PDESC_ZERO", "file": "script.d", "line": 0, "column": 0, "text": "no match"},
]


class Refused(Exception):
    def __init__(self, code, message, **data):
        super().__init__(message)
        self.answer = {"code": code, "message": message}
        self.answer["data"] = {"kind": KINDS[code], **data}


class Fake:
    def __init__(self):
        self.sessions = {}
        self.out = os.fdopen(1, "wb", buffering=0)

    def send(self, message):
        self.out.write(json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False).encode() + b"\n")

    def notify(self, method, **parameters):
        self.send({"method": method, "params": parameters})

    def initialize(self, protocol, client):
        assert client
        if os.environ.get("FAKE_SERVE_PROTOCOL"):
            raise Refused(-32006, "protocol 2 is spoken here", protocol=2)
        return {"protocol": protocol, "version": "0.0-fake", "unknown": "to be ignored"}

    def open(self, target, records="none", stdio=None):
        pid = target.get("pid", os.getppid())
        if pid == 1:
            raise Refused(-32003, "process 1 is not yours", rule="owner")
        if stdio is not None:
            os.write(stdio[1], b"the command's output\n")
        if pid == 2:
            raise Refused(-32004, "no process 2")
        number = len(self.sessions) + 1
        self.sessions[number] = {"text": None, "push": records == "push", "state": "compiled"}
        return {"session": number, "pid": pid}

    def compile(self, session, text, name, arguments, options):
        if "nonsense" in options:
            raise Refused(-32602, "options: nonsense is none")
        assert name is not None and arguments is not None and options is not None
        if "mistake" in text:
            raise Refused(-32001, "2 mistakes", diagnostics=DIAGNOSTICS)
        self.of(session).update(text=text, state="compiled")
        return {"matched": 3, "diagnostics": DIAGNOSTICS[1:], "notes": ["a note"]}

    def start(self, session):
        state = self.of(session)
        text = state["text"]
        if text is None:
            raise Refused(-32002, "there is no program")
        state["state"] = "running"
        if "die" in text:
            os.kill(os.getpid(), signal.SIGKILL)
        if "garbage" in text:
            self.out.write(b"not json\n")
        if "slow" in text:
            self.notify("note", session=session, text="wait")
            time.sleep(0.1)
        if "reports" in text:
            self.reports(session)
        return {"armed": 2, "notes": [], "refused": [
            {"probe": "pid9:libc.so.6:f:entry", "address": BIG, "reason": "too short", "detail": "3 bytes"}]}

    def reports(self, session):
        self.notify("note", session=session, text="take note")
        self.notify("fault", session=session, probe=PROBE, fault=1, address=BIG, message="invalid address")
        self.notify("drops", session=session, drops={**DROPS, "record": 5})
        self.notify("invented", session=session, text="to be ignored")

    def after_start(self, session):
        state = self.of(session)
        if "late" in state["text"]:
            time.sleep(0.05)
        wanted = re.search(r"records (\d+)", state["text"])
        if wanted and state["push"]:
            everything = [self.record(number) for number in range(int(wanted[1]))]
            for at in range(0, len(everything), 1000):
                self.notify("records", session=session, records=everything[at:at + 1000])
        if "exits" in state["text"] or "late" in state["text"]:
            state["state"] = "ended"
            self.notify("ended", session=session, reason="exit", status=3, text="the program said exit(3)")

    def record(self, number):
        actions = [{"printf": f"{number}\n", "values": [number, BIG, "s", {"hex": "00ff"}]}, {"trace": LEAST},
                   {"printa": AGGREGATIONS[:1]}, {"exit": 0}] if number == 0 else [
                       {"printf": f"{number}\n", "values": [number]}]
        return {"probe": PROBE, "cpu": 1, "tid": 77, "time": 1000 + number, "actions": actions}

    def stop(self, session):
        self.of(session)["state"] = "stopped"
        return {"notes": ["stopped"]}

    def snapshot(self, session, text=False):
        state = self.of(session)["state"]
        answer = {"aggregations": AGGREGATIONS, "drops": {**DROPS, "aggregation": 1}, "state": state}
        return {**answer, "text": "what the command prints\n"} if text else answer

    def clear(self, session):
        self.of(session)
        return {}

    def close(self, session):
        self.of(session)
        del self.sessions[session]
        return {}

    def of(self, session):
        if session not in self.sessions:
            raise Refused(-32002, f"there is no session {session}")
        return self.sessions[session]

    def serve(self):
        for line in os.fdopen(0, "rb"):
            request = json.loads(line)
            log = os.environ.get("FAKE_SERVE_LOG")
            if log:
                with open(log, "a", encoding="utf-8") as file:
                    file.write(json.dumps({"method": request["method"], **request["params"]}) + "\n")
            try:
                answer = {"id": request["id"], "result": getattr(self, request["method"])(**request["params"])}
            except Refused as refused:
                answer = {"id": request["id"], "error": refused.answer}
            self.answer(request, answer)
            if request["method"] == "start" and "result" in answer:
                self.after_start(request["params"]["session"])

    def answer(self, request, answer):
        session = self.sessions.get(request["params"].get("session"), {})
        if request["method"] == "start" and "torn" in (session.get("text") or ""):
            line = json.dumps({"jsonrpc": "2.0", **answer}).encode() + b"\n"
            for piece in (line[:20], line[20:-1], line[-1:]):
                self.out.write(piece)
                time.sleep(0.02)
        else:
            self.send(answer)


if __name__ == "__main__":
    assert sys.argv[1:] == ["serve"], sys.argv
    try:
        Fake().serve()
    except BrokenPipeError:
        pass  # the client is gone
