"""Sparse tensors: what they are made from, what they say of themselves, and what is refused."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Callable

import numpy as np
import pytest
import torch
from joinsum import PlanError, SparseTensor

FORMATS = ("dense", "bytemap", "sorted_list", "hash")
DTYPES = (torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, torch.bool)
INFINITY = float("inf")


def random_tensor(shape: tuple[int, ...], seed: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """A dense tensor of small integers, most of them 0."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(1, 5, shape, generator=generator) * (torch.rand(shape, generator=generator) < 0.3)
    return values.to(dtype)


def refusal(make: Callable[[], object]) -> str:
    with pytest.raises(PlanError) as refused:
        make()
    return str(refused.value)


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_any_nesting_in_any_order_holds_the_elements(rank: int) -> None:
    dense = random_tensor((3, 4, 2)[:rank], seed=rank)
    coo = dense.to_sparse_coo() if rank else None
    for number, formats in enumerate(itertools.product(FORMATS, repeat=rank)):
        orders = list(itertools.permutations(range(rank)))
        order = orders[number % len(orders)]
        dtype = DTYPES[number % len(DTYPES)]
        coordinates = [] if coo is None else coo.indices()
        values = (dense.reshape(1) if coo is None else coo.values()).to(dtype)
        tensor = SparseTensor.from_coordinates(coordinates, values, dense.shape, levels=formats, order=order)
        assert tensor.levels == formats
        assert tensor.order == order
        assert tensor.dtype == dtype
        assert torch.equal(tensor.to_dense(), dense.to(dtype))


def test_a_tensor_says_what_it_is() -> None:
    tensor = SparseTensor.from_coordinates([[0, 2, 2], [1, 0, 3]], np.array([1.0, 2.0, 3.0]), (3, 4), levels="csc")
    assert tensor.shape == (3, 4)
    assert tensor.dtype == torch.float64
    assert tensor.fill == 0
    assert tensor.levels == ("dense", "sorted_list")
    assert tensor.order == (1, 0)
    assert tensor.nnz == 3
    assert tensor.nbytes == 8 * (5 + 3 + 3)
    assert repr(tensor) == "<SparseTensor f64[3,4] dense(1) sorted_list(0), 3 entries, fill 0, 88 bytes>"
    assert tensor.coordinates().tolist() == [[0, 2, 2], [1, 0, 3]]
    assert tensor.values().tolist() == [1, 2, 3]


@pytest.mark.parametrize(("fill", "dtype"), [(INFINITY, torch.float32), (-INFINITY, torch.float64), (7, torch.int64)])
def test_any_value_of_the_dtype_is_a_fill(fill: float, dtype: torch.dtype) -> None:
    tensor = SparseTensor.from_coordinates([[1]], torch.tensor([2], dtype=dtype), (3,), fill=fill)
    assert tensor.fill == fill
    assert tensor.to_dense().tolist() == [fill, 2, fill]


def test_a_fill_of_truth_values_is_a_truth_value() -> None:
    tensor = SparseTensor.from_coordinates([[1]], torch.tensor([False]), (3,), fill=True)
    assert tensor.to_dense().tolist() == [True, False, True]


def test_repeated_coordinates_are_folded_by_name() -> None:
    def folded(fold: str) -> list[int]:
        return SparseTensor.from_coordinates([[1, 1, 0]], [3, 2, 5], (2,), fold=fold).to_dense().tolist()

    assert [folded(name) for name in ("sum", "prod", "min", "max", "any", "all", "+")] == [
        [5, 5],
        [5, 6],
        [5, 2],
        [5, 3],
        [1, 1],
        [1, 1],
        [5, 5],
    ]
    assert refusal(lambda: folded("mean")) == (
        "from_coordinates: no such fold: fold='mean', names=[sum, prod, min, max, logsumexp, any, all]"
    )


def test_a_scalar_has_an_item() -> None:
    assert SparseTensor.from_coordinates([], [5], ()).item() == 5
    assert SparseTensor.from_coordinates([], [], (), fill=2.5).item() == 2.5
    assert SparseTensor.from_coordinates([], [], (), fill=2.5).nnz == 0
    assert refusal(lambda: SparseTensor.from_edges([], 2).item()) == (
        "item: the tensor has not one element: shape=[2, 2]"
    )


def test_levels_change_and_elements_stay() -> None:
    dense = random_tensor((4, 5), seed=1)
    tensor = SparseTensor.from_torch(dense, levels="csr")
    for levels in ("coo", "csc", "dcsr", "dcsc", "hash", "bytemap", "dense", ["bytemap", "hash"]):
        other = tensor.with_levels(levels)
        assert torch.equal(other.to_dense(), dense)
        assert torch.equal(other.with_levels("csr").coordinates(), tensor.coordinates())
    assert tensor.with_levels(order=(1, 0)).order == (1, 0)
    assert tensor.with_levels() is not None


