#!/usr/bin/env python3
"""Checks that includes, and links between CMake targets, point downwards only. Run as a test; --self-test checks this very check.

    check_layers.py [ROOT]          exit status 1 and one line per offence: file, line, what may not be used from there

The layers and what each may use stand in ALLOWED; README and CONTRIBUTING tell the reasons. A layer always uses itself and include/.
"""

import os
import re
import sys
import tempfile

ALLOWED = {
    "include": set(),
    "kernels": set(),
    "allocator": {"kernels"},
    "tracker": {"allocator", "kernels"},
    "planner": set(),
    "policy": {"planner", "tracker", "allocator", "kernels"},
    "interpose": {"allocator"},
    "python": set(),
    "cli": {"planner", "allocator", "kernels"},  # doctor tries what they do with their own code; plan plans as a job does
    "examples": set(),
}
# Header-only vocabulary, spoken in the lowest layer too.
_WORDS = ("allocator/base/types.h", "allocator/base/status.h")
VOCABULARY = {"kernels": _WORDS, "planner": _WORDS}
SOURCES = (".h", ".hpp", ".c", ".cpp", ".cc", ".cu", ".cuh")
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')
CALL = re.compile(r"\b(add_library|add_executable|target_link_libraries|target_sources)\s*\(([^)]*)\)", re.S)


def files(root, layer, wanted):
    for folder, folders, names in os.walk(os.path.join(root, layer)):
        folders[:] = [f for f in folders if f not in ("build", "__pycache__")]
        yield from (os.path.join(folder, n) for n in sorted(names) if wanted(n))


def layer_of(root, path, kind, name):
    """-> (layer, path from the root) of the included file; (None, None) for a system header."""
    beside = os.path.normpath(os.path.join(os.path.dirname(path), name))
    if kind == '"' and os.path.exists(beside):
        name = os.path.relpath(beside, root)
    elif name.startswith("reprise/"):
        name = "include/" + name
    first = name.split("/")[0]
    return (first, name) if first in ALLOWED and "/" in name else (None, None)


def includes(root):
    for layer, allowed in ALLOWED.items():
        for path in files(root, layer, lambda n: n.endswith(SOURCES)):
            with open(path, encoding="utf-8") as file:
                for number, line in enumerate(file, 1):
                    match = INCLUDE.match(line)
                    if not match:
                        continue
                    used, name = layer_of(root, path, *match.groups())
                    fine = used in (None, layer, "include") or used in allowed or name in VOCABULARY.get(layer, ())
                    if not fine:
                        yield "%s:%d: %s may not include %s (it may use: %s)" % (
                            os.path.relpath(path, root), number, layer, name, ", ".join(sorted(allowed | {"include"})))  # fmt: skip


def links(root):
    owner, uses = {}, []
    for layer in ALLOWED:
        for path in files(root, layer, lambda n: n == "CMakeLists.txt"):
            with open(path, encoding="utf-8") as file:
                text = re.sub(r"#.*", "", file.read())
            for call, arguments in CALL.findall(text):
                words = arguments.replace("\n", " ").split()
                if not words:
                    continue
                if call.startswith("add_"):
                    owner[words[0]] = layer
                elif call == "target_link_libraries":
                    uses += [(layer, path, words[0], word) for word in words[1:]]
    for layer, path, target, used in uses:
        other = owner.get(used.split("::")[-1])
        # What the two shared objects are made of is put together where they are defined; their own code is bound by its includes.
        if other in (None, layer, "include") or other in ALLOWED[layer]:
            continue
        if layer in ("python", "cli", "examples") and used in ("reprise", "reprise::reprise"):
            continue  # the library itself, through its public header
        yield "%s: %s (%s) may not link %s (%s)" % (os.path.relpath(path, root), target, layer, used, other)


def self_test():
    """Every kind of offence must be found, and what is allowed must not be."""

    def found(path, text):
        with tempfile.TemporaryDirectory() as root:
            for name, content in (("allocator/CMakeLists.txt", "add_library(low x.cpp)"), ("policy/CMakeLists.txt", "add_library(high x.cpp)"),
                                  ("tracker/buffer.h", ""), (path, text)):  # fmt: skip
                os.makedirs(os.path.join(root, os.path.dirname(name)), exist_ok=True)
                with open(os.path.join(root, name), "w") as file:
                    file.write(text if name == path else content)
            return len(list(includes(root)) + list(links(root)))

    bad = (
        ("kernels/a.cpp", '#include "allocator/allocator.h"'),
        ("allocator/a.h", '#include "tracker/buffer.h"'),
        ("allocator/a.h", '#include "../tracker/buffer.h"'),
        ("tracker/a.cpp", '  #  include "policy/segment.h"'),
        ("interpose/a.cpp", "#include <tracker/buffer.h>"),
        ("python/extension/a.c", '#include "kernels/kernels.h"'),
        ("include/reprise/a.h", '#include "allocator/base/types.h"'),
        ("allocator/CMakeLists.txt", "add_library(low x.cpp)\ntarget_link_libraries(low PUBLIC\n  high)"),
    )
    good = (
        ("kernels/a.cpp", '#include "allocator/base/types.h"\n#include "reprise/reprise.h"\n#include <vector>'),
        ("policy/a.cpp", '#include "tracker/buffer.h"\n#include "allocator/allocator.h"\n// #include "interpose/x.h"'),
        ("policy/CMakeLists.txt", "add_library(high x.cpp)\ntarget_link_libraries(high PRIVATE low tbb)"),
    )
    wrong = ["missed: %s: %s" % case for case in bad if found(*case) != 1] + ["refused: %s: %s" % case for case in good if found(*case)]
    print("\n".join(wrong) or "all %d offences found, nothing else" % len(bad))
    return bool(wrong)


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    root = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), ".."))
    offences = list(includes(root)) + list(links(root))
    print("\n".join(offences) or "includes and links point downwards in %d layers" % len(ALLOWED))
    return bool(offences)


if __name__ == "__main__":
    sys.exit(main())
