"""`torch.nn.functional.embedding_bag` by operators that have rules: its own one has results without elements beside the
bags, and mixes all rows of the table."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from joinsum.capture.decompositions.sparse_products import sparse_mm

__all__ = ["embedding_bag"]


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
    sparse: bool = False,
) -> Tensor:
    """The sums, means or maxima of bags of a table's rows [rows, width], as torch's function: [bags, width].

    input   indices of rows: a bag in each row, or with `offsets` one after the other
    sparse  whether the table's gradient is wanted as that of lookups

    Bags of one length are looked up and reduced along an axis, so that bags may be divided. Sums and means of others
    are the product of a sparse matrix and the table, whose rows may be divided, or with `sparse` the rows that are
    looked up. The row of `padding_idx` is finite.

    Raises RuntimeError while it runs where offsets are not in order, or do not begin with 0. `scale_grad_by_freq`
    divides by how often a row is looked up, on the CPU, too, where torch 2.13 divides by another row's number
    (https://github.com/pytorch/pytorch/issues/190063).

    >>> table = torch.tensor([[1., 2.], [3., 4.], [5., 6.]])
    >>> embedding_bag(torch.tensor([2, 0, 1]), table, torch.tensor([0, 2]), mode="sum")
    tensor([[6., 8.],
            [3., 4.]])
    """
    padding = None if padding_idx is None else padding_idx % weight.shape[0]
    lookup = _Lookup(input, weight, padding, scale_grad_by_freq, sparse)
    # torch's function is none that autocast changes.
    with torch.autocast(weight.device.type, enabled=False):
        bags = _Rows(lookup) if offsets is None else _Ragged(lookup, _starts(offsets, input, include_last_offset))
        return bags.largest() if mode == "max" else bags.total(per_sample_weights, mode == "mean")


def _starts(offsets: Tensor, input: Tensor, include_last: bool) -> Tensor:
    """The place of the first index of each bag."""
    count = input.shape[0]
    inside = offsets[-1] == count if include_last else offsets[-1] <= count
    ordered = (offsets == offsets.sort().values).all()
    message = f"embedding_bag: offsets grow from 0 to {'' if include_last else 'at most '}the number of indices"
    torch._assert_async((offsets[0] == 0) & inside & ordered, message)
    return offsets[:-1] if include_last else offsets


@dataclass(frozen=True)
class _Lookup:
    """Indices of rows of a table: those equal to `padding` do not count."""

    words: Tensor
    table: Tensor
    padding: int | None
    by_frequency: bool
    sparse: bool

    def rows(self) -> Tensor:
        """The row of each index."""
        return F.embedding(self.words, self.table, self.padding, scale_grad_by_freq=self.by_frequency)

    def rows_or_least(self) -> Tensor:
        """The row of each index; -inf in the place of padding."""
        rows = self.rows()
        return rows if self.padding is None else rows.masked_fill((self.words == self.padding)[..., None], -torch.inf)

    def weights(self, given: Tensor | None) -> Tensor | None:
        """The factor of each index; None where all are one."""
        if self.padding is None:
            return given
        counted = self.words != self.padding
        return counted.to(self.table.dtype) if given is None else given * counted


@dataclass(frozen=True)
class _Rows:
    """Bags of one length, each a row of the indices."""

    lookup: _Lookup

    def total(self, given: Tensor | None, mean: bool) -> Tensor:
        """The weighted sum, or the mean, of the rows in each bag."""
        rows, weights = self.lookup.rows(), self.lookup.weights(given)
        if weights is None:
            return rows.mean(1) if mean else rows.sum(1)
        total: Tensor = torch.ops.joinsum.einsum("bld,bl->bd", [rows, weights])
        return _divided(total, weights.float().sum(1)) if mean else total

    def largest(self) -> Tensor:
        """The greatest elements of the rows in each bag; the first one of several has the gradient."""
        return _without_empty(self.lookup.rows_or_least().max(1).values)


@dataclass(frozen=True)
class _Ragged:
    """Bags of any lengths, in the order of the indices; `starts` has the place of the first index of each."""

    lookup: _Lookup
    starts: Tensor

    def of_places(self) -> tuple[Tensor, Tensor]:
        """The places of indices, and the bag of each; of offsets that `_starts` refuses, any bag."""
        places = torch.arange(self.lookup.words.shape[0], device=self.starts.device)
        bags = torch.searchsorted(self.starts.long(), places, right=True) - 1
        return places, bags.clamp(min=0)

    def total(self, given: Tensor | None, mean: bool) -> Tensor:
        """The weighted sum, or the mean, of the rows in each bag."""
        places, bags = self.of_places()
        table, count = self.lookup.table, self.starts.shape[0]
        weights = self.lookup.weights(given)
        if weights is None:
            weights = table.new_ones(places.shape)
        looked_up = self.lookup.by_frequency or self.lookup.sparse
        rows, columns = (self.lookup.rows(), places) if looked_up else (table, self.lookup.words)
        total = sparse_mm(bags, columns, weights, rows, count)
        if not mean:
            return total
        return _divided(total, table.new_zeros(count, dtype=torch.float32).index_add(0, bags, weights.float()))

    def largest(self) -> Tensor:
        """The greatest elements of the rows in each bag; the first one of several has the gradient."""
        places, bags = self.of_places()
        rows, last = self.lookup.rows_or_least(), places.shape[0]
        shape = (self.starts.shape[0], rows.shape[1])
        index, values = bags[:, None].expand(rows.shape), rows.detach()
        largest = values.new_full(shape, -torch.inf).scatter_reduce(0, index, values, "amax")
        found = torch.where(values == largest.gather(0, index), places[:, None], last)
        first = places.new_full(shape, last).scatter_reduce(0, index, found, "amin")
        return _without_empty(torch.where(first == last, -torch.inf, rows.gather(0, first.clamp(max=last - 1))))


def _divided(total: Tensor, count: Tensor) -> Tensor:
    """Sums as means; zero where nothing was summed."""
    return (total / count.clamp(min=1)[:, None]).to(total.dtype)


def _without_empty(largest: Tensor) -> Tensor:
    """Zero in the place of maxima of no row."""
    return torch.where(largest.isneginf(), 0, largest)
