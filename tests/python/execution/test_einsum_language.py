"""What joinsum.einsum says beyond torch.einsum: expressions, positions of extremes, words as labels, new labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import joinsum
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from joinsum import Graph, KernelError, PlanError

SITES = [1, 2, 3, 4]
F64 = torch.float64


@pytest.fixture(params=SITES)
def sites(request: pytest.FixtureRequest) -> Iterator[int]:
    joinsum.init(sites=request.param)
    yield request.param
    joinsum.init()


def positive(*shape: int) -> torch.Tensor:
    return torch.rand(shape, dtype=F64) + 0.5


def same_with_gradients(
    function: Callable[..., torch.Tensor], wanted: Callable[..., torch.Tensor], *operands: torch.Tensor
) -> None:
    """Values, gradients and second derivatives are equal."""
    results = []
    for each in (function, wanted):
        leaves = [x.detach().clone().requires_grad_() for x in operands]
        value = each(*leaves)
        weights = torch.linspace(0.5, 1.5, value.numel(), dtype=F64).reshape(value.shape)
        slopes = torch.autograd.grad(value, leaves, weights, create_graph=True)
        total = sum((slope * slope).sum() for slope in slopes)
        assert isinstance(total, torch.Tensor)
        seconds = torch.autograd.grad(total, leaves, allow_unused=True) if total.requires_grad else [None] * len(leaves)
        filled = [torch.zeros_like(x) if second is None else second for x, second in zip(leaves, seconds, strict=True)]
        results.append([value, *slopes, *filled])
    for got, right in zip(*results, strict=True):
        torch.testing.assert_close(got, right, rtol=1e-10, atol=1e-10)


# --- expressions ------------------------------------------------------------------------------------------------------

EXPRESSIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "exp(x - y) * 2": lambda x, y: torch.exp(x - y) * 2,
    "x * y + tanh(x)": lambda x, y: x * y + torch.tanh(x),
    "sigmoid(x / y) - 0.5": lambda x, y: torch.sigmoid(x / y) - 0.5,
    "where(x < y, sqrt(x), log(y))": lambda x, y: torch.where(x < y, torch.sqrt(x), torch.log(y)),
    "pow(x, y) - pow(y, 3)": lambda x, y: torch.pow(x, y) - torch.pow(y, 3),
    "x0 - -x1": lambda x, y: x + y,
    "(x > 1) * y": lambda x, y: (x > 1) * y + 0 * x,
}


@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize("agg", ["sum", "max", "logsumexp"])
def test_an_expression_has_its_value_and_derivatives(sites: int, expression: str, agg: str) -> None:
    reduce: Callable[..., torch.Tensor] = {"sum": torch.sum, "max": torch.amax, "logsumexp": torch.logsumexp}[agg]
    torch.manual_seed(1)
    x, y = positive(5, 3), positive(3, 4)

    def wanted(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return reduce(EXPRESSIONS[expression](x[:, :, None], y[None]), (1,))

    same_with_gradients(lambda x, y: joinsum.einsum("ij,jk->ik", x, y, join=expression, agg=agg), wanted, x, y)


def test_an_expression_of_three_operands_reads_them_at_once(sites: int) -> None:
    torch.manual_seed(2)
    x, y, z = positive(4, 3), positive(3, 5), positive(5)
    same_with_gradients(
        lambda x, y, z: joinsum.einsum("ij,jk,k->ik", x, y, z, join="where(x0 < x1, exp(x2 - x0), x1 * x2)"),
        lambda x, y, z: torch.where(x[:, :, None] < y, torch.exp(z - x[:, :, None]), y * z).sum(1),
        x,
        y,
        z,
    )


def test_an_expression_of_one_operand_is_a_map(sites: int) -> None:
    x = positive(4, 3)
    same_with_gradients(lambda x: joinsum.einsum("ij->j", x, join="x * log(x)"), lambda x: (x * torch.log(x)).sum(0), x)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float32, torch.bfloat16, torch.complex128])
def test_an_expression_keeps_the_dtype(sites: int, dtype: torch.dtype) -> None:
    x, y = torch.arange(6).reshape(2, 3).to(dtype), torch.arange(12).reshape(3, 4).to(dtype)
    value = joinsum.einsum("ij,jk->ik", x, y, join="x * 2 - y")
    assert isinstance(value, torch.Tensor)
    assert value.dtype == dtype
    assert torch.equal(value, (x[:, :, None] * 2 - y).sum(1, dtype=dtype))


def test_any_and_all_take_expressions(sites: int) -> None:
    x, y = torch.randn(5, 3), torch.randn(3, 4)
    got = joinsum.einsum("ij,jk->ik", x, y, join="x < y", agg="any")
    assert torch.equal(got, (x[:, :, None] < y).any(1))


def test_an_expression_that_is_aggregated_never_forms_the_joined_tensor() -> None:
    joinsum.init(sites=1)
    plan = Graph.parse(
        "einsum\ninput x: f32[512,512]\ninput y: f32[512,512]\n"
        "output z = einsum[ij,jk->ik; expression[2, exp(x0-x1)*2]; add](x, y)"
    ).lower(sites=1)
    assert "expression_add[ab,bc->ac:exp(x0-x1)*2]" in str(plan)
    assert joinsum.parse(str(plan)) == plan
    x, y = torch.rand(512, 512), torch.rand(512, 512)
    peak = _peak_bytes(lambda: joinsum.einsum("ij,jk->ik", x, y, join="exp(x - y) * 2"))
    # The joined tensor has 512 MiB.
    assert peak < 64 << 20


def _peak_bytes(work: Callable[[], object]) -> int:
    """The most that torch's allocator held at once beyond what it held before."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        work()
    held = most = 0
    for event in profile.profiler.kineto_results.events():  # type: ignore[union-attr]
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    assert most > 0
    return most


