"""Relations of sparse arrays on the sites, against dense torch: products with dense ones, moves, refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import joinsum
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

DTYPES = [torch.float32, torch.float64, torch.int64, torch.complex64, torch.bfloat16]


@pytest.fixture(autouse=True)
def _one_site_afterwards() -> Iterator[None]:
    yield
    joinsum.init()


def sparse(shape: list[int], density: float = 0.3, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Small whole numbers, of which products and sums are exact."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(1, 5, shape, generator=generator).to(dtype)
    return values * (torch.rand(shape, generator=generator) < density)


def dense(shape: list[int], seed: int = 1, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randint(-4, 5, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def product(x: joinsum.Relation, y: joinsum.Relation, equation: str) -> joinsum.Relation:
    """The einsum of two operands as a join by the letters' key dimensions and an aggregation."""
    left, right = equation.partition("->")[0].split(",")
    result = equation.partition("->")[2]
    on = [letter for letter in left if letter in right]
    joined = x.join(y, on=([left.index(c) for c in on], [right.index(c) for c in on]), kernel=f"contract[{equation}]")
    keys = left + "".join(c for c in right if c not in left)
    return joined.aggregate(keep=[keys.index(c) for c in result], kernel="add")


EQUATIONS = [
    "ij,jk->ik",
    "ij,ik->jk",
    "ij,kj->ki",
    "ij,j->i",
    "ij,ij->ij",
    "ij,jk->kji",
    "ijk,kl->ijl",
    "ijk,jl->il",
    "ij,jk->k",
    "ij,kl->il",
]


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, dict[str, int], dict[str, int], float, bool]:
    equation = draw(st.sampled_from(EQUATIONS))
    letters = sorted(set(equation) - set(",->"))
    extents = {c: draw(st.integers(1, 9)) for c in letters}
    parts = {c: draw(st.integers(1, 4)) for c in letters}
    return equation, extents, parts, draw(st.sampled_from([0.0, 0.1, 0.5, 1.0])), draw(st.booleans())


@pytest.mark.parametrize("sites", range(1, 9))
@settings(max_examples=25, deadline=None)
@given(case=cases())
def test_products_with_dense_relations_are_torchs(
    sites: int, case: tuple[str, dict[str, int], dict[str, int], float, bool]
) -> None:
    joinsum.init(sites=sites)
    equation, extents, parts, density, swapped = case
    left, right = equation.partition("->")[0].split(",")
    x, y = sparse([extents[c] for c in left], density), dense([extents[c] for c in right])
    wanted = torch.einsum(equation, x, y)
    first = joinsum.relation(x.to_sparse(), parts=[parts[c] for c in left])
    second = joinsum.relation(y, parts=[parts[c] for c in right])
    if swapped:
        equation = f"{right},{left}->{equation.partition('->')[2]}"
        first, second = second, first
    assert torch.equal(product(first, second, equation).to_tensor(), wanted)


@pytest.mark.parametrize("sites", range(1, 9))
@settings(max_examples=15, deadline=None)
@given(case=cases())
def test_products_of_two_sparse_relations_are_torchs(
    sites: int, case: tuple[str, dict[str, int], dict[str, int], float, bool]
) -> None:
    joinsum.init(sites=sites)
    equation, extents, parts, density, _ = case
    left, right = equation.partition("->")[0].split(",")
    x, y = sparse([extents[c] for c in left], density), sparse([extents[c] for c in right], seed=2)
    first, second = (
        joinsum.relation(operand.to_sparse(), parts=[parts[c] for c in letters])
        for operand, letters in ((x, left), (y, right))
    )
    result = product(first, second, equation).to_tensor()
    assert result.layout is torch.sparse_coo
    assert torch.equal(result.to_dense(), torch.einsum(equation, x, y))


ELEMENTWISE = {
    "mul": torch.mul,
    "add": torch.add,
    "sub": torch.sub,
    "min": torch.minimum,
    "max": torch.maximum,
    "squared_difference": lambda a, b: (a - b) ** 2,
    "abs_difference": lambda a, b: torch.maximum(a, b) - torch.minimum(a, b),
}


