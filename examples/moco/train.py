#!/usr/bin/env python3
"""Momentum contrast (MoCo) on Fashion-MNIST: an ordinary PyTorch script.

An encoder learns to tell each image from all others: two distorted views of one image must be alike, and unlike the keys of earlier
images, which stand in a queue. Every step handles several micro-batches; each compares its queries with the queue, then pushes its own
keys. The comparison makes the largest activations of the job by far, so it is checkpointed: dropped after the forward, computed again in
the backward. By then the queue holds other keys, because a push overwrites the oldest ones. That is the whole problem.

Nothing here knows of Reprise.
"""

import argparse
import os
import sys
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import idx

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from common.changes import Counter  # noqa: E402
from common.outcome import Outcome  # noqa: E402


class Encoder(nn.Module):
    """28 x 28 images -> unit vectors."""

    def __init__(self, dim):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 5, stride=2, padding=2), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Flatten(), nn.Linear(32 * 7 * 7, dim), nn.ReLU(), nn.Linear(dim, dim),
        )  # fmt: skip

    def forward(self, images):
        return F.normalize(self.layers(images), dim=1)


class Contrast(nn.Module):
    """Loss of queries against their own keys and against every key in the queue."""

    def __init__(self, dim, size, temperature):
        super().__init__()
        self.temperature = temperature
        self.register_buffer("queue", F.normalize(torch.randn(size, dim), dim=1))
        self.register_buffer("position", torch.zeros(1, dtype=torch.long))

    def forward(self, queries, keys):
        positive = (queries * keys).sum(1, keepdim=True)
        negative = queries @ self.queue.clone().t()
        logits = torch.cat([positive, negative], dim=1) / self.temperature
        return F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long))

    @torch.no_grad()
    def push(self, keys):
        at = int(self.position)
        self.queue[at : at + len(keys)] = keys
        self.position[0] = (at + len(keys)) % len(self.queue)


@torch.no_grad()
def follow(slow, fast, momentum):
    for a, b in zip(slow.parameters(), fast.parameters()):
        a.mul_(momentum).add_(b, alpha=1 - momentum)


def distort(images, random):
    """Another view of each image: shifted, mirrored, with a rectangle blanked and its brightness changed."""
    out = np.zeros(images.shape, np.float32)
    n, height, width = images.shape
    dy, dx = random.integers(-3, 4, (2, n))
    for i in range(n):
        y, x = dy[i], dx[i]
        out[i, max(y, 0) : height + min(y, 0), max(x, 0) : width + min(x, 0)] = images[
            i, max(-y, 0) : height + min(-y, 0), max(-x, 0) : width + min(-x, 0)
        ]
        if random.random() < 0.5:
            out[i] = out[i, :, ::-1]
        top, left = random.integers(0, height - 8), random.integers(0, width - 8)
        out[i, top : top + 8, left : left + 8] = 0
    out *= random.uniform(0.6, 1.4, (n, 1, 1)).astype(np.float32) / 255
    return torch.from_numpy(out).unsqueeze(1)


@torch.no_grad()
def neighbours(encoder, train, test, count):
    """How often the nearest training image, by the encoder, has the same label as the test image."""
    encoder.eval()
    vectors = [
        torch.cat([encoder(torch.from_numpy(part / np.float32(255)).unsqueeze(1)) for part in np.array_split(images[:count], 8)])
        for images, _ in (train, test)
    ]
    nearest = (vectors[1] @ vectors[0].t()).argmax(1).numpy()
    encoder.train()
    return float((train[1][:count][nearest] == test[1][:count]).mean())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist", help="folder with the IDX files (default: %(default)s)")
    parser.add_argument("--no-checkpoint", action="store_true", help="keep every activation")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--micro-batches", type=int, default=8, help="segments and pushes in a step")
    parser.add_argument("--batch", type=int, default=64, help="images in a micro-batch")
    parser.add_argument("--queue", type=int, default=32768, help="keys in the queue")
    parser.add_argument("--dim", type=int, default=256, help="numbers in a key")
    parser.add_argument("--temperature", type=float, default=0.2)
    Outcome.add_arguments(parser)
    options = parser.parse_args()
    if options.queue % options.batch:
        parser.error("--queue must be a multiple of --batch")
    Outcome.begin(parser, options)

    random = np.random.default_rng(options.seed)
    train, test = (idx.images_and_labels(options.data, part) for part in ("train", "t10k"))

    encoder, slow = Encoder(options.dim), Encoder(options.dim)
    slow.load_state_dict(encoder.state_dict())
    slow.requires_grad_(False)
    contrast = Contrast(options.dim, options.queue, options.temperature)
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.06, momentum=0.9, weight_decay=1e-4)
    counter = Counter(dict(contrast.named_buffers())) if options.count_changes else None

    outcome = Outcome(options.steps, options.turns)
    for _ in range(options.steps):
        views = []
        for _ in range(options.micro_batches):
            images = train[0][random.integers(0, len(train[0]), options.batch)]
            views.append((distort(images, random), distort(images, random)))

        began = time.perf_counter()
        optimizer.zero_grad()
        follow(slow, encoder, 0.99)
        total = 0.0
        for view, other in views:
            queries = encoder(view)
            with torch.no_grad():
                keys = slow(other)
            if options.no_checkpoint:
                loss = contrast(queries, keys) if counter is None else counter.segment(contrast, queries, keys)
            else:
                loss = checkpoint(contrast, queries, keys, use_reentrant=False)
            contrast.push(keys)
            total = total + loss / options.micro_batches
        total.backward()
        outcome.gradients(encoder)
        optimizer.step()
        outcome.step(began, total.item())

    outcome.end({"encoder": encoder, "slow encoder": slow, "contrast": contrast}, optimizer)
    more = dict(
        neighbours=None if options.no_evaluation else neighbours(encoder, train, test, 4000),
        segments=options.steps * options.micro_batches,
        state_bytes=contrast.queue.numel() * contrast.queue.element_size(),
    )
    if counter is not None:
        more["changes"] = counter.report()
    outcome.write(options, **more)


if __name__ == "__main__":
    main()
