#!/usr/bin/env python3
"""Tests trapline.py: against a stand-in for the helper, whose answers are known, and against `trapline serve` itself,
named by --trapline. --targets is the folder of the programs to trace. Standard library only."""

import argparse
import collections
import gc
import json
import os
import pathlib
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import trapline  # noqa: E402  pylint: disable=wrong-import-position

MAX = 2 ** 64 - 1
given = argparse.Namespace(trapline=None, targets=None)


class WithStandIn(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="trapline-client-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.log = self.folder / "log"
        command = self.folder / "trapline"
        fake = HERE.parent / "tests" / "fake_serve.py"
        command.write_text(f"#!/bin/sh\nexec {shlex.quote(sys.executable)} -B {shlex.quote(str(fake))} \"$@\"\n")
        command.chmod(0o755)
        self.set_environment(TRAPLINE_COMMAND=str(command), FAKE_SERVE_LOG=str(self.log), FAKE_SERVE_PROTOCOL=None)

    def set_environment(self, **wanted):
        for name, value in wanted.items():
            before = os.environ.get(name)
            self.addCleanup(self.set_variable, name, before)
            self.set_variable(name, value)

    @staticmethod
    def set_variable(name, value):
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value

    def session(self, **keywords):
        session = trapline.Session.attach(4711, **keywords)
        self.addCleanup(session.close)
        return session

    def running(self, text, **keywords):
        session = self.session(**keywords)
        session.compile(text)
        session.start()
        return session

    def asked(self):
        return [json.loads(line) for line in self.log.read_text().splitlines()]


class Calls(WithStandIn):
    def test_what_is_asked(self):
        with trapline.Session.attach(4711, records=True) as session:
            self.assertEqual(session.pid, 4711)
            session.compile("BEGIN {}", ["word", 5], {"bufsize": "8m", "zdefs": True}, name="script.d")
            session.start()
            session.snapshot(text=True)
            session.clear()
            session.stop()
        self.assertEqual(self.asked(), [
            {"method": "initialize", "protocol": 1, "client": f"python {trapline.__version__}"},
            {"method": "open", "target": {"pid": 4711}, "records": "push"},
            {"method": "compile", "session": 1, "text": "BEGIN {}", "name": "script.d", "arguments": ["word", "5"],
             "options": {"bufsize": "8m", "zdefs": True}},
            {"method": "start", "session": 1}, {"method": "snapshot", "session": 1, "text": True},
            {"method": "clear", "session": 1}, {"method": "stop", "session": 1}, {"method": "close", "session": 1}])

    def test_targets(self):
        for make, target in ((trapline.Session.self, {"self": True}),
                             (lambda: trapline.Session.launch("ls -l"), {"command": "ls -l"}),
                             (lambda: trapline.Session.launch(("ls", "-l")), {"argv": ["ls", "-l"]})):
            with make():
                pass
            opened = [call for call in self.asked() if call["method"] == "open"]
            stdio = opened[-1].pop("stdio", None)
            self.assertEqual(opened[-1], {"method": "open", "target": target, "records": "none"})
            self.assertEqual(stdio is not None, "self" not in target)

    def test_a_command_writes_where_this_process_does(self):
        program = "import trapline; trapline.Session.launch('x').close()"
        environment = {**os.environ, "PYTHONPATH": str(HERE)}
        done = subprocess.run([sys.executable, "-Bc", program], capture_output=True, text=True, env=environment,
                              check=True)
        self.assertEqual(done.stdout, "the command's output\n")
        with trapline.Helper() as helper:
            trapline.Session.launch("x", helper=helper).close()
        self.assertNotIn("stdio", self.asked()[-2])

    def test_compile_and_start(self):
        session = self.session()
        compiled = session.compile("BEGIN {}")
        self.assertEqual((compiled.matched, compiled.notes), (3, ("a note",)))
        self.assertEqual([d.tag for d in compiled.diagnostics], ["PDESC_ZERO"])
        started = session.start()
        self.assertEqual(started.armed, 2)
        self.assertEqual(started.refused, (trapline.Refusal("pid9:libc.so.6:f:entry", MAX, "too short", "3 bytes"),))
        self.assertEqual(session.stop(), ("stopped",))

    def test_an_answer_in_pieces_and_one_after_a_notification(self):
        self.assertEqual(self.running("torn").snapshot().state, "running")
        self.assertEqual(list(self.running("slow").notes), ["wait"])

    def test_two_sessions_on_one_helper(self):
        with trapline.Helper() as helper:
            first, second = (trapline.Session.attach(4711, helper=helper, records=True) for _ in range(2))
            first.compile("records 3 exits")
            second.compile("records 5 exits")
            first.start()
            second.start()
            self.assertEqual(len(list(second.records())), 5)
            self.assertEqual(len(list(first.records())), 3)
            first.close()
            self.assertEqual(second.snapshot().state, "ended")
            self.assertEqual(helper.version, "0.0-fake")
        with self.assertRaises(trapline.HelperError):
            second.snapshot()

    def test_sessions_with_this_process_share_a_helper(self):
        first, second = trapline.Session.self(), trapline.Session.self()
        first.close()
        self.assertEqual(second.compile("x").matched, 3)
        second.close()
        with trapline.Session.self() as third:
            third.compile("x")
        self.assertEqual(sum(call["method"] == "initialize" for call in self.asked()), 2)


class Values(WithStandIn):
    def setUp(self):
        super().setUp()
        session = self.session()
        session.compile("x")
        self.snapshot = session.snapshot(text=True)
        self.without_text = session.snapshot()

    def test_snapshot(self):
        self.assertEqual((self.snapshot.state, self.snapshot.drops), ("compiled", trapline.Drops(aggregation=1)))
        self.assertEqual(str(self.snapshot), "what the command prints\n")
        self.assertIsNone(self.without_text.text)
        self.assertEqual(len(self.snapshot), 9)
        self.assertEqual([a.name for a in self.snapshot][:2], ["calls", "bytes"])
        with self.assertRaises(KeyError):
            self.snapshot["unknown"]  # pylint: disable=pointless-statement

    def test_integers_are_exact(self):
        self.assertEqual(self.snapshot["calls"].value, 1011)
        self.assertEqual(self.snapshot["bytes"].value, MAX)
        self.assertIs(type(self.snapshot["bytes"].value), int)

    def test_histograms(self):
        self.assertEqual(self.snapshot["sizes"].histogram, ((-2 ** 63, -1, 1), (64, 127, 1000)))
        self.assertEqual(self.snapshot["sizes"].histogram[1].count, 1000)
        self.assertEqual(self.snapshot["linear"].histogram, ((None, 9, 2), (100, None, MAX)))
        with self.assertRaises(TypeError):
            self.snapshot["calls"].histogram  # pylint: disable=expression-not-assigned

    def test_keys(self):
        by = self.snapshot["by"]
        self.assertEqual((by.function, by.normal, by.types), ("min", 1000, ("string", "int", "bytes")))
        self.assertEqual(by.entries[0], (("größe", -5, b"\0\xff"), -2 ** 63))
        self.assertEqual(by[b"\xffA", 2 ** 53, b""], 3)
        self.assertEqual([entry.value for entry in by], [-2 ** 63, 3])
        self.assertEqual(len(by), 2)
        with self.assertRaises(TypeError):
            by.value  # pylint: disable=pointless-statement
        with self.assertRaises(KeyError):
            by["größe"]  # pylint: disable=pointless-statement

    def test_averages(self):
        self.assertEqual(self.snapshot["mean"].value, trapline.Average(4, 10))
        self.assertEqual(self.snapshot["mean"].value.mean, 2.5)
        spread = self.snapshot["spread"].value
        self.assertEqual(spread.squares, 2 ** 128 - 1)
        self.assertAlmostEqual(trapline.Deviation(2, 10, 68).deviation, 3.0)
        self.assertEqual(trapline.Deviation(0, 0, 0).deviation, 0.0)

    def test_nothing_seen(self):
        self.assertEqual(self.snapshot["none"].value, 0)
        self.assertIsNone(self.snapshot["nothing"].value)


class Records(WithStandIn):
    def test_all_kinds_of_actions(self):
        record, = self.running("records 1 exits", records=True).records()
        self.assertEqual(record[1:4], (1, 77, 1000))
        self.assertEqual(str(record.probe), "pid9:libc.so.6:malloc:entry")
        self.assertEqual([action.kind for action in record.actions], ["printf", "trace", "printa", "exit"])
        self.assertEqual(record.actions[0].values, (0, MAX, "s", b"\0\xff"))
        self.assertEqual(record.actions[1].values, (-2 ** 63,))
        self.assertEqual(record.actions[2].aggregations[0].value, 1011)
        self.assertEqual(record.text, "0\n")

    def test_iterating_until_the_program_ends(self):
        session = self.running("records 2500 exits", records=True)
        self.assertEqual([record.values[0] for record in session.records()][1:], list(range(1, 2500)))
        self.assertEqual(session.ended, trapline.Ended("exit", 3, "the program said exit(3)"))
        self.assertEqual(session.wait(), session.ended)

    def test_iterating_after_stop(self):
        session = self.running("records 10", records=True)
        session.stop()
        self.assertEqual(len(list(session.records())), 10)
        self.assertEqual(list(session.records()), [])

    def test_timeouts(self):
        session = self.running("records 2", records=True)
        self.assertEqual(len(list(session.records(timeout=0.3))), 2)
        before = time.monotonic()
        self.assertEqual(list(session.records(timeout=0.05)), [])
        self.assertGreaterEqual(time.monotonic() - before, 0.05)
        self.assertEqual(list(session.records(timeout=0)), [])
        self.assertIsNone(session.wait(timeout=0.01))

    def test_an_event_loop(self):
        session = self.running("late records 3", records=True)
        got = []
        while session.ended is None:
            self.assertTrue(select.select([session], [], [], 10)[0])
            got += session.records(timeout=0)
        self.assertEqual(len(got), 3)

    def test_callback(self):
        got = []
        session = self.running("records 2500", on_record=lambda record: got.append(threading.current_thread().name))
        session.stop()
        self.assertEqual(collections.Counter(got), {"trapline records": 2500})
        with self.assertRaises(trapline.StateError):
            session.records()
        session.start()
        session.close()
        self.assertEqual(len(got), 5000)

    def test_a_callback_that_raises_and_one_that_calls(self):
        session, got, raised = None, [], []

        def callback(record):
            got.append(session.snapshot()["calls"].value)
            if len(got) == 2:
                raise ValueError(record.text)

        hook, threading.excepthook = threading.excepthook, lambda arguments: raised.append(str(arguments.exc_value))
        self.addCleanup(setattr, threading, "excepthook", hook)
        session = self.session(on_record=callback)
        session.compile("records 5")
        session.start()
        session.stop()
        self.assertEqual((got, raised), ([1011] * 5, ["1\n"]))

    def test_reports(self):
        session = self.running("reports")
        self.assertEqual(list(session.notes), ["take note"])
        self.assertEqual(list(session.faults), [trapline.Fault(session.faults[0].probe, 1, MAX, "invalid address")])
        self.assertEqual(session.drops, trapline.Drops(record=5))

    def test_records_that_nobody_takes_are_counted(self):
        self.addCleanup(setattr, trapline, "_UNREAD_RECORDS", trapline._UNREAD_RECORDS)
        trapline._UNREAD_RECORDS = 100
        session = self.running("records 1500", records=True)
        session.stop()
        self.assertEqual((len(list(session.records())), session.drops.client), (100, 1400))
        self.assertEqual(session.snapshot().drops.client, 1400)

    def test_records_must_be_asked_for(self):
        with self.assertRaises(trapline.StateError):
            self.running("records 1").records()


class Errors(WithStandIn):
    def test_mistakes(self):
        with self.assertRaises(trapline.CompileError) as caught:
            self.session().compile("a mistake", name="script.d")
        self.assertEqual((str(caught.exception), caught.exception.kind), ("2 mistakes", "compile"))
        self.assertEqual([str(d) for d in caught.exception.diagnostics],
                         ["script.d:2:17: error: [SYNTAX] unexpected } (a ; is missing)",
                          "warning: [PDESC_ZERO] no match"])

    def test_kinds(self):
        for pid, error in ((1, trapline.AccessError), (2, trapline.NotFoundError)):
            with self.assertRaises(error) as caught:
                trapline.Session.attach(pid)
            self.assertIn(str(pid), str(caught.exception))
            self.assertEqual(caught.exception.rule, "owner" if pid == 1 else None)
        with self.assertRaises(trapline.StateError):
            self.session().start()
        with self.assertRaises(trapline.ProtocolError):
            self.session().compile("x", options={"nonsense": True})

    def test_a_helper_that_is_not_there(self):
        self.set_environment(TRAPLINE_COMMAND=None, PATH=str(self.folder / "empty"))
        with self.assertRaisesRegex(trapline.HelperError, "no trapline"):
            trapline.Session.attach(4711)
        self.set_environment(TRAPLINE_COMMAND="/nonexistent/trapline")
        with self.assertRaisesRegex(trapline.HelperError, "cannot start /nonexistent/trapline: No such file"):
            trapline.Session.attach(4711)
        self.set_environment(TRAPLINE_COMMAND="/bin/false")
        with self.assertRaisesRegex(trapline.HelperError, "status 1"):
            trapline.Session.attach(4711)

    def test_found_on_path(self):
        self.set_environment(TRAPLINE_COMMAND=None, PATH=f"{self.folder}:{os.environ['PATH']}")
        self.session()

    def test_another_protocol(self):
        self.set_environment(FAKE_SERVE_PROTOCOL="2")
        with self.assertRaisesRegex(trapline.ProtocolError, "protocol 2"):
            trapline.Session.attach(4711)

    def test_a_helper_that_dies(self):
        session = self.session()
        session.compile("die")
        for _ in range(2):
            with self.assertRaisesRegex(trapline.HelperError, "killed by signal 9"):
                session.start()
        session.close()

    def test_a_helper_that_dies_while_records_are_awaited(self):
        session = self.running("records 3", records=True)
        records = session.records()
        got = [next(records) for _ in range(3)]
        os.kill(session._helper.pid, signal.SIGKILL)
        with self.assertRaisesRegex(trapline.HelperError, "killed by signal 9"):
            next(records)
        with self.assertRaises(trapline.HelperError):
            session.wait()
        self.assertEqual(len(got), 3)

    def test_nonsense(self):
        session = self.session()
        session.compile("garbage")
        with self.assertRaisesRegex(trapline.HelperError, "not in the protocol"):
            session.start()

    def test_closed(self):
        session = self.session()
        session.close()
        session.close()
        with self.assertRaises(trapline.StateError):
            session.compile("x")


class Processes(WithStandIn):
    def test_the_helper_ends_with_its_session(self):
        session = self.session()
        pid = session._helper.pid
        session.close()
        with self.assertRaises(ProcessLookupError):
            os.kill(pid, 0)

    def test_the_helper_of_a_forgotten_session_ends(self):
        session = trapline.Session.attach(4711)
        pid = session._helper.pid
        del session
        gc.collect()
        with self.assertRaises(ProcessLookupError):
            os.kill(pid, 0)

    def test_a_session_is_inert_in_a_forked_child(self):
        session = self.running("x")
        child = os.fork()
        if child == 0:
            status = 1
            try:
                session.snapshot()
            except trapline.HelperError as error:
                status = 0 if "forked" in str(error) else 2
            session.close()
            os._exit(status)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(session.snapshot()["calls"].value, 1011)

    def test_many_threads(self):
        session, errors = self.running("records 2000 late", records=True), []

        def work():
            try:
                for _ in range(50):
                    assert session.snapshot()["bytes"].value == MAX
            except BaseException as error:  # pylint: disable=broad-except
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        self.assertEqual(len(list(session.records())), 2000)
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])