@pytest.mark.parametrize("sites", [1, 3, 4])
@pytest.mark.parametrize("kernel", ELEMENTWISE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8])
def test_elementwise_kernels_of_two_sparse_relations_are_torchs(dtype: torch.dtype, kernel: str, sites: int) -> None:
    joinsum.init(sites=sites)
    x, y = sparse([7, 6], dtype=dtype), -sparse([7, 6], seed=2, dtype=dtype)
    a, b = (joinsum.relation(each.to_sparse(), parts=(2, 3)) for each in (x, y))
    result = a.join(b, on=([0, 1], [0, 1]), kernel=kernel).to_tensor()
    assert result.layout is torch.sparse_coo
    assert torch.equal(result.to_dense(), ELEMENTWISE[kernel](x, y))
    pairs = a.join(joinsum.relation(y[0].to_sparse(), parts=(3,)), on=([1], [0]), kernel=kernel).to_tensor()
    assert torch.equal(pairs.to_dense(), ELEMENTWISE[kernel](x, y[0]))


@pytest.mark.parametrize("sites", [1, 3])
@pytest.mark.parametrize("swapped", [False, True])
def test_products_of_elements_of_a_sparse_and_a_dense_relation_are_sparse(swapped: bool, sites: int) -> None:
    joinsum.init(sites=sites)
    x, y = sparse([7, 6]), dense([7, 6])
    a, b = joinsum.relation(x.to_sparse(), parts=(2, 3)), joinsum.relation(y, parts=(2, 3))
    first, second = (b, a) if swapped else (a, b)
    masked = first.join(second, on=([0, 1], [0, 1]), kernel="mul")
    assert masked.type.entries == a.type.entries
    assert torch.equal(masked.to_tensor().to_dense(), x * y)
    sums = masked.aggregate(keep=[0]).transform("relu").to_tensor().to_dense()
    assert torch.equal(sums, (x * y).reshape(7, 3, 2).sum(1).relu())


def test_entries_of_a_product_are_estimated() -> None:
    joinsum.init(sites=2)
    x = sparse([400, 400], density=0.01)
    a = joinsum.relation(x.to_sparse(), parts=(2, 2))
    joined = a.join(a, on=([1], [0]), kernel="matmul").aggregate(keep=[0, 2])
    stored = joined.to_tensor()._nnz()
    entries = joined.type.entries
    assert entries is not None
    assert 0.8 * stored < entries < 1.2 * stored


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("equation", ["ij,jk->ik", "ij,ik->jk", "ij,jk->kji"])
def test_dtypes(dtype: torch.dtype, equation: str) -> None:
    joinsum.init(sites=3)
    x, y = sparse([12, 9], dtype=dtype), dense([9 if equation[3] == "j" else 12, 40], dtype=dtype)
    result = product(
        joinsum.relation(x.to_sparse(), parts=(3, 2)),
        joinsum.relation(y, parts=(2 if equation[3] == "j" else 3, 2)),
        equation,
    )
    torch.testing.assert_close(result.to_tensor(), torch.einsum(equation, x, y))


def test_large_products_on_threads_are_torchs() -> None:
    joinsum.init(sites=2)
    x, y = sparse([700, 900], 0.05), dense([900, 96])
    a, b = joinsum.relation(x.to_sparse(), parts=(2, 2)), joinsum.relation(y, parts=(2, 1))
    assert torch.equal(product(a, b, "ij,jk->ik").to_tensor(), x @ y)
    z = dense([700, 96])
    assert torch.equal(product(a, joinsum.relation(z, parts=(2, 1)), "ij,ik->jk").to_tensor(), x.T @ z)


LAYOUTS = {
    "coo": lambda x: x.to_sparse(),
    "uncoalesced": lambda x: torch.sparse_coo_tensor(*_doubled(x), x.shape),
    "csr": lambda x: x.to_sparse_csr(),
    "csc": lambda x: x.to_sparse_csc(),
    "joinsum": lambda x: joinsum.SparseTensor.from_torch(x.to_sparse(), levels="csr"),
    "joinsum by columns": lambda x: joinsum.SparseTensor.from_torch(x.to_sparse(), levels="csc"),
}


