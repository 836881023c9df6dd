#!/usr/bin/env python3
"""The language model four times side by side: see common/compare.py. Run by examples/transformer/run, which builds and installs first."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import text  # noqa: E402
from common import compare  # noqa: E402

JOB = compare.Job(
    name="transformer",
    script=os.path.join(HERE, "train.py"),
    heading="A language model of 24 checkpointed blocks, each with a codebook, a balanced router or a ring of scales that changes meanwhile",
    state="codebooks, routers and scales",
    steps=20,
    quick_steps=4,
    quick=["--dim", "32", "--length", "64", "--batch", "2"],
    quality=("bits per byte, text not seen", lambda report: "%.3f" % report["bits_per_byte"]),
    generators=8192,  # torch's, Python's and NumPy's: 2.5 KiB each
    snapshot=text.snapshot,
    data="a text file (default: this project's documentation and headers)",
)

if __name__ == "__main__":
    compare.main(JOB)
