"""What the modules of a model hold: parameters, buffers, submodules and other attributes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from operator import attrgetter
from typing import Any

import torch

from joinsum.base.identity import identical

__all__ = ["AttributeCopies", "ModuleTensors"]

_holders = attrgetter("_parameters", "_buffers", "_modules")


def _flat(parts: Any) -> list[Any]:
    return list(chain.from_iterable(parts))


class ModuleTensors:
    """Where the modules of a model hold tensors. Clears the weak references of recurrent layers.

    modules   the model and its submodules, each once
    tables    those of embeddings
    places    a dictionary or list, and the key or index, for each tensor that a module holds
    tensors   the tensor at each place
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.modules = list(model.modules())
        kinds = (torch.nn.Embedding, torch.nn.EmbeddingBag)
        self.tables = [each for each in self.modules if isinstance(each, kinds)]
        self._dictionaries = _flat(map(_holders, self.modules))
        self._lists = [_weights_of(each) for each in self.modules if isinstance(each, torch.nn.RNNBase)]
        self._contents = self._read()
        self.places: list[tuple[Any, Any]] = []
        for module in self.modules:
            for held in (module._parameters, module._buffers):
                self.places += [(held, name) for name, tensor in held.items() if tensor is not None]
        for weights in self._lists:
            self.places += [(weights, i) for i, weight in enumerate(weights) if weight is not None]
        self.tensors = [held[name] for held, name in self.places]

    def _read(self) -> tuple[list[Any], list[Any]]:
        values = chain.from_iterable([each.values() for each in self._dictionaries])
        return _flat(self._dictionaries), [*values, *chain.from_iterable(self._lists)]

    def unchanged(self) -> bool:
        """Whether the modules hold the same tensors and submodules as when this was made."""
        if not identical(_flat(map(_holders, self.modules)), self._dictionaries):
            return False
        weights = (each for each in self.modules if isinstance(each, torch.nn.RNNBase)) if self._lists else ()
        if not identical([each._flat_weights for each in weights], self._lists):
            return False
        keys, values = self._read()
        return keys == self._contents[0] and identical(values, self._contents[1])


def _weights_of(layer: torch.nn.RNNBase) -> list[Any]:
    weights: list[Any] = layer._flat_weights
    # They would show that the weights have been replaced, and torch cannot swap a tensor that has one.
    layer._flat_weight_refs = [None] * len(weights)
    return weights


class AttributeCopies:
    """Copies of all that the modules of a model hold but its submodules, to see and undo assignments."""

    def __init__(self, modules: list[torch.nn.Module]) -> None:
        self._held: list[dict[str, Any]] = []
        for module in modules:
            self._held += (module.__dict__, module._parameters, module._buffers)
        self._copies = [each.copy() for each in self._held]

    def restore(self) -> None:
        """Undoes all assignments."""
        for values, old in zip(self._held, self._copies, strict=True):
            if values.keys() != old.keys() or not identical(list(values.values()), list(old.values())):
                values.clear()
                values.update(old)

    def convert_assigned(self, convert: Callable[[Any], Any]) -> bool:
        """Replaces by `convert` what has been assigned since the copies were made; returns whether there is any."""
        found = False
        for values, old in zip(self._held, self._copies, strict=True):
            if values.keys() == old.keys() and identical(list(values.values()), list(old.values())):
                continue
            found = True
            for name, value in list(values.items()):
                if name not in old or old[name] is not value:
                    values[name] = convert(value)
        return found