def _doubled(x: Tensor) -> tuple[Tensor, Tensor]:
    indices = x.nonzero().T.flip(1)
    return torch.cat([indices, indices], 1), torch.cat([x[tuple(indices)] / 2] * 2)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_of_a_sparse_tensor_is_taken(layout: str) -> None:
    joinsum.init(sites=4)
    x, y = sparse([7, 5]), dense([5, 3])
    relation = joinsum.relation(LAYOUTS[layout](x), parts=(2, 2))
    assert torch.equal(relation.to_tensor().to_dense(), x)
    assert [key for key, _ in relation.tuples()] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert torch.equal(product(relation, joinsum.relation(y, parts=(2, 1)), "ij,jk->ik").to_tensor(), x @ y)


@pytest.mark.parametrize("sites", [2, 3, 4, 6, 8])
@pytest.mark.parametrize("density", [0.0, 0.2])
def test_moves_carry_the_entries(sites: int, density: float) -> None:
    joinsum.init(sites=sites)
    x = sparse([11, 13], density)
    stored = joinsum.relation(x.to_sparse(), parts=(4, 3), place=[0] * len(joinsum.grid().axes)).stored()
    axes = len(joinsum.grid().axes)
    for place in (["*"] * axes, [1] * axes, [0, *["*"] * (axes - 1)], [*["*"] * (axes - 1), 1], [0] * axes):
        moved = stored.move(place)
        assert torch.equal(moved.to_tensor().to_dense(), x)
        assert {key: array.to_dense().tolist() for key, array in moved.tuples()} == {
            key: array.to_dense().tolist() for key, array in stored.tuples()
        }
        stored = moved


def test_a_move_sends_its_entries_and_their_number() -> None:
    joinsum.init(sites=2)
    x = sparse([8, 6], 0.5)
    a = joinsum.relation(x.to_sparse(), parts=(2, 1), place=[0], name="A").stored()
    plan = joinsum.parse("ia on 2\ninput A: f64[8,6]<2,1> sparse{24} on 2 (0)\noutput B = broadcast[0](A)")
    moved = joinsum.run(plan, {"A": a})["B"]
    assert torch.equal(moved.to_tensor().to_dense(), x)
    (entry,) = [entry for entry in joinsum.trace() if entry.operation.startswith("broadcast")]
    assert entry.bytes_sent == entry.bytes_received == int((x != 0).sum()) * (8 + 2 * 8) + 2 * 8


def test_what_a_plan_moves_is_priced_by_its_entries() -> None:
    text = "ia on 2\ninput A: f32[1000,1000]<2,1>{} on 2 (0)\noutput B = broadcast[0](A)"
    few, many, all_ = (joinsum.cost(joinsum.parse(text.format(e))) for e in (" sparse{1000}", " sparse{50000}", ""))
    assert (few.wire_bytes, many.wire_bytes, all_.wire_bytes) == (1000 * 20, 50_000 * 20, 4_000_000)


def test_products_are_priced_by_entries() -> None:
    text = (
        "ia on 1\ninput A: f32[1000,1000]<1,1>{} on 1 ()\ninput B: f32[1000,50]<1,1> on 1 ()\n"
        "C = local_join[1; 0; matmul](A, B)\noutput D = local_aggregate[0, 2; add](C)"
    )
    few, all_ = (joinsum.cost(joinsum.parse(text.format(e))) for e in (" sparse{4000}", ""))
    assert few.flops == 2 * 4000 * 50
    assert all_.flops == 2 * 1000 * 1000 * 50
    assert few.seconds < all_.seconds


def test_entries_are_no_part_of_what_a_type_is() -> None:
    a, b = (joinsum.RelationType.parse(f"f32[4,4]<2,2> sparse{{{n}}}") for n in (3, 7))
    dense_type = joinsum.RelationType.parse("f32[4,4]<2,2>")
    assert a == b
    assert hash(a) == hash(b)
    assert a != dense_type
    assert (str(a), a.entries, dense_type.entries) == ("f32[4,4]<2,2> sparse{3}", 3, None)
    assert (a.bytes, dense_type.bytes) == (3 * (4 + 2 * 8), 64)


