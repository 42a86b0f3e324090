"""The tensors that no layer cuts: every site trains them whole, and exchanges average them."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from joinsum.ist.subnets.averages import Averages
from joinsum.ist.subnets.bundles import Slice
from joinsum.ist.subnets.subnets import Subnets

__all__ = ["SharedTensors"]


class SharedTensors:
    """What the sites of this process have of them.

    last   their values, equal on all sites, when the last exchange had ended
    """

    def __init__(self, subnets: Subnets) -> None:
        self._subnets = subnets
        self.last = {Slice(name): subnets.value(subnets.active, name).clone() for name in subnets.uncut_names()}

    def averages(self, sites: int, states: bool) -> Averages[Slice]:
        """Means over so many sites; with `states` also of the optimizer's states for them."""
        base: dict[Slice, torch.Tensor] = {}
        if sites > 1:
            base |= {Slice(name): self.last[Slice(name)] for name in self._subnets.shared_names()}
            for each in self._subnets.shared_states() if states else ():
                base[each] = torch.zeros_like(self._subnets.array(self._subnets.active, each))
        values = [{each: self._subnets.array(site, each) for each in base} for site in self._subnets.sites]
        return Averages(base, values)

    def install(self, means: Mapping[Slice, torch.Tensor]) -> None:
        """Gives every site the means."""
        for each, mean in means.items():
            if each in self.last:
                self.last[each].copy_(mean)
            for site in self._subnets.sites:
                self._subnets.array(site, each).copy_(mean)
