"""Sparse multi-label data in the text format of the Extreme Classification Repository.

The first line is `points features labels`; each line after it is one point, `l1,l2,... f:v f:v ...`, with zero-based
labels and features in any order. A line that begins with a blank has no labels; a line may have no features.

Source: Bhatia, Dahiya, Jain, Kar, Mittal, Prabhu, Varma, "The Extreme Classification Repository: Multi-label Datasets
and Code", http://manikvarma.org/downloads/XC/XMLRepository.html.

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
>>> precision_at(torch.tensor([[0.9, 0.1], [0.8, 0.2]]), y, ks=(1, 2))
tensor([0.5000, 0.7500], dtype=torch.float64)
>>> _ = path.write_text("3 4 2\\n0,1 2:0.5\\n 4:1\\n1\\n")
>>> try:
...     load(path)
... except DataError as error:
...     print(str(error).replace(folder.name, "folder"))
folder/train.txt:3: feature is out of range: feature=4, features=4
>>> folder.cleanup()
"""

from __future__ import annotations

import gzip
import io
import math
import os
import re
import zlib
from array import array
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

__all__ = [
    "DataError",
    "DenseBatch",
    "Header",
    "Point",
    "PointStream",
    "SparsePoints",
    "frequency_baseline",
    "load",
    "precision_at",
    "precision_sums",
    "read_points",
]

Path: TypeAlias = str | os.PathLike[str]
Rows: TypeAlias = npt.NDArray[np.signedinteger] | torch.Tensor | Sequence[int]

_MAX_SIZE = 2**31 - 1  # labels and features are stored as int32
_HEADER_BYTES = 256
_BLANKS = re.compile(r"[ \t]+")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[+-]?(nan|inf(inity)?)", re.IGNORECASE)
_LABEL_BYTES = b"0123456789,"
_FEATURE_BYTES = b"0123456789+-.eE"


class DataError(ValueError):
    """Says what is wrong with a data file and where: `path:line: what is wrong: name=value, ...`.

    Lines count from 1. Line 0 is the file as a whole; a line past the last one is the line that was expected there.
    """

    def __init__(self, path: str, line: int, reason: str) -> None:
        super().__init__(path, line, reason)
        self.path = path
        self.line = line
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


class _Malformed(Exception):
    """A fault found by a parser, which knows the text but not the path and the line."""

    def __init__(self, what: str, **values: object) -> None:
        super().__init__(f"{what}: " + ", ".join(f"{name}={value}" for name, value in values.items()))


class Header(NamedTuple):
    """The first line of a file: how many points follow, and the sizes of the two vocabularies."""

    points: int
    features: int
    labels: int


class Point(NamedTuple):
    """One point, in the order of its line: `labels` int32 [l], `features` int32 [f], `values` float32 [f]."""

    labels: npt.NDArray[np.int32]
    features: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32]


