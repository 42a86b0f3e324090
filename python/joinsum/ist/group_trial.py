"""Tries whether a forward pass follows the neurons of hidden layers that were named, where torch.fx cannot tell.

The law: a subnet computes what a network with more neurons computes whose consumers have zeros for the others. It is
tried when the model is first called, with random weights and the arguments of that call. Norms over the neurons
themselves apply only their parameters meanwhile, since they take in as many neurons as there are.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree

from joinsum.base.errors import PlanError
from joinsum.cluster.context import context
from joinsum.ist.layers import HiddenLayer
from joinsum.ist.modules import is_batch_norm, normalises_last_axis, set_counts
from joinsum.ist.tracing import unchanged

__all__ = ["try_at_first_call"]

# What other neurons change is at least so much of a result, and what depends on their number at most so much of that.
_MOVED, _EQUAL = 1e-4, 0.1

# Positional arguments and those by name.
Call = tuple[tuple[Any, ...], dict[str, Any]]


def try_at_first_call(model: nn.Module, layers: Sequence[HiddenLayer]) -> None:
    """Tries these layers before the model's next forward pass, which raises PlanError with a layer's name where it does
    not follow the neurons."""
    trial = _Trial(layers)
    trial.hook = model.register_forward_pre_hook(trial, with_kwargs=True)


class _Trial:
    """A hook that removes itself, and does nothing in copies of the model."""

    hook: Any

    def __init__(self, layers: Sequence[HiddenLayer]) -> None:
        self._layers = layers

    def __call__(self, model: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        torch.compiler.disable(self._try)(model, args, named)  # type: ignore[no-untyped-call]

    def _try(self, model: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        self.hook.remove()
        layers = [layer for layer in self._layers if _count(model, layer) < layer.neurons]
        if not layers:  # there are no subnets (any more)
            return
        device = next(model.parameters()).device
        with (
            context().preparing("run"),
            torch.no_grad(),
            unchanged(model),
            torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
            torch.autocast("cpu", enabled=False),
            torch.autocast(device.type, enabled=False),
        ):
            reason = _refusal(model, layers, (args, named))
            if reason is not None:
                raise PlanError(
                    f"IST: the neurons of a hidden layer cannot be dealt out: {reason}; name all modules that they "
                    "pass, or leave the layer out of layers"
                )

    def __deepcopy__(self, _: object) -> Any:
        return _nothing


def _nothing(*_: object) -> None:
    return None


def _refusal(model: nn.Module, layers: Sequence[HiddenLayer], call: Call) -> str | None:
    """Why the forward pass does not follow the neurons of a layer; changes modes, numbers and passes of modules."""
    for module in model.modules():
        module.training = module.training and is_batch_norm(module)
    for name in (member.module for layer in layers for member in layer.followers):
        norm = model.get_submodule(name)
        if normalises_last_axis(norm):
            norm.forward = types.MethodType(_without_statistics, norm)
    torch.manual_seed(0)
    values = {name: _random(x) for name, x in model.named_parameters()}
    values |= {name: _promoted(x) for name, x in model.named_buffers()}
    try:
        subnet = _results(model, values, call)
    except Exception as error:  # any error of the model's own code
        names = [layer.name for layer in layers]
        return f"with some of them the forward pass (in evaluation mode) raises {_first_line(error)}: layers={names}"
    for layer in layers:
        try:
            reason = _differs(model, layer, values, subnet, call)
        except Exception as error:  # any error of the model's own code
            reason = f"with more of them the forward pass (in evaluation mode) raises {_first_line(error)}"
        if reason is not None:
            return f"{reason}: layer={layer.name}"
    return None


def _differs(
    model: nn.Module,
    layer: HiddenLayer,
    values: Mapping[str, torch.Tensor],
    subnet: Sequence[torch.Tensor],
    call: Call,
) -> str | None:
    neurons = _count(model, layer)
    for member in layer.members:
        set_counts(model.get_submodule(member.module), member, 2 * neurons)
    zeros, others = (_results(model, _widened(layer, neurons, values, read), call) for read in (False, True))
    for member in layer.members:
        set_counts(model.get_submodule(member.module), member, neurons)
    if [x.shape for x in subnet] != [x.shape for x in zeros]:
        return "the shape of what the model returns depends on their number"
    moved = _distance(zeros, others)
    if not moved > _MOVED:
        return "what the model computes does not depend on them"
    if not _distance(zeros, subnet) <= _EQUAL * moved:
        return "with some of them the model computes something else"
    return None


def _count(model: nn.Module, layer: HiddenLayer) -> int:
    """The neurons of a layer that the model has at present."""
    producer = layer.producers[0]
    weight: torch.Tensor = model.get_submodule(producer.module).weight  # type: ignore[assignment]
    return weight.shape[producer.role.axes["weight"]] // producer.block


def _widened(
    layer: HiddenLayer, neurons: int, values: Mapping[str, torch.Tensor], read: bool
) -> dict[str, torch.Tensor]:
    """The tensors with another neuron behind each of these; consumers read the others, or have zeros for them."""
    found = dict(values)
    for members, zeros in ((layer.producers, False), (layer.followers, False), (layer.consumers, not read)):
        for member in members:
            for tensor, axis in member.role.axes.items():
                name = _name(member.module, tensor)
                if name in values:
                    own = values[name].unflatten(axis, (neurons, member.block))  # type: ignore[no-untyped-call]
                    other = torch.zeros_like(own) if zeros else 0.75 * own.roll(1, axis)
                    found[name] = torch.stack([own, other], axis + 1).flatten(axis, axis + 2)
    return found


def _name(module: str, tensor: str) -> str:
    return f"{module}.{tensor}" if module else tensor


def _results(model: nn.Module, values: Mapping[str, torch.Tensor], call: Call) -> list[torch.Tensor]:
    """The tensors of floating point that the model returns for copies of the arguments. Infinite elements, as of masks,
    are zeros."""
    torch.manual_seed(1)
    args, named = _pytree.tree_map(_promoted, call)
    buffers = {name: values[name].clone() for name, _ in model.named_buffers()}
    found = torch.func.functional_call(model, {**values, **buffers}, args, named)
    leaves = [x for x in _pytree.tree_leaves(found) if isinstance(x, torch.Tensor) and x.is_floating_point()]
    return [torch.nan_to_num(x, 0.0, 0.0, 0.0) for x in leaves if x.numel()]


def _distance(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> float:
    """The largest difference of two results, as a part of the first one's largest element."""
    pairs = zip(first, second, strict=True)
    return max((float((x - y).abs().max() / x.abs().max().clamp(min=1e-30)) for x, y in pairs), default=0.0)


def _random(parameter: torch.Tensor) -> torch.Tensor:
    """Values of a size that leaves results near 1."""
    found = torch.empty_like(parameter, dtype=torch.promote_types(parameter.dtype, torch.float32))
    if parameter.dim() < 2:
        return found.uniform_(0.5, 1.5)
    return found.normal_(std=max(*parameter.shape, 1) ** -0.5)


def _promoted(value: Any) -> Any:
    """A copy of a tensor, where it is of floating point in single precision at least."""
    if not isinstance(value, torch.Tensor):
        return value
    if not value.is_floating_point():
        return value.clone()
    return value.to(torch.promote_types(value.dtype, torch.float32), copy=True)


def _without_statistics(self: Any, x: torch.Tensor) -> torch.Tensor:
    """The forward pass of a norm that applies only its parameters."""
    x = x if self.weight is None else x * self.weight
    bias = getattr(self, "bias", None)
    return x if bias is None else x + bias


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
