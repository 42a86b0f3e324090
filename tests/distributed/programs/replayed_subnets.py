"""What loopback sites train that play the ranks of `lost_subnets.py`: what must be known when some of them are lost."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import joinsum
import torch
from torch import nn

EVERY, SEED = 3, 7
# Batches of the ranks that are left are numbered from here on.
LATER = 100

Tensors = dict[str, torch.Tensor]


def new() -> tuple[nn.Sequential, torch.optim.Optimizer]:
    """A model, whose layers have as many chunks as neurons on two sites and on more, and its optimizer."""
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Linear(10, 13), nn.BatchNorm1d(13), nn.ReLU()),
        *(nn.Linear(13, 16), nn.BatchNorm1d(16), nn.ReLU()),
        nn.Linear(16, 4),
    )
    return model, torch.optim.Adam(model.parameters(), lr=0.01)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, number: int, site: int) -> None:
    """Step `number` of a site."""
    generator = torch.Generator().manual_seed(1000 * number + site)
    inputs = torch.randn(12, 10, generator=generator)
    classes = torch.randint(0, 4, (12,), generator=generator)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(inputs), classes).backward()
    optimizer.step()


def tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> Tensors:
    """The model's tensors, and the optimizer's moments as `<parameter> <moment>`."""
    found = {name: x.detach() for name, x in (*model.named_parameters(), *model.named_buffers())}
    found = {name: x.clone() for name, x in found.items() if x.is_floating_point()}
    for name, parameter in model.named_parameters():
        for moment in ("exp_avg", "exp_avg_sq"):
            found[f"{name} {moment}"] = optimizer.state[parameter].get(moment, torch.zeros_like(parameter)).clone()
    return found


@dataclass(frozen=True)
class Replay:
    """The full model of a training, the neurons of its sites, and each site's own moments of the output's bias."""

    full: Tensors
    neurons: dict[tuple[str, int], list[int]]
    own: dict[int, Tensors]


@cache
def replayed(sites: int, rounds: tuple[int, ...], steps: int) -> Replay:
    """Rounds of so many steps, and then some steps of another."""
    joinsum.init(sites=sites, cluster=joinsum.Cluster())
    model, optimizer = new()
    own: dict[int, Tensors] = {}
    site = 0

    def note(*_: object) -> None:
        state = optimizer.state[model[6].bias]
        own[site] = {moment: state[moment].clone() for moment in ("exp_avg", "exp_avg_sq")}

    optimizer.register_step_post_hook(note)
    ist = joinsum.IST(model, optimizer, every=None, seed=SEED)
    number = 0
    for place, length in enumerate((*rounds, steps)):
        for _ in range(length):
            for site in range(sites):
                train(model, optimizer, number, site)
            number += 1
        if place < len(rounds):
            ist.end_round()
    neurons = {(layer, each): ist.neurons(layer, each) for layer in ("0", "3") for each in range(sites)}
    ist.gather()
    return Replay(tensors(model, optimizer), neurons, own)


def layers_of(name: str) -> list[str | None]:
    """For each axis of a tensor, the hidden layer that cuts it."""
    place, _, tensor = name.split()[0].partition(".")
    rows = {"0": "0", "1": "0", "3": "3", "4": "3"}.get(place)
    columns = {"3": "0", "6": "3"}.get(place)
    return [rows, columns] if tensor == "weight" and place in ("0", "3", "6") else [rows]


def expected(sites: int, rounds: tuple[int, ...], left: dict[int, int], averaged: bool) -> Tensors:
    """What is known when some sites are left in a round: of each of them what it has trained, of all else what the
    round began with; of the moments of what all have, the mean.

    left       those sites, and the steps of each in the round
    averaged   whether a checkpoint that ended the last round has taken the mean of all sites before
    """
    found = dict(replayed(sites, rounds, 0).full)
    for site, steps in left.items():
        trained = replayed(sites, rounds, steps)
        for name, tensor in found.items():
            layers = layers_of(name)
            if any(layers):
                own = torch.ones_like(tensor, dtype=torch.bool)
                for axis, layer in enumerate(layers):
                    if layer is not None:
                        here = torch.zeros(tensor.shape[axis], dtype=torch.bool)
                        here[trained.neurons[layer, site]] = True
                        own &= here.view([-1 if each == axis else 1 for each in range(tensor.dim())])
                found[name] = torch.where(own, trained.full[name], tensor)
    if not averaged:
        for moment in ("exp_avg", "exp_avg_sq"):
            moments = [replayed(sites, rounds, steps).own[site][moment] for site, steps in left.items()]
            found[f"6.bias {moment}"] = torch.stack(moments).mean(0)
    return found


def later(folder: Path, steps: list[int]) -> Tensors:
    """What loopback sites train from the checkpoint on, each after so many steps, of which the checkpoint says one."""
    sites = len(steps)
    joinsum.init(sites=sites, cluster=joinsum.Cluster())
    model, optimizer = new()
    ist = joinsum.IST(model, optimizer, every=EVERY)
    ist.load_checkpoint(folder)
    for number in range(2 * EVERY):
        for site in range(sites):
            if number == 0:
                for state in optimizer.state.values():
                    state["step"].fill_(steps[site])
            train(model, optimizer, LATER + number, site)
    ist.gather()
    return tensors(model, optimizer)


def differing(found: Tensors, wanted: Tensors, close: bool) -> list[str]:
    """The tensors that are not equal; with `close`, means of moments may have rounding errors."""
    assert found.keys() == wanted.keys()

    def same(name: str) -> bool:
        if close and name.startswith("6.bias "):
            return torch.allclose(found[name], wanted[name], rtol=1e-5, atol=1e-9)
        return torch.equal(found[name], wanted[name])

    return [name for name in wanted if not same(name)]
