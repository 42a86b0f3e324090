"""Sparse tensors from and to coordinates and torch's layouts, without a dense array between."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from joinsum import _C
from joinsum.base.arguments import integers, shape_text, show
from joinsum.base.errors import PlanError
from joinsum.sparse.arrays import (
    MOST_BYTES,
    array_of,
    checked_dtype,
    checked_fill,
    checked_shape,
    fold_name,
    indices_of,
    values_of,
)
from joinsum.sparse.spellings import levels_of

__all__ = [
    "compressed",
    "compressed_indices",
    "from_coordinates",
    "from_edges",
    "from_torch",
    "reformatted",
    "to_compressed",
    "to_dense",
    "to_torch",
    "with_dtype",
    "without_blocks",
]


def reformatted(who: str, handle: _C.SparseTensor, levels: object, order: object) -> _C.SparseTensor:
    """The same tensor in other levels; None keeps those it has."""
    if levels is None:
        if order is None:
            return handle
        levels = handle.formats
    formats, axes = levels_of(who, levels, order, len(handle.shape))
    return handle.reformatted(axes, formats, MOST_BYTES)


def with_dtype(who: str, handle: _C.SparseTensor, dtype: torch.dtype) -> _C.SparseTensor:
    """The same levels with values and fill in another dtype, as torch converts them."""
    fill = handle.fill
    if dtype is torch.bool:
        fill = float(fill != 0)
    elif not dtype.is_floating_point and math.isfinite(fill):
        fill = float(math.trunc(fill))
    return handle.with_values(handle.values.to(dtype), fill)


# --- coordinates and edges --------------------------------------------------------------------------------------------


def _columns(who: str, coordinates: object, rank: int) -> list[torch.Tensor]:
    """Coordinates along each axis: the rows of an array, or the arrays of a list."""
    if isinstance(coordinates, (list, tuple)):
        columns = [indices_of(who, f"coordinates[{axis}]", each) for axis, each in enumerate(coordinates)]
        for axis, column in enumerate(columns):
            if column.dim() != 1:
                raise PlanError(f"{who}: no list of coordinates: axis={axis}, shape={shape_text(column)}")
    else:
        array = indices_of(who, "coordinates", coordinates)
        if array.dim() != 2:
            raise PlanError(f"{who}: coordinates have a row for each axis: shape={shape_text(array)}")
        columns = list(array)
    if len(columns) != rank:
        raise PlanError(f"{who}: each axis needs its coordinates: coordinates={len(columns)}, rank={rank}")
    return columns


def from_coordinates(
    who: str,
    coordinates: object,
    values: object,
    shape: object,
    levels: object,
    order: object,
    fill: object,
    fold: object,
) -> _C.SparseTensor:
    """The core tensor of `SparseTensor.from_coordinates`."""
    extents = checked_shape(who, shape)
    formats, axes = levels_of(who, levels, order, len(extents))
    columns = _columns(who, coordinates, len(extents))
    array = values_of(who, "values", values)
    if array.dim() == 0 and columns:
        array = array.expand(len(columns[0]))
    if array.dim() > 1:
        raise PlanError(f"{who}: values are a list: shape={shape_text(array)}")
    # Sorted ones would be shared, and the caller may write to them.
    array = array.reshape(-1).clone(memory_format=torch.contiguous_format)
    operator = fold_name(who, fold, array.dtype)
    # In float32, sums of many exponentials would lose the small ones.
    wide = array.double() if operator == "logaddexp" else array
    made = _C.SparseTensor.from_coordinates(
        extents, columns, wide, axes, formats, checked_fill(who, fill), operator, MOST_BYTES
    )
    return made if wide is array else with_dtype(who, made, array.dtype)


def _edge_columns(who: str, edges: object) -> list[torch.Tensor]:
    array = indices_of(who, "edges", edges)
    if array.numel() == 0 and array.dim() == 1:
        array = array.reshape(0, 2)
    if array.dim() != 2 or array.shape[1] != 2:
        raise PlanError(f"{who}: edges are pairs, one a row: shape={shape_text(array)}")
    return [array[:, 0].contiguous(), array[:, 1].contiguous()]


def from_edges(
    who: str,
    edges: object,
    size: object,
    *,
    symmetric: bool,
    weights: object,
    levels: object,
    dtype: torch.dtype,
    fold: object,
) -> _C.SparseTensor:
    """The core tensor of `SparseTensor.from_edges`."""
    sizes = integers(who, "size", size)
    sizes = checked_shape(who, sizes * 2 if len(sizes) == 1 else sizes)
    if len(sizes) != 2 or (symmetric and sizes[0] != sizes[1]):
        raise PlanError(f"{who}: a size is a number of vertices, or of sources and targets: size={show(size)}")
    sources, targets = _edge_columns(who, edges)
    if weights is None:
        values = torch.ones(len(sources), dtype=checked_dtype(who, dtype))
        fold = "max" if fold is None else fold
    else:
        values = values_of(who, "weights", weights)
        if values.shape != sources.shape:
            raise PlanError(f"{who}: each edge needs one weight: edges={len(sources)}, weights={shape_text(values)}")
    if symmetric:
        # An edge from a vertex to itself is its own reverse.
        other = sources != targets
        sources, targets = torch.cat([sources, targets[other]]), torch.cat([targets, sources[other]])
        values = torch.cat([values, values[other]])
    return from_coordinates(who, [sources, targets], values, sizes, levels, None, 0, fold)


# --- from torch -------------------------------------------------------------------------------------------------------


def compressed(
    who: str,
    shape: Sequence[int],
    offsets: torch.Tensor,
    indices: torch.Tensor,
    values: torch.Tensor,
    *,
    by_columns: bool,
    fold: str | None = None,
) -> _C.SparseTensor:
    """A matrix of compressed rows (or columns), perhaps of blocks: levels dense and sorted list, then those of blocks.

    shape     of the matrix of blocks, then of a block
    fold      folds repeated indices and lets them stand in any order; without it they ascend
    """
    axes = list(range(len(shape)))
    if by_columns:
        axes[:2] = [1, 0]
    blocks: list[tuple[str, None, None, None]] = [("dense", None, None, None)] * (len(shape) - 2)
    levels = [("dense", None, None, None), ("sorted_list", offsets, indices, None), *blocks]
    return _C.SparseTensor.from_levels(list(shape), axes, levels, values.reshape(-1), 0.0, fold)


def _of_coo(who: str, tensor: torch.Tensor) -> _C.SparseTensor:
    """A COO tensor, whose repeated elements are summed as torch does; dense axes become dense levels."""
    indices = indices_of(who, "indices", tensor._indices())
    values = values_of(who, "values", tensor._values())
    shape, sparse, dense = list(tensor.shape), tensor.sparse_dim(), tensor.dense_dim()
    if indices.shape[0] != sparse or values.shape[1:] != tensor.shape[sparse:] or len(values) != indices.shape[1]:
        raise PlanError(
            f"{who}: indices and values do not fit: indices={shape_text(indices)}, values={shape_text(values)}, "
            f"shape={shape}"
        )
    columns = list(indices)
    if dense:
        columns = [column.repeat_interleave(values[0].numel() if len(values) else 0) for column in columns]
        inner = torch.cartesian_prod(*(torch.arange(extent) for extent in shape[sparse:])).reshape(-1, dense)
        columns += [inner[:, axis].repeat(len(values)) for axis in range(dense)]
    formats = ["sorted_list"] * sparse + ["dense"] * dense
    flat = values.reshape(-1)
    return _C.SparseTensor.from_coordinates(
        shape, columns, flat, list(range(len(shape))), formats, 0.0, "+", MOST_BYTES
    )


def compressed_indices(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Offsets and indices of a CSR, CSC, BSR or BSC tensor, as torch has them."""
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices()
    return tensor.ccol_indices(), tensor.row_indices()


