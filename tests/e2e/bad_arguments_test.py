#!/usr/bin/env python3
"""Arguments that make no sense are answered by one line that names what is wrong, with exit status 1, or by that line
and the usage, with exit status 2; nothing is traced and nothing is left behind."""

import os
import re
import struct

from harness import Harness

END = ("-n", "BEGIN { exit(0); }")
OPTION, VALUE = "Invalid option name", "Invalid value for specified option"


def usage_cases():
    """(arguments, what the first line says): the usage follows, and the exit status is 2."""
    for flag in "bcDfiILmnopPsUxX":
        yield (f"-{flag}",), f"option requires an argument -- '{flag}'"
    yield ("-Y",), "invalid option -- 'Y'"
    yield ("--nonsense",), "invalid option -- '-'"
    yield ("-65", *END), "illegal option -- 65"


def error_cases():
    """(arguments, what the line says): the exit status is 1."""
    for name, value in (("no_such_option", "1"), ("no_such_option", None), ("", "5"), ("", None), ("x" * 100000, "1"),
                        ("\x1b[31m", "1"), ("bufsize\n", "1m")):
        yield ("-x", name if value is None else f"{name}={value}", *END), OPTION
    for name, values in {
            "strsize": ("", "0", "-1", "banana", "1x", "99999999999999999999999", "1 m", "0x", "65g"),
            "bufsize": ("", "-1", "banana", "99999999999999999999999", "1mm"),
            "dynvarsize": ("-1", "banana"),
            "aggrate": ("banana", "-1sec", "1parsec"),
            "switchrate": ("banana",),
            "bufpolicy": ("", "nonsense", "SWITCH"),
            "quiet": ("banana",),
            "stdc": ("q",),
            "format": ("xml",),
    }.items():
        for value in values:
            yield ("-x", f"{name}={value}", *END), VALUE
    yield ("-b", "banana", *END), VALUE
    yield ("-X", "q", *END), VALUE
    for pid in ("", "0", "-1", "banana", "1x", "99999999999", "0x1", " ", "99999999999999999999999999"):
        yield ("-p", pid, *END), "invalid pid: "
    yield ("-p", "4194999", *END), "failed to grab pid 4194999: no process 4194999"
    yield ("-n", "pid4194999::malloc:entry { }"), "failed to grab pid 4194999: no process 4194999"
    yield ("-n", "pid0::malloc:entry { }"), "0 is not a process ID"
    yield ("-n", "pid99999999999::malloc:entry { }"), "99999999999 is not a process ID"
    yield ("-n", "pid$target::malloc:entry { }"), r"\$target"
    for command in ("", "   ", "\t"):
        yield ("-c", command, *END), "the command is empty"
    yield ("-c", "/bin/echo 'open", *END), "open ' quote"
    yield ("-c", "/no/such/program", *END), "no such command"
    yield ("-c", "no-such-command-anywhere", *END), "no such command"
    yield ("-c", "/etc/passwd", *END), "may not be executed"
    yield ("-c", "/tmp", *END), "may not be executed"
    yield ("-c", "/dev/null", *END), "may not be executed"
    yield ("-c", "{tmp}/damaged", *END), "not a program that this system can run"
    yield ("-c", "{tmp}/foreign", *END), "another architecture"
    yield ("-c", "{tmp}/no_interpreter", *END), "interpreter is missing"
    yield ("-o", "/no/such/folder/file", *END), "failed to open output file '/no/such/folder/file': No such file or directory"
    yield ("-o", "/tmp", *END), "Is a directory"
    yield ("-o", "", *END), "failed to open output file"
    for text in ("", " ", "\n", "//", "/* */"):
        yield ("-n", text), "(invalid probe specifier|D_SYNTAX)"
    for number in ("99999", "banana", "4294967296", "-1", ""):
        yield ("-i", number), f"invalid probe specifier {number}"
    yield ("-m", "no_such_module"), "does not match any probes"
    yield ("-f", "no_such_function"), "does not match any probes"
    yield ("-P", "no_such_provider"), "does not match any probes"
    yield ("-n", "a:b:c:d:e { }"), "invalid probe specifier"
    yield ("-n", ":" * 100000), "invalid probe specifier"
    yield ("-n", "x" * 100000), "invalid probe specifier"
    yield ("-n", "BEGIN { trace(\xff\xfe); }"), "invalid probe specifier"
    yield ("-s", ""), "failed to open "
    yield ("-s", "x" * 5000), "File name too long"
    yield ("-C", "-s", "{tmp}/includes_nothing.d"), "Preprocessor failed"
    yield ("-C", "-x", "cpppath=/no/such/cpp", "-s", "{tmp}/includes_nothing.d"), "/no/such/cpp"
    yield ("-q",), "no probes specified"
    yield ("-B", *END), "-B is not offered"


def make_files(folder):
    elf = b"\x7fELF\2\1\1" + bytes(11)
    for name, data in (("damaged", elf + struct.pack("<H", 62) + bytes(44) + b"\necho ran as a script\n"),
                       ("foreign", elf + struct.pack("<H", 183) + bytes(44)),
                       ("no_interpreter", b"#!/no/such/interpreter\n"),
                       ("includes_nothing.d", b'#include "no_such_file.h"\nBEGIN { exit(0); }\n')):
        path = os.path.join(folder, name)
        with open(path, "wb") as file:
            file.write(data)
        os.chmod(path, 0o755)


def shown(arguments):
    return " ".join(repr(argument[:60]) for argument in arguments)


def main():
    harness = Harness(__doc__)
    make_files(harness.folder.name)
    for arguments, text in usage_cases():
        done = harness.trace(*arguments, timeout=20)
        err = done.stderr.decode(errors="replace")
        harness.expect(done.returncode == 2 and done.stdout == b"" and
                       re.match(f"dtrace: {text}\nUsage: ", err), f"{shown(arguments)}: {done.returncode}\n{err[:300]}")
    for arguments, text in error_cases():
        arguments = [argument.replace("{tmp}", harness.folder.name) for argument in arguments]
        done = harness.trace(*arguments, timeout=20)
        err = done.stderr.decode(errors="replace")
        first = err.split("\n", 1)[0]
        # What cpp itself says comes before the line.
        said = [line for line in err.split("\n") if line.startswith("dtrace: ")]
        harness.expect(done.returncode == 1 and done.stdout == b"" and said and re.search(text, err),
                       f"{shown(arguments)}: {done.returncode}\n{err[:300]}")
        harness.expect(len(said) == 1 and (first == said[0] or "-C" in arguments),
                       f"{shown(arguments)}: not one line of ours first:\n{err[:300]}")
        harness.expect("\x1b" not in err, f"{shown(arguments)}: control characters reach the terminal")
    harness.finish()


if __name__ == "__main__":
    main()
