"""Reads the text format of the Extreme Classification Repository, a line at a time.

The first line is `points features labels`; each line after it is one point, `l1,l2,... f:v f:v ...`, with zero-based
labels and features in any order. A line that begins with a blank has no labels; a line may have no features.

Source: Bhatia, Dahiya, Jain, Kar, Mittal, Prabhu, Varma, "The Extreme Classification Repository: Multi-label Datasets
and Code", http://manikvarma.org/downloads/XC/XMLRepository.html.
"""

from __future__ import annotations

import gzip
import io
import math
import os
import re
import zlib
from array import array
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["DataError", "Header", "Path", "Point", "PointStream", "read_points"]

Path: TypeAlias = str | os.PathLike[str]

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
    """Streams the points of a plain or gzip file, distinguished by content; memory is bounded by the longest line.

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
        raise _Malformed(f"{kind} occurs twice", **{kind: index})
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