class PointStream(Iterator[Point]):
    """Yields the points of a file in one pass, holding one line at a time; `header` is known before the first point.

    The file is closed at its end, at an error, and by `close()`.
    """

    header: Header
    _raw: io.BufferedReader

    def __init__(self, path: Path) -> None:
        self.path = os.fspath(path)
        self._line = 0
        self._limit = _HEADER_BYTES
        try:
            self._raw = io.BufferedReader(io.FileIO(self.path))
        except IsADirectoryError:
            raise DataError(self.path, 0, "path is not a file: kind=directory") from None
        self._file = _decompressed(self._raw)
        try:
            self.header = _read_header(self._read_line())
        except _Malformed as fault:
            self.close()
            raise DataError(self.path, self._line, str(fault)) from None
        # 64 bytes hold a label, or a feature with its value, with room to spare.
        self._limit = 4096 + 64 * (self.header.features + self.header.labels)

    def __next__(self) -> Point:
        if self._raw.closed:
            raise StopIteration
        try:
            line = self._next_line()
            if line is not None:
                return _read_point(line, self.header)
        except _Malformed as fault:
            self.close()
            raise DataError(self.path, self._line, str(fault)) from None
        self.close()
        raise StopIteration

    def close(self) -> None:
        """Closes the file; the stream then yields nothing more."""
        self._file.close()
        self._raw.close()

    def _next_line(self) -> bytes | None:
        """Returns the next point's line, or None at the end of a file that holds what its header promises."""
        found, promised = self._line - 1, self.header.points
        line = self._read_line()
        blank_at = 0
        while line and not line.strip(b"\r\n"):
            blank_at = blank_at or self._line
            line = self._read_line()
        if not line:
            self._line = blank_at or self._line
            if found < promised:
                raise _Malformed("fewer points than the header promises", promised=promised, found=found)
            return None
        if found == promised:
            raise _Malformed("more points than the header promises", promised=promised, extra=_shown(line))
        if blank_at:
            self._line = blank_at
            raise _Malformed("blank line between points", promised=promised, found=found)
        return line

    def _read_line(self) -> bytes:
        """Returns the next line with its end, or nothing at the end of the file."""
        self._line += 1
        try:
            line = self._file.readline(self._limit + 1)
        except EOFError as error:
            raise _Malformed("gzip stream is truncated", cause=repr(str(error))) from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise _Malformed("gzip stream is corrupt", cause=repr(str(error))) from None
        if len(line) > self._limit:
            raise _Malformed("line is too long", limit=self._limit, begins=_shown(line))
        return line


def read_points(path: Path) -> PointStream:
    """Streams the points of a plain or gzip file, told apart by content; memory is bounded by the longest line.

    Raises `DataError` where the file is malformed: here for the header, on iteration for the points. Raises
    `FileNotFoundError` where there is no file.
    """
    return PointStream(path)


def _decompressed(raw: io.BufferedReader) -> io.BufferedReader:
    # One byte decides, because a pipe may deliver its first byte alone; no text begins with 0x1f.
    if raw.peek(1)[:1] == b"\x1f":
        return io.BufferedReader(gzip.GzipFile(fileobj=raw, mode="rb"))
    return raw


def _read_header(line: bytes) -> Header:
    if not line:
        raise _Malformed("file is empty", bytes=0)
    fields = _ascii(line).split()
    if len(fields) != 3:
        raise _Malformed("header is not `points features labels`", fields=len(fields), header=_shown(line))
    for name, field in zip(Header._fields, fields, strict=True):
        if not _INTEGER.fullmatch(field):
            raise _Malformed("header is not three integers", **{name: repr(field)})
        if not 0 <= int(field) <= _MAX_SIZE:
            raise _Malformed("header is out of range", **{name: field, "limit": _MAX_SIZE})
    header = Header(*map(int, fields))
    if header.points and not (header.features and header.labels):
        raise _Malformed("header promises points without features or labels", **header._asdict())
    return header


def _read_point(line: bytes, header: Header) -> Point:
    line = line.rstrip(b" \t\r\n")
    point = _read_common_point(line, header)
    return _read_any_point(_ascii(line), header) if point is None else point


def _read_common_point(line: bytes, header: Header) -> Point | None:
    """Reads a correct line in its usual spelling, fast; None means that `_read_any_point` must judge it."""
    head, blank, tail = line.partition(b" ")
    fields = tail.replace(b":", b" ").split()
    count = len(fields) // 2
    # What is left without numbers shows the structure: ` :` for each feature, and two fields for each ` :`.
    if len(fields) % 2 or head.translate(None, _LABEL_BYTES):
        return None
    if (blank + tail).translate(None, _FEATURE_BYTES) != b" :" * count:
        return None
    try:
        labels = array("i", map(int, head.split(b","))) if head else array("i")
        features = array("i", map(int, fields[0::2]))
        values = array("f", map(float, fields[1::2]))
    except (ValueError, OverflowError):
        return None
    if _distinct_below(labels, header.labels) and _distinct_below(features, header.features) and _finite(values):
        return _point(labels, features, values)
    return None