def test_elements_at_the_fill_stay_where_they_were_given() -> None:
    tensor = SparseTensor.from_coordinates([[0, 1]], [0.0, 1.0], (3,))
    assert tensor.nnz == 2
    assert tensor.with_levels("hash").nnz == 2
    assert tensor.with_levels("dense").with_levels("coo").nnz == 1


def test_dtypes_convert_as_in_torch() -> None:
    tensor = SparseTensor.from_coordinates([[0, 1]], [2.5, -1.0], (3,), fill=0.5)
    assert tensor.to(torch.float32) is tensor
    for dtype in (torch.float64, torch.int32, torch.int64, torch.bool):
        assert torch.equal(tensor.to(dtype).to_dense(), tensor.to_dense().to(dtype))
    unbounded = SparseTensor.from_coordinates([[0]], [2.5], (3,), fill=INFINITY)
    assert refusal(lambda: unbounded.to(torch.int64)) == (
        "sparse tensor: the dtype has no such value as the fill: fill=inf, dtype=i64"
    )
    assert refusal(lambda: tensor.to(torch.float16)).startswith("to: unsupported dtype: dtype=torch.float16")


def test_what_is_given_is_copied() -> None:
    coordinates, values = torch.tensor([[0, 1], [1, 2]]), torch.tensor([1.0, 2.0])
    tensor = SparseTensor.from_coordinates(coordinates, values, (2, 3), levels="csr")
    coordinates.fill_(9)
    values.fill_(9)
    tensor.values().fill_(9)
    assert tensor.to_dense().tolist() == [[0, 1, 0], [0, 0, 2]]


def test_tensors_are_compared_by_identity_and_are_keys() -> None:
    tensor, other = SparseTensor.from_edges([[0, 1]], 2), SparseTensor.from_edges([[0, 1]], 2)
    assert tensor == tensor
    assert tensor != other
    assert {tensor: 1}[tensor] == 1


@pytest.mark.parametrize("levels", ["csr", "hash", "bytemap", "dense"])
def test_tensors_are_pickled_and_copied(levels: str) -> None:
    tensor = SparseTensor.from_torch(random_tensor((3, 4), seed=2), levels=levels)
    for other in (pickle.loads(pickle.dumps(tensor)), copy.deepcopy(tensor), copy.copy(tensor)):
        assert repr(other) == repr(tensor)
        assert torch.equal(other.to_dense(), tensor.to_dense())


def test_memory_outlives_what_it_came_from() -> None:
    tensor = SparseTensor.from_torch(random_tensor((50, 40), seed=3).to_sparse_csr())
    csr, dense = tensor.to_torch("csr"), tensor.to_dense()
    del tensor
    assert torch.equal(csr.to_dense(), dense)


def test_axes_without_extent_hold_nothing() -> None:
    for levels in ("csr", "csc", "coo", "dense", "hash", "bytemap"):
        for shape in ((0, 3), (3, 0), (0, 0)):
            tensor = SparseTensor.from_coordinates([[], []], torch.empty(0), shape, levels=levels)
            assert tensor.nnz == 0
            assert tensor.to_dense().shape == shape


def test_edges_are_an_adjacency_matrix() -> None:
    edges = [[0, 1], [1, 2], [1, 2], [2, 2]]
    assert SparseTensor.from_edges(edges, 3).to_dense().tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 1]]
    both = SparseTensor.from_edges(torch.tensor(edges), 3, symmetric=True, dtype=torch.int64, fold="sum")
    assert both.to_dense().tolist() == [[0, 1, 0], [1, 0, 2], [0, 2, 1]]
    weighted = SparseTensor.from_edges(np.array([[0, 3]]), (2, 5), weights=[2.5], levels="coo")
    assert weighted.shape == (2, 5)
    assert weighted.values().tolist() == [2.5]
    assert SparseTensor.from_edges([], 4).nnz == 0
    assert refusal(lambda: SparseTensor.from_edges(edges, 3, weights=[1, 2, 3, 4])) == (
        "sparse tensor: a coordinate is repeated, and no fold is named: coordinate=[1, 2], places=[1, 2]"
    )
    assert refusal(lambda: SparseTensor.from_edges([[0, 3]], 3)) == (
        "sparse tensor: coordinate out of range: axis=1, place=0, coordinate=3, size=3"
    )
    assert refusal(lambda: SparseTensor.from_edges([0, 3], 3)) == ("from_edges: edges are pairs, one a row: shape=[2]")
    assert refusal(lambda: SparseTensor.from_edges([[0, 1]], (3, 4), symmetric=True)) == (
        "from_edges: a size is a number of vertices, or of sources and targets: size=(3, 4)"
    )
    assert refusal(lambda: SparseTensor.from_edges([[0, 1]], 3, weights=[1, 2])) == (
        "from_edges: each edge needs one weight: edges=1, weights=[2]"
    )


