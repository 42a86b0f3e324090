"""Sparse tensors from and to scipy's sparse arrays, and from files in the Matrix Market format."""

from __future__ import annotations

import gzip
import importlib
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy
import torch

from joinsum import _C
from joinsum.base.arguments import show
from joinsum.base.errors import PlanError
from joinsum.base.files import replaced_atomically
from joinsum.sparse.arrays import MOST_BYTES, indices_of, values_of
from joinsum.sparse.conversions import compressed, from_torch, reformatted, to_compressed, to_torch, without_blocks

__all__ = ["from_matrix_market", "from_scipy", "to_matrix_market", "to_scipy"]


def _scipy(who: str, module: str) -> Any:
    """A module of scipy, which joinsum does without otherwise."""
    try:
        return importlib.import_module(f"scipy.{module}")
    except ImportError as error:
        raise PlanError(f"{who}: scipy is not installed; run `pip install scipy`: error={error}") from None


def _of_compressed(who: str, matrix: Any) -> _C.SparseTensor:
    """A CSR, CSC or BSR array. scipy lets indices stand in any order and repeat, and sums those that do."""
    by_columns = matrix.format == "csc"
    offsets = indices_of(who, "indptr", matrix.indptr)
    indices = indices_of(who, "indices", matrix.indices)
    values = values_of(who, "data", matrix.data)
    entries = int(offsets[-1]) if len(offsets) else 0
    if 0 <= entries <= min(len(indices), len(values)):
        # What lies behind the last row is room for more.
        indices, values = indices[:entries], values[:entries]
    block = list(values.shape[1:])
    shape = [size // extent for size, extent in zip(matrix.shape, block, strict=True)] if block else matrix.shape
    handle = compressed(who, [*shape, *block], offsets, indices, values, by_columns=by_columns, fold="+")
    return without_blocks(who, handle, by_columns=False) if block else handle


def _of_coo(who: str, matrix: Any) -> _C.SparseTensor:
    coordinates = getattr(matrix, "coords", None)
    columns = (matrix.row, matrix.col) if coordinates is None else coordinates
    shape = list(matrix.shape)
    axes = [indices_of(who, f"coordinates[{axis}]", column) for axis, column in enumerate(columns)]
    formats = ["sorted_list"] * len(shape)
    values = values_of(who, "data", matrix.data)
    return _C.SparseTensor.from_coordinates(shape, axes, values, list(range(len(shape))), formats, 0.0, "+", MOST_BYTES)


def from_scipy(who: str, matrix: object, levels: object, order: object) -> _C.SparseTensor:
    """The core tensor of `SparseTensor.from_scipy`."""
    form = getattr(matrix, "format", None)
    if not isinstance(form, str) or not hasattr(matrix, "tocoo"):
        raise PlanError(f"{who}: no sparse array of scipy's: got={type(matrix).__name__}")
    compressed_matrix = form in ("csr", "csc", "bsr") and len(matrix.shape) == 2  # type: ignore[attr-defined]
    if compressed_matrix:
        handle = _of_compressed(who, matrix)
    else:
        handle = _of_coo(who, matrix if form == "coo" else matrix.tocoo())
    return reformatted(who, handle, levels, order)


def to_scipy(who: str, handle: _C.SparseTensor, form: object) -> Any:
    """The array of `SparseTensor.to_scipy`."""
    if form not in ("coo", "csr", "csc", "bsr"):
        raise PlanError(f"{who}: no such format: format={show(form)}, formats=[coo, csr, csc, bsr]")
    if handle.fill != 0:
        raise PlanError(f"{who}: scipy's arrays are 0 where nothing is stored: fill={handle.fill}")
    sparse = _scipy(who, "sparse")
    if form == "coo":
        coo = to_torch(who, handle, torch.sparse_coo, None)
        return sparse.coo_array((coo._values().numpy(), tuple(coo._indices().numpy())), shape=tuple(handle.shape))
    if form == "bsr":
        bsr = to_torch(who, handle, torch.sparse_bsr, None)
        arrays = (bsr.values().numpy(), bsr.col_indices().numpy(), bsr.crow_indices().numpy())
        return sparse.bsr_array(arrays, shape=tuple(bsr.shape))
    offsets, indices, values = to_compressed(who, handle, by_columns=form == "csc")
    make = sparse.csc_array if form == "csc" else sparse.csr_array
    return make((values.numpy(), indices.numpy(), offsets.numpy()), shape=tuple(handle.shape))


def from_matrix_market(who: str, path: object, levels: object, order: object) -> _C.SparseTensor:
    """The core tensor of `SparseTensor.from_matrix_market`."""
    if not isinstance(path, (str, os.PathLike)):
        raise PlanError(f"{who}: no path: path={show(path)}")
    reader = _scipy(who, "io")
    if not Path(path).is_file():
        raise PlanError(f"{who}: there is no file: path={path}")
    try:
        matrix = reader.mmread(path)
    except MemoryError as error:
        raise PlanError(f"{who}: the matrix does not fit in memory: path={path}, error={error}") from None
    except (ValueError, OverflowError, RuntimeError, TypeError) as error:
        raise PlanError(f"{who}: no file in the Matrix Market format: path={path}, error={error}") from None
    if isinstance(matrix, numpy.ndarray):
        return from_torch(who, torch.from_numpy(matrix), levels, order, 0, False)
    return from_scipy(who, matrix, levels, order)


def to_matrix_market(who: str, handle: _C.SparseTensor, path: object) -> None:
    """Writes the file of `SparseTensor.to_matrix_market`."""
    if not isinstance(path, (str, os.PathLike)):
        raise PlanError(f"{who}: no path: path={show(path)}")
    if len(handle.shape) != 2:
        raise PlanError(f"{who}: no matrix: shape={handle.shape}")
    if handle.dtype == "bool":
        raise PlanError(f"{who}: the format has no truth values; give x.to(torch.uint8): dtype=bool")
    if handle.fill != 0:
        raise PlanError(f"{who}: the format is 0 where nothing is stored: fill={handle.fill}")
    if Path(path).suffix == ".bz2":
        raise PlanError(f"{who}: only gzip compresses; give a path in .mtx or .mtx.gz: path={path}")
    if Path(path).is_dir():
        raise PlanError(f"{who}: the path is a folder: path={path}")
    writer = _scipy(who, "io")
    matrix = to_scipy(who, handle, "coo")
    whole = Path(path)
    with replaced_atomically(whole) as name, open(name, "wb") as file:
        packed = gzip.GzipFile("", "wb", fileobj=file, mtime=0) if whole.suffix == ".gz" else nullcontext(file)
        with packed as stream:
            writer.mmwrite(stream, matrix, symmetry="general")
