"""Gradients of einsums over sparse operands, beside torch's of the dense ones."""

from __future__ import annotations

import gc
import math
import random
import weakref

import joinsum
import pytest
import torch
import torch_pairs
from joinsum import SparseTensor
from torch_einsums import spread

EXTENTS = {"i": 5, "j": 4, "k": 6, "l": 3}

EQUATIONS = [
    *("ij->i", "ij->", "ij->ij", "ij,j->i", "ij,jk->ik", "ij,jk->i", "ij,jk,kl->il", "ij,jk,ki->", "ij,ij->i"),
    *("i,ij,j->", "ij,kj->ik", "ij,ij->ij", "ij,jk,kl->i", "ij,k->k", "i,j->ij"),
]

EXPRESSIONS = {
    "exp(x - y)": lambda x, y: torch.exp(x - y),
    "x * y + x": lambda x, y: x * y + x,
    "x / (1 + y * y)": lambda x, y: x / (1 + y * y),
}

# Whole numbers divide by zero.
JOINS = {name: function for name, function in torch_pairs.JOINS.items() if name != "div"}


def evaluated(equation: str, operands: list[torch.Tensor], join: str, agg: str) -> torch.Tensor:
    """The einsum by broadcasting, then a reduction."""
    left, result = equation.split("->")
    order = [*result, *sorted(set(left) - set(result) - {","})]
    aligned = [spread(x, labels, order) for labels, x in zip(left.split(","), operands, strict=True)]
    value = aligned[0]
    for x in aligned[1:]:
        value = (JOINS | EXPRESSIONS)[join](value, x)
    reduced = tuple(range(len(result), len(order)))
    if not reduced:
        return value
    return {"sum": value.sum, "max": value.amax, "min": value.amin}[agg](reduced)


def fill_of(rng: random.Random, join: str, agg: str) -> float:
    neutral = {("add", "min"): math.inf, ("add", "max"): -math.inf}.get((join, agg), 0.0)
    return rng.choice([0.0, neutral, neutral, 2.0])


def compare(seed: int) -> None:
    """A random einsum's value and gradients; whole numbers, so that many elements tie."""
    rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    equation, agg = rng.choice(EQUATIONS), rng.choice(["sum", "max", "min"])
    labels = equation.split("->")[0].split(",")
    join = rng.choice(["mul"] if len(labels) == 1 else [*JOINS, *EXPRESSIONS] if len(labels) == 2 else [*JOINS])
    fill = fill_of(rng, join, agg)
    is_sparse = [rng.random() < 0.7 for _ in labels]
    is_sparse[rng.randrange(len(labels))] = True
    given: list[SparseTensor | torch.Tensor] = []
    leaves, dense, places = [], [], []
    for own, sparse in zip(labels, is_sparse, strict=True):
        shape = [EXTENTS[label] for label in own]
        x = torch.randint(-2, 3, shape, generator=generator).double()
        stored = torch.rand(shape, generator=generator) < (0.5 if sparse else 2)
        x = torch.where(stored, x, torch.full_like(x, fill))
        leaves.append(x[stored].clone().requires_grad_() if sparse else x.clone().requires_grad_())
        pattern = SparseTensor.from_coordinates(list(stored.nonzero().T), x[stored], shape, fill=fill)
        given.append(pattern.with_values(leaves[-1]) if sparse else leaves[-1])
        dense.append(x.requires_grad_())
        places.append(stored)
    wanted = evaluated(equation, dense, join, agg)
    out_format = rng.choice(["dense", "auto", "coo"]) if wanted.dim() else "auto"
    weights = torch.randint(1, 5, wanted.shape, generator=generator).double()
    found = joinsum.einsum(equation, *given, join=join, agg=agg, out_format=out_format)
    case = f"seed={seed} {equation} join={join} agg={agg} fill={fill} out={out_format} sparse={is_sparse}"
    counts = torch.isfinite(wanted)  # an infinite fill may remain
    if isinstance(found, SparseTensor):
        at = tuple(found.coordinates())
        torch.testing.assert_close(found.to_dense(), wanted.detach(), msg=case)
        found.values()[counts[at]].mul(weights[at][counts[at]]).sum().backward()
        elsewhere = torch.ones_like(counts)
        elsewhere[at] = False
        counts = counts & ~elsewhere
    else:
        torch.testing.assert_close(found.detach(), wanted.detach(), msg=case)
        found[counts].mul(weights[counts]).sum().backward()
    wanted[counts].mul(weights[counts]).sum().backward()
    for leaf, x, stored in zip(leaves, dense, places, strict=True):
        expected = torch.zeros_like(x) if x.grad is None else x.grad
        expected = expected if leaf.shape == x.shape else expected[stored]
        actual = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        torch.testing.assert_close(actual, expected, msg=case)


