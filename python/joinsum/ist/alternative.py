"""Independent subnet training as an alternative to a planned step: what it would move, by expectation."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from joinsum.base.errors import PlanError
from joinsum.base.text_table import count_text
from joinsum.ist.layers.discovery import find_layers
from joinsum.ist.layers.distributed_models import refuse_distributed
from joinsum.ist.layers.hidden_layers import cut_tensors

__all__ = ["SubnetAlternative", "subnet_alternative"]


@dataclass(frozen=True)
class SubnetAlternative:
    """What `joinsum.IST` would move instead; it trains another objective, so no planner chooses it.

    every        steps of a round
    wire_bytes   between sites in a step on average: of weights, without the optimizer's moments, which multiply those
                 of cut tensors
    share        of the parameters that a site trains
    reason       why the model cannot be trained so, or None
    """

    sites: int
    every: int
    wire_bytes: float
    share: float
    reason: str | None = None

    def __str__(self) -> str:
        what = "approximate, another training: independent subnets (joinsum.IST, docs/ist.md)"
        if self.reason is not None:
            return f"{what}: none, as joinsum.IST(model, ...) refuses this model: {self.reason.removeprefix('IST: ')}"
        moved = f"{count_text(self.wire_bytes)} wire B a step on average in rounds of {self.every} steps"
        return f"{what}: {moved}, for weights alone; a site trains {self.share:.0%} of the parameters"


def subnet_alternative(model: nn.Module, sites: int, every: int = 10) -> SubnetAlternative:
    """What a model's subnets would move, with all its hidden layers cut that can be.

    >>> model = nn.Sequential(nn.Linear(8, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 4))
    >>> print(subnet_alternative(model, sites=4))
    approximate, another training: independent subnets (joinsum.IST, docs/ist.md): 298 wire B a step on average in \
rounds of 10 steps, for weights alone; a site trains 25% of the parameters
    """
    try:
        refuse_distributed(model)
        layers = find_layers(model, False, None).layers
        cuts = {cut.name: len(cut.axes) for cut in cut_tensors(model, layers)}
    except PlanError as error:
        return SubnetAlternative(sites, every, 0.0, 0.0, str(error))
    narrow = [f"layer={layer.name}, neurons={layer.neurons}" for layer in layers if layer.neurons < sites]
    if narrow:
        reason = f"fewer neurons than sites: {narrow[0]}, sites={sites}"
        return SubnetAlternative(sites, every, 0.0, 0.0, reason)
    moved, trained, total = 0.0, 0.0, 0
    for name, parameter in model.named_parameters():
        size = parameter.numel() * parameter.element_size()
        times = cuts.get(name, 0)
        # Of a cut tensor 1/n^(times - 1) is active in a round, on some site, and 1 - 1/n of that has to move; one that
        # all sites have is averaged.
        active = size / sites ** (times - 1) if times else 0.0
        moved += (1 - 1 / sites) * active if times else 2.0 * (sites - 1) * size
        trained += size / sites**times
        total += size
    return SubnetAlternative(sites, every, moved / every, trained / max(total, 1))
