"""What a long run takes: resident memory, threads and open files while shapes, steps and generated texts go by.

    python benchmarks/endurance.py                                # 200 shapes, 10,000 steps, 1,000 texts
    torchrun --nproc-per-node 2 benchmarks/endurance.py --shapes 40 --steps 2000 --texts 100

A small LLaMA of transformers is trained on batches of so many different shapes, then a small network for so many steps,
and then the LLaMA writes so many texts of four tokens after prompts of several lengths. A line is printed at the
beginning and after each tenth; a part is flat where its last lines say what its middle ones do.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import joinsum
import torch
from transformers import LlamaConfig, LlamaForCausalLM


def resident() -> float:
    """Megabytes of this process in memory."""
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def repeat(what: str, count: int, work: Callable[[int], object]) -> None:
    """Does `work` for 0, 1, ... and prints what the process holds."""
    first = 0 in joinsum.context().local_sites
    started = time.monotonic()
    for number in range(count):
        if number % max(1, count // 10) == 0 or number == count - 1:
            gc.collect()
            threads = len(list(Path("/proc/self/task").iterdir()))
            files = len(list(Path("/proc/self/fd").iterdir()))
            if first:
                print(
                    f"{what:<8} {number:>6}  {time.monotonic() - started:7.1f} s  {resident():8.1f} MB  "
                    f"{threads:>3} threads ({threading.active_count()} of Python)  {files:>3} files",
                    flush=True,
                )
        work(number)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", type=int, default=200)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--texts", type=int, default=1_000)
    parser.add_argument("--sites", type=int, default=2, help="sites in this process; under torchrun one per rank")
    arguments = parser.parse_args()
    logging.getLogger("transformers").setLevel(logging.ERROR)
    joinsum.init() if "RANK" in os.environ else joinsum.init(sites=arguments.sites)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4
    )
    model = LlamaForCausalLM(config)
    step = joinsum.train_step(model, None, torch.optim.AdamW(model.parameters(), lr=1e-3))

    def shape(number: int) -> None:
        length = 8 + 37 * number % 199  # long ones among the first, so that the arena has its size early
        ids = torch.full((2 + number % 7, length), number % 64)
        step(input_ids=ids, labels=ids)

    repeat("shapes", arguments.shapes, shape)

    network = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    train = joinsum.train_step(network, torch.nn.functional.mse_loss, torch.optim.SGD(network.parameters(), lr=1e-3))
    x, y = torch.ones(16, 32), torch.ones(16, 4)
    repeat("steps", arguments.steps, lambda _: train(x, y))

    def text(number: int) -> None:
        prompt = torch.full((1, 4 + number % 5), 1 + number % 60)
        model.generate(  # type: ignore[misc]
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=4, do_sample=False, pad_token_id=0
        )

    repeat("texts", arguments.texts, text)


if __name__ == "__main__":
    main()