def test_wrong_expressions_are_named_with_their_place(sites: int) -> None:
    x = torch.rand(2, 3)
    with pytest.raises(PlanError, match=r"no such operand: name=y, operands=1\n  x - y\n      \^"):
        joinsum.einsum("ij->i", x, join="x - y")
    with pytest.raises(KernelError, match="not defined on this dtype; cast the operand: function=exp, dtype=i64"):
        joinsum.einsum("ij->i", torch.ones(2, 3, dtype=torch.int64), join="exp(x) + 1")


# --- positions of extremes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("agg", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.float64])
def test_positions_of_extremes_are_torchs(sites: int, agg: str, dtype: torch.dtype) -> None:
    find = {"argmax": torch.argmax, "argmin": torch.argmin}[agg]
    torch.manual_seed(3)
    x = torch.randint(-3, 4, (5, 7, 4)).to(dtype)
    ties_first = [(x == x.amax((0, 1, 2))), (x == x.amin((0, 1, 2)))][agg == "argmin"].flatten().int().argmax()
    assert torch.equal(joinsum.einsum("ijk->", x, agg=agg), ties_first)
    distinct = torch.randperm(5 * 7 * 4).reshape(5, 7, 4).to(dtype)
    assert torch.equal(joinsum.einsum("ijk->ik", distinct, agg=agg), find(distinct, dim=1))
    flat = find(distinct.permute(1, 0, 2).reshape(7, 20), dim=1)
    got = joinsum.einsum("ijk->j", distinct, agg=agg)
    assert isinstance(got, torch.Tensor)
    assert torch.equal(got, flat)
    assert got.dtype == torch.int64
    assert torch.equal(joinsum.einsum("ijk->kj", distinct, agg=agg), find(distinct, dim=0).T)


