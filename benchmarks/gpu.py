"""Times joinsum on one GPU beside torch: einsums beside cuBLAS, other pairs beside torch's broadcast and reduction, and
training steps of a decoder beside eager torch and torch.compile.

Contenders take turns in each round; figures are medians of GPU time between events, and ratios to the first contender.

    python benchmarks/gpu.py [--rounds 20] [--only einsums|pairs|steps]
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import cast

import click
import joinsum
import torch
from torch import Tensor, nn

Contenders = dict[str, Callable[[], object]]


def milliseconds(contenders: Contenders, rounds: int) -> dict[str, float]:
    """The median of each one's rounds."""
    for call in contenders.values():
        for _ in range(3):
            call()
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, call in contenders.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            start.record()
            call()
            end.record()
            torch.cuda.synchronize()
            found[name].append(start.elapsed_time(end))
    return {name: statistics.median(times) for name, times in found.items()}


def einsums() -> Iterator[tuple[str, Contenders]]:
    for dtype in (torch.float32, torch.bfloat16):
        for size in (256, 1024, 8192):
            a, b = (torch.randn(size, size, device="cuda", dtype=dtype) for _ in range(2))
            yield (
                f"ij,jk->ik, {size}, {dtype}",
                {
                    "torch.matmul": partial(torch.matmul, a, b),
                    "torch.einsum": partial(torch.einsum, "ij,jk->ik", a, b),
                    "joinsum.einsum": partial(joinsum.einsum, "ij,jk->ik", a, b),
                },
            )


def _in_pieces(join: Callable[[Tensor, Tensor], Tensor], reduce: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """torch's broadcast and reduction, by pieces of 1 GiB."""

    def run(a: Tensor, b: Tensor) -> Tensor:
        rows = max(1, (1 << 30) // (b.numel() * b.element_size()))
        return torch.cat([reduce(join(part.unsqueeze(2), b)) for part in a.split(rows)])

    return run


def pairs() -> Iterator[tuple[str, Contenders]]:
    torch_calls = {
        ("add", "min"): _in_pieces(torch.add, lambda x: x.amin(1)),
        ("squared_difference", "sum"): _in_pieces(lambda x, y: (x - y).square_(), lambda x: x.sum(1)),
        ("add", "logsumexp"): _in_pieces(torch.add, lambda x: x.logsumexp(1)),
    }
    for (join, agg), call in torch_calls.items():
        for dtype in (torch.float32, torch.bfloat16):
            a, b = (torch.rand(2048, 2048, device="cuda", dtype=dtype) for _ in range(2))
            yield (
                f"{join}, {agg}, 2048, {dtype}",
                {
                    "torch": partial(call, a, b),
                    "joinsum": partial(joinsum.einsum, "ij,jk->ik", a, b, join=join, agg=agg),
                },
            )


class Decoder(nn.Module):
    """A language model of causal attention and feed-forward layers."""

    def __init__(self, layers: int, width: int, heads: int, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(nn.ModuleDict(_block(width)) for _ in range(layers))
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in cast(Iterable[nn.ModuleDict], self.blocks):
            query, key, value = (
                block["qkv"](block["first"](x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            )
            attended = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            x = x + block["out"](attended.transpose(1, 2).flatten(2))
            x = x + block["down"](nn.functional.gelu(block["up"](block["second"](x))))
        return self.head(self.norm(x))


def _block(width: int) -> dict[str, nn.Module]:
    norms = {name: nn.LayerNorm(width) for name in ("first", "second")}
    return {
        **norms,
        "qkv": nn.Linear(width, 3 * width),
        "out": nn.Linear(width, width),
        "up": nn.Linear(width, 4 * width),
        "down": nn.Linear(4 * width, width),
    }


def _step(model: Callable[..., Tensor], optimizer: torch.optim.Optimizer, tokens: Tensor) -> None:
    optimizer.zero_grad()
    _loss(model(tokens), tokens).backward()
    optimizer.step()


def _loss(logits: Tensor, tokens: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten())


def steps() -> Iterator[tuple[str, Contenders]]:
    for dtype in (torch.float32, torch.bfloat16):
        tokens = torch.randint(0, 8192, (8, 512), device="cuda")
        models = []
        for _ in range(3):
            torch.manual_seed(0)
            models.append(Decoder(8, 768, 12, 8192).to("cuda", dtype))
        optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True) for model in models[:2]]
        planned = joinsum.train_step(models[2], _loss, torch.optim.AdamW(models[2].parameters(), lr=1e-4))

        yield (
            f"decoder 8 x 768, 8 x 512 tokens, AdamW, {dtype}",
            {
                "eager": partial(_step, models[0], optimizers[0], tokens),
                "torch.compile": partial(_step, torch.compile(models[1]), optimizers[1], tokens),
                "joinsum": partial(planned, tokens, tokens),
            },
        )


KINDS = {"einsums": einsums, "pairs": pairs, "steps": steps}


@click.command(help=__doc__)
@click.option("--rounds", default=20, show_default=True)
@click.option("--only", type=click.Choice(list(KINDS)))
def main(rounds: int, only: str | None) -> None:
    if not torch.cuda.is_available():
        raise click.ClickException("this benchmark needs a CUDA device")
    joinsum.init()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    for kind in [only] if only else KINDS:
        for name, contenders in KINDS[kind]():
            found = milliseconds(contenders, rounds)
            first = next(iter(found.values()))
            print(name, *(f"{each} {ms:.3f} ms ({ms / first:.2f})" for each, ms in found.items()), sep="; ", flush=True)


if __name__ == "__main__":
    main()
