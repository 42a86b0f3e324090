"""Sparse multi-label data in memory, and its batches as tensors.

>>> import pathlib, tempfile
>>> folder = tempfile.TemporaryDirectory()
>>> path = pathlib.Path(folder.name, "train.txt")
>>> _ = path.write_text("3 4 2\\n0,1 2:0.5 0:2\\n 3:1e-1\\n1\\n")
>>> points = load(path)
>>> points
SparsePoints(points=3, features=4, labels=2, nonzeros=3, positives=3)
>>> x, y = points.batch([0, 2])
>>> x
tensor([[2.0000, 0.0000, 0.5000, 0.0000],
        [0.0000, 0.0000, 0.0000, 0.0000]])
>>> y
tensor([[1., 1.],
        [0., 1.]])
>>> _ = path.write_text("3 4 2\\n0,1 2:0.5\\n 4:1\\n1\\n")
>>> try:
...     load(path)
... except DataError as error:
...     print(str(error).replace(folder.name, "folder"))
folder/train.txt:3: feature is out of range: feature=4, features=4
>>> folder.cleanup()
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from joinsum.extreme.points_file import DataError, Header, Path, read_points

__all__ = ["DataError", "DenseBatch", "SparsePoints", "load"]

Rows: TypeAlias = npt.NDArray[np.signedinteger] | torch.Tensor | Sequence[int]


class DenseBatch:
    """Two buffers that `SparsePoints.batch` fills again and again, clearing only the entries that it set before.

    `x` is float32 [n, features] and `y` float32 [n, labels], contiguous, on any device; the constructor zeroes both.
    Without an `x`, batches have theirs sparse. Between batches, write nothing to them except where they are not zero.
    Raises `ValueError` for other buffers.
    """

    def __init__(self, x: torch.Tensor | None, y: torch.Tensor) -> None:
        for name, buffer in (("x", x), ("y", y)):
            if buffer is None:
                continue
            if buffer.dim() != 2 or buffer.dtype != torch.float32 or not buffer.is_contiguous():
                raise ValueError(
                    f"DenseBatch: buffer is not a contiguous float32 matrix: buffer={name}, "
                    f"shape={tuple(buffer.shape)}, dtype={buffer.dtype}, contiguous={buffer.is_contiguous()}"
                )
        if x is not None and len(x) != len(y):
            raise ValueError(f"DenseBatch: buffers differ in rows: x={len(x)}, y={len(y)}")
        self.x, self.y = None if x is None else x.zero_(), y.zero_()
        self._x_set = self._y_set = torch.empty(0, dtype=torch.int64)

    def _clear(self) -> None:
        if self.x is not None:
            self.x.view(-1)[self._x_set] = 0
        self.y.view(-1)[self._y_set] = 0
        self._x_set = self._y_set = torch.empty(0, dtype=torch.int64)


@dataclass(frozen=True, eq=False, repr=False)
class SparsePoints:
    """A data set in compressed sparse rows.

    Point i has the features `indices[indptr[i]:indptr[i + 1]]` with the `values` at the same positions, and the labels
    `label_indices[label_indptr[i]:label_indptr[i + 1]]`, each in the order of its line. `indptr` and `label_indptr` are
    int64 [points + 1]; `indices` and `label_indices` int32; `values` float32.
    """

    header: Header
    indptr: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32]
    label_indptr: npt.NDArray[np.int64]
    label_indices: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return self.header.points

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}={size}" for name, size in self.header._asdict().items())
        return f"SparsePoints({sizes}, nonzeros={len(self.indices)}, positives={len(self.label_indices)})"

    def batch(
        self, rows: Rows, out: DenseBatch | tuple[torch.Tensor, torch.Tensor] | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns `x` float32 [n, features] and `y` float32 [n, labels] of 0 and 1 for the n points `rows`.

        With `out` they are the first n rows of its buffers, and the rest of the buffers is zero. Keep one `DenseBatch`
        and pass it each time: it clears only what the previous batch set. A plain pair is zeroed whole. Where `out` has
        no buffer for `x`, that is a coalesced `torch.sparse_coo` tensor.

        Raises `IndexError` for a row outside 0..points-1, `ValueError` for rows that are not a vector of integers and
        for buffers of another width or with fewer rows.
        """
        index = self._checked(rows)
        if out is None:
            x = torch.zeros(len(index), self.header.features)
            y = torch.zeros(len(index), self.header.labels)
            _put(x, index, self.indptr, self.indices, self.values)
            _put(y, index, self.label_indptr, self.label_indices, None)
            return x, y
        buffers = out if isinstance(out, DenseBatch) else DenseBatch(*out)
        for name, buffer, width in (("x", buffers.x, self.header.features), ("y", buffers.y, self.header.labels)):
            if buffer is None:
                continue
            if buffer.shape[1] != width or len(buffer) < len(index):
                raise ValueError(
                    f"batch: buffer has the wrong shape: buffer={name}, shape={tuple(buffer.shape)}, "
                    f"needed={(len(index), width)}"
                )
        buffers._clear()
        buffers._y_set = _put(buffers.y, index, self.label_indptr, self.label_indices, None)
        y = buffers.y[: len(index)]
        if buffers.x is None:
            return self._sparse(index), y
        buffers._x_set = _put(buffers.x, index, self.indptr, self.indices, self.values)
        return buffers.x[: len(index)], y

    def _sparse(self, rows: npt.NDArray[np.int64]) -> torch.Tensor:
        """The features of these points, sparse."""
        entries, counts = _entries(rows, self.indptr)
        indices = np.stack([np.repeat(np.arange(len(rows)), counts), self.indices[entries]])
        shape = (len(rows), self.header.features)
        values = torch.from_numpy(self.values[entries])
        return torch.sparse_coo_tensor(torch.from_numpy(indices), values, shape, check_invariants=False).coalesce()

    def minibatches(self, batch: int, generator: torch.Generator) -> Iterator[npt.NDArray[np.int64]]:
        """Yields the rows of one epoch, int64 [batch], in an order drawn from `generator`; the last may be shorter.

        Raises `ValueError` for a batch below 1. The order is drawn at the call.
        """
        if batch < 1:
            raise ValueError(f"minibatches: batch is too small: batch={batch}")
        order = torch.randperm(len(self), generator=generator, device=generator.device).cpu().numpy()
        return (order[start : start + batch] for start in range(0, len(order), batch))

    def _checked(self, rows: Rows) -> npt.NDArray[np.int64]:
        index = np.asarray(rows.cpu() if isinstance(rows, torch.Tensor) else rows)
        if index.ndim != 1 or (index.size and index.dtype.kind not in "iu"):
            raise ValueError(f"batch: rows are not a vector of integers: shape={index.shape}, dtype={index.dtype}")
        outside = index[(index < 0) | (index >= len(self))]
        if outside.size:
            raise IndexError(f"batch: row is out of range: row={outside[0]}, points={len(self)}")
        return index.astype(np.int64)


