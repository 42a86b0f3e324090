"""A small LLaMA: grouped queries, rotary positions, RMS norm, SwiGLU, embeddings tied to the head. Plain torch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Size:
    """Of a model: `key_heads` divides `heads`, which divides `width`."""

    vocabulary: int
    width: int = 128
    layers: int = 4
    heads: int = 4
    key_heads: int = 2
    hidden: int = 352


class RmsNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def turned(x: Tensor) -> Tensor:
    """Rotary embedding of positions: [batch, heads, sequence, features]."""
    half = x.shape[-1] // 2
    frequency = 10000 ** (-torch.arange(half, dtype=x.dtype, device=x.device) / half)
    angle = torch.arange(x.shape[-2], dtype=x.dtype, device=x.device)[:, None] * frequency
    angle = torch.cat([angle, angle], -1)
    return x * angle.cos() + torch.cat([-x[..., half:], x[..., :half]], -1) * angle.sin()


class Attention(nn.Module):
    """Causal; each head of keys serves heads / key_heads of the queries."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.features, self.repeats = size.width // size.heads, size.heads // size.key_heads
        self.query = nn.Linear(size.width, size.heads * self.features, bias=False)
        self.key = nn.Linear(size.width, size.key_heads * self.features, bias=False)
        self.value = nn.Linear(size.width, size.key_heads * self.features, bias=False)
        self.out = nn.Linear(size.heads * self.features, size.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        query, key = turned(self._heads(self.query(x))), turned(self._heads(self.key(x)))
        key = key.repeat_interleave(self.repeats, 1)
        value = self._heads(self.value(x)).repeat_interleave(self.repeats, 1)
        return self.out(F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).flatten(2))

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.features)).transpose(1, 2)


class Block(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.norm1, self.norm2 = RmsNorm(size.width), RmsNorm(size.width)
        self.attention = Attention(size)
        self.gate = nn.Linear(size.width, size.hidden, bias=False)
        self.up = nn.Linear(size.width, size.hidden, bias=False)
        self.down = nn.Linear(size.hidden, size.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """Scores [batch, sequence, vocabulary] of the next token, for ids int64 [batch, sequence]."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.tokens = nn.Embedding(size.vocabulary, size.width)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm = RmsNorm(size.width)
        self.head = nn.Linear(size.width, size.vocabulary, bias=False)
        for weight in self.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=0.05)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def next_token_loss(scores: Tensor, target: Tensor) -> Tensor:
    """Cross entropy in nats, mean over positions: scores [batch, sequence, vocabulary], target [batch, sequence]."""
    return F.cross_entropy(scores.flatten(0, 1), target.flatten())
