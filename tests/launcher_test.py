#!/usr/bin/env python3
"""Tests ./trapline on a stand-in clone whose command is one small file, so that building it takes a second."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
NOBODY = 65534

CMAKE_LISTS = """\
cmake_minimum_required(VERSION 3.25)
project(standin CXX)
file(GLOB sources CONFIGURE_DEPENDS src/*.cc)
add_executable(trapline ${sources})
set_target_properties(trapline PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
"""
PRESETS = """\
{"version": 6,
 "configurePresets": [{"name": "release", "generator": "Ninja", "binaryDir": "${sourceDir}/build/${presetName}"}],
 "buildPresets": [{"name": "release", "configurePreset": "release"}]}
"""
MAIN = """\
#include <cstdio>
int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) std::printf("%s\\n", argv[i]);
  for (int c; (c = std::getchar()) != EOF;) std::putchar(c);
  return VERSION;
}
"""


class Launcher(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="trapline-launcher-")
        self.addCleanup(self.folder.cleanup)
        os.chmod(self.folder.name, 0o755)
        self.clone = pathlib.Path(self.folder.name) / "a clone"
        for name in ("src", "include", "tools", "fuzz"):
            (self.clone / name).mkdir(parents=True)
        shutil.copytree(ROOT / "cmake", self.clone / "cmake")
        shutil.copy(ROOT / "trapline", self.clone)
        (self.clone / "CMakeLists.txt").write_text(CMAKE_LISTS)
        (self.clone / "CMakePresets.json").write_text(PRESETS)
        self.write_version(7)

    def write_version(self, version):
        (self.clone / "src" / "main.cc").write_text(MAIN.replace("VERSION", str(version)))

    def run_it(self, *arguments, stdin="", cwd="/", **extra):
        return subprocess.run([str(self.clone / "trapline"), *arguments], input=stdin, capture_output=True, text=True,
                              cwd=cwd, timeout=120, check=False, **extra)

    def test_builds_then_is_silent_and_fast(self):
        first = self.run_it("one", "two words", stdin="through stdin")
        self.assertEqual((first.returncode, first.stdout), (7, "one\ntwo words\nthrough stdin"), first.stderr)
        self.assertIn("building", first.stderr)
        second = self.run_it("again")
        self.assertEqual((second.returncode, second.stdout, second.stderr), (7, "again\n", ""))

        def best_of(command):
            times = []
            for _ in range(40):
                start = time.monotonic()
                subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
                times.append(time.monotonic() - start)
            return min(times)

        # As many files as the real clone has.
        for number in range(600):
            (self.clone / "include" / f"{number}.h").touch()
        self.run_it()
        overhead = best_of([self.clone / "trapline"]) - best_of([self.clone / "build/release/bin/trapline"])
        self.assertLess(overhead, 0.03)

    def test_rebuilds_what_changed(self):
        self.assertEqual(self.run_it().returncode, 7)
        self.write_version(8)
        self.assertEqual(self.run_it().returncode, 8)
        extra = self.clone / "src" / "extra.cc"
        extra.write_text("int extra = 1;\n")
        self.assertIn("building", self.run_it().stderr)
        extra.unlink()
        self.assertIn("building", self.run_it().stderr)
        self.assertEqual(self.run_it().stderr, "")

    def test_tells_what_does_not_compile(self):
        (self.clone / "src" / "main.cc").write_text("int main() { return nonsense; }\n")
        done = self.run_it()
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("nonsense", done.stderr)
        self.write_version(9)
        self.assertEqual(self.run_it().returncode, 9)

    def test_two_at_once_build_once(self):
        both = [subprocess.Popen([str(self.clone / "trapline")], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True) for _ in range(2)]
        said = [process.communicate(timeout=120)[1] for process in both]
        self.assertEqual([process.returncode for process in both], [7, 7], said)
        self.assertEqual(sum("building" in text for text in said), 1, said)

    def test_a_clone_that_moved(self):
        self.assertEqual(self.run_it().returncode, 7)
        moved = pathlib.Path(self.folder.name) / "moved"
        self.clone.rename(moved)
        self.clone = moved
        self.write_version(11)
        done = self.run_it()
        self.assertEqual(done.returncode, 11, done.stderr)

    def test_through_a_link_and_from_another_folder(self):
        self.assertEqual(self.run_it().returncode, 7)
        link = pathlib.Path(self.folder.name) / "link"
        link.symlink_to(self.clone / "trapline")
        done = subprocess.run([str(link)], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (7, ""))
        done = subprocess.run(["bash", "trapline", "x"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              cwd=self.clone, check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (7, "x\n", ""))

    @unittest.skipUnless(os.getuid() == 0, "needs root, to become somebody else")
    def test_a_user_who_may_only_read(self):
        other = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        done = self.run_it(**other)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("not built yet", done.stderr)
        self.assertEqual(self.run_it().returncode, 7)
        done = self.run_it("x", **other)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (7, "x\n", ""))
        self.write_version(12)
        done = self.run_it(**other)
        self.assertEqual(done.returncode, 7)
        self.assertIn("cannot be written", done.stderr)


if __name__ == "__main__":
    unittest.main()
