"""A loop of Hugging Face's accelerate with a model on the sites; accelerate loads the data, and each rank its shard.

torchrun --nproc-per-node 2 examples/hf_accelerate.py
torchrun --nproc-per-node 2 examples/hf_accelerate.py --resume   # goes on from the last checkpoint
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import joinsum
import torch
from accelerate import Accelerator
from hf_finetune import Pieces, small_llama


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in --out")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path("outputs/hf_accelerate"), help="folder of the checkpoint")
    arguments = parser.parse_args()
    accelerator = Accelerator(cpu=True)
    joinsum.init()
    batch_size = 8 // int(os.environ.get("WORLD_SIZE", "1"))
    loader = accelerator.prepare(torch.utils.data.DataLoader(Pieces(), batch_size))

    # The model and its optimizer are not prepared: that would wrap them for DistributedDataParallel.
    model = joinsum.distribute(small_llama(), next(iter(loader)), data="sharded")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    first = joinsum.load_checkpoint(arguments.out, model, optimizer)["step"] if arguments.resume else 0
    for step, batch in enumerate(loader):
        if not first <= step < arguments.steps:
            continue
        loss = model(**batch).loss
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        accelerator.print(f"step {step}: loss {loss.item():.4f}")
        if (step + 1) % 4 == 0:
            joinsum.save_checkpoint(arguments.out, model, optimizer, {"step": step + 1})
    accelerator.end_training()


if __name__ == "__main__":
    main()
