"""Single operations on sparse tensors by joinsum, scipy.sparse, torch.sparse (MKL) and GraphBLAS, on 1 and 2 threads.

Contenders take turns; figures are medians of milliseconds of a call, and joinsum's beside the fastest other one. Plans
and compiled kernels are cached, as the others' are built in; conversions to a contender's format do not count. Results
are compared first.

Matrices are R-MAT graphs (Chakrabarti, Zhan and Faloutsos, 2004; a, b, c = 0.57, 0.19, 0.19) and the graphs of
data/graphs. Needs scipy; GraphBLAS where it is installed (`pip install python-graphblas "suitesparse-graphblas<10.1"`).

    python benchmarks/sparse_kernels.py [--threads 1,2] [--rounds N] [--only NAME,...] [--json FILE]
"""

from __future__ import annotations

import gzip
import json
import platform
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click
import joinsum
import numpy as np
import scipy.sparse
import torch
from joinsum import SparseTensor

try:
    import graphblas
except ImportError:
    graphblas = None

GRAPHS = Path(__file__).parent.parent / "data" / "graphs"
COLUMNS = 64  # of dense matrices
Call = Callable[[], Any]


@dataclass
class Matrix:
    """A square matrix in the formats of all contenders."""

    name: str
    scipy: Any

    def __post_init__(self) -> None:
        rows, columns = self.scipy.shape
        generator = torch.Generator().manual_seed(0)
        self.x = torch.rand(columns, generator=generator, dtype=torch.float64)
        self.dense, self.left = (torch.rand(rows, COLUMNS, generator=generator, dtype=torch.float64) for _ in range(2))
        self.joinsum = SparseTensor.from_scipy(self.scipy, levels="csr")
        self.torch = self.joinsum.to_torch("csr")
        self.graphblas: Any = None if graphblas is None else graphblas.io.from_scipy_sparse(self.scipy)

    def __str__(self) -> str:
        return f"{self.name} ({self.scipy.shape[0]:,}, {self.scipy.nnz:,} entries)"


def rmat(scale: int, edges: int) -> Matrix:
    """A graph of 2^scale vertices."""
    generator = np.random.default_rng(0)
    row, column = np.zeros((2, edges), dtype=np.int64)
    for _ in range(scale):
        drawn = generator.random(edges)
        row = 2 * row + (drawn >= 0.76)
        column = 2 * column + (((drawn >= 0.57) & (drawn < 0.76)) | (drawn >= 0.95))
    size = 1 << scale
    matrix = scipy.sparse.coo_array((generator.random(edges) + 0.5, (row, column)), shape=(size, size)).tocsr()
    matrix.sort_indices()
    return Matrix(f"R-MAT {scale}", matrix)


def real(name: str) -> Matrix:
    """A labelled graph's adjacency."""
    pairs = []
    with gzip.open(GRAPHS / f"{name}.graph.gz", "rt") as lines:
        for kind, first, second in (line.split() for line in lines):
            if kind == "e":
                pairs += [(int(first), int(second)), (int(second), int(first))]
    row, column = np.array(pairs).T
    size = int(max(row.max(), column.max())) + 1
    matrix = scipy.sparse.coo_array((np.ones(len(row)), (row, column)), shape=(size, size)).tocsr()
    matrix.sort_indices()
    return Matrix(name, matrix)


def spmv(m: Matrix) -> dict[str, Call]:
    x = m.x.numpy()
    calls: dict[str, Call] = {
        "joinsum": lambda: joinsum.einsum("ij,j->i", m.joinsum, m.x, out_format="dense"),
        "scipy": lambda: m.scipy @ x,
        "torch": lambda: m.torch @ m.x,
    }
    if graphblas is not None:
        vector = graphblas.Vector.from_dense(x)
        calls["graphblas"] = lambda: m.graphblas.mxv(vector).new()
    return calls


