"""Jobs that run in one process each form: see frame.py. What a job itself must hold under Reprise, it asserts."""

import copy
import gc
import io
import os
import pickle
import sys
import tempfile
import traceback

import torch
import torch.utils.checkpoint
from torch import nn

from frame import Block, checkpoint, job, main, seed, state

reprise = None
if "libreprise" in os.environ.get("LD_PRELOAD", ""):
    import reprise


def outstanding():
    """Instances that are alive (0 without Reprise)."""
    gc.collect()
    patch = sys.modules.get("reprise.pytorch.patch")
    adapter = patch.active().adapter if patch is not None and patch.active() is not None else None
    return adapter.outstanding() if adapter is not None else 0


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def train(form, model, steps=3, call=None):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(steps):
        x = torch.randn(12, 16, requires_grad=True)
        loss = (call(x) if call else checkpoint(form, model, x)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return state(model, losses=losses, x=x.grad)


@job
def sequential(form):
    """checkpoint_sequential."""
    model = nn.Sequential(*[Block() for _ in range(4)])
    if form == "retained":
        return train(form, model)
    call = torch.utils.checkpoint.checkpoint_sequential
    return train(form, model, call=lambda x: call(model, 2, x, use_reentrant=form == "reentrant"))


def language_model(folder):
    import transformers

    config = transformers.GPT2Config(vocab_size=97, n_positions=32, n_embd=64, n_layer=3, n_head=4, bos_token_id=None, eos_token_id=None)
    transformers.GPT2LMHeadModel(config).save_pretrained(folder)
    return transformers.GPT2LMHeadModel.from_pretrained(folder)


def in_files(model):
    """How many bytes of the parameters lie in private mappings of the model's file?"""
    with open("/proc/self/maps") as file:
        maps = [line.split() for line in file if "safetensors" in line]
    spans = [tuple(int(end, 16) for end in fields[0].split("-")) for fields in maps if fields[1].endswith("p")]
    return sum(p.nbytes for p in model.parameters() if any(low <= p.data_ptr() < high for low, high in spans))


@job
def pretrained(form):
    """gradient_checkpointing_enable on parameters that from_pretrained maps from a file; an optimizer writes them, once in the middle of a window."""
    with tempfile.TemporaryDirectory() as folder:
        seed()
        model = language_model(folder).train()
        assert in_files(model) > 0, "from_pretrained mapped nothing: this job does not test what it is for"
        if form != "retained":
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": form == "reentrant"})
        if form == "reentrant":
            model.enable_input_require_grads()
        blocks = [p for block in model.transformer.h for p in block.parameters()]
        optimizer = torch.optim.AdamW(blocks, lr=0.01)
        losses = []
        seed(1)

        def forward():
            ids = torch.randint(0, 97, (2, 16))
            loss = model(input_ids=ids, labels=ids, use_cache=False).loss
            losses.append(loss.item())
            return loss

        for _ in range(2):
            optimizer.zero_grad()
            forward().backward()
            optimizer.step()
        model.zero_grad()
        forward().backward()
        first = [p.grad for p in blocks]
        late = forward()
        if form == "retained":  # autograd refuses to step between: its backward goes before the step
            for p in model.parameters():
                p.grad = None
            late.backward()
            second = [p.grad for p in blocks]
            for p, gradient in zip(blocks, first):
                p.grad = gradient
            optimizer.step()
            for p, gradient in zip(blocks, second):
                p.grad = gradient
        else:
            optimizer.step()
            for p in model.parameters():
                p.grad = None
            late.backward()
        return state(model, losses=losses)


@job
def images(form):
    """timm's set_grad_checkpointing: BatchNorm, stochastic depth, dropout."""
    import timm
    from timm.layers import set_reentrant_ckpt

    result = {}
    for name, settings in (("test_resnet", dict(drop_path_rate=0.2)), ("test_vit", dict(img_size=64, drop_path_rate=0.2, proj_drop_rate=0.1))):
        model = timm.create_model(name, num_classes=5, **settings).train()
        set_reentrant_ckpt(form == "reentrant")
        if form != "retained":
            model.set_grad_checkpointing(True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.randn(4, 3, 64, 64, requires_grad=True)).pow(2).sum().backward()
            optimizer.step()
        result.update({name + "." + key: value for key, value in state(model).items()})
    return result


@job
def compiled_inside(form):
    """A compiled function inside a checkpoint; the state that it reads changes between forward and backward."""
    scale = torch.full((16,), 2.0)
    linear = nn.Linear(16, 16)
    function = torch.compile(lambda x: torch.tanh(linear(x) * scale), backend="aot_eager")
    for _ in range(2):
        x = torch.randn(4, 16, requires_grad=True)
        loss = checkpoint(form, function, x).sum()
        if form == "retained":
            loss.backward()
            scale.add_(1)
        else:
            scale.add_(1)
            loss.backward()
    return state(linear, scale=scale, x=x.grad)


@job
def compiled_around(form):
    """torch.compile around checkpoints: one graph, left to the compiler."""
    import torch._dynamo as dynamo

    dynamo.reset()
    dynamo.utils.counters.clear()
    model = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16))
    step = torch.compile(lambda x: checkpoint(form, model, x) + checkpoint(form, model, x * 2), backend="aot_eager", fullgraph=True)
    for _ in range(2):
        x = torch.randn(4, 16, requires_grad=True)
        step(x).sum().backward()
    assert not dynamo.utils.counters["graph_break"]
    return state(model, x=x.grad)


