"""Matrix products of ScaLAPACK on all processes of MPI, as frame/outside.py describes.

    mpirun -n RANKS python benchmarks/programs/scalapack.py FOLDER

`prepare` distributes the operands a and b in square blocks, by the grid and the block size whose product was fastest;
`step` multiplies. Process 0 reads the lines and passes them on by pipes with names: MPI's own messages are waited for
by polling, which would take the cores from the other contenders.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from ctypes import CDLL, RTLD_GLOBAL, byref, c_char_p, c_double, c_float, c_int, c_void_p
from ctypes.util import find_library
from pathlib import Path
from typing import Any, NamedTuple

import numpy

BLOCKS = (64, 128, 256, 512)
LIBRARY = "scalapack-openmpi"


class Layout(NamedTuple):
    """A grid of processes, and the size of blocks."""

    rows: int
    columns: int
    block: int


class Process:
    """This process of MPI, and ScaLAPACK's functions."""

    def __init__(self) -> None:
        CDLL("libmpi.so.40", RTLD_GLOBAL)
        self.library = CDLL(find_library(LIBRARY) or f"lib{LIBRARY}.so.2.2")
        number, count = c_int(), c_int()
        self.library.Cblacs_pinfo(byref(number), byref(count))
        self.number, self.count = number.value, count.value

    def layouts(self) -> list[Layout]:
        grids = [(rows, self.count // rows) for rows in range(1, self.count + 1) if self.count % rows == 0]
        return [Layout(rows, columns, block) for rows, columns in grids for block in BLOCKS]


class Product:
    """a @ b in one layout; `own` are the indices of rows and columns that this process has of each matrix."""

    def __init__(self, process: Process, layout: Layout, a: Any, b: Any) -> None:
        self.library = process.library
        self.context = c_int()
        self.library.Cblacs_get(-1, 0, byref(self.context))
        self.library.Cblacs_gridinit(byref(self.context), c_char_p(b"Row"), layout.rows, layout.columns)
        self.layout = layout
        self.place = divmod(process.number, layout.columns)
        self.shape = (a.shape[0], b.shape[1], a.shape[1])
        self.type = c_double if a.dtype == numpy.float64 else c_float
        self.gemm = self.library.pdgemm_ if a.dtype == numpy.float64 else self.library.psgemm_
        self.a, self.b = self.local(a), self.local(b)
        self.c = numpy.zeros([len(x) for x in self.indices((a.shape[0], b.shape[1]))], a.dtype, order="F")

    def indices(self, shape: tuple[int, ...]) -> list[Any]:
        """Rows and columns of this process, block-cyclic."""
        grid = (self.layout.rows, self.layout.columns)
        return [
            numpy.flatnonzero(numpy.arange(extent) // self.layout.block % count == at)
            for extent, count, at in zip(shape, grid, self.place, strict=True)
        ]

    def local(self, whole: Any) -> Any:
        return numpy.asfortranarray(whole[numpy.ix_(*self.indices(whole.shape))])

    def described(self, shape: tuple[int, int], local: Any) -> Any:
        """ScaLAPACK's description of a distributed matrix."""
        block = self.layout.block
        return (c_int * 9)(1, self.context.value, *shape, block, block, 0, 0, max(1, local.shape[0]))

    def step(self) -> None:
        m, n, k = self.shape
        one = byref(c_int(1))
        matrices: list[Any] = []
        for local, shape in ((self.a, (m, k)), (self.b, (k, n)), (self.c, (m, n))):
            matrices.append((c_void_p(local.ctypes.data), one, one, self.described(shape, local)))
        extents = [byref(c_int(x)) for x in (m, n, k)]
        no, alpha, beta = c_char_p(b"N"), byref(self.type(1)), byref(self.type(0))
        self.gemm(no, no, *extents, alpha, *matrices[0], *matrices[1], beta, *matrices[2])

    def seconds(self) -> float:
        """Of the second of two products, on this process."""
        for _ in range(2):
            self.library.Cblacs_barrier(self.context, c_char_p(b"All"))
            start = time.perf_counter()
            self.step()
            self.library.Cblacs_barrier(self.context, c_char_p(b"All"))
        return time.perf_counter() - start


def fastest(process: Process, folder: Path) -> Product:
    """The product in the layout that process 0 found fastest."""
    a, b = (numpy.load(folder / f"{name}.npy", mmap_mode="r") for name in "ab")
    taken = [Product(process, layout, a, b).seconds() for layout in process.layouts()]
    chosen = folder / "layout"
    if process.number == 0:
        chosen.with_suffix(".new").write_text(str(taken.index(min(taken))), encoding="utf-8")
        chosen.with_suffix(".new").replace(chosen)
    while not chosen.exists():
        time.sleep(0.01)
    return Product(process, process.layouts()[int(chosen.read_text(encoding="utf-8"))], a, b)


def lines(process: Process, folder: Path) -> Iterator[str]:
    """What process 0 reads, on all processes."""
    pipes = [folder / f"lines{number}" for number in range(1, process.count)]
    if process.number > 0:
        pipe = pipes[process.number - 1]
        while not pipe.exists():
            time.sleep(0.01)
        with pipe.open(encoding="utf-8") as stream:
            yield from stream
        return
    for pipe in pipes:
        os.mkfifo(pipe)
    others = [pipe.open("w", encoding="utf-8") for pipe in pipes]
    for line in sys.stdin:
        for other in others:
            print(line, end="", file=other, flush=True)
        yield line


def save(process: Process, product: Product, folder: Path) -> None:
    """Every process writes its elements into one file."""
    path = folder / "result.npy"
    if process.number == 0:
        numpy.lib.format.open_memmap(path, "w+", product.c.dtype, product.shape[:2]).flush()
    product.library.Cblacs_barrier(product.context, c_char_p(b"All"))
    whole = numpy.load(path, mmap_mode="r+")
    whole[numpy.ix_(*product.indices(product.shape[:2]))] = product.c
    whole.flush()
    product.library.Cblacs_barrier(product.context, c_char_p(b"All"))


def main() -> None:
    folder = Path(sys.argv[1])
    process = Process()
    product: Any = None
    for line in lines(process, folder):
        match line.strip():
            case "prepare":
                product = fastest(process, folder)
            case "step":
                product.step()
                product.library.Cblacs_barrier(product.context, c_char_p(b"All"))
            case "save":
                save(process, product, folder)
        if process.number == 0:
            print("done", flush=True)
    sys.stdout.flush()
    process.library.Cblacs_exit(0)


if __name__ == "__main__":
    main()
