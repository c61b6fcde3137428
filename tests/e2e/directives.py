"""Reads directive files (.test): what to run, what to do meanwhile, what must come out. README.md tells the format."""

import dataclasses
import re

FLAG, ONE, MANY, BLOCK, NAMED_BLOCK = "flag", "one", "many", "block", "named block"

# Directive: (kind, help). MANY may be repeated; BLOCK and NAMED_BLOCK are followed by lines that start with '|'.
DIRECTIVES = {
    "NAME": (ONE, "what is shown to be so"),
    "REQUIRES": (MANY, "programs, `root`, or `file:PATH`, without which the test is skipped"),
    "USER": (ONE, "`nobody`: run everything as that user when root"),
    "TARGET": (ONE, "a target to start first, which says `ready`; its pid is {pid}"),
    "TARGET_STOP": (FLAG, "stop the target before trapline starts"),
    "FILE": (NAMED_BLOCK, "a file to write into {tmp}"),
    "RUN": (BLOCK, "the arguments of trapline, split as a shell does"),
    "ENV": (MANY, "NAME=VALUE for trapline"),
    "STDIN": (BLOCK, "trapline's standard input"),
    "WHEN": (MANY, "REGEX => ACTION: once output matches (target's, stdout, stderr), in this order"),
    "EXPECT": (BLOCK, "stdout, exactly"),
    "EXPECT_REGEX": (BLOCK, "stdout, a regex a line; a line `...` stands for any number of lines"),
    "EXPECT_LINE": (MANY, "a regex that some line of stdout matches in full"),
    "EXPECT_NOT": (MANY, "a regex found nowhere in stdout"),
    "STDERR": (BLOCK, "stderr, exactly"),
    "STDERR_REGEX": (BLOCK, "stderr, as EXPECT_REGEX"),
    "STDERR_LINE": (MANY, "a regex that some line of stderr matches in full"),
    "STDERR_NOT": (MANY, "a regex found nowhere in stderr"),
    "TARGET_EXPECT": (BLOCK, "what the target printed, exactly"),
    "TARGET_LINE": (MANY, "a regex that some line of the target's output matches in full"),
    "FILE_EXPECT": (NAMED_BLOCK, "what a file in {tmp} holds, exactly"),
    "CHECK": (MANY, "a Python expression over out, err, target_out, numbers(REGEX[, TEXT])"),
    "SORTED": (FLAG, "compare EXPECT after sorting both sides"),
    "EXIT": (ONE, "exit status (default 0), or `signal NAME`"),
    "TARGET_EXIT": (ONE, "the target's exit status (default 0), `signal NAME`, or `any`"),
    "TIMEOUT": (ONE, "seconds (default 60)"),
    "REPEAT": (ONE, "how often to run all of it (default 1)"),
    "STDOUT_TO": (ONE, "a file or device that stdout goes to instead"),
}
ACTIONS = {"go", "int", "term", "usr1", "kill", "target-stop", "target-cont", "target-kill", "nothing"}


class Malformed(Exception):
    pass


@dataclasses.dataclass
class Scenario:
    line: int
    values: dict = dataclasses.field(default_factory=dict)

    def one(self, name, default=None):
        return self.values.get(name, default)

    def many(self, name):
        return self.values.get(name, [])

    def whens(self):
        result = []
        for text in self.many("WHEN"):
            pattern, arrow, action = text.rpartition("=>")
            if not arrow or action.strip() not in ACTIONS:
                raise Malformed(f"WHEN {text}: expected REGEX => one of {', '.join(sorted(ACTIONS))}")
            result.append((re.compile(pattern.strip(), re.M), action.strip()))
        return result


def block_line(line):
    """'|text' is text; one '$' after a blank marks where a line with blanks at its end ends."""
    text = line[1:]
    return text[:-1] if text.endswith(" $") else text


def parse(text):
    """The scenarios of a file; they are separated by lines of four or more '-'."""
    scenarios = []
    current = Scenario(1)
    block = None
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("|"):
            if block is None:
                raise Malformed(f"line {number}: a block line without a directive")
            block.append(block_line(line))
            continue
        block = None
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        if set(stripped) == {"-"} and len(stripped) >= 4:
            scenarios.append(current)
            current = Scenario(number + 1)
            continue
        name, _, rest = line.partition(" ")
        if name not in DIRECTIVES:
            raise Malformed(f"line {number}: no directive {name}")
        kind = DIRECTIVES[name][0]
        if name in current.values and kind in (FLAG, ONE, BLOCK):
            raise Malformed(f"line {number}: {name} again")
        if kind == FLAG:
            current.values[name] = True
        elif kind == ONE:
            current.values[name] = rest.strip()
        elif kind == MANY:
            current.values.setdefault(name, []).append(rest)
        elif kind == NAMED_BLOCK:
            block = []
            current.values.setdefault(name, {})[rest.strip()] = block
        else:
            block = [rest] if rest.strip() else []
            current.values[name] = block
    scenarios.append(current)
    for scenario in scenarios:
        if "RUN" not in scenario.values:
            raise Malformed(f"line {scenario.line}: a scenario without RUN")
        scenario.whens()
    return scenarios
