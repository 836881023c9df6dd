"""The text that the transformer learns from: bytes of files. Without any, this project's own documentation and headers."""

import glob
import os

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ENOUGH = 100_000  # bytes; with less, a model of this size only learns them by heart


def shipped():
    """Paths: the documentation first, then the headers, whose first lines are prose as well; in the order of their names."""
    prose = [os.path.join(ROOT, name) for name in ("README.md", "CONTRIBUTING.md")] + sorted(glob.glob(os.path.join(ROOT, "docs", "*.md")))
    layers = ("include", "kernels", "allocator", "tracker", "policy", "planner", "interpose")
    headers = [path for layer in layers for path in sorted(glob.glob(os.path.join(ROOT, layer, "**", "*.h"), recursive=True))]
    return [path for path in prose + headers if os.path.isfile(path)]


def load(path=None):
    """The whole text."""
    parts = []
    for name in [path] if path else shipped():
        try:
            with open(name, "rb") as file:
                parts.append(file.read())
        except OSError as error:
            raise SystemExit("--data: cannot read %s: %s" % (name, error.strerror))
    return b"\n".join(parts)


def snapshot(folder):
    """The shipped text in one file: runs that are compared must learn from the same, whatever is edited meanwhile."""
    path = os.path.join(folder, "text.txt")
    with open(path, "wb") as file:
        file.write(load())
    return path


def read(path=None):
    """-> (bytes to learn from, bytes held out), as arrays."""
    data = np.frombuffer(load(path), np.uint8)
    if len(data) < ENOUGH:
        raise SystemExit("%s: only %d bytes; a text of at least %d is needed" % (path or "the project's own text", len(data), ENOUGH))
    # Held out: every tenth stretch of 4 KiB, so that both parts hold the same kinds of text.
    blocks = np.array_split(data, max(10, len(data) // 4096))
    return (np.concatenate([b for i, b in enumerate(blocks) if i % 10 != 9]), np.concatenate([b for i, b in enumerate(blocks) if i % 10 == 9]))
