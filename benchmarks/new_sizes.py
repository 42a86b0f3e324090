"""What the first step of a new batch size or length costs beside the next one of the same size: a language model of
Hugging Face's, trained by `joinsum.train_step` as it comes.

    python benchmarks/new_sizes.py [--layers N] [--width N] [--sites N] [--sizes N] [--json FILE]
"""

from __future__ import annotations

import json
import random
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import joinsum
import torch
from transformers import LlamaConfig, LlamaForCausalLM


@dataclass(frozen=True)
class Size:
    """Seconds of the first and of the second step of a size."""

    batch: int
    length: int
    first: float
    second: float


def measured(layers: int, width: int, sites: int, sizes: int) -> list[Size]:
    """Steps of different sizes, two of each."""
    joinsum.init(sites=sites, plan_cache=False)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=1000,
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=4,
    )
    model = LlamaForCausalLM(config)
    step = joinsum.train_step(model, None, torch.optim.AdamW(model.parameters()))
    chance = random.Random(0)
    all_sizes = [(batch, length) for batch in range(8, 33) for length in range(16, 129)]
    found = []
    for batch, length in chance.sample(all_sizes, sizes + 1):
        ids = torch.randint(1000, (batch, length))
        seconds = []
        for _ in range(2):
            begin = time.perf_counter()
            step(input_ids=ids, labels=ids)
            seconds.append(time.perf_counter() - begin)
        found.append(Size(batch, length, *seconds))
    return found


@click.command()
@click.option("--layers", default=2, show_default=True)
@click.option("--width", default=64, show_default=True)
@click.option("--sites", default=4, show_default=True)
@click.option("--sizes", default=30, show_default=True)
@click.option("--json", "path", type=click.Path(path_type=Path), help="Write the figures to this file.")
def main(layers: int, width: int, sites: int, sizes: int, path: Path | None) -> None:
    """Prints what new sizes cost."""
    first, *others = measured(layers, width, sites, sizes)
    cost = sorted(1e3 * (each.first - each.second) for each in others)
    print(f"llama of {layers} layers, width {width}, {sites} sites in one process")
    print(f"the first size, with capture and search: {first.first:.1f} s")
    print(
        f"{len(others)} other sizes: first step less the second: median {statistics.median(cost):.0f} ms, "
        f"nine of ten below {cost[len(cost) * 9 // 10]:.0f} ms, at most {cost[-1]:.0f} ms"
    )
    print(f"the second step of a size: median {1e3 * statistics.median(each.second for each in others):.0f} ms")
    if path is not None:
        path.write_text(json.dumps([asdict(each) for each in (first, *others)]))


if __name__ == "__main__":
    main()
