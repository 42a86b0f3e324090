"""What travels between the sites: tensors of the model and of the optimizer's state, stacked where their shapes agree.

A bundle is one relation. Its array axis 0 counts the stacked tensors; the axes of neurons are cut into chunks, which
the key counts. A tensor between two hidden layers is cut along two axes, every other one along one.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from joinsum import _C
from joinsum.cluster.context import context
from joinsum.ist.layers.hidden_layers import Cut
from joinsum.ist.subnets.sampling import Assignment, Chunks

__all__ = ["Bundle", "Slice", "bundles_of", "exposed_shape", "without_key_axes"]

# Blocks of up to so many bytes come from the store's memory pool: fresh pages would take as long as the copies.
_POOLED_BYTES = 12 << 20


class Slice(NamedTuple):
    """A tensor of the model, or with `state` the tensor of that name in the optimizer's state for it."""

    tensor: str
    state: str | None = None


@dataclass(frozen=True)
class Bundle:
    """Tensors of one shape, dtype and cut.

    name     of its relation in plans
    shape    of a whole tensor, where an axis of `block` elements for each neuron, or of `outer` parts, is several axes
    cuts     for each layer that cuts it, the layer's name and the axis of `shape` that counts its neurons, ascending
    slices   what is stacked
    """

    name: str
    shape: tuple[int, ...]
    cuts: tuple[tuple[str, int], ...]
    dtype: torch.dtype
    slices: tuple[Slice, ...]

    def parts(self, chunks: Mapping[str, Chunks]) -> list[int]:
        """Parts of the axes of the stacked array."""
        counts = [1] * (1 + len(self.shape))
        for layer, axis in self.cuts:
            counts[1 + axis] = chunks[layer].count
        return counts

    def local_shape(self, chunks: Mapping[str, Chunks], site: int) -> list[int]:
        """Shape of the stacked array of what a site trains."""
        shape = [len(self.slices), *self.shape]
        for layer, axis in self.cuts:
            shape[1 + axis] = chunks[layer].neurons_of_sites[site]
        return shape

    def local_bytes(self, chunks: Mapping[str, Chunks], site: int) -> int:
        """Bytes of what a site trains."""
        return math.prod(self.local_shape(chunks, site)) * self.dtype.itemsize

    def split(self, most: int) -> list[Bundle]:
        """The same slices in bundles of at most so many."""
        starts = range(0, len(self.slices), max(most, 1))
        return [
            replace(self, name=f"{self.name}_{start}" if start else self.name, slices=self.slices[start : start + most])
            for start in starts
        ]

    # --- arrays -------------------------------------------------------------------------------------------------------

    def blocks(
        self, arrays: Sequence[torch.Tensor], type_: _C.RelationType, chunks: Mapping[str, Chunks], site: int
    ) -> list[torch.Tensor]:
        """The blocks in which a site stores what it trains, of an array of its shape for each slice: copies."""
        blocks = self.empty_blocks(type_, chunks, site, arrays[0].device)
        for of_blocks, of_array in self._views(blocks, arrays, type_, chunks, site):
            _copy(of_blocks, of_array)
        return blocks

    def read_blocks(
        self,
        blocks: Sequence[torch.Tensor],
        type_: _C.RelationType,
        chunks: Mapping[str, Chunks],
        site: int,
        arrays: Sequence[torch.Tensor],
    ) -> None:
        """Writes the blocks of a site into an array for each slice: the inverse of `blocks`."""
        for of_blocks, of_array in self._views(blocks, arrays, type_, chunks, site):
            _copy(of_array, of_blocks)

    def views(
        self, arrays: Sequence[torch.Tensor], type_: _C.RelationType, chunks: Mapping[str, Chunks], site: int
    ) -> list[torch.Tensor] | None:
        """The same as `blocks` in the memory of the arrays, which are contiguous; None where it lies in another
        order."""
        if len(self.slices) > 1 or len(self.cuts) > 1:
            return None
        (array,), ((_, axis),) = arrays, self.cuts
        (shape,) = self._block_shapes(type_, chunks, site)
        if _unlinked(type_) and axis > 0:
            return None
        return [array.view(shape)]

    def empty_blocks(
        self, type_: _C.RelationType, chunks: Mapping[str, Chunks], site: int, device: torch.device
    ) -> list[torch.Tensor]:
        """Uninitialized blocks of a site; unless they are large, in the memory pool of the context's store."""
        shapes = self._block_shapes(type_, chunks, site)
        pooled = self.local_bytes(chunks, site) <= _POOLED_BYTES
        with _C.TorchAllocations(context().store) if pooled else nullcontext():
            return [torch.empty(shape, dtype=self.dtype, device=device) for shape in shapes]

    def tuples_of_blocks(
        self, blocks: Sequence[torch.Tensor], type_: _C.RelationType, chunks: Mapping[str, Chunks], site: int
    ) -> dict[tuple[int, ...], torch.Tensor]:
        """The views of a site's blocks that are the arrays of its tuples, by their keys <p> or <p, q>."""
        unlinked = len(_unlinked(type_))
        layers = [chunks[layer] for layer, _ in self.cuts]
        if len(layers) == 2:
            arrays = [block.view(block.shape[unlinked:]) for block in blocks]
        elif unlinked:
            arrays = list(blocks[0].unbind())
        else:
            arrays = self._by_position(blocks[0], chunks, site, 1)
        keys = itertools.product(*(layer.positions(site) for layer in layers))
        return dict(zip(keys, arrays, strict=True))

    def _block_shapes(self, type_: _C.RelationType, chunks: Mapping[str, Chunks], site: int) -> list[list[int]]:
        leading = [1] * len(_unlinked(type_))
        shape = self.local_shape(chunks, site)
        if len(self.cuts) == 1:
            ((layer, axis),) = self.cuts
            if leading:
                leading = [len(chunks[layer].positions(site))]
                shape[1 + axis] //= leading[0]
            return [leading + shape]
        shapes = []
        for extents in itertools.product(*self._sizes(chunks, site)):
            for (_, axis), extent in zip(self.cuts, extents, strict=True):
                shape[1 + axis] = extent
            shapes.append(leading + shape)
        return shapes

    def _views(
        self,
        blocks: Sequence[torch.Tensor],
        arrays: Sequence[torch.Tensor],
        type_: _C.RelationType,
        chunks: Mapping[str, Chunks],
        site: int,
    ) -> Iterator[tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]]]:
        """For each slice, views of the same shapes: of each block the part that is of the slice, and of the slice's
        array the part that is in the block."""
        unlinked = len(_unlinked(type_))
        if len(self.cuts) == 2:
            by_slice = zip(*(block.view(block.shape[unlinked:]).unbind() for block in blocks), strict=True)
            for of_blocks, array in zip(by_slice, arrays, strict=True):
                yield of_blocks, self._by_position(array, chunks, site, 0)
            return
        ((_, axis),) = self.cuts
        for own, array in zip(blocks[0].unbind(1 if unlinked else 0), arrays, strict=True):
            part = own.movedim(0, axis) if unlinked else own  # of [position, slice, ...]
            yield [part], [array.view(part.shape)]

    def tiles(self, chunks: Mapping[str, Chunks], site: int) -> int:
        """How many blocks a site trains."""
        return 1 if len(self.cuts) == 1 else math.prod(len(sizes) for sizes in self._sizes(chunks, site))

    def by_chunk(
        self, stacked: torch.Tensor, assignments: Mapping[str, Assignment], site: int
    ) -> dict[tuple[int, ...], torch.Tensor]:
        """What a site trains, by the chunks of its one or two layers: views of the stacked array."""
        layers = [assignments[layer] for layer, _ in self.cuts]
        positions = itertools.product(*(layer.chunks.positions(site) for layer in layers))
        keys = [tuple(layer.chunk[p] for layer, p in zip(layers, each, strict=True)) for each in positions]
        chunks = {layer: assignments[layer].chunks for layer, _ in self.cuts}
        return dict(zip(keys, self._by_position(stacked, chunks, site, 1), strict=True))

    def _by_position(
        self, array: torch.Tensor, chunks: Mapping[str, Chunks], site: int, first: int
    ) -> list[torch.Tensor]:
        """The parts of what a site trains, for each combination of positions that it owns, in their order; views of an
        array whose axes of neurons begin at `first`."""
        parts = [array]
        for (_, axis), sizes in zip(self.cuts, self._sizes(chunks, site), strict=True):
            parts = [each for part in parts for each in part.split_with_sizes(sizes, first + axis)]
        return parts

    def _sizes(self, chunks: Mapping[str, Chunks], site: int) -> list[list[int]]:
        """For each layer the neurons at the positions that a site owns."""
        layers = [chunks[layer] for layer, _ in self.cuts]
        return [[layer.sizes[p] for p in layer.positions(site)] for layer in layers]