def test_plans_take_batches_with_other_numbers_of_entries() -> None:
    joinsum.init(sites=2)
    plan = joinsum.parse(
        "tra\ninput A: f64[6,5]<2,2> sparse{9}\ninput B: f64[5,4]<2,1>\nC = join[1; 0; matmul](A, B)\n"
        "output D = aggregate[0, 2; add](C)"
    )
    for seed, density in enumerate((0.0, 0.2, 0.9)):
        x, y = sparse([6, 5], density, seed), dense([5, 4], seed)
        assert torch.equal(joinsum.run(plan, {"A": x.to_sparse(), "B": y})["D"].to_tensor(), x @ y)
        ((_, value), *_) = joinsum.interpret(plan, {"A": x.to_sparse(), "B": y})["D"]
        assert torch.equal(value, (x @ y)[:3])


@pytest.mark.parametrize("parts", [2, 4, 8])
def test_parts_by_entries_are_even_on_a_power_law(parts: int) -> None:
    generator = torch.Generator().manual_seed(3)
    rows = (2000 * torch.rand(40_000, generator=generator) ** 3).long()
    columns = torch.randint(2000, (40_000,), generator=generator)
    x = torch.sparse_coo_tensor(torch.stack([rows, columns]), torch.ones(40_000), (2000, 2000)).coalesce()
    even, by_entries = (joinsum.relation(x, parts=(parts, 1), balance=b) for b in ("indices", "entries"))
    counts = [[array.values().numel() for _, array in each.tuples()] for each in (even, by_entries)]
    average = x.values().numel() / parts
    assert max(counts[0]) > 1.5 * average
    assert max(counts[1]) < 1.2 * average
    assert sum(counts[1]) == x.values().numel()
    assert torch.equal(by_entries.to_tensor().to_dense(), x.to_dense())


def test_parts_by_entries_of_few_rows_are_not_empty() -> None:
    x = torch.zeros(5, 3)
    x[0] = 1
    relation = joinsum.relation(x.to_sparse(), parts=(4, 9), balance="entries")
    assert [axis.cuts for axis in relation.type.axes] == [[0, 1, 2, 3, 5], [0, 1, 2, 3]]
    assert torch.equal(relation.to_tensor().to_dense(), x)
    empty = joinsum.relation(torch.zeros(4, 0).to_sparse(), parts=(2, 2), balance="entries")
    assert empty.to_tensor().shape == (4, 0)


