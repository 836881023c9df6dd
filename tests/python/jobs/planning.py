"""A job of many checkpointed blocks with state that changes, run once for each of several settings: SCRIPT FOLDER SETTINGS, where SETTINGS is a JSON
file of a list of objects {"name", "env", and what else `train` takes}. Starting torch is what takes the time, so each is a forked child of one process
that has not checkpointed yet; it leaves FOLDER/NAME.json and FOLDER/NAME.err."""

import ctypes
import hashlib
import json
import os
import sys
import time
import traceback

import torch
import torch._dynamo  # as the first checkpoint would
import torch.utils.checkpoint
from torch import nn

from frame import seed

WIDTH, ROWS = 64, 512


class Vq(nn.Module):
    """Quantises by a codebook that follows its inputs, in place."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(3 * WIDTH, WIDTH)
        self.register_buffer("codebook", torch.randn(256, WIDTH))

    def forward(self, x):
        h = self.down(torch.tanh(self.up(x)))
        with torch.no_grad():
            index = torch.cdist(h.detach(), self.codebook).argmin(1)
        quantised = self.codebook[index]
        if self.training:
            with torch.no_grad():
                self.codebook.index_add_(0, index, (h.detach() - quantised) * 0.05)
        return x + h + (quantised - h).detach()


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm, self.down, self.dropout = nn.Linear(WIDTH, 3 * WIDTH), nn.BatchNorm1d(3 * WIDTH), nn.Linear(3 * WIDTH, WIDTH), nn.Dropout(0.1)
        self.scratch = 0

    def forward(self, x):
        scratch = torch.empty(self.scratch)  # noqa: F841 - held to the end of the function, which a replay that stops early does not reach
        return x + self.dropout(self.down(torch.relu(self.norm(self.up(x)))))


class Queue(nn.Module):
    """Compares with the rows that went through it before. `saves`: the product keeps the queue itself for its backward."""

    def __init__(self):
        super().__init__()
        self.linear, self.saves = nn.Linear(WIDTH, WIDTH), False
        self.register_buffer("queue", torch.randn(512, WIDTH))
        self.pointer = 0

    def forward(self, x):
        h = self.linear(x)
        queue = self.queue if self.saves else self.queue.clone()
        result = x + torch.softmax(h @ queue.t(), 1) @ self.queue.clone()
        with torch.no_grad():
            self.queue[self.pointer : self.pointer + 32].copy_(h.detach()[:32])
        self.pointer = (self.pointer + 32) % len(self.queue)
        return result


def build(blocks, saves, scratch):
    kinds = (Vq, Norm, Queue)
    model = nn.ModuleList(kinds[i % 3]() for i in range(blocks))
    for i in saves:
        model[i].saves = True
    for block in model:
        block.scratch = scratch
    return model


def digest(model, *more):
    total = hashlib.sha256()
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        total.update(name.encode() + tensor.detach().contiguous().numpy().tobytes())
        if tensor.grad is not None:
            total.update(tensor.grad.contiguous().numpy().tobytes())
    for value in more:
        total.update(value.detach().numpy().tobytes())
    return total.hexdigest()


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 2 * ROWS

    def __getitem__(self, i):
        return torch.full((WIDTH,), float(i % 7))


def train(checkpoint=True, blocks=12, reentrant=(), saves=(), steps=13, shrink_at=0, accumulate=1, evaluate=False, optimizers=1, workers=0, extra_at=0, in_backward=False, scratch=0):
    seed()
    model = build(blocks, saves if checkpoint else (), scratch)
    if checkpoint:
        import reprise

        for i, block in enumerate(model):
            reprise.segment("block %d" % i)(block)
    parameters = list(model.parameters())
    parts = [parameters[i::optimizers] for i in range(optimizers)]
    if in_backward:  # each parameter has an optimizer of its own, which steps as soon as its gradient is there
        parts = [[parameter] for parameter in parameters]
    every = [torch.optim.SGD(part, lr=0.01, momentum=0.9) for part in parts]
    if in_backward:
        for parameter, optimizer in zip(parameters, every):
            parameter.register_post_accumulate_grad_hook(lambda parameter, optimizer=optimizer: optimizer.step())

    def run(x, some):
        for i, block in enumerate(some):
            x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=i in reentrant) if checkpoint else block(x)
        return x

    losses, kept = [], []
    for step in range(steps):
        used = model[: blocks // 2] if shrink_at and step >= shrink_at else model
        if extra_at and step == extra_at:
            kept.append(torch.ones(6 << 20))
        for optimizer in every:
            optimizer.zero_grad()
        if workers:
            total = sum(float(batch.sum()) for batch in torch.utils.data.DataLoader(Rows(), batch_size=ROWS, num_workers=workers))
            losses.append(torch.tensor(total))
        for _ in range(accumulate):
            x = torch.randn(ROWS, WIDTH, requires_grad=True)
            loss = run(x, used).pow(2).mean()
            loss.backward()
            losses.append(loss.detach())
        for optimizer in () if in_backward else every:
            optimizer.step()
        if evaluate:
            model.eval()
            with torch.no_grad():
                losses.append(run(torch.randn(4 * ROWS, WIDTH), used).mean())
            model.train()
        if 4 <= step < steps - 3:
            time.sleep(0.02)  # the planner's thread may be waiting for the processor
    return digest(model, x.grad, *losses)


def child(folder, setting):
    name, env = setting.pop("name"), setting.pop("env")
    log = os.open(os.path.join(folder, name + ".err"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 2)
    os.environ.update(env)
    result = {}
    try:
        result["digest"] = train(**setting)
    except Exception as error:
        traceback.print_exc()
        result["error"] = str(error)
    with open(os.path.join(folder, name + ".json"), "w") as file:
        json.dump(result, file)


def main():
    torch.set_num_threads(1)
    folder = sys.argv[1]
    with open(sys.argv[2]) as file:
        settings = json.load(file)
    p = nn.Parameter(torch.zeros(1))  # what is imported at the first step of an optimizer, is imported once
    p.grad = torch.zeros(1)
    torch.optim.SGD([p], lr=1.0, momentum=0.9).step()
    running = set()
    for setting in settings:
        if len(running) == 2:
            running.discard(os.wait()[0])
        pid = os.fork()
        if pid == 0:
            child(folder, setting)
            sys.stderr.flush()
            ctypes.CDLL(None).exit(0)  # with the library's line and report, without taking the interpreter apart
        running.add(pid)
    while running:
        running.discard(os.wait()[0])


if __name__ == "__main__":
    main()
