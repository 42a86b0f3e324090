"""Tensors of which only some elements are stored."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from joinsum import _C
from joinsum.base.dtypes import torch_dtype
from joinsum.base.errors import PlanError
from joinsum.sparse import conversions, scipy_conversions
from joinsum.sparse.arrays import checked_dtype, values_of
from joinsum.sparse.recorded import carried, in_dense, in_layout, notice_fused_steps, version_of
from joinsum.sparse.spellings import Levels

if TYPE_CHECKING:
    import numpy

__all__ = ["SparseTensor"]


class SparseTensor:
    """An immutable tensor of which only some elements are stored; all others are its `fill`.

    Each axis is stored by one level, in the order that `order` names. A level's format is `dense`, `bytemap` (a byte
    for each coordinate says whether it is stored), `sorted_list` (ascending coordinates, as in CSR) or `hash` (a sorted
    list with a hash table). Known layouts are spellings of them:

    | name          | rank | levels                            | order      |
    |---------------|------|-----------------------------------|------------|
    | `coo`, `csf`  | any  | sorted_list for each axis         | 0, 1, …    |
    | `dcsr`        | 2    | sorted_list, sorted_list          | 0, 1       |
    | `dcsc`        | 2    | sorted_list, sorted_list          | 1, 0       |
    | `csr`         | 2    | dense, sorted_list                | 0, 1       |
    | `csc`         | 2    | dense, sorted_list                | 1, 0       |
    | `bsr`         | 4    | dense, sorted_list, dense, dense  | 0, 1, 2, 3 |

    `bsr` is a matrix of blocks, whose last two axes are a block's; the name of a format stands for all levels. Elements
    are `torch.float32`, `float64`, `int32`, `int64`, `uint8` or `bool`, on the CPU. Tensors are compared by identity.

    Everything that is malformed (coordinates out of range, offsets that shrink, lists that do not ascend, wrong
    lengths) raises `joinsum.PlanError`, which names the place.

    >>> from joinsum import SparseTensor
    >>> SparseTensor.from_coordinates([[0, 2, 2], [1, 0, 3]], [1., 2., 3.], shape=(3, 4), levels="csr")
    <SparseTensor f32[3,4] dense(0) sorted_list(1), 3 entries, fill 0, 68 bytes>

    Source: Galley, section 2; levels as in Chou, Kjolstad and Amarasinghe, Format Abstraction for Sparse Tensor Algebra
    Compilers, 2018.
    """

    __slots__ = ("__weakref__", "_calls", "_columns", "_handle", "_rows", "_traits", "_values", "_version")
    _handle: _C.SparseTensor
    _calls: dict[Any, Any] | None  # `calls`
    _columns: _C.CompressedRows | bool | None  # `columns`; False before it is asked for
    _rows: _C.CompressedRows | bool | None  # `rows`; False before it is asked for
    _traits: tuple[object, ...] | None  # `traits`
    _values: torch.Tensor | None  # what `with_values` got
    _version: tuple[int, int]  # of these values, which the core object has

    def __init__(self) -> None:
        raise PlanError(
            "sparse tensor: made from what? call SparseTensor.from_coordinates, from_torch, from_scipy, ..."
        )

    # --- constructors -------------------------------------------------------------------------------------------------

    @classmethod
    def of_handle(cls, handle: _C.SparseTensor) -> SparseTensor:
        """The tensor of this core object."""
        tensor = cls.__new__(cls)
        tensor._handle = handle
        tensor._calls = None
        tensor._rows = tensor._columns = False
        tensor._traits = None
        tensor._values = None
        tensor._version = 0, 0
        return tensor

    @classmethod
    def from_coordinates(
        cls,
        coordinates: torch.Tensor | numpy.ndarray | Sequence[Any],
        values: torch.Tensor | numpy.ndarray | Sequence[Any] | float,
        shape: Sequence[int],
        *,
        levels: Levels = "sorted_list",
        order: Sequence[int] | None = None,
        fill: float = 0,
        fold: str | None = None,
    ) -> SparseTensor:
        """The tensor with `values[e]` at `coordinates[0][e], coordinates[1][e], ...`, in any order.

        coordinates   integers of shape (rank, entries), or a list of `rank` arrays of `entries`
        values        of shape (entries,), or one number for all
        shape         extents of the axes
        levels        the format of each level, one format for all, or the name of a layout
        order         the axis of each level; 0, 1, ... by default
        fill          what all other elements are: 0, `float("inf")`, False, ...
        fold          folds repeated coordinates in the order given: "sum", "prod", "min", "max", "logsumexp", "any"
                      or "all"; without it they are an error

        Copies its arguments. Raises PlanError for coordinates out of range, repeated ones without `fold`, a fill that
        the dtype has no value for, and for dense levels beyond this machine's memory.

        >>> from joinsum import SparseTensor
        >>> SparseTensor.from_coordinates([[1, 1, 0]], [1, 2, 3], (2,), fold="sum").to_dense()
        tensor([3, 3])
        """
        return cls.of_handle(
            conversions.from_coordinates("from_coordinates", coordinates, values, shape, levels, order, fill, fold)
        )

    @classmethod
    def from_torch(
        cls,
        tensor: torch.Tensor,
        *,
        levels: Levels | None = None,
        order: Sequence[int] | None = None,
        fill: float = 0,
        blocks: bool = False,
    ) -> SparseTensor:
        """The tensor of a torch tensor of any layout: strided, sparse_coo, csr, csc, bsr or bsc.

        levels, order   as in `from_coordinates`; by default the layout's own, dense levels for a strided tensor
        fill            of a strided tensor: elements that equal it are not stored in levels other than dense
        blocks          keeps the blocks of bsr and bsc as the last two of four axes; otherwise they become csr and csc
                        without the zeros in them

        The memory of csr, csc, blocked and strided tensors is shared where it is contiguous and indices are int64; do
        not write to it afterwards. Repeated elements of a COO tensor are summed, as torch defines it. Raises PlanError
        where indices are not what the layout promises, and for a tensor that requires a gradient or is not on the CPU.

        >>> import torch
        >>> from joinsum import SparseTensor
        >>> SparseTensor.from_torch(torch.eye(3).to_sparse_csr())
        <SparseTensor f32[3,3] dense(0) sorted_list(1), 3 entries, fill 0, 68 bytes>
        >>> SparseTensor.from_torch(torch.eye(3), levels="coo").nnz
        3
        """
        return cls.of_handle(conversions.from_torch("from_torch", tensor, levels, order, fill, blocks))

    @classmethod
    def from_scipy(
        cls, matrix: Any, *, levels: Levels | None = None, order: Sequence[int] | None = None
    ) -> SparseTensor:
        """The tensor of a sparse array or matrix of scipy's, in the levels of its format; csr for bsr, coo for others.

        The values of csr and csc are shared where indices ascend, and indices where they are int64. Repeated elements
        are summed, as scipy defines it. Raises PlanError for malformed arrays.

        >>> from joinsum import SparseTensor
        >>> SparseTensor.from_scipy(SparseTensor.from_edges([[0, 1]], 2).to_scipy("csr"))  # doctest: +SKIP
        <SparseTensor f32[2,2] dense(0) sorted_list(1), 1 entries, fill 0, 36 bytes>
        """
        return cls.of_handle(scipy_conversions.from_scipy("from_scipy", matrix, levels, order))

    @classmethod
    def from_edges(
        cls,
        edges: torch.Tensor | numpy.ndarray | Sequence[Any],
        size: int | Sequence[int],
        *,
        symmetric: bool = False,
        weights: torch.Tensor | numpy.ndarray | Sequence[Any] | None = None,
        levels: Levels = "csr",
        dtype: torch.dtype = torch.float32,
        fold: str | None = None,
    ) -> SparseTensor:
        """The adjacency matrix of a graph, from source (row) to target (column).

        edges       pairs of vertices, of shape (edges, 2)
        size        the number of vertices, or those of sources and of targets
        symmetric   also the reverse of each edge
        weights     one for each edge; 1 of `dtype` without them
        fold        folds repeated edges; by default those without weights count once, and others are an error

        Raises PlanError for a vertex out of range and for repeated weights without `fold`.

        >>> from joinsum import SparseTensor
        >>> SparseTensor.from_edges([[0, 1], [1, 2]], 3, symmetric=True).to_dense()
        tensor([[0., 1., 0.],
                [1., 0., 1.],
                [0., 1., 0.]])
        """
        return cls.of_handle(
            conversions.from_edges(
                "from_edges", edges, size, symmetric=symmetric, weights=weights, levels=levels, dtype=dtype, fold=fold
            )
        )

    @classmethod
    def from_matrix_market(
        cls, path: str | PathLike[str], *, levels: Levels | None = None, order: Sequence[int] | None = None
    ) -> SparseTensor:
        """The matrix of a `.mtx` (or `.mtx.gz`) file, in the levels of COO; scipy reads it.

        Raises PlanError where scipy is missing, and for a file that is not in the format.

        >>> from joinsum import SparseTensor
        >>> SparseTensor.from_matrix_market("graph.mtx", levels="csr")  # doctest: +SKIP
        """
        return cls.of_handle(scipy_conversions.from_matrix_market("from_matrix_market", path, levels, order))

    # --- what it is ---------------------------------------------------------------------------------------------------

    @property
    def handle(self) -> _C.SparseTensor:
        """The core object, as programs take it; made again where the values that `with_values` got were written to."""
        if self._values is not None and version_of(self._values) != self._version:
            self._set_values(self._values)
        return self._handle

    @property
    def rows(self) -> _C.CompressedRows | None:
        """The core's products of matrices in compressed rows or columns, of fill 0 and any dtype but `uint8`; None of
        others."""
        handle = self.handle
        if self._rows is False:
            self._rows = _C.CompressedRows.of(handle)
        assert not isinstance(self._rows, bool)
        return self._rows

    @property
    def columns(self) -> _C.CompressedRows | None:
        """The same of the transposed matrix."""
        handle = self.handle
        if self._columns is False:
            self._columns = _C.CompressedRows.of_transposed(handle)
        assert not isinstance(self._columns, bool)
        return self._columns

    @property
    def calls(self) -> dict[Any, Any]:
        """What einsums know of calls with this tensor, by their arguments."""
        _ = self.handle  # forgets them where values were written to
        if self._calls is None:
            self._calls = {}
        return self._calls

    @property
    def traits(self) -> tuple[object, ...]:
        """What a plan that reads the tensor takes for granted: equal of tensors that one plan serves, whose numbers of
        entries are within a factor of two."""
        if self._traits is None:
            handle = self.handle
            bucket = handle.stored.bit_length()
            places = tuple(handle.shape), tuple(handle.formats), tuple(handle.axes)
            # 0 and -0 are equal, but not for every operator.
            self._traits = (*places, handle.dtype, str(handle.fill), bucket)
        return self._traits

    @property
    def shape(self) -> torch.Size:
        """Extents of the axes."""
        return torch.Size(self.handle.shape)

    @property
    def dtype(self) -> torch.dtype:
        """Of the elements."""
        return torch_dtype(self.handle.dtype)

    @property
    def fill(self) -> float:
        """What all elements are that are not stored."""
        return self.handle.fill

    @property
    def levels(self) -> tuple[str, ...]:
        """The format of each level."""
        return tuple(self.handle.formats)

    @property
    def order(self) -> tuple[int, ...]:
        """The axis of each level."""
        return tuple(self.handle.axes)

    @property
    def nnz(self) -> int:
        """Elements that are stored; some may equal the fill, all those of a dense last level among them."""
        return self.handle.stored

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return self.handle.bytes

    def __repr__(self) -> str:
        handle = self.handle
        levels = " ".join(f"{name}({axis})" for name, axis in zip(handle.formats, handle.axes, strict=True))
        extents = ",".join(map(str, handle.shape))
        kind = f"{handle.dtype}[{extents}]{levels and ' '}{levels}"
        return f"<SparseTensor {kind}, {self.nnz} entries, fill {handle.fill:g}, {self.nbytes} bytes>"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a scalar")
        return self.shape[0]

    def __array__(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("SparseTensor: no array of numpy's; give x.to_dense().numpy(), or x.to_scipy()")

    def _no_operator(self, *_: object) -> NoReturn:
        raise TypeError(
            'SparseTensor: operators are einsums: joinsum.einsum("ij,j->i", a, x) for a @ x, '
            'joinsum.einsum("ij,ij->ij", a, b, join="add") for a + b'
        )

    __matmul__ = __rmatmul__ = __add__ = __radd__ = __sub__ = __rsub__ = _no_operator
    __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __pow__ = __neg__ = _no_operator
    __lt__ = __le__ = __gt__ = __ge__ = __abs__ = __and__ = __or__ = __xor__ = __invert__ = _no_operator

    def __reduce__(self) -> tuple[Any, ...]:
        handle = self.handle
        values = handle.values.clone()
        levels = [
            (name, *(array if array is None else array.clone() for array in rest)) for name, *rest in handle.levels
        ]
        return _rebuilt, (handle.shape, handle.axes, levels, values, handle.fill, self._recorded_values)

    # --- conversions --------------------------------------------------------------------------------------------------

    def coordinates(self) -> torch.Tensor:
        """Coordinates of the stored elements in row-major order, int64 of shape (rank, nnz).

        >>> from joinsum import SparseTensor
        >>> SparseTensor.from_edges([[1, 0], [0, 2]], 3).coordinates()
        tensor([[0, 1],
                [2, 0]])
        """
        columns, values = self.handle.to_coordinates(False)
        return torch.stack(columns) if columns else torch.empty((0, len(values)), dtype=torch.int64)

    def values(self) -> torch.Tensor:
        """Values of the stored elements in row-major order, of shape (nnz,): a copy, or what `with_values` got.

        >>> from joinsum import SparseTensor
        >>> SparseTensor.from_edges([[1, 0], [0, 2]], 3, weights=[5, 7]).values()
        tensor([7, 5])
        """
        return self.handle.to_coordinates(False)[1].clone() if self._values is None else self._values

    @property
    def shared_values(self) -> torch.Tensor | None:
        """What `with_values` got, in whose memory the values are; None of other tensors."""
        return self._values

    def with_values(self, values: torch.Tensor | numpy.ndarray | Sequence[float]) -> SparseTensor:
        """The same stored elements with other values, in row-major order, of shape (nnz,). Values that require a
        gradient get it from einsums of the tensor, and of what `to`, `with_levels`, `to_dense` and `to_torch` make of
        it; what is not stored is a constant. Where values are written to later, as an optimizer does, the tensor has
        the new ones.

        >>> import torch
        >>> from joinsum import SparseTensor
        >>> weights = torch.tensor([5., 7.], requires_grad=True)
        >>> graph = SparseTensor.from_edges([[1, 0], [0, 2]], 3).with_values(weights)
        >>> graph.to_dense().detach()
        tensor([[0., 0., 5.],
                [7., 0., 0.],
                [0., 0., 0.]])
        """
        if not isinstance(values, torch.Tensor):
            values = values_of("with_values", "values", values)
        if values.shape != (self.nnz,):
            raise PlanError(
                f"with_values: one value for each stored element: shape={list(values.shape)}, nnz={self.nnz}"
            )
        notice_fused_steps(values)
        tensor = self.of_handle(self.handle)
        tensor._set_values(values)
        return tensor

    def _set_values(self, values: torch.Tensor) -> None:
        data = values_of("with_values", "values", values.detach())
        handle = self._handle
        if handle.formats[-1:] in (["sorted_list"], ["hash"]) and handle.axes == sorted(handle.axes):
            self._handle = handle.with_values(data, handle.fill)  # entries are in row-major order
        else:
            columns = handle.to_coordinates(False)[0]
            self._handle = _C.SparseTensor.from_coordinates(
                handle.shape, columns, data, handle.axes, handle.formats, handle.fill, None, 2**40
            )
        self._take(values)
        self._calls, self._rows, self._columns = None, False, False

    def _recorded(self, who: str, made: SparseTensor) -> SparseTensor:
        """`made`, of the same elements in other levels, with values in autograd where they are. Other values are
        copied: what is written to them later it does not have."""
        if self._recorded_values is not None:
            at, to = self.coordinates(), made.coordinates()
            made._take(carried(who, self._recorded_values, at, to, self.shape, self.fill))
        elif self._values is not None:
            made = self.of_handle(made.handle.with_values(made.handle.values.clone(), made.fill))
        return made

    def _take(self, values: torch.Tensor) -> None:
        """Notes the values that the core object has."""
        self._values, self._version = values, version_of(values)

    @property
    def _recorded_values(self) -> torch.Tensor | None:
        """The values, if they are in autograd."""
        return self._values if self.requires_grad else None

    @property
    def requires_grad(self) -> bool:
        """Whether its values are in autograd."""
        return self._values is not None and self._values.requires_grad

    def item(self) -> float | int | bool:
        """The only element of a tensor of one element, stored or not.

        >>> from joinsum import SparseTensor
        >>> SparseTensor.from_coordinates([], [], (), fill=2.5).item()
        2.5
        """
        if self.shape.numel() != 1:
            raise PlanError(f"item: the tensor has not one element: shape={list(self.shape)}")
        return self.to_dense().item()

    def with_levels(self, levels: Levels | None = None, order: Sequence[int] | None = None) -> SparseTensor:
        """The same tensor in other levels; shares the arrays that stay.

        Elements of a dense last level that equal the fill are left out in others; stored ones of other levels stay.

        >>> from joinsum import SparseTensor
        >>> SparseTensor.from_edges([[1, 0], [0, 2]], 3).with_levels("csc")
        <SparseTensor f32[3,3] dense(1) sorted_list(0), 2 entries, fill 0, 56 bytes>
        """
        return self._recorded(
            "with_levels", self.of_handle(conversions.reformatted("with_levels", self.handle, levels, order))
        )

    def to(self, dtype: torch.dtype) -> SparseTensor:
        """The tensor with its elements and fill in another dtype, rounded as torch does; itself where it has it.

        Raises PlanError where the dtype has no such value as the fill: infinity as an integer.

        >>> import torch
        >>> from joinsum import SparseTensor
        >>> SparseTensor.from_edges([[1, 0]], 2).to(torch.int64).values()
        tensor([1])
        """
        if checked_dtype("to", dtype) == self.dtype:
            return self
        made = self.of_handle(conversions.with_dtype("to", self.handle, dtype))
        if self._recorded_values is not None and dtype.is_floating_point:
            made._take(self._recorded_values.to(dtype))
        return made

    def to_dense(self) -> torch.Tensor:
        """All elements as a torch tensor. That of a tensor of dense levels shares its memory.

        Raises PlanError where they exceed this machine's memory.

        >>> from joinsum import SparseTensor
        >>> SparseTensor.from_coordinates([[1]], [5.], (3,), fill=float("inf")).to_dense()
        tensor([inf, 5., inf])
        """
        dense = conversions.to_dense(self.handle)
        if self._recorded_values is None:
            return dense
        return in_dense(dense.clone(), self._recorded_values, self.coordinates())

    def to_torch(self, layout: str | torch.layout = "dense", *, blocksize: Sequence[int] | None = None) -> torch.Tensor:
        """The tensor in a layout of torch's: dense, coo, csr, csc or bsr, by name or as `torch.sparse_csr`.

        blocksize   of a matrix as bsr; one of four axes has its blocks

        Shares memory where levels are those of the layout; do not write to it. Raises PlanError where the layout cannot
        hold the tensor: a fill other than 0 in a sparse one, another rank.

        >>> from joinsum import SparseTensor
        >>> SparseTensor.from_edges([[1, 0], [0, 2]], 3).to_torch("csr").col_indices()
        tensor([2, 0])
        """
        made = conversions.to_torch("to_torch", self.handle, layout, blocksize)
        if self._recorded_values is None:
            return made
        if made.layout is torch.strided:
            return self.to_dense()
        return in_layout(made.layout, self._recorded_values, self.coordinates(), self.shape, blocksize)

    def to_scipy(self, format: str = "csr") -> Any:
        """The tensor as a sparse array of scipy's: coo, csr, csc, or bsr for a matrix of blocks.

        Shares memory where levels are those of the format. Raises PlanError where scipy is missing, the fill is not 0
        or the rank does not fit.

        >>> from joinsum import SparseTensor
        >>> SparseTensor.from_edges([[1, 0], [0, 2]], 3).to_scipy("csr").indices  # doctest: +SKIP
        array([2, 0])
        """
        return scipy_conversions.to_scipy("to_scipy", self.handle, format)

    def to_matrix_market(self, path: str | PathLike[str]) -> None:
        """Writes a matrix as a `.mtx` file, compressed where the path ends in `.gz`; scipy writes it.

        The stored elements are written one by one (`coordinate`, `general`), also where the matrix is symmetric; floats
        with the digits that give them back exactly. The format knows real numbers and integers: what was float32 is
        read as float64, what was int32 or uint8 as int64, and `to` leads back. A file at `path` is replaced in one
        step, or stays as it is where writing fails.

        Raises PlanError where scipy is missing, the tensor is no matrix, its fill is not 0, its elements are of
        `torch.bool`, or the path ends in `.bz2`; OSError where the file cannot be written.

        >>> from joinsum import SparseTensor
        >>> SparseTensor.from_edges([[1, 0], [0, 2]], 3).to_matrix_market("graph.mtx")  # doctest: +SKIP
        """
        scipy_conversions.to_matrix_market("to_matrix_market", self.handle, path)


def _rebuilt(
    shape: list[int],
    axes: list[int],
    levels: list[Any],
    values: torch.Tensor,
    fill: float,
    recorded: torch.Tensor | None = None,
) -> SparseTensor:
    tensor = SparseTensor.of_handle(_C.SparseTensor.from_levels(shape, axes, levels, values, fill, None))
    return tensor if recorded is None else tensor.with_values(recorded)
