"""Files of sparse points that hypothesis draws, and what they mean."""

from __future__ import annotations

import pathlib
from typing import NamedTuple

from hypothesis import strategies as st
from joinsum import extreme


class Written(NamedTuple):
    """A file's text and the points it means: labels and {feature: value}, each in the order of its line."""

    text: str
    header: extreme.Header
    points: list[tuple[list[int], dict[int, float]]]


@st.composite
def written_files(draw: st.DrawFn) -> Written:
    header = extreme.Header(draw(st.integers(0, 6)), draw(st.integers(1, 12)), draw(st.integers(1, 9)))
    numbers = st.floats(width=32, allow_nan=False, allow_infinity=False)
    points, lines = [], [" ".join(map(str, header))]
    for _ in range(header.points):
        labels = draw(st.lists(st.integers(0, header.labels - 1), unique=True))
        features = draw(st.dictionaries(st.integers(0, header.features - 1), numbers))
        spelling = draw(st.sampled_from([repr, "{:.9e}".format, "{:+.9E}".format]))
        gap = draw(st.sampled_from([" ", "  ", "\t"]))
        tokens = [",".join(map(str, labels)), *(f"{index}:{spelling(value)}" for index, value in features.items())]
        points.append((labels, features))
        lines.append(gap.join(tokens) or gap)
    ends = [draw(st.sampled_from(["\n", "\r\n", " \n", "\t \r\n"])) for _ in lines]
    ends[-1] = draw(st.sampled_from([ends[-1], "", "\n\n", "\r\n\r\n\n"]))
    return Written("".join(line + end for line, end in zip(lines, ends, strict=True)), header, points)


def assert_holds(points: extreme.SparsePoints, written: Written) -> None:
    assert points.header == written.header
    assert len(points) == len(written.points)
    for row, (labels, features) in enumerate(written.points):
        span = slice(points.indptr[row], points.indptr[row + 1])
        assert points.indices[span].tolist() == list(features)
        assert points.values[span].tolist() == list(features.values())
        assert points.label_indices[points.label_indptr[row] : points.label_indptr[row + 1]].tolist() == labels
    assert points.indptr[-1] == len(points.indices) == len(points.values)
    assert points.label_indptr[-1] == len(points.label_indices)


def load_text(folder: pathlib.Path, text: str) -> extreme.SparsePoints:
    path = folder / "points.txt"
    path.write_text(text, newline="")
    return extreme.load(path)


def many_points(count: int) -> bytes:
    return f"{count} 10 4\n".encode() + b"".join(b"%d %d:0.%d\n" % (i % 4, i % 10, i) for i in range(count))
