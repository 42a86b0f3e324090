"""joinsum.einsum and joinsum.nn.functional inside functions and models that are captured: planned with the rest, with
torch's values and gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import joinsum
import pytest
import torch
from joinsum import CaptureError, KernelError, PlanError
from joinsum.capture import record
from joinsum.capture.interpret import interpret
from joinsum.distributed.distributed_tensor import gathered
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

pytestmark = pytest.mark.usefixtures("clean_graphs")
SITES = pytest.mark.parametrize("sites", [1, 3, 4])


@pytest.fixture
def clean_graphs() -> None:
    torch._dynamo.reset()


def closest(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x[:, None] - y[None]).square().sum(-1)


@dataclass(frozen=True)
class Case:
    """A function by joinsum, the same by torch, and shapes of its operands."""

    by_joinsum: Callable[..., torch.Tensor]
    by_torch: Callable[..., torch.Tensor]
    shapes: tuple[tuple[int, ...], ...]


F = torch.nn.functional
ours = joinsum.nn.functional
CASES = {
    "product": Case(lambda x, y: joinsum.einsum("ij,jk->ik", x, y), lambda x, y: x @ y, ((6, 4), (4, 5))),
    "three operands": Case(
        lambda x, y, z: joinsum.einsum("ij,jk,kl->il", x.tanh(), y, z).relu(),
        lambda x, y, z: (x.tanh() @ y @ z).relu(),
        ((6, 4), (4, 5), (5, 3)),
    ),
    "distances": Case(
        lambda x, y: joinsum.einsum("ik,jk->ij", x, y, join="squared_difference").sqrt(),
        lambda x, y: closest(x, y).sqrt(),
        ((6, 4), (5, 4)),
    ),
    "shortest ways": Case(
        lambda x, y: joinsum.einsum("ij,jk->ik", x * 2, y, join="add", agg="min"),
        lambda x, y: (x[:, :, None] * 2 + y[None]).amin(1),
        ((6, 4), (4, 5)),
    ),
    "most likely ways": Case(
        lambda x, y, z: joinsum.einsum("ij,jk,kl->il", x, y, z, join="add", agg="max"),
        lambda x, y, z: (x[:, :, None, None] + y[None, :, :, None] + z[None, None]).amax((1, 2)),
        ((6, 4), (4, 5), (5, 3)),
    ),
    "logsumexp": Case(
        lambda x, y: joinsum.einsum("ij,jk->ik", x, y, join="add", agg="logsumexp"),
        lambda x, y: (x[:, :, None] + y[None]).logsumexp(1),
        ((6, 4), (4, 5)),
    ),
    "prod": Case(lambda x: joinsum.einsum("ij->j", x.exp(), agg="prod"), lambda x: x.exp().prod(0), ((6, 4),)),
    "expression": Case(
        lambda x, y: joinsum.einsum("ij,jk->ik", x, y, join="where(x < y, exp(x - y) * 2, x * y)"),
        lambda x, y: torch.where(
            x[:, :, None] < y[None], (x[:, :, None] - y[None]).exp() * 2, x[:, :, None] * y[None]
        ).sum(1),
        ((6, 4), (4, 5)),
    ),
    "a diagonal, a new label": Case(
        lambda x, y: joinsum.einsum("iij,jk->ijn", x, y, extents={"n": 3}),
        lambda x, y: (x.diagonal(0, 0, 1).T * y.sum(1))[..., None].expand(4, 5, 3),
        ((4, 4, 5), (5, 2)),
    ),
    "repeated elements": Case(
        lambda x: joinsum.einsum("ij,j->i", x[:, None].expand(6, 4), x[:4], join="add", agg="prod"),
        lambda x: (x[:, None] + x[:4]).prod(1),
        ((6,),),
    ),
    "sublists, an ellipsis, broadcasting": Case(
        lambda x, y: joinsum.einsum(x, [..., "row", 0], y, [..., 0, 1], [..., "row", 1]),
        lambda x, y: x @ y,
        ((3, 1, 2, 4), (5, 4, 3)),
    ),
    "views around it": Case(
        lambda x, w: joinsum.einsum("bhd,hde->bhe", x.view(4, 2, 6), w).reshape(4, 6).softmax(-1),
        lambda x, w: torch.einsum("bhd,hde->bhe", x.view(4, 2, 6), w).reshape(4, 6).softmax(-1),
        ((4, 12), (2, 6, 3)),
    ),
    "softmax": Case(lambda x: ours.softmax(x * 2, dim=1), lambda x: F.softmax(x * 2, 1), ((3, 4, 5),)),
    "log_softmax": Case(lambda x: ours.log_softmax(x, -1).exp(), lambda x: F.softmax(x, -1), ((3, 4, 5),)),
    "layer_norm": Case(
        lambda x, w, b: ours.layer_norm(x, [4, 5], w, b),
        lambda x, w, b: F.layer_norm(x, [4, 5], w, b),
        ((3, 4, 5), (4, 5), (4, 5)),
    ),
    "rms_norm": Case(
        lambda x, w: ours.rms_norm(x, x.shape[-1:], w), lambda x, w: F.rms_norm(x, [5], w), ((3, 4, 5), (5,))
    ),
    "attention": Case(
        lambda q, k, v: ours.scaled_dot_product_attention(q, k, v, is_causal=True),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        ((2, 3, 4, 6), (2, 3, 4, 6), (2, 3, 4, 5)),
    ),
}


def operands(case: Case) -> list[torch.Tensor]:
    torch.manual_seed(1)
    return [torch.randn(shape, dtype=torch.float64).requires_grad_() for shape in case.shapes]


def value_and_gradients(function: Callable[..., torch.Tensor], case: Case) -> list[torch.Tensor]:
    inputs = operands(case)
    value = function(*inputs)
    weights = torch.linspace(-1, 2, value.numel(), dtype=value.dtype).reshape(value.shape)
    return [value.detach(), *torch.autograd.grad((value * weights).sum(), inputs)]


@SITES
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_torch(name: str, sites: int) -> None:
    joinsum.init(sites=sites, plan_cache=False)
    case = CASES[name]
    found = value_and_gradients(joinsum.compile(case.by_joinsum), case)
    torch.testing.assert_close(found, value_and_gradients(case.by_torch, case), rtol=1e-10, atol=1e-12)


# --- ways in ----------------------------------------------------------------------------------------------------------


class Classifier(nn.Module):
    """Scores of classes by products, distances and nearest features, after a norm; by joinsum or by torch."""

    def __init__(self, by_joinsum: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.by_joinsum = by_joinsum
        self.first = nn.Linear(6, 8)
        self.classes = nn.Parameter(torch.randn(5, 8))
        self.scale = nn.Parameter(torch.ones(8))
        self.heads = nn.Parameter(torch.randn(2, 4, 5) / 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.by_joinsum:
            h = ours.rms_norm(self.first(x), [8], self.scale)
            distances = joinsum.einsum("bk,ck->bc", h, self.classes, join="squared_difference")
            scores = joinsum.einsum("bhd,hdc->bc", h.view(-1, 2, 4), self.heads)
            best = joinsum.einsum("bk,ck->bc", h, self.classes, join="add", agg="max")
            return ours.log_softmax(scores - distances * 0.1 + best, 1)
        h = F.rms_norm(self.first(x), [8], self.scale)
        scores = torch.einsum("bhd,hdc->bc", h.view(-1, 2, 4), self.heads)
        best = (h[:, None] + self.classes).amax(-1)
        return F.log_softmax(scores - closest(h, self.classes) * 0.1 + best, 1)


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(12, 6, generator=generator), torch.randint(0, 5, (12,), generator=generator)) for _ in range(3)
    ]


def train(model: nn.Module, step: Callable[..., torch.Tensor] | None = None) -> list[torch.Tensor]:
    """The parameters after some steps: of the model called as `step`, or as it is."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for x, y in batches():
        optimizer.zero_grad()
        F.nll_loss((model if step is None else step)(x), y).backward()
        optimizer.step()
    return [gathered(x) for x in model.parameters()]


