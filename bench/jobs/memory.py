#!/usr/bin/env python3
"""Resident memory of a long job, above what Python and torch took before it began. Prints one JSON object."""

import argparse
import gc
import json
import os
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("kind", choices=("tensors", "mixed", "training"))
options = parser.parse_args()
torch.manual_seed(0)
random.seed(0)


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def tensors():
    """200 of 768 x 768, each replaced several times."""
    kept = [torch.ones(768, 768) for _ in range(200)]
    for _ in range(1000):
        kept[random.randrange(len(kept))] = torch.ones(768, 768)
    return kept


def mixed():
    """1,000 of 1 KiB to 4 MiB, in a long run of frees and new ones."""
    size = lambda: int(256 * 2 ** random.uniform(0, 12))  # noqa: E731
    kept = [torch.ones(size()) for _ in range(1000)]
    for _ in range(10000):
        kept[random.randrange(len(kept))] = torch.ones(size())
    return kept


def training():
    model = nn.Sequential(*[m for _ in range(6) for m in (nn.Linear(768, 3072), nn.GELU(), nn.Linear(3072, 768), nn.LayerNorm(768))])
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(12):
        x = torch.randn(random.randrange(32, 96), 768)
        optimizer.zero_grad()
        F.mse_loss(model(x), x).backward()
        optimizer.step()
    return model, optimizer


# What torch sets up at its first use is not the job's.
nn.Linear(64, 64)(torch.randn(8, 64)).sum().backward()
gc.collect()
before = resident()
kept = {"tensors": tensors, "mixed": mixed, "training": training}[options.kind]()
gc.collect()
grown = resident() - before
with open("/proc/self/status") as file:
    peak = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
print(json.dumps({"grown": grown, "peak": peak - before, "before": before}))
