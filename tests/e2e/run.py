#!/usr/bin/env python3
"""Runs one directive file: exit status 0 passed, 1 failed, 77 skipped.

    run.py --trapline BINARY --targets FOLDER FILE.test

A scenario starts its target (if it names one) and waits for its `ready`, starts trapline, does what WHEN lines say as
output comes, waits for trapline's end, tells the target to finish, and compares. Beside what the file expects, always:
nobody traces the target or has left it stopped, and no process stays behind. Standard library only.
"""

import argparse
import difflib
import errno
import os
import pathlib
import re
import shlex
import shutil
import signal
import sys
import tempfile
import time

import directives
import processes

SKIPPED = 77
NOBODY = 65534
LEFTOVER_SECONDS = 5


class Failed(Exception):
    pass


class Skipped(Exception):
    pass


def public(path):
    """Whether others may read and execute this file."""
    path = pathlib.Path(path)
    return all(p.stat().st_mode & 0o001 for p in [path, *path.parents]) and bool(path.stat().st_mode & 0o004)


class Place:
    """The scenario's own folder, and where the programs are found."""

    def __init__(self, options, user):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="trapline-e2e-"))
        self.options, self.user = options, user
        self.folder.chmod(0o755)
        if user is not None:
            os.chown(self.folder, user, user)

    def program(self, path):
        """The path itself, or a copy that the scenario's user can reach."""
        if not os.path.exists(path):
            raise Failed(f"{path} does not exist")
        if self.user is None or public(path):
            return str(path)
        copy = self.folder / "bin" / pathlib.Path(path).name
        if not copy.exists():
            copy.parent.mkdir(exist_ok=True)
            copy.parent.chmod(0o755)
            shutil.copy(path, copy)
            copy.chmod(0o755)
        return str(copy)

    def substitute(self, text, pid):
        def value(match):
            name = match.group(1)
            if name == "tmp":
                return str(self.folder)
            if name == "pid":
                if pid is None:
                    raise Failed("{pid} without TARGET")
                return str(pid)
            if name == "trapline":
                return self.program(self.options.trapline)
            if name == "uid":
                return str(os.getuid() if self.user is None else self.user)
            return self.program(os.path.join(self.options.targets, name[len("target:"):]))

        return re.sub(r"\{(tmp|pid|uid|trapline|target:[\w.]+)\}", value, text)

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)


def check_requirements(scenario):
    for line in scenario.many("REQUIRES"):
        for name in line.split():
            if name == "root":
                if os.getuid() != 0:
                    raise Skipped("needs root")
            elif name.startswith("file:"):
                if not os.path.exists(name[5:]):
                    raise Skipped(f"needs {name[5:]}")
            elif shutil.which(name) is None:
                raise Skipped(f"needs {name}")


def wanted_status(text):
    if text.startswith("signal "):
        return -getattr(signal, "SIG" + text.split()[1])
    return int(text)


def show(label, text):
    if text:
        print(f"--- {label}")
        print(text, end="" if text.endswith("\n") else "\n")


