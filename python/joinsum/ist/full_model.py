"""The full model beside the subnets: a copy of the module whose cut tensors are distributed over the sites."""

from __future__ import annotations

import copy
import inspect
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import nn
from torch.utils import _pytree as pytree

from joinsum.base.arguments import integer, show
from joinsum.base.errors import CaptureError, PlanError
from joinsum.cluster.context import context
from joinsum.frontend.distribute import distribute

__all__ = ["calibrated", "check_calibration", "empty_copy", "filled", "full_model", "has_shapes_of", "refill"]


def empty_copy(model: nn.Module) -> nn.Module:
    """The module with tensors on the device "meta", as are results of a graph that it has kept. Raises PlanError for a
    module that cannot be copied."""
    memo: dict[int, Any] = {}
    for tensor in (*model.parameters(), *model.buffers()):
        empty = torch.empty_like(tensor.detach(), device="meta")
        is_parameter = isinstance(tensor, nn.Parameter)
        memo[id(tensor)] = nn.Parameter(empty, requires_grad=tensor.requires_grad) if is_parameter else empty
    for _, _, value in _attributes(model):
        for leaf in pytree.tree_leaves(value):
            if isinstance(leaf, torch.Tensor) and not leaf.is_leaf:
                memo[id(leaf)] = torch.empty_like(leaf.detach(), device="meta")
    try:
        return copy.deepcopy(model, dict(memo))
    except Exception as error:  # of any module's own code
        culprit = next((f", {what}" for what in _not_copied(model, memo)), "")
        raise PlanError(
            "IST: the full model is a copy of the model, which cannot be copied; make the attribute where it is used, "
            f"or leave it out in the module's __getstate__: cause={type(error).__name__}: {error}{culprit}"
        ) from error


def _attributes(model: nn.Module) -> Iterator[tuple[str, str, Any]]:
    """What modules have beside tensors and submodules: the module's name, the attribute's and its value."""
    own = {"_parameters", "_buffers", "_modules"}
    for name, module in model.named_modules():
        yield from ((name, attribute, value) for attribute, value in vars(module).items() if attribute not in own)


def _not_copied(model: nn.Module, memo: Mapping[int, Any]) -> Iterator[str]:
    """The attributes that cannot be copied."""
    for name, attribute, value in _attributes(model):
        try:
            copy.deepcopy(value, dict(memo))
        except Exception:  # of any class's own code
            yield f"module={name!r}, attribute={attribute}"


def filled(skeleton: nn.Module, values: Mapping[str, torch.Tensor]) -> nn.Module:
    """A copy of an empty module with these tensors, by name."""
    model = copy.deepcopy(skeleton)
    new: dict[int, torch.Tensor] = {}  # a tensor that several modules have stays one
    for name, old in list(model.named_parameters(remove_duplicate=False)):
        if id(old) not in new:
            new[id(old)] = nn.Parameter(values[name], requires_grad=old.requires_grad)
        _set(model, name, new[id(old)])
    for name, buffer in list(model.named_buffers(remove_duplicate=False)):
        _set(model, name, new.setdefault(id(buffer), values.get(name, buffer)))
    return model


def _set(model: nn.Module, name: str, tensor: torch.Tensor) -> None:
    owner, _, attribute = name.rpartition(".")
    setattr(model.get_submodule(owner), attribute, tensor)  # an LSTM notes its parameters there


def full_model(skeleton: nn.Module, values: Mapping[str, torch.Tensor], data: Literal["whole", "sharded"]) -> nn.Module:
    """The module with these values in evaluation mode, which `joinsum.distribute` plans at its first call."""
    model = filled(skeleton, values).eval()

    def first_call(*args: Any, **keywords: Any) -> Any:
        del model.forward
        try:
            distribute(model, args, keywords, data=data)
        except BaseException as error:
            model.forward = first_call
            if not isinstance(error, CaptureError):
                raise
            raise CaptureError(
                f"IST: the full model cannot be planned: {str(error).removeprefix('distribute: ')}; ist.gather() ends "
                "the training of subnets and gives the plain model, and a checkpoint can be read into one"
            ) from error
        return model(*args, **keywords)

    model.forward = first_call
    return model


def has_shapes_of(model: nn.Module, values: Mapping[str, torch.Tensor]) -> bool:
    """Whether a full model has tensors of these shapes and dtypes; a forward pass may have changed those of buffers."""
    tensors = itertools.chain(model.named_parameters(), model.named_buffers())
    return all((x.shape, x.dtype) == (values[name].shape, values[name].dtype) for name, x in tensors)


