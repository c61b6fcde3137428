"""Trapline from Python: D programs in processes one owns, and their aggregations and records as Python values.

    import trapline

    with trapline.Session.attach(4711) as session:
        session.compile("pid$target::malloc:entry { @sizes = quantize(arg0); @calls = count(); }")
        session.start()
        time.sleep(10)
        session.stop()
        print(session.snapshot()["calls"].value)

The work is done by a helper process, `trapline serve`, found by TRAPLINE_COMMAND or else on PATH. This module speaks
its protocol (docs/protocol.md) over a socketpair. Integers are exact whatever their size; strings that are no UTF-8 and
data without a type are `bytes`.

Threads: all calls may come from any thread, at once too. There is no thread of the module's own unless `on_record` is
given; without it, what the helper sends is read by whichever call is waiting for something.

Limits: Linux. The helper is an ordinary child process, which os.waitpid(-1) would see. `Session.self()` traces the
interpreter, and so sees what this module itself does between start() and stop(). A session that came along through
os.fork() cannot be used in the child.
"""

from __future__ import annotations

import collections
import ctypes
import dataclasses
import fcntl
import json
import math
import os
import select
import shutil
import socket
import subprocess
import sys
import threading
import time
import weakref
from typing import Any, Callable, Deque, Dict, Iterator, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

__version__ = "0.1.0"
__all__ = [
    "AccessError", "Action", "Aggregation", "Average", "Bucket", "Compiled", "CompileError", "Deviation", "Diagnostic",
    "Drops", "Ended", "Entry", "Error", "Fault", "GoneError", "Helper", "HelperError", "InternalError",
    "NotFoundError", "Probe", "ProtocolError", "Record", "Refusal", "Session", "Snapshot", "Started", "StateError",
    "SystemCallError", "UnsupportedError",
]

Value = Union[int, str, bytes]

_PROTOCOL = 1
_END_SECONDS = 10.0           # how long a helper may take to leave its processes as they were
_UNREAD_RECORDS = 1 << 20     # records nobody has taken yet; later ones are counted as drops.client
_UNREAD_REPORTS = 1024        # notes and faults that are kept
_PR_SET_PTRACER = 0x59616D61


# Errors.

class Error(Exception):
    """What the helper refused or could not do. `kind` names it as docs/protocol.md does."""

    kind = "error"

    def __init__(self, message: str, diagnostics: Sequence[Diagnostic] = (), rule: Optional[str] = None) -> None:
        super().__init__(message)
        self.rule = rule
        self.diagnostics: Tuple[Diagnostic, ...] = tuple(diagnostics)


class CompileError(Error):
    """The D program has mistakes; `diagnostics` has all of them."""

    kind = "compile"


class StateError(Error):
    """Not now: no program, already running, closed."""

    kind = "state"


class AccessError(Error):
    """The process may not be traced; the message names the rule, and `rule`: owner, yama, tracer or other."""

    kind = "permission"


class NotFoundError(Error):
    """No such process or file."""

    kind = "not_found"


class GoneError(Error):
    """The process has ended."""

    kind = "gone"


class UnsupportedError(Error):
    """The program or the process asks for what is not there (yet)."""

    kind = "unsupported"


class SystemCallError(Error):
    """A system call failed; the message says which and why."""

    kind = "os"


class InternalError(Error):
    """A fault of Trapline's own."""

    kind = "internal"


class ProtocolError(Error):
    """Helper and module do not understand each other."""

    kind = "protocol"


class HelperError(Error):
    """`trapline serve` was not found, did not start, or has ended. The traced process goes on."""

    kind = "helper"


_ERRORS = {c.kind: c for c in (CompileError, StateError, AccessError, NotFoundError, GoneError, UnsupportedError,
                               SystemCallError, InternalError, ProtocolError, HelperError)}


# What comes back.

class Diagnostic(NamedTuple):
    """A mistake in, or a warning about, a D program. Lines and columns (in bytes) from 1; 0: the program as a whole."""

    severity: str
    tag: str
    file: str
    line: int
    column: int
    text: str
    hint: Optional[str] = None

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}: " if self.line else ""
        return f"{place}{self.severity}: [{self.tag}] {self.text}" + (f" ({self.hint})" if self.hint else "")


