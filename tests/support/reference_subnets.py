"""Independent subnet training by its definition, in plain torch: narrower models that a test builds itself, whose
tensors are taken from the full model's by `index_select` and written back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import joinsum
import torch
from torch import nn

# For each axis of a tensor that is cut, the hidden layer and the consecutive elements of a neuron there.
Axes = Mapping[str, Mapping[int, tuple[str, int]]]
Build = Callable[[Mapping[str, int]], nn.Module]
Make = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
Step = Callable[[nn.Module, torch.optim.Optimizer, Any], None]


def tensors_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers by name."""
    return dict((*model.named_parameters(), *model.named_buffers()))


class ReferenceSubnets:
    """The full model between rounds.

    build   a model in which hidden layers have so many neurons, by layer
    axes    of the tensors that are cut
    make    an optimizer of torch with elementwise states that start at zero
    """

    def __init__(self, model: nn.Module, build: Build, axes: Axes, make: Make, sites: int) -> None:
        self.full = {name: tensor.detach().clone() for name, tensor in tensors_of(model).items()}
        assert set(axes) <= set(self.full)
        self._build, self._axes, self._make = build, axes, make
        self._layers = {layer for each in axes.values() for layer, _ in each.values()}
        self._states: dict[str, dict[str, torch.Tensor]] = {}
        self._site_states: list[dict[str, dict[str, Any]]] = [{} for _ in range(sites)]

    def round(self, ist: joinsum.IST, data: Sequence[Sequence[Any]], step: Step) -> None:
        """Trains each site's subnet of the round that `ist` has begun, with the site's batches."""
        trained = []
        for site, batches in enumerate(data):
            own = {layer: ist.neurons(layer, site) for layer in self._layers}
            model = self._build({layer: len(neurons) for layer, neurons in own.items()})
            optimizer = self._make(model.parameters())
            for name, tensor in tensors_of(model).items():
                tensor.data = self._of(self.full[name], name, own).clone()
                state = {key: self._of(value, name, own).clone() for key, value in self._states.get(name, {}).items()}
                state |= self._site_states[site].get(name, {})
                if state:
                    optimizer.state[tensor] = state
            for batch in batches:
                step(model, optimizer, batch)
            trained.append((own, tensors_of(model), optimizer))
        for site, (own, tensors, optimizer) in enumerate(trained):
            for name, tensor in tensors.items():
                if name in self._axes:
                    self._write(self.full[name], name, own, tensor.detach())
                for key, value in optimizer.state.get(tensor, {}).items():
                    if name in self._axes and isinstance(value, torch.Tensor) and value.shape == tensor.shape:
                        whole = self._states.setdefault(name, {}).setdefault(key, torch.zeros_like(self.full[name]))
                        self._write(whole, name, own, value)
                    else:
                        self._site_states[site].setdefault(name, {})[key] = value
        for name in self.full.keys() - self._axes.keys():
            values = [tensors[name].detach() for _, tensors, _ in trained]
            self.full[name] = torch.stack(values).mean(0) if values[0].is_floating_point() else values[0]

    def assert_equal(self, model: nn.Module, tolerance: float) -> None:
        """Compares the full model with that of `ist.gather`."""
        found = tensors_of(model)
        assert found.keys() == self.full.keys()
        for name, wanted in self.full.items():
            torch.testing.assert_close(found[name].detach(), wanted, rtol=tolerance, atol=tolerance, msg=name)

    def _indices(self, name: str, own: Mapping[str, Sequence[int]]) -> dict[int, torch.Tensor]:
        return {
            axis: torch.tensor([neuron * block + place for neuron in own[layer] for place in range(block)])
            for axis, (layer, block) in self._axes.get(name, {}).items()
        }

    def _of(self, tensor: torch.Tensor, name: str, own: Mapping[str, Sequence[int]]) -> torch.Tensor:
        for axis, index in self._indices(name, own).items():
            tensor = tensor.index_select(axis, index)
        return tensor

    def _write(self, whole: torch.Tensor, name: str, own: Mapping[str, Sequence[int]], value: torch.Tensor) -> None:
        indices = self._indices(name, own)
        grid = [indices.get(axis, torch.arange(extent)) for axis, extent in enumerate(whole.shape)]
        whole[torch.meshgrid(*grid, indexing="ij")] = value


def compare_rounds(
    model: nn.Module,
    build: Build,
    axes: Axes,
    make: Make,
    batches: Sequence[Any],
    step: Step,
    *,
    rounds: int,
    tolerance: float = 1e-9,
    **options: Any,
) -> joinsum.IST:
    """Trains the model with joinsum on the context's sites, and in plain torch; the results must be equal, and not
    what the model was before."""
    sites = joinsum.sites()
    reference = ReferenceSubnets(model, build, axes, make, sites)
    before = {name: tensor.clone() for name, tensor in reference.full.items()}
    optimizer = make(model.parameters())
    every = len(batches) // (rounds * sites)
    assert every * rounds * sites == len(batches)
    ist = joinsum.IST(model, optimizer, every=every, **options)
    for number in range(rounds):
        mine = batches[number * every * sites : (number + 1) * every * sites]
        reference.round(ist, [mine[site::sites] for site in range(sites)], step)
        for batch in mine:
            step(model, optimizer, batch)
        assert ist.rounds == number + 1
    ist.gather()
    reference.assert_equal(model, tolerance)
    assert all(not torch.equal(reference.full[name], x) for name, x in before.items() if x.dim() > 1)
    return ist
