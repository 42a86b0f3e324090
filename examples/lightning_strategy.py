"""A strategy of Lightning that stores a model's parameters on the sites; loops and checkpoints are Lightning's.

torchrun --nproc-per-node 2 examples/lightning_strategy.py
torchrun --nproc-per-node 2 examples/lightning_strategy.py --resume   # goes on from the last checkpoint
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import joinsum
import lightning
import torch
from hf_finetune import Pieces, small_llama
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data.distributed import DistributedSampler


class JoinsumStrategy(DDPStrategy):
    """Ranks as DDPStrategy has them, each with its shard of a batch. The part `name` of the LightningModule is
    distributed for the first batch."""

    def __init__(self, name: str = "model") -> None:
        super().__init__(process_group_backend="gloo")
        self._name = name
        self._distributed = False

    def configure_ddp(self) -> None:
        joinsum.init()  # and no DistributedDataParallel

    def training_step(self, batch: Any, *args: Any) -> Any:
        if not self._distributed:
            joinsum.distribute(getattr(self.lightning_module, self._name), batch, data="sharded")
            self._distributed = True
        return super().training_step(batch, *args)

    def lightning_module_state_dict(self) -> dict[str, Any]:
        return joinsum.full_state_dict(self.lightning_module, ranks="first")

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        return joinsum.full_state_dict(optimizer, ranks="first")


class LanguageModel(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = small_llama()

    def training_step(self, batch: dict[str, torch.Tensor], index: int) -> torch.Tensor:
        loss: torch.Tensor = self.model(**batch).loss
        self.print(f"step {self.global_step}: loss {loss.item():.4f}")
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in --out")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path("outputs/lightning"), help="folder of the checkpoint")
    arguments = parser.parse_args()
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=ranks,
        strategy=JoinsumStrategy(),
        max_steps=arguments.steps,
        gradient_clip_val=1.0,
        use_distributed_sampler=False,
        logger=False,
        enable_progress_bar=False,
        callbacks=[
            ModelCheckpoint(arguments.out, filename="last", every_n_train_steps=4, enable_version_counter=False)
        ],
    )
    pieces = Pieces(32)  # an epoch of four steps: Lightning goes on from the beginning of one
    sampler = DistributedSampler(pieces, ranks, int(os.environ.get("RANK", "0")), shuffle=False)
    loader = torch.utils.data.DataLoader(pieces, 8 // ranks, sampler=sampler)
    trainer.fit(LanguageModel(), loader, ckpt_path=arguments.out / "last.ckpt" if arguments.resume else None)


if __name__ == "__main__":
    main()
