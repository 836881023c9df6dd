"""Under torchrun: DDP on gloo, with a queue and BatchNorm statistics inside the checkpointed segments. Every rank writes its own results."""

import gc
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from frame import Block, checkpoint, job, main, seed, state


class Model(nn.Module):
    def __init__(self, form):
        super().__init__()
        self.form = form
        self.blocks = nn.ModuleList([Block(rows=4096), Block()])
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(self.form, block, x)
        return self.head(x)


def train(form, static):
    seed()
    model = DistributedDataParallel(Model(form), static_graph=static)  # sends rank 0's buffers at every forward: a writer between F and B
    seed(1 + dist.get_rank())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        if not static:  # accumulation; torch's static graph must begin with a step that is reduced
            with model.no_sync():
                model(torch.randn(12, 16, requires_grad=True)).pow(2).mean().backward()
        loss = model(torch.randn(12, 16, requires_grad=True)).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"rank%d.%s" % (dist.get_rank(), name): value for name, value in state(model.module, losses=losses).items()}


@job
def plain(form):
    return train(form, False)


@job
def static_graph(form):
    return train(form, True)


def gather(function):
    """Rank 0 returns (and writes) what all ranks have."""

    def run(form):
        results = [None] * dist.get_world_size()
        dist.all_gather_object(results, {name: value.numpy() for name, value in function(form).items()})
        return {name: torch.from_numpy(value) for result in results for name, value in result.items()}

    return run


if __name__ == "__main__":
    from frame import JOBS

    JOBS.update({name: gather(function) for name, function in JOBS.items()})
    dist.init_process_group("gloo")
    assert int(os.environ["WORLD_SIZE"]) == 2
    try:
        main()
    finally:
        # The models stand in cycles and hold the group: its threads must end while there is an interpreter, whose lock they may ask for to drop
        # a tensor (else: "terminate called without an active exception", seen once in some hundred exits).
        gc.collect()
        dist.destroy_process_group()