REFUSED = {
    "elementwise": (lambda a, b: a.join(b, on=([0, 1], [0, 1]), kernel="add"), "kernel does not take sparse arrays"),
    "not zero at zeros": (lambda a, b: a.join(a, on=([0, 1], [0, 1]), kernel="div"), "that are zero at zero"),
    "another pair": (
        lambda a, b: a.join(b, on=([1], [0]), kernel="contract_add_min[ij,jk->ik]"),
        "does not take sparse",
    ),
    "another pair of sparse ones": (
        lambda a, b: a.join(a, on=([1], [0]), kernel="contract_add_min[ij,jk->ik]"),
        "does not take sparse",
    ),
    "halves": (lambda a, b: a.transform("cast[bf16]").join(a.transform("cast[bf16]")), "a sparse result is of f32"),
    "aggregate": (lambda a, b: a.aggregate(keep=[0], kernel="max"), "arrays of a sparse relation are added"),
    "transform": (lambda a, b: a.transform("exp"), "elementwise kernels that are zero at zero"),
    "a scalar of any value": (lambda a, b: a.transform("softplus"), "elementwise kernels that are zero at zero"),
    "tile": (lambda a, b: a.tile(axis=0, size=1), "a sparse relation is mapped by elementwise kernels"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_sparse_arrays_cannot_do_is_refused(name: str) -> None:
    make, said = REFUSED[name]
    a, b = joinsum.relation(sparse([4, 4]).to_sparse(), parts=(2, 2)), joinsum.relation(dense([4, 4]), parts=(2, 2))
    with pytest.raises((joinsum.PlanError, joinsum.KernelError), match=said):
        make(a, b)


MAPPED: dict[str, Callable[[joinsum.Relation], joinsum.Relation]] = {
    "filter": lambda a: a.filter(lambda i, j: (i + j) % 2 == 0),
    "filtered twice": lambda a: a.filter(lambda i, j: i == j).filter(lambda i, j: i > 0),
    "rekey": lambda a: a.rekey(lambda i, j: (j, i)),
    "rekeyed and filtered": lambda a: a.rekey(lambda i, j: (j, i)).filter(lambda j, i: j < i),
    "one key": lambda a: a.rekey(lambda i, j: (4 * j + i,)),
    "rows": lambda a: a.aggregate(keep=[0]),
    "columns": lambda a: a.aggregate(keep=[1]),
    "all": lambda a: a.aggregate(keep=[]),
    "rekeyed sums": lambda a: a.rekey(lambda i, j: (j, i)).aggregate(keep=[0]),
    "keys that meet": lambda a: a.rekey(lambda i, j: (i % 2,)).aggregate(keep=[0]),
    "transform": lambda a: a.transform("relu"),
    "transforms": lambda a: a.transform("negate").transform("square").transform("scale[0.5]"),
    "dtype": lambda a: a.transform("cast[f32]"),
    "sums of squares": lambda a: a.transform("square").aggregate(keep=[0]).transform("sqrt"),
    "filtered product": lambda a: a.filter(lambda i, j: i <= j).transform("abs"),
}


@pytest.mark.parametrize("sites", [1, 2, 3, 4])
@pytest.mark.parametrize("name", MAPPED)
def test_sparse_relations_are_mapped_filtered_and_added_as_dense_ones(name: str, sites: int) -> None:
    joinsum.init(sites=sites)
    x = sparse([12, 20], 0.2)
    made = MAPPED[name](joinsum.relation(x.to_sparse(), parts=(4, 4)))
    wanted = MAPPED[name](joinsum.relation(x, parts=(4, 4)))
    assert made.type.entries is not None
    tuples = list(zip(made.tuples(), wanted.tuples(), strict=True))
    assert tuples
    for (key, array), (wanted_key, dense_array) in tuples:
        assert key == wanted_key
        assert array.is_sparse
        assert array.is_coalesced()
        torch.testing.assert_close(array.to_dense(), dense_array, rtol=1e-12, atol=0)
    assert made.type.frontier == wanted.type.frontier


def test_maps_of_a_sparse_relation_meet_dense_ones() -> None:
    joinsum.init(sites=4)
    x, y = sparse([12, 10], 0.3), dense([10, 6])
    a, b = joinsum.relation(x.to_sparse(), parts=(3, 2)), joinsum.relation(y, parts=(2, 2))
    product = a.transform("relu").join(b, on=([1], [0]), kernel="matmul").aggregate(keep=[0, 2])
    torch.testing.assert_close(product.to_tensor(), x.relu() @ y)


def test_inputs_of_the_other_kind_and_wrong_arguments_are_refused() -> None:
    x = sparse([4, 4])
    plan = joinsum.parse("ia on 1\ninput A: f64[4,4]<1,1> sparse{9} on 1 ()\noutput B = A")
    with pytest.raises(joinsum.PlanError, match="the plan has it sparse; give it sparse"):
        joinsum.run(plan, {"A": x})
    dense_plan = joinsum.parse("ia on 1\ninput A: f64[4,4]<1,1> on 1 ()\noutput B = A")
    with pytest.raises(joinsum.PlanError, match=r"the plan has it dense; give its to_dense\(\)"):
        joinsum.run(dense_plan, {"A": x.to_sparse()})
    with pytest.raises(joinsum.PlanError, match="equally many what"):
        joinsum.relation(x.to_sparse(), parts=(2, 2), balance="rows")
    with pytest.raises(joinsum.PlanError, match="balance is of the parts of a sparse tensor; tuples have theirs"):
        joinsum.relation({0: torch.ones(2)}, balance="entries")
    with pytest.raises(joinsum.PlanError, match="dense axes=1"):
        joinsum.relation(x.to_sparse(1), parts=(2, 2))
    with pytest.raises(joinsum.PlanError, match="no gradients"):
        joinsum.relation(x.to_sparse().requires_grad_(), parts=(2, 2))
    with pytest.raises(joinsum.PlanError, match="fill"):
        joinsum.relation(joinsum.SparseTensor.from_torch(x, fill=1.0), parts=(2, 2))
    with pytest.raises(joinsum.PlanError, match="a negative number of entries"):
        joinsum.parse("tra\ninput A: f64[4,4]<1,1> sparse{-9}\noutput B = A")


# --- graphs and einsums -----------------------------------------------------------------------------------------------

GRAPHS = [
    "ij,jk->ik",
    "ji,jk->ki",
    "ij,jk,kl->il",
    "ij,jk->k",
    "ij,j->i",
    "ij,ij->ij",
    "ij,kj->ik",
    "ij,jk,ik->i",
    "ijk,jl,kl->il",
]


@pytest.mark.parametrize("sites", range(1, 9))
@pytest.mark.parametrize("equation", GRAPHS)
def test_graphs_with_a_sparse_input_have_torchs_values_and_gradients(sites: int, equation: str) -> None:
    joinsum.init(sites=sites)
    extents = dict(zip("ijkl", (14, 9, 6, 5), strict=True))
    shapes = [[extents[c] for c in labels] for labels in equation.partition("->")[0].split(",")]
    x, others = sparse(shapes[0], 0.2), [dense(shape, i).requires_grad_() for i, shape in enumerate(shapes[1:])]
    wanted = torch.einsum(equation, x, *others)
    graph = joinsum.Graph()
    values = [graph.input("X", shapes[0], torch.float64, entries=int((x != 0).sum()))]
    values += [graph.input(f"Y{i}", shape, torch.float64) for i, shape in enumerate(shapes[1:])]
    graph.output("Z", graph.einsum(equation, *values))
    planned = graph.plan()
    for sparse_x in (x.to_sparse(), joinsum.SparseTensor.from_torch(x.to_sparse())):
        results = planned(sparse_x, *others)["Z"], joinsum.einsum(equation, sparse_x, *others)
        for z in results:
            assert isinstance(z, Tensor)
            assert torch.equal(z, wanted)
            for found, want in zip(
                torch.autograd.grad(z.square().sum(), others),
                torch.autograd.grad(wanted.square().sum(), others, retain_graph=True),
                strict=True,
            ):
                assert torch.equal(found, want)


def test_a_graphs_text_has_the_entries() -> None:
    graph = joinsum.Graph()
    x, y = graph.input("X", (40, 30), entries=50), graph.input("Y", (30, 5))
    graph.output("Z", graph.einsum("ij,jk->ik", x, y))
    assert "input X: f32[40,30] sparse{50}\n" in graph.text
    again = joinsum.Graph.parse(graph.text)
    assert again.text == graph.text
    dense_graph = joinsum.Graph.parse(graph.text.replace(" sparse{50}", ""))
    assert again.plan().cost.flops == 2 * 50 * 5
    assert dense_graph.plan().cost.flops == 2 * 40 * 30 * 5


def test_an_einsum_on_sites_is_divided() -> None:
    joinsum.init(sites=4, cluster=joinsum.Cluster("slow sites, fast links", 1e6, 1e12, 1e-9))
    x, y = sparse([64, 48], 0.2), dense([48, 16])
    assert torch.equal(joinsum.einsum("ij,jk->ik", x.to_sparse(), y, out_format="dense"), x @ y)
    assert any(entry.bytes_sent > 0 for entry in joinsum.trace())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda x: (x, torch.ones(5, 2)), "planned sparse: input=X"),
        (lambda x: (x.to_sparse(), torch.eye(5)[:, :2].to_sparse()), "planned dense: input=Y"),
        (lambda x: (x[:3].to_sparse(), torch.ones(5, 2)), "another shape"),
        (lambda x: (x.double().to_sparse(), torch.ones(5, 2)), "another dtype"),
        (lambda x: (x.to_sparse().requires_grad_(), torch.ones(5, 2)), "no gradients"),
    ],
)
def test_a_planned_graph_refuses_other_inputs(given: Callable[[Tensor], tuple[Tensor, Tensor]], said: str) -> None:
    graph = joinsum.Graph()
    graph.output("Z", graph.einsum("ij,jk->ik", graph.input("X", (4, 5), entries=3), graph.input("Y", (5, 2))))
    with pytest.raises(joinsum.PlanError, match=said):
        graph.plan()(*given(torch.ones(4, 5)))


