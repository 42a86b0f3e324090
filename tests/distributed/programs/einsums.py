"""Scenes of joinsum.einsum on plain tensors, the same on every rank."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import joinsum
import torch
from stage import Scenes, enter, error_of, on_group, on_loopback, rank, scene

SCENES: Scenes = {}

EQUATIONS = ["ij,jk->ik", "ij->", "bij,bjk->bik", "i,j->ij", "ij,jk,kl->li", "ii->i", "ij,ij->j"]
EXTENTS = {"b": 2, "i": 5, "j": 3, "k": 4, "l": 7}


def operands(equation: str) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    shapes = [[EXTENTS[c] for c in subscript] for subscript in equation.split("->")[0].split(",")]
    return [torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True) for shape in shapes]


def results(equation: str, **options: str) -> list[torch.Tensor]:
    """The value, and the gradients of its sum."""
    leaves = operands(equation)
    value = joinsum.einsum(equation, *leaves, **options)
    assert isinstance(value, torch.Tensor)
    return [value.detach(), *torch.autograd.grad(value.sum(), leaves)]


@scene(SCENES)
def values_and_gradients_are_those_of_one_process() -> int:
    enter(on_group())
    for equation in EQUATIONS:
        leaves = operands(equation)
        value = torch.einsum(equation, *leaves)
        wanted = [value.detach(), *torch.autograd.grad(value.sum(), leaves)]
        for x, y in zip(results(equation), wanted, strict=True):
            torch.testing.assert_close(x, y, rtol=1e-10, atol=1e-10)
    return len(EQUATIONS)


@scene(SCENES)
def a_group_gives_what_loopback_gives() -> None:
    for join in ("squared_difference", "where(x < y, exp(x - y), x * 2)"):
        options = {"join": join, "agg": "logsumexp"}
        enter(on_loopback())
        wanted = results("ij,kj->ik", **options)
        enter(on_group())
        for x, y in zip(results("ij,kj->ik", **options), wanted, strict=True):
            assert torch.equal(x, y)


@scene(SCENES)
def positions_and_layers_are_those_of_one_process() -> None:
    enter(on_group())
    generator = torch.Generator().manual_seed(8)
    x = torch.randn(5, 7, generator=generator, dtype=torch.float64)
    assert torch.equal(joinsum.einsum("ij->i", x, agg="argmax"), x.argmax(1))
    torch.testing.assert_close(joinsum.nn.functional.softmax(x, 1), x.softmax(1), rtol=1e-12, atol=1e-12)


@scene(SCENES)
def functional_transforms_are_those_of_one_process() -> None:
    enter(on_group())
    x, y = (x.detach() for x in operands("ij,jk->ik"))
    for transform in (torch.func.jacrev, torch.func.jacfwd, torch.func.hessian):
        got, wanted = (
            transform(lambda x, e=e: e("ij,jk->ik", x, y).sin().sum())(x) for e in (joinsum.einsum, torch.einsum)
        )
        torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)
    each = torch.func.vmap(lambda row: joinsum.einsum("j,jk->k", row, y))(x)
    torch.testing.assert_close(each, x @ y, rtol=1e-10, atol=1e-10)


@scene(SCENES)
def a_graph_has_the_values_and_gradients_of_one_process() -> None:
    enter(on_group())
    g = joinsum.Graph()
    hidden = g.einsum("ij,jk->ik", g.input("X", (5, 3), torch.float64), g.input("Y", (3, 4), torch.float64))
    g.output("rows", g.einsum("ik->i", hidden, agg="logsumexp"))
    g.output("columns", g.einsum("ik->k", hidden, agg="max"))
    x, y = operands("ij,jk->ik")
    result = g.plan()(X=x, Y=y)
    wanted = {"rows": torch.logsumexp(x @ y, 1), "columns": (x @ y).amax(0)}
    slopes, expected = (torch.autograd.grad(sum(z.sin().sum() for z in z.values()), (x, y)) for z in (result, wanted))
    for a, b in zip([*result.values(), *slopes], [*wanted.values(), *expected], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@scene(SCENES)
def captured_einsums_have_the_values_and_gradients_of_one_process() -> None:
    enter(on_group())

    def score(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        best = joinsum.einsum("ij,jk->ik", x * 2, y, join="add", agg="min")
        likely = joinsum.einsum("ij,jk->ik", x, y, join="add", agg="logsumexp")
        return joinsum.nn.functional.softmax(best + likely, 1)

    def by_torch(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        best, likely = (x[:, :, None] * 2 + y).amin(1), (x[:, :, None] + y).logsumexp(1)
        return torch.softmax(best + likely, 1)

    torch.manual_seed(0)
    x, y = torch.randn(6, 4, requires_grad=True), torch.randn(4, 5, requires_grad=True)
    result, wanted = joinsum.compile(score)(x, y), by_torch(x, y)
    torch.testing.assert_close(result, wanted)
    found = torch.autograd.grad(result.square().sum(), [x, y])
    torch.testing.assert_close(found, torch.autograd.grad(wanted.square().sum(), [x, y]))


@scene(SCENES)
def operands_that_differ_are_found_at_the_first_call() -> str:
    enter(on_group())
    x = torch.full((3, 3), float(rank()))
    kind, text, _ = error_of(lambda: joinsum.einsum("ij,jk->ik", x, x))
    assert kind == "TransportError", text
    return text


@scene(SCENES)
def later_calls_compare_operands_when_asked() -> str:
    enter(on_group())
    same = torch.ones(3, 3)
    joinsum.einsum("ij,jk->ik", same, same)
    other = torch.full((3, 3), float(rank()))
    joinsum.einsum("ij,jk->ik", other, same)
    os.environ["JOINSUM_CHECK"] = "1"
    try:
        kind, text, _ = error_of(lambda: joinsum.einsum("ij,jk->ik", other, same))
    finally:
        del os.environ["JOINSUM_CHECK"]
    assert kind == "TransportError", text
    return text


@scene(SCENES)
def a_gradient_that_one_rank_alone_will_want_is_found() -> str:
    enter(on_group())
    x = torch.ones(3, 3, requires_grad=rank() == 1)
    kind, text, _ = error_of(lambda: joinsum.einsum("ij,jk->ki", x, x))
    assert kind == "TransportError", text
    return text


@scene(SCENES)
def the_operand_that_differs_is_named() -> str:
    enter(on_group())
    same, other = torch.ones(3, 3), torch.full((3, 3), float(rank()))
    kind, text, _ = error_of(lambda: joinsum.einsum("ij,jk->ik", same, other))
    assert kind == "TransportError", text
    return text


@scene(SCENES)
def a_planned_einsum_compares_operands_until_they_were_equal_once() -> list[str]:
    enter(on_group())
    same, other = torch.ones(3, 3), torch.full((3, 3), float(rank()))
    run = joinsum.einsum_plan("ij,jk->ik", (3, 3), (3, 3))
    messages = []
    for _ in range(2):
        kind, text, _ = error_of(lambda: run(same, other))
        assert kind == "TransportError", text
        messages.append(text)
    torch.testing.assert_close(run(same, same), same @ same)
    run(same, other)  # compared no more
    return messages


@scene(SCENES)
def ranks_that_call_different_equations_all_raise() -> list[str]:
    """Both at the first call and when each rank has planned its own."""
    enter(on_group())
    x = torch.ones(3, 3)
    for equation in ("ij,jk->ik", "ij,kj->ik"):
        joinsum.einsum(equation, x, x)
    known = "ij,jk->ik" if rank() == 0 else "ij,kj->ik"
    new = "ij,jk->i" if rank() == 0 else "ij,jk->k"
    mixed = "ij,jk->ik" if rank() == 0 else "ij,ij->ij"
    messages = []
    for equation in (known, new, mixed, "no equation" if rank() == 0 else known):
        kind, text, _ = error_of(lambda e=equation: joinsum.einsum(e, x, x))
        assert kind in ("TransportError", "PlanError"), text
        messages.append(text)
    torch.testing.assert_close(joinsum.einsum("ij,jk->ik", x, x), x @ x)  # the group goes on
    return messages


@scene(SCENES)
def what_is_wrong_on_one_rank_raises_on_all() -> list[str]:
    enter(on_group())
    x = torch.ones(3, 3)
    wrong = torch.ones(4, 4) if rank() == 0 else x
    run = joinsum.einsum_plan("ij,jk->ik", x, x)
    g = joinsum.Graph()
    value = g.einsum("ij->i", g.input("X", (3, 3)))
    empty = joinsum.Graph() if rank() == 0 else g
    g.output("Z", value)
    messages = []
    for call in (
        lambda: joinsum.einsum("ij,jk->ik", x, wrong),
        lambda: joinsum.einsum_plan("ij,jk->i", x, wrong),
        lambda: run(x, wrong),
        lambda: empty.plan(),
        lambda: g.plan()(wrong),
    ):
        kind, text, seconds = error_of(call)
        assert kind == ("PlanError" if rank() == 0 else "TransportError"), text
        assert seconds < 20
        messages.append(text)
    torch.testing.assert_close(run(x, x), x @ x)
    return messages


@contextmanager
def cached_plans() -> Iterator[Path]:
    """A folder of plans for each rank, turned on."""
    with tempfile.TemporaryDirectory() as folder:
        saved = {name: os.environ.get(name) for name in ("XDG_CACHE_HOME", "JOINSUM_PLAN_CACHE")}
        os.environ["XDG_CACHE_HOME"] = folder
        os.environ.pop("JOINSUM_PLAN_CACHE", None)
        try:
            yield Path(folder) / "joinsum" / "plans"
        finally:
            for name, value in saved.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value


@scene(SCENES)
def rank_0_caches_the_plan_that_all_run() -> list[str]:
    """The origins of four plans: new, cached, of a damaged file, and with another rank's folder turned off."""
    with cached_plans() as folder:
        origins = []

        def plan() -> None:
            enter(on_group())
            run = joinsum.einsum_plan("ij,jk->ik", (5, 3), (3, 4), dtype=torch.float64)
            x, y = operands("ij,jk->ik")
            torch.testing.assert_close(run(x, y), x @ y)
            origins.append(run.origin.replace(str(folder), "folder"))

        plan()
        assert len(list(folder.glob("*.json"))) == (1 if rank() == 0 else 0)
        plan()
        for path in folder.glob("*.json"):
            path.write_bytes(path.read_bytes()[:-9])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plan()
        if rank() == 0:
            os.environ["JOINSUM_PLAN_CACHE"] = "0"
        kind, text, _ = error_of(plan)
        assert kind == "TransportError", text
        return [*origins, text]


@scene(SCENES)
def starts_without_a_calibration_share_plans() -> list[str]:
    """Origins of a plan at starts whose quick looks find the first rates times a number: near, near, and far off."""
    module = sys.modules["joinsum.cluster.context"]
    measure = module.measure
    origins = []
    first: list[joinsum.Cluster] = []

    def start(times: float) -> None:
        """As a new process: with nothing in memory."""

        def look(*arguments: Any) -> joinsum.Cluster:
            if not first:
                first.append(measure(*arguments))
            rates = first[0].flops_per_second * times, first[0].bytes_per_second * times
            return replace(first[0], flops_per_second=rates[0], bytes_per_second=rates[1])

        module._measured.clear()
        module.measure = look
        try:
            joinsum.init()
        finally:
            module.measure = measure
            module._measured.clear()
        origins.append(joinsum.einsum_plan("ij,jk->ik", (5, 3), (3, 4)).origin)

    with cached_plans() as folder:
        for times in (1.0, 0.4, 1.3, 0.05):
            start(times)
        enter(on_group())
        return [origin.replace(str(folder), "folder") for origin in origins]