@unittest.skipUnless("--trapline" in sys.argv, "no --trapline given")
class WithTrapline(unittest.TestCase):
    """The real helper."""

    def setUp(self):
        before = os.environ.get("TRAPLINE_COMMAND")
        self.addCleanup(lambda: os.environ.pop("TRAPLINE_COMMAND") if before is None
                        else os.environ.update(TRAPLINE_COMMAND=before))
        os.environ["TRAPLINE_COMMAND"] = given.trapline

    def target(self, *words):
        process = subprocess.Popen([os.path.join(given.targets, words[0]), *words[1:]], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.communicate)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    def test_attach_counts_exactly(self):
        process = self.target("mallocs", "--wait", "4", "1000")
        with trapline.Session.attach(process.pid) as session:
            session.compile("pid$target::malloc:entry { @calls = count(); @sizes = quantize(arg0); "
                            "@by[arg0, probefunc] = sum(arg0); }")
            self.assertGreaterEqual(session.start().armed, 1)
            process.stdin.write("\n")
            process.stdin.flush()
            # The target prints how often it called malloc, which takes no malloc, and ends.
            session.wait(timeout=60)
            snapshot = session.snapshot(text=True)
        self.assertEqual(snapshot.drops, trapline.Drops())
        self.assertEqual(snapshot["by"][5000, "malloc"], 4 * 1000 * 5000)
        buckets = {bucket.low: bucket.count for bucket in snapshot["sizes"].histogram}
        self.assertEqual({low: buckets[low] for low in (4, 16, 64, 4096)}, {4: 4000, 16: 8000, 64: 4000, 4096: 4000})
        self.assertEqual(sum(buckets.values()), snapshot["calls"].value)
        self.assertIn("Distribution", snapshot.text)

    def test_this_process(self):
        with trapline.Session.self(records=True) as session:
            self.assertEqual(session.pid, os.getpid())
            session.compile("pid$target:libc:getppid:entry { @calls = count(); }")
            for rounds in (1, 2):
                session.start()
                for _ in range(1000):
                    os.getppid()
                session.stop()
                os.getppid()
                self.assertEqual(session.snapshot()["calls"].value, 1000 * rounds)
            session.clear()
            self.assertEqual(session.snapshot()["calls"].value, 0)

    def test_this_process_with_threads(self):
        def work():
            for _ in range(2000):
                os.getppid()

        with trapline.Session.self() as session:
            session.compile("pid$target:libc:getppid:entry { @calls[tid] = count(); }")
            session.start()
            threads = [threading.Thread(target=work) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            session.stop()
            self.assertEqual(sum(entry.value for entry in session.snapshot()["calls"]), 16000)

    def test_records_of_a_launched_command(self):
        with trapline.Session.launch([os.path.join(given.targets, "intargs")], records=True) as session:
            session.compile('pid$target:a.out:take_long:entry { printf("%d", (long)arg0); trace($1); }', [2 ** 63 - 1])
            session.start()
            records = list(session.records(timeout=60))
            self.assertEqual(session.wait(timeout=60).reason, "target")
        self.assertEqual([record.text for record in records], ["-5", "0", "1", "8"])
        self.assertEqual([record.values for record in records], [(value, 2 ** 63 - 1) for value in (-5, 0, 1, 8)])
        self.assertEqual({record.probe.function for record in records}, {"take_long"})

    def test_strings(self):
        with trapline.Session.launch([os.path.join(given.targets, "strings")]) as session:
            session.compile("pid$target:a.out:take_string:entry { @[copyinstr(arg0)] = count(); }")
            session.start()
            session.wait(timeout=60)
            keys = {entry.key[0] for entry in next(iter(session.snapshot()))}
        self.assertTrue({"hello", "", "grüß dich", "edge"} <= keys, keys)

    def test_exit_ends_it(self):
        process = self.target("ticker")
        with trapline.Session.attach(process.pid) as session:
            session.compile("pid$target:a.out:tick:entry { exit(3); }")
            session.start()
            self.assertEqual(session.wait(timeout=60)[:2], ("exit", 3))
        self.assertIsNone(process.poll())

    def test_errors(self):
        process = self.target("ticker")
        with trapline.Session.attach(process.pid) as session:
            with self.assertRaises(trapline.CompileError) as caught:
                session.compile("pid$target:a.out:tick:entry { @a = count(; }", name="mine")
            diagnostic = caught.exception.diagnostics[0]
            self.assertEqual((diagnostic.severity, diagnostic.file, diagnostic.line), ("error", "mine", 1))
            with self.assertRaises(trapline.CompileError):
                session.compile("pid$target:a.out:no_such_function:entry { @a = count(); }")
            session.compile("pid$target:a.out:no_such_function:entry { @a = count(); }", options={"zdefs": True})
            session.compile("pid$target:a.out:tick:entry { @a = count(); }")
            session.start()
            with self.assertRaises(trapline.StateError):
                session.start()
        child = subprocess.Popen(["true"])
        child.wait()
        with self.assertRaises(trapline.NotFoundError):
            trapline.Session.attach(child.pid)

    def test_the_helper_killed(self):
        """The traced process, this one, goes on; the next call says what happened."""
        session = trapline.Session.self()
        session.compile("pid$target:libc:getppid:entry { @calls = count(); }")
        session.start()
        # Its second process, which does the work; it then ends likewise.
        helper = session._helper.pid
        with open(f"/proc/{helper}/task/{helper}/children", encoding="ascii") as children:
            os.kill(int(children.read().split()[0]), signal.SIGKILL)
        for _ in range(1000):
            os.getppid()
        with self.assertRaisesRegex(trapline.HelperError, "killed by signal 9"):
            session.snapshot()
        session.close()

    def test_the_example(self):
        done = subprocess.run([sys.executable, "-B", str(HERE / "example.py"), sys.executable, "-c", "pass"],
                              capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?s)calls of malloc: \d+\n.*\d+\.\.\d+: \d+")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--trapline")
    parser.add_argument("--targets")
    given, rest = parser.parse_known_args()
    unittest.main(argv=sys.argv[:1] + rest)
