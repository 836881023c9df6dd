#!/usr/bin/env python3
"""Training steps whose checkpointed segment reads state that changes between its forward and its backward.

  queue   a memory bank: the segment compares with sampled rows of it; 1 % of its rows are replaced before the backward
  ema     a teacher of the student's shape, run inside the segment; all of it follows the student before the backward
"""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from serve import serve
from torch.utils.checkpoint import checkpoint

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("kind", choices=("queue", "ema"))
parser.add_argument("--mib", type=int, default=256, help="size of the state (default: %(default)s)")
parser.add_argument("--warm", type=int, default=5)
options = parser.parse_args()
torch.manual_seed(0)
DIM = 256


def encoder(width, depth):
    layers = [nn.Linear(DIM, width), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, DIM))


class Bank(nn.Module):
    """Contrast with 4,096 sampled rows."""

    def __init__(self, rows):
        super().__init__()
        self.register_buffer("rows", torch.randn(rows, DIM))

    def forward(self, queries, chosen):
        return F.cross_entropy(queries @ self.rows[chosen].t(), torch.zeros(len(queries), dtype=torch.long))


class Distil(nn.Module):
    def __init__(self, teacher):
        super().__init__()
        self.teacher = teacher

    def forward(self, x, student):
        return F.mse_loss(student, self.teacher(x).detach())


x = torch.randn(32, DIM)
if options.kind == "queue":
    student = encoder(512, 2)
    bank = Bank((options.mib << 20) // (4 * DIM))
    count, at = len(bank.rows) // 100, 0
    keys = torch.randn(count, DIM)
    changed = keys.nbytes

    def loss_and_change():
        global at
        chosen = torch.randint(0, len(bank.rows), (4096,))
        loss = checkpoint(bank, student(x), chosen, use_reentrant=False)
        bank.rows[at : at + count] = keys
        at = (at + count) % (len(bank.rows) - count)
        return loss

else:
    width = 1024
    depth = max(1, (options.mib << 20) // (4 * width * width))
    student, teacher = encoder(width, depth), encoder(width, depth).requires_grad_(False)
    distil = Distil(teacher)
    changed = sum(p.nbytes for p in teacher.parameters())

    def loss_and_change():
        loss = checkpoint(distil, x, student(x), use_reentrant=False)
        with torch.no_grad():
            torch._foreach_lerp_(list(teacher.parameters()), list(student.parameters()), 0.01)
        return loss


optimizer = torch.optim.SGD(student.parameters(), lr=1e-4)


def iteration():
    optimizer.zero_grad()
    loss_and_change().backward()
    optimizer.step()


serve(iteration, options.warm, lambda: {"changed_bytes": changed})
