"""Files of inputs of a graph: entries or statistics of sparse ones, values of dense ones."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import numpy
import torch

from joinsum import PlanError
from joinsum.graphs.sparse_program import SparseData
from joinsum.sparse import SparseTensor
from joinsum.sparse.json_fields import without_duplicates

__all__ = ["read_inputs"]


def read_inputs(sparse: Mapping[str, str], dense: Mapping[str, str]) -> dict[str, SparseData]:
    """The inputs by name, whose files `--sparse` and `--dense` name. Raises PlanError for a malformed file, OSError
    where one cannot be opened."""
    inputs: dict[str, SparseData] = {}
    for option, files, read in (("--sparse", sparse, _read_sparse), ("--dense", dense, _read_dense)):
        for name, text in files.items():
            try:
                inputs[name] = read(text)
            except PlanError as error:
                raise PlanError(f"{option} {name}: {error}") from None
    return inputs


def _read_sparse(text: str) -> SparseData:
    """Entries or statistics in a file, or a number of entries."""
    if text.isascii() and text.isdecimal():
        return {"nnz": int(text)}
    for ending, reader in _READERS.items():
        if text.endswith(ending):
            return _read(Path(text), reader)
    raise click.BadParameter(
        f"{text!r} is neither a number of entries nor a file whose name ends in .mtx, .npz or .json",
        param_hint="'--sparse'",
    )


def _read_dense(text: str) -> SparseData:
    return _read(Path(text), _read_npy)


def _read(path: Path, reader: Callable[[Path], SparseData]) -> SparseData:
    path.open("rb").close()  # raises OSError
    try:
        return reader(path)
    except PlanError:
        raise
    # Neither numpy nor scipy says which errors a malformed file raises.
    except Exception as error:
        raise PlanError(f"the file is malformed: file={path}, error={error}") from None


def _read_npz(path: Path) -> SparseTensor:
    try:
        from scipy.sparse import load_npz
    except ImportError as error:
        raise PlanError(f"scipy, which reads .npz, is not installed; run `pip install scipy`: error={error}") from None
    if not zipfile.is_zipfile(path):
        raise PlanError(f"the file is malformed: file={path}, error=scipy.sparse.save_npz did not write it")
    return SparseTensor.from_scipy(load_npz(path))


def _read_statistics(path: Path) -> dict[str, Any]:
    value = json.loads(path.read_bytes(), object_pairs_hook=without_duplicates)
    if not isinstance(value, dict):
        raise PlanError(f"statistics are an object with nnz, or coo: file={path}")
    return value


def _read_npy(path: Path) -> SparseTensor:
    with path.open("rb") as file:
        values = numpy.lib.format.read_array(file, allow_pickle=False)
    if values.dtype.kind not in "biuf":
        raise PlanError(f"values are real numbers: file={path}, dtype={values.dtype}")
    return SparseTensor.from_torch(torch.from_numpy(numpy.array(values, dtype=numpy.float64, order="C")))


_READERS: dict[str, Callable[[Path], SparseData]] = {
    ".mtx": SparseTensor.from_matrix_market,
    ".mtx.gz": SparseTensor.from_matrix_market,
    ".npz": _read_npz,
    ".json": _read_statistics,
}
