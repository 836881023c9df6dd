"""A distributed training job: checkpointed segments that contain an all-reduce of their own, under DDP or FSDP2. Prints a digest of what it
trained, and how many replays it saw. Environment: WRAP=ddp|fsdp, CHECKPOINT=0 for without, SLOW=rank that takes longer, UNEVEN=1 for another
number of micro-batches on every rank in every step, DIES=rank that ends at step 12."""

import gc
import hashlib
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

WIDTH, BATCH, BLOCKS, STEPS = 64, 512, 8, int(os.environ.get("STEPS", "22"))
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
torch.set_num_threads(1)
executed = [0]


class Block(nn.Module):
    """Mixes in the mean over all ranks: a rank that runs this alone waits for the others for ever."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.register_buffer("seen", torch.zeros(256, WIDTH))

    def forward(self, x):
        executed[0] += 1
        if str(rank) == os.environ.get("SLOW"):
            time.sleep(0.002)
        mean = x.detach().mean(0)
        dist.all_reduce(mean)
        y = torch.tanh(self.up(x + self.seen[0]))
        with torch.no_grad():
            self.seen.mul_(0.9)[0] += mean / world
        return x + self.down(y)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))

    def forward(self, x):
        for block in self.blocks:
            x = block(x) if os.environ.get("CHECKPOINT") == "0" else checkpoint(block, x, use_reentrant=False)
        return x


model = Model()
if os.environ.get("WRAP") == "fsdp":
    from torch.distributed.fsdp import fully_shard

    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    wrapped = model
else:
    wrapped = nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)
optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.01)
digest = hashlib.sha256()
data = torch.Generator().manual_seed(rank)
for step in range(STEPS):
    if str(rank) == os.environ.get("DIES") and step == 12:
        os._exit(9)
    # In lockstep in number, for the all-reduce; uneven in what they hold.
    micro = 1 + step % 2 if os.environ.get("UNEVEN") else 1
    optimizer.zero_grad()
    for _ in range(micro):
        rows = BATCH // (2 if os.environ.get("UNEVEN") and rank else 1)
        wrapped(torch.randn(rows, WIDTH, generator=data)).pow(2).mean().backward()
    optimizer.step()
    for parameter in model.parameters():
        gradient = parameter.grad.to_local() if hasattr(parameter.grad, "to_local") else parameter.grad
        digest.update(gradient.numpy().tobytes())
for buffer in model.buffers():
    digest.update(buffer.numpy().tobytes())
os.write(1, ("rank %d digest %s executed %d\n" % (rank, digest.hexdigest()[:16], executed[0])).encode())  # at once: other ranks write, too
dist.barrier()
del model, wrapped, optimizer, parameter, gradient, buffer  # they hold the group: its threads end with it, before the interpreter does
gc.collect()
dist.destroy_process_group()