class Refusal(NamedTuple):
    """A place that could not be probed, and why."""

    probe: str
    address: int
    reason: str
    detail: str


class Compiled(NamedTuple):
    """What compile() found: how many probes, and warnings."""

    matched: int
    diagnostics: Tuple[Diagnostic, ...]
    notes: Tuple[str, ...]


class Started(NamedTuple):
    """What start() did: how many probes are in place, and which places were refused."""

    armed: int
    refused: Tuple[Refusal, ...]
    notes: Tuple[str, ...]


class Bucket(NamedTuple):
    """A bin of a histogram: its least and greatest value, both included (None: no bound), and how many fell into it."""

    low: Optional[int]
    high: Optional[int]
    count: int  # type: ignore[assignment]


class Average(NamedTuple):
    """The value of avg()."""

    count: int  # type: ignore[assignment]
    sum: int

    @property
    def mean(self) -> float:
        return self.sum / self.count if self.count else 0.0


class Deviation(NamedTuple):
    """The value of stddev(); `squares` is the sum of the squares."""

    count: int  # type: ignore[assignment]
    sum: int
    squares: int

    @property
    def mean(self) -> float:
        return self.sum / self.count if self.count else 0.0

    @property
    def deviation(self) -> float:
        return math.sqrt(max(0, self.squares * self.count - self.sum ** 2)) / self.count if self.count else 0.0


Datum = Union[int, Average, Deviation, Tuple[Bucket, ...]]


class Entry(NamedTuple):
    """One line of an aggregation: the components of its key, and its value."""

    key: Tuple[Value, ...]
    value: Datum


@dataclasses.dataclass(frozen=True)
class Aggregation:
    """An aggregation: its entries in the order in which the command prints them.

    `types` has "int", "uint", "string" or "bytes" for each component of the key. `normal` is the divisor that
    normalize() set; values are not divided.
    """

    name: str
    function: str
    normal: int
    types: Tuple[str, ...]
    entries: Tuple[Entry, ...]

    @property
    def value(self) -> Optional[Datum]:
        """The value of an aggregation without keys. Nothing seen yet: 0 for count() and sum(), else None or ()."""
        if self.types or any(entry.key for entry in self.entries):
            raise TypeError(f"@{self.name} has keys: look at its entries, or at [key]")
        if self.entries:
            return self.entries[0].value
        if self.function in ("count", "sum"):
            return 0
        return () if self.function.endswith("quantize") else None

    @property
    def histogram(self) -> Tuple[Bucket, ...]:
        """The buckets of a quantize(), lquantize() or llquantize() without keys, ascending; empty ones are left out."""
        if not self.function.endswith("quantize"):
            raise TypeError(f"@{self.name} is a {self.function}(), not a histogram")
        return self.value  # type: ignore[return-value]

    def __getitem__(self, key: Union[Value, Tuple[Value, ...]]) -> Datum:
        wanted = key if isinstance(key, tuple) else (key,)
        for entry in self.entries:
            if entry.key == wanted:
                return entry.value
        raise KeyError(key)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


class Drops(NamedTuple):
    """Losses so far, by kind. All zero: nothing was lost. `client`: records that were not taken in time."""

    record: int = 0
    aggregation: int = 0
    dynamic: int = 0
    speculation: int = 0
    speculative: int = 0
    level: int = 0
    no_slot: int = 0
    samples: int = 0
    malformed: int = 0
    client: int = 0


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """All aggregations at one moment. `text` is what the command would print, where it was asked for."""

    aggregations: Tuple[Aggregation, ...]
    drops: Drops
    state: str
    text: Optional[str] = None

    def __getitem__(self, name: str) -> Aggregation:
        for aggregation in self.aggregations:
            if aggregation.name == name:
                return aggregation
        raise KeyError(name)

    def __iter__(self) -> Iterator[Aggregation]:
        return iter(self.aggregations)

    def __len__(self) -> int:
        return len(self.aggregations)

    def __str__(self) -> str:
        return repr(self) if self.text is None else self.text


class Probe(NamedTuple):
    """Which probe fired."""

    id: int
    provider: str
    module: str
    function: str
    name: str

    def __str__(self) -> str:
        return f"{self.provider}:{self.module}:{self.function}:{self.name}"


