"""What Dynamo refuses because of a module or a function of torch: which one it is, and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import torch
from torch.nn.modules.batchnorm import _BatchNorm

__all__ = ["refusal_of_torch"]

_FRAME = re.compile(r'File "[^"]*/torch/(nn/[^"]+)\.py", line \d+, in (\w+)\n')
_CAUSE = re.compile(r"^Caused by: .*\((nn/[\w/]+)\.py:\d+ in (\w+)\)$", re.MULTILINE)
_CALLING = ("nn/modules/module", "nn/modules/container")
_OWN_LOOP = "compute the model with joinsum.distribute and this function by plain torch"
_READ_PAST = (
    r"Please convert all Tensors to FakeTensors first",
    r"^Failed to convert args/kwargs to proxy",
    r"^autograd\.grad with external grad_fn",
)


def refusal_of_torch(text: str, model: torch.nn.Module | None) -> tuple[str, str] | None:
    """What is refused and a remedy, from Dynamo's message, if a module of the model or a function of torch is the
    cause."""
    message, _, _ = text.partition("from user code:")
    for find in (_backward_hook, _cumulative_average, _drawn_by_transformers, _values_in_torch, _read_past_inputs):
        found = find(message, text, model)
        if found is not None:
            return found
    return None


def _backward_hook(message: str, _: str, model: torch.nn.Module | None) -> tuple[str, str] | None:
    """Hooks on a module's backward pass; where the old kind of them runs, Dynamo names a tensor alone."""
    hooks = dict(_backward_hooks(model))
    if "Module-level backwards hooks" not in message and not ("Tensor with grad_fn()" in message and hooks):
        return None
    which = [f": module={name or 'the model'}, hook={hook}" for name, hook in hooks.items()]
    return (
        f"a module has a hook on its backward pass, which cannot be captured{which[0] if which else ''}",
        "remove the hook, or register it on a tensor in the forward pass or on a parameter: tensor.register_hook, "
        "parameter.register_hook",
    )


def _backward_hooks(model: torch.nn.Module | None) -> Iterator[tuple[str, str]]:
    """The modules with hooks on their backward passes, each with the name of one."""
    for name, module in () if model is None else model.named_modules():
        for hook in (*module._backward_hooks.values(), *module._backward_pre_hooks.values()):
            yield name, getattr(hook, "__qualname__", type(hook).__name__)


def _cumulative_average(message: str, text: str, model: torch.nn.Module | None) -> tuple[str, str] | None:
    """Batch norm that averages over all batches."""
    if "data-dependent" not in message or "nn/modules/batchnorm.py" not in text:
        return None
    averaging = _paths(model, lambda x: isinstance(x, _BatchNorm) and x.momentum is None)[:1]
    return (
        f"batch norm with momentum=None divides by the number of batches so far, a tensor's value{_named(averaging)}",
        "give it a number, as momentum=0.1; where torch.optim.swa_utils.update_bn sets None, make the averaged model "
        "plain before, joinsum.gather(averaged)",
    )


def _drawn_by_transformers(message: str, text: str, _: torch.nn.Module | None) -> tuple[str, str] | None:
    """What models of transformers draw in training by numbers that are no tensors: settings switch it off."""
    if "data-dependent" not in message.lower() or "/transformers/models/" not in text:
        return None
    last = text.rpartition("/transformers/models/")[2]
    if "compute_num_masked_span" in last or "_compute_mask_indices" in last:
        return (
            "the model masks spans of its input, which transformers draws with numpy (SpecAugment)",
            "switch it off, model.config.apply_spec_augment = False, or mask the input before the model",
        )
    if any(name in last for name in ("layerdrop", "layer_drop", "skip_the_layer")):
        return (
            "the model skips layers by a number that it draws in each call (layer drop)",
            "set layerdrop to 0: in the config before the model is made, or that attribute of its encoder and decoder",
        )
    return None


def _values_in_torch(message: str, text: str, model: torch.nn.Module | None) -> tuple[str, str] | None:
    """Shapes or branches that depend on values, in code of torch's."""
    if "aten._ctc_loss" in message:
        which = _named(_paths(model, lambda x: isinstance(x, torch.nn.CTCLoss)))
        return (
            f"ctc_loss reads the values of its lengths{which}",
            "compute the model with joinsum.distribute and the loss by plain torch",
        )
    where = _function_of_torch(message, text)
    if where is None or "data-dependent" not in message:
        return None
    code = where.rpartition(".")[0]
    return (
        f"a shape or a branch depends on tensors' values, in {where}"
        f"{_named(_paths(model, lambda x: type(x).__module__ == code))}",
        f"write what it computes with tensor operations and torch.where, or {_OWN_LOOP}",
    )


def _read_past_inputs(message: str, _: str, __: torch.nn.Module | None) -> tuple[str, str] | None:
    """Tensors that cannot be inputs of the graph, and operators that read one which is none."""
    if not any(re.search(pattern, message, re.MULTILINE) for pattern in _READ_PAST):
        return None
    shape = re.search(r"tensor\(\[\.\.\.\], size=\(([\d, ]*)\), requires_grad", message)
    return (
        "a tensor that is neither an input nor the model's is read, such as a parameter that only a custom operator "
        "knows, one of another distributed model, or a result computed from parameters before"
        f"{'' if shape is None else ': shape=' + str([int(n) for n in shape[1].split(',') if n])}",
        "make it a parameter of the model or of a loss function that is a module, and compute with it there",
    )


def _function_of_torch(message: str, text: str) -> str | None:
    """The function of torch.nn in which Dynamo stopped, with its module."""
    cause = _CAUSE.search(message)
    found = [cause.groups()] if cause is not None else _FRAME.findall(text)
    own = [each for each in found if each[0] not in _CALLING]
    return f"torch.{own[-1][0].replace('/', '.')}.{own[-1][1]}" if own else None


def _paths(model: torch.nn.Module | None, matches: Callable[[torch.nn.Module], bool]) -> list[str]:
    """The paths of the modules that match."""
    modules = () if model is None else model.named_modules()
    return [name or "the model" for name, module in modules if matches(module)]


def _named(paths: list[str]) -> str:
    """The module at fault; nothing where it may be several ones."""
    return f": module={paths[0]}" if len(paths) == 1 else ""
