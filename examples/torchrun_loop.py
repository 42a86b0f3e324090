"""A plain loop under torchrun: each rank loads its shard by torch's DistributedSampler, and restarts go on.

    torchrun --nproc-per-node 2 --max-restarts 2 examples/torchrun_loop.py

Where a rank fails, torchrun starts all of them again, and they continue from the last complete checkpoint.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import joinsum
import torch
from hf_finetune import Pieces, small_llama
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path("outputs/torchrun"), help="folder of the checkpoint")
    parser.add_argument("--fail-at", type=int, help="a step at which rank 1 fails in the first attempt")
    arguments = parser.parse_args()
    joinsum.init()
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    sampler = DistributedSampler(Pieces(), ranks, rank, shuffle=False)
    loader = DataLoader(Pieces(), 8 // ranks, sampler=sampler)

    model = small_llama()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    step = joinsum.train_step(model, None, optimizer, data="sharded")
    first = 0
    if (arguments.out / "current.json").exists():
        first = joinsum.load_checkpoint(arguments.out, model, optimizer)["step"]
    for number, batch in enumerate(loader):
        if not first <= number < arguments.steps:
            continue
        if number == arguments.fail_at and rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            raise SystemExit("rank 1 fails")
        loss = step(**batch)
        if rank == 0:
            print(f"step {number}: loss {loss.item():.4f}", flush=True)
        if (number + 1) % 2 == 0:
            joinsum.save_checkpoint(arguments.out, model, optimizer, {"step": number + 1})


if __name__ == "__main__":
    main()
