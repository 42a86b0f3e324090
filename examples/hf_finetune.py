"""Trains a Hugging Face model, built from its config and never downloaded, for a few steps on all sites.

    python examples/hf_finetune.py                                     # joinsum.train_step: the whole step is one plan
    python examples/hf_finetune.py --way distribute                    # your own loop, loss.backward(), any optimizer
    torchrun --nproc-per-node 4 examples/hf_finetune.py

The model learns to continue pieces of the King James Bible, byte by byte. At the end its weights become plain tensors,
and `save_pretrained` writes them.
"""

from __future__ import annotations

import argparse
import lzma
import os
from pathlib import Path

import joinsum
import torch
from transformers import LlamaConfig, LlamaForCausalLM

TEXT = Path(__file__).parents[1] / "data" / "debian-kjv" / "kjv.txt.xz"


def small_llama() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=176,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        use_cache=False,
    )
    return LlamaForCausalLM(config)


class Pieces(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Pieces of the text one after another, as Hugging Face's models take them: int64 [length] each."""

    def __init__(self, count: int = 64, length: int = 64) -> None:
        text = lzma.decompress(TEXT.read_bytes())
        self._pieces = torch.tensor(list(text[: count * length])).reshape(count, length)

    def __len__(self) -> int:
        return len(self._pieces)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self._pieces[index], "labels": self._pieces[index]}


def batch(text: bytes, step: int, count: int = 8, length: int = 64) -> torch.Tensor:
    """Pieces of the text: int64 [count, length]."""
    starts = torch.randint(len(text) - length, (count,), generator=torch.Generator().manual_seed(step)).tolist()
    return torch.stack([torch.tensor(list(text[start : start + length])) for start in starts])


def train_step(model: LlamaForCausalLM, text: bytes, steps: int) -> list[float]:
    """Forward, loss, backward and update as one plan; the model gives the loss itself."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    step = joinsum.train_step(model, None, optimizer)
    losses = []
    for number in range(steps):
        ids = batch(text, number)
        losses.append(step(input_ids=ids, labels=ids).item())
    step.sync()
    return losses


def distribute(model: LlamaForCausalLM, text: bytes, steps: int) -> list[float]:
    """The usual loop, with parameters that are stored on the sites."""
    ids = batch(text, 0)
    model = joinsum.distribute(model, (), {"input_ids": ids, "labels": ids})
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for number in range(steps):
        ids = batch(text, number)
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    joinsum.gather(model, optimizer)
    return losses


WAYS = {"train_step": train_step, "distribute": distribute}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--way", choices=WAYS, default="train_step")
    parser.add_argument("--sites", type=int, default=4, help="sites in this process; under torchrun one per rank")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("outputs/hf"), help="folder for save_pretrained")
    arguments = parser.parse_args()
    joinsum.init() if "RANK" in os.environ else joinsum.init(sites=arguments.sites)
    model = small_llama()
    losses = WAYS[arguments.way](model, lzma.decompress(TEXT.read_bytes()), arguments.steps)
    if joinsum.context().local_sites[0] == 0:
        print(f"{arguments.way} on {joinsum.sites()} sites: losses {', '.join(f'{loss:.4f}' for loss in losses)}")
        model.save_pretrained(arguments.out)
        print(f"weights in {arguments.out}")


if __name__ == "__main__":
    main()