def _read_any_point(line: str, header: Header) -> Point:
    """Reads a line token by token; names the first fault."""
    head, *tokens = _BLANKS.split(line)
    labels: dict[int, None] = {}
    for text in head.split(",") if head else []:
        _add("label", text, header.labels, labels)
    features: dict[int, None] = {}
    values = array("f")
    for token in tokens:
        if token.count(":") != 1:
            raise _Malformed("feature is not `index:value`", colons=token.count(":"), feature=_shown(token))
        index, value = token.split(":")
        _add("feature", index, header.features, features)
        values.append(_value(value, index))
    return _point(array("i", labels), array("i", features), values)


def _add(kind: str, text: str, size: int, seen: dict[int, None]) -> None:
    """Adds an index to those already on the line, which keep their order."""
    if not _INTEGER.fullmatch(text):
        raise _Malformed(f"{kind} is not an integer", **{kind: _shown(text)})
    # Ten digits are enough for any size; int() refuses some thousands of them.
    index = int(text) if len(text.lstrip("+-0")) <= 10 else size
    if not 0 <= index < size:
        raise _Malformed(f"{kind} is out of range", **{kind: text[:40], f"{kind}s": size})
    if index in seen:
        raise _Malformed(f"{kind} is given twice", **{kind: index})
    seen[index] = None


def _value(text: str, index: str) -> float:
    if not text:
        raise _Malformed("feature has no value", feature=index)
    if _NOT_FINITE.fullmatch(text):
        raise _Malformed("value is not finite", feature=index, value=text)
    if not _NUMBER.fullmatch(text):
        raise _Malformed("value is not a number", feature=index, value=_shown(text))
    if not _finite(array("f", [float(text)])):
        raise _Malformed("value does not fit float32", feature=index, value=text[:40])
    return float(text)


def _distinct_below(indices: array[int], size: int) -> bool:
    return not indices or (min(indices) >= 0 and max(indices) < size and len(set(indices)) == len(indices))


def _finite(values: array[float]) -> bool:
    # A sum of float32 in float64 cannot overflow, so it is finite exactly when every value is.
    return math.isfinite(sum(values))


def _point(labels: array[int], features: array[int], values: array[float]) -> Point:
    return Point(np.asarray(labels), np.asarray(features), np.asarray(values))


def _ascii(line: bytes) -> str:
    try:
        return line.decode("ascii")
    except UnicodeDecodeError as error:
        raise _Malformed("byte is not ASCII", byte=f"0x{line[error.start]:02x}", column=error.start + 1) from None


def _shown(text: str | bytes) -> str:
    """Quotes the beginning of a text from a file, for an error."""
    shown = text.decode("ascii", "backslashreplace") if isinstance(text, bytes) else text
    shown = shown.rstrip()
    return repr(shown if len(shown) <= 40 else shown[:37] + "...")


class DenseBatch:
    """Two buffers that `SparsePoints.batch` fills again and again, clearing only the entries that it set before.

    `x` is float32 [n, features] and `y` float32 [n, labels], contiguous, on any device; the constructor zeroes both.
    Between batches, write nothing to them except where they are not zero. Raises `ValueError` for other buffers.
    """

    def __init__(self, x: torch.Tensor, y: torch.Tensor) -> None:
        for name, buffer in (("x", x), ("y", y)):
            if buffer.dim() != 2 or buffer.dtype != torch.float32 or not buffer.is_contiguous():
                raise ValueError(
                    f"DenseBatch: buffer is not a contiguous float32 matrix: buffer={name}, "
                    f"shape={tuple(buffer.shape)}, dtype={buffer.dtype}, contiguous={buffer.is_contiguous()}"
                )
        if len(x) != len(y):
            raise ValueError(f"DenseBatch: buffers differ in rows: x={len(x)}, y={len(y)}")
        self.x, self.y = x.zero_(), y.zero_()
        self._x_set = self._y_set = torch.empty(0, dtype=torch.int64)

    def _clear(self) -> None:
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
        and pass it each time: it clears only what the previous batch set. A plain pair is zeroed whole.

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
            if buffer.shape[1] != width or len(buffer) < len(index):
                raise ValueError(
                    f"batch: buffer has the wrong shape: buffer={name}, shape={tuple(buffer.shape)}, "
                    f"needed={(len(index), width)}"
                )
        buffers._clear()
        buffers._x_set = _put(buffers.x, index, self.indptr, self.indices, self.values)
        buffers._y_set = _put(buffers.y, index, self.label_indptr, self.label_indices, None)
        return buffers.x[: len(index)], buffers.y[: len(index)]

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
    starts = indptr[rows]
    counts = indptr[rows + 1] - starts
    ends = counts.cumsum()
    entries = np.arange(counts.sum()) + np.repeat(starts - (ends - counts), counts)
    columns = indices[entries]
    at = torch.from_numpy(np.repeat(np.arange(len(rows)) * matrix.shape[1], counts) + columns).to(matrix.device)
    matrix.view(-1)[at] = 1.0 if values is None else torch.from_numpy(values[entries]).to(matrix.device)
    return at