# Equation of A, B, M (sparse) and W (dense), join, aggregation.
QUERIES = [
    ("ij,jk->ik", "AB", "mul", "sum"),
    ("ij,jk,ik->ik", "ABM", "mul", "sum"),
    ("ij,ij->ij", "AB", "max", "sum"),
    ("ij,ij->i", "AB", "add", "sum"),
    ("ij,jk->ik", "AW", "add", "max"),
    ("ij->j", "A", "exp", "sum"),
    ("ij,jk,ki->", "ABM", "mul", "sum"),
]


@pytest.mark.parametrize("sites", [1, 2, 4, 7])
def test_graphs_take_several_sparse_inputs(sites: int) -> None:
    joinsum.init(sites=sites, cluster=joinsum.Cluster("slow sites, fast links", 1e6, 1e12, 1e-9))
    dense_of = {name: sparse([12, 12], 0.1, seed) for seed, name in enumerate("ABM")} | {"W": dense([12, 12])}
    graph = joinsum.Graph()
    values = {name: graph.input(name, (12, 12), torch.float64, entries=14) for name in "ABM"}
    values["W"] = graph.input("W", (12, 12), torch.float64)
    for number, (equation, names, join, agg) in enumerate(QUERIES):
        made = graph.einsum(equation, *(values[name] for name in names), join=join, agg=agg)
        graph.output(f"Z{number}", made)
    # A sparse result is an operand as an input is.
    masked = graph.einsum("ij,jk,ik->ik", values["A"], values["B"], values["M"])
    graph.output("Y", graph.einsum("ij,jk->ik", masked, values["W"]))
    assert joinsum.Graph.parse(graph.text).text == graph.text
    given = {name: x if name == "W" else x.to_sparse() for name, x in dense_of.items()}
    found = graph.plan()(**given)
    joinsum.init()
    for number, (equation, names, join, agg) in enumerate(QUERIES):
        wanted = joinsum.einsum(equation, *(dense_of[name] for name in names), join=join, agg=agg)
        torch.testing.assert_close(found[f"Z{number}"].to_dense(), wanted, rtol=1e-12, atol=1e-12)
    wanted = (dense_of["A"] @ dense_of["B"] * dense_of["M"]) @ dense_of["W"]
    torch.testing.assert_close(found["Y"], wanted, rtol=1e-12, atol=1e-12)
    assert found["Z1"].is_sparse


