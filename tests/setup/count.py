#!/usr/bin/env python3
"""Counts a suite's outcome for tests/run: prints "PASSED FAILED SKIPPED", then one line for each test that failed or may not be skipped.

    count.py junit SUITE FILE FEATURES    FILE: JUnit XML of ctest or pytest; FEATURES: what tests/setup/features printed
    count.py line SUITE LOG               LOG ends with "N passed, N failed" (", N skipped" may follow)
"""

import os
import re
import sys
import xml.etree.ElementTree

HERE = os.path.dirname(os.path.abspath(__file__))
CLOSING = re.compile(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", re.M)


def allowed(suite, features):
    """-> list of patterns of tests that may be skipped in this suite on this machine."""
    with open(features) as file:
        missing = {name for name, has in (line.strip().split("=") for line in file) if has == "0"}
    patterns = []
    with open(os.path.join(HERE, "allowed_skips.txt")) as file:
        for number, line in enumerate(file, 1):
            if not line.strip() or line.startswith("#"):
                continue
            parts = [part.strip() for part in line.split("|", 3)]
            if len(parts) != 4 or not parts[3]:
                raise SystemExit("allowed_skips.txt:%d: needs suites | pattern | feature | reason" % number)
            if suite in parts[0].split(",") and (parts[2] == "-" or parts[2] in missing):
                patterns.append(re.compile(parts[1]))
    return patterns


def junit(suite, path, features):
    may = allowed(suite, features)
    passed, skipped, bad = 0, 0, []
    for test in xml.etree.ElementTree.parse(path).iter("testcase"):
        name = ".".join(filter(None, (test.get("classname"), test.get("name"))))
        if test.get("classname") == test.get("name"):
            name = test.get("name")  # ctest writes the name twice
        failure = next((test.find(kind) for kind in ("failure", "error") if test.find(kind) is not None), None)
        skip = test.find("skipped")
        if failure is not None or test.get("status") == "fail":
            bad.append("failed: " + name)
        elif skip is not None or test.get("status") in ("notrun", "disabled"):
            reason = (skip.get("message") if skip is not None else None) or test.get("status") or ""
            if any(p.fullmatch(name) for p in may):
                skipped += 1
            else:
                bad.append("skipped, though this machine has what it needs: %s (%s)" % (name, reason[:150]))
        else:
            passed += 1
    if not passed and not bad:
        bad.append("no test was run (%s is empty)" % path)
    return passed, skipped, bad


def closing_line(path):
    with open(path, errors="replace") as file:
        text = file.read()
    found = CLOSING.findall(text)
    if not found:
        return 0, 0, ["it did not end with 'N passed, N failed'"]
    passed, failed, skipped = (int(n or 0) for n in found[-1])
    named = [line for line in text.splitlines() if re.match(r"\s*(FAILED|no library)\b", line)]
    bad = named[:failed] + ["failed (see the log)"] * (failed - len(named))
    if not passed and not failed:
        bad.append("no test was run")
    return passed, skipped, bad


def main():
    kind, suite, path = sys.argv[1:4]
    if not os.path.exists(path):
        passed, skipped, bad = 0, 0, ["it wrote no results"]
    elif kind == "junit":
        passed, skipped, bad = junit(suite, path, sys.argv[4])
    else:
        passed, skipped, bad = closing_line(path)
    print(passed, len(bad), skipped)
    print("\n".join(bad))


if __name__ == "__main__":
    main()
