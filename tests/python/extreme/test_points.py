"""Points in memory: batches, and the Debian data set."""

from __future__ import annotations

import doctest
import gzip
import pathlib
from types import ModuleType

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from joinsum import extreme
from joinsum.extreme import points as in_memory
from joinsum.extreme import precision
from points_files import Written, load_text, many_points, written_files

DEBIAN = pathlib.Path(__file__).parents[3] / "data" / "debian-xml"


@pytest.mark.parametrize("module", [in_memory, precision])
def test_the_examples_in_the_docstrings_run(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


# --- batches ----------------------------------------------------------------------------------------------------------


def dense(written: Written) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.zeros(len(written.points), written.header.features)
    y = torch.zeros(len(written.points), written.header.labels)
    for row, (labels, features) in enumerate(written.points):
        for label in labels:
            y[row, label] = 1
        for index, value in features.items():
            x[row, index] = value
    return x, y


@given(written_files(), st.data())
def test_a_batch_equals_the_rows_of_the_dense_matrices(
    tmp_path_factory: pytest.TempPathFactory, written: Written, data: st.DataObject
) -> None:
    points = load_text(tmp_path_factory.mktemp("batch"), written.text)
    x, y = dense(written)
    out = extreme.DenseBatch(torch.full((5, x.shape[1]), 7.0), torch.full((5, y.shape[1]), 7.0))
    some_rows = st.lists(st.integers(0, len(points) - 1), max_size=5) if len(points) else st.just([])
    for _ in range(3):
        rows = data.draw(some_rows)
        for buffers in (None, out, (torch.full_like(out.x, 7.0), torch.full_like(out.y, 7.0))):
            got_x, got_y = points.batch(rows, out=buffers)
            assert torch.equal(got_x, x[rows])
            assert torch.equal(got_y, y[rows])
        assert not out.x[len(rows) :].any()
        assert not out.y[len(rows) :].any()


@pytest.fixture
def three(tmp_path: pathlib.Path) -> extreme.SparsePoints:
    return load_text(tmp_path, "3 5 4\n0,1 0:1 4:0.5\n 2:1\n3\n")


def test_a_batch_with_buffers_is_a_view_of_them(three: extreme.SparsePoints) -> None:
    out = extreme.DenseBatch(torch.empty(2, 5), torch.empty(2, 4))
    x, y = three.batch([0], out=out)
    assert (x.data_ptr(), y.data_ptr()) == (out.x.data_ptr(), out.y.data_ptr())
    assert (x.shape, y.shape) == ((1, 5), (1, 4))


def test_a_batch_clears_only_what_the_batch_before_it_set(three: extreme.SparsePoints) -> None:
    out = extreme.DenseBatch(torch.empty(1, 5), torch.empty(1, 4))
    three.batch([0], out=out)
    out.x[0, 3] = 9
    x, _ = three.batch([1], out=out)
    assert x.tolist() == [[0, 0, 1, 9, 0]]


def test_two_data_sets_may_share_buffers(three: extreme.SparsePoints, tmp_path: pathlib.Path) -> None:
    other = load_text(tmp_path, "1 5 4\n2 3:8\n")
    out = extreme.DenseBatch(torch.empty(1, 5), torch.empty(1, 4))
    three.batch([0], out=out)
    other.batch([0], out=out)
    x, y = three.batch([1], out=out)
    assert (x.tolist(), y.tolist()) == ([[0, 0, 1, 0, 0]], [[0, 0, 0, 0]])


def test_rows_may_be_a_list_an_array_or_a_tensor(three: extreme.SparsePoints) -> None:
    x, _ = three.batch([2, 0])
    for rows in (np.array([2, 0], dtype=np.int32), torch.tensor([2, 0])):
        assert torch.equal(three.batch(rows)[0], x)


@pytest.mark.parametrize("row", [-1, 3])
def test_a_row_that_does_not_exist_is_rejected(three: extreme.SparsePoints, row: int) -> None:
    with pytest.raises(IndexError, match=rf"^batch: row is out of range: row={row}, points=3$"):
        three.batch([0, row])


def test_rows_that_are_not_integers_are_rejected(three: extreme.SparsePoints) -> None:
    for rows in (np.array([0.0]), np.array([[0]]), np.array([True, False, True])):
        with pytest.raises(ValueError, match=r"^batch: rows are not a vector of integers: "):
            three.batch(rows)


def test_buffers_that_do_not_fit_are_rejected(three: extreme.SparsePoints) -> None:
    with pytest.raises(ValueError, match=r"buffer=x, shape=\(2, 6\), needed=\(1, 5\)"):
        three.batch([0], out=(torch.empty(2, 6), torch.empty(2, 4)))
    with pytest.raises(ValueError, match=r"buffer=x, shape=\(1, 5\), needed=\(2, 5\)"):
        three.batch([0, 1], out=(torch.empty(1, 5), torch.empty(1, 4)))
    with pytest.raises(ValueError, match=r"^DenseBatch: buffers differ in rows: x=2, y=1$"):
        extreme.DenseBatch(torch.empty(2, 5), torch.empty(1, 4))
    for x in (torch.empty(5), torch.empty(2, 5, dtype=torch.float64), torch.empty(5, 2).T):
        with pytest.raises(ValueError, match=r"^DenseBatch: buffer is not a contiguous float32 matrix: buffer=x, "):
            extreme.DenseBatch(x, torch.empty(2, 4))


@pytest.mark.parametrize("batch", [1, 2, 3, 4])
def test_minibatches_hold_every_row_once_and_keep_the_short_last_one(three: extreme.SparsePoints, batch: int) -> None:
    batches = list(three.minibatches(batch, torch.Generator().manual_seed(1)))
    assert sorted(np.concatenate(batches).tolist()) == [0, 1, 2]
    assert [len(rows) for rows in batches] == [min(batch, 3 - start) for start in range(0, 3, batch)]
    assert all(rows.dtype == np.int64 for rows in batches)


def test_the_generator_alone_decides_the_order_of_minibatches(tmp_path: pathlib.Path) -> None:
    points = load_text(tmp_path, many_points(50).decode())

    def epoch(generator: torch.Generator) -> list[int]:
        return [int(row) for rows in points.minibatches(7, generator) for row in rows]

    generator = torch.Generator().manual_seed(1)
    first, second = epoch(generator), epoch(generator)
    assert first == epoch(torch.Generator().manual_seed(1))
    assert first != second
    assert first != epoch(torch.Generator().manual_seed(2))


def test_minibatches_reject_a_batch_of_no_rows_at_the_call(three: extreme.SparsePoints) -> None:
    with pytest.raises(ValueError, match=r"^minibatches: batch is too small: batch=0$"):
        three.minibatches(0, torch.Generator())


# --- the Debian data set ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def debian() -> tuple[extreme.SparsePoints, extreme.SparsePoints]:
    return extreme.load(DEBIAN / "train.txt.gz"), extreme.load(DEBIAN / "test.txt.gz")


def test_the_debian_files_have_the_documented_sizes(
    debian: tuple[extreme.SparsePoints, extreme.SparsePoints],
) -> None:
    train, test = debian
    assert train.header == extreme.Header(points=43718, features=17671, labels=17860)
    assert test.header == extreme.Header(points=10960, features=17671, labels=17860)
    for name, size in (("features", 17671), ("labels", 17860)):
        assert len(gzip.decompress((DEBIAN / f"{name}.txt.gz").read_bytes()).splitlines()) == size


def test_the_debian_points_have_labels_and_unit_length(
    debian: tuple[extreme.SparsePoints, extreme.SparsePoints],
) -> None:
    for points in debian:
        assert (np.diff(points.label_indptr) > 0).all()
        lengths = np.sqrt(np.add.reduceat(points.values.astype(np.float64) ** 2, points.indptr[:-1]))
        assert np.abs(lengths - 1).max() < 1e-3


def test_the_debian_frequency_baseline_is_as_documented(
    debian: tuple[extreme.SparsePoints, extreme.SparsePoints],
) -> None:
    assert [round(p, 3) for p in extreme.frequency_baseline(*debian).tolist()] == [0.400, 0.216, 0.172]