@pytest.mark.parametrize("sites", [1, 2, 3, 8])
def test_gradients_are_torchs_of_any_join(sites: int) -> None:
    joinsum.init(sites=sites)
    for seed in range(150 if sites == 1 else 40):
        compare(1000 * sites + seed)


def test_gradients_of_shortest_paths_follow_each_path_of_equal_length() -> None:
    """Two of three ways from 0 to 3 are shortest: each of their roads gets a half."""
    roads = SparseTensor.from_coordinates(
        [[0, 0, 1, 2, 0], [1, 2, 3, 3, 3]], [1.0, 2.0, 2.0, 1.0, 4.0], (4, 4), fill=math.inf
    )
    values = roads.values().requires_grad_()
    two = joinsum.einsum("ij,jk->ik", roads.with_values(values), roads.with_values(values), join="add", agg="min")
    two.to_dense()[0, 3].backward() if isinstance(two, SparseTensor) else two[0, 3].backward()
    assert values.grad is not None
    assert values.grad.tolist() == [0.5, 0.5, 0.0, 0.5, 0.5]


def test_values_of_a_sparse_result_are_in_autograd() -> None:
    pattern = SparseTensor.from_edges([[0, 1], [1, 2], [2, 0]], 3)
    values = torch.tensor([2.0, 3.0, 5.0], requires_grad=True)
    x = pattern.with_values(values)
    two = joinsum.einsum("ij,jk->ik", x, x, out_format="csr")
    assert isinstance(two, SparseTensor)
    assert two.requires_grad
    three = joinsum.einsum("ij,jk->ik", two, x, out_format="csr")  # 30 along the diagonal
    assert isinstance(three, SparseTensor)
    three.values().sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [45.0, 30.0, 18.0]


def test_a_fill_that_is_not_zero_counts_in_gradients() -> None:
    stored = torch.tensor([[0, 1], [1, 0]])
    values = torch.tensor([5.0, 7.0], requires_grad=True)
    x = SparseTensor.from_coordinates(list(stored.T), values.detach(), (2, 2), fill=3.0).with_values(values)
    y = torch.tensor([1.0, 10.0], requires_grad=True)
    z = joinsum.einsum("ij,j->i", x, y, out_format="dense")
    assert isinstance(z, torch.Tensor)
    z.sum().backward()
    assert z.tolist() == [53.0, 37.0]
    assert values.grad is not None
    assert values.grad.tolist() == [10.0, 1.0]
    assert y.grad is not None
    assert y.grad.tolist() == [10.0, 8.0]


@pytest.mark.parametrize("agg", ["sum", "max"])
def test_operands_that_were_written_to_are_noticed(agg: str) -> None:
    x = SparseTensor.from_edges([[0, 1], [1, 0]], 2)
    y = torch.tensor([1.0, 2.0], requires_grad=True)
    given = y * 1
    z = joinsum.einsum("ij,j->i", x.with_values(torch.ones(2, requires_grad=True)), given, agg=agg)
    given += 1
    assert isinstance(z, torch.Tensor)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_a_result_may_be_written_to() -> None:
    x = SparseTensor.from_edges([[0, 1], [1, 0]], 2)
    values = torch.tensor([3.0, 4.0], requires_grad=True)
    z = joinsum.einsum("ij->i", x.with_values(values), agg="max", out_format="dense")
    assert isinstance(z, torch.Tensor)
    z += 5
    z.sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("sites", [1, 2, 3])
