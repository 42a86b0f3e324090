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
    """A Trainer whose step is one plan, with parameters and optimizer state on the sites. It follows the arguments
    max_grad_norm, gradient_accumulation_steps and bf16; it refuses fp16 and losses other than the model's own."""

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        self.accelerator.prepare_model = lambda model, **_: model  # no DistributedDataParallel around it
        joinsum.init()

    def training_step(self, model: torch.nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Any:
        batches = self.args.gradient_accumulation_steps
        if self.current_gradient_accumulation_steps != batches:
            raise ValueError(f"batches of an epoch: no multiple of gradient_accumulation_steps={batches}")
        model.train()
        inputs = self._prepare_inputs(inputs)
        whole = self.model_accepts_loss_kwargs and num_items_in_batch is not None
        if whole:  # the model divides by the number of labels in all batches of the update
            inputs = {**inputs, "num_items_in_batch": torch.as_tensor(num_items_in_batch)}
        if not hasattr(self, "joinsum_step"):
            self.joinsum_step = self._planned_step(model, "sum" if whole else "mean")
        loss = self.joinsum_step(**inputs)
        return loss if whole else loss / batches

    def _planned_step(self, model: torch.nn.Module, reduction: str) -> Any:
        if self.args.fp16 or self.label_smoother is not None or self.compute_loss_func is not None:
            raise ValueError("not followed by this trainer: fp16, label_smoothing_factor, compute_loss_func")
        optimizer = getattr(self.optimizer, "optimizer", self.optimizer)
        self.optimizer.step = lambda *_: None  # the plan updates the parameters
        return joinsum.train_step(
            model,
            None,
            optimizer,
            max_norm=self.args.max_grad_norm or None,
            accumulate=self.args.gradient_accumulation_steps,
            reduction=reduction,
            autocast=torch.bfloat16 if self.args.bf16 else None,
            data="sharded",
        )

    def compute_loss(self, model: torch.nn.Module, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
        with self.accelerator.autocast():
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
