"""What training costs in floats and flops by formula, as the thesis counts them, for fully connected networks.

`widths` are N0, ..., Nt: features, hidden layers, outputs. Hidden neurons are dealt out to `sites` sites, which take
`every` steps a round. Floats are received per gradient step, summed over all sites, one way; biases and norms do not
count. Source: thesis, section 2.4; `docs/ist.md` says where the printed sums are unclear.

>>> widths = (1000, 4000, 4000, 4000, 200)
>>> [round(subnet_floats(widths, sites, every=10) / 1e6, 3) for sites in (1, 2, 8)]
[3.68, 2.08, 0.88]
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

__all__ = ["data_parallel_floats", "local_sgd_floats", "moved_floats", "round_floats", "subnet_floats", "subnet_flops"]


def _weights(widths: Sequence[int]) -> tuple[int, int]:
    """Weights of the matrices that have an uncut side, and those of the others."""
    sizes = [rows * columns for rows, columns in pairwise(widths)]
    outer = sizes[0] + sizes[-1] if len(sizes) > 1 else 0
    return outer, sum(sizes) - outer


def round_floats(widths: Sequence[int], sites: int) -> float:
    """Weights that all sites together train in a round: V = N0 N1 + N(t-1) Nt + the sum of the others over n."""
    outer, middle = _weights(widths)
    return outer + middle / sites


def subnet_floats(widths: Sequence[int], sites: int, every: int) -> float:
    """Independent subnet training, per step: V over the steps of a round."""
    return round_floats(widths, sites) / every


def moved_floats(widths: Sequence[int], sites: int) -> float:
    """What travels between sites in a round on average when weights rest where they were trained: (1 - 1/n) V."""
    return (1 - 1 / sites) * round_floats(widths, sites)


def data_parallel_floats(widths: Sequence[int], sites: int) -> float:
    """Data parallel training, per step: every site receives the model."""
    return float(sites * sum(_weights(widths)))


def local_sgd_floats(widths: Sequence[int], sites: int, every: int) -> float:
    """Local SGD, per step: every site receives the model once in `every` steps."""
    return data_parallel_floats(widths, sites) / every


def subnet_flops(widths: Sequence[int], sites: int, batch: int) -> float:
    """Flops of a step of all sites by the thesis's count, 4 for each weight and example; `batch` is of one site."""
    return 4.0 * batch * round_floats(widths, sites)