def test_a_graph_refuses_what_would_visit_everything_and_what_does_not_fit() -> None:
    graph = joinsum.Graph()
    x, y = graph.input("X", (4000, 5000), entries=3), graph.input("Y", (5000, 2), torch.float64)
    w = graph.input("W", (5000,))
    with pytest.raises(joinsum.PlanError, match=r'visits=2e\+07.*out_format="dense"'):
        graph.einsum("ij,j->i", x, w, join="add", agg="max")
    assert graph.einsum("ij,j->i", x, w, join="add", agg="max", out_format="dense").shape == (4000,)
    with pytest.raises(joinsum.PlanError, match='"auto", "dense" or "coo"'):
        graph.einsum("ij->i", x, out_format="csr")
    with pytest.raises(joinsum.PlanError, match="operands beside sparse ones have one dtype"):
        graph.einsum("ij,jk->ik", x, y, join="add", agg="max")
    square = graph.input("S", (4, 4), entries=3)
    with pytest.raises(joinsum.PlanError, match="take the diagonal first: operand=0"):
        graph.einsum("ii->i", square)
    with pytest.raises(joinsum.PlanError, match="entries are counted"):
        graph.input("V", (3, 3), entries=-1)


def _unchecked(layout: torch.layout, offsets: list[int], indices: list[int]) -> Tensor:
    return torch.sparse_compressed_tensor(
        torch.tensor(offsets),
        torch.tensor(indices),
        torch.ones(len(indices)),
        (2, 2),
        layout=layout,
        check_invariants=False,
    )