class Action(NamedTuple):
    """One thing that a clause recorded: `kind` is trace, printf, printa or exit.

    `values` are the arguments, `text` is what printf() made of them, `aggregations` those of printa().
    """

    kind: str
    values: Tuple[Value, ...]
    text: str = ""
    aggregations: Tuple[Aggregation, ...] = ()


class Record(NamedTuple):
    """What one firing recorded. `time` is CLOCK_MONOTONIC, in nanoseconds."""

    probe: Probe
    cpu: int
    tid: int
    time: int
    actions: Tuple[Action, ...]

    @property
    def text(self) -> str:
        """What its printf() actions print."""
        return "".join(action.text for action in self.actions)

    @property
    def values(self) -> Tuple[Value, ...]:
        """The arguments of all its actions."""
        return tuple(value for action in self.actions for value in action.values)


class Fault(NamedTuple):
    """A clause that was given up, for instance because it read memory that is not there."""

    probe: Probe
    fault: int
    address: int
    message: str


class Ended(NamedTuple):
    """Why a session ended by itself: reason is exit (the program's exit(status)), target or error."""

    reason: str
    status: int
    text: str


def _value(data: Any) -> Any:
    if isinstance(data, dict):
        if "integer" in data:
            return int(data["integer"])
        return bytes.fromhex(data["hex"])
    return data


def _text(data: Any) -> str:
    """A string that should be text; bytes that are no UTF-8 become surrogates, as in file names."""
    value = _value(data)
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


def _datum(function: str, data: Any) -> Datum:
    if function == "avg":
        return Average(_value(data["count"]), _value(data["sum"]))
    if function == "stddev":
        return Deviation(_value(data["count"]), _value(data["sum"]), _value(data["squares"]))
    if isinstance(data, list):
        return tuple(Bucket(_value(bin["low"]), _value(bin["high"]), _value(bin["count"])) for bin in data)
    return int(_value(data))


def _aggregation(data: Mapping[str, Any]) -> Aggregation:
    function = data["function"]
    entries = tuple(Entry(tuple(map(_value, entry["key"])), _datum(function, entry["value"]))
                    for entry in data["entries"])
    return Aggregation(data["name"], function, _value(data["normal"]), tuple(data.get("types", ())), entries)


def _probe(data: Mapping[str, Any]) -> Probe:
    return Probe(data["id"], *(_text(data[part]) for part in ("provider", "module", "function", "name")))


def _action(data: Mapping[str, Any]) -> Action:
    if "printf" in data:
        return Action("printf", tuple(map(_value, data["values"])), _text(data["printf"]))
    if "printa" in data:
        return Action("printa", (), "", tuple(map(_aggregation, data["printa"])))
    kind = "trace" if "trace" in data else "exit" if "exit" in data else next(iter(data))
    return Action(kind, (_value(data[kind]),))


def _record(data: Mapping[str, Any]) -> Record:
    return Record(_probe(data["probe"]), data["cpu"], data["tid"], _value(data["time"]),
                  tuple(map(_action, data["actions"])))


def _diagnostics(data: Sequence[Mapping[str, Any]]) -> Tuple[Diagnostic, ...]:
    return tuple(Diagnostic(d["severity"], d["tag"], d["file"], d["line"], d["column"], _text(d["text"]), d.get("hint"))
                 for d in data)


def _drops(data: Mapping[str, Any], lost: int) -> Drops:
    known = {name: _value(data.get(name, 0)) for name in Drops._fields}
    known["client"] += lost
    return Drops(**known)


# The helper.