class Run:
    """One run of one scenario."""

    def __init__(self, scenario, options):
        self.scenario, self.options = scenario, options
        user = NOBODY if scenario.one("USER") == "nobody" and os.getuid() == 0 else None
        self.place = Place(options, user)
        self.watch = processes.Watch()
        self.target = self.trapline = None
        self.deadline = time.monotonic() + float(scenario.one("TIMEOUT", "60"))

    def start_target(self):
        line = self.scenario.one("TARGET")
        if line is None:
            return
        words = shlex.split(self.place.substitute(line, None))
        program = words[0] if "/" in words[0] else self.place.program(os.path.join(self.options.targets, words[0]))
        try:
            self.target = processes.Child(self.watch, "target", [program, *words[1:]], user=self.place.user,
                                          cwd=self.place.folder)
        except OSError as error:
            if error.errno == errno.ENOEXEC:
                raise Skipped(f"this kernel does not run {words[0]}") from error
            raise
        if not self.watch.until(lambda: b"ready\n" in self.target.out, self.deadline):
            raise Failed("the target never said ready")
        if self.scenario.one("TARGET_STOP"):
            self.target.signal(signal.SIGSTOP)
            if not self.watch.until(self.target_is_stopped, self.deadline):
                raise Failed("the target did not stop")

    def target_is_stopped(self):
        return (processes.status_field(self.target.pid, "State") or "")[:1] == "T"

    def arguments(self):
        pid = self.target.pid if self.target else None
        text = self.place.substitute("\n".join(self.scenario.values["RUN"]), pid)
        return [self.place.program(self.options.trapline), *shlex.split(text)]

    def start_trapline(self):
        env = {name: os.environ[name] for name in ("PATH", "LANG", "TZ", *processes.SANITIZER_OPTIONS) if name in os.environ}
        env["HOME"] = str(self.place.folder)
        for setting in self.scenario.many("ENV"):
            name, _, value = self.place.substitute(setting, None).partition("=")
            env[name] = value
        stdout_to = self.scenario.one("STDOUT_TO")
        self.trapline = processes.Child(self.watch, "trapline", self.arguments(), env=env, cwd=self.place.folder,
                                        user=self.place.user,
                                        stdout_to=stdout_to and self.place.substitute(stdout_to, None))
        stdin = self.scenario.one("STDIN")
        if stdin is not None:
            self.trapline.write(("\n".join(stdin) + "\n").encode())
        self.trapline.close_stdin()

    def act(self, action):
        if action == "go":
            self.target.write(b"go\n")
        elif action.startswith("target-"):
            number = {"stop": signal.SIGSTOP, "cont": signal.SIGCONT, "kill": signal.SIGKILL}[action[7:]]
            self.target.signal(number)
        elif action != "nothing":
            self.trapline.signal(getattr(signal, "SIG" + action.upper()))

    def react(self):
        """Each WHEN looks only at what came after the output that the one before it matched."""
        pending = self.scenario.whens()
        seen = {"out": 0, "err": 0, "target": 0}

        def streams():
            yield "out", self.trapline.text()
            yield "err", self.trapline.errors()
            if self.target:
                yield "target", self.target.text()

        def on_output():
            progress = True
            while pending and progress:
                progress = False
                pattern, action = pending[0]
                for name, text in streams():
                    match = pattern.search(text, seen[name])
                    if match:
                        seen[name] = match.end()
                        pending.pop(0)
                        self.act(action)
                        progress = True
                        break

        self.watch.on_output = on_output
        on_output()
        return pending

    def finish_target(self):
        target = self.target
        if target is None:
            return
        if target.running():
            # A tracer that was killed has a second process, which is restoring the target just now.
            processes.wait_until(lambda: processes.status_field(target.pid, "TracerPid") in ("0", None), 2)
            tracer = processes.status_field(target.pid, "TracerPid")
            if tracer not in ("0", None):
                raise Failed(f"the target is still traced, by {tracer}")
            state = processes.status_field(target.pid, "State") or ""
            stopped_by_us = self.scenario.one("TARGET_STOP") or any(a == "target-stop" for _, a in self.scenario.whens())
            if (state[:1] in ("t", "T")) != bool(stopped_by_us):
                raise Failed(f"the target was left {state}")
            target.signal(signal.SIGCONT)
        wanted = self.scenario.one("TARGET_EXIT", "0")
        target.write(b"go\nend\n")
        target.close_stdin()
        if wanted == "any" and target.running():
            target.kill()
        if not self.watch.until(lambda: not target.running(), self.deadline):
            raise Failed("the target did not end")
        self.watch.drain(target, time.monotonic() + 5)
        status = target.process.returncode
        if wanted != "any" and status != wanted_status(wanted):
            raise Failed(f"the target ended with {status}, not {wanted}")

    def check_leftovers(self):
        def none_left():
            processes.reap()
            return not processes.descendants()

        if not processes.wait_until(none_left, LEFTOVER_SECONDS):
            raise Failed(f"processes were left behind: {processes.descendants()}")

    def perform(self):
        for name, lines in self.scenario.one("FILE", {}).items():
            path = self.place.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.place.substitute("\n".join(lines) + "\n", None), encoding="utf-8")
        self.start_target()
        self.start_trapline()
        pending = self.react()
        if not self.watch.until(lambda: not self.trapline.running(), self.deadline):
            raise Failed("timed out" + (f", waiting for output that matches {pending[0][0].pattern}" if pending else ""))
        self.watch.drain(self.trapline, time.monotonic() + 5)
        self.watch.on_output = lambda: None
        self.finish_target()
        if processes.SANITIZER_REPORT.search(self.trapline.errors()):
            raise Failed("a sanitizer reports")
        if pending:
            raise Failed(f"no output matched {pending[0][0].pattern}")
        status, wanted = self.trapline.process.returncode, wanted_status(self.scenario.one("EXIT", "0"))
        if status != wanted:
            raise Failed(f"exit status {status}, not {wanted}")
        self.compare()
        self.check_leftovers()

    def expected_block(self, lines):
        return [self.place.substitute(line, self.target.pid if self.target else None) for line in lines]

    def compare_block(self, what, lines, text):
        wanted, got = self.expected_block(lines), text.split("\n")
        if got and got[-1] == "":
            got.pop()
        elif text:
            got[-1] += "  <no newline at the end>"
        if self.scenario.one("SORTED"):
            wanted, got = sorted(wanted), sorted(got)
        if wanted != got:
            diff = "\n".join(difflib.unified_diff(wanted, got, "expected", "got", lineterm=""))
            raise Failed(f"{what} differs:\n{diff}")

    def compare_regex(self, what, lines, text):
        parts = [r"(?:.*\n)*?" if line == "..." else f"(?:{line})\n" for line in self.expected_block(lines)]
        if re.fullmatch("".join(parts), text) is None:
            good = 0
            while re.match("".join(parts[:good + 1]), text):
                good += 1
            raise Failed(f"{what} does not match from this line on: {lines[min(good, len(lines) - 1)]}")

    def compare_lines(self, suffix_to_text):
        for name, text, what in suffix_to_text:
            for pattern in self.expected_block(self.scenario.many(name)):
                if not any(re.fullmatch(pattern, line) for line in text.split("\n")):
                    raise Failed(f"no line of {what} matches {pattern}")

    def compare(self):
        out, err = self.trapline.text(), self.trapline.errors()
        target_out = self.target.text() if self.target else ""
        one = self.scenario.one
        for name, text, what in (("EXPECT", out, "stdout"), ("STDERR", err, "stderr"),
                                 ("TARGET_EXPECT", target_out, "the target's output")):
            if one(name) is not None:
                self.compare_block(what, one(name), text)
        for name, text, what in (("EXPECT_REGEX", out, "stdout"), ("STDERR_REGEX", err, "stderr")):
            if one(name) is not None:
                self.compare_regex(what, one(name), text)
        self.compare_lines((("EXPECT_LINE", out, "stdout"), ("STDERR_LINE", err, "stderr"),
                            ("TARGET_LINE", target_out, "the target's output")))
        for name, text, what in (("EXPECT_NOT", out, "stdout"), ("STDERR_NOT", err, "stderr")):
            for pattern in self.expected_block(self.scenario.many(name)):
                if re.search(pattern, text):
                    raise Failed(f"{what} holds {pattern}")
        for name, lines in one("FILE_EXPECT", {}).items():
            path = self.place.folder / name
            if not path.exists():
                raise Failed(f"{name} was not written")
            self.compare_block(name, lines, path.read_text(encoding="utf-8"))
        self.check_expressions(out, err, target_out)

    def check_expressions(self, out, err, target_out):
        def numbers(pattern, text=None):
            return [int(n) for n in re.findall(pattern, out if text is None else text, re.M)]

        names = {"out": out, "err": err, "target_out": target_out, "numbers": numbers, "re": re,
                 "pid": self.target.pid if self.target else 0}
        for expression in self.scenario.many("CHECK"):
            if not eval(expression, names):  # pylint: disable=eval-used  # the test files are ours
                raise Failed(f"does not hold: {expression}")

    def clean_up(self):
        for child in (self.trapline, self.target):
            if child is not None and child.running():
                child.kill()
                child.process.wait()
        for pid, _ in processes.descendants():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        processes.reap()
        self.place.remove()

    def report(self):
        for child in (self.trapline, self.target):
            if child is not None:
                show(f"{child.name}'s arguments", " ".join(shlex.quote(str(a)) for a in child.process.args))
                show(f"{child.name}'s stdout", child.text())
                show(f"{child.name}'s stderr", child.errors())