def test_the_nearest_neighbour_is_a_position(sites: int) -> None:
    torch.manual_seed(4)
    x, y = torch.randn(6, 3, dtype=F64), torch.randn(9, 3, dtype=F64)
    distances = joinsum.einsum("id,jd->ij", x, y, join="squared_difference")
    got = joinsum.einsum("ij->i", distances, agg="argmin")
    assert torch.equal(got, torch.cdist(x, y).argmin(1))
    one = joinsum.einsum("i,j->i", x[:, 0], y[:, 0], join="abs_difference", agg="argmin")
    assert torch.equal(one, (x[:, 0, None] - y[:, 0]).abs().argmin(1))


def test_what_is_not_a_number_is_the_extreme(sites: int) -> None:
    x = torch.tensor([[1.0, float("nan"), 3.0, float("nan")], [1.0, float("-inf"), float("inf"), 2.0]])
    for agg, find in (("argmax", torch.argmax), ("argmin", torch.argmin)):
        assert torch.equal(joinsum.einsum("ij->i", x, agg=agg), find(x, dim=1))


def test_positions_have_no_gradient_and_need_elements(sites: int) -> None:
    x = torch.rand(3, 4, requires_grad=True)
    got = joinsum.einsum("ij->i", x, agg="argmax")
    assert isinstance(got, torch.Tensor)
    assert not got.requires_grad
    with pytest.raises(PlanError, match="no position among no elements"):
        joinsum.einsum("ij->i", torch.rand(3, 0), agg="argmax")
    with pytest.raises(PlanError, match="argmax aggregates one label at least"):
        joinsum.einsum("ij->ji", torch.rand(3, 2), agg="argmax")


# --- labels -----------------------------------------------------------------------------------------------------------


def test_words_are_labels(sites: int) -> None:
    x, y = torch.rand(2, 3, dtype=F64), torch.rand(3, 4, dtype=F64)
    wanted = x @ y
    for arguments in [
        (x, ["row", "mid"], y, ["mid", "out"], ["row", "out"]),
        (x, ["row", "mid"], y, ["mid", "s"], ["row", "s"]),
        ("{row}{mid},{mid}k->{row}k", x, y),
        ("{row}{mid},{mid}{out}->{row}{out}", x, y),
    ]:
        torch.testing.assert_close(joinsum.einsum(*arguments), wanted)
    torch.testing.assert_close(joinsum.einsum(x, ["b", "word"], y, ["word", "Z"]), wanted.T)
    with pytest.raises(PlanError, match=r"label=mid, operand 0=3, operand 1=4\n  \{row\}\{mid\},\{mid\}\{out\}"):
        joinsum.einsum(x, ["row", "mid"], y.T, ["mid", "out"])
    with pytest.raises(PlanError, match=r"a label of a list is text, 0 to 51, or \.\.\."):
        joinsum.einsum(x, [1.5, "mid"])


def test_labels_that_only_the_result_has_repeat(sites: int) -> None:
    torch.manual_seed(5)
    x = torch.rand(3, 2, dtype=F64)
    same_with_gradients(
        lambda x: joinsum.einsum("ij->kij", x, extents={"k": 4}), lambda x: x.expand(4, 3, 2).clone(), x
    )
    same_with_gradients(
        lambda x: joinsum.einsum(x, ["i", "j"], ["i", "new"], extents={"new": 5}, agg="max"),
        lambda x: x.amax(1)[:, None].expand(3, 5).clone(),
        x,
    )
    with pytest.raises(PlanError, match=r"extents of a label differ: label=j, operand 0=2, given=3"):
        joinsum.einsum("ij->ij", x, extents={"j": 3})
    with pytest.raises(PlanError, match="extents are numbers by label"):
        joinsum.einsum("ij->ijk", x, extents=[5])  # type: ignore[arg-type]


# --- derivatives ------------------------------------------------------------------------------------------------------