class Helper:
    """A running `trapline serve`. Sessions start one each unless they are given one to share."""

    def __init__(self, command: Optional[str] = None, *, _streams: Sequence[int] = ()) -> None:
        """`command`: the trapline to run instead of the one that TRAPLINE_COMMAND names or PATH has."""
        command = command or os.environ.get("TRAPLINE_COMMAND") or shutil.which("trapline")
        if not command:
            raise HelperError("no trapline: TRAPLINE_COMMAND is not set, and PATH has none")
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                # A session of its own: Ctrl-C must not end it before this process has said stop.
                process = subprocess.Popen([command, "serve"], stdin=theirs.fileno(), stdout=theirs.fileno(),
                                           start_new_session=True, pass_fds=_streams)
            except OSError as error:
                ours.close()
                raise HelperError(f"cannot start {command}: {error.strerror}") from error
        self.pid = process.pid
        self._process = process
        self._socket = ours
        self._send_lock = threading.Lock()
        # Guards all that follows. Whoever waits and finds nobody reading reads, for all (_wait).
        self._changed = threading.Condition()
        self._reading = False
        self._buffer = bytearray()
        self._answers: Dict[int, Optional[Dict[str, Any]]] = {}  # by id; None: not there yet
        self._then: Dict[int, Callable[[], None]] = {}
        self._last_id = 0
        self._sessions: Dict[int, Session] = {}
        self._end: Optional[str] = None  # why nothing more comes
        self._users = 0  # open sessions; guarded by _self_lock
        self._end_when_unused = weakref.finalize(self, _end_helper, ours, process)
        _helpers.add(self)
        try:
            answer = self._call("initialize", protocol=_PROTOCOL, client=f"python {__version__}")
            if answer.get("protocol") != _PROTOCOL:
                raise ProtocolError(f"{command} speaks protocol {answer.get('protocol')}, this module {_PROTOCOL}")
        except UnsupportedError as error:
            self.close()
            raise ProtocolError(f"{error}; this module speaks {_PROTOCOL}") from None
        except BaseException:
            self.close()
            raise
        self.version: str = answer.get("version", "")

    def close(self) -> None:
        """Ends the helper, which leaves all its processes as they were. May be called again."""
        with self._changed:
            self._end = self._end or "it has been closed"
            self._changed.notify_all()
        self._end_when_unused()

    def __enter__(self) -> Helper:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, method: str, then: Optional[Callable[[], None]] = None, **parameters: Any) -> Dict[str, Any]:
        """Asks, and waits for the answer. `then` is done when it is read, by whoever reads: a thread that waits in
        poll() for what it brings about would not notice it otherwise."""
        with self._changed:
            self._last_id += 1
            number = self._last_id
            self._answers[number] = None
            if then is not None:
                self._then[number] = then
        try:
            self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": parameters})
            self._wait(lambda: self._answers[number] is not None, None)
            answer = self._answers[number]
        finally:
            with self._changed:
                del self._answers[number]
                self._then.pop(number, None)
        if answer is None:
            raise HelperError(f"trapline serve is gone: {self._end}")
        if "error" in answer:
            raise _error(answer["error"])
        return dict(answer["result"])

    def _send(self, request: Dict[str, Any]) -> None:
        line = json.dumps(request, separators=(",", ":")).encode() + b"\n"
        with self._send_lock:
            if self._end is not None:
                raise HelperError(f"trapline serve is gone: {self._end}")
            try:
                self._socket.sendall(line, socket.MSG_NOSIGNAL)
            except OSError as error:
                raise HelperError(f"trapline serve is gone: {self._why_it_ended(error.strerror)}") from error
            except BaseException:
                self._end = "a call was interrupted half-way"
                raise

    def _wait(self, done: Callable[[], bool], deadline: Optional[float]) -> bool:
        """Reads until done(), or the helper has ended, or the deadline (of time.monotonic()) has passed. Past one, it
        still takes what has come already."""
        tried = False
        with self._changed:
            while not done() and self._end is None:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                if left == 0.0 and (tried or self._reading):
                    break
                if self._reading:
                    self._changed.wait(left)
                    continue
                tried = True
                self._reading = True
                self._changed.release()
                try:
                    end = self._receive(left)
                finally:
                    self._changed.acquire()
                    self._reading = False
                    self._changed.notify_all()
                self._end = self._end or end
                self._take_lines()
            return done()

    def _receive(self, timeout: Optional[float]) -> Optional[str]:
        """Appends to the buffer what has come. Returns why no more will."""
        try:
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            if not poll.poll(None if timeout is None else math.ceil(timeout * 1000)):
                return None
            data = self._socket.recv(1 << 18)
        except (OSError, ValueError) as error:
            return self._why_it_ended(str(error))
        self._buffer += data
        return None if data else self._why_it_ended("it ended")

    def _why_it_ended(self, otherwise: str) -> str:
        try:
            status = self._process.wait(1)
        except subprocess.TimeoutExpired:
            return otherwise
        return f"killed by signal {-status}" if status < 0 else f"it ended with status {status}"

    def _take_lines(self) -> None:
        *lines, rest = self._buffer.split(b"\n")
        self._buffer = rest
        for line in lines:
            try:
                self._take(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                self._end = f"it sent what is not in the protocol ({error!r})"
                return

    def _take(self, message: Dict[str, Any]) -> None:
        if "method" not in message:
            number = message.get("id")
            if number in self._answers:
                self._answers[number] = message
                then = self._then.get(number)
                if then is not None and "result" in message:
                    then()
            elif number is None:
                self._end = f"it did not understand a call: {message['error']['message']}"
            return
        parameters = message.get("params", {})
        session = self._sessions.get(parameters.get("session"))
        if session is not None:
            session._take(message["method"], parameters)


def _error(data: Mapping[str, Any]) -> Error:
    details = data.get("data") or {}
    kind = details.get("kind", "protocol")
    return _ERRORS.get(kind, ProtocolError)(data.get("message", kind), _diagnostics(details.get("diagnostics", ())),
                                            details.get("rule"))


def _end_helper(connection: socket.socket, process: subprocess.Popen[bytes]) -> None:
    # Not close(): a thread may be waiting in poll(), and its descriptor would be given to somebody else.
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    connection.close()


# After a fork the child holds no end of the socket: else the helper would not notice that its client ended.
_helpers: weakref.WeakSet[Helper] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for helper in list(_helpers):
        helper._end_when_unused.detach()
        helper._end = "this process was forked from the one that started it"
        helper._changed = threading.Condition()
        helper._send_lock = threading.Lock()
        helper._process.returncode = 0  # not our child: nothing to wait for
        helper._socket.close()


os.register_at_fork(after_in_child=_after_fork_in_child)


# Sessions.

class Session:
    """A process and a D program in it: compile(), start(), snapshot(), stop(), and again. Ends with close() or `with`.

    Keywords of self(), attach() and launch():
      records    True: what clauses record (printf() and the like) is sent, to be taken with records().
      on_record  called with each Record, by a thread of the session's own; instead of records(). What it raises goes
                 to threading.excepthook.
      helper     a Helper to share; without it the session has its own. A command launched in a shared one reads and
                 writes /dev/null instead of this process's standard input and output.
    """

    def __init__(self, target: Mapping[str, Any], *, records: bool = False,
                 on_record: Optional[Callable[[Record], object]] = None, helper: Optional[Helper] = None) -> None:
        """Use self(), attach() or launch(). `target` is a TARGET of docs/protocol.md."""
        self.notes: Deque[str] = collections.deque(maxlen=_UNREAD_REPORTS)
        self.faults: Deque[Fault] = collections.deque(maxlen=_UNREAD_REPORTS)
        self.drops = Drops()
        self.ended: Optional[Ended] = None
        self._queue: Deque[Record] = collections.deque()
        self._lost = 0
        self._running = False
        self._closed = False
        self._finished = False  # nothing will be added to the queue
        self._delivering = False
        self._wants_records = records or on_record is not None
        self._on_record = on_record
        self._thread: Optional[threading.Thread] = None
        self._helper, self._own_helper, more = _helper_for(target, helper)
        try:
            opened = self._helper._call("open", target=dict(target), records="push" if self._wants_records else "none",
                                        **more)
        except BaseException:
            self._leave_helper()
            raise
        self._number: int = opened["session"]
        self.pid: int = opened["pid"]
        with self._helper._changed:
            self._helper._sessions[self._number] = self

    @classmethod
    def self(cls, **keywords: Any) -> Session:
        """A session in this very process."""
        return cls({"self": True}, **keywords)

    @classmethod
    def attach(cls, pid: int, **keywords: Any) -> Session:
        """A session in a process that runs."""
        return cls({"pid": pid}, **keywords)

    @classmethod
    def launch(cls, command: Union[str, Sequence[str]], **keywords: Any) -> Session:
        """A session in a new process (a command line, or its words), whose main() waits for start()."""
        if isinstance(command, str):
            return cls({"command": command}, **keywords)
        return cls({"argv": list(command)}, **keywords)

    def compile(self, text: str, arguments: Sequence[Union[str, int]] = (),
                options: Optional[Mapping[str, Union[str, int, bool]]] = None, name: str = "program") -> Compiled:
        """Compiles a D program; only while stopped. `arguments` are its $1, $2, ...; `name` stands in diagnostics.

        Mistakes raise CompileError, with all of them in `diagnostics`.
        """
        answer = self._call("compile", text=text, name=name, arguments=[str(word) for word in arguments],
                            options=dict(options or {}))
        return Compiled(answer["matched"], _diagnostics(answer["diagnostics"]), tuple(answer["notes"]))

    def start(self) -> Started:
        """Puts the probes in place; when it returns, they count. After stop() it goes on into the same aggregations."""
        with self._helper._changed:
            before, self.ended, self._running = (self.ended, self._running), None, True
        try:
            answer = self._call("start")
        except BaseException:
            self.ended, self._running = self.ended or before[0], before[1]
            raise
        if self._on_record is not None and self._thread is None:
            self._thread = threading.Thread(target=self._deliver, name="trapline records", daemon=True)
            self._thread.start()
        refused = tuple(Refusal(_text(place["probe"]), _value(place["address"]), place["reason"], place["detail"])
                        for place in answer["refused"])
        return Started(answer["armed"], refused, tuple(answer["notes"]))

    def stop(self) -> Tuple[str, ...]:
        """Takes the probes away: the process is as it was, and all that was counted can be read. Returns notes.

        With on_record, returns when the last record has been delivered.
        """
        notes = tuple(self._call("stop", self._set_stopped)["notes"])
        self._wait_for_delivery()
        return notes

    def snapshot(self, text: bool = False) -> Snapshot:
        """All aggregations as they are now: each firing that had ended when it was asked for. `text`: also as text."""
        answer = self._call("snapshot", text=text)
        self.drops = _drops(answer["drops"], self._lost)
        return Snapshot(tuple(map(_aggregation, answer["aggregations"])), self.drops, answer["state"],
                        _text(answer["text"]) if text else None)

    def clear(self) -> None:
        """Sets all aggregations to nothing."""
        self._call("clear")

    def records(self, timeout: Optional[float] = None) -> Iterator[Record]:
        """What clauses recorded, as it comes. Ends when tracing has ended and all were taken, or when none came for
        `timeout` seconds (0: with those that are there)."""
        if not self._wants_records:
            raise StateError("records were not asked for: open the session with records=True")
        if self._on_record is not None:
            raise StateError("records go to on_record")
        return self._take_records(timeout)

    def wait(self, timeout: Optional[float] = None) -> Optional[Ended]:
        """Waits until tracing ended by itself, for at most `timeout` seconds. None: it goes on, or was stopped."""
        deadline = None if timeout is None else time.monotonic() + timeout
        self._helper._wait(lambda: not self._running or self._closed, deadline)
        if self._running and self._helper._end is not None:
            raise HelperError(f"trapline serve is gone: {self._helper._end}")
        if self.ended is not None:
            self._wait_for_delivery()
        return self.ended

    def fileno(self) -> int:
        """Becomes readable when something has come: then take it with records(timeout=0) or any other call."""
        return self._helper._socket.fileno()

    def close(self) -> None:
        """Stops what runs, and forgets it. May be called again."""
        with self._helper._changed:
            if self._closed:
                return
            self._closed = True
        try:
            if self._helper._end is None:
                self._helper._call("close", self._set_finished, session=self._number)
        except HelperError:
            pass
        finally:
            with self._helper._changed:
                self._set_finished()
                self._helper._sessions.pop(self._number, None)
                self._helper._changed.notify_all()
            if self._thread is not None and self._thread is not threading.current_thread():
                self._thread.join()
            self._leave_helper()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, method: str, then: Optional[Callable[[], None]] = None, **parameters: Any) -> Dict[str, Any]:
        if self._closed:
            raise StateError("the session has been closed")
        return self._helper._call(method, then, session=self._number, **parameters)

    def _set_stopped(self) -> None:
        self._running = False

    def _set_finished(self) -> None:
        self._running, self._finished = False, True

    def _leave_helper(self) -> None:
        with _self_lock:
            self._helper._users -= 1
            last = self._own_helper and self._helper._users == 0
        if last:
            self._helper.close()

    def _take(self, method: str, parameters: Mapping[str, Any]) -> None:
        """A notification; the helper's lock is held."""
        if method == "records":
            for data in parameters["records"]:
                if len(self._queue) < _UNREAD_RECORDS:
                    self._queue.append(_record(data))
                else:
                    self._lost += 1
                    self.drops = self.drops._replace(client=self.drops.client + 1)
        elif method == "fault":
            self.faults.append(Fault(_probe(parameters["probe"]), parameters["fault"], _value(parameters["address"]),
                                     _text(parameters["message"])))
        elif method == "drops":
            self.drops = _drops(parameters["drops"], self._lost)
        elif method == "note":
            self.notes.append(_text(parameters["text"]))
        elif method == "ended":
            self.ended = Ended(parameters["reason"], parameters.get("status", 0), _text(parameters.get("text", "")))
            self._running = False

    def _take_records(self, timeout: Optional[float]) -> Iterator[Record]:
        helper = self._helper
        while True:
            deadline = None if timeout is None else time.monotonic() + timeout
            helper._wait(lambda: bool(self._queue) or not self._running, deadline)
            try:
                record = self._queue.popleft()
            except IndexError:
                if self._running and helper._end is not None and not self._closed:
                    raise HelperError(f"trapline serve is gone: {helper._end}") from None
                return
            yield record

    def _deliver(self) -> None:
        """The thread of on_record."""
        helper = self._helper
        while True:
            helper._wait(lambda: bool(self._queue) or self._finished, None)
            with helper._changed:
                if not self._queue:
                    if self._finished or helper._end is not None:
                        return
                    continue
                record = self._queue.popleft()
                self._delivering = True
            try:
                self._on_record(record)  # type: ignore[misc]
            except Exception:  # pylint: disable=broad-except
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
            finally:
                with helper._changed:
                    self._delivering = False
                    helper._changed.notify_all()

    def _wait_for_delivery(self) -> None:
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            with self._helper._changed:
                while (self._queue or self._delivering) and thread.is_alive():
                    self._helper._changed.wait(1)