@pytest.mark.parametrize("agg", ["max", "min"])
def test_extremes_are_found_again_whatever_their_rounding(agg: str, sites: int) -> None:
    """The forward pass, its gradient, and each site round alike: a kernel does not choose the order of arguments."""
    joinsum.init(sites=sites)
    for seed in range(12):
        generator = torch.Generator().manual_seed(seed)
        y = torch.randn(6, 5, generator=generator) * (torch.rand(6, 5, generator=generator) < 0.3)
        sparse = SparseTensor.from_torch(y, levels="csr")
        for join in ("x*(y + 1)", "squared_difference", "(x - y)*(x + y)"):
            x = torch.randn(6, generator=generator).requires_grad_()
            z = joinsum.einsum("i,ij->i", x, sparse, join=join, agg=agg, out_format="dense")
            assert isinstance(z, torch.Tensor)
            (found,) = torch.autograd.grad(z.sum(), x)
            a = x[:, None]
            joined = {"x*(y + 1)": a * (y + 1), "squared_difference": (a - y) ** 2}.get(join, (a - y) * (a + y))
            wanted = joined.amax(1) if agg == "max" else joined.amin(1)
            torch.testing.assert_close(z.detach(), wanted.detach())
            torch.testing.assert_close(found, torch.autograd.grad(wanted.sum(), x)[0])
        stored = [torch.rand(14, 9, generator=generator) < 0.4 for _ in range(3)]
        values = [torch.randn(int(m.sum()), generator=generator).requires_grad_() for m in stored]
        factors = [
            SparseTensor.from_coordinates(list(m.nonzero().T), v.detach(), (14, 9)).with_values(v)
            for m, v in zip(stored, values, strict=True)
        ]
        z = joinsum.einsum("ij,kj,lj->j", *factors, agg=agg, out_format="dense")
        assert isinstance(z, torch.Tensor)
        p, q, r = (torch.zeros(14, 9).masked_scatter(m, v) for m, v in zip(stored, values, strict=True))
        joined = p[:, None, None] * q[:, None] * r
        wanted = joined.amax((0, 1, 2)) if agg == "max" else joined.amin((0, 1, 2))
        found_all, wanted_all = (torch.autograd.grad(each.sum(), values) for each in (z, wanted))
        for mine, its in zip(found_all, wanted_all, strict=True):
            torch.testing.assert_close(mine, its)


def test_labels_of_the_result_alone_and_operands_that_do_not_count() -> None:
    y = SparseTensor.from_coordinates([[0, 1], [1, 2]], [1.0, 2.0], (3, 4))
    x = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
    z = joinsum.einsum("i,ij->im", x, y, agg="max", extents={"m": 2})
    assert isinstance(z, torch.Tensor)
    z.sum().backward()
    dense = y.to_dense()
    again = x.detach().clone().requires_grad_()
    (again[:, None] * dense).amax(1)[:, None].expand(3, 2).sum().backward()
    assert torch.equal(x.grad, again.grad)  # type: ignore[arg-type]
    x.grad = None
    first = joinsum.einsum("i,ij->j", x, y, join="x", agg="max")
    assert isinstance(first, torch.Tensor)
    first.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 0.0, 4.0]