def test_ties_share_as_torchs_amax(sites: int) -> None:
    x = torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]], dtype=F64)
    for agg, reduce in (("max", torch.amax), ("min", torch.amin)):
        same_with_gradients(lambda x, a=agg: joinsum.einsum("ij->i", x, agg=a), lambda x, f=reduce: f(x, (1,)), x)
    y = torch.tensor([1.0, 3.0, 2.0], dtype=F64)
    same_with_gradients(
        lambda x, y: joinsum.einsum("ij,j->ij", x, y, join="max"), lambda x, y: torch.maximum(x, y), x, y
    )


@pytest.mark.parametrize("join", ["max", "min"])
def test_gradients_of_extremes_with_what_is_not_a_number_are_torchs(sites: int, join: str) -> None:
    x = torch.tensor([[1.0, float("nan"), 2.0, 3.0]], dtype=F64).expand(3, 4)
    y = torch.tensor([[2.0, 1.0, float("nan"), 3.0]], dtype=F64).expand(5, 4)
    of_torch = {"max": torch.maximum, "min": torch.minimum}[join]
    weights = torch.arange(15.0, dtype=F64).reshape(3, 5)
    found = []
    for f in (lambda x, y: joinsum.einsum("ij,kj->ik", x, y, join=join), lambda x, y: of_torch(x[:, None], y).sum(-1)):
        leaves = (x.clone().requires_grad_(), y.clone().requires_grad_())
        found.append(torch.autograd.grad(f(*leaves), leaves, weights))
    torch.testing.assert_close(*found)
    assert all(bool((each[:, 1] != 0).any()) for each in found[0])  # what is not a number passes it on, and its partner


@pytest.mark.parametrize("agg", ["any", "all"])
def test_truth_of_complex_numbers_is_torchs(sites: int, agg: str) -> None:
    x = torch.tensor([[0, 1j, 0], [0, 0, 0], [1, 1j, 2 - 1j]], dtype=torch.complex128)
    reduce = {"any": torch.any, "all": torch.all}[agg]
    assert torch.equal(joinsum.einsum("ij->i", x, agg=agg), reduce(x, 1))
    wanted = reduce(x[:, :, None] * x[None], 1)
    assert torch.equal(joinsum.einsum("ij,jk->ik", x, x, agg=agg), wanted)


JOINED: dict[str, Callable[..., torch.Tensor]] = {"add": torch.add, "min": torch.minimum, "max": torch.maximum}


@pytest.mark.parametrize("agg", ["max", "min"])
@pytest.mark.parametrize("join", sorted(JOINED))
@pytest.mark.parametrize(
    ("equation", "axes"),
    [("ij,jk,kl->il", (1, 2)), ("ij,jk,kl->", (0, 1, 2, 3)), ("ij,kj,lj->i", (1, 2, 3)), ("ij,k,kl->jl", (0, 2))],
)
def test_ties_of_three_operands_share_as_torchs_amax(
    sites: int, equation: str, axes: tuple[int, ...], join: str, agg: str
) -> None:
    """Zeros and ones: nearly all joined elements tie. Squared, so that the second derivative is not zero."""
    torch.manual_seed(3)
    extents = {"i": 3, "j": 4, "k": 2, "l": 3}
    labels = equation.split("->")[0].split(",")
    operands = [torch.randint(0, 2, [extents[c] for c in each]).to(F64) for each in labels]
    reduce = {"max": torch.amax, "min": torch.amin}[agg]

    def of_torch(*tensors: torch.Tensor) -> torch.Tensor:
        spread = [torch.einsum(f"{own}->{''.join(sorted(own))}", x) for own, x in zip(labels, tensors, strict=True)]
        wide = [
            x.reshape([extents[c] if c in own else 1 for c in "ijkl"]) for own, x in zip(labels, spread, strict=True)
        ]
        return reduce(JOINED[join](JOINED[join](wide[0], wide[1]), wide[2]), axes) ** 2

    def of_joinsum(*tensors: torch.Tensor) -> torch.Tensor:
        return joinsum.einsum(equation, *tensors, join=join, agg=agg) ** 2

    same_with_gradients(of_joinsum, of_torch, *operands)


