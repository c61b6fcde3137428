#!/usr/bin/env python3
"""trapline -h and -G: programs that define their own probes build with the header alone and with the object file, in C and
C++, optimised or not, static or not; their notes say what the provider declares, they are traced with it, and know that; what is
wrong is told."""

import os
import re
import shutil
import subprocess
import sys

from harness import Harness, SKIPPED

PROVIDER = """
struct thing { int member; };
typedef struct thing thing_t;
provider my_app {
  probe go();
  probe request__start(int, char *, uint8_t, int16_t, thing_t *, uint64_t, string, char, unsigned int, void *);
  probe request__done(int result, uint8_t good, double share) : (string);
  probe only__asked(int);
};
"""

C_PROGRAM = """
#include <stdio.h>
#include "prov.h"
#include "prov.h"
struct thing { int member; };
int other(int x);
int main(int argc, char **argv) {
  struct thing thing = {1};
  char text[16];
  sprintf(text, "%d", argc);
  MY_APP_GO();
  if (argc > 100)
    MY_APP_GO();
  else
    MY_APP_REQUEST_START(argc, text, 255, -2, &thing, 1UL << 40, "literal", 'x', 7U, argv);
  if (MY_APP_GO_ENABLED()) puts("listened to");
  if (MY_APP_REQUEST_START_ENABLED()) puts("listened to");
  MY_APP_REQUEST_DONE(argc, argc == 1, 0.5);
  printf("%d done\\n", other(argc));
  return 0;
}
"""

C_OTHER = """
#include "prov.h"
int other(int x);
int other(int x) { return MY_APP_ONLY_ASKED_ENABLED() ? 0 : x; }
"""

CXX_OTHER = """
#include "prov.h"
template <typename T>
inline T twice(T x) {
  MY_APP_REQUEST_DONE(1, x > 0, 1.0);
  if (MY_APP_GO_ENABLED()) return 0;
  return x;
}
inline int inlined(int x) { MY_APP_GO(); return x; }
extern "C" int other(int x);
int other(int x) {
  MY_APP_REQUEST_START(x, "text", 1, 2, nullptr, 3, "more", 'y', 4, &x);
  return twice(x) + static_cast<int>(twice(0L)) + inlined(0);
}
"""

WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-pedantic", "-Werror"]
SIZES = {"go": [], "request__start": ["-4", "8", "1", "-2", "8", "8", "8", "-1", "4", "8"], "request__done": ["-4", "1", "8"]}


class Builder:
    def __init__(self, harness):
        self.harness = harness
        self.folder = harness.folder.name

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
            file.write(text)

    def run(self, *words):
        return subprocess.run(words, cwd=self.folder, capture_output=True, text=True, timeout=120, check=False)

    def need(self, *words):
        done = self.run(*words)
        return self.harness.expect(done.returncode == 0, f"{' '.join(words)}: {done.returncode}\n{done.stderr[:2000]}")

    def notes(self, program):
        """(name, semaphore, the sizes of its arguments) of each note of the provider."""
        text = self.run("readelf", "-nW", program).stdout
        found = re.findall(r"Provider: my_app\n\s+Name: (\S+)\n\s+Location: 0x0*([0-9a-f]+), Base: \S+ Semaphore: 0x0*([0-9a-f]*)\n"
                           r"\s+Arguments: (.*)\n", text)
        return [(name, place, semaphore, re.findall(r"(-?\d+)@\S+", words)) for name, place, semaphore, words in found]

    def check(self, program, how):
        done = self.run("./" + program)
        self.harness.expect(done.returncode == 0 and done.stdout == "1 done\n",
                            f"{how}: {done.returncode} {done.stdout!r} {done.stderr!r}")
        notes = self.notes(program)
        self.harness.expect({note[0] for note in notes} == set(SIZES), f"{how}: notes of {notes}")
        for name, place, semaphore, sizes in notes:
            self.harness.expect(place and semaphore and sizes == SIZES[name], f"{how}: {name} {place} {semaphore} {sizes}")
        semaphores = {name: {note[2] for note in notes if note[0] == name} for name in SIZES}
        self.harness.expect(all(len(places) == 1 for places in semaphores.values()) and
                            len(set.union(*semaphores.values())) == len(SIZES), f"{how}: not one semaphore a probe: {notes}")


    def trace(self, program, how, counts):
        """What the program passes is what a clause gets; and it knows that somebody listens."""
        done = self.harness.trace(
            "-q", "-n", 'my_app$target:::request-start /copyinstr(arg6) == "literal"/ '
            '{ printf("%d %s %d %d %x %c %d\\n", arg0, copyinstr(arg1), arg2, (short)arg3, arg5, (char)arg7, arg8); } '
            'my_app$target:::request-done { @[(int)arg0, arg1] = count(); } END { printa("%d %d %@d\\n", @); }',
            "-c", os.path.join(self.folder, program))
        lines = done.stdout.decode(errors="replace").splitlines()
        wanted = ["1 1 255 -2 10000000000 x 7", "listened to", "1 done", *counts]
        self.harness.expect(done.returncode == 0 and sorted(filter(None, lines)) == sorted(wanted),
                            f"{how}, traced: {lines}\n{done.stderr.decode(errors='replace')}")


