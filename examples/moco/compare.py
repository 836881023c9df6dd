#!/usr/bin/env python3
"""The momentum-contrast job four times side by side: see common/compare.py. Run by examples/run, which builds and installs first."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from common import compare  # noqa: E402

JOB = compare.Job(
    name="moco",
    script=os.path.join(HERE, "train.py"),
    heading="Momentum contrast on Fashion-MNIST: checkpointed segments read a queue that changes before the backward",
    state="the queue",
    steps=20,
    quick_steps=8,
    quick=["--queue", "8192", "--micro-batches", "4"],
    quality=("right by nearest neighbour", lambda report: "%.2f %%" % (100 * report["neighbours"])),
    data="folder with IDX files (default: /usr/share/datasets/fashion-mnist)",
    default_data="/usr/share/datasets/fashion-mnist",
)

if __name__ == "__main__":
    compare.main(JOB)
