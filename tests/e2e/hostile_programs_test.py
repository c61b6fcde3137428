#!/usr/bin/env python3
"""D programs that nobody in their senses would write: huge, deep, cut off, not text. The command must answer each in
words, with exit status 0 or 1, in bounded time, and never by a signal."""

import os
import random

from harness import Harness

MEGABYTE = 1 << 20
END = b"BEGIN { exit(0); }\n"


def cases():
    """(name, script, the exit statuses that are right)."""
    yield "10 MB of comments", b"/* filler */\n" * (10 * MEGABYTE // 13) + END, (0,)
    yield "10 MB of clauses", b"BEGIN { x = 1; }\n" * (10 * MEGABYTE // 17) + END, (0, 1)
    yield "10 MB on one line", b"BEGIN { x = 1" + b" + 1" * (10 * MEGABYTE // 4) + b"; exit(0); }\n", (0, 1)
    yield "one string of 10 MB", b'BEGIN { trace("' + b"x" * (10 * MEGABYTE) + b'"); exit(0); }\n', (0, 1)
    yield "one name of 10 MB", b"BEGIN { " + b"x" * (10 * MEGABYTE) + b" = 1; exit(0); }\n", (0, 1)
    yield "100,000 parentheses", b"BEGIN { x = " + b"(" * 100000 + b"1" + b")" * 100000 + b"; exit(0); }\n", (1,)
    yield "100,000 negations", b"BEGIN { x = " + b"!" * 100000 + b"1; exit(0); }\n", (1,)
    yield "100,000 minus signs", b"BEGIN { x = " + b"- " * 100000 + b"1; exit(0); }\n", (1,)
    yield "100,000 ternaries", b"BEGIN { x = " + b"1 ? 2 : " * 100000 + b"3; exit(0); }\n", (0, 1)
    yield "100,000 casts", b"BEGIN { x = " + b"(int)" * 100000 + b"1; exit(0); }\n", (1,)
    yield "100,000 pointer stars", b"BEGIN { x = (int " + b"*" * 100000 + b")0; exit(0); }\n", (0, 1)
    yield "100,000 subscripts", b"BEGIN { x = y" + b"[1]" * 100000 + b"; exit(0); }\n", (1,)
    yield "100,000 open braces", b"BEGIN " + b"{" * 100000, (1,)
    yield "100,000 nested structs", b"struct s { " * 100000, (1,)
    yield "100,000 nested ifs", b"BEGIN { " + b"if (1) { " * 100000 + b"x = 1; " + b"} " * 100000 + b"exit(0); }\n", (1,)
    yield "100,000 ifs without braces", b"BEGIN { " + b"if (1) " * 100000 + b"x = 1; exit(0); }\n", (1,)
    yield "100,000 else ifs", b"BEGIN { if (0) x = 1; " + b"else if (0) x = 1; " * 100000 + b"exit(0); }\n", (0, 1)
    yield "100,000 nested ternaries", b"BEGIN { x = " + b"(1 ? " * 100000 + b"1" + b" : 2)" * 100000 + b"; exit(0); }", (1,)
    yield "100,000 ternaries in the middle", b"BEGIN { x = " + b"1 ? " * 100000 + b"1" + b" : 2" * 100000 + b"; exit(0); }", (1,)
    yield "100,000 complements", b"BEGIN { x = " + b"~" * 100000 + b"1; exit(0); }\n", (1,)
    yield "100,000 dereferences", b"BEGIN { x = " + b"*" * 100000 + b"1; exit(0); }\n", (1,)
    yield "100,000 addresses", b"BEGIN { x = " + b"& " * 100000 + b"y; exit(0); }\n", (1,)
    yield "100,000 increments", b"BEGIN { x = " + b"++" * 100000 + b"y; exit(0); }\n", (1,)
    yield "100,000 postfix increments", b"BEGIN { x = y" + b"++" * 100000 + b"; exit(0); }\n", (1,)
    yield "100,000 sizeofs", b"BEGIN { x = " + b"sizeof " * 100000 + b"1; exit(0); }\n", (1,)
    yield "100,000 nested calls", b"BEGIN { x = " + b"strlen(" * 100000 + b'"a"' + b")" * 100000 + b"; exit(0); }\n", (1,)
    yield "100,000 assignments", b"BEGIN { " + b"x = " * 100000 + b"1; exit(0); }\n", (0, 1)
    yield "100,000 members", b"BEGIN { x = y" + b"->z" * 100000 + b"; exit(0); }\n", (1,)
    yield "100,000 commas", b"BEGIN { x = (1" + b", 1" * 100000 + b"); exit(0); }\n", (0, 1)
    yield "100,000 ands", b"BEGIN { x = 1" + b" && 1" * 100000 + b"; exit(0); }\n", (0, 1)
    yield "100,000 parentheses in a predicate", b"BEGIN /" + b"(" * 100000 + b"1" + b")" * 100000 + b"/ { exit(0); }\n", (1,)
    yield "100,000 strings side by side", b"BEGIN { trace(" + b'"a" ' * 100000 + b"); exit(0); }\n", (0, 1)
    yield "100,000 variables", b"BEGIN { " + b"".join(b"v%d = 1; " % i for i in range(100000)) + b"exit(0); }\n", (0, 1)
    yield "100,000 pragmas", b"#pragma D option quiet\n" * 100000 + END, (0,)
    yield "100,000 line markers", b'# 1 "file" 1\n' * 100000 + END, (0, 1)
    yield "100,000 typedefs, each of the last", b"".join(
        b"typedef t%d *t%d;\n" % (i, i + 1) for i in range(100000)).replace(b"t0 ", b"int ", 1) + END, (0, 1)
    yield "100,000 inlines, each of the last", b"inline int i0 = 1;\n" + b"".join(
        b"inline int i%d = i%d + i%d;\n" % (i + 1, i, i) for i in range(100000)) + b"BEGIN { exit(i100000); }\n", (0, 1)
    yield "100,000 mistakes", b"BEGIN { x = ; }\n" * 100000, (1,)
    yield "10 MB of open parentheses", b"BEGIN { x = " + b"(" * (10 * MEGABYTE), (1,)
    yield "10 MB of random bytes", random.Random(5).randbytes(10 * MEGABYTE), (1,)
    yield "10 MB of random text", bytes(random.Random(6).choices(
        b" \n(){}[];:,.@$#%&*+-/<=>?!^~|\"'\\abcxyzBEGIN0123456789", k=10 * MEGABYTE)), (1,)
    yield "10,000 printf arguments", b'BEGIN { printf("' + b"%d" * 10000 + b'"' + b", 1" * 10000 + b"); exit(0); }", (0, 1)
    yield "10,000 keys", b"BEGIN { @[" + b"1, " * 9999 + b"1] = count(); exit(0); }", (0, 1)
    yield "10,000 probes in a clause", b"BEGIN, " * 9999 + b"BEGIN { exit(0); }", (0, 1)
    yield "invalid UTF-8 in a comment", b"/* \xff\xfe\x80 */ " + END, (0,)
    yield "invalid UTF-8 in a string", b'BEGIN { trace("\xff\xc0\x80"); exit(0); }\n', (0,)
    yield "invalid UTF-8 in a name", b"BEGIN { \xff\xfe = 1; exit(0); }\n", (1,)
    yield "a NUL byte", b"BEGIN { x = 1;\0 exit(0); }\n", (0, 1)
    yield "only NUL bytes", b"\0" * 1000, (1,)
    yield "an open comment", b"BEGIN { exit(0); } /* never closed", (1,)
    yield "an open string", b'BEGIN { trace("never closed', (1,)
    yield "a backslash at the end", b'BEGIN { trace("x\\', (1,)
    yield "numbers too large", b"BEGIN { x = 99999999999999999999999999; exit(0); }\n", (1,)
    yield "a format of one percent", b'BEGIN { printf("%"); exit(0); }\n', (1,)
    yield "a width too large", b'BEGIN { printf("%999999999999d", 1); exit(0); }\n', (0, 1)
    yield "lquantize over everything", b"BEGIN { @ = lquantize(1, -2147483648, 2147483647, 1); exit(0); }\n", (1,)
    yield "an ELF file", open("/bin/sh", "rb").read(), (1,)
    yield "random bytes", bytes((i * 7919 + (i >> 3) * 104729) & 0xff for i in range(100000)), (1,)


def main():
    harness = Harness(__doc__)
    path = os.path.join(harness.folder.name, "program.d")
    for name, script, right in cases():
        with open(path, "wb") as file:
            file.write(script)
        done = harness.trace("-q", "-s", path, timeout=60)
        if done.returncode is None:
            print(f"  that was: {name}")
            continue
        harness.expect(done.returncode in right,
                       f"{name}: exit status {done.returncode}, not {right}\n{done.stderr[:300].decode(errors='replace')}")
        if done.returncode == 1:
            harness.expect(done.stderr.startswith(b"dtrace: "), f"{name}: no message: {done.stderr[:200]}")
            harness.expect(len(done.stderr) < 200000, f"{name}: {len(done.stderr)} bytes of messages")
    harness.finish()


if __name__ == "__main__":
    main()
