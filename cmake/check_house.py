#!/usr/bin/env python3
"""House rules that a machine can check, over the files that git knows. Run as a test.

    check_house.py format    C and C++ are as clang-format writes them
    check_house.py text      no path of one machine, no registry set by hand, no work postponed in a comment, no source file that is too long
"""

import os
import re
import subprocess
import sys

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
LONGEST = 600  # lines of a source file: beyond that it is hardly about one thing
SOURCES = (".h", ".hpp", ".c", ".cpp", ".cc", ".py")
# Put together from pieces, so that this file does not offend itself.
FORBIDDEN = (
    (re.compile(r"(?<![\w.$}/~-])/(?:%s)/\w" % "|".join(("home", "ro" + "ot", "wo" + "rk", "opt/r" + "v"))), "a path of one machine"),
    (re.compile("index" + "-url|sources" + r"\.list|files\.python" + "hosted"), "a package registry set by hand"),
    (re.compile(r"\b(?:%s)\b" % "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"))), "postponed work"),
    (re.compile("^(<{7}|>{7}) "), "a merge conflict"),
)


def files():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    return [name for name in listed.split("\0") if name and os.path.isfile(os.path.join(ROOT, name))]


def check_format():
    names = [n for n in files() if n.endswith((".h", ".hpp", ".c", ".cpp", ".cc"))]
    done = subprocess.run(["clang-format", "--dry-run", "-Werror", *names], cwd=ROOT, capture_output=True, text=True)
    offenders = sorted({line.split(":")[0] for line in done.stderr.splitlines() if "-Wclang-format-violations" in line})
    if offenders:
        print("not as clang-format writes them (clang-format -i FILE):\n" + "\n".join("  " + n for n in offenders))
    elif done.returncode:
        print(done.stderr)
    else:
        print("%d files are formatted" % len(names))
    return done.returncode


def check_text():
    offences = []
    for name in files():
        with open(os.path.join(ROOT, name), "rb") as file:
            raw = file.read()
        if b"\0" in raw:
            continue
        lines = raw.decode(errors="replace").splitlines()
        for number, line in enumerate(lines, 1):
            offences += ["%s:%d: %s: %s" % (name, number, what, line.strip()[:120]) for pattern, what in FORBIDDEN if pattern.search(line)]
        if name.endswith(SOURCES) and len(lines) > LONGEST:
            offences.append("%s: %d lines, more than %d: split it" % (name, len(lines), LONGEST))
        if raw.startswith(b"#!") and not os.access(os.path.join(ROOT, name), os.X_OK):
            offences.append("%s: starts with #! but may not be executed (chmod +x)" % name)
    print("\n".join(offences) or "%d files keep the house rules" % len(files()))
    return bool(offences)


if __name__ == "__main__":
    checks = {"format": check_format, "text": check_text}
    if len(sys.argv) != 2 or sys.argv[1] not in checks:
        sys.exit(__doc__)
    sys.exit(1 if checks[sys.argv[1]]() else 0)
