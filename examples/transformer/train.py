#!/usr/bin/env python3
"""A small language model over bytes: an ordinary PyTorch script.

A transformer of 24 blocks learns to say the next byte of a text. Each block is checkpointed: its activations are dropped after the forward
and computed again in the backward. But each block also remembers something that its forward reads and that changes meanwhile: a codebook
follows what it was asked for, routers are balanced after the forward, scales follow the largest numbers seen (model.py). A block that is
computed again reads what it left behind itself, and writes it a second time.

Nothing here knows of Reprise.
"""

import argparse
import math
import os
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import text
from model import Model

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from common.changes import Counter  # noqa: E402
from common.outcome import Outcome  # noqa: E402


def batches(data, random, batch, length):
    while True:
        starts = random.integers(0, len(data) - length - 1, batch)
        rows = np.stack([data[at : at + length + 1] for at in starts]).astype(np.int64)
        yield torch.from_numpy(rows[:, :-1].copy()), torch.from_numpy(rows[:, 1:].copy())


@torch.no_grad()
def bits_per_byte(model, data, batch, length):
    """Of text that it has not seen."""
    model.eval()
    stream = batches(data, np.random.default_rng(9), batch, length)
    total = 0.0
    for _ in range(3):
        x, y = next(stream)
        total += F.cross_entropy(model(x, lambda block, *arguments: block(*arguments))[0].flatten(0, 1), y.flatten()).item()
    model.train()
    return total / 3 / math.log(2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="a text file (default: this project's own documentation and headers)")
    parser.add_argument("--no-checkpoint", action="store_true", help="keep every activation")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--blocks", type=int, default=24)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--batch", type=int, default=4, help="pieces of text in a step")
    parser.add_argument("--length", type=int, default=256, help="bytes in a piece")
    parser.add_argument("--codes", type=int, default=4096, help="vectors in a codebook")
    parser.add_argument("--code-dim", type=int, default=64)
    parser.add_argument("--experts", type=int, default=8)
    parser.add_argument("--contexts", type=int, default=32768, help="contexts that a router has a bias for, at most 65536")
    parser.add_argument("--window", type=int, default=1024, help="passes that scales remember")
    Outcome.add_arguments(parser)
    options = parser.parse_args()
    if options.length % 8 or options.dim % options.heads:
        parser.error("--length must be a multiple of 8, --dim one of --heads")
    Outcome.begin(parser, options)

    train, held_out = text.read(options.data)
    stream = batches(train, np.random.default_rng(options.seed), options.batch, options.length)
    model = Model(options.blocks, options.dim, options.heads, options.length, options.codes, options.code_dim, options.experts,
                  options.contexts, options.window)  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    counters = {}
    if options.count_changes:
        counters = {block: Counter({**dict(block.named_parameters()), **dict(block.named_buffers())}) for block in model.blocks}

    def run(block, *arguments):
        if counters:
            return counters[block].segment(block, *arguments)
        return block(*arguments) if options.no_checkpoint else checkpoint(block, *arguments, use_reentrant=False)

    outcome = Outcome(options.steps, options.turns)
    for _ in range(options.steps):
        x, y = next(stream)
        began = time.perf_counter()
        optimizer.zero_grad()
        scores, extra = model(x, run)
        loss = F.cross_entropy(scores.flatten(0, 1), y.flatten()) + extra / options.blocks
        model.balance(x)
        loss.backward()
        outcome.gradients(model)
        optimizer.step()
        outcome.step(began, loss.item())
    outcome.end({"model": model}, optimizer)

    state = sum(t.numel() * t.element_size() for t in model.buffers())
    more = dict(segments=options.steps * options.blocks, state_bytes=state)
    if not options.no_evaluation:
        more["bits_per_byte"] = bits_per_byte(model, held_out, options.batch, options.length)
    if counters:
        more["changes"] = Counter.total(counters.values())
    outcome.write(options, **more)


if __name__ == "__main__":
    main()
