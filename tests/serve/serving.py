"""A client of trapline serve that is as small as can be, and what its tests look at in traced processes."""

import json
import pathlib
import socket
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

import processes  # noqa: E402
from harness import Harness  # noqa: E402, F401

ANSWER_SECONDS = 60


class Failure(Exception):
    """An answer that is an error."""

    def __init__(self, error):
        super().__init__(error["message"])
        self.code, self.kind, self.data = error["code"], error["data"]["kind"], error["data"]


class Gone(Exception):
    """Serve has ended."""


class Serve:
    """`connect`: the path of a socket that serve listens at; else one is started, over a socketpair."""

    def __init__(self, harness, connect=None, initialize=True, keep=()):
        self.process = None
        if connect:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(connect)
        else:
            self.socket, theirs = socket.socketpair()
            self.process = subprocess.Popen([harness.trapline, "serve"], stdin=theirs, stdout=theirs, pass_fds=keep,
                                            stderr=subprocess.PIPE, start_new_session=True)
            theirs.close()
        self.socket.settimeout(ANSWER_SECONDS)
        self.buffer, self.last, self.told = b"", 0, []
        if initialize:
            self.call("initialize", protocol=1, client="a test")

    def send(self, text):
        try:
            self.socket.sendall(text if isinstance(text, bytes) else text.encode())
        except OSError as error:
            raise Gone(str(error)) from error

    def line(self):
        while b"\n" not in self.buffer:
            try:
                more = self.socket.recv(1 << 20)
            except ConnectionResetError as error:
                raise Gone(str(error)) from error
            if not more:
                raise Gone("end of the answers")
            self.buffer += more
        line, self.buffer = self.buffer.split(b"\n", 1)
        return json.loads(line)

    def request(self, method, **parameters):
        self.last += 1
        self.send(json.dumps({"jsonrpc": "2.0", "id": self.last, "method": method, "params": parameters}) + "\n")
        return self.last

    def answer(self, number):
        while True:
            line = self.line()
            if "id" not in line:
                self.told.append(line)
                continue
            assert line["id"] == number, (line, number)
            if "error" in line:
                raise Failure(line["error"])
            return line["result"]

    def call(self, method, **parameters):
        return self.answer(self.request(method, **parameters))

    def failure(self, method, **parameters):
        """The error of a call that must fail; None: it did not."""
        try:
            self.call(method, **parameters)
        except Failure as failure:
            return failure
        return None

    def wait_for(self, method):
        """The parameters of the next notification of that kind."""
        while True:
            for at, told in enumerate(self.told):
                if told["method"] == method:
                    return self.told.pop(at)["params"]
            self.told.append(self.line())

    def records(self):
        """All records that have come so far, taken."""
        taken = [r for told in self.told if told["method"] == "records" for r in told["params"]["records"]]
        self.told = [told for told in self.told if told["method"] != "records"]
        return taken

    def close(self, harness):
        """The end of the input; whether serve ended as it should."""
        self.socket.close()
        if self.process is None:
            return
        try:
            status = self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = "none in time"
        text = self.process.stderr.read().decode()
        harness.expect(status == 0 and not text, f"serve ended with {status}: {text}")


def by_name(snapshot):
    """Aggregations by name, each a dictionary from key (a tuple) to value."""
    return {a["name"]: {tuple(map(str, e["key"])): e["value"] for e in a["entries"]} for a in snapshot["aggregations"]}


def total(snapshot, name):
    """The value of an aggregation without keys; 0: nothing was counted."""
    return by_name(snapshot)[name].get((), 0)


def code_of(pid):
    """The lines of /proc/PID/maps that can be executed, and their bytes."""
    code = {}
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            fields = line.split()
            if "x" not in fields[1] or fields[-1] == "[vsyscall]":
                continue
            start, end = (int(text, 16) for text in fields[0].split("-"))
            memory.seek(start)
            code[line] = memory.read(end - start)
    return code


def is_stopped_or_traced(pid):
    state = processes.status_field(pid, "State") or "gone"
    return state[0] not in "RSD" or processes.status_field(pid, "TracerPid") != "0"


def exists(pid):
    """Lives, and is no zombie."""
    return (processes.status_field(pid, "State") or "Z")[0] not in "ZX"


def wait_status(process, seconds=30):
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
