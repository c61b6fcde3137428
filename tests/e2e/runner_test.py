#!/usr/bin/env python3
"""Tests the runner itself with a stand-in for the command: what must fail does fail, what must be skipped is skipped."""

import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
# Prints what its arguments say: `out TEXT`, `err TEXT`, `exit N`, `wait` (for a signal), `leave` (a process behind).
STAND_IN = """\
#!/usr/bin/env python3
import os, signal, sys, time
words = sys.argv[1:]
while words:
    word = words.pop(0)
    if word == "out": print(words.pop(0), flush=True)
    elif word == "err": print(words.pop(0), file=sys.stderr, flush=True)
    elif word == "exit": sys.exit(int(words.pop(0)))
    elif word == "wait":
        # Blocked first: the signal may come right after the line.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        print("waiting", flush=True)
        signal.sigwait({signal.SIGINT})
    elif word == "leave":
        if os.fork() == 0:
            os.setsid()
            for fd in (0, 1, 2): os.close(fd)
            time.sleep(60)
            os._exit(0)
    elif word == "hang": time.sleep(60)
"""
TARGET = """\
#!/usr/bin/env python3
import sys
print("ready", flush=True)
line = sys.stdin.readline().strip()
print("got " + line, flush=True)
"""


class Runner(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        for name, text in (("standin", STAND_IN), ("waiter", TARGET)):
            path = os.path.join(self.folder.name, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(path, 0o755)
        self.addCleanup(self.folder.cleanup)

    def status(self, text):
        path = os.path.join(self.folder.name, "x.test")
        with open(path, "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(text))
        done = subprocess.run([sys.executable, "-B", os.path.join(HERE, "run.py"), "--trapline",
                               os.path.join(self.folder.name, "standin"), "--targets", self.folder.name, path],
                              capture_output=True, text=True, timeout=60, check=False)
        self.output = done.stdout + done.stderr
        return done.returncode

    def test_exact_output(self):
        self.assertEqual(self.status("RUN out 'a b '\nEXPECT\n|a b $\nSTDERR\n"), 0)
        self.assertEqual(self.status("RUN out 'a b'\nEXPECT\n|a b $\n"), 1)
        self.assertEqual(self.status("RUN out a\nEXPECT\n"), 1)
        self.assertEqual(self.status("RUN err a\nSTDERR\n"), 1)

    def test_sanitizer_reports(self):
        self.assertEqual(self.status("RUN err '==1==ERROR: AddressSanitizer: heap-use-after-free'\n"), 1)
        self.assertEqual(self.status("RUN err 'x.cc:1:2: runtime error: signed integer overflow'\n"), 1)

    def test_exit_status(self):
        self.assertEqual(self.status("RUN exit 3\nEXIT 3\n"), 0)
        self.assertEqual(self.status("RUN exit 3\n"), 1)
        self.assertEqual(self.status("RUN exit 0\nEXIT 1\n"), 1)

    def test_regex(self):
        self.assertEqual(self.status("RUN out a1 out b out c\nEXPECT_REGEX\n|a\\d\n|...\n|c\n"), 0)
        self.assertEqual(self.status("RUN out a1 out b out c\nEXPECT_REGEX\n|a\\d\n|c\n"), 1)
        self.assertEqual(self.status("RUN out '  a'\nEXPECT_LINE   a\n"), 0)
        self.assertEqual(self.status("RUN out '  a'\nEXPECT_LINE a\n"), 1)
        self.assertEqual(self.status("RUN out abc\nEXPECT_NOT b\n"), 1)

    def test_check(self):
        self.assertEqual(self.status("RUN out 'n=5'\nCHECK numbers(r'n=(\\d+)') == [5]\n"), 0)
        self.assertEqual(self.status("RUN out 'n=5'\nCHECK numbers(r'n=(\\d+)') == [6]\n"), 1)

    def test_when(self):
        self.assertEqual(self.status("RUN wait out done\nWHEN ^waiting$ => int\nEXPECT\n|waiting\n|done\n"), 0)
        self.assertEqual(self.status("RUN out a\nWHEN never => int\n"), 1)
        self.assertEqual(self.status("RUN hang\nTIMEOUT 1\n"), 1)

    def test_target(self):
        self.assertEqual(self.status("TARGET waiter\nRUN out {pid} hang\nWHEN \\d => go\nWHEN got => kill\nEXIT signal KILL\n"
                                     "TARGET_EXPECT\n|ready\n|got go\n"), 0)
        self.assertEqual(self.status("TARGET waiter\nTARGET_STOP\nRUN out x\nTARGET_EXPECT\n|ready\n|got go\n"), 0)

    def test_leftovers(self):
        self.assertEqual(self.status("RUN leave\n"), 1)
        self.assertIn("left behind", self.output)

    def test_skips(self):
        self.assertEqual(self.status("REQUIRES no-such-program-anywhere\nRUN exit 1\n"), 77)
        self.assertIn("needs no-such-program-anywhere", self.output)

    def test_malformed(self):
        self.assertEqual(self.status("RUN\nNONSENSE x\n"), 1)
        self.assertEqual(self.status("NAME no run\n"), 1)
        self.assertEqual(self.status("RUN\nWHEN x\n"), 1)

    def test_scenarios(self):
        self.assertEqual(self.status("RUN out a\nEXPECT\n|a\n----\nRUN out b\nEXPECT\n|c\n"), 1)
        self.assertEqual(self.status("RUN out a\nREPEAT 3\n----\nFILE f\n|text\nRUN out x\nFILE_EXPECT f\n|text\n"), 0)


if __name__ == "__main__":
    unittest.main()
