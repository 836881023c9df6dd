"""Checkpointed training while DataLoader workers run, by fork and by spawn; and processes that are given a module that was checkpointed."""

import torch
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, Dataset

from frame import Block, checkpoint, job, main, seed, state


class Numbers(Dataset):
    """Each sample comes from tensors made in the worker."""

    def __len__(self):
        return 48

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        table = torch.randn(1000, 16, generator=generator)
        return table[index].clone().add_(torch.ones(16) * 0.1)


def load(form, context, persistent):
    model = nn.Sequential(Block(rows=4096), Block())  # 256 KiB: in an arena of its own
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = DataLoader(Numbers(), batch_size=12, num_workers=2, multiprocessing_context=context, persistent_workers=persistent)
    outstanding = None
    for _ in range(2):
        for batch in loader:  # workers of the second epoch start while a forward is outstanding
            loss = checkpoint(form, model, batch.requires_grad_()).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        outstanding = checkpoint(form, model[1], torch.ones(12, 16, requires_grad=True))
    outstanding.sum().backward()
    return state(model)


@job
def forked(form):
    return load(form, "fork", False)


@job
def spawned(form):
    return load(form, "spawn", True)


def work(rank, form, model, queue):
    torch.set_num_threads(1)
    seed(rank)
    for _ in range(2):
        x = torch.randn(12, 16, requires_grad=True)
        checkpoint(form, model, x).pow(2).mean().backward()
    queue.put({name: value.numpy() for name, value in state(model).items()})
    queue.close()
    queue.join_thread()


def given_to_processes(form, context):
    model = Block()
    checkpoint(form, model, torch.randn(12, 16, requires_grad=True)).sum().backward()
    model.zero_grad()
    context = mp.get_context(context)
    queue = context.Queue()
    result = {}
    for rank in range(2):  # one after the other: their results must not depend on who came first
        twin = Block()
        twin.load_state_dict(model.state_dict())
        twin.pointer = model.pointer
        process = context.Process(target=work, args=(rank, form, twin, queue))
        process.start()
        result.update({"%d.%s" % (rank, name): torch.from_numpy(value.copy()) for name, value in queue.get(timeout=200).items()})
        process.join(200)
        assert process.exitcode == 0
    return result


@job
def module_spawned(form):
    return given_to_processes(form, "spawn")


if __name__ == "__main__":
    main()
