"""The modules of a loss function, whose parameters and buffers a training step keeps beside the model's."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch

__all__ = ["ModelAndLoss", "loss_modules"]


class ModelAndLoss(torch.nn.Module):
    """A model and the modules of its loss function, as one. The model's tensors keep their names; those of the loss
    function begin with `loss`.

    loss   the modules of the loss function by name, from `loss_modules`
    """

    def __init__(self, model: torch.nn.Module, loss: dict[str, torch.nn.Module]) -> None:
        super().__init__()
        prefix = "loss_function" if "loss" in model._modules else "loss"
        self._parts = {"": model} | {f"{prefix}.{name}" if name else prefix: x for name, x in loss.items()}
        self._loss = loss

    def named_modules(
        self, memo: set[torch.nn.Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, torch.nn.Module]]:
        """The model's modules and the loss function's, each once. `parameters`, `buffers` and `modules` follow it."""
        memo = set() if memo is None else memo
        for name, module in self._parts.items():
            path = f"{prefix}.{name}" if prefix and name else prefix or name
            yield from module.named_modules(memo, path, remove_duplicate)

    def loss_state(self) -> dict[str, Any]:
        """The state of the loss function's modules, by their own names."""
        found: dict[str, Any] = {}
        for name, module in self._loss.items():
            found |= module.state_dict(prefix=f"{name}." if name else "")
        return found

    def loss_parts(self) -> list[torch.nn.Module]:
        """The modules of the loss function."""
        return list(self._loss.values())


def loss_modules(
    function: Callable[..., Any] | None, model: torch.nn.Module, trained: Collection[int]
) -> dict[str, torch.nn.Module]:
    """The modules that hold a loss function's state and are not the model's, by name: the function itself or the module
    whose method it is, under the empty name; and those with a trained parameter that it reads as variables, as
    arguments of functools.partial or as attributes of its object.

    trained   the identities of the trained parameters
    """
    read: dict[str, Any] = {}
    while isinstance(function, functools.partial):
        read |= {str(i): x for i, x in enumerate(function.args)} | function.keywords
        function = function.func
    owner = getattr(function, "__self__", function)
    found = {"": owner} if isinstance(owner, torch.nn.Module) else {}
    for name, x in (_variables(function) | read).items():
        if isinstance(x, torch.nn.Module) and any(id(p) in trained for p in x.parameters()):
            found[name] = x
    own = set(model.modules())
    return {name: x for name, x in found.items() if x not in own}


def _variables(function: Any) -> dict[str, Any]:
    """The variables that a function reads besides its arguments, or the attributes of the object that is called."""
    function = inspect.unwrap(function) if isinstance(function, types.FunctionType) else function
    if isinstance(function, types.FunctionType):
        read = {name: function.__globals__[name] for name in function.__code__.co_names if name in function.__globals__}
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        read |= {name: cell.cell_contents for name, cell in cells if cell != types.CellType()}
        return read | {name: x.default for name, x in inspect.signature(function).parameters.items()}
    owner = getattr(function, "__self__", function)
    return {} if isinstance(owner, torch.nn.Module) else dict(getattr(owner, "__dict__", {}))
