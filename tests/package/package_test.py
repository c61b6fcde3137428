#!/usr/bin/env python3
"""Packs what was built as Debian packages, unpacks them into a folder that stands for a system, and builds and runs
programs against that: by find_package, by pkg-config, and in C. Nothing is installed. Works for any user; run as root
the programs also run as somebody else. Standard library only.

Usage: package_test.py --build BUILD_FOLDER [unittest's arguments]
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
NOBODY = 65534
# 1000 of the program's own, and those of a vector that grows to 1024.
CALLS = 1011
given = argparse.Namespace(build=None)


def run(*command, **keywords):
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=False, timeout=300, **keywords)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def clean_environment(**wanted):
    """Nothing that would find another Trapline than the packed one."""
    leave_out = ("TRAPLINE_", "LD_", "CMAKE_", "PKG_CONFIG", "CPATH", "CPLUS", "LIBRARY_PATH")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(leave_out)}
    return {**kept, "PATH": "/usr/bin:/bin", **wanted}


def owners_of(libraries):
    """The Debian packages that have these libraries."""
    for library in sorted(libraries):
        found = run("dpkg", "-S", f"*/{library}").splitlines()
        yield library, {line.split(":")[0] for line in found}


class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="trapline-package-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.folder.chmod(0o755)
        cls.root = cls.folder / "root"
        run("cpack", "-G", "DEB", "-B", cls.folder / "debs", "--config", given.build / "CPackConfig.cmake",
            cwd=cls.folder)
        cls.debs = {run("dpkg-deb", "-f", deb, "Package").strip(): deb for deb in (cls.folder / "debs").glob("*.deb")}
        for deb in cls.debs.values():
            run("dpkg-deb", "-x", deb, cls.root)
        cls.version = run("dpkg-deb", "-f", next(iter(cls.debs.values())), "Version").strip()

    def files(self, package):
        listed = run("dpkg-deb", "-c", self.debs[package]).splitlines()
        names = [re.sub(r" -> .*", "", line).split(None, 5)[5] for line in listed]
        return {name[1:] for name in names if not name.endswith("/") and "/usr/share/doc/" not in name}

    def depends(self, package):
        field = run("dpkg-deb", "-f", self.debs[package], "Depends")
        return {part.split()[0]: part for part in field.strip().split(", ")}

    def test_what_each_holds(self):
        self.assertEqual(set(self.debs), {"trapline", "libtrapline0", "libtrapline-dev"})
        self.assertEqual(self.files("trapline"), {"/usr/bin/trapline", "/usr/share/man/man1/trapline.1"})
        self.assertEqual(self.files("libtrapline0"), {"/usr/lib/libtrapline.so.0",
                                                      f"/usr/lib/libtrapline.so.{self.version}"})
        development = self.files("libtrapline-dev")
        headers = {f"/usr/include/trapline/{path.name}" for path in (HERE.parents[1] / "include/trapline").glob("*.h*")}
        self.assertGreaterEqual(len(headers), 2)
        self.assertTrue(headers <= development, development)
        self.assertTrue({"/usr/lib/libtrapline.so", "/usr/lib/pkgconfig/trapline.pc",
                         "/usr/lib/cmake/trapline/trapline-config.cmake",
                         "/usr/lib/cmake/trapline/trapline-config-version.cmake"} <= development, development)
        for name in development - headers:
            self.assertRegex(name, r"^/usr/lib/(libtrapline\.so|pkgconfig/|cmake/trapline/)")
        for package in self.debs:
            self.assertTrue((self.root / f"usr/share/doc/{package}/copyright").is_file())

    def test_what_each_needs(self):
        for package, file in (("trapline", "usr/bin/trapline"), ("libtrapline0", "usr/lib/libtrapline.so.0")):
            needed = re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", self.root / file))
            self.assertIn("libc.so.6", needed)
            depends = self.depends(package)
            for library, owners in owners_of(needed):
                self.assertTrue(owners & set(depends), f"{package}: {library} of {owners} is not in {depends}")
        self.assertEqual(self.depends("libtrapline0")["trapline"], f"trapline (>= {self.version})")
        self.assertEqual(self.depends("libtrapline-dev"), {"libtrapline0": f"libtrapline0 (= {self.version})"})
        shlibs = self.folder / "control"
        run("dpkg-deb", "-e", self.debs["libtrapline0"], shlibs)
        self.assertEqual((shlibs / "shlibs").read_text().split()[:3], ["libtrapline", "0", "libtrapline0"])

    def test_no_trace_of_the_build(self):
        for path in self.root.rglob("*"):
            if path.is_file() and (path.suffix in (".cmake", ".pc") or path.name.startswith("libtrapline.so")):
                self.assertNotIn(str(given.build).encode(), path.read_bytes(), path)
        for file in ("usr/bin/trapline", "usr/lib/libtrapline.so.0"):
            self.assertNotRegex(run("readelf", "-d", self.root / file), r"R(UN)?PATH")

    def test_the_command(self):
        said = run(self.root / "usr/bin/trapline", "-V", env=clean_environment())
        self.assertIn(self.version, said)

    def test_cmake(self):
        build = self.folder / "app"
        run("cmake", "-S", HERE / "program", "-B", build, f"-DCMAKE_PREFIX_PATH={self.root / 'usr'}",
            env=clean_environment())
        self.assertIn(f"trapline_DIR:PATH={self.root}/usr/lib/cmake/trapline\n",
                      (build / "CMakeCache.txt").read_text())
        run("cmake", "--build", build, env=clean_environment())
        self.check_program(build / "app")

    def test_pkg_config(self):
        app = self.folder / "app-pkg-config"
        run("c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", HERE / "program" / "app.cc", "-o", app, *self.flags())
        self.check_program(app, LD_LIBRARY_PATH=str(self.root / "usr/lib"))

    def test_c(self):
        app = self.folder / "c_program"
        run("cc", "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", HERE / "c_program.c", "-o", app,
            *self.flags())
        environment = clean_environment(LD_LIBRARY_PATH=str(self.root / "usr/lib"))
        self.assertEqual(run(app, env=environment), "77\n")

    def flags(self):
        environment = clean_environment(PKG_CONFIG_PATH=str(self.root / "usr/lib/pkgconfig"))
        self.assertEqual(run("pkg-config", "--modversion", "trapline", env=environment).strip(), self.version)
        flags = run("pkg-config", "--cflags", "--libs", "trapline", env=environment).split()
        self.assertTrue(any(str(self.root) in flag for flag in flags), flags)
        return flags

    def check_program(self, app, **variables):
        """The program starts the command that lies in bin beside its library's folder."""
        users = [{}]
        if os.getuid() == 0:
            users.append({"user": NOBODY, "group": NOBODY, "extra_groups": []})
        for user in users:
            said = run(app, env=clean_environment(**variables), cwd="/", **user).splitlines()
            self.assertEqual(said[0], str(CALLS))
            buckets = [re.fullmatch(r"(\d+)\.\.(\d+): (\d+)", line) for line in said[1:] if ".." in line]
            self.assertNotIn(None, buckets, said)
            self.assertEqual(sum(int(bucket[3]) for bucket in buckets), CALLS)
            self.assertIn(("64", "127", "1001"), [bucket.groups() for bucket in buckets])
            self.assertTrue(any("------------- Distribution -------------" in line for line in said), said)
            self.assertRegex("\n".join(said), r" 64 \|@+ +1001 *\n")


if __name__ == "__main__":
    for tool in ("cpack", "dpkg-deb", "dpkg-shlibdeps", "pkg-config"):
        if shutil.which(tool) is None:
            print(f"skipped: no {tool}")
            sys.exit(77)
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    given, rest = parser.parse_known_args()
    given.build = given.build.resolve()
    unittest.main(argv=sys.argv[:1] + rest)
