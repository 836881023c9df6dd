#!/usr/bin/env python3
"""A checkpointed layer of ten small modules, forward and backward: what is timed is almost only the calls."""

import argparse

import torch
import torch.nn as nn
from serve import serve
from torch.utils.checkpoint import checkpoint

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--reentrant", action="store_true", help="the reentrant form")
options = parser.parse_args()

torch.manual_seed(0)
layer = nn.Sequential(*[module for _ in range(5) for module in (nn.Linear(16, 16), nn.LayerNorm(16))])
assert len(layer) == 10
x = torch.randn(4, 16, requires_grad=True)


def iteration():
    checkpoint(layer, x, use_reentrant=options.reentrant).sum().backward()


serve(iteration, warm=200)