# Yama lets a process name one other that may trace it, so all sessions with this process share a helper.
_self_lock = threading.Lock()
_self_helper: Optional[weakref.ref[Helper]] = None


def _helper_for(target: Mapping[str, Any], given: Optional[Helper]) -> Tuple[Helper, bool, Dict[str, Any]]:
    """The helper for a new session, which is counted as its user; whether it ends with its last user; and what else
    it is to be told."""
    global _self_helper  # pylint: disable=global-statement
    with _self_lock:
        helper = given
        if helper is None and target.get("self") and _self_helper is not None:
            shared = _self_helper()
            helper = shared if shared is not None and shared._end is None and shared._users > 0 else None
        more: Dict[str, Any] = {}
        if helper is None and ("argv" in target or "command" in target):
            helper, more = _helper_with_streams()
        elif helper is None:
            helper = Helper()
        if target.get("self"):
            _let_be_traced_by(helper.pid)
            if given is None:
                _self_helper = weakref.ref(helper)
        helper._users += 1
        return helper, given is None, more


def _helper_with_streams() -> Tuple[Helper, Dict[str, Any]]:
    """A helper that has this process's standard input, output and error to give to the command that it starts."""
    streams = []
    try:
        for fd in range(3):
            streams.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3))
    except OSError:  # closed
        return Helper(), {}
    else:
        return Helper(_streams=streams), {"stdio": list(streams)}
    finally:
        for fd in streams:
            os.close(fd)


def _let_be_traced_by(pid: int) -> None:
    """Where Yama lets only ancestors trace, says who else may: this process and its children."""
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope", encoding="ascii") as file:
            if file.read().strip() != "1":
                return
    except OSError:
        return
    # A failure shows when the helper is refused, with a better message.
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(pid), 0, 0, 0)