def build_all(builder):
    compilers = [("gcc", "g++")]
    for c, cxx in (("clang", "clang++"), ("clang-19", "clang++-19")):
        if shutil.which(c) and shutil.which(cxx):
            compilers.append((c, cxx))
            break
    for c, cxx in compilers:
        for optimised in ("-O0", "-O2"):
            for standard in ("-std=c89", "-std=c11"):
                how = f"{c} {optimised} {standard}"
                if builder.need(c, standard, *WARNINGS, optimised, "main.c", "other.c", "-o", "program"):
                    builder.check("program", how)
                    builder.trace("program", how, ["1 1 1"])
            for flags in (["-fPIE", "-pie"], ["-fno-pie", "-no-pie"], ["-fno-pie", "-static"]):
                how = f"{cxx} {optimised} {flags}"
                if builder.need(c, *WARNINGS, optimised, *flags[:1], "-c", "main.c") and \
                        builder.need(cxx, *WARNINGS, optimised, *flags[:1], "-c", "other.cc", "-o", "other.o") and \
                        builder.need(cxx, *flags, "main.o", "other.o", "-o", "program"):
                    builder.check("program", how)
                if builder.harness.trace("-G", "-s", "prov.d", "main.o", "other.o").returncode == 0 and \
                        builder.need(cxx, *flags, "main.o", "other.o", "prov.o", "-o", "program"):
                    builder.check("program", how + " with -G")
                    builder.trace("program", how + " with -G", ["1 0 1", "1 1 2"])
                else:
                    builder.harness.fail(f"{how}: -G")
            if builder.need(cxx, *WARNINGS, optimised, "-fPIC", "-shared", "other.cc", "-o", "libother.so") and \
                    builder.need(c, *WARNINGS, optimised, "main.c", "./libother.so", "-o", "program"):
                builder.check("program", f"{cxx} {optimised} shared")
                builder.trace("program", f"{cxx} {optimised} shared", ["1 0 1", "1 1 2"])
                builder.harness.expect({note[0] for note in builder.notes("libother.so")} == set(SIZES),
                                       f"{cxx} {optimised}: the notes of the library")


def is_told(harness, status, text, *arguments):
    done = harness.trace(*arguments)
    err = done.stderr.decode(errors="replace")
    harness.expect(done.returncode == status and re.search(text, err), f"{arguments}: {done.returncode}\n{err}")


def main():
    for tool in ("gcc", "g++", "readelf"):
        if not shutil.which(tool):
            print(f"skipped: no {tool}")
            sys.exit(SKIPPED)
    harness = Harness(__doc__)
    builder = Builder(harness)
    for name, text in (("prov.d", PROVIDER), ("main.c", C_PROGRAM), ("other.c", C_OTHER), ("other.cc", CXX_OTHER),
                       ("none.d", "BEGIN { exit(0); }\n"), ("unknown.d", "provider p { probe f(nothing_t); };\n"),
                       ("few.d", "provider my_app { probe go(); };\n"), ("another.d", "provider another { probe go(); };\n"),
                       ("long.d", f"provider p {{ probe {'x' * 64}(); }};\n"), ("digit.d", "provider p1 { probe f(); };\n"),
                       ("whole.d", "struct s { int a; }; provider p { probe f(struct s); };\n")):
        builder.write(name, text)
    harness.expect(harness.trace("-h", "-s", "prov.d").returncode == 0, "-h")
    build_all(builder)

    builder.need("gcc", "-c", "main.c")
    is_told(harness, 1, r"no such probe request__done of provider my_app, in main\.o", "-G", "-s", "few.d", "main.o")
    is_told(harness, 1, r"no such provider my_app", "-G", "-s", "another.d", "main.o")
    is_told(harness, 1, r"failed to open missing\.o: No such file", "-G", "-s", "prov.d", "missing.o")
    is_told(harness, 1, r"invalid file type: prov\.d", "-G", "-s", "prov.d", "prov.d")
    is_told(harness, 1, r"failed to open /no/such/folder/x\.o: No such file", "-G", "-s", "prov.d", "-o", "/no/such/folder/x.o")
    is_told(harness, 1, r"failed to open /no/such/folder/x\.h: No such file", "-h", "-s", "prov.d", "-o", "/no/such/folder/x.h")
    is_told(harness, 1, r"no provider definitions", "-h", "-s", "none.d")
    is_told(harness, 1, r"nothing_t", "-h", "-s", "unknown.d")
    is_told(harness, 1, r"D_PROV_BADNAME.*may not exceed 63 characters", "-x", "errtags", "-h", "-s", "long.d")
    is_told(harness, 1, r"D_PROV_BADNAME.*may not end with a digit", "-x", "errtags", "-h", "-s", "digit.d")
    is_told(harness, 1, r"argument 1 of probe p:::f is of type struct s", "-h", "-s", "whole.d")
    is_told(harness, 1, r"linktype=dof is not offered", "-G", "-x", "linktype=dof", "-s", "prov.d")
    is_told(harness, 2, r"-h requires one or more scripts", "-h")
    is_told(harness, 2, r"-G requires one or more scripts", "-G")
    is_told(harness, 2, r"-h requires an output file", "-h", "-s", "few.d", "-s", "another.d")
    is_told(harness, 2, r"only one of the \[-GhlV\] options", "-h", "-G", "-s", "prov.d")
    is_told(harness, 2, r"-c and -p have no meaning", "-h", "-s", "prov.d", "-p", "1")
    for name in ("whole.h", "none.h", "unknown.h"):
        harness.expect(not os.path.exists(os.path.join(harness.folder.name, name)), f"{name} was written all the same")

    harness.expect(harness.trace("-G", "-s", "few.d", "-s", "another.d").returncode == 0 and
                   all(os.path.exists(os.path.join(harness.folder.name, name)) for name in ("few.o", "another.o")),
                   "one object file for each script")
    harness.expect(harness.trace("-G", "-s", "/dev/stdin", stdin=b"BEGIN { exit(0); }").returncode == 0 and
                   os.path.exists(os.path.join(harness.folder.name, "d.out")), "-G from standard input")
    harness.finish()


if __name__ == "__main__":
    main()
