"""A language model over bytes whose blocks all remember something besides their weights: plain PyTorch.

Every block has attention and then one of three second halves, in turn:

    Quantised   a codebook, moved towards what it was asked for (moving averages) inside the forward
    Experts     a router whose bias per context is moved between forward and backward, to balance the load that its counters show
    Scaled      eight-bit numbers, scaled by the largest magnitudes of the last passes (a ring per channel, written inside the forward)

Shapes do not depend on what is routed where: a fixed number of places per expert.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm, self.qkv, self.out = nn.LayerNorm(dim), nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        batch, length, dim = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        later = torch.full((length, length), -math.inf).triu(1)
        weights = ((q / math.sqrt(dim // self.heads)) @ k.transpose(-1, -2) + later).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, dim))


class Quantised(nn.Module):
    """Adds to every group of bytes the code that is nearest to the end of the group before."""

    GROUP, DECAY = 8, 0.9

    def __init__(self, dim, codes, code_dim):
        super().__init__()
        self.down, self.up = nn.Linear(dim, code_dim), nn.Linear(code_dim, dim)
        self.first, self.second = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.register_buffer("codebook", torch.randn(codes, code_dim))
        self.register_buffer("sums", self.codebook.clone())
        self.register_buffer("counts", torch.ones(codes, 1))

    def forward(self, x, context):
        ends = self.down(x[:, self.GROUP - 1 :: self.GROUP])
        flat = ends.reshape(-1, ends.shape[-1])
        with torch.no_grad():
            nearest = (self.codebook.square().sum(1) - 2 * flat @ self.codebook.t()).argmin(1)
        code = F.embedding(nearest, self.codebook).view_as(ends)
        commitment = F.mse_loss(ends, code)
        if self.training:
            self.follow(nearest, flat.detach())
        code = self.up(ends + (code - ends).detach())  # the gradient goes through as if nothing had been rounded
        later = torch.cat([torch.zeros_like(code[:, :1]), code[:, :-1]], dim=1)
        y = x + later.repeat_interleave(self.GROUP, dim=1)
        return self.second(F.gelu(self.first(y))), 0.1 * commitment

    @torch.no_grad()
    def follow(self, nearest, flat):
        """Moving averages of those codes alone that were asked for."""
        used, place, times = nearest.unique(return_inverse=True, return_counts=True)
        sums = torch.zeros(len(used), flat.shape[1]).index_add_(0, place, flat)
        self.counts[used] = self.DECAY * self.counts[used] + (1 - self.DECAY) * times.unsqueeze(1)
        self.sums[used] = self.DECAY * self.sums[used] + (1 - self.DECAY) * sums
        self.codebook[used] = self.sums[used] / self.counts[used]


class Experts(nn.Module):
    """Every byte goes to one expert: the router's favourite, after a bias that depends on it and the byte before."""

    RATE = 0.02

    def __init__(self, dim, experts, contexts):
        super().__init__()
        self.router = nn.Linear(dim, experts, bias=False)
        self.first = nn.Parameter(torch.randn(experts, dim, 4 * dim) / math.sqrt(dim))
        self.second = nn.Parameter(torch.randn(experts, 4 * dim, dim) / math.sqrt(16 * dim))
        self.register_buffer("bias", torch.zeros(contexts, experts))
        self.register_buffer("load", torch.zeros(contexts, experts, dtype=torch.int32))

    def forward(self, x, context):
        experts, flat, context = len(self.first), x.reshape(-1, x.shape[-1]), context.reshape(-1)
        room = len(flat) * 5 // (4 * experts)
        scores = self.router(flat).softmax(1)
        with torch.no_grad():
            choice = (scores + self.bias[context]).argmax(1)
            order = choice.argsort(stable=True)
            start = torch.bincount(choice, minlength=experts).cumsum(0).roll(1)
            start[0] = 0
            place = torch.empty_like(choice)
            place[order] = torch.arange(len(choice)) - start[choice[order]]
            nowhere = experts * room  # for those that found no room
            slot = torch.where(place < room, choice * room + place, nowhere)
            token = torch.full((nowhere + 1,), len(flat)).scatter_(0, slot, torch.arange(len(flat)))[:nowhere]
            if self.training:
                self.load.index_put_((context, choice), torch.ones_like(choice, dtype=torch.int32), accumulate=True)
        padded = torch.cat([flat, flat.new_zeros(1, flat.shape[1])])
        inside = F.gelu(torch.bmm(padded.index_select(0, token).view(experts, room, -1), self.first))
        outside = torch.bmm(inside, self.second).view(nowhere, -1)
        outside = torch.cat([outside, outside.new_zeros(1, flat.shape[1])]).index_select(0, slot)
        return (outside * scores.gather(1, choice.unsqueeze(1))).view_as(x), x.new_zeros(())

    @torch.no_grad()
    def balance(self, context):
        """Where one expert had more of a context's bytes than the others, it becomes less likely."""
        seen = context.unique()
        load = self.load[seen].float()
        self.bias[seen] -= self.RATE * (load - load.mean(1, keepdim=True)).sign()


