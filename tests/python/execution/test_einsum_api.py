"""joinsum.einsum as part of torch: functional transforms, out=, subclasses, devices; against torch itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any, ClassVar

import joinsum
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from joinsum import _C, PlanError
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

SITES = [1, 2, 3]
Function = Callable[..., torch.Tensor]


@pytest.fixture(params=SITES)
def sites(request: pytest.FixtureRequest) -> Iterator[int]:
    joinsum.init(sites=request.param)
    yield request.param
    joinsum.init()


def close(x: Any, y: Any) -> None:
    torch.testing.assert_close(x, y, rtol=1e-10, atol=1e-10)


# --- functional transforms --------------------------------------------------------------------------------------------


def product(einsum: Function) -> Function:
    """Something smooth of a product; `einsum` is torch's or joinsum's."""
    return lambda x, y: einsum("ij,jk->ik", x, y).sin().sum(0)


TRANSFORMS: dict[str, Callable[[Function, torch.Tensor, torch.Tensor], Any]] = {
    "grad": lambda f, x, y: torch.func.grad(lambda x, y: f(x, y).sum(), (0, 1))(x, y),
    "vjp": lambda f, x, y: torch.func.vjp(f, x, y)[1](torch.ones(y.shape[1], dtype=x.dtype)),
    "jvp": lambda f, x, y: torch.func.jvp(f, (x, y), (x.cos(), y.cos())),
    "jvp of one": lambda f, x, y: torch.func.jvp(lambda x: f(x, y), (x,), (x.cos(),)),
    "jacrev": lambda f, x, y: torch.func.jacrev(f, (0, 1))(x, y),
    "jacfwd": lambda f, x, y: torch.func.jacfwd(f, (0, 1))(x, y),
    "hessian": lambda f, x, y: torch.func.hessian(lambda x: f(x, y).sum())(x),
    "grad of grad": lambda f, x, y: torch.func.grad(lambda x: torch.func.grad(lambda x: f(x, y).sum())(x).sin().sum())(
        x
    ),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_functional_transforms_are_torchs(sites: int, name: str) -> None:
    x, y = torch.rand(3, 2, dtype=torch.float64), torch.rand(2, 4, dtype=torch.float64)
    close(TRANSFORMS[name](product(joinsum.einsum), x, y), TRANSFORMS[name](product(torch.einsum), x, y))


@pytest.mark.parametrize("name", ["grad", "vjp", "jvp", "jacrev", "jacfwd", "hessian"])
def test_transforms_of_other_operations_are_those_of_their_definition(sites: int, name: str) -> None:
    def distances(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = joinsum.einsum("ij,jk->ik", x, y, join="squared_difference", agg="logsumexp")
        assert isinstance(out, torch.Tensor)
        return out.sum(0)

    def wanted(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.logsumexp((x[:, :, None] - y[None]) ** 2, 1).sum(0)

    x, y = torch.rand(3, 2, dtype=torch.float64), torch.rand(2, 4, dtype=torch.float64)
    close(TRANSFORMS[name](distances, x, y), TRANSFORMS[name](wanted, x, y))


BATCHED = [("ij,jk->ik", (3, 2), (2, 4)), ("ii,i->i", (3, 3), (3,)), ("ij,ij->", (2, 3), (2, 3)), ("i,j", (2,), (3,))]


@given(
    case=st.sampled_from(BATCHED),
    dims=st.sampled_from([(0, 0), (0, None), (None, 0), (-1, 0), (1, None)]),
    agg=st.sampled_from(["sum", "max", "logsumexp"]),
    count=st.integers(1, 3),
    seed=st.integers(0, 9),
)
@settings(max_examples=60, deadline=None)
def test_vmap_is_the_calls_of_each_sample_stacked(
    case: tuple[str, Any, Any], dims: tuple[int | None, int | None], agg: str, count: int, seed: int
) -> None:
    joinsum.init(sites=count)
    equation, *shapes = case
    generator = torch.Generator().manual_seed(seed)
    operands = []
    for shape, dim in zip(shapes, dims, strict=True):
        samples = torch.rand(*([5] if dim is not None else []), *shape, generator=generator, dtype=torch.float64)
        operands.append(samples if dim is None else samples.movedim(0, dim))
    got = torch.func.vmap(lambda x, y: joinsum.einsum(equation, x, y, agg=agg), in_dims=dims)(*operands)
    rows = [[x if dim is None else x.select(dim, i) for x, dim in zip(operands, dims, strict=True)] for i in range(5)]
    close(got, torch.stack([joinsum.einsum(equation, *row, agg=agg) for row in rows]))
    joinsum.init()


def test_gradients_of_each_sample(sites: int) -> None:
    x, w = torch.rand(5, 3, dtype=torch.float64), torch.rand(3, 4, dtype=torch.float64)

    def loss(einsum: Function) -> Function:
        return lambda w, x: einsum("j,jk->k", x, w).square().sum()

    of_samples = [
        torch.func.vmap(torch.func.grad(loss(e)), in_dims=(None, 0))(w, x) for e in (joinsum.einsum, torch.einsum)
    ]
    close(*of_samples)


def test_forward_mode_outside_functorch_is_torchs(sites: int) -> None:
    x, y, t = torch.rand(3, 2), torch.rand(2, 4), torch.rand(3, 2)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, t)
        _, tangent = forward_ad.unpack_dual(joinsum.einsum("ij,jk->ik", dual, y))
    torch.testing.assert_close(tangent, t @ y)


def batched_gradients(f: Function, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    leaves = (x.clone().requires_grad_(), y.clone().requires_grad_())
    return torch.autograd.grad(f(*leaves), leaves, torch.eye(y.shape[1], dtype=y.dtype), is_grads_batched=True)


AUTOGRADS_VMAP: dict[str, Callable[[Function, torch.Tensor, torch.Tensor], Any]] = {
    "jacobian": lambda f, x, y: torch.autograd.functional.jacobian(f, (x, y), vectorize=True),
    "jacobian forward": lambda f, x, y: torch.autograd.functional.jacobian(
        f, (x, y), vectorize=True, strategy="forward-mode"
    ),
    "hessian": lambda f, x, y: torch.autograd.functional.hessian(lambda x: f(x, y).sum(), x, vectorize=True),
    "batched gradients": batched_gradients,
}


@pytest.mark.parametrize("name", AUTOGRADS_VMAP)
def test_gradients_of_many_samples_in_autograds_own_vmap_are_torchs(sites: int, name: str) -> None:
    x, y = torch.rand(3, 2, dtype=torch.float64), torch.rand(2, 4, dtype=torch.float64)
    transform = AUTOGRADS_VMAP[name]
    close(transform(product(joinsum.einsum), x, y), transform(product(torch.einsum), x, y))


def test_gradients_of_many_samples_may_be_computed_in_another_thread(sites: int) -> None:
    """As autograd does on GPUs. Threads of its own know of no vmap."""
    x, y = torch.rand(3, 2, dtype=torch.float64), torch.rand(2, 4, dtype=torch.float64)

    def in_a_thread(f: Function) -> Function:
        class Elsewhere(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
                ctx.save_for_backward(x, y)
                return f(x, y)

            @staticmethod
            def backward(ctx: Any, *grads: torch.Tensor) -> Any:
                x, y = (each.detach().requires_grad_() for each in ctx.saved_tensors)
                with torch.enable_grad():
                    result = f(x, y)
                with ThreadPoolExecutor(1) as pool:
                    return pool.submit(torch.autograd.grad, result, (x, y), *grads).result()

        return Elsewhere.apply

    close(batched_gradients(in_a_thread(product(joinsum.einsum)), x, y), batched_gradients(product(torch.einsum), x, y))


def test_gradcheck_of_batched_gradients_passes(sites: int) -> None:
    x, w = (torch.rand(shape, dtype=torch.float64, requires_grad=True) for shape in [(2, 2, 3), (2, 3, 2)])
    torch.autograd.gradcheck(
        lambda x, w: joinsum.einsum("bij,bjk->ik", x, w),
        (x, w),
        check_forward_ad=True,
        check_batched_grad=True,
        check_batched_forward_grad=True,
    )


def test_complex_jvp_is_torchs(sites: int) -> None:
    x, y = torch.randn(3, 2, dtype=torch.complex128), torch.randn(2, 4, dtype=torch.complex128)
    tangents = (torch.randn_like(x), torch.randn_like(y))
    for f in (joinsum.einsum, torch.einsum):
        value, tangent = torch.func.jvp(lambda x, y, f=f: f("ij,jk->ik", x, y), (x, y), tangents)
        close(value, x @ y)
        close(tangent, tangents[0] @ y + x @ tangents[1])


# --- recordings -------------------------------------------------------------------------------------------------------


CALLS: dict[str, Callable[[torch.Tensor], Function]] = {
    "einsum": lambda y: lambda x: joinsum.einsum("ij,jk->ik", x, y, join="add", agg="min"),
    "plan": lambda y: (lambda run: lambda x: run(x, y))(
        joinsum.einsum_plan("ij,jk->ik", (3, 4), (4, 5), join="add", agg="min", cache=False)
    ),
    "layer": lambda y: lambda x: joinsum.nn.functional.softmax(x @ y, 1),
}


@pytest.mark.parametrize("call", CALLS)
def test_recordings_compute_it_of_other_tensors(sites: int, call: str) -> None:
    f, x, other = CALLS[call](torch.rand(4, 5)), torch.rand(3, 4), torch.rand(3, 4)
    torch.testing.assert_close(make_fx(f)(x)(other), f(other))
    value, slope = torch.func.linearize(f, x)
    torch.testing.assert_close((value, slope(other)), torch.func.jvp(f, (x,), (other,)))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("call", CALLS)
def test_what_records_constants_is_refused(sites: int, call: str) -> None:
    f = CALLS[call](torch.rand(4, 5))
    with pytest.raises(PlanError, match="cannot record what sites run"):
        torch.jit.trace(f, torch.rand(3, 4), check_trace=False)
    assert f(torch.rand(3, 4)).shape == (3, 5)


def test_recordings_of_any_shape_hold_for_the_shape_that_they_saw(sites: int) -> None:
    recorded = make_fx(lambda x: joinsum.einsum("ij->i", x, agg="max"), tracing_mode="symbolic")(torch.rand(3, 4))
    x = torch.rand(3, 4)
    torch.testing.assert_close(recorded(x), x.amax(1))
    with pytest.raises(PlanError, match="shape"):
        recorded(torch.rand(5, 4))


@pytest.mark.parametrize("call", ["einsum", "layer"])
def test_compiled_functions_have_it_in_their_graphs(sites: int, call: str) -> None:
    f = CALLS[call](torch.rand(4, 5))
    x = torch.rand(3, 4)
    for backend in ("eager", "aot_eager"):
        torch._dynamo.reset()
        found = torch.compile(lambda x: f(x).sin() + 1, backend=backend, fullgraph=True)(x)
        torch.testing.assert_close(found, f(x).sin() + 1)


def test_compiled_functions_call_plans_between_their_graphs_or_say_that_they_cannot(sites: int) -> None:
    f = CALLS["plan"](torch.rand(4, 5))
    x = torch.rand(3, 4)
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(lambda x: f(x).sin() + 1, backend="eager")(x), f(x).sin() + 1)
    torch._dynamo.reset()
    with pytest.raises(Exception, match="by its own plan, outside of compiled graphs"):
        torch.compile(f, backend="eager", fullgraph=True)(x)
    torch._dynamo.reset()
    with pytest.raises(joinsum.CaptureError, match="by its own plan, outside of compiled graphs"):
        joinsum.compile(f)(x)


def test_a_result_in_autograd_may_be_changed_in_place(sites: int) -> None:
    x, y = torch.rand(3, 2, requires_grad=True), torch.rand(2, 4)
    for equation in ("ij,jk->ik", "ij,jk->ki", "ij,jk->"):
        z = joinsum.einsum(equation, x, y).mul_(2)
        torch.testing.assert_close(torch.autograd.grad(z.sum(), x)[0], 2 * y.sum(1).expand(3, 2))


# --- any text at all --------------------------------------------------------------------------------------------------


def some_subscripts(random: Random, ellipsis: float) -> str:
    text = "".join(random.choice("ijk") for _ in range(random.randrange(4)))
    at = random.randrange(len(text) + 1)
    return text[:at] + "..." + text[at:] if random.random() < ellipsis else text


def some_call(random: Random) -> tuple[str, list[torch.Tensor]]:
    """An equation that is mostly right, and operands that mostly fit."""
    operands = [some_subscripts(random, 0.25) for _ in range(random.choice([1, 1, 2, 2, 3]))]
    equation = ",".join(operands) + ("->" + some_subscripts(random, 0.3) if random.random() < 0.7 else "")
    if random.random() < 0.15:
        at = random.randrange(len(equation) + 1)
        equation = equation[:at] + random.choice([".", "-", ">", ",", " ", "1", "->", "...", "_"]) + equation[at:]
    extents = {letter: random.choice([1, 2, 3]) for letter in "ijk"}
    tensors = []
    for subscripts in operands:
        shape: list[int] = []
        for letter in subscripts.replace("...", "."):
            fitting = [2] * random.randrange(3) if letter == "." else [extents[letter]]
            shape += fitting if random.random() < 0.95 else [random.choice([1, 2, 3])]
        tensors.append(torch.rand(shape + [2] * (random.random() < 0.05), dtype=torch.float64))
    return equation, tensors


@pytest.mark.parametrize("count", [1, 3])
@given(random=st.randoms(use_true_random=False))
@settings(max_examples=300, deadline=None)
def test_whatever_the_text_joinsum_takes_what_torch_takes_and_refuses_what_torch_refuses(
    count: int, random: Random
) -> None:
    equation, operands = some_call(random)
    try:
        wanted: torch.Tensor | Exception = torch.einsum(equation, *operands)
    except Exception as error:
        wanted = error
    joinsum.init(sites=count)
    if isinstance(wanted, torch.Tensor):
        close(joinsum.einsum(equation, *operands), wanted)
    else:
        with pytest.raises(PlanError, match=r"^einsum: ") as refused:
            joinsum.einsum(equation, *operands)
        assert f"\n  {equation}" in str(refused.value)  # marked
    joinsum.init()


def test_autocast_is_torchs(sites: int) -> None:
    x, y = torch.rand(3, 4, requires_grad=True), torch.rand(4, 5)
    before = joinsum.einsum("ij,jk->ik", x, y)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for equation, operands in [("ij,jk->ik", (x, y)), ("ij->i", (x,)), ("ij,ij->ij", (x, x))]:
            got, wanted = joinsum.einsum(equation, *operands), torch.einsum(equation, *operands)
            assert got.dtype is wanted.dtype, equation
            torch.testing.assert_close(got, wanted)
    (slope,) = torch.autograd.grad(got.float().sum() + before.sum(), x)
    assert slope.dtype is torch.float32


# --- out= -------------------------------------------------------------------------------------------------------------


def test_out_is_written_and_returned(sites: int) -> None:
    x, y, out = torch.rand(3, 2), torch.rand(2, 3), torch.zeros(3, 3)
    assert joinsum.einsum("ij,jk->ik", x, y, out=out) is out
    torch.testing.assert_close(out, x @ y)


def test_out_may_be_an_operand(sites: int) -> None:
    x = torch.rand(3, 3)
    wanted = x @ x.T
    joinsum.einsum("ij,kj->ik", x, x, out=x)
    torch.testing.assert_close(x, wanted)
    turned = x.T.clone()
    joinsum.einsum("ij->ji", x, out=x)
    assert torch.equal(x, turned)


@pytest.mark.parametrize(
    ("out", "said"),
    [
        (torch.zeros(2, 3), r"another shape than the result: out=\[2, 3\], result=\[3, 3\]"),
        (
            torch.zeros(3, 3, dtype=torch.float64),
            "another dtype than the result: out=torch.float64, result=torch.float32",
        ),
        (torch.zeros(3, 3, device="meta"), "another device than the result: out=meta, result=cpu"),
        ([0.0], "out is a tensor"),
    ],
)
def test_an_out_that_does_not_fit_is_refused_and_untouched(sites: int, out: Any, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        joinsum.einsum("ij,jk->ik", torch.ones(3, 2), torch.ones(2, 3), out=out)
    assert not isinstance(out, torch.Tensor) or out.is_meta or not out.any()


def test_out_is_not_differentiated(sites: int) -> None:
    x = torch.ones(3, 3, requires_grad=True)
    with pytest.raises(PlanError, match="out= is not differentiated"):
        joinsum.einsum("ij,jk->ik", x, x, out=torch.zeros(3, 3))
    with torch.no_grad():
        assert joinsum.einsum("ij,jk->ik", x, x, out=torch.zeros(3, 3))[0, 0] == 3


# --- kinds of tensors -------------------------------------------------------------------------------------------------


class Marked(torch.Tensor):
    """A subclass without operations of its own."""


class Counting(torch.Tensor):
    """A subclass that sees the functions it is given to."""

    seen: ClassVar[list[object]] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


def test_a_subclass_gives_its_subclass_as_torch_does(sites: int) -> None:
    x, y = torch.rand(3, 2), torch.rand(2, 3)
    value = joinsum.einsum("ij,jk->ik", x.as_subclass(Marked), y)
    assert type(value) is Marked
    assert type(torch.einsum("ij,jk->ik", x.as_subclass(Marked), y)) is Marked
    torch.testing.assert_close(value.as_subclass(torch.Tensor), x @ y)


def test_a_subclass_sees_the_call(sites: int) -> None:
    Counting.seen.clear()
    x = torch.rand(3, 3).as_subclass(Counting)
    joinsum.einsum("ij,jk->ik", x, x, join="add", agg="max")
    assert Counting.seen[0] is joinsum.einsum


def test_parameters_are_differentiated(sites: int) -> None:
    layer = torch.nn.Linear(3, 4, bias=False)
    x = torch.rand(5, 3)
    joinsum.einsum("bi,oi->bo", x, layer.weight).sum().backward()
    torch.testing.assert_close(layer.weight.grad, x.sum(0).expand(4, 3))


@pytest.mark.parametrize(
    ("operands", "said"),
    [
        (
            (torch.ones(2, 2), torch.ones(2, 2, device="meta")),
            "lie on different devices; .*operand 0=cpu, operand 1=meta",
        ),
        ((torch.ones(2, 2, device="meta"),) * 2, "operand 0: a tensor without data.*device=meta"),
        ((torch.ones(2, 2), torch.ones(2, 2).double()), "dtypes of the operands differ; .*operand 1=torch.float64"),
        ((torch.ones(2, 2), [[1.0]]), "operand 1: not a tensor; give a torch.Tensor"),
    ],
    ids=["devices", "meta", "dtypes", "list"],
)
def test_operands_that_cannot_be_are_named(sites: int, operands: Any, said: str) -> None:
    for _ in range(2):  # a refusal is not remembered as a plan
        with pytest.raises(PlanError, match=f"einsum: .*{said}"):
            joinsum.einsum("ij,jk->ik", *operands)


def test_tensors_with_a_dispatch_of_their_own_are_refused() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    joinsum.init(sites=2)
    with FakeTensorMode():
        fake = torch.ones(2, 2)
    with pytest.raises(PlanError, match=r"operand 0: a class of tensors .*FakeTensor"):
        joinsum.einsum("ij,jk->ik", fake, fake)
    joinsum.init()


# --- calls that are remembered ----------------------------------------------------------------------------------------


def test_a_second_call_neither_parses_nor_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    joinsum.init(sites=4)
    x, y = torch.rand(4, 4, requires_grad=True), torch.rand(4, 4)
    joinsum.einsum("iij,jk->ik", x[None].expand(4, 4, 4), y).sum().backward()

    def never(*_: object) -> None:
        raise AssertionError("planned again")

    for name in ("parse_equation", "optimize", "einsum_vertex"):
        monkeypatch.setattr(_C, name, never)
    value = joinsum.einsum("iij,jk->ik", x.detach()[None].expand(4, 4, 4), y)
    torch.testing.assert_close(value, torch.einsum("iij,jk->ik", x.detach()[None].expand(4, 4, 4), y))
    x.grad = None
    joinsum.einsum("iij,jk->ik", x[None].expand(4, 4, 4), y).sum().backward()
    assert x.grad is not None
    joinsum.init()


def test_relations_give_a_relation_and_nothing_is_gathered() -> None:
    joinsum.init(sites=4)
    x = joinsum.relation(torch.rand(8, 6), parts=(2, 2), place=[0, 1])
    y = joinsum.relation(torch.rand(6, 4), parts=(2, 2), place=[0, 1])
    before = joinsum.context().bytes
    z = joinsum.einsum("ij,jk->ik", x, y)
    assert isinstance(z, joinsum.Relation)
    assert joinsum.context().bytes == before  # lazy
    assert not z.stored().type.placement.fully_replicated
    torch.testing.assert_close(z.to_tensor(), x.to_tensor() @ y.to_tensor())
    with pytest.raises(PlanError, match="all tensors or all relations: operand 1=Tensor"):
        joinsum.einsum("ij,jk->ik", x, torch.ones(6, 4))
    with pytest.raises(PlanError, match="no out="):
        joinsum.einsum("ij,jk->ik", x, y, out=torch.ones(8, 4))
    joinsum.init()