def _copy(targets: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]) -> None:
    """Copies elements. Torch transposes a matrix by tiles where the rows of the target are contiguous and neither has
    further axes of one element; elsewhere that takes twice the time, or ten times it."""
    if len(targets) > 1:  # of a matrix between two layers
        torch._foreach_copy_(list(targets), list(sources))
        return
    matrix, rows = sources[0].squeeze(), targets[0].squeeze()
    if matrix.dim() == 2 and rows.stride(0) < rows.stride(1):
        matrix, rows = matrix.t(), rows.t()
    rows.copy_(matrix)


def exposed_shape(shape: Sequence[int], cut: Cut) -> tuple[tuple[int, ...], tuple[tuple[str, int], ...]]:
    """The shape in which every neuron is one index, and for each layer the axis of its neurons there.

    >>> exposed_shape((10, 64), Cut("fc.weight", {"conv": (1, 4)}))
    ((10, 16, 4), (('conv', 1),))
    >>> exposed_shape((24, 10), Cut("qkv.weight", {"heads": (0, 4)}, {"heads": 3}))
    ((3, 2, 4, 10), (('heads', 1),))
    """
    by_axis = {axis: (layer, block) for layer, (axis, block) in cut.axes.items()}
    exposed: list[int] = []
    cuts = []
    for axis, extent in enumerate(shape):
        layer, block = by_axis.get(axis, (None, 1))
        outer = 1
        if layer is not None:
            outer = cut.outer.get(layer, 1)
            exposed += [outer] if outer > 1 else []
            cuts.append((layer, len(exposed)))
        exposed += [extent // (outer * block), block] if block > 1 else [extent // outer]
    return tuple(exposed), tuple(cuts)


def bundles_of(
    cuts: Sequence[Cut], shapes: Mapping[str, torch.Size], slices: Sequence[tuple[Slice, torch.dtype]]
) -> list[Bundle]:
    """Bundles of these tensors, in the order of their first slices.

    shapes   of the whole tensors, by name
    slices   what travels, and its dtype
    """
    by_name = {cut.name: cut for cut in cuts}
    groups: dict[tuple[tuple[int, ...], tuple[tuple[str, int], ...], torch.dtype], list[Slice]] = {}
    for each, dtype in slices:
        shape, axes = exposed_shape(shapes[each.tensor], by_name[each.tensor])
        groups.setdefault((shape, axes, dtype), []).append(each)
    return [
        Bundle(_identifier(members[0], number), shape, axes, dtype, tuple(members))
        for number, ((shape, axes, dtype), members) in enumerate(groups.items())
    ]


def _identifier(first: Slice, number: int) -> str:
    return f"b{number}_" + re.sub(r"\W", "_", first.tensor)


def _unlinked(type_: _C.RelationType) -> list[int]:
    """Key dimensions that count the parts of no axis: blocks have an axis of their own for each, before the others."""
    linked = {axis.key_dim for axis in type_.axes}
    return [dim for dim in range(type_.arity) if dim not in linked]


def without_key_axes(block: torch.Tensor, type_: _C.RelationType, axes: Sequence[int]) -> torch.Tensor:
    """The arrays of a block of tuples with consecutive keys, put together: its leading axes, one for each key dimension
    that no axis is linked to, join the axes whose parts those dimensions count.

    axes   for each key dimension, that axis
    """
    unlinked = _unlinked(type_)
    rank = block.dim() - len(unlinked)
    order: list[int] = []
    shape: list[int] = []
    for axis in range(rank):
        own = [place for place, dim in enumerate(unlinked) if axes[dim] == axis]
        order += [*own, len(unlinked) + axis]
        shape.append(math.prod(block.shape[place] for place in own) * block.shape[len(unlinked) + axis])
    return block.permute(*order).reshape(shape)
