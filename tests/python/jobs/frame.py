"""What the jobs share: a segment with every usual kind of state, and how results leave the process.

A job is a function of a form (`retained`: no checkpointing, `nonreentrant`, `reentrant`) that returns tensors by name: losses, gradients, final state.
`main` runs jobs one after the other, writes each result to FOLDER/FORM/JOB, and marks each job's part of stderr, so that the tests can tell what was
said for it:  SCRIPT FOLDER JOB:FORM ..."""

import os
import random
import sys
import traceback

import numpy as np
import torch
import torch.utils.checkpoint
from torch import nn

MARK = "=== job "
JOBS = {}


def job(function):
    JOBS[function.__name__] = function
    return function


def checkpoint(form, function, *args):
    if form == "retained":
        return function(*args)
    return torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=form == "reentrant")


class Block(nn.Module):
    """Reads and moves a queue, counts in Python, keeps BatchNorm statistics, draws from three generators."""

    def __init__(self, width=16, rows=64):
        super().__init__()
        self.linear, self.norm, self.dropout = nn.Linear(width, width), nn.BatchNorm1d(width), nn.Dropout(0.25)
        self.register_buffer("queue", torch.randn(rows, width))
        self.pointer = 0

    def forward(self, x):
        h = torch.relu(self.norm(self.linear(x)))
        h = h + torch.softmax(h @ self.queue.clone().t(), 1) @ self.queue.clone()
        h = self.dropout(h) * (1 + 0.01 * random.random() + 0.01 * np.random.rand())
        with torch.no_grad():
            for row in h.detach()[:4]:
                self.queue[self.pointer].copy_(row)
                self.pointer = (self.pointer + 1) % len(self.queue)
        return h


def seed(number=0):
    torch.manual_seed(number)
    np.random.seed(number)
    random.seed(number)


def state(*modules, **more):
    """Parameters, buffers, gradients, pointers and generators, as tensors of their own."""
    result = {name: torch.as_tensor(value).detach().clone() for name, value in more.items()}
    for i, module in enumerate(modules):
        for name, p in module.named_parameters():
            result["m%d.%s" % (i, name)] = p.detach().clone()
            if p.grad is not None:
                result["m%d.%s.grad" % (i, name)] = p.grad.detach().clone()
        for name, b in module.named_buffers():
            result["m%d.%s" % (i, name)] = b.detach().clone()
        for name, m in module.named_modules():
            if isinstance(m, Block):
                result["m%d.%s.pointer" % (i, name)] = torch.tensor(m.pointer)
    result["generators"] = torch.tensor([float(torch.rand(())), float(np.random.rand()), random.random()], dtype=torch.float64)
    return result


def say_result(folder, name, form, result):
    os.makedirs(os.path.join(folder, form), exist_ok=True)
    torch.save(result, os.path.join(folder, form, name))


def main():
    torch.set_num_threads(1)
    folder, wanted = sys.argv[1], [item.split(":") for item in sys.argv[2:]]
    for name, form in wanted:
        print("%s%s:%s" % (MARK, name, form), file=sys.stderr, flush=True)
        seed()
        try:
            say_result(folder, name, form, JOBS[name](form))
        except Exception:
            traceback.print_exc()
    print(MARK + "end", file=sys.stderr, flush=True)
