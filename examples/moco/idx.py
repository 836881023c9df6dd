"""Reads IDX files (the format of MNIST and its descendants), gzipped or not."""

import gzip
import os
import struct

import numpy as np

TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read(folder, name):
    """The array in folder/name or folder/name.gz. `name` may use '.' or '-' before 'idx', both spellings are in use."""
    names = [n + end for n in (name, name.replace("-idx", ".idx")) for end in ("", ".gz")]
    for path in (os.path.join(folder, n) for n in names):
        if os.path.exists(path):
            break
    else:
        raise SystemExit("no %s in %s: it needs the four IDX files of a data set like MNIST (looked for %s)" % (name, folder, ", ".join(names)))
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
        raw = file.read()
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] not in TYPES:
        raise SystemExit("%s is not an IDX file (its first bytes are %s)" % (path, raw[:4].hex() or "missing"))
    shape = struct.unpack(">%dI" % raw[3], raw[4 : 4 + 4 * raw[3]])
    kind = np.dtype(TYPES[raw[2]])
    if len(raw) != 4 + 4 * raw[3] + int(np.prod(shape)) * kind.itemsize:
        raise SystemExit("%s is cut short or damaged: %d bytes do not make %s of %s" % (path, len(raw), shape, kind))
    return np.frombuffer(raw, kind, offset=4 + 4 * raw[3]).reshape(shape)


def images_and_labels(folder, part):
    """`part` is 'train' or 't10k'. Images are bytes, N x height x width."""
    images, labels = read(folder, part + "-images-idx3-ubyte"), read(folder, part + "-labels-idx1-ubyte")
    if images.ndim != 3 or len(images) != len(labels):
        raise SystemExit("%s: %s images for %s labels" % (folder, images.shape, labels.shape))
    return images, labels
