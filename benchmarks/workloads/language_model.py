"""Training steps of decoders with AdamW, in the shapes of GPT and (with clipping) of LLaMA."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from frame.contenders import Contender, Workload, ranks
from torch import Tensor, nn

from workloads.data_parallel import Training, by_buckets, by_fsdp, by_torch, usual_contenders
from workloads.decoder import HEAD, Decoder, Shape, batch, loss_of

__all__ = ["WORKLOAD"]

SIZES: Mapping[str, Shape] = {
    "gpt-4x256": Shape("gpt", 4, 256),
    "gpt-4x512": Shape("gpt", 4, 512, batch=4, vocabulary=8192),
    "gpt-2x1024": Shape("gpt", 2, 1024, batch=4, vocabulary=8192),
    "llama-4x256": Shape("llama", 4, 256, max_norm=1.0),
    "llama-4x512": Shape("llama", 4, 512, batch=4, vocabulary=8192, max_norm=1.0),
    "llama-2x1024": Shape("llama", 2, 1024, batch=4, vocabulary=8192, max_norm=1.0),
}
RATE = 1e-3


def adamw(parameters: Sequence[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=RATE, fused=True)


def training_of(shape: Shape) -> Training:
    inputs, target = batch(shape)
    return Training(lambda: Decoder(shape), loss_of, adamw, inputs, target, shape.max_norm)


def reference(size: str) -> Contender:
    return by_torch(training_of(SIZES[size]))


def contenders(size: str) -> dict[str, Callable[[], Contender]]:
    shape = SIZES[size]
    training = training_of(shape)
    found = usual_contenders(training)
    if ranks() == 1:
        return found
    found |= {
        "FSDP2": lambda: by_fsdp(training, lambda model: list(model.layers)),
        "hand-coded: buckets": lambda: by_buckets(training),
    }
    if (shape.width // HEAD) % ranks() == 0:
        found |= {
            "tensor parallel": lambda: by_tensor_parallel(training, sequence=False),
            "tensor and sequence parallel": lambda: by_tensor_parallel(training, sequence=True),
        }
    return found


def by_tensor_parallel(training: Training, sequence: bool) -> Contender:
    """DTensor's usual plan: heads and hidden units divided, the loss by vocabulary; with `sequence`, norms and sums of
    residuals divided by sequence."""
    from torch.distributed.tensor.parallel import loss_parallel

    model = training.new_model()
    _parallelize(model, sequence)
    parameters = list(model.parameters())
    # One call of a fused optimizer takes distributed tensors only, or plain ones only.
    kinds = [[p for p in parameters if _distributed(p) is kind] for kind in (True, False)]
    optimizers = [training.optimizer(kind) for kind in kinds if kind]

    def step() -> None:
        with loss_parallel():
            training.loss(model(training.inputs), training.target).backward()  # type: ignore[no-untyped-call]
        if training.max_norm:
            _clip(kinds, training.max_norm)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    return Contender(step, result=lambda: [_full(p.detach()) for p in parameters])


def _parallelize(model: nn.Module, sequence: bool) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    mesh = init_device_mesh("cpu", (ranks(),))
    between = Shard(1) if sequence else Replicate()

    def rows() -> RowwiseParallel:
        return RowwiseParallel(output_layouts=between)

    plan: dict[str, Any] = {
        "head": ColwiseParallel(input_layouts=between, output_layouts=Shard(-1), use_local_output=False),
    }
    if sequence:
        plan["norm"] = SequenceParallel()
    parallelize_module(model, mesh, plan)
    for layer in model.layers:  # type: ignore[union-attr]
        inner: dict[str, Any] = {f"attention.{name}": ColwiseParallel() for name in ("query", "key", "value")}
        inner |= {"attention.out": rows(), "perceptron.up": ColwiseParallel(), "perceptron.down": rows()}
        if layer.perceptron.gated:
            inner["perceptron.gate"] = ColwiseParallel()
        if sequence:
            gathered = PrepareModuleInput(
                input_layouts=(Shard(1), None, None),
                desired_input_layouts=(Replicate(), None, None),
            )
            inner |= {
                "norm1": SequenceParallel(),
                "norm2": SequenceParallel(),
                "attention": gathered,
                "perceptron": PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate()),
            }
        parallelize_module(layer, mesh, inner)
    if sequence:
        _divide_by_sequence(model, mesh)


def _divide_by_sequence(model: Any, mesh: Any) -> None:
    """The first layer's input, a plain tensor on every rank, becomes this rank's shard of the sequence."""
    from torch.distributed.tensor import DTensor, Replicate, Shard

    def divide(_module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        whole = DTensor.from_local(args[0], mesh, [Replicate()], run_check=False)
        return (whole.redistribute(placements=[Shard(1)]).to_local(), *args[1:])

    model.layers[0].register_forward_pre_hook(divide)


def _distributed(x: Tensor) -> bool:
    from torch.distributed.tensor import DTensor

    return isinstance(x, DTensor)


def _full(x: Tensor) -> Tensor:
    return x.full_tensor() if _distributed(x) else x  # type: ignore[attr-defined]


def _clip(kinds: Sequence[Sequence[Tensor]], max_norm: float) -> None:
    """Clips the norm of the gradients of all kinds together."""
    gradients = [[p.grad for p in kind if p.grad is not None] for kind in kinds]
    norms = [_full(nn.utils.get_total_norm(each)) for each in gradients if each]
    norm = torch.stack(norms).square().sum().sqrt()
    for kind in kinds:
        nn.utils.clip_grads_with_norm_(kind, max_norm, norm)


# Of the weights, which three steps change by some 1e-2. AdamW amplifies rounding errors of small gradients.
WORKLOAD = Workload(list(SIZES), reference, contenders, checked_steps=3, tolerance=1e-5)