def load(path: Path) -> SparsePoints:
    """Reads a whole file into compressed sparse rows: 8 bytes a feature and 4 a label, plus 16 a point.

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


def precision_sums(scores: torch.Tensor, y: torch.Tensor, ks: Sequence[int] = (1, 3, 5)) -> torch.Tensor:
    """Returns float64 [len(ks)]: for each k, the sum over points of (relevant labels among the k best scores) / k.

    `scores` is [n, labels], any floating type; `y` is [n, labels], relevant where it is not 0. Sums of batches add up;
    divided by the number of points they are precision@k. Equal scores are ranked in an order that is not specified.

    Raises `ValueError` for other shapes, a k outside 1..labels, and NaN among the scores.
    """
    if scores.dim() != 2 or scores.shape != y.shape:
        raise ValueError(
            f"precision_at: scores and y are not matrices of one shape: "
            f"scores={tuple(scores.shape)}, y={tuple(y.shape)}"
        )
    _check_ks(ks, scores.shape[1])
    best = torch.topk(scores, max(ks), dim=1)
    # topk ranks NaN above every number, so any NaN of a row is among its best.
    if best.values.isnan().any():
        raise ValueError(f"precision_at: scores hold NaN: shape={tuple(scores.shape)}")
    hits = y.gather(1, best.indices).ne(0).sum(0, dtype=torch.float64).cumsum(0)
    return torch.stack([hits[k - 1] / k for k in ks])


def precision_at(scores: torch.Tensor, y: torch.Tensor, ks: Sequence[int] = (1, 3, 5)) -> torch.Tensor:
    """Returns precision@k, float64 [len(ks)] between 0 and 1, of a batch of at least one point.

    Takes and raises what `precision_sums` does, and raises `ValueError` for an empty batch. Points with fewer than k
    labels count in full, so 1 may be out of reach.

    Source: The Extreme Classification Repository, "Evaluation metrics".
    """
    sums = precision_sums(scores, y, ks)
    if not len(scores):
        raise ValueError(f"precision_at: batch has no points: scores={tuple(scores.shape)}")
    return sums / len(scores)


def frequency_baseline(train: SparsePoints, test: SparsePoints, ks: Sequence[int] = (1, 3, 5)) -> torch.Tensor:
    """Returns precision@k, float64 [len(ks)], on `test` of always predicting the labels most frequent in `train`.

    Equally frequent labels are ranked by number. Raises `ValueError` for data sets with different labels, a k outside
    1..labels, and a `test` without points.
    """
    labels = train.header.labels
    if labels != test.header.labels or not len(test):
        raise ValueError(f"frequency_baseline: test does not fit train: train={train.header}, test={test.header}")
    _check_ks(ks, labels)
    ranking = np.argsort(-np.bincount(train.label_indices, minlength=labels), kind="stable")
    uses = np.bincount(test.label_indices, minlength=labels)[ranking].cumsum()
    return torch.tensor([uses[k - 1] / (k * len(test)) for k in ks], dtype=torch.float64)


def _check_ks(ks: Sequence[int], labels: int) -> None:
    if not ks or min(ks) < 1 or max(ks) > labels:
        raise ValueError(f"precision_at: k is out of range: ks={tuple(ks)}, labels={labels}")