def _of_compressed(who: str, tensor: torch.Tensor) -> _C.SparseTensor:
    """A CSR, CSC, BSR or BSC tensor; that of blocks has the block's axes as its last two."""
    by_columns = tensor.layout in (torch.sparse_csc, torch.sparse_bsc)
    blocked = tensor.layout in (torch.sparse_bsr, torch.sparse_bsc)
    given_offsets, given_indices = compressed_indices(tensor)
    offsets = indices_of(who, "offsets", given_offsets)
    indices = indices_of(who, "indices", given_indices)
    values = values_of(who, "values", tensor.values())
    if offsets.dim() != 1 or values.dim() != (3 if blocked else 1):
        raise PlanError(
            f"{who}: a batch of sparse matrices, or a matrix of dense rows; give each matrix, or x.to_sparse_coo(): "
            f"shape={shape_text(tensor)}, layout={tensor.layout}"
        )
    block = list(values.shape[1:])
    if any(extent == 0 or size % extent for size, extent in zip(tensor.shape, block, strict=False)):
        raise PlanError(f"{who}: blocks do not divide the matrix: block={block}, shape={shape_text(tensor)}")
    outer = [size // extent for size, extent in zip(tensor.shape, block, strict=True)] if block else tensor.shape
    return compressed(who, [*outer, *block], offsets, indices, values, by_columns=by_columns)


def without_blocks(who: str, handle: _C.SparseTensor, *, by_columns: bool) -> _C.SparseTensor:
    """The matrix of a blocked one, as CSR or CSC; zeros in blocks are left out."""
    rows, columns, height, width = handle.shape
    coordinates, values = handle.to_coordinates(True)
    elements = [coordinates[0] * height + coordinates[2], coordinates[1] * width + coordinates[3]]
    formats, axes = levels_of(who, "csc" if by_columns else "csr", None, 2)
    shape = [rows * height, columns * width]
    return _C.SparseTensor.from_coordinates(shape, elements, values, axes, formats, handle.fill, None, MOST_BYTES)


def from_torch(who: str, tensor: object, levels: object, order: object, fill: object, blocks: bool) -> _C.SparseTensor:
    """The core tensor of `SparseTensor.from_torch`."""
    if not isinstance(tensor, torch.Tensor):
        raise PlanError(f"{who}: not a tensor: got={type(tensor).__name__}")
    checked_dtype(who, tensor.dtype)
    if tensor.requires_grad:
        raise PlanError(f"{who}: sparse tensors have no gradients; give x.detach(): requires_grad=True")
    if tensor.layout is torch.strided:
        array = values_of(who, "tensor", array_of(who, "tensor", tensor))
        dense: list[tuple[str, None, None, None]] = [("dense", None, None, None)] * array.dim()
        axes = list(range(array.dim()))
        handle = _C.SparseTensor.from_levels(
            list(array.shape), axes, dense, array.reshape(-1), checked_fill(who, fill), None
        )
        return reformatted(who, handle, levels, order)
    if checked_fill(who, fill) != 0:
        raise PlanError(f"{who}: torch's sparse tensors are 0 where nothing is stored: fill={show(fill)}")
    if tensor.layout is torch.sparse_coo:
        return reformatted(who, _of_coo(who, tensor), levels, order)
    handle = _of_compressed(who, tensor)
    if len(handle.shape) > 2 and not blocks:
        handle = without_blocks(who, handle, by_columns=tensor.layout is torch.sparse_bsc)
    return reformatted(who, handle, levels, order)


# --- to torch ---------------------------------------------------------------------------------------------------------

_LAYOUTS = {
    "dense": torch.strided,
    "coo": torch.sparse_coo,
    "csr": torch.sparse_csr,
    "csc": torch.sparse_csc,
    "bsr": torch.sparse_bsr,
}


def to_dense(handle: _C.SparseTensor) -> torch.Tensor:
    """All elements; of a dense tensor, its own memory."""
    axes = list(range(len(handle.shape)))
    dense = handle.reformatted(axes, ["dense"] * len(axes), MOST_BYTES)
    return dense.values.reshape(handle.shape)


def _fill_of_zero(who: str, handle: _C.SparseTensor, layout: object) -> None:
    if handle.fill != 0:
        raise PlanError(
            f"{who}: the layout is 0 where nothing is stored; give to_dense(): layout={layout}, fill={handle.fill}"
        )


def to_compressed(
    who: str, handle: _C.SparseTensor, *, by_columns: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Offsets, indices and values of a matrix as CSR or CSC; shared with the tensor that has these levels."""
    if len(handle.shape) != 2:
        raise PlanError(f"{who}: no matrix: shape={handle.shape}")
    matrix = reformatted(who, handle, "csc" if by_columns else "csr", None)
    _, offsets, indices, _ = matrix.levels[1]
    assert offsets is not None
    assert indices is not None
    return offsets, indices, matrix.values


def _to_blocks(who: str, handle: _C.SparseTensor, blocksize: object) -> torch.Tensor:
    if len(handle.shape) == 2:
        if blocksize is None:
            raise PlanError(f"{who}: blocks need their size; give blocksize=(rows, columns): shape={handle.shape}")
        size = integers(who, "blocksize", blocksize)
        if len(size) != 2 or any(
            extent < 1 or whole % extent for extent, whole in zip(size, handle.shape, strict=True)
        ):
            raise PlanError(f"{who}: blocks do not divide the matrix: blocksize={size}, shape={handle.shape}")
        handle = _cut_in_blocks(handle, size)
    if len(handle.shape) != 4:
        raise PlanError(f"{who}: no matrix, nor a matrix of blocks: shape={handle.shape}")
    blocked = reformatted(who, handle, "bsr", None)
    _, offsets, indices, _ = blocked.levels[1]
    assert offsets is not None
    assert indices is not None
    rows, columns, height, width = blocked.shape
    values = blocked.values.reshape(len(indices), height, width)
    return torch.sparse_bsr_tensor(offsets, indices, values, (rows * height, columns * width), check_invariants=False)


def _cut_in_blocks(handle: _C.SparseTensor, size: Sequence[int]) -> _C.SparseTensor:
    coordinates, values = handle.to_coordinates(True)
    outer = [axis // extent for axis, extent in zip(coordinates, size, strict=True)]
    inner = [axis % extent for axis, extent in zip(coordinates, size, strict=True)]
    shape = [whole // extent for whole, extent in zip(handle.shape, size, strict=True)] + list(size)
    formats, axes = levels_of("to_torch", "bsr", None, 4)
    return _C.SparseTensor.from_coordinates(
        shape, [*outer, *inner], values, axes, formats, handle.fill, None, MOST_BYTES
    )


def _to_coo(handle: _C.SparseTensor) -> torch.Tensor:
    coordinates, values = handle.to_coordinates(handle.formats[-1:] == ["dense"])
    indices = torch.stack(coordinates) if coordinates else torch.empty((0, len(values)), dtype=torch.int64)
    return torch.sparse_coo_tensor(indices, values, handle.shape, is_coalesced=True, check_invariants=False)


def to_torch(who: str, handle: _C.SparseTensor, layout: object, blocksize: object) -> torch.Tensor:
    """The tensor of `SparseTensor.to_torch`."""
    wanted = _LAYOUTS.get(layout) if isinstance(layout, str) else layout
    if wanted not in _LAYOUTS.values():
        raise PlanError(f"{who}: no such layout: layout={show(layout)}, layouts=[{', '.join(_LAYOUTS)}]")
    if blocksize is not None and wanted is not torch.sparse_bsr:
        raise PlanError(f"{who}: only bsr has blocks: layout={show(layout)}, blocksize={show(blocksize)}")
    if wanted is torch.strided:
        return to_dense(handle)
    _fill_of_zero(who, handle, wanted)
    if wanted is torch.sparse_coo:
        return _to_coo(handle)
    if wanted is torch.sparse_bsr:
        return _to_blocks(who, handle, blocksize)
    offsets, indices, values = to_compressed(who, handle, by_columns=wanted is torch.sparse_csc)
    make = torch.sparse_csc_tensor if wanted is torch.sparse_csc else torch.sparse_csr_tensor
    return make(offsets, indices, values, handle.shape, check_invariants=False)
