"""Precision at k against counting."""

from __future__ import annotations

import pathlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from joinsum import extreme
from points_files import load_text

# --- precision --------------------------------------------------------------------------------------------------------


@given(st.integers(1, 5), st.integers(1, 8), st.integers(0, 2**31), st.data())
def test_precision_equals_counting(points: int, labels: int, seed: int, data: st.DataObject) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.stack([torch.randperm(labels, generator=generator).double() for _ in range(points)])
    y = torch.randint(0, 2, (points, labels), generator=generator).float()
    ks = tuple(data.draw(st.lists(st.integers(1, labels), min_size=1)))
    expected = []
    for k in ks:
        hits = 0
        for row in range(points):
            best = sorted(range(labels), key=lambda label: -scores[row, label])[:k]
            hits += sum(int(y[row, label]) for label in best)
        expected.append(hits / k / points)
    assert extreme.precision_at(scores, y, ks).tolist() == pytest.approx(expected)
    parts = extreme.precision_sums(scores[:1], y[:1], ks) + extreme.precision_sums(scores[1:], y[1:], ks)
    assert (parts / points).tolist() == pytest.approx(expected)


def test_precision_takes_tied_scores() -> None:
    y = torch.tensor([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
    assert extreme.precision_at(torch.zeros(2, 3), y, (1, 3)).tolist() == [0.5, 0.5]


def test_precision_rejects_what_has_no_ranking() -> None:
    scores, y = torch.zeros(2, 3), torch.zeros(2, 3)
    with pytest.raises(ValueError, match=r"scores and y are not matrices of one shape: scores=\(2, 3\), y=\(2, 2\)"):
        extreme.precision_at(scores, y[:, :2])
    for ks in ((), (0,), (1, 4)):
        with pytest.raises(ValueError, match="precision_at: k is out of range: "):
            extreme.precision_at(scores, y, ks)
    with pytest.raises(ValueError, match="precision_at: batch has no points"):
        extreme.precision_at(scores[:0], y[:0], (1,))
    scores[1, 2] = torch.nan
    with pytest.raises(ValueError, match="precision_at: scores hold NaN"):
        extreme.precision_at(scores, y, (1,))


def test_the_frequency_baseline_is_the_precision_of_the_label_counts(tmp_path: pathlib.Path) -> None:
    train = load_text(tmp_path, "4 1 3\n2,0\n2,1\n2,0\n \n")
    test = load_text(tmp_path, "3 1 3\n2\n0,1\n \n")
    _, y = test.batch([0, 1, 2])
    scores = torch.tensor([2.0, 1.0, 3.0]).expand(3, 3)
    expected = extreme.precision_at(scores, y, (1, 2, 3))
    assert extreme.frequency_baseline(train, test, (1, 2, 3)).tolist() == pytest.approx(expected.tolist())


def test_the_frequency_baseline_rejects_data_sets_that_do_not_fit(
    three: extreme.SparsePoints, tmp_path: pathlib.Path
) -> None:
    for text in ("1 5 3\n0\n", "0 5 4\n"):
        with pytest.raises(ValueError, match=r"^frequency_baseline: test does not fit train: "):
            extreme.frequency_baseline(three, load_text(tmp_path, text), (1,))
    with pytest.raises(ValueError, match=r"k is out of range: ks=\(5,\), labels=4"):
        extreme.frequency_baseline(three, three, (5,))


@pytest.fixture
def three(tmp_path: pathlib.Path) -> extreme.SparsePoints:
    return load_text(tmp_path, "3 5 4\n0,1 0:1 4:0.5\n 2:1\n3\n")
