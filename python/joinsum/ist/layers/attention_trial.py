"""Tries whether a module's forward pass follows the heads of a subnet.

The law: a module with the tensors of some heads computes what the whole one computes whose output projection is zero
for all other heads. It is tried on a copy with random weights, for some of the heads and for one head.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import nn

from joinsum.ist.layers.modules import Member, set_counts
from joinsum.ist.layers.tracing import random_states_kept

__all__ = ["differs_from_heads"]

_BATCH, _TOKENS = 2, 5
_OTHER_TOKENS = ("key_value_states", "encoder_hidden_states", "context", "memory", "kv")
# Of the largest element: results that are equal but for rounding, and ones of other heads.
_EQUAL, _OTHER = 1e-3, 1e-2


def differs_from_heads(
    module: nn.Module,
    producers: Sequence[Member],
    output: Member,
    neurons: int,
    features: Mapping[str, int],
    head_size: int,
    device: torch.device,
) -> str | None:
    """Why the forward pass does not follow the heads; None where it does. The members' names are relative to `module`.

    neurons     heads, or groups of heads that share a key and a value
    features    of the inputs: of "query", and of "key" where queries and keys have separate projections
    head_size   of rotary embeddings, where the forward pass takes these
    """
    with random_states_kept(device), torch.no_grad():
        torch.manual_seed(0)
        try:
            whole = _random_copy(module, device)
            named = _inputs(whole, features, head_size, device)
            full = _result(whole, named, output)
        except Exception as error:  # any error of the module's own code
            return f"it cannot be tried by itself: {_first_line(error)}"
        calls = [(named, full)]
        with suppress(Exception):  # where it takes no other tokens
            others = named | _other_tokens(whole, features, device)
            calls += [(others, _result(whole, others, output))]
        try:
            reasons = [
                _differs(whole, producers, output, neurons, heads, call)
                for heads in (list(range(0, neurons, 2)), [neurons - 1])
                for call in calls
            ]
        except Exception as error:  # any error of the module's own code
            return _first_line(error)
    return next((reason for reason in reasons if reason is not None), None)


def _differs(
    whole: nn.Module,
    producers: Sequence[Member],
    output: Member,
    neurons: int,
    heads: Sequence[int],
    call: tuple[Mapping[str, Any], torch.Tensor],
) -> str | None:
    named, full = call
    wanted = _result(_masked(whole, output, neurons, heads), named, output)
    found = _result(_cut(whole, (*producers, output), neurons, heads), named, output)
    scale = float(full.abs().max())
    if found.shape != wanted.shape or not float((found - wanted).abs().max()) <= _EQUAL * scale:
        return "with some of its heads it computes something else"
    if not float((full - wanted).abs().max()) > _OTHER * scale:
        return "what it computes does not depend on its heads"
    return None


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"


def _random_copy(module: nn.Module, device: torch.device) -> nn.Module:
    """A copy in evaluation mode whose parameters are random, of a size that leaves the results near 1."""
    memo: dict[int, Any] = {}
    for parameter in module.parameters():
        new = torch.randn(parameter.shape, device=device) / max(*parameter.shape, 1) ** 0.5
        if parameter.dim() < 2:
            new = torch.rand(parameter.shape, device=device) + 0.5
        memo[id(parameter)] = nn.Parameter(new, requires_grad=False)
    for buffer in module.buffers():
        if buffer.is_meta:
            memo[id(buffer)] = torch.rand(buffer.shape, device=device).to(buffer.dtype)
        elif buffer.is_floating_point():
            memo[id(buffer)] = buffer.to(device, torch.float32, copy=True)
        else:
            memo[id(buffer)] = buffer.to(device, copy=True)
    return copy.deepcopy(module, memo).eval()


def _inputs(module: nn.Module, features: Mapping[str, int], head_size: int, device: torch.device) -> dict[str, Any]:
    """Arguments by name for all parameters that have no default: random tokens, and no mask."""
    named: dict[str, Any] = {}
    for name, parameter in inspect.signature(module.forward).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if name == "position_embeddings":
            named[name] = tuple(torch.randn(1, _TOKENS, head_size, device=device) for _ in range(2))
        elif any(word in name for word in ("bias", "alibi", "head_mask")):
            raise ValueError(f"its argument may have numbers for each head: argument={name}")
        elif parameter.default is not parameter.empty:
            continue
        elif "mask" in name:
            named[name] = None
        else:
            role = "key" if any(not isinstance(each, tuple) for each in named.values() if each is not None) else "query"
            named[name] = torch.randn(_BATCH, _TOKENS, features[role], device=device)
    return named


def _other_tokens(module: nn.Module, features: Mapping[str, int], device: torch.device) -> dict[str, Any]:
    """Optional arguments that are the tokens of another sequence."""
    known = inspect.signature(module.forward).parameters
    return {
        name: torch.randn(_BATCH, _TOKENS + 1, features["key"], device=device)
        for name in _OTHER_TOKENS
        if name in known
    }


@contextmanager
def _counted(module: nn.Module) -> Iterator[list[object]]:
    calls: list[object] = []
    hook = module.register_forward_pre_hook(lambda *_: calls.append(None))
    try:
        yield calls
    finally:
        hook.remove()


def _result(module: nn.Module, named: Mapping[str, Any], output: Member) -> torch.Tensor:
    """The tensor that the module computes, or the first of several. Raises ValueError where it does not call its output
    projection once: what a subnet reads is multiplied when that is called."""
    with _counted(module.get_submodule(output.module)) as calls:
        found = module(**named)
    if len(calls) != 1:
        raise ValueError(f"it does not call its output projection once: module={output.module}, calls={len(calls)}")
    while not isinstance(found, torch.Tensor):
        found = found[0] if isinstance(found, (tuple, list)) else next(iter(found.values()))
    return found


def _masked(whole: nn.Module, output: Member, neurons: int, heads: Sequence[int]) -> nn.Module:
    """A copy whose output projection reads zeros for all other heads."""
    other = copy.deepcopy(whole)
    projection = other.get_submodule(output.module)
    for name, axis in output.role.axes.items():
        of_heads = getattr(projection, name).unflatten(axis, (neurons, output.block))
        mask = torch.zeros(neurons, device=of_heads.device)
        mask[list(heads)] = 1
        shape = [1] * of_heads.dim()
        shape[axis] = neurons
        getattr(projection, name).copy_((of_heads * mask.view(shape)).flatten(axis, axis + 1))
    return other


def _cut(whole: nn.Module, members: Sequence[Member], neurons: int, heads: Sequence[int]) -> nn.Module:
    """A copy with the tensors and numbers of some heads."""
    other = copy.deepcopy(whole)
    for member in members:
        owner = other.get_submodule(member.module)
        for name, axis in member.role.axes.items():
            tensor = getattr(owner, name)
            if tensor is not None:
                index = torch.tensor(list(heads), device=tensor.device)
                of_heads = tensor.unflatten(axis, (member.role.outer, neurons, member.block))
                own = of_heads.index_select(axis + 1, index).flatten(axis, axis + 2)
                setattr(owner, name, nn.Parameter(own, requires_grad=False))
        set_counts(owner, member, len(heads))
    return other
