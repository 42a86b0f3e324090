"""Sparse tensors from and to torch's layouts, scipy's arrays and files, and malformed ones of each."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from joinsum import PlanError, SparseTensor

LAYOUTS = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)
DTYPES = (torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, torch.bool)


def random_matrix(rows: int, columns: int, seed: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """A dense matrix of small integers, most of them 0."""
    generator = torch.Generator().manual_seed(seed)
    shape = (rows, columns)
    return (torch.randint(1, 5, shape, generator=generator) * (torch.rand(shape, generator=generator) < 0.3)).to(dtype)


def refusal(make: Callable[[], object]) -> str:
    with pytest.raises(PlanError) as refused:
        make()
    return str(refused.value)


# --- torch ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_comes_back_as_it_was(layout: torch.layout, dtype: torch.dtype) -> None:
    dense = random_matrix(6, 9, seed=1, dtype=dtype)
    tensor = SparseTensor.from_torch(dense.to_sparse(layout=layout))
    assert tensor.nnz == int((dense != 0).sum())
    assert torch.equal(tensor.to_dense(), dense)
    back = tensor.to_torch(layout)
    assert back.layout is layout
    assert torch.equal(back.to_dense(), dense)


def test_each_layout_has_its_levels() -> None:
    dense = random_matrix(4, 6, seed=2)
    levels = {layout: SparseTensor.from_torch(dense.to_sparse(layout=layout)) for layout in LAYOUTS}
    assert [(each.levels, each.order) for each in levels.values()] == [
        (("sorted_list", "sorted_list"), (0, 1)),
        (("dense", "sorted_list"), (0, 1)),
        (("dense", "sorted_list"), (1, 0)),
    ]
    assert SparseTensor.from_torch(dense).levels == ("dense", "dense")


def test_memory_is_shared_where_layouts_agree() -> None:
    csr = random_matrix(40, 50, seed=3).to_sparse_csr()
    back = SparseTensor.from_torch(csr).to_torch("csr")
    assert back.crow_indices().data_ptr() == csr.crow_indices().data_ptr()
    assert back.col_indices().data_ptr() == csr.col_indices().data_ptr()
    assert back.values().data_ptr() == csr.values().data_ptr()
    dense = random_matrix(4, 5, seed=4)
    assert SparseTensor.from_torch(dense).to_dense().data_ptr() == dense.data_ptr()


def test_indices_of_32_bits_are_widened() -> None:
    csr = random_matrix(5, 7, seed=5).to_sparse_csr()
    narrow = torch.sparse_csr_tensor(csr.crow_indices().int(), csr.col_indices().int(), csr.values(), csr.shape)
    back = SparseTensor.from_torch(narrow).to_torch("csr")
    assert back.col_indices().dtype == torch.int64
    assert torch.equal(back.to_dense(), csr.to_dense())


def test_repeated_elements_of_coo_are_summed() -> None:
    coo = torch.sparse_coo_tensor([[1, 0, 1], [2, 0, 2]], [1.0, 2.0, 4.0], (2, 3))
    tensor = SparseTensor.from_torch(coo)
    assert tensor.nnz == 2
    assert torch.equal(tensor.to_dense(), coo.to_dense())


def test_dense_axes_of_coo_are_dense_levels() -> None:
    coo = torch.sparse_coo_tensor([[3, 1, 3]], torch.arange(18.0).reshape(3, 2, 3), (5, 2, 3))
    tensor = SparseTensor.from_torch(coo)
    assert tensor.levels == ("sorted_list", "dense", "dense")
    assert torch.equal(tensor.to_dense(), coo.to_dense())
    assert SparseTensor.from_torch(torch.sparse_coo_tensor(torch.empty(1, 0), torch.empty(0, 2), (5, 2))).nnz == 0


@pytest.mark.parametrize("layout", [torch.sparse_bsr, torch.sparse_bsc])
def test_blocks_are_kept_on_demand(layout: torch.layout) -> None:
    dense = random_matrix(6, 8, seed=6)
    blocked = dense.to_sparse(layout=layout, blocksize=(2, 4))
    tensor = SparseTensor.from_torch(blocked)
    assert tensor.shape == (6, 8)
    assert tensor.nnz == int((dense != 0).sum())
    assert torch.equal(tensor.to_dense(), dense)
    blocks = SparseTensor.from_torch(blocked, blocks=True)
    assert blocks.shape == (3, 2, 2, 4)
    assert blocks.levels == ("dense", "sorted_list", "dense", "dense")
    assert torch.equal(blocks.to_dense().permute(0, 2, 1, 3).reshape(6, 8), dense)
    assert torch.equal(blocks.to_torch("bsr").to_dense(), dense)
    assert torch.equal(tensor.to_torch("bsr", blocksize=(3, 2)).to_dense(), dense)


def test_a_strided_tensor_may_have_any_fill() -> None:
    dense = torch.tensor([[float("inf"), 1.0], [0.0, float("inf")]])
    tensor = SparseTensor.from_torch(dense, levels="csr", fill=float("inf"))
    assert tensor.nnz == 2
    assert torch.equal(tensor.to_dense(), dense)
    assert torch.equal(SparseTensor.from_torch(dense.t(), levels="coo").to_dense(), dense.t())


# A dense array of so many rows and columns fits no memory.
LARGE = 10_000_000
ENTRIES = {(0, LARGE - 1): 2.0, (4_000_001, 17): 3.0, (LARGE - 1, 3): 1.0}


def entries_of(rows: Any, columns: Any, values: Any) -> dict[tuple[int, int], float]:
    return dict(zip(zip(rows.tolist(), columns.tolist(), strict=True), values.tolist(), strict=True))


def large_coo() -> torch.Tensor:
    places = torch.tensor(list(ENTRIES)).t()
    return torch.sparse_coo_tensor(places, torch.tensor(list(ENTRIES.values())), (LARGE, LARGE), check_invariants=True)


@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr])
def test_large_matrices_of_each_layout_pass_without_a_dense_array(layout: torch.layout) -> None:
    blocks = (1000, 1000) if layout is torch.sparse_bsr else None
    tensor = SparseTensor.from_torch(large_coo().to_sparse(layout=layout, blocksize=blocks))
    assert tensor.nnz == 3
    assert entries_of(*tensor.coordinates(), tensor.values()) == ENTRIES
    back = tensor.to_torch(layout, blocksize=blocks)
    assert back.layout is layout
    again = SparseTensor.from_torch(back, levels="coo")
    assert entries_of(*again.coordinates(), again.values()) == ENTRIES


def test_large_matrices_pass_without_a_dense_array() -> None:
    size = LARGE
    coo = torch.sparse_coo_tensor([[size - 1, 0], [3, size - 1]], [1.0, 2.0], (size, size))
    tensor = SparseTensor.from_torch(coo)
    assert tensor.nbytes < 200
    assert tensor.with_levels("csr").to_torch("csr").values().tolist() == [2, 1]
    assert tensor.to_torch("coo").indices().tolist() == [[0, size - 1], [size - 1, 3]]


def unchecked_csr(offsets: list[int], indices: list[int], values: list[float] | None = None) -> torch.Tensor:
    """A CSR matrix of 3 by 4 whose indices torch does not check."""
    held = [1.0] * len(indices) if values is None else values
    return torch.sparse_csr_tensor(
        torch.tensor(offsets), torch.tensor(indices), torch.tensor(held), (3, 4), check_invariants=False
    )


@pytest.mark.parametrize(
    ("offsets", "indices", "message"),
    [
        ([0, 2, 1, 3], [0, 1, 2], "offsets shrink: level=1, fiber=1, begin=2, end=1"),
        ([1, 1, 2, 3], [0, 1, 2], "offsets do not start with 0: level=1, first=1"),
        ([0, 1, 2, 4], [0, 1, 2], "offsets do not end with the number of coordinates: level=1, end=4, coordinates=3"),
        ([0, 1, 3], [0, 1, 2], "wrong number of offsets: level=1, offsets=3, fibers=3"),
        ([0, 1, 2, 3], [0, 4, 2], "coordinate out of range: level=1, fiber=1, place=1, coordinate=4, size=4"),
        ([0, 1, 2, 3], [0, -1, 2], "coordinate out of range: level=1, fiber=1, place=1, coordinate=-1, size=4"),
        ([0, 1, 1, 3], [0, 2, 1], "coordinates do not ascend: level=1, fiber=2, place=2, coordinate=1, before=2"),
        ([0, 1, 1, 3], [0, 2, 2], "coordinates do not ascend: level=1, fiber=2, place=2, coordinate=2, before=2"),
    ],
)
def test_malformed_csr_is_named(offsets: list[int], indices: list[int], message: str) -> None:
    assert refusal(lambda: SparseTensor.from_torch(unchecked_csr(offsets, indices))) == f"sparse tensor: {message}"


def test_malformed_tensors_are_named() -> None:
    values = unchecked_csr([0, 1, 1, 3], [0, 1, 2], [1.0, 2.0])
    assert refusal(lambda: SparseTensor.from_torch(values)) == (
        "sparse tensor: each entry of the last level needs one value: values=2, entries=3"
    )
    outside = torch.sparse_coo_tensor([[0, 5]], [1.0, 2.0], (3,), check_invariants=False)
    assert refusal(lambda: SparseTensor.from_torch(outside)) == (
        "sparse tensor: coordinate out of range: axis=0, place=1, coordinate=5, size=3"
    )
    batch = torch.ones(2, 3, 4).to_sparse_csr()
    assert "from_torch: a batch of sparse matrices" in refusal(lambda: SparseTensor.from_torch(batch))
    assert refusal(lambda: SparseTensor.from_torch(torch.eye(2).to_sparse(), fill=1)) == (
        "from_torch: torch's sparse tensors are 0 where nothing is stored: fill=1"
    )
    assert "unsupported dtype" in refusal(lambda: SparseTensor.from_torch(torch.eye(2).half()))
    trained = torch.eye(2).to_sparse().requires_grad_()
    assert "give x.detach()" in refusal(lambda: SparseTensor.from_torch(trained))
    assert refusal(lambda: SparseTensor.from_torch([1.0])) == "from_torch: not a tensor: got=list"  # type: ignore[arg-type]


def test_a_layout_that_cannot_hold_the_tensor_is_refused() -> None:
    filled = SparseTensor.from_coordinates([[0], [1]], [1.0], (2, 2), fill=1)
    assert refusal(lambda: filled.to_torch("csr")) == (
        "to_torch: the layout is 0 where nothing is stored; give to_dense(): layout=torch.sparse_csr, fill=1.0"
    )
    vector = SparseTensor.from_coordinates([[0]], [1.0], (2,))
    assert refusal(lambda: vector.to_torch("csr")) == "to_torch: no matrix: shape=[2]"
    assert refusal(lambda: vector.to_torch("csx")) == (
        "to_torch: no such layout: layout='csx', layouts=[dense, coo, csr, csc, bsr]"
    )
    matrix = SparseTensor.from_edges([[0, 1]], 4)
    assert "give blocksize=(rows, columns)" in refusal(lambda: matrix.to_torch("bsr"))
    assert "blocks do not divide the matrix" in refusal(lambda: matrix.to_torch("bsr", blocksize=(3, 2)))


# --- scipy ------------------------------------------------------------------------------------------------------------


@pytest.fixture(name="scipy")
def scipy_sparse() -> Any:
    return pytest.importorskip("scipy.sparse")


@pytest.mark.parametrize("form", ["coo", "csr", "csc", "bsr", "dia", "lil", "dok"])
@pytest.mark.parametrize("kind", ["array", "matrix"])
def test_each_format_of_scipy_is_read(scipy: Any, form: str, kind: str) -> None:
    dense = random_matrix(6, 8, seed=7)
    matrix = getattr(scipy, f"coo_{kind}")(dense.numpy()).asformat(form)
    tensor = SparseTensor.from_scipy(matrix)
    assert torch.equal(tensor.to_dense(), dense)
    assert tensor.nnz == int((dense != 0).sum())
    assert SparseTensor.from_scipy(matrix, levels="csc").order == (1, 0)


@pytest.mark.parametrize("form", ["coo", "csr", "csc"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_each_format_of_scipy_is_written(scipy: Any, form: str, dtype: torch.dtype) -> None:
    dense = random_matrix(6, 8, seed=8, dtype=dtype)
    matrix = SparseTensor.from_torch(dense, levels="csr").to_scipy(form)
    assert matrix.format == form
    assert np.array_equal(matrix.toarray(), dense.numpy())
    assert torch.equal(SparseTensor.from_scipy(matrix).to_dense(), dense)


def test_blocks_are_written_to_scipy(scipy: Any) -> None:
    dense = random_matrix(6, 8, seed=9)
    blocks = SparseTensor.from_torch(dense.to_sparse_bsr((2, 4)), blocks=True)
    assert np.array_equal(blocks.to_scipy("bsr").toarray(), dense.numpy())


def test_values_of_scipy_are_shared(scipy: Any) -> None:
    matrix = scipy.csr_array(random_matrix(6, 8, seed=10).numpy())
    assert np.shares_memory(SparseTensor.from_scipy(matrix).to_scipy("csr").data, matrix.data)


@pytest.mark.parametrize("form", ["coo", "csr", "csc", "dok"])
def test_large_arrays_of_scipy_pass_without_a_dense_array(scipy: Any, form: str) -> None:
    rows, columns = np.array(list(ENTRIES)).T
    matrix = scipy.coo_array((np.array(list(ENTRIES.values())), (rows, columns)), shape=(LARGE, LARGE)).asformat(form)
    tensor = SparseTensor.from_scipy(matrix)
    assert entries_of(*tensor.coordinates(), tensor.values()) == ENTRIES
    back = tensor.to_scipy("coo" if form == "dok" else form)
    assert back.shape == (LARGE, LARGE)
    found = back.tocoo()
    assert entries_of(*found.coords, found.data) == ENTRIES


def test_repeated_and_unsorted_indices_of_scipy_are_summed(scipy: Any) -> None:
    matrix = scipy.csr_array((np.array([1.0, 2.0, 4.0]), np.array([3, 0, 3]), np.array([0, 3, 3])), shape=(2, 4))
    tensor = SparseTensor.from_scipy(matrix)
    assert tensor.nnz == 2
    assert tensor.to_dense().tolist() == [[2, 0, 0, 5], [0, 0, 0, 0]]


def test_room_behind_the_last_row_of_scipy_is_left_out(scipy: Any) -> None:
    matrix = scipy.csr_array((np.ones(5), np.array([0, 1, 2, 9, 9]), np.array([0, 2, 3])), shape=(2, 4))
    assert SparseTensor.from_scipy(matrix).nnz == 3


def test_other_ranks_of_scipy_are_read(scipy: Any) -> None:
    tensor = SparseTensor.from_scipy(scipy.coo_array((np.ones(2), ([0, 1], [1, 0], [2, 2])), shape=(2, 2, 3)))
    assert tensor.shape == (2, 2, 3)
    assert tensor.nnz == 2


def test_malformed_arrays_of_scipy_are_named(scipy: Any) -> None:
    def broken(name: str, array: list[int]) -> str:
        matrix = scipy.csr_array((np.ones(3), np.array([0, 1, 2]), np.array([0, 1, 2, 3])), shape=(3, 4))
        setattr(matrix, name, np.array(array))
        return refusal(lambda: SparseTensor.from_scipy(matrix))

    assert broken("indptr", [0, 2, 1, 3]) == "sparse tensor: offsets shrink: level=1, fiber=1, begin=2, end=1"
    assert broken("indptr", [0, 1, 2, 9]) == (
        "sparse tensor: offsets do not end with the number of coordinates: level=1, end=9, coordinates=3"
    )
    assert broken("indices", [0, 7, 2]) == (
        "sparse tensor: coordinate out of range: level=1, fiber=1, place=1, coordinate=7, size=4"
    )
    assert broken("indices", [0, -1, 2]) == (
        "sparse tensor: coordinate out of range: level=1, fiber=1, place=1, coordinate=-1, size=4"
    )
    matrix = scipy.csr_array((3, 3), dtype=np.complex64)
    assert "unsupported dtype" in refusal(lambda: SparseTensor.from_scipy(matrix))
    assert refusal(lambda: SparseTensor.from_scipy(np.eye(2))) == (
        "from_scipy: no sparse array of scipy's: got=ndarray"
    )


def test_a_fill_that_scipy_does_not_know_is_refused() -> None:
    tensor = SparseTensor.from_coordinates([[0], [1]], [1.0], (2, 2), fill=1)
    assert refusal(tensor.to_scipy) == "to_scipy: scipy's arrays are 0 where nothing is stored: fill=1.0"
    assert "no such format: format='dia'" in refusal(lambda: tensor.to_scipy("dia"))


def test_a_missing_scipy_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    for module in ("scipy.sparse", "scipy.io"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    assert "to_scipy: scipy is not installed; run `pip install scipy`" in refusal(
        SparseTensor.from_edges([[0, 1]], 2).to_scipy
    )
    assert "from_matrix_market: scipy is not installed" in refusal(
        lambda: SparseTensor.from_matrix_market(tmp_path / "a.mtx")
    )
    assert "to_matrix_market: scipy is not installed" in refusal(
        lambda: SparseTensor.from_edges([[0, 1]], 2).to_matrix_market(tmp_path / "a.mtx")
    )
    assert list(tmp_path.iterdir()) == []


# --- Matrix Market ----------------------------------------------------------------------------------------------------


def test_a_matrix_market_file_is_read(scipy: Any, tmp_path: Path) -> None:
    path = tmp_path / "graph.mtx"
    path.write_text("%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n3 3\n")
    tensor = SparseTensor.from_matrix_market(path, levels="csr")
    assert tensor.to_dense().tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1]]
    path.write_text("%%MatrixMarket matrix array real general\n2 2\n1\n0\n0\n2\n")
    assert SparseTensor.from_matrix_market(str(path), levels="coo").nnz == 2


@pytest.mark.parametrize("levels", ["coo", "csr", "csc", "hash"])
def test_large_files_are_read_without_a_dense_array(scipy: Any, tmp_path: Path, levels: str) -> None:
    path = tmp_path / "large.mtx"
    lines = [f"{row + 1} {column + 1} {value}" for (row, column), value in ENTRIES.items()]
    size = f"{LARGE} {LARGE} {len(lines)}"
    path.write_text("\n".join(["%%MatrixMarket matrix coordinate real general", size, *lines]) + "\n")
    tensor = SparseTensor.from_matrix_market(path, levels=levels)
    assert tensor.shape == (LARGE, LARGE)
    assert entries_of(*tensor.coordinates(), tensor.values()) == ENTRIES


def test_malformed_matrix_market_files_are_named(scipy: Any, tmp_path: Path) -> None:
    path = tmp_path / "graph.mtx"
    for text in (
        "no matrix\n",
        "",
        "%%MatrixMarket matrix coordinate real general\n3 3 2\n1 1 1\n",
        "%%MatrixMarket matrix coordinate real general\n3 3 1\n4 1 1\n",
        "%%MatrixMarket matrix coordinate real general\n3 3 1\n0 1 1\n",
    ):
        path.write_text(text)
        assert "from_matrix_market: no file in the Matrix Market format" in refusal(
            lambda: SparseTensor.from_matrix_market(path)
        )
    assert "there is no file" in refusal(lambda: SparseTensor.from_matrix_market(tmp_path / "none.mtx"))
    assert "there is no file" in refusal(lambda: SparseTensor.from_matrix_market(tmp_path))


READ_AS = {
    torch.float32: torch.float64,
    torch.float64: torch.float64,
    torch.int32: torch.int64,
    torch.int64: torch.int64,
    torch.uint8: torch.int64,
}


@pytest.mark.parametrize("levels", ["coo", "csr", "csc", "hash", "dense"])
@pytest.mark.parametrize("dtype", READ_AS)
def test_a_written_file_is_read_by_scipy_and_comes_back(
    scipy: Any, tmp_path: Path, dtype: torch.dtype, levels: str
) -> None:
    dense = random_matrix(6, 9, seed=11, dtype=dtype)
    path = tmp_path / "graph.mtx"
    SparseTensor.from_torch(dense, levels=levels).to_matrix_market(path)
    read = importlib.import_module("scipy.io").mmread(path)
    assert read.nnz == int((dense != 0).sum())
    assert np.array_equal(read.toarray(), dense.numpy())
    back = SparseTensor.from_matrix_market(str(path))
    assert back.dtype is READ_AS[dtype]
    assert torch.equal(back.to(dtype).to_dense(), dense)
    assert [each.name for each in tmp_path.iterdir()] == ["graph.mtx"]


def test_written_numbers_come_back_to_the_last_bit(scipy: Any, tmp_path: Path) -> None:
    path = tmp_path / "numbers.mtx"
    for dtype in (torch.float32, torch.float64):
        values = torch.randn(1000, generator=torch.Generator().manual_seed(12), dtype=dtype).exp() / 3
        values[:5] = torch.tensor([math.inf, -math.inf, 5e-324, -0.0, 0.0], dtype=dtype)
        tensor = SparseTensor.from_coordinates([range(1000), range(1000)], values, (1000, 1000))
        tensor.to_matrix_market(path)
        assert torch.equal(SparseTensor.from_matrix_market(path).values().to(dtype), values)
    wide = SparseTensor.from_coordinates([[0, 1], [1, 0]], [2**63 - 1, -(2**63)], (2, 2))
    wide.to_matrix_market(path)
    assert SparseTensor.from_matrix_market(path).values().tolist() == [2**63 - 1, -(2**63)]


def test_a_symmetric_matrix_is_written_with_all_its_elements(scipy: Any, tmp_path: Path) -> None:
    path = tmp_path / "graph.mtx"
    SparseTensor.from_edges([[0, 1]], 3, symmetric=True, dtype=torch.int32).to_matrix_market(path)
    lines = path.read_text().splitlines()
    assert lines[0] == "%%MatrixMarket matrix coordinate integer general"
    assert lines[-3:] == ["3 3 2", "1 2 1", "2 1 1"]


@pytest.mark.parametrize("suffix", ["mtx.gz", "txt"])
def test_compressed_files_are_written_by_their_suffix(scipy: Any, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"graph.{suffix}"
    dense = random_matrix(5, 4, seed=13)
    SparseTensor.from_torch(dense, levels="csr").to_matrix_market(str(path))
    assert path.read_bytes()[:2] == {"mtx.gz": b"\x1f\x8b", "txt": b"%%"}[suffix]
    assert torch.equal(SparseTensor.from_matrix_market(path).to_dense(), dense)


def test_large_matrices_are_written_without_a_dense_array(scipy: Any, tmp_path: Path) -> None:
    path, size = tmp_path / "large.mtx", 10_000_000
    SparseTensor.from_coordinates([[0, size - 1], [size - 1, 3]], [1.5, 2.0], (size, size)).to_matrix_market(path)
    back = SparseTensor.from_matrix_market(path)
    assert (back.shape, back.coordinates().tolist()) == ((size, size), [[0, size - 1], [size - 1, 3]])


def test_what_a_matrix_market_file_cannot_hold_is_refused_and_the_old_file_stays(scipy: Any, tmp_path: Path) -> None:
    path = tmp_path / "graph.mtx"
    path.write_text("old")
    matrix = SparseTensor.from_edges([[0, 1]], 2)
    vector = SparseTensor.from_coordinates([[0]], [1.0], (2,))
    filled = SparseTensor.from_coordinates([[0], [1]], [1.0], (2, 2), fill=math.inf)
    assert refusal(lambda: vector.to_matrix_market(path)) == "to_matrix_market: no matrix: shape=[2]"
    assert refusal(lambda: matrix.to(torch.bool).to_matrix_market(path)) == (
        "to_matrix_market: the format has no truth values; give x.to(torch.uint8): dtype=bool"
    )
    assert refusal(lambda: filled.to_matrix_market(path)) == (
        "to_matrix_market: the format is 0 where nothing is stored: fill=inf"
    )
    assert "only gzip compresses" in refusal(lambda: matrix.to_matrix_market(tmp_path / "graph.mtx.bz2"))
    assert refusal(lambda: matrix.to_matrix_market(3)) == "to_matrix_market: no path: path=3"  # type: ignore[arg-type]
    assert path.read_text() == "old"
    with pytest.raises(FileNotFoundError):
        matrix.to_matrix_market(tmp_path / "none" / "graph.mtx")


def test_a_file_whose_writing_fails_half_way_stays_as_it_was(
    scipy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(stream: Any, *_: object, **__: object) -> None:
        stream.write(b"%%Matrix")
        raise OSError("no space left")

    monkeypatch.setattr(importlib.import_module("scipy.io"), "mmwrite", fails)
    path = tmp_path / "graph.mtx"
    path.write_text("old")
    with pytest.raises(OSError, match="no space left"):
        SparseTensor.from_edges([[0, 1]], 2).to_matrix_market(path)
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("graph.mtx", "old")]


def test_transforms_of_functions_are_refused() -> None:
    x = SparseTensor.from_coordinates([[0, 1]], [1.0, 2.0], (2,))
    for function in (
        lambda v: x.with_values(v).to_dense().sum(),
        lambda v: SparseTensor.from_coordinates([[0, 1]], v.detach(), (2,)).to_dense().sum(),
    ):
        with pytest.raises(PlanError, match=r"are not taken in transforms of torch\.func"):
            torch.func.grad(function)(torch.ones(2))