def spmm(m: Matrix) -> dict[str, Call]:
    y = m.dense.numpy()
    calls: dict[str, Call] = {
        "joinsum": lambda: joinsum.einsum("ij,jk->ik", m.joinsum, m.dense, out_format="dense"),
        "scipy": lambda: m.scipy @ y,
        "torch": lambda: m.torch @ m.dense,
    }
    if graphblas is not None:
        matrix = graphblas.Matrix.from_dense(y)
        calls["graphblas"] = lambda: m.graphblas.mxm(matrix).new()
    return calls


def spgemm(m: Matrix) -> dict[str, Call]:
    calls: dict[str, Call] = {
        "joinsum": lambda: joinsum.einsum("ij,jk->ik", m.joinsum, m.joinsum, out_format="csr"),
        "scipy": lambda: m.scipy @ m.scipy,
        "torch": lambda: torch.sparse.mm(m.torch, m.torch),
    }
    if graphblas is not None:
        calls["graphblas"] = lambda: m.graphblas.mxm(m.graphblas).new()
    return calls


def sddmm(m: Matrix) -> dict[str, Call]:
    row, column = m.scipy.tocoo().coords
    left, right = m.left.numpy(), m.dense.numpy()
    right_t = m.dense.T

    def by_scipy() -> Any:
        values = np.einsum("ek,ek->e", left[row], right[column]) * m.scipy.data
        return scipy.sparse.csr_array((values, m.scipy.indices, m.scipy.indptr), shape=m.scipy.shape)

    def by_torch() -> Any:
        sampled = torch.sparse.sampled_addmm(m.torch, m.left, right_t, beta=0.0)
        values = sampled.values() * m.torch.values()
        return torch.sparse_csr_tensor(m.torch.crow_indices(), m.torch.col_indices(), values, m.torch.shape)

    return {
        "joinsum": lambda: joinsum.einsum("ij,ik,jk->ij", m.joinsum, m.left, m.dense, out_format="csr"),
        "scipy": by_scipy,
        "torch": by_torch,
    }


def masked_product(m: Matrix) -> dict[str, Call]:
    calls: dict[str, Call] = {
        "joinsum": lambda: joinsum.einsum("ij,jk,ik->ik", m.joinsum, m.joinsum, m.joinsum, out_format="csr"),
        "scipy": lambda: (m.scipy @ m.scipy).multiply(m.scipy).tocsr(),
    }
    if graphblas is not None:
        times = graphblas.binary.times
        calls["graphblas"] = lambda: times(m.graphblas.mxm(m.graphblas).new(mask=m.graphblas.S) & m.graphblas).new()
    return calls


def row_sums(m: Matrix) -> dict[str, Call]:
    ones = torch.ones_like(m.x)
    calls: dict[str, Call] = {
        "joinsum": lambda: joinsum.einsum("ij->i", m.joinsum, out_format="dense"),
        "scipy": lambda: m.scipy.sum(1),
        "torch": lambda: m.torch @ ones,
    }
    if graphblas is not None:
        calls["graphblas"] = lambda: m.graphblas.reduce_rowwise().new()
    return calls


def scaled_rows(m: Matrix) -> dict[str, Call]:
    x = m.x.numpy()
    calls: dict[str, Call] = {
        "joinsum": lambda: joinsum.einsum("ij,i->ij", m.joinsum, m.x, out_format="csr"),
        "scipy": lambda: m.scipy.multiply(x[:, None]).tocsr(),
    }
    if graphblas is not None:
        diagonal = graphblas.Vector.from_dense(x).diag()
        calls["graphblas"] = lambda: diagonal.mxm(m.graphblas).new()
    return calls


def transposed_spmm(m: Matrix) -> dict[str, Call]:
    y, turned, own = m.dense.numpy(), m.scipy.T, m.torch.t()
    calls: dict[str, Call] = {
        "joinsum": lambda: joinsum.einsum("ij,ik->jk", m.joinsum, m.dense, out_format="dense"),
        "scipy": lambda: turned @ y,
        "torch": lambda: own @ m.dense,
    }
    if graphblas is not None:
        matrix = graphblas.Matrix.from_dense(y)
        calls["graphblas"] = lambda: m.graphblas.T.mxm(matrix).new()
    return calls


