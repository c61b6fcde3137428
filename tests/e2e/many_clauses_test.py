#!/usr/bin/env python3
"""Hundreds of clauses on one probe: each fires once and in order, variables of scope this go from one to the next, arguments from
the stack are theirs, and exit() ends the firing. Few and many are compiled differently, and say the same."""

from harness import Harness


def program(count, ends_at):
    """Each clause adds its number and the tenth argument to this->sum; that of `ends_at` exits."""
    lines = ["this uint64_t sum;", "self uint64_t turns;", "uint64_t total;"]
    for i in range(count):
        lines.append(f"pid$target:a.out:take_many:entry /arg9 == 10 && {i} >= 0/ {{ this->sum += {i} + (int)arg8; "
                     f"self->turns++; @[arg2 & 1, \"of {i % 7}\"] = count(); }}")
        if i == ends_at:
            lines.append("pid$target:a.out:take_many:entry { total = this->sum; printf(\"sum %d turns %d\\ncaller %x\\n\", "
                         "this->sum, self->turns, ucaller & 0xfff); exit(3); }")
    lines.append("END { printf(\"total %d\\n\", total); }")
    return "\n".join(lines)


def main():
    harness = Harness(__doc__)
    callers = set()
    for count, ends_at in ((7, 6), (30, 29), (30, 10), (400, 399), (400, 255)):
        done = harness.trace("-q", "-s", "/dev/stdin", "-c", f"{harness.targets}/intargs", stdin=program(count, ends_at).encode(),
                             timeout=120)
        clauses = ends_at + 1
        total = clauses * (clauses - 1) // 2 + 9 * clauses
        lines = done.stdout.decode().splitlines()
        what = f"{count} clauses, exit behind {ends_at}"
        harness.expect(done.returncode == 3, f"{what}: exit status {done.returncode}: {done.stderr}")
        harness.expect(f"sum {total} turns {clauses}" in lines and f"total {total}" in lines, f"{what}: {lines[:8]}")
        callers |= {line for line in lines if line.startswith("caller ")}
        counted = sum(int(line.split()[-1]) for line in lines if " of " in line)
        harness.expect(counted == clauses, f"{what}: {counted} counted")
    harness.expect(len(callers) == 1, f"ucaller is not the same: {callers}")
    harness.finish()


if __name__ == "__main__":
    main()
