"""Small models of the kinds that users train, with their batches: plain torch, the truth of the tests of capture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCABULARY = 17


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Cnn(nn.Module):
    """Convolution, batch norm, pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Linear(4 * 3 * 3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.pool(F.relu(self.norm(self.conv(x)))).flatten(1))


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(x).mean(1))


class Attention(nn.Module):
    """Attention with fewer heads of keys than of queries; `rotary` turns both by their positions."""

    def __init__(self, width: int, heads: int, key_heads: int, bias: bool, rotary: bool, causal: bool = True) -> None:
        super().__init__()
        self.heads, self.key_heads, self.size = heads, key_heads, width // heads
        self.rotary, self.causal = rotary, causal
        self.query = nn.Linear(width, heads * self.size, bias=bias)
        self.key = nn.Linear(width, key_heads * self.size, bias=bias)
        self.value = nn.Linear(width, key_heads * self.size, bias=bias)
        self.out = nn.Linear(heads * self.size, width, bias=bias)

    def forward(self, x: Tensor, memory: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        memory = x if memory is None else memory
        query, key, value = self._split(self.query(x)), self._split(self.key(memory)), self._split(self.value(memory))
        if self.rotary:
            query, key = turned(query), turned(key)
        repeats = self.heads // self.key_heads
        key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
        attended = F.scaled_dot_product_attention(
            query, key, value, attn_mask=bias, is_causal=self.causal and bias is None
        )
        return self.out(attended.transpose(1, 2).flatten(2))

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.size)).transpose(1, 2)


def turned(x: Tensor) -> Tensor:
    """Rotary embedding of positions."""
    half = x.shape[-1] // 2
    frequency = 10000 ** (-torch.arange(half, dtype=x.dtype, device=x.device) / half)
    angle = torch.arange(x.shape[-2], dtype=x.dtype, device=x.device)[:, None] * frequency
    angle = torch.cat([angle, angle], -1)
    return x * angle.cos() + torch.cat([-x[..., half:], x[..., :half]], -1) * angle.sin()


class RmsNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class Gpt(nn.Module):
    """Learned positions, layer norm before each part, GELU, embeddings tied to the head."""

    def __init__(self, width: int = 8, layers: int = 2) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(16, width)
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm1": nn.LayerNorm(width),
                    "attention": Attention(width, 2, 2, bias=True, rotary=False),
                    "norm2": nn.LayerNorm(width),
                    "mlp": nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)),
                }
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = x + block["attention"](block["norm1"](x))
            x = x + block["mlp"](block["norm2"](x))
        return self.head(self.norm(x))


class LlamaBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = RmsNorm(width), RmsNorm(width)
        self.attention = Attention(width, 4, 2, bias=False, rotary=True)
        self.gate = nn.Linear(width, 3 * width, bias=False)
        self.up = nn.Linear(width, 3 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """Grouped queries, rotary embedding, RMS norm, SwiGLU, tied embeddings."""

    def __init__(self, width: int = 8, layers: int = 2, checkpointed: bool = False) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(LlamaBlock(width) for _ in range(layers))
        self.norm = RmsNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight
        self.checkpointed = checkpointed

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)
        for block in self.blocks:
            x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return self.head(self.norm(x))


class T5(nn.Module):
    """Encoder and decoder with a learned bias of relative positions and cross attention."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.bias = nn.Embedding(9, 2)
        self.encoder = Attention(width, 2, 2, bias=False, rotary=False, causal=False)
        self.decoder = Attention(width, 2, 2, bias=False, rotary=False)
        self.cross = Attention(width, 2, 2, bias=False, rotary=False, causal=False)
        self.norms = nn.ModuleList(RmsNorm(width) for _ in range(4))
        self.mlp = nn.Sequential(nn.Linear(width, 16, bias=False), nn.ReLU(), nn.Linear(16, width, bias=False))
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        steps = torch.arange(ids.shape[1], device=ids.device)
        bias = self.bias((steps[:, None] - steps).clamp(-4, 4) + 4).permute(2, 0, 1)[None]
        source = self.tokens(ids)
        source = source + self.encoder(self.norms[0](source), bias=bias)
        x = self.tokens(ids)
        x = x + self.decoder(self.norms[1](x))
        x = x + self.cross(self.norms[2](x), memory=source)
        return self.head(x + self.mlp(self.norms[3](x)))


@dataclass(frozen=True)
class Case:
    """A model, its loss, and how a batch of `n` is drawn."""

    make: Callable[[], nn.Module]
    loss: Callable[[Tensor, Tensor], Tensor]
    batch: Callable[[int, torch.Generator], tuple[Tensor, Tensor]]


def token_loss(scores: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(scores.flatten(0, 1), target.flatten())


def _points(*shape: int) -> Callable[[int, torch.Generator], tuple[Tensor, Tensor]]:
    def draw(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        return torch.randn(n, *shape, generator=generator), torch.randint(3, (n,), generator=generator)

    return draw


def _text(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    ids = torch.randint(VOCABULARY, (n, 8), generator=generator)
    return ids[:, :-1], ids[:, 1:]


CASES = {
    "mlp": Case(Mlp, F.cross_entropy, _points(6)),
    "cnn": Case(Cnn, F.cross_entropy, _points(2, 6, 6)),
    "encoder": Case(Encoder, F.cross_entropy, _points(5, 8)),
    "gpt": Case(Gpt, token_loss, _text),
    "llama": Case(Llama, token_loss, _text),
    "t5": Case(T5, token_loss, _text),
}


def new_model(name: str, dtype: torch.dtype = torch.float32) -> nn.Module:
    """The model of a case, always with the same numbers."""
    torch.manual_seed(7)
    return CASES[name].make().to(dtype)


def batches(name: str, count: int, n: int = 6, dtype: torch.dtype = torch.float32) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(11)
    drawn = [CASES[name].batch(n, generator) for _ in range(count)]
    return [(x.to(dtype) if x.is_floating_point() else x, y) for x, y in drawn]
