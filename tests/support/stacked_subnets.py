"""Stacks of Linear, norm and ReLU whose hidden layers are dealt out, and independent subnet training of them by its
definition: subnets cut, trained and put back by plain torch, for any optimizer of torch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import joinsum
import torch
from torch import nn

Optimizer = torch.optim.Optimizer
Make = Callable[[Iterable[nn.Parameter]], Optimizer]


def mlp(
    *widths: int, norm: type[nn.Module] = nn.BatchNorm1d, seed: int = 1, dtype: Any = None, bias: bool = True
) -> nn.Sequential:
    """Linear (with `bias`), norm and ReLU for each hidden layer, and a last Linear."""
    torch.manual_seed(seed)
    modules: list[nn.Module] = []
    for features, hidden in pairwise(widths[:-1]):
        modules += [nn.Linear(features, hidden, bias=bias), norm(hidden), nn.ReLU()]
    return nn.Sequential(*modules, nn.Linear(widths[-2], widths[-1])).to(dtype or torch.float32)


def batches(count: int, features: int, classes: int, dtype: Any = None) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(5)
    return [
        (
            torch.randn(12, features, generator=generator, dtype=dtype),
            torch.randint(0, classes, (12,), generator=generator),
        )
        for _ in range(count)
    ]


def step(model: nn.Module, optimizer: Optimizer, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
    optimizer.step()


class Reference:
    """A stack of `mlp` whose sites train copies of blocks, with states that follow the neurons."""

    def __init__(self, model: nn.Sequential, make: Make, sites: int) -> None:
        self.full = {
            name: tensor.detach().clone() for name, tensor in (*model.named_parameters(), *model.named_buffers())
        }
        self.states: dict[str, dict[str, torch.Tensor]] = {}
        self.first = {"step_size": 0.01}  # of states that do not start at zero
        self.steps: list[dict[str, dict[str, Any]]] = [{} for _ in range(sites)]
        self.own_states: list[dict[str, dict[str, torch.Tensor]]] = [{} for _ in range(sites)]
        self.make, self.sites = make, sites
        self.hidden = [str(place) for place, module in enumerate(model) if isinstance(module, nn.Linear)][:-1]
        self.norm, self.bias = type(model[1]), model[0].bias is not None

    def take(self, model: nn.Module, optimizer: Optimizer) -> None:
        """Begins with the states of an optimizer of the full model."""
        for name, parameter in model.named_parameters():
            for key, value in optimizer.state.get(parameter, {}).items():
                if not isinstance(value, torch.Tensor) or value.shape != parameter.shape:
                    for own in self.steps:
                        own.setdefault(name, {})[key] = copy.deepcopy(value)
                elif self.axes(name):
                    self.states.setdefault(name, {})[key] = value.clone()
                else:
                    for own in self.own_states:
                        own.setdefault(name, {})[key] = value.clone()

    def axes(self, name: str) -> dict[int, str]:
        """For each axis of a tensor that is cut, the hidden layer."""
        place, _, tensor = name.partition(".")
        number = int(place)
        if number % 3 == 1:
            return {0: str(number - 1)} if self.full[name].dim() else {}
        found = {0: place} if place in self.hidden else {}
        if tensor == "weight" and number:
            found[1] = str(number - 3)
        return found

    def round(self, neurons: Callable[[str, int], list[int]], data: list[list[Any]]) -> None:
        """Trains each site on its batches and writes back."""
        shared: list[dict[str, torch.Tensor]] = []
        results = []
        for site in range(self.sites):
            index = {layer: torch.tensor(neurons(layer, site)) for layer in self.hidden}
            widths = [self.full["0.weight"].shape[1], *(len(index[layer]) for layer in self.hidden)]
            last = max(int(name.partition(".")[0]) for name in self.full)
            widths.append(self.full[f"{last}.weight"].shape[0])
            model = mlp(*widths, norm=self.norm, dtype=self.full["0.weight"].dtype, bias=self.bias)
            optimizer = self.make(model.parameters())
            for name, tensor in (*model.named_parameters(), *model.named_buffers()):
                tensor.data.copy_(self.part(self.full[name], name, index))
                state = {key: self.part(value, name, index).clone() for key, value in self.states.get(name, {}).items()}
                state |= self.own_states[site].get(name, {}) | self.steps[site].get(name, {})
                if state:
                    optimizer.state[tensor] = state
            for batch in data[site]:
                step(model, optimizer, batch)
            results.append((index, model, optimizer))
        for site, (index, model, optimizer) in enumerate(results):
            shared.append({})
            for name, tensor in (*model.named_parameters(), *model.named_buffers()):
                cut = self.axes(name)
                if cut:
                    self.write(self.full[name], name, index, tensor.detach())
                else:
                    shared[-1][name] = tensor.detach()
                for key, value in optimizer.state.get(tensor, {}).items():
                    if not isinstance(value, torch.Tensor) or value.shape != tensor.shape:
                        self.steps[site].setdefault(name, {})[key] = value
                    elif cut:
                        first = torch.full_like(self.full[name], self.first.get(key, 0.0))
                        whole = self.states.setdefault(name, {}).setdefault(key, first)
                        self.write(whole, name, index, value)
                    else:
                        self.own_states[site].setdefault(name, {})[key] = value
        for name in shared[0]:
            if self.full[name].is_floating_point():
                self.full[name] = torch.stack([each[name] for each in shared]).mean(0)
            else:
                self.full[name] = shared[0][name]

    def part(self, tensor: torch.Tensor, name: str, index: dict[str, torch.Tensor]) -> torch.Tensor:
        for axis, layer in self.axes(name).items():
            tensor = tensor.index_select(axis, index[layer])
        return tensor

    def write(self, whole: torch.Tensor, name: str, index: dict[str, torch.Tensor], part: torch.Tensor) -> None:
        axes = self.axes(name)
        rows = index[axes[0]] if 0 in axes else torch.arange(whole.shape[0])
        if whole.dim() == 1:
            whole[rows] = part
        else:
            columns = index[axes[1]] if 1 in axes else torch.arange(whole.shape[1])
            whole[rows[:, None], columns[None, :]] = part


# A bias before a norm has no gradient but rounding errors, which a small eps would blow up.
OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, eps=1e-3),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True, eps=1e-3),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True, eps=1e-3),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05, initial_accumulator_value=0.1),
    "adadelta": lambda p: torch.optim.Adadelta(p, lr=0.5, eps=1e-3),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.01, eps=1e-3),
    "radam": lambda p: torch.optim.RAdam(p, lr=0.01, eps=1e-3),
    "adamax": lambda p: torch.optim.Adamax(p, lr=0.01, eps=1e-3),
    "asgd": lambda p: torch.optim.ASGD(p, lr=0.05, t0=4, lambd=0.1),
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
}


def train_both(
    reference: Reference, ist: joinsum.IST, model: nn.Module, own: Optimizer, data: list[Any], every: int
) -> None:
    """Whole rounds, which must end with the same full model."""
    sites, before = reference.sites, ist.rounds
    for number, start in enumerate(range(0, len(data), every * sites), before + 1):
        mine = data[start : start + every * sites]
        reference.round(ist.neurons, [mine[site::sites] for site in range(sites)])
        for batch in mine:
            step(model, own, batch)
        assert ist.rounds == number
    ist.gather()
    found = dict((*model.named_parameters(), *model.named_buffers()))
    for name, wanted in reference.full.items():
        torch.testing.assert_close(found[name].detach(), wanted, rtol=1e-10, atol=1e-10, msg=name)
