"""Decoders in the shapes of GPT and LLaMA, whose modules torch's tensor parallelism can divide."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["Decoder", "Layer", "Shape", "batch", "loss_of"]

HEAD = 64


class Shape(NamedTuple):
    """Of a decoder and its batch; `max_norm` clips the gradients, 0 does not."""

    kind: str
    layers: int
    width: int
    sequence: int = 128
    batch: int = 8
    vocabulary: int = 4096
    max_norm: float = 0.0


def _norm(shape: Shape) -> nn.Module:
    return nn.LayerNorm(shape.width) if shape.kind == "gpt" else nn.RMSNorm(shape.width, eps=1e-5)


def _linear(shape: Shape, inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=shape.kind == "gpt")


class Attention(nn.Module):
    """Causal self-attention in heads of 64, with rotary positions in LLaMA's shape.

    The number of heads follows from the projections, so that a rank may have some of them. The keys have no bias: its
    gradient is zero but for rounding errors, which Adam would amplify.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.width
        self.query, self.value, self.out = (_linear(shape, width, width) for _ in range(3))
        self.key = nn.Linear(width, width, bias=False)
        self.rotary = shape.kind == "llama"

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        heads = (each(x).unflatten(-1, (-1, HEAD)).transpose(1, 2) for each in (self.query, self.key, self.value))
        query, key, value = heads
        if self.rotary:
            query, key = _rotated(query, cos, sin), _rotated(key, cos, sin)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        result: Tensor = self.out(attended.transpose(1, 2).flatten(2))
        return result


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


class Perceptron(nn.Module):
    """Two products around a GELU, or LLaMA's three around a gated SiLU."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gated = shape.kind == "llama"
        hidden = (3 if self.gated else 4) * shape.width
        self.up, self.down = _linear(shape, shape.width, hidden), _linear(shape, hidden, shape.width)
        if self.gated:
            self.gate = _linear(shape, shape.width, hidden)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.silu(self.gate(x)) * self.up(x) if self.gated else F.gelu(self.up(x))
        result: Tensor = self.down(hidden)
        return result


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.norm1, self.norm2 = _norm(shape), _norm(shape)
        self.attention, self.perceptron = Attention(shape), Perceptron(shape)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x), cos, sin)
        x = x + self.perceptron(self.norm2(x))
        return x


class Decoder(nn.Module):
    """Embeddings, layers, and a head of its own weights."""

    cos: Tensor
    sin: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Parameter(0.02 * torch.randn(shape.sequence, shape.width)) if shape.kind == "gpt" else None
        self.layers = nn.ModuleList([Layer(shape) for _ in range(shape.layers)])
        self.norm = _norm(shape)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        frequencies = 10000.0 ** (-torch.arange(0, HEAD, 2) / HEAD)
        angles = torch.outer(torch.arange(shape.sequence).float(), frequencies).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        if self.positions is not None:
            x = x + self.positions
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        result: Tensor = self.head(self.norm(x))
        return result


def batch(shape: Shape) -> tuple[Tensor, Tensor]:
    """Tokens and those that follow them."""
    text = torch.randint(
        shape.vocabulary, (shape.batch, shape.sequence + 1), generator=torch.Generator().manual_seed(1)
    )
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def loss_of(scores: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(scores.flatten(0, 1), target.flatten())
