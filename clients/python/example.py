#!/usr/bin/env python3
"""What sizes does a command allocate?   python3 example.py ls -l"""

import sys

import trapline


def main(command):
    with trapline.Session.launch(command) as session:
        session.compile("pid$target::malloc:entry { @sizes = quantize(arg0); @calls = count(); }")
        session.start()
        session.wait()
        snapshot = session.snapshot()
    print(f"calls of malloc: {snapshot['calls'].value}")
    for low, high, count in snapshot["sizes"].histogram:
        print(f"{low}..{high}: {count}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:] or ["ls"])
    except trapline.Error as error:
        for diagnostic in error.diagnostics:
            print(diagnostic, file=sys.stderr)
        sys.exit(f"{error}")