def by_backend(model: nn.Module) -> list[torch.Tensor]:
    return train(model, torch.compile(model, backend="joinsum", fullgraph=True))


def by_compile(model: nn.Module) -> list[torch.Tensor]:
    return train(model, joinsum.compile(model))


def by_distribute(model: nn.Module) -> list[torch.Tensor]:
    return train(joinsum.distribute(model, batches()[0][0]))


def by_train_step(model: nn.Module) -> list[torch.Tensor]:
    step = joinsum.train_step(model, F.nll_loss, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
    for x, y in batches():
        step(x, y)
    step.sync()
    return list(model.parameters())


def by_another_backend(model: nn.Module) -> list[torch.Tensor]:
    return train(model, torch.compile(model, backend="aot_eager", fullgraph=True))


@SITES
@pytest.mark.parametrize("way", [by_backend, by_compile, by_distribute, by_train_step, by_another_backend])
def test_a_model_trains_as_by_torch(way: Callable[[nn.Module], list[torch.Tensor]], sites: int) -> None:
    joinsum.init(sites=sites, plan_cache=False)
    found = [x.detach() for x in way(Classifier(True))]
    torch.testing.assert_close(found, [x.detach() for x in train(Classifier(False))], rtol=2e-5, atol=2e-5)


# --- what is captured -------------------------------------------------------------------------------------------------


def test_captured_einsums_are_einsums_of_the_program() -> None:
    joinsum.init(sites=4, plan_cache=False)
    x, y = torch.randn(6, 4), torch.randn(4, 5)
    graph = make_fx(lambda x, y: joinsum.einsum("ij,jk->ik", x * 2, y, join="add", agg="min"), tracing_mode="fake")(
        x, y
    )
    program = record(graph, ["x", "y"])
    doubled, z = (vertex.einsum for vertex in program.vertices)
    assert doubled is not None
    assert z is not None
    assert (doubled.operands, doubled.result, str(doubled.join)) == ([["a", "b"]], ["a", "b"], "scale[2.0]")
    assert (z.operands, z.result, str(z.join), str(z.aggregate)) == ([["a", "b"], ["b", "c"]], ["a", "c"], "add", "min")
    torch.testing.assert_close(interpret(program, [x, y])[0], (x[:, :, None] * 2 + y).amin(1))


def test_a_recording_computes_and_is_differentiated_anew() -> None:
    joinsum.init(sites=3, plan_cache=False)
    w = torch.randn(4, 2)
    graph = make_fx(lambda x: joinsum.einsum("ij,jk->ik", x, w, join="add", agg="min"))(torch.randn(3, 4))
    x = torch.randn(3, 4, requires_grad=True)
    wanted = (x[:, :, None] + w).amin(1)
    torch.testing.assert_close(graph(x), wanted)
    (found,) = torch.autograd.grad(graph(x).square().sum(), x)
    torch.testing.assert_close(found, torch.autograd.grad(wanted.square().sum(), x)[0])
    slope = torch.func.grad(lambda x: joinsum.einsum("ij,jk->ik", x, w, join="add", agg="min").square().sum())
    torch.testing.assert_close(make_fx(slope)(torch.randn(3, 4))(x.detach()), found)


@SITES
def test_indices_integers_truth_values_and_complex_numbers(sites: int) -> None:
    joinsum.init(sites=sites, plan_cache=False)
    x, w, k = torch.randn(5, 4), torch.randn(4, 2), torch.randint(-5, 5, (4, 3))
    c = torch.randn(4, 3, dtype=torch.complex64)

    @joinsum.compile
    def found(x: torch.Tensor, w: torch.Tensor, k: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            joinsum.einsum("ij,jk->ik", x, w, join="add", agg="argmax"),
            joinsum.einsum("ij->i", x > 0, agg="all"),
            joinsum.einsum("ij,ik->jk", k, k),
            joinsum.einsum("ij->j", k, agg="prod"),
            joinsum.einsum("ij,ik->jk", c, c),
        )

    wanted = ((x[:, :, None] + w).argmax(1), (x > 0).all(1), k.T @ k, k.prod(0), c.T @ c)
    torch.testing.assert_close(found(x, w, k, c), wanted)


@SITES
def test_autocast_and_out_are_as_outside(sites: int) -> None:
    joinsum.init(sites=sites, plan_cache=False)
    x, w, out = torch.randn(3, 4), torch.randn(4, 2), torch.zeros(3, 2)

    @joinsum.compile
    def narrow(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return joinsum.einsum("ij,jk->ik", x, w)  # type: ignore[return-value]

    torch.testing.assert_close(narrow(x, w), x.bfloat16() @ w.bfloat16())
    written = joinsum.compile(lambda x, w, out: joinsum.einsum("ij,jk->ik", x, w, join="add", agg="max", out=out) + 1)
    wanted = (x[:, :, None] + w).amax(1)
    torch.testing.assert_close(written(x, w, out), wanted + 1)
    torch.testing.assert_close(out, wanted)


def test_infinities_of_both_signs_meet_in_captured_sums_of_three() -> None:
    joinsum.init(sites=3, plan_cache=False)
    inf = float("inf")
    x, z = torch.tensor([-inf, 1, 2]), torch.tensor([1.0, 2, -inf])
    y = torch.tensor([[inf, 1, 2], [3, inf, 5], [1, 2, 3.0]])
    found = joinsum.compile(lambda x, y, z: joinsum.einsum("i,ij,j->", x, y, z, join="add", agg="max"))(x, y, z)
    assert found.isnan()


# --- refusals ---------------------------------------------------------------------------------------------------------

WRONG: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], type[Exception], str]] = {
    "extents": (lambda x: joinsum.einsum("ij,jk->ik", x, x), PlanError, r"extents of a label differ.*\n  ij,jk->ik"),
    "an aggregation": (lambda x: joinsum.einsum("ij->i", x, agg="mean"), PlanError, "no such aggregation: agg='mean'"),
    "a join": (lambda x: joinsum.einsum("ij->i", x, join=3), PlanError, "join is text such as 'mul': got=3"),
    "dtypes": (
        lambda x: joinsum.einsum("ij,ik->jk", x, x.double(), join="add"),
        KernelError,
        "dtypes of the operands differ",
    ),
    "an axis": (lambda x: ours.softmax(x, 5), PlanError, r"softmax: no such axis: dim=5, shape=\[3, 4\]"),
    "out": (lambda x: joinsum.einsum("ij->i", x, out=x), PlanError, "out has another shape"),
    "a transform": (
        lambda x: torch.func.vmap(lambda x: joinsum.einsum("i->", x, agg="max"))(x),
        PlanError,
        "cannot transform it",
    ),
    "elements": (lambda x: joinsum.einsum("ij->i", x[:, :0]) + x.sum(), CaptureError, "a tensor has no elements"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_said_as_outside(what: str) -> None:
    joinsum.init(sites=3, plan_cache=False)
    function, kind, said = WRONG[what]
    with pytest.raises(kind, match=said):
        joinsum.compile(function)(torch.randn(3, 4))