@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_csc])
@pytest.mark.parametrize(
    ("offsets", "indices", "said"),
    [
        ([0, 2, 3], [0, 500_000_000, 1], "coordinate out of range: level=1, fiber=0, place=1, coordinate=500000000"),
        ([0, 2, 3], [-7, 0, 1], "coordinate out of range: level=1, fiber=0, place=0, coordinate=-7"),
        ([0, 3, 2], [0, 1, 1], "offsets shrink"),
        ([0, 2, 5_000_000], [0, 1, 1], "offsets do not end with the number of coordinates"),
        ([0, 2, 3], [1, 0, 1], "coordinates do not ascend"),
    ],
)
@pytest.mark.parametrize("balance", ["indices", "entries"])
def test_malformed_rows_or_columns_are_refused(
    layout: torch.layout, offsets: list[int], indices: list[int], said: str, balance: str
) -> None:
    with pytest.raises(joinsum.PlanError, match=said):
        joinsum.relation(_unchecked(layout, offsets, indices), parts=(2, 1), balance=balance)


def test_malformed_coordinates_are_refused() -> None:
    outside = torch.sparse_coo_tensor([[0, 5], [0, 1]], torch.ones(2), (2, 2), check_invariants=False)
    with pytest.raises(joinsum.PlanError, match="coordinate out of range: axis=0, place=1, coordinate=5, size=2"):
        joinsum.relation(outside)
    descending = torch.sparse_coo_tensor(
        [[1, 0], [0, 1]], torch.ones(2), (2, 2), is_coalesced=True, check_invariants=False
    )
    with pytest.raises(joinsum.PlanError, match=r"malformed sparse tensor: layout=torch\.sparse_coo, torch says"):
        joinsum.relation(descending)


@pytest.mark.parametrize("sites", [1, 2, 4])
def test_results_of_graphs_are_sparse_where_that_is_asked_for(sites: int) -> None:
    joinsum.init(sites=sites)
    graph = joinsum.Graph()
    a, b = graph.input("A", (30, 30), entries=60), graph.input("B", (30, 4))
    product = graph.einsum("ij,jk->ik", a, a, out_format="coo")
    graph.output("square", product)
    graph.output("times", graph.einsum("ij,jk->ik", a, b, out_format="coo"))
    graph.output("sums", graph.einsum("ij->i", product))
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(30, 30, generator=draw) * (torch.rand(30, 30, generator=draw) < 0.07)
    y = torch.randn(30, 4, generator=draw)
    found = graph.plan()(x.to_sparse(), y)
    assert found["square"].is_sparse
    assert found["times"].is_sparse
    torch.testing.assert_close(found["square"].to_dense(), x @ x)
    torch.testing.assert_close(found["times"].to_dense(), x @ y)
    torch.testing.assert_close(found["sums"], (x @ x).sum(1))
    for equation, operands in (("ij,jk->ik", (b, graph.input("C", (4, 2)))), ("ij->", (a,))):
        with pytest.raises(joinsum.PlanError, match="out_format=coo"):
            graph.einsum(equation, *operands, out_format="coo")
    with pytest.raises(joinsum.PlanError, match='"auto", "dense" or "coo"'):
        graph.einsum("ij->i", a, out_format="csr")
    joinsum.init()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
@pytest.mark.parametrize("equation", ["ij,jk->ik", "ij,jk->ki", "ji,jk->ik", "ij,kj->ik", "ji,kj->ki", "jk,ij->ik"])
def test_sites_multiply_sparse_matrices_as_one_does(equation: str, dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(1)
    extents = {"i": 13, "j": 9, "k": 11}
    left, right = equation.split("->")[0].split(",")

    def matrix(labels: str) -> torch.Tensor:
        shape = tuple(extents[label] for label in labels)
        return torch.randint(1, 5, shape, generator=draw).to(dtype) * (torch.rand(shape, generator=draw) < 0.2)

    a, b = matrix(left), matrix(right)
    wanted = torch.einsum(equation, a.double(), b.double()).to(dtype)
    for sites in (1, 2, 4):
        joinsum.init(sites=sites)
        found = joinsum.einsum(
            equation, joinsum.SparseTensor.from_torch(a).with_levels("coo"), b.to_sparse(), out_format="coo"
        )
        torch.testing.assert_close(found.to_dense(), wanted)
        assert found.nnz == int(((torch.einsum(equation, (a != 0).double(), (b != 0).double())) != 0).sum())
    joinsum.init()