@pytest.mark.parametrize("sites", [1, 2, 3])
@pytest.mark.parametrize("out_format", ["dense", "coo"])
def test_gradients_of_sums_of_exponentials(out_format: str, sites: int) -> None:
    """Those of the forward algorithm: scores of a path through two sparse layers of transitions."""
    joinsum.init(sites=sites)
    generator = torch.Generator().manual_seed(sites)
    masks = [torch.rand(7, 7, generator=generator) < 0.4 for _ in range(2)]
    masks[0][3] = False
    values = [torch.randn(int(m.sum()), generator=generator, dtype=torch.float64).requires_grad_() for m in masks]
    start = torch.randn(7, generator=generator, dtype=torch.float64).requires_grad_()
    given = [
        SparseTensor.from_coordinates(list(m.nonzero().T), v.detach(), (7, 7), fill=-math.inf).with_values(v)
        for m, v in zip(masks, values, strict=True)
    ]
    dense = [
        torch.full((7, 7), -math.inf, dtype=torch.float64).masked_scatter(m, v)
        for m, v in zip(masks, values, strict=True)
    ]
    arriving = torch.randn(7, generator=generator, dtype=torch.float64)
    z = joinsum.einsum("i,ij,jk->k", start, *given, join="add", agg="logsumexp", out_format=out_format)
    z = z if isinstance(z, torch.Tensor) else z.to_dense()
    paths = (start[:, None, None] + dense[0][:, :, None] + dense[1]).flatten(0, 1)
    torch.testing.assert_close(z, paths.logsumexp(0))
    reached = z.isfinite()  # torch's gradient of what nothing reaches is no number
    found = torch.autograd.grad((z[reached] * arriving[reached]).sum(), [start, *values])
    expected = torch.autograd.grad((paths[:, reached].logsumexp(0) * arriving[reached]).sum(), [start, *values])
    for mine, its in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, its)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_of_sums_of_two_exponentials(dtype: torch.dtype) -> None:
    x = torch.tensor([[0.0, -math.inf], [1.0, 2.0]], dtype=dtype)
    values = x.flatten().requires_grad_()
    y = torch.tensor([[1.0, -math.inf], [-math.inf, 0.0]], dtype=dtype, requires_grad=True)
    every = [[0, 0, 1, 1], [0, 1, 0, 1]]
    given = SparseTensor.from_coordinates(every, x.flatten(), (2, 2), levels="csr", fill=2.0).with_values(values)
    z = joinsum.einsum("ij,ij->i", given, y, join="logaddexp", agg="max", out_format="dense")
    assert isinstance(z, torch.Tensor)
    z.sum().backward()
    share = torch.tensor([-1.0, 2.0], dtype=dtype).sigmoid()  # of x in the larger element of each row
    torch.testing.assert_close(values.grad, torch.stack([share[0], share.new_zeros(()), share.new_zeros(()), share[1]]))
    torch.testing.assert_close(y.grad, torch.diag(1 - share))


def test_a_scalar_that_stores_nothing_has_an_empty_gradient() -> None:
    values = torch.zeros(0, requires_grad=True)
    nothing = SparseTensor.from_coordinates([], torch.zeros(0), ()).with_values(values)
    z = joinsum.einsum(",i->i", nothing, torch.ones(3), join="sub")
    assert isinstance(z, torch.Tensor)
    z.sum().backward()
    assert values.grad is not None
    assert values.grad.shape == (0,)


def test_gradients_of_gradients_are_refused() -> None:
    x = SparseTensor.from_edges([[0, 1]], 2)
    values = torch.ones(1, requires_grad=True)
    z = joinsum.einsum("ij->i", x.with_values(values), join="square")
    with pytest.raises(joinsum.PlanError, match="create_graph=True is not taken"):
        torch.autograd.grad(z.sum(), values, create_graph=True)  # type: ignore[union-attr]


def test_plans_keep_no_operands() -> None:
    x = SparseTensor.from_coordinates([[0, 1], [1, 0]], [1.0, 2.0], (2, 2), levels="coo")
    values = x.values().requires_grad_()
    given = x.with_values(values)
    z = joinsum.einsum("ij->i", given, agg="max", out_format="dense")
    z.sum().backward()  # type: ignore[union-attr]
    kept = weakref.ref(given)
    del x, given, z
    gc.collect()
    assert kept() is None


CANCELLING = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "squared_difference": lambda x, y: (x - y).square(),
    "x0 * x1 - x1": lambda x, y: x * y - y,
    "x0 * x1 + x2": lambda x, y, z: x * y + z,
    "x0 * (x1 - x2)": lambda x, y, z: x * (y - z),
}
EQUATIONS_OF = {
    2: ["ij,jk->ik", "ij,jk->k", "ij,jk->", "ij,j->i", "ij,ji->", "ij,i->j"],
    3: ["ij,jk,ik->i", "ij,jk,kl->il", "ij,ij,ij->i", "ij,jk,k->i", "ij,jk,j->k", "i,ij,j->"],
}