def made(
    coordinates: object = ([0], [1]), values: object = (1.0,), shape: object = (3, 4), **options: object
) -> object:
    return SparseTensor.from_coordinates(coordinates, values, shape, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: made([[0, 3], [0, 0]], [1.0, 2.0]), "coordinate out of range: axis=0, place=1, coordinate=3, size=3"),
        (lambda: made([[0], [-1]]), "coordinate out of range: axis=1, place=0, coordinate=-1, size=4"),
        (lambda: made([[0, 1], [0]]), "coordinates and values differ in number: axis=0, coordinates=2, values=1"),
        (lambda: made([[0]]), "each axis needs its coordinates: coordinates=1, rank=2"),
        (lambda: made([[0.5], [1]]), "indices are integers: coordinates[0].dtype=torch.float32"),
        (lambda: made([[True], [1]]), "indices are integers: coordinates[0].dtype=torch.bool"),
        (lambda: made(torch.tensor([0, 1])), "coordinates have a row for each axis: shape=[2]"),
        (lambda: made(np.array([[0], [2**63]], dtype=np.uint64)), "a number exceeds 63 bits"),
        (lambda: made([[0], [2**64]]), "no array: coordinates[1]=[18446744073709551616]"),
        (lambda: made(shape=(3, -4)), "an extent is none of 64 bits: axis=1, shape=[3, -4]"),
        (lambda: made(shape=(3, 2**63)), "an extent is none of 64 bits: axis=1, shape=[3, 9223372036854775808]"),
        (lambda: made(shape="34"), "shape is a list of integers: shape='34'"),
        (lambda: made(values=[[1.0]]), "values are a list: shape=[1, 1]"),
        (lambda: made(values=torch.ones(1, dtype=torch.float16)), "unsupported dtype: dtype=torch.float16"),
        (lambda: made(values=np.ones(1, dtype=np.complex64)), "unsupported dtype: dtype=torch.complex64"),
        (lambda: made(values=torch.ones(1, requires_grad=True)), "give values.detach(): requires_grad=True"),
        (lambda: made(values=torch.ones(1, device="meta")), "give values.cpu(): device=meta"),
        (lambda: made(fill="0"), "the fill is a number or a boolean: fill='0'"),
        (lambda: made(values=[1], fill=0.5), "the dtype has no such value as the fill: fill=0.5, dtype=i64"),
        (lambda: made(values=[1], fill=2**53 + 1), "one of 63 that float64 has: fill=9007199254740993"),
        (lambda: made(levels="csx"), "no such levels: levels='csx'"),
        (lambda: made(levels="bsr"), "the levels are of tensors of another rank: levels=bsr, rank=2"),
        (lambda: made(levels=["dense"]), "each axis needs one level: levels=['dense'], rank=2"),
        (lambda: made(levels=["dense", "list"]), "no such level format: name='list'"),
        (lambda: made(levels="csc", order=(0, 1)), "the levels name an order of their own: levels=csc"),
        (lambda: made(order=(0, 2)), "the order is no permutation of the axes: order=[0, 2], rank=2"),
        (lambda: made(shape=(2**40, 2**40), levels="dense"), "entries of a level exceed 64 bits: level=1"),
        (lambda: made(shape=(2**45, 4), levels="csr"), "a level would hold too many bytes: level=0, format=dense"),
        (SparseTensor, "made from what? call SparseTensor.from_coordinates"),
    ],
)
def test_malformed_arguments_are_named(make: Callable[[], object], message: str) -> None:
    assert message in refusal(make)


def test_a_sparse_tensor_too_large_to_be_dense_says_so() -> None:
    tensor = SparseTensor.from_coordinates([[5], [7]], [1.0], (2**30, 2**30))
    assert "a level would hold too many bytes: level=1, format=dense" in refusal(tensor.to_dense)
    assert tensor.with_levels("hash").nnz == 1


def test_operators_are_einsums_and_say_so() -> None:
    a = SparseTensor.from_torch(torch.eye(3))
    calls = (
        lambda: a @ torch.ones(3),
        lambda: torch.ones(3) @ a,
        lambda: a + a,
        lambda: 2 * a,
        lambda: -a,
        lambda: a / 2,
    )
    for call in calls:
        with pytest.raises(TypeError, match=r'joinsum\.einsum\("ij,j->i", a, x\)'):
            call()
    with pytest.raises(TypeError, match=r"x\.to_dense\(\)\.numpy\(\)"):
        np.asarray(a)


@pytest.mark.parametrize(
    "fill", [np.float32(3), np.int64(3), np.array(3), torch.tensor(3.0)], ids=["f32", "i64", "0-d", "torch"]
)
def test_fills_are_numbers_of_any_library(fill: object) -> None:
    tensor = SparseTensor.from_coordinates([[0]], [1.0], (2,), fill=fill)  # type: ignore[arg-type]
    assert tensor.to_dense().tolist() == [1.0, 3.0]