@job
def kept_losses(form):
    """A list of losses whose graphs are never walked, kept for ever, beside steps that train."""
    model, kept, most = Block(), [], 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(40):
        kept.append(checkpoint(form, model, torch.randn(12, 16, requires_grad=True)).sum())
        loss = checkpoint(form, model, torch.randn(12, 16, requires_grad=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        most = max(most, outstanding())
    assert most <= 12, "%d instances alive, of 40 kept losses" % most
    return state(model, kept=torch.stack([loss.detach() for loss in kept]))


@job
def dropped(form):
    """10,000 forwards whose graphs are dropped: nothing grows, whatever was written in between."""
    model = nn.Sequential(Block(rows=8192), nn.Tanh())  # a queue of 512 KiB: a whole copy of each would be 5 GB
    grown, start = 0, 0
    for i in range(1000 if form == "retained" else 10000):
        checkpoint(form, model, torch.ones(12, 16, requires_grad=True))
        if i == 2000:
            start = resident()
    if form != "retained":
        grown = resident() - start
        assert grown < 24 << 20, "8,000 dropped forwards left %d KiB" % (grown >> 10)
        assert outstanding() == 0
    return {}


@job
def evaluation(form):
    """Checkpoints without gradients: no instance, no replay, the same values."""
    model = nn.Sequential(Block(), Block())
    before = reprise.stats() if reprise and form != "retained" else {}
    outputs = []
    for context in (torch.no_grad, torch.inference_mode):
        for training in (True, False):
            model.train(training)
            with context():
                outputs.append(checkpoint(form, model, torch.randn(12, 16)).clone())
    assert outstanding() == 0
    after = reprise.stats() if reprise and form != "retained" else {}
    assert before.get("forwards") == after.get("forwards"), "a forward without gradients was recorded"
    model.train()
    return {**train(form, model), **{"output%d" % i: torch.from_numpy(o.numpy().copy()) for i, o in enumerate(outputs)}}


class Trouble(Exception):
    pass


class Fragile(nn.Module):
    def __init__(self):
        super().__init__()
        self.block, self.calls, self.fail_at = Block(), [], None

    def forward(self, x):
        self.calls.append(1) if self.fail_at is None else None
        result = self.block(x)
        if self.fail_at == "now":
            raise Trouble("as the user's own code says it")
        return result


def frames_of(error):
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    text = "".join(lines)
    own = [f for f in traceback.extract_tb(error.__traceback__) if "/python/reprise/" in f.filename]
    last = traceback.extract_tb(error.__traceback__)[-1]
    assert last.name == "forward" and last.filename == __file__, text
    assert "as the user's own code says it" in lines[-1], text
    assert "During handling" not in text and "direct cause" not in text, text
    assert len(own) <= 5, text
    return text


@job
def exceptions(form):
    """Exceptions in F and in B: they come out as the user's own, everything is put back, and training goes on."""
    model = Fragile()
    x = torch.randn(12, 16, requires_grad=True)
    model.fail_at = "now"
    try:
        checkpoint(form, model, x)
        raise AssertionError("no exception in F")
    except Trouble as error:
        frames_of(error)
    model.fail_at = "later"
    loss = checkpoint(form, model, x).sum()
    queue, pointer = model.block.queue.clone(), model.block.pointer
    statistics = model.block.norm.running_mean.clone()
    if form != "retained":  # fails in the replay: nothing of it stays
        broken = model.block.dropout.register_forward_pre_hook(lambda *_: (_ for _ in ()).throw(Trouble("in B")))
        try:
            loss.backward()
            raise AssertionError("no exception in B")
        except Trouble as error:
            text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
            assert "in B" in text and __file__ in text and "During handling" not in text, text
        broken.remove()
        assert torch.equal(queue, model.block.queue) and pointer == model.block.pointer
        assert torch.equal(statistics, model.block.norm.running_mean) and x.grad is None
        loss = error = None
        if reprise:
            assert outstanding() == 0
    model.zero_grad()
    loss = None
    return train(form, model)


@job
def copies(form):
    """Modules that were checkpointed are pickled, saved, copied, and trained on; also one that was given a name."""
    model = Block()
    if reprise:
        model = reprise.segment("a name")(model)
    losses = []
    for step in range(3):
        x = torch.randn(12, 16, requires_grad=True)
        loss = checkpoint(form, model, x).pow(2).mean()
        twins = copy.deepcopy(model), pickle.loads(pickle.dumps(model))  # with its forward outstanding
        file = io.BytesIO()
        torch.save(model, file)
        torch.save(model.state_dict(), io.BytesIO())
        file.seek(0)
        twins += (torch.load(file, weights_only=False),)
        loss.backward()
        for twin in twins:
            assert torch.equal(twin.queue, model.queue) and twin.pointer == model.pointer
        twin = twins[step]
        twin.zero_grad()
        checkpoint(form, twin, x).pow(2).mean().backward()
        losses.append(loss.item())
        model = twin
    return state(model, *twins, losses=losses, x=x.grad)


if __name__ == "__main__":
    main()
