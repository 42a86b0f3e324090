"""Where the weights of subnets are, one by one, by the rules of docs/ist.md, without plans, chunks and bundles; what an
exchange must move follows from that."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import joinsum
import torch
from torch import nn

# For each hidden layer, the site that trains each neuron.
Owners = Sequence[torch.Tensor]


def stack(widths: Sequence[int], bare: bool = False, statistics: bool = False) -> nn.Sequential:
    """Linear, LayerNorm and ReLU for each hidden layer, and a last Linear; with `bare` only matrices have weights, with
    `statistics` the norms are BatchNorms."""
    modules: list[nn.Module] = []
    for features, hidden in pairwise(widths[:-1]):
        norm = nn.BatchNorm1d(hidden) if statistics else nn.LayerNorm(hidden, elementwise_affine=not bare)
        modules += [nn.Linear(features, hidden, bias=not bare), norm, nn.ReLU()]
    return nn.Sequential(*modules, nn.Linear(widths[-2], widths[-1], bias=not bare))


def owners(ist: joinsum.IST, widths: Sequence[int]) -> list[torch.Tensor]:
    """Of a `stack`; each neuron is on one site."""
    found = []
    for number, neurons in enumerate(widths[1:-1]):
        sites = torch.full((neurons,), -1)
        for site in range(joinsum.sites()):
            own = ist.neurons(str(3 * number), site)
            assert (sites[own] == -1).all()
            sites[own] = site
        assert (sites >= 0).all()
        found.append(sites)
    return found


class Moved(NamedTuple):
    """Elements between each pair of sites, [from, to]: of weights that the next round trains, and of copies."""

    weights: torch.Tensor
    copies: torch.Tensor


class Locations:
    """The elements of a stack's cut tensors; `where` and `copies` are their sites, a tensor of them for each tensor."""

    def __init__(
        self,
        widths: Sequence[int],
        sites: int,
        first: Owners,
        fixed: bool = False,
        bare: bool = False,
        statistics: bool = False,
    ):
        self._sites, self._fixed = sites, fixed
        last = len(widths) - 2
        # Rows and columns of a matrix as numbers of hidden layers, and how many tensors there are of that kind.
        self._kinds = [
            *((number if number < last else None, number - 1 if number else None, 1) for number in range(last + 1)),
            # Bias, and the norm's weight and bias, running mean and variance.
            *((number, None, 0 if bare else 5 if statistics else 3) for number in range(last)),
        ]
        self._shapes = [
            *((rows, columns) for columns, rows in pairwise(widths)),
            *((neurons, 1) for neurons in widths[1:-1]),
        ]
        # Consecutive neurons have one home: of a matrix between two hidden layers, those of its rows.
        even = [torch.tensor([-(-site * each // sites) for site in range(sites)]) for each in widths[1:-1]]
        homes = [
            torch.searchsorted(starts, torch.arange(each), right=True) - 1
            for starts, each in zip(even, widths[1:-1], strict=True)
        ]
        self.homes = [each[0] for each in self._by_layer(homes)]
        trained = self.trained(first)
        self.where = [torch.where(at >= 0, at, home) for at, home in zip(trained, self.homes, strict=True)]
        self.copies = [(each + 1) % sites for each in self.where]

    def trained(self, of: Owners) -> list[torch.Tensor]:
        """The site that trains each element in a round, -1 of those that rest."""
        return [
            torch.where(each[0] == each[-1], each[0], -1)  # of one layer or two
            for each in self._by_layer(of)
        ]

    def _by_layer(self, of: Owners) -> list[list[torch.Tensor]]:
        """For each tensor, the sites of its elements' neurons, by the layer of its rows and that of its columns."""
        return [
            [
                *([] if rows is None else [of[rows][:, None].expand(shape)]),
                *([] if columns is None else [of[columns][None, :].expand(shape)]),
            ]
            for (rows, columns, _), shape in zip(self._kinds, self._shapes, strict=True)
        ]

    def counted(self, chosen: Sequence[torch.Tensor], sites: Sequence[torch.Tensor]) -> torch.Tensor:
        """How many of the chosen elements are on each site."""
        counts = torch.zeros(self._sites, dtype=torch.long)
        for (_, _, times), which, at in zip(self._kinds, chosen, sites, strict=True):
            counts += times * torch.bincount(at[which], minlength=self._sites)
        return counts

    def _between(
        self, chosen: Sequence[torch.Tensor], source: list[torch.Tensor], to: list[torch.Tensor]
    ) -> torch.Tensor:
        """How many of the chosen elements go from each site to each other one."""
        found = torch.zeros(self._sites**2, dtype=torch.long)
        for (_, _, times), which, a, b in zip(self._kinds, chosen, source, to, strict=True):
            found += times * torch.bincount((a * self._sites + b)[which & (a != b)], minlength=self._sites**2)
        return found.view(self._sites, self._sites)

    def exchange(self, before: Owners, after: Owners) -> Moved:
        """What the exchange between two rounds moves."""
        trained, following = self.trained(before), self.trained(after)
        active, next_active = [each >= 0 for each in trained], [each >= 0 for each in following]
        if self._fixed:  # back to the homes, and from there to the sites of the next round
            weights = self._between(active, trained, self.homes) + self._between(next_active, self.homes, following)
            return Moved(weights, torch.zeros_like(weights))
        owned = [torch.where(on, at, rested) for on, at, rested in zip(active, trained, self.where, strict=True)]
        then = [torch.where(on, at, own) for on, at, own in zip(next_active, following, owned, strict=True)]
        weights = self._between([torch.ones_like(each) for each in active], owned, then)
        # What has been trained and stays gets a copy on the next site.
        stays = [on & (a == b) for on, a, b in zip(active, owned, then, strict=True)]
        copies = self._between(stays, owned, [(each + 1) % self._sites for each in owned])
        self.copies = [self._next_copies(*each) for each in zip(self.copies, active, owned, then, strict=True)]
        self.where = then
        assert not any((at == copy).any() for at, copy in zip(self.where, self.copies, strict=True))
        return Moved(weights, copies)

    def _next_copies(
        self, copies: torch.Tensor, active: torch.Tensor, owned: torch.Tensor, then: torch.Tensor
    ) -> torch.Tensor:
        """What moves leaves its value where it was, if it has been trained or would meet its copy; what rested keeps
        its copy otherwise."""
        left = (active & (owned != then)) | (then == copies)
        return torch.where(active & (owned == then), (owned + 1) % self._sites, torch.where(left, owned, copies))
