"""What `IST.explain` gives: the layers, what a round moves, what each site stores, and the plan of the next round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from joinsum.algebra.plan import IaPlan
from joinsum.base.text_table import count_text, text_table
from joinsum.ist.layers.hidden_layers import HiddenLayer
from joinsum.ist.subnets.sampling import Chunks
from joinsum.planner.cost import PlanCost

__all__ = ["Report"]


@dataclass(frozen=True)
class Report:
    """Prints as text.

    layers            that are cut
    uncut             producers that are not, and why
    sites, every      as of the IST
    local_sgd_bytes   between sites in a round of local SGD: an all-reduce of all parameters
    site_bytes        of a site's own subnet, of what rests there and copies (the mean of this process's sites), and of
                      a whole model, each with the optimizer's state
    ahead_bytes       between sites of what has moved, or moves now, while the round trains
    cost, plan        of the next exchange, as one plan also where it is run in parts; None on one site
    """

    layers: Sequence[HiddenLayer]
    chunks: Mapping[str, Chunks]
    uncut: Mapping[str, str]
    sites: int
    every: int | None
    local_sgd_bytes: int
    site_bytes: tuple[int, int, int]
    ahead_bytes: int
    cost: PlanCost | None
    plan: IaPlan | None

    @property
    def round_bytes(self) -> int:
        """Between sites in this round and its exchange, exactly: what the transports count."""
        return 0 if self.cost is None else self.ahead_bytes + self.cost.wire_bytes

    @property
    def data_parallel_bytes(self) -> int:
        """Between sites in as many steps of data parallel training, an all-reduce each; one where `every` is None."""
        return self.local_sgd_bytes * (self.every or 1)

    def __str__(self) -> str:
        trained, resting, whole = self.site_bytes
        parts = [
            f"independent subnet training on {self.sites} sites, steps a round: {self.every or 'as the loop says'}",
            self._layer_table(),
            *([f"not cut: {'; '.join(f'{name}: {why}' for name, why in self.uncut.items())}"] if self.uncut else []),
            text_table(
                ["between sites, a round", "bytes"],
                [
                    ["subnets", count_text(self.round_bytes)],
                    *([["  of these while they train", count_text(self.ahead_bytes)]] if self.ahead_bytes else []),
                    ["local SGD (all-reduce of the model)", count_text(self.local_sgd_bytes)],
                    ["data parallel (an all-reduce a step)", count_text(self.data_parallel_bytes)],
                ],
                right=[1],
            ),
            text_table(
                ["on a site, with the optimizer's state", "bytes"],
                [
                    ["its subnet", count_text(trained)],
                    ["weights that rest", count_text(resting)],
                    ["the full model, as data parallel needs it", count_text(whole)],
                ],
                right=[1],
            ),
            "approximate: subnets train another objective than the full model's gradient (docs/ist.md)",
            *([f"plan of the next exchange\n{self.cost}"] if self.cost is not None else []),
        ]
        return "\n\n".join(parts)

    def __repr__(self) -> str:
        return str(self)

    def _layer_table(self) -> str:
        rows = [
            [
                layer.name,
                str(layer.neurons),
                str(self.chunks[layer.name].count),
                _range(self.chunks[layer.name].neurons_of_sites),
                ", ".join(dict.fromkeys(each.module for each in layer.members)),
                f"inputs of consumers times {self.sites}" if layer.scaled else "",
            ]
            for layer in self.layers
        ]
        header = ["hidden layer", "neurons", "chunks", "a site", "modules", "in training"]
        return text_table(header, rows, right=[1, 2, 3])


def _range(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low}-{high}"