def run_scenario(scenario, options):
    check_requirements(scenario)
    for _ in range(int(scenario.one("REPEAT", "1"))):
        run = Run(scenario, options)
        try:
            run.perform()
        except Failed:
            run.report()
            raise
        except OSError as error:
            raise Failed(f"a program could not be started: {error}") from error
        finally:
            run.clean_up()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--trapline", required=True, help="the binary under test")
    parser.add_argument("--targets", required=True, help="the folder of the programs to trace")
    parser.add_argument("file")
    options = parser.parse_args()
    options.trapline = os.path.abspath(options.trapline)
    options.targets = os.path.abspath(options.targets)
    processes.adopt_orphans()
    try:
        scenarios = directives.parse(pathlib.Path(options.file).read_text(encoding="utf-8"))
    except directives.Malformed as error:
        print(f"{options.file}: {error}")
        return 1
    skipped = 0
    for scenario in scenarios:
        title = scenario.one("NAME") or f"line {scenario.line}"
        try:
            run_scenario(scenario, options)
            print(f"passed: {title}")
        except Skipped as reason:
            print(f"skipped: {title}: {reason}")
            skipped += 1
        except Failed as reason:
            print(f"FAILED: {title} ({os.path.basename(options.file)}, line {scenario.line}): {reason}")
            return 1
    return SKIPPED if skipped == len(scenarios) else 0


if __name__ == "__main__":
    sys.exit(main())