def compare_cancelling(seed: int) -> None:
    """A random einsum of values -1, 0 and 1, whose intermediate results are often their fill."""
    rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    join, function = rng.choice(list(CANCELLING.items()))
    equation = rng.choice(EQUATIONS_OF[3 if "x2" in join else 2])
    agg, extent, density = rng.choice(["sum", "max", "min"]), rng.choice([2, 4, 6]), rng.choice([0.1, 0.3, 0.6])
    labels, result = equation.split("->")[0].split(","), equation.split("->")[1]
    given, dense, values = [], [], []
    for own in labels:
        shape = (extent,) * len(own)
        places = (torch.rand(shape, generator=generator) < density).nonzero().T
        numbers = torch.randint(-1, 2, (places.shape[1],), generator=generator).double()
        levels = [rng.choice(["dense", "bytemap", "sorted_list", "hash"]) for _ in own]
        x = SparseTensor.from_coordinates(places, numbers, shape, levels=levels)
        values.append([x.values().detach().clone().requires_grad_() for _ in range(2)])
        given.append(x.with_values(values[-1][0]))
        dense.append(torch.zeros(shape, dtype=torch.float64).index_put(tuple(x.coordinates()), values[-1][1]))
    order = [*result, *sorted(set("".join(labels)) - set(result))]
    wanted = function(*(spread(x, own, order) for x, own in zip(dense, labels, strict=True)))
    wanted = wanted.expand([extent] * len(order))
    reduced = tuple(range(len(result), len(order)))
    if reduced:
        wanted = {"sum": wanted.sum, "max": wanted.amax, "min": wanted.amin}[agg](reduced)
    found = joinsum.einsum(equation, *given, join=join, agg=agg, out_format="dense")
    weights = torch.rand(wanted.shape, generator=generator, dtype=torch.float64)
    (found * weights).sum().backward()
    (wanted * weights).sum().backward()
    torch.testing.assert_close(found.detach(), wanted.detach())
    for ours, theirs in values:
        torch.testing.assert_close(ours.grad if ours.grad is not None else torch.zeros_like(ours), theirs.grad)


@pytest.mark.parametrize("sites", [1, 3])
@pytest.mark.parametrize("block", range(4))
def test_results_that_equal_their_fill_pass_gradients_on(block: int, sites: int) -> None:
    joinsum.init(sites=sites)
    try:
        for seed in range(60):
            compare_cancelling(60 * block + seed)
    finally:
        joinsum.init()


@pytest.mark.parametrize("sites", [1, 2, 3])
@pytest.mark.parametrize("start", [0.0, 1.0])
def test_elements_that_equal_the_fill_are_elements_on_all_sites(sites: int, start: float) -> None:
    joinsum.init(sites=sites)
    graph = SparseTensor.from_edges([[0, 0], [0, 1], [1, 1]], 2)
    other = torch.tensor([[1.0, 0.0], [-1.0, 2.0]])
    weights, dense = torch.full((3,), start, requires_grad=True), torch.full((3,), start, requires_grad=True)
    product = joinsum.einsum("ij,jk->ik", graph.with_values(weights), other, out_format="csr")
    assert product.nnz == 4
    (product.to_dense() - 5).pow(2).sum().backward()
    (torch.zeros(2, 2).index_put((torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1])), dense) @ other - 5).pow(
        2
    ).sum().backward()
    torch.testing.assert_close(weights.grad, dense.grad)
    joinsum.init()


@pytest.mark.parametrize("sites", [1, 2])
@pytest.mark.parametrize("kind", ["with_values", "csr", "coo"])
def test_writes_between_the_passes_do_not_change_gradients(kind: str, sites: int) -> None:
    joinsum.init(sites=sites)
    values = torch.ones(3)
    graph = {
        "with_values": lambda: SparseTensor.from_edges([[0, 0], [1, 1], [2, 2]], 3).with_values(values),
        "csr": lambda: torch.eye(3).to_sparse_csr(),
        "coo": lambda: torch.eye(3).to_sparse(),
    }[kind]()
    x = torch.ones(3, requires_grad=True)
    result = joinsum.einsum("ij,j->i", graph, x)
    (values if kind == "with_values" else graph.values() if kind == "csr" else graph._values()).mul_(5)
    if sites == 1:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()
    else:
        result.sum().backward()
        torch.testing.assert_close(x.grad, torch.ones(3))
    joinsum.init()


