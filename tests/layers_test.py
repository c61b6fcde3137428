#!/usr/bin/env python3
"""Checks who includes whom.

src/ is a stack of folders; ALLOWED says which others a folder may include, and nothing else is allowed. What a test
(x_test.cc, x_fuzz.cc) needs beyond that stands in TESTS_ALSO, with its reason. Some libraries and system calls have
one folder that may touch them: EXCLUSIVE. Each CMakeLists.txt must declare (DEPENDS) nothing that ALLOWED forbids.
Standard library only. Usage: layers_test.py [SOURCE_ROOT | --self-test]
"""

import pathlib
import re
import sys
import tempfile

ALLOWED = {
    "base": [],
    "wire": [],
    "diag": ["base"],
    "ctypes": ["base"],
    "plan": ["base", "ctypes", "wire"],
    "dlang": ["base", "diag", "ctypes", "plan"],
    "interp": ["base", "plan", "wire"],
    "codegen": ["base", "plan", "wire"],
    "symbols": ["base", "ctypes"],
    "isa": ["base"],
    "usdt": ["base", "plan"],
    "target": ["base", "isa"],
    "probes": ["base", "isa", "symbols", "target", "wire"],
    "runtime": ["wire"],
    "consume": ["base", "plan", "wire"],
    "report": ["base", "consume", "ctypes", "plan"],
    "session": ["base", "wire", "diag", "ctypes", "plan", "dlang", "interp", "codegen", "symbols", "isa", "target",
                "probes", "runtime", "consume", "report"],
    "heap": ["session", "consume", "symbols", "report", "base"],
    "serve": ["session", "heap", "report", "consume", "plan", "diag", "target", "base"],
    "client": ["base"],
    "tools/trapline": ["session", "heap", "report", "serve", "usdt", "symbols", "base"],
}

# (folder, also): reason.
TESTS_ALSO = {
    ("codegen", "interp"): "the interpreter is the reference that compiled code is compared with",
    ("codegen", "dlang"): "programs for that comparison are easier to read as D",
    ("interp", "dlang"): "likewise",
}

EXCLUSIVE = [
    (re.compile(r"^(llvm|llvm-c|clang)/"), {"codegen"}, "LLVM"),
    (re.compile(r"^(elfutils/|libelf\.h|gelf\.h|libdw\.h|dwarf\.h|libdwfl\.h)"), {"symbols"}, "elfutils"),
    (re.compile(r"^(Zydis|Zycore)/"), {"isa"}, "Zydis"),
    (re.compile(r"^(sys|linux|asm)/ptrace\.h"), {"target"}, "ptrace"),
]

INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')
DEPENDS = re.compile(r"trapline_module\(\s*(\w+)(?:\s+DEPENDS((?:\s+(?!LINK\b)\w+)+))?")


def folder_of(path, source_root):
    """The name in ALLOWED that a file belongs to, or None."""
    relative = path.relative_to(source_root)
    if relative.parts[0] == "src" and len(relative.parts) > 2:
        return relative.parts[1]
    if relative.parts[:2] == ("tools", "trapline"):
        return "tools/trapline"
    return None


def check_file(path, source_root):
    folder = folder_of(path, source_root)
    is_test = re.search(r"_(test|fuzz)\.cc$|_test_\w+\.(cc|h)$|^test_\w+\.h$", path.name) is not None
    allowed = set(ALLOWED.get(folder, [])) | {folder}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quote, name = match.groups()
        where = f"{path.relative_to(source_root)}:{number}"
        for pattern, owners, library in EXCLUSIVE:
            if pattern.match(name) and folder not in owners:
                yield f"{where}: only {', '.join(sorted(owners))} may include {library} ({name})"
        if quote == "<":
            continue
        first = name.split("/")[0] if "/" in name else None
        if first is None:
            if folder != "tools/trapline":
                yield f"{where}: \"{name}\" is not written from src/ on"
            continue
        if first not in ALLOWED:
            if first not in {"trapline"}:
                yield f"{where}: \"{name}\": no such folder in the table of layers"
            continue
        if first not in allowed and not (is_test and (folder, first) in TESTS_ALSO):
            yield f"{where}: {folder} may not include {first} (\"{name}\")"


def check_cmake(path, source_root):
    folder = folder_of(path, source_root)
    if folder not in ALLOWED:
        yield f"{path.relative_to(source_root)}: {folder} is not in the table of layers"
        return
    for match in DEPENDS.finditer(path.read_text(encoding="utf-8")):
        for name in (match.group(2) or "").split():
            if name not in ALLOWED[folder]:
                yield f"{path.relative_to(source_root)}: {folder} may not depend on {name}"


def check_tree(root):
    """(number of files, problems)."""
    files = [p for top in ("src", "tools/trapline") for p in sorted((root / top).rglob("*"))
             if p.suffix in (".cc", ".h", ".c", ".inc")]
    problems = []
    for path in files:
        if folder_of(path, root) is not None:
            problems += check_file(path, root)
    for path in sorted((root / "src").glob("*/CMakeLists.txt")):
        problems += check_cmake(path, root)
    return len(files), problems


def self_test():
    """A tree with one violation of each kind, and one file that is as it should be."""
    cases = {
        "src/plan/good.cc": ('#include "base/result.h"\n#include <vector>\n', None),
        "src/plan/up.cc": ('#include <map>\n  #  include "dlang/ast.h"\n', "src/plan/up.cc:2: plan may not include dlang"),
        "src/plan/llvm.cc": ("#include <llvm/IR/Module.h>\n", "only codegen may include LLVM"),
        "src/probes/elf.cc": ("#include <elfutils/libdw.h>\n", "only symbols may include elfutils"),
        "src/session/trace.cc": ("#include <sys/ptrace.h>\n", "only target may include ptrace"),
        "src/target/zydis.cc": ("#include <Zydis/Zydis.h>\n", "only isa may include Zydis"),
        "src/base/near.cc": ('#include "result.h"\n', "is not written from src/ on"),
        "src/base/far.cc": ('#include "elsewhere/x.h"\n', "no such folder"),
        "src/codegen/run_test.cc": ('#include "interp/run.h"\n', None),
        "src/codegen/run.cc": ('#include "interp/run.h"\n', "codegen may not include interp"),
        "src/wire/CMakeLists.txt": ("trapline_module(wire DEPENDS base)\n", "wire may not depend on base"),
        "src/extra/CMakeLists.txt": ("trapline_module(extra)\n", "extra is not in the table"),
    }
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, (text, _) in cases.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        _, problems = check_tree(root)
    wrong = 0
    for name, (_, wanted) in cases.items():
        found = [p for p in problems if p.startswith(name + ":")]
        if (wanted is None and found) or (wanted is not None and not any(wanted in p for p in found)):
            print(f"{name}: expected {wanted}, found {found}")
            wrong += 1
    print(f"{len(cases)} cases, {wrong} wrong")
    return 1 if wrong else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent)
    count, problems = check_tree(root.resolve())
    for problem in problems:
        print(problem)
    print(f"{count} files, {len(problems)} problems")
    if count == 0:
        print("nothing was checked")
    return 1 if problems or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
