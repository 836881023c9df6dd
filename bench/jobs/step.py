#!/usr/bin/env python3
"""A training step of a small language model (GPT-2's blocks) with AdamW. With --save DIR: only makes the files that --pretrained DIR loads.

Parameters from files are mapped privately, as from_pretrained maps them: by transformers if it is there, else by safetensors, else by torch.load."""

import argparse
import os
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F
from serve import serve
from torch.utils.checkpoint import checkpoint

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--dim", type=int, default=256)
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--tokens", type=int, default=128)
parser.add_argument("--warm", type=int, default=4, help="steps before the first measured one")
parser.add_argument("--no-checkpoint", action="store_true")
parser.add_argument("--save", metavar="DIR")
parser.add_argument("--pretrained", metavar="DIR")
options = parser.parse_args()
VOCABULARY = 2048


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        batch, tokens, dim = x.shape
        q, k, v = (t.view(batch, tokens, -1, 64).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, tokens, dim))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    """The model where transformers is not installed."""

    def __init__(self):
        super().__init__()
        self.embed, self.position = nn.Embedding(VOCABULARY, options.dim), nn.Embedding(options.tokens, options.dim)
        self.blocks = nn.ModuleList([Block(options.dim) for _ in range(options.layers)])
        self.head = nn.Linear(options.dim, VOCABULARY)

    def loss(self, ids):
        x = self.embed(ids) + self.position.weight
        for block in self.blocks:
            x = block(x) if options.no_checkpoint else checkpoint(block, x, use_reentrant=False)
        return F.cross_entropy(self.head(x[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def transformers_model(folder=None):
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from transformers import GPT2Config, GPT2LMHeadModel

    if folder is None:
        config = GPT2Config(vocab_size=VOCABULARY, n_positions=options.tokens, n_embd=options.dim, n_layer=options.layers, n_head=options.dim // 64,
                            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False, bos_token_id=None, eos_token_id=None)  # fmt: skip
        return GPT2LMHeadModel(config)
    model = GPT2LMHeadModel.from_pretrained(folder)
    model.train()
    if not options.no_checkpoint:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.loss = lambda ids: model(input_ids=ids, labels=ids).loss
    return model


def save(folder):
    os.makedirs(folder, exist_ok=True)
    try:
        transformers_model().save_pretrained(folder)
        way = "transformers"
    except ImportError:
        state = Model().state_dict()
        try:
            from safetensors.torch import save_file

            save_file(state, os.path.join(folder, "model.safetensors"))
            way = "safetensors"
        except ImportError:
            torch.save(state, os.path.join(folder, "model.pt"))
            way = "torch.load(mmap=True)"
    with open(os.path.join(folder, "way"), "w") as file:
        file.write(way)


def load(folder):
    with open(os.path.join(folder, "way")) as file:
        way = file.read()
    if way == "transformers":
        return transformers_model(folder)
    if way == "safetensors":
        from safetensors.torch import load_file

        state = load_file(os.path.join(folder, "model.safetensors"))
    else:
        state = torch.load(os.path.join(folder, "model.pt"), mmap=True)
    model = Model()
    model.load_state_dict(state, assign=True)
    return model


def in_file_mappings(model):
    """How many bytes of the parameters lie in mappings of files, by the kernel's own list."""
    mapped = []
    with open("/proc/self/maps") as file:
        for line in file:
            fields = line.split(maxsplit=5)
            if len(fields) == 6 and fields[5].startswith("/"):
                begin, end = (int(x, 16) for x in fields[0].split("-"))
                mapped.append((begin, end))
    inside = lambda p: any(b <= p.data_ptr() and p.data_ptr() + p.nbytes <= e for b, e in mapped)  # noqa: E731
    return sum(p.nbytes for p in model.parameters() if inside(p))


def main():
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    if options.save:
        save(options.save)
        return
    model = load(options.pretrained) if options.pretrained else Model()
    mapped = in_file_mappings(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    ids = torch.randint(0, VOCABULARY, (options.batch, options.tokens))

    def iteration():
        optimizer.zero_grad()
        model.loss(ids).backward()
        optimizer.step()

    serve(iteration, options.warm, lambda: {"parameter_bytes": sum(p.nbytes for p in model.parameters()), "mapped_bytes": mapped})


if __name__ == "__main__":
    main()
