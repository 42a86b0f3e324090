"""Hugging Face's Trainer with joinsum's training step: loading, logging, schedules, evaluation and checkpoints are its.

python examples/hf_trainer.py
torchrun --nproc-per-node 2 examples/hf_trainer.py               # each rank loads its shard of a batch
torchrun --nproc-per-node 2 examples/hf_trainer.py --resume      # goes on from the last checkpoint
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import joinsum
import torch
from hf_finetune import Pieces, small_llama
from transformers import Trainer, TrainingArguments


class JoinsumTrainer(Trainer):
    """A Trainer whose step is one plan, with parameters and optimizer state on the sites."""

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        self.accelerator.prepare_model = lambda model, **_: model  # no DistributedDataParallel around it
        joinsum.init()

    def training_step(self, model: torch.nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Any:
        if not hasattr(self, "joinsum_step"):
            optimizer = getattr(self.optimizer, "optimizer", self.optimizer)
            clip = self.args.max_grad_norm or None
            self.joinsum_step = joinsum.train_step(model, None, optimizer, max_norm=clip, data="sharded")
            self.optimizer.step = lambda *_: None  # the plan updates the parameters
        model.train()
        return self.joinsum_step(**self._prepare_inputs(inputs))

    def compute_loss(self, model: torch.nn.Module, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
        outputs = model(**inputs)  # for an evaluation: the loss is already that of all ranks' shards
        return (outputs.loss, outputs) if return_outputs else outputs.loss

    def _clip_grad_norm(self, model: torch.nn.Module) -> Any:
        return self.joinsum_step.metrics.get("gradient_norm")

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        state = joinsum.full_state_dict(self.model, ranks="first")
        if self.args.should_save:
            self._save(output_dir, state)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        state = joinsum.full_state_dict(self.optimizer, ranks="first")
        self.optimizer.state_dict = lambda: state
        super()._save_optimizer_and_scheduler(output_dir)
        del self.optimizer.state_dict


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint in --out")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path("outputs/hf_trainer"), help="folder of checkpoints")
    arguments = parser.parse_args()
    options = TrainingArguments(
        output_dir=str(arguments.out),
        per_device_train_batch_size=8 // int(os.environ.get("WORLD_SIZE", "1")),
        max_steps=arguments.steps,
        learning_rate=3e-3,
        lr_scheduler_type="constant",
        logging_steps=1,
        save_steps=4,
        use_cpu=True,
        report_to=[],
        train_sampling_strategy="sequential",
    )
    trainer = JoinsumTrainer(small_llama(), options, train_dataset=Pieces(), eval_dataset=Pieces(8))
    trainer.train(resume_from_checkpoint=arguments.resume)
    evaluated = trainer.evaluate()["eval_loss"]
    if trainer.is_world_process_zero():
        losses = [each["loss"] for each in trainer.state.log_history if "loss" in each]
        print(f"losses {', '.join(f'{float(loss):.4f}' for loss in losses)}; evaluated {evaluated:.4f}")


if __name__ == "__main__":
    main()
