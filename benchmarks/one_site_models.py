"""Models in common shapes, with a batch each, for the comparison of one site with plain torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Work(NamedTuple):
    """A model, its loss, and a batch."""

    model: nn.Module
    loss: Callable[[Tensor, Tensor], Tensor]
    inputs: Tensor
    target: Tensor


class Layer(nn.Module):
    """GPT-2's, with dropout."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x: Tensor) -> Tensor:
        parts = self.project(self.norm1(x)).chunk(3, -1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, layers: int, width: int, tokens: int, length: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(tokens, width), nn.Embedding(length, width)
        self.layers = nn.Sequential(*(Layer(width, max(1, width // 64)) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, tokens, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        return self.head(self.norm(self.layers(x)))


class RmsNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5))


class LlamaLayer(nn.Module):
    """Grouped queries, rotary embedding, SwiGLU."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.norm1, self.norm2 = RmsNorm(width), RmsNorm(width)
        self.query, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.keys = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, 3 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)

    def turned(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat([-second, first], -1) * sin

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        y = self.norm1(x)
        query = self.query(y).unflatten(-1, (self.heads, self.size)).transpose(1, 2)
        key, value = self.keys(y).unflatten(-1, (self.heads, self.size)).transpose(1, 2).chunk(2, 1)
        query, key = self.turned(query, cos, sin), self.turned(key, cos, sin)
        key, value = key.repeat_interleave(2, 1), value.repeat_interleave(2, 1)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, layers: int, width: int, tokens: int, length: int) -> None:
        super().__init__()
        heads = max(2, width // 64)
        self.tokens = nn.Embedding(tokens, width)
        self.layers = nn.ModuleList(LlamaLayer(width, heads) for _ in range(layers))
        self.norm, self.head = RmsNorm(width), nn.Linear(width, tokens, bias=False)
        half = width // heads // 2
        angle = torch.arange(length)[:, None] * 10000 ** (-torch.arange(half) / half)
        self.register_buffer("cos", torch.cat([angle, angle], -1).cos())
        self.register_buffer("sin", torch.cat([angle, angle], -1).sin())

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return self.head(self.norm(x))


def cnn(width: int) -> nn.Module:
    """Convolution, batch norm and pooling, thrice."""

    def part(before: int, after: int) -> list[nn.Module]:
        conv = nn.Conv2d(before, after, 3, padding=1, bias=False)
        return [conv, nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]

    parts = [*part(3, width), *part(width, 2 * width), *part(2 * width, 4 * width)]
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(4 * width * 16, 10))


def encoder(layers: int, width: int) -> nn.Module:
    """Of torch's layers, with their dropout."""
    layer = nn.TransformerEncoderLayer(width, max(1, width // 64), 4 * width, batch_first=True, dropout=0.1)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


def token_loss(scores: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(scores.flatten(0, 1), target.flatten())


def new_work(name: str, layers: int, width: int, tokens: int, batch: int, length: int) -> Work:
    """The model of that name, the same at each call, and its batch."""
    torch.manual_seed(1)
    ids, target = torch.randint(tokens, (2, batch, length))
    if name == "gpt":
        return Work(Gpt(layers, width, tokens, length), token_loss, ids, target)
    if name == "llama":
        return Work(Llama(layers, width, tokens, length), token_loss, ids, target)
    if name == "encoder":
        x = torch.randn(batch, length, width)
        return Work(encoder(layers, width), F.mse_loss, x, torch.randn(batch, length, width))
    # As many pictures as there are tokens in 8 samples.
    pictures = max(8, batch * length // 16)
    return Work(cnn(width // 8), F.cross_entropy, torch.randn(pictures, 3, 32, 32), torch.randint(10, (pictures,)))


def small() -> Work:
    """Three layers whose step takes less than a millisecond."""
    torch.manual_seed(1)
    layers = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    return Work(layers, F.cross_entropy, torch.randn(16, 32), torch.randint(10, (16,)))


NAMES = ("gpt", "llama", "cnn", "encoder")