def _put(
    matrix: torch.Tensor,
    rows: npt.NDArray[np.int64],
    indptr: npt.NDArray[np.int64],
    indices: npt.NDArray[np.int32],
    values: npt.NDArray[np.float32] | None,
) -> torch.Tensor:
    """Sets the entries of `rows` (to 1 without `values`) and returns their positions in the flattened matrix."""
    entries, counts = _entries(rows, indptr)
    columns = indices[entries]
    at = torch.from_numpy(np.repeat(np.arange(len(rows)) * matrix.shape[1], counts) + columns).to(matrix.device)
    matrix.view(-1)[at] = 1.0 if values is None else torch.from_numpy(values[entries]).to(matrix.device)
    return at


def _entries(
    rows: npt.NDArray[np.int64], indptr: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Positions of the entries of these rows, row by row, and how many each has."""
    starts = indptr[rows]
    counts = indptr[rows + 1] - starts
    ends = counts.cumsum()
    return np.arange(counts.sum()) + np.repeat(starts - (ends - counts), counts), counts


def load(path: Path) -> SparsePoints:
    """Reads a file into compressed sparse rows: 8 bytes a feature and 4 a label, plus 16 a point.

    Raises as `read_points` does.
    """
    indptr, label_indptr = array("q", [0]), array("q", [0])
    indices, label_indices, values = array("i"), array("i"), array("f")
    with closing(read_points(path)) as stream:
        for labels, features, weights in stream:
            label_indices.frombytes(labels.tobytes())
            indices.frombytes(features.tobytes())
            values.frombytes(weights.tobytes())
            label_indptr.append(len(label_indices))
            indptr.append(len(indices))
    return SparsePoints(
        stream.header,
        np.asarray(indptr),
        np.asarray(indices),
        np.asarray(values),
        np.asarray(label_indptr),
        np.asarray(label_indices),
    )