def sparse_vector(m: Matrix) -> dict[str, Call]:
    """A row of which 1 % of the elements are stored, times the matrix."""
    size = m.scipy.shape[0]
    places = np.sort(np.random.default_rng(0).choice(size, max(size // 100, 1), replace=False))
    ones = np.ones(len(places))
    vector = SparseTensor.from_coordinates([places], ones, (size,))
    row = scipy.sparse.csr_array((ones, (np.zeros(len(places), dtype=np.int64), places)), shape=(1, size))
    calls: dict[str, Call] = {
        "joinsum": lambda: joinsum.einsum("i,ij->j", vector, m.joinsum, out_format="sorted_list"),
        "scipy": lambda: row @ m.scipy,
    }
    if graphblas is not None:
        own = graphblas.Vector.from_coo(places, ones, size=size)
        calls["graphblas"] = lambda: own.vxm(m.graphblas).new()
    return calls


def union(m: Matrix) -> dict[str, Call]:
    """The sum with the matrix whose rows stand the other way round."""
    other = m.scipy[::-1].tocsr()
    other.sort_indices()
    turned = Matrix(m.name, other)
    calls: dict[str, Call] = {
        "joinsum": lambda: joinsum.einsum("ij,ij->ij", m.joinsum, turned.joinsum, join="add", out_format="csr"),
        "scipy": lambda: m.scipy + other,
        "torch": lambda: m.torch + turned.torch,
    }
    if graphblas is not None:
        plus = graphblas.binary.plus
        calls["graphblas"] = lambda: plus(m.graphblas | turned.graphblas).new()
    return calls


def row_maxima(m: Matrix) -> dict[str, Call]:
    calls: dict[str, Call] = {
        "joinsum": lambda: joinsum.einsum("ij->i", m.joinsum, agg="max", out_format="dense"),
        "scipy": lambda: m.scipy.max(axis=1).toarray(),
    }
    if graphblas is not None:
        calls["graphblas"] = lambda: m.graphblas.reduce_rowwise(graphblas.monoid.max).new()
    return calls


def mapped(m: Matrix) -> dict[str, Call]:
    calls: dict[str, Call] = {
        "joinsum": lambda: joinsum.einsum("ij->ij", m.joinsum, join="abs", out_format="csr"),
        "scipy": lambda: abs(m.scipy),
        "torch": lambda: m.torch.abs(),
    }
    if graphblas is not None:
        calls["graphblas"] = lambda: graphblas.unary.abs(m.graphblas).new()
    return calls


OPERATIONS: dict[str, Callable[[Matrix], dict[str, Call]]] = {
    "spmv": spmv,
    "spmm": spmm,
    "sddmm": sddmm,
    "spgemm": spgemm,
    "masked product": masked_product,
    "row sums": row_sums,
    "scaled rows": scaled_rows,
    "transposed spmm": transposed_spmm,
    "sparse vector": sparse_vector,
    "union": union,
    "row maxima": row_maxima,
    "map": mapped,
}


def mttkrp() -> tuple[str, dict[str, Call]]:
    """A tensor of three axes with two factors; the others work on its matrix of rows (i, (j, k))."""
    generator = torch.Generator().manual_seed(0)
    shape, rank, entries = (4000, 3000, 2000), 32, 500_000
    places = torch.stack([torch.randint(extent, (entries,), generator=generator) for extent in shape])
    values = torch.rand(entries, generator=generator, dtype=torch.float64)
    tensor = SparseTensor.from_torch(torch.sparse_coo_tensor(places, values, shape).coalesce(), levels="csf")
    b, c = (torch.rand(extent, rank, generator=generator, dtype=torch.float64) for extent in shape[1:])
    row, second, third = (x.numpy() for x in tensor.coordinates())
    stored = tensor.values().numpy()

    def by_scipy() -> Any:
        ones = scipy.sparse.csr_array((np.ones(len(row)), (row, np.arange(len(row)))), shape=(shape[0], len(row)))
        return ones @ (stored[:, None] * b.numpy()[second] * c.numpy()[third])

    def by_torch() -> Any:
        products = tensor.values()[:, None] * b[torch.from_numpy(second)] * c[torch.from_numpy(third)]
        return torch.zeros(shape[0], rank, dtype=torch.float64).index_add_(0, torch.from_numpy(row), products)

    name = f"{shape[0]} x {shape[1]} x {shape[2]}, {tensor.nnz:,} entries"
    return name, {
        "joinsum": lambda: joinsum.einsum("ijk,jr,kr->ir", tensor, b, c, out_format="dense"),
        "scipy": by_scipy,
        "torch": by_torch,
    }


def dense_of(result: Any) -> np.ndarray[Any, Any]:
    if isinstance(result, SparseTensor):
        return np.asarray(result.to_dense())
    if isinstance(result, torch.Tensor):
        return np.asarray(result.to_dense())
    if scipy.sparse.issparse(result):
        return np.asarray(result.todense())
    return np.asarray(result if isinstance(result, np.ndarray) else result.to_dense(0.0))


def checked(calls: dict[str, Call]) -> None:
    """Raises where results differ."""
    wanted = dense_of(calls["joinsum"]())
    for name, call in calls.items():
        np.testing.assert_allclose(dense_of(call()).reshape(wanted.shape), wanted, rtol=1e-9, atol=1e-9, err_msg=name)


def timed(calls: dict[str, Call], rounds: int) -> dict[str, float]:
    """Milliseconds of a call."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name, call in calls.items():
            repeats, start = 0, time.perf_counter()
            while repeats == 0 or (repeats < 50 and time.perf_counter() - start < 0.05):
                call()
                repeats += 1
            if number > 0:
                found[name].append(1e3 * (time.perf_counter() - start) / repeats)
    return {name: median(each) for name, each in found.items()}


def set_threads(threads: int) -> None:
    torch.set_num_threads(threads)
    if graphblas is not None:
        graphblas.ss.config["nthreads"] = threads


@dataclass
class Case:
    """An operation on a matrix, or on the tensor of three axes."""

    operation: str
    matrix: str
    about: str  # the matrix with its size
    calls: dict[str, Call]
    small: bool  # so that results are compared as dense arrays


def cases(only: set[str]) -> Iterator[Case]:
    matrices = [rmat(12, 40_000), rmat(15, 300_000), real("human"), real("yeast")]
    for operation, make in OPERATIONS.items():
        for matrix in matrices:
            if not only or operation in only:
                yield Case(operation, matrix.name, str(matrix), make(matrix), matrix.scipy.shape[0] <= 8192)
    if not only or "mttkrp" in only:
        about, calls = mttkrp()
        yield Case("mttkrp", "three axes", about, calls, True)


@click.command(help=__doc__)
@click.option("--threads", default="1,2", show_default=True)
@click.option("--rounds", default=5, show_default=True)
@click.option("--only", default="", help="Operations, separated by commas.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write the figures here too.")
def main(threads: str, rounds: int, only: str, json_file: Path | None) -> None:
    warnings.simplefilter("ignore")
    print(
        f"{platform.processor() or platform.machine()}, torch {torch.__version__}, scipy {scipy.__version__}, ", end=""
    )
    print("no GraphBLAS" if graphblas is None else f"GraphBLAS {graphblas.__version__}")
    rows: list[dict[str, Any]] = []
    ratios: list[float] = []
    for case in cases({each for each in only.split(",") if each}):
        if case.small:
            checked(case.calls)
        for count in map(int, threads.split(",")):
            set_threads(count)
            found = timed(case.calls, rounds)
            best = min((ms, other) for other, ms in found.items() if other != "joinsum")
            ratio = best[0] / found["joinsum"]
            listed = ", ".join(f"{other} {ms:.3f}" for other, ms in found.items())
            print(f"{case.operation}, {case.about}, {count} threads: {listed}; {ratio:.2f} x {best[1]}", flush=True)
            row = {"operation": case.operation, "matrix": case.matrix, "about": case.about, "threads": count}
            rows.append({**row, "ms": found, "rival": best[1], "ratio": ratio})
            ratios.append(ratio)
    print(f"median {median(ratios):.2f}, least {min(ratios):.2f}")
    if json_file is not None:
        json_file.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