@pytest.mark.parametrize("path", [[(0, 1), (0, 1)], [(1, 2), (0, 1)], [(0, 2), (0, 1)]])
def test_ties_share_alike_in_every_order(path: list[tuple[int, int]]) -> None:
    plan = joinsum.Graph.parse(
        "einsum\ninput X: f64[3,4]\ninput Y: f64[4,2]\ninput W: f64[2,3]\n"
        "output Z = einsum[ij,jk,kl->il; add; max](X, Y, W)"
    )
    torch.manual_seed(4)
    x, y, w = (torch.randint(0, 2, shape).to(F64).requires_grad_() for shape in [(3, 4), (4, 2), (2, 3)])
    d = torch.rand(3, 3, dtype=F64)
    joined = x[:, :, None, None] + y[None, :, :, None] + w[None, None]
    wanted = torch.autograd.grad(joined.amax((1, 2)), (x, y, w), d)
    slopes = joinsum.Graph.of_core(plan.core.gradient(["X", "Y", "W"], {"t0": path}))
    got = slopes.interpret({"X": x, "Y": y, "W": w, "d_Z": d})
    torch.testing.assert_close([got["d_X"], got["d_Y"], got["d_W"]], list(wanted))


def test_integers_between_input_and_result_stop_the_gradient_as_torchs(sites: int) -> None:
    x = torch.tensor([0.5, 1.5, -2.5], dtype=F64, requires_grad=True)
    whole = joinsum.einsum("i->i", x, join="cast[i64] | cast[f64]")
    assert torch.equal(whole, x.long().double())
    assert not whole.requires_grad
    g = joinsum.Graph()
    value = g.input("X", (3,), F64)
    floor = g.einsum("i->i", g.einsum("i->i", value, join="cast[i64]"), join="cast[f64]")
    g.output("floor", floor)
    g.output("scaled", g.einsum("i,i->i", value, floor))
    results = g.plan()(X=x)
    assert not results["floor"].requires_grad
    (slope,) = torch.autograd.grad(results["scaled"].sum(), x)
    assert torch.equal(slope, x.detach().long().double())
    tangent = torch.func.jvp(lambda x: joinsum.einsum("i->i", x, join="cast[i64] | cast[f64]") + x, (x,), (x,))[1]
    assert torch.equal(tangent, x.detach())


def test_logsumexp_of_rows_without_a_finite_element_is_torchs(sites: int) -> None:
    inf = float("inf")
    x = torch.tensor([[0.5, -inf, 2.0], [-inf, -inf, -inf], [-inf, 1.0, -inf]], dtype=F64)
    results = []
    for function in (lambda x: joinsum.einsum("ij->i", x, agg="logsumexp"), lambda x: torch.logsumexp(x, 1)):
        leaf = x.clone().requires_grad_()
        value = function(leaf)
        (slope,) = torch.autograd.grad(value, leaf, torch.tensor([1.0, 2.0, 3.0], dtype=F64))
        results.append((value.detach(), slope))
    torch.testing.assert_close(results[0], results[1], rtol=1e-12, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize(("agg", "reduce"), [("min", torch.amin), ("max", torch.amax), ("logsumexp", torch.logsumexp)])
@pytest.mark.parametrize("sign", [1, -1])
def test_infinities_of_both_signs_meet_in_sums_of_three(
    agg: str, reduce: Callable[..., torch.Tensor], sign: int
) -> None:
    inf = sign * float("inf")
    x = torch.tensor([-inf, 1.0, 2.0], dtype=F64)
    y = torch.tensor([[inf, 1.0, 2.0], [3.0, inf, 5.0], [1.0, 2.0, 3.0]], dtype=F64)
    z = torch.tensor([4.0, 5.0, float("nan")], dtype=F64)[:2]
    joined = x[:, None, None] + y[:, :, None] + z
    wanted = reduce(joined, dim=(1, 2))
    assert wanted.isnan().any()
    for sites in (1, 3):
        joinsum.init(sites=sites)
        call = joinsum.einsum_plan("i,ij,k->i", x.shape, y.shape, z.shape, join="add", agg=agg, dtype=F64)
        for got in (joinsum.einsum("i,ij,k->i", x, y, z, join="add", agg=agg), call(x, y, z)):
            torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12, equal_nan=True)
        with_nan = torch.cat([z, torch.full((1,), float("nan"), dtype=F64)])
        assert joinsum.einsum("i,ij,k->i", x, y, with_nan, join="add", agg=agg).isnan().all()


