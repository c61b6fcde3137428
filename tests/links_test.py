#!/usr/bin/env python3
"""Checks that relative links in the documentation lead to files that exist, and that no README of a folder is long."""

import pathlib
import re
import sys

LONGEST_README = 20
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    pages = [p for p in sorted(root.rglob("*.md")) if not {"build", ".git"} & set(p.relative_to(root).parts)]
    problems, links = [], 0
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for target in LINK.findall(text):
            if re.match(r"[a-z]+:", target):
                continue
            links += 1
            if not (page.parent / target).exists():
                problems.append(f"{page.relative_to(root)}: {target} does not exist")
        lines = text.count("\n")
        if page.name == "README.md" and page.parent != root and lines > LONGEST_README:
            problems.append(f"{page.relative_to(root)}: {lines} lines, {LONGEST_README} at most")
    print("\n".join(problems + [f"{len(pages)} pages, {links} links, {len(problems)} problems"]))
    return 1 if problems or links == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