class Scaled(nn.Module):
    """A feed-forward layer on numbers of eight bits, each channel scaled by the largest magnitude of its last passes."""

    def __init__(self, dim, window):
        super().__init__()
        self.first, self.second = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.register_buffer("largest", torch.full((window, 5 * dim), 3.0))
        self.register_buffer("position", torch.zeros(1, dtype=torch.long))

    def forward(self, x, context):
        dim, scale = x.shape[-1], self.largest.amax(0) / 127
        rounded = self.rounded(x, scale[:dim])
        inside = F.gelu(self.first(rounded))
        y = self.second(self.rounded(inside, scale[dim:]))
        if self.training:
            with torch.no_grad():
                at = int(self.position)
                self.largest[at] = torch.cat([x.abs().amax((0, 1)), inside.abs().amax((0, 1))])
                self.position[0] = (at + 1) % len(self.largest)
        return y, x.new_zeros(())

    @staticmethod
    def rounded(x, scale):
        eight_bits = (x / scale).round().clamp(-127, 127) * scale
        return x + (eight_bits - x).detach()


class Block(nn.Module):
    def __init__(self, dim, heads, second):
        super().__init__()
        self.attention, self.norm, self.second = Attention(dim, heads), nn.LayerNorm(dim), second

    def forward(self, x, context):
        x = x + self.attention(x)
        y, extra = self.second(self.norm(x), context)
        return x + y, extra


class Model(nn.Module):
    def __init__(self, blocks, dim, heads, length, codes, code_dim, experts, contexts, window):
        super().__init__()
        self.contexts = contexts
        self.bytes, self.places = nn.Embedding(256, dim), nn.Embedding(length, dim)
        kinds = (lambda: Quantised(dim, codes, code_dim), lambda: Experts(dim, experts, contexts), lambda: Scaled(dim, window))
        self.blocks = nn.ModuleList(Block(dim, heads, kinds[i % 3]()) for i in range(blocks))
        self.norm, self.out = nn.LayerNorm(dim), nn.Linear(dim, 256)

    def context(self, data):
        """A number for each byte and the one before it: contexts that are alike lie side by side."""
        before = F.pad(data, (1, 0))[:, :-1]
        return (before * 256 + data) * self.contexts // 65536

    def forward(self, data, run):
        """`run`: calls a block, checkpointed or not. -> (scores of the next bytes, what the blocks add to the loss)"""
        x, context, extra = self.bytes(data) + self.places(torch.arange(data.shape[1])), self.context(data), 0.0
        for block in self.blocks:
            x, more = run(block, x, context)
            extra = extra + more
        return self.out(self.norm(x)), extra

    def balance(self, data):
        context = self.context(data).reshape(-1)
        for block in self.blocks:
            if isinstance(block.second, Experts):
                block.second.balance(context)