@pytest.mark.parametrize("agg", ["sum", "max"])
def test_batched_gradients_are_refused(agg: str) -> None:
    joinsum.init(sites=1)
    graph = SparseTensor.from_edges([[0, 1], [1, 0]], 2)
    with pytest.raises(joinsum.PlanError, match="are not batched"):
        torch.autograd.functional.jacobian(
            lambda x: joinsum.einsum("ij,j->i", graph, x, agg=agg), torch.ones(2), vectorize=True
        )
    joinsum.init()


@pytest.mark.parametrize("sites", [1, 2, 3])
@pytest.mark.parametrize("out_format", ["csr", "csc", "dcsc", ["sorted_list", "dense"]], ids=str)
def test_gradients_do_not_depend_on_the_levels_of_the_result(out_format: object, sites: int) -> None:
    joinsum.init(sites=sites)
    weights = torch.ones(3, requires_grad=True)
    graph = SparseTensor.from_edges([[0, 0], [0, 1], [1, 1]], 2).with_values(weights)
    other = torch.tensor([[1.0, 0.0], [-1.0, 2.0]])
    product = joinsum.einsum("ij,jk->ik", graph, other, out_format=out_format)
    (product.to_dense() - 5).pow(2).sum().backward()
    assert product.nnz == 4
    torch.testing.assert_close(weights.grad, torch.tensor([-10.0, -2.0, 0.0]))
    joinsum.init()


@pytest.mark.parametrize("sites", [1, 2])
@pytest.mark.parametrize("levels", [["dense", "dense"], ["sorted_list", "dense"], ["bytemap", "dense"]], ids=str)
def test_zeros_of_dense_levels_have_gradients(levels: list[str], sites: int) -> None:
    joinsum.init(sites=sites)
    values = torch.tensor([1.0, 0.0, 2.0, 3.0], requires_grad=True)
    matrix = SparseTensor.from_torch(torch.ones(2, 2), levels=levels).with_values(values)
    joinsum.einsum("ij->ji", matrix, out_format="coo").to_dense().sum().backward()
    torch.testing.assert_close(values.grad, torch.ones(4))
    joinsum.init()


def test_what_would_visit_all_elements_is_refused_in_autograd_too() -> None:
    joinsum.init(sites=1)
    places = torch.randint(0, 5000, (2, 20_000), generator=torch.Generator().manual_seed(0))
    scores = SparseTensor.from_coordinates(
        places, torch.ones(20_000), (5000, 5000), levels="csr", fill=-math.inf, fold="max"
    )
    most = torch.zeros(5000, requires_grad=True)
    for each in (most.detach(), most):
        with pytest.raises(joinsum.PlanError, match="all are visited"):
            joinsum.einsum("ij,i->ij", scores, each, join="exp(x-y)", out_format="csr")
    joinsum.init()


@pytest.mark.parametrize("join", ["(x+y)*z", "(x-y)*z"])
def test_extremes_of_products_with_sums_are_found_again(join: str) -> None:
    """What is compared with the extreme must not be multiplied out: it would round in another way."""
    joinsum.init(sites=1)
    for seed in range(20):
        chosen = torch.Generator().manual_seed(seed)
        x, y, z = (
            torch.randn(shape, generator=chosen, dtype=torch.float64) * (torch.rand(shape, generator=chosen) < 0.3)
            for shape in ((20, 20), (20,), (20,))
        )
        sparse = [SparseTensor.from_torch(each.to_sparse()) for each in (x, y, z)]
        values, dense = sparse[2].values().clone().requires_grad_(), z.clone().requires_grad_()
        found = joinsum.einsum("ij,i,j->i", *sparse[:2], sparse[2].with_values(values), join=join, agg="max")
        expected = ((x + y[:, None] if "+" in join else x - y[:, None]) * dense).amax(1)
        reached = (expected.detach() != 0).double()  # elements that are not stored tie at zero
        (found * reached).sum().backward()
        (expected * reached).sum().backward()
        torch.testing.assert_close(values.grad, dense.grad[z != 0])
