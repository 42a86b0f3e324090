"""Lazy relations: the paper's worked examples, operators against their definitions and torch, what goes in and out."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import joinsum
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

Tuples = list[tuple[tuple[int, ...], torch.Tensor]]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.complex64]
QUICK = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


@pytest.fixture(autouse=True)
def one_site() -> Iterator[None]:
    joinsum.init()
    yield
    joinsum.init()


def listed(tuples: Tuples) -> list[tuple[tuple[int, ...], list[object]]]:
    return [(key, array.tolist()) for key, array in tuples]


def check_same(found: Tuples, wanted: Tuples) -> None:
    """Equal as bags: arrays of one key stand in any order."""
    assert [key for key, _ in found] == [key for key, _ in wanted]

    def bag(tuples: Tuples) -> list[tuple[tuple[int, ...], list[int], list[float]]]:
        return sorted((key, list(array.shape), array.double().flatten().tolist()) for key, array in tuples)

    assert bag(found) == bag(wanted)


# --- the paper's worked examples --------------------------------------------------------------------------------------


def matrix_a() -> joinsum.Relation:
    """The matrix A of section 2.2 of the TRA paper, in 2 x 2 blocks."""
    blocks = {(0, 0): [[1, 2], [3, 4]], (0, 1): [[5, 6], [7, 8]]}
    blocks |= {(1, 0): [[9, 10], [11, 12]], (1, 1): [[13, 14], [15, 16]]}
    return joinsum.relation({key: torch.tensor(block) for key, block in blocks.items()}, name="A")


def matrix_b() -> joinsum.Relation:
    """The matrix B of section 3.1 (6), cut by columns."""
    halves = [[[1, 2, 5, 6], [3, 4, 7, 8]], [[9, 10, 13, 14], [11, 12, 15, 16]]]
    return joinsum.relation({i: torch.tensor(half) for i, half in enumerate(halves)}, links=[None, 0], name="B")


@pytest.mark.parametrize("sites", range(1, 9))
def test_the_worked_examples_print_the_papers_numbers(sites: int) -> None:
    joinsum.init(sites=sites)
    a, b = matrix_a(), matrix_b()
    assert listed(a.aggregate(keep=[1]).tuples()) == [((0,), [[10, 12], [14, 16]]), ((1,), [[18, 20], [22, 24]])]
    assert listed(a.aggregate(keep=[]).tuples()) == [((), [[28, 32], [36, 40]])]
    joined = a.join(a, on=([1], [0]), kernel="matmul")
    assert len(joined.tuples()) == 8
    assert listed(joined.tuples())[2] == ((0, 1, 0), [[111, 122], [151, 166]])
    assert listed(joined.aggregate(keep=[0, 2], kernel="add").tuples()) == [
        ((0, 0), [[118, 132], [166, 188]]),
        ((0, 1), [[174, 188], [254, 276]]),
        ((1, 0), [[310, 356], [358, 412]]),
        ((1, 1), [[494, 540], [574, 628]]),
    ]
    diagonal = a.filter(lambda i, j: i == j).rekey(lambda i, j: i).transform("diag")
    assert listed(diagonal.tuples()) == [((0,), [1, 4]), ((1,), [13, 16])]
    tiled = b.tile(axis=1, size=2)
    assert listed(tiled.tuples())[1] == ((0, 1), [[5, 6], [7, 8]])
    line = tiled.rekey(lambda i, j: 2 * i + j)
    assert [key for key, _ in line.tuples()] == [(0,), (1,), (2,), (3,)]
    check_same(tiled.concat(key_dim=1, axis=1).tuples(), b.tuples())


# --- every operator, against the definitions --------------------------------------------------------------------------


def small_integers(shape: list[int], seed: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-4, 5, shape, generator=generator).to(dtype)


@st.composite
def relations(draw: st.DrawFn, name: str, dtype: torch.dtype = torch.float64) -> joinsum.Relation:
    """A tensor in uneven parts, or a bag of arrays at keys with holes and repeats."""
    seed = draw(st.integers(0, 2**20))
    if draw(st.booleans()):
        shape = draw(st.lists(st.integers(0, 6), max_size=3))
        parts = [draw(st.integers(1, 4)) for _ in shape]
        tensor = small_integers(shape, seed, dtype)
        if draw(st.booleans()):
            tensor = torch.permute(small_integers(shape[::-1], seed, dtype), tuple(range(len(shape)))[::-1])
        return joinsum.relation(tensor, parts=parts, name=name)
    arity = draw(st.integers(0, 2))
    shape = draw(st.lists(st.integers(0, 3), max_size=2))
    keys = draw(st.lists(st.tuples(*[st.integers(0, 3)] * arity), min_size=1, max_size=6))
    tuples = [(key, small_integers(shape, seed + i, dtype)) for i, key in enumerate(keys)]
    return joinsum.relation(tuples, links=draw(st.sampled_from([None, [None] * len(shape)])), name=name)


Operator = Callable[[st.DrawFn, joinsum.Relation, joinsum.Relation], joinsum.Relation]


def dims_below(draw: st.DrawFn, arity: int, count: int | None = None) -> list[int]:
    order = draw(st.permutations(range(arity)))
    return list(order[: draw(st.integers(0, arity)) if count is None else count])


def draw_join(draw: st.DrawFn, x: joinsum.Relation, y: joinsum.Relation) -> joinsum.Relation:
    count = draw(st.integers(0, min(x.type.arity, y.type.arity)))
    on = dims_below(draw, x.type.arity, count), dims_below(draw, y.type.arity, count)
    return x.join(y, on=on, kernel=draw(st.sampled_from(["mul", "add", "sub", "matmul", "contract[ij,kj->ik]", "max"])))


def draw_aggregate(draw: st.DrawFn, x: joinsum.Relation, y: joinsum.Relation) -> joinsum.Relation:
    return x.aggregate(dims_below(draw, x.type.arity), kernel=draw(st.sampled_from(["add", "max", "min"])))


def draw_joined_sum(draw: st.DrawFn, x: joinsum.Relation, y: joinsum.Relation) -> joinsum.Relation:
    joined = draw_join(draw, x, y)
    return joined.aggregate(dims_below(draw, joined.type.arity))


def draw_rekey(draw: st.DrawFn, x: joinsum.Relation, y: joinsum.Relation) -> joinsum.Relation:
    dims = dims_below(draw, x.type.arity)
    divisor, shift = draw(st.integers(1, 3)), draw(st.integers(0, 2))
    return x.rekey(lambda *key: tuple([(key[d] + shift) // divisor for d in dims] + [shift]))


def draw_filter(draw: st.DrawFn, x: joinsum.Relation, y: joinsum.Relation) -> joinsum.Relation:
    divisor, bound = draw(st.integers(1, 3)), draw(st.integers(0, 5))
    return x.filter(lambda *key: (sum(key) % divisor == 0) | joinsum.not_(joinsum.and_(*(k < bound for k in key))))


def draw_transform(draw: st.DrawFn, x: joinsum.Relation, y: joinsum.Relation) -> joinsum.Relation:
    kernels = ["relu", "scale[-3]", "negate", "square", "transpose", "row_sum", "diag", "insert_dim[0]"]
    return x.transform(draw(st.sampled_from(kernels)))


def draw_tile(draw: st.DrawFn, x: joinsum.Relation, y: joinsum.Relation) -> joinsum.Relation:
    assume(x.type.rank > 0)
    return x.tile(draw(st.integers(0, x.type.rank - 1)), draw(st.integers(1, 4)))


def draw_concat(draw: st.DrawFn, x: joinsum.Relation, y: joinsum.Relation) -> joinsum.Relation:
    assume(x.type.rank > 0 and x.type.arity > 0)
    return x.concat(draw(st.integers(0, x.type.arity - 1)), draw(st.integers(0, x.type.rank - 1)))


def draw_upsert(draw: st.DrawFn, x: joinsum.Relation, y: joinsum.Relation) -> joinsum.Relation:
    others = [y, draw_rekey(draw, x, y), draw_filter(draw, x, y).transform("negate")]
    base, updates = draw(st.permutations([x, draw(st.sampled_from(others))]))
    return base.upsert(updates)


OPERATORS: list[Operator] = [
    draw_join,
    draw_aggregate,
    draw_joined_sum,
    draw_rekey,
    draw_filter,
    draw_transform,
    draw_tile,
    draw_concat,
    draw_upsert,
]


@settings(QUICK, max_examples=60)
@given(
    base=st.dictionaries(st.tuples(st.integers(0, 4), st.integers(0, 2)), st.integers(-9, 9), min_size=1),
    updates=st.dictionaries(st.tuples(st.integers(0, 4), st.integers(0, 5)), st.integers(-9, 9), min_size=1),
    sites=st.integers(1, 8),
    place=st.sampled_from([None, "replicated"]),
)
def test_an_upsert_is_the_update_of_a_dict(
    base: dict[tuple[int, int], int], updates: dict[tuple[int, int], int], sites: int, place: str | None
) -> None:
    joinsum.init(sites=sites)
    x, y = (
        joinsum.relation({key: torch.tensor([value]) for key, value in entries.items()}, place=place)
        for entries in (base, updates)
    )
    written = x.upsert(y).tuples()
    assert {key: int(array) for key, array in written} == base | updates
    assert len(written) == len(base | updates)


def test_rows_that_an_upsert_writes_replace_those_of_their_key() -> None:
    joinsum.init(sites=4)
    x = torch.arange(24.0).reshape(8, 3)
    table = joinsum.relation(x, parts=(8, 1), name="table")
    doubled = table.filter(lambda i, j: i % 3 == 1).transform("scale[2]")
    wanted = x.clone()
    wanted[1::3] *= 2
    assert torch.equal(table.upsert(doubled).to_tensor(), wanted)
    assert torch.equal(table.to_tensor(), x)
    # Reversing the keys of a few rows moves them; all others stay where they are.
    moved = table.filter(lambda i, j: i < 2).rekey(lambda i, j: (7 - i, j))
    wanted = x.clone()
    wanted[[7, 6]] = x[[0, 1]]
    assert torch.equal(table.upsert(moved).to_tensor(), wanted)


def test_an_upsert_of_what_does_not_fit_is_refused() -> None:
    joinsum.init(sites=2)
    x = joinsum.relation(torch.ones(4), parts=4)
    with pytest.raises(joinsum.PlanError, match=r"upsert: updates are a joinsum.Relation: got=Tensor"):
        x.upsert(torch.ones(4))  # type: ignore[arg-type]
    with pytest.raises(joinsum.PlanError, match="upsert: operands have different dtypes: base=f32, updates=f64"):
        x.upsert(joinsum.relation(torch.ones(4, dtype=torch.float64), parts=4))
    with pytest.raises(
        joinsum.PlanError, match="upsert: operands have keys of different arity, or arrays of different"
    ):
        x.upsert(joinsum.relation(torch.ones(4, 4), parts=(4, 1)))
    with pytest.raises(joinsum.PlanError, match="upsert: extents of an axis must depend on one key"):
        joinsum.relation({(i, j): torch.ones(2) for i in range(2) for j in range(2)}).upsert(
            joinsum.relation({(0, 0): torch.ones(3)})
        )


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.__name__[5:])
@settings(QUICK, max_examples=60)
@given(data=st.data(), sites=st.integers(1, 8))
def test_each_operator_means_what_its_definition_says(operator: Operator, data: st.DataObject, sites: int) -> None:
    joinsum.init(sites=sites)
    x, y = data.draw(relations("X")), data.draw(relations("Y"))
    try:
        result = operator(data.draw, x, y)
    except (joinsum.PlanError, joinsum.KernelError):
        assume(False)
        return
    plan = result.plan()
    wanted = joinsum.interpret(plan, {name: leaf for name, leaf in (("X", x), ("Y", y)) if name in plan.inputs})
    check_same(result.tuples(), wanted["out"])
    assert len(joinsum.trace()) > 0


@settings(QUICK, max_examples=150)
@given(data=st.data(), sites=st.integers(1, 8), steps=st.integers(2, 5))
def test_chains_of_operators_mean_what_their_definitions_say(data: st.DataObject, sites: int, steps: int) -> None:
    joinsum.init(sites=sites)
    x, y = data.draw(relations("X")), data.draw(relations("Y"))
    pool = [x, y]
    for _ in range(steps):
        operator = data.draw(st.sampled_from(OPERATORS))
        left, right = data.draw(st.sampled_from(pool)), data.draw(st.sampled_from(pool))
        if left.type.tuples > 60 or right.type.tuples > 60:
            continue
        try:
            pool.append(operator(data.draw, left, right))
        except (joinsum.PlanError, joinsum.KernelError):
            continue
    result = pool[-1]
    plan = result.plan()
    wanted = joinsum.interpret(plan, {name: leaf for name, leaf in (("X", x), ("Y", y)) if name in plan.inputs})
    check_same(result.tuples(), wanted["out"])
    lowered = result.lower()
    placed = joinsum.interpret(lowered, {name: leaf for name, leaf in (("X", x), ("Y", y)) if name in plan.inputs})
    check_same(result.tuples(), placed["out"])


# --- against torch ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sites", [1, 2, 3, 4, 6, 8])
def test_a_matrix_product_is_torchs(dtype: torch.dtype, sites: int) -> None:
    joinsum.init(sites=sites)
    x, y = small_integers([7, 5], 1, dtype), small_integers([5, 6], 2, dtype)
    if dtype.is_complex:
        x, y = x * (1 + 2j), y * (2 - 1j)
    left, right = joinsum.relation(x, parts=(3, 2)), joinsum.relation(y, parts=(2, 4))
    product = left.join(right, on=([1], [0]), kernel="matmul").aggregate(keep=[0, 2])
    assert product.to_tensor().dtype is dtype
    assert torch.equal(product.to_tensor(), x @ y)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sites", [1, 3, 4])
def test_sums_differences_and_products_are_torchs(dtype: torch.dtype, sites: int) -> None:
    joinsum.init(sites=sites)
    x, y = small_integers([7, 5], 1, dtype), small_integers([7, 5], 2, dtype)
    left, right = joinsum.relation(x, parts=(3, 2)), joinsum.relation(y, parts=(3, 2))
    both = ([0, 1], [0, 1])
    assert torch.equal(left.join(right, on=both, kernel="mul").to_tensor(), x * y)
    assert torch.equal(left.join(right, on=both, kernel="sub").to_tensor(), x - y)
    assert torch.equal(left.join(right, on=([0, 1], [0, 1]), kernel="add").transform("negate").to_tensor(), -(x + y))
    split = joinsum.relation(x[:6], parts=(3, 1)).aggregate(keep=[1])
    assert torch.equal(split.to_tensor(), x[:2] + x[2:4] + x[4:6])


def test_floats_are_close_to_torchs() -> None:
    joinsum.init(sites=4)
    x, w = torch.randn(33, 20), torch.randn(20, 17)
    left, right = joinsum.relation(x, parts=(4, 3)), joinsum.relation(w, parts=(3, 2))
    out = left.join(right, on=([1], [0]), kernel="matmul").aggregate(keep=[0, 2]).transform("sigmoid").to_tensor()
    torch.testing.assert_close(out, torch.sigmoid(x @ w))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (1, 1), (1, 5)])
@pytest.mark.parametrize("sites", [1, 2, 8])
def test_empty_and_single_axes_give_what_torch_gives(shape: tuple[int, int], sites: int) -> None:
    joinsum.init(sites=sites)
    x = small_integers(list(shape), 3)
    y = small_integers([shape[1], 4], 4)
    left, right = joinsum.relation(x, parts=(2, 3)), joinsum.relation(y, parts=(3, 2))
    product = left.join(right, on=([1], [0]), kernel="matmul").aggregate(keep=[0, 2])
    assert torch.equal(product.to_tensor(), x @ y)


@pytest.mark.parametrize("sites", [1, 4])
def test_inputs_of_any_stride_are_read_as_they_are(sites: int) -> None:
    joinsum.init(sites=sites)
    base = small_integers([8, 10], 5)
    views = [base.T, base[::2, 1::3], base.flip(0), base[3:4].expand(6, 10), base.unfold(0, 3, 2).select(1, 0)]
    for view in views:
        assert torch.equal(joinsum.relation(view, parts=(3, 2)).to_tensor(), view)
    conjugated = torch.randn(4, 4, dtype=torch.complex64).conj()
    assert torch.equal(joinsum.relation(conjugated, parts=(2, 2)).to_tensor(), conjugated)


# --- what goes in and comes out ---------------------------------------------------------------------------------------


def test_parts_default_to_one_and_an_int_cuts_one_axis() -> None:
    assert str(joinsum.relation(torch.ones(10, 6)).type) == "f32[10,6]<1,1>"
    assert str(joinsum.relation(torch.ones(10), parts=4).type) == "f32[10]<4>"
    assert str(joinsum.relation(torch.tensor(2.0)).type) == "f32[]<>"
    assert str(joinsum.relation(torch.ones(3), parts=7).type) == "f32[3]<3>"


def test_tuples_may_repeat_keys_and_leave_holes() -> None:
    bag = joinsum.relation([((2, 0), torch.ones(1)), ((0, 1), torch.zeros(1)), ((2, 0), torch.full((1,), 3.0))])
    assert listed(bag.tuples()) == [((0, 1), [0.0]), ((2, 0), [1.0]), ((2, 0), [3.0])]
    assert not bag.type.unique
    assert not bag.type.continuous
    assert listed(bag.aggregate(keep=[1]).tuples()) == [((0,), [4.0]), ((1,), [0.0])]


def test_a_result_shares_no_memory_with_its_source() -> None:
    x = torch.zeros(4)
    lazy = joinsum.relation(x, parts=2)
    lazy.to_tensor().add_(1)
    for _, array in lazy.tuples():
        array.add_(1)
    assert torch.equal(x, torch.zeros(4))
    assert torch.equal(lazy.to_tensor(), torch.zeros(4))


def test_a_result_is_computed_once() -> None:
    x = joinsum.relation(torch.ones(4), parts=2).transform("relu")
    assert x.stored() is x.stored()
    x.tuples()
    before = joinsum.trace()
    x.to_tensor()
    assert joinsum.trace() is before


def test_a_new_context_computes_again() -> None:
    x = joinsum.relation(torch.arange(4.0), parts=2).transform("negate")
    first = x.stored()
    joinsum.init(sites=2)
    assert x.stored() is not first
    assert torch.equal(x.to_tensor(), -torch.arange(4.0))


def test_links_say_which_key_dimension_counts_an_axis() -> None:
    tiles = {(i, j): torch.full((1, 2), 2.0 * i + j) for i in range(2) for j in range(2)}
    swapped = joinsum.relation(tiles, links=[1, 0])
    assert swapped.to_tensor().tolist() == [[0, 0, 2, 2], [1, 1, 3, 3]]
    unlinked = joinsum.relation(tiles, links=[None, None])
    with pytest.raises(joinsum.PlanError, match="to_tensor: key dimension does not count the parts of one axis"):
        unlinked.to_tensor()
    assert unlinked.to_tensor(links=[0, 1]).tolist() == [[0, 0, 1, 1], [2, 2, 3, 3]]


@pytest.mark.parametrize(
    ("place", "printed"),
    [
        (None, "(0, 1, 0)"),
        ("replicated", "(*, *, *)"),
        ("(1, *, 0)", "(1, *, 0)"),
        ([0, 0, "*"], "(0, 0, *)"),
    ],
)
def test_a_relation_starts_where_its_place_says(place: object, printed: str) -> None:
    joinsum.init(sites=8)
    x = torch.arange(12.0).reshape(4, 3)
    stored = joinsum.relation(x, parts=(4, 3), place=place).stored()
    assert str(stored.type) == f"f32[4,3]<4,3> on 2x2x2 {printed}"
    assert torch.equal(stored.to_tensor(), x)


def test_a_stored_relation_moves_and_starts_another_plan_where_it_is() -> None:
    joinsum.init(sites=4)
    x = torch.arange(16.0).reshape(4, 4)
    rows = joinsum.relation(x, parts=(4, 4)).stored().move([0, "*"])
    again = joinsum.relation(rows, name="R").transform("negate")
    assert "input R: f32[4,4]<4,4> on 2x2 (0, *)" in again.lower().text
    assert torch.equal(again.to_tensor(), -x)
    scattered = joinsum.relation(x, parts=(4, 4)).rekey(lambda i, j: i + j).stored()
    assert scattered.type.placement.scattered
    assert len(joinsum.relation(scattered.move("(0, 0)")).tuples()) == 16


def test_a_chain_of_ten_thousand_operators_runs_and_is_freed() -> None:
    x = joinsum.relation(torch.zeros(2), parts=2)
    one = joinsum.relation(torch.ones(2), parts=2)
    for _ in range(10_000):
        x = x.join(one, on=([0], [0]), kernel="add")
    assert x.to_tensor().tolist() == [10_000, 10_000]
    del x
    gc.collect()


def test_blocks_are_freed_with_their_relations() -> None:
    joinsum.init(sites=2)
    x = joinsum.relation(torch.ones(1000), parts=2).transform("negate")
    x.tuples()
    assert joinsum.context().bytes >= 4000
    del x
    gc.collect()
    assert joinsum.context().bytes == 0


def test_relations_and_plans_print_themselves() -> None:
    x = joinsum.relation(torch.ones(4, 4), parts=(2, 2), name="X")
    assert repr(x) == "<Relation f32[4,4]<2,2> from X>"
    assert repr(x.filter(lambda i, j: i <= j)) == "<Relation f32[4,4]<2,2> hole<1,0> = filter[k0 <= k1]>"
    assert repr(x.stored()) == "<StoredRelation f32[4,4]<2,2> on 1 ()>"
    assert "local_aggregate[0; add]" in str(x.aggregate(keep=[0]).explain())