OPERATIONS: list[tuple[str, Callable[..., torch.Tensor]]] = [
    ("mul", torch.mul),
    ("add", torch.add),
    ("sub", torch.sub),
    ("div", torch.div),
    ("max", torch.maximum),
    ("squared_difference", lambda x, y: (x - y) ** 2),
    ("tanh(x) * y", lambda x, y: torch.tanh(x) * y),
    ("where(x < y, x * x, y)", lambda x, y: torch.where(x < y, x * x, y)),
]
REDUCTIONS: list[tuple[str, Callable[..., torch.Tensor]]] = [
    ("sum", torch.sum),
    ("max", torch.amax),
    ("min", torch.amin),
    ("logsumexp", torch.logsumexp),
]


def _spread(x: torch.Tensor, labels: str, order: str) -> torch.Tensor:
    """With an axis for each label of `order`, of extent 1 for those that it lacks."""
    remaining = [label for label in order if label in labels]
    x = x.permute([labels.index(label) for label in remaining])
    return x.reshape([x.shape[remaining.index(label)] if label in remaining else 1 for label in order])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_graphs_have_torchs_first_and_second_derivatives(data: st.DataObject) -> None:
    extents = {label: data.draw(st.integers(1, 4)) for label in "ijk"}
    joinsum.init(sites=data.draw(st.sampled_from(SITES)))
    subsets = st.lists(st.sampled_from("ijk"), min_size=1, max_size=3, unique=True).map("".join)
    shapes = [data.draw(subsets) for _ in range(3)]
    torch.manual_seed(data.draw(st.integers(0, 1000)))
    operands = [positive(*(extents[label] for label in labels)) for labels in shapes]
    steps = []
    now = shapes[0]
    for labels in shapes[1:]:
        every = "".join(dict.fromkeys(now + labels))
        result = data.draw(st.lists(st.sampled_from(every), max_size=3, unique=True).map("".join))
        steps.append(
            (now, labels, result, data.draw(st.sampled_from(OPERATIONS)), data.draw(st.sampled_from(REDUCTIONS)))
        )
        now = result

    def ours(*xs: torch.Tensor) -> torch.Tensor:
        value = xs[0]
        for (left, right, result, (join, _), (agg, _)), x in zip(steps, xs[1:], strict=True):
            aggregated = joinsum.einsum(f"{left},{right}->{result}", value, x, join=join, agg=agg)
            assert isinstance(aggregated, torch.Tensor)
            value = aggregated
        return value

    def torchs(*xs: torch.Tensor) -> torch.Tensor:
        value = xs[0]
        for (left, right, result, (_, join), (_, reduce)), x in zip(steps, xs[1:], strict=True):
            every = "".join(dict.fromkeys(left + right))
            order = result + "".join(label for label in every if label not in result)
            joined = join(_spread(value, left, order), _spread(x, right, order))
            joined = joined.expand([extents[label] for label in order])
            gone = tuple(range(len(result), len(order)))
            value = reduce(joined, gone) if gone else joined
        return value

    same_with_gradients(ours, torchs, *operands)
    joinsum.init()