def refill(model: nn.Module, values: Mapping[str, torch.Tensor]) -> None:
    """Gives a full model other values, of the same layouts, in evaluation mode."""
    with torch.no_grad():
        for name, tensor in itertools.chain(model.named_parameters(), model.named_buffers()):
            tensor.copy_(values[name])
    model.eval()


def check_calibration(batches: object, count: object) -> None:
    """Raises PlanError where there are no batches to calibrate with, or no number of them."""
    is_iterable = any(hasattr(batches, name) for name in ("__iter__", "__getitem__"))
    if isinstance(batches, torch.Tensor) or not (batches is None or is_iterable):
        raise PlanError(
            "IST: full: calibrate is an iterable of batches, such as a DataLoader or a list of tensors: "
            f"calibrate={show(batches)}"
        )
    if count is not None and integer("IST: full", "batches", count) < 1:
        raise PlanError(f"IST: full: at least one batch: batches={count}")


def calibrated(model: nn.Module, loader: Iterable[object], batches: int | None) -> None:
    """Computes the running statistics of BatchNorm anew: their means over batches, each weighted alike. Raises
    PlanError where there is no batch, and on all ranks where one has no further batch or fails to load it."""
    norms = [each for each in model.modules() if isinstance(each, nn.modules.batchnorm._BatchNorm)]
    norms = [each for each in norms if each.track_running_stats and each.running_mean is not None]
    if not norms:
        return
    momenta = [each.momentum for each in norms]
    for each in norms:
        each.train()
        each.momentum = 1.0
    try:
        _average_statistics(model, norms, itertools.islice(loader, batches))
    finally:
        for each, momentum in zip(norms, momenta, strict=True):
            each.eval()
            each.momentum = momentum


@torch.no_grad()
def _average_statistics(model: nn.Module, norms: Sequence[Any], loader: Iterable[object]) -> None:
    sums: list[torch.Tensor] = []
    count = 0
    for batch in _on_all_ranks(loader):
        _call(model, batch)
        found = [statistic.clone() for each in norms for statistic in _statistics(each)]
        sums = [total.add_(new) for total, new in zip(sums, found, strict=True)] if sums else found
        count += 1
    statistics = [statistic for each in norms for statistic in _statistics(each)]
    for statistic, total in zip(statistics, sums, strict=True):
        statistic.copy_(total.div_(count))


def _on_all_ranks(loader: Iterable[object]) -> Iterator[object]:
    """The batches of a loader, of which all ranks have equally many."""
    current, end = context(), object()
    with current.preparing("IST"):
        batches = iter(loader)
    for count in itertools.count():
        with current.preparing("IST"):
            batch = next(batches, end)
            if batch is end and not count:
                raise PlanError("IST: there is no batch to calibrate norms with")
        if not current.single_process:
            found = "no batch" if batch is end else "a batch"
            current.transport.agree("IST", f"calibration, after {count} batches: {found}")
        if batch is end:
            return
        yield batch


def _statistics(norm: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return norm.running_mean, norm.running_var


def _call(model: nn.Module, batch: object) -> None:
    """Passes a batch: the first element of a tuple or list; a mapping by name, where its keys are the names of
    arguments, and else whole."""
    inputs = batch[0] if isinstance(batch, (tuple, list)) else batch
    if not isinstance(inputs, Mapping):
        model(inputs)
        return
    signature = inspect.signature(type(model).forward)
    named = [
        each for each in signature.parameters.values() if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    ][1:]
    required = {each.name for each in named if each.default is each.empty}
    if all(isinstance(key, str) for key in inputs):
        try:
            signature.bind(model, **inputs)
        except TypeError:
            pass  # other keys than forward's arguments
        else:
            model(**inputs)
            return
    refusal = (
        "IST: a batch to calibrate norms with is an input, a tuple or list whose first element is the input, or a "
        "mapping whose keys are the names of forward's arguments; pass (input, ...), or no other keys: "
        f"keys={list(inputs)}, arguments={[each.name for each in named]}"
    )
    if required and required <= {*inputs}:
        raise PlanError(refusal)
    try:
        model(inputs)
    except (AttributeError, CaptureError, KeyError, TypeError) as error:
        raise PlanError(f"{refusal}, cause={error}") from error
