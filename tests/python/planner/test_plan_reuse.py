"""Claims about one plan for a range of batch sizes: what it computes, what it may lose, and when there is a search."""

from __future__ import annotations

import json
import logging
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import joinsum
import pytest
import torch
from joinsum import _C
from joinsum.planner import plan_choice
from joinsum.planner.plan_choice import Ends, PlanChoice, PlanRequest, choose
from models import CASES, batches, new_model
from torch import Tensor, nn
from training import CUTTING, rare, same, sgd, train_by_torch

# Links so slow that it matters which of two plans moves less, work so slow that it is divided.
SLOW_LINKS = joinsum.Cluster("slow links", 1e9, 1e8, 0.0)
# Neither work nor links nor latency may be neglected.
BALANCED = joinsum.Cluster("balanced", 1e8, 1e8, 1e-6)


@pytest.fixture(autouse=True)
def afterwards_one_site() -> Iterator[None]:
    yield
    joinsum.init()


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs for which plans were searched."""
    found: list[str] = []
    search = plan_choice._searched

    def counted(current: Any, graph: Any, binary: Any, program: Any, *rest: Any) -> _C.IaPlan:
        found.append(program.text)
        return search(current, graph, binary, program, *rest)

    monkeypatch.setattr(plan_choice, "_searched", counted)
    return found


def on(sites: int, cluster: joinsum.Cluster) -> None:
    torch._dynamo.reset()
    joinsum.init(sites=sites, cluster=cluster, plan_cache=False)


def origin(x: Any, *args: Any) -> list[str]:
    """Where the plans of a step, a model or a function come from, pass by pass."""
    explained = x.explain() if isinstance(x, joinsum.TrainStep) else joinsum.explain(x, *args)
    return [each.origin for each in explained.passes]


OTHER = "the plan of other sizes"


def planned_step(model: nn.Module, batch: int, *features: int) -> PlanChoice:
    """The plan of a step of SGD for a batch of zeros; nothing is computed."""
    torch._dynamo.reset()
    step = joinsum.train_step(model, nn.functional.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1))
    return step.captured(*(torch.zeros(batch, n) for n in features)).planned.choice


# --- what a reused plan computes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("sites", [3, 4])
def test_steps_of_several_batch_sizes_are_torchs_and_one_is_planned(sites: int, searches: list[str]) -> None:
    on(sites, CUTTING)
    sizes = [64, 60, 64, 17, 5]
    data = [batches("mlp", 1, n)[0] for n in sizes]
    plain, planned = new_model("mlp"), new_model("mlp")
    wanted = train_by_torch(plain, CASES["mlp"].loss, sgd(plain.parameters()), data)
    step = joinsum.train_step(planned, CASES["mlp"].loss, sgd(planned.parameters()))
    losses, origins = [], []
    for x, y in data:
        losses.append(step(x, y).item())
        origins += origin(step)
        assert joinsum.trace().bytes_sent == joinsum.cost(step.explain().passes[0].explanation.plan).wire_bytes > 0
    assert origins == ["planned here", OTHER, "planned here", OTHER, OTHER], "the third is the first plan once more"
    (program,) = searches
    assert ": f32[64,6]" in program
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(wanted), rtol=1e-4, atol=0)
    step.sync()
    same(planned, plain, 1e-5)


def test_a_compiled_function_and_its_gradients_take_the_plan_of_another_batch(searches: list[str]) -> None:
    on(4, CUTTING)
    weight = torch.rand(12, 8, requires_grad=True)

    def layer(x: Tensor) -> Tensor:
        return torch.softmax(torch.relu(x @ weight), -1)

    compiled = joinsum.compile(layer)
    for batch in (32, 30, 24):
        x = torch.rand(batch, 12)
        target = torch.rand(batch, 8)
        results = []
        for function in (compiled, layer):
            weight.grad = None
            y = function(x)
            (y * target).sum().backward()
            results += [y.detach(), weight.grad]
        torch.testing.assert_close(results[:2], results[2:])
    assert len(searches) == 2, "a forward and a backward pass"


def test_a_distributed_model_takes_the_plan_of_another_batch(searches: list[str]) -> None:
    on(4, CUTTING)
    plain, model = new_model("mlp"), new_model("mlp")
    loss, data = CASES["mlp"].loss, [batches("mlp", 1, n)[0] for n in (64, 60, 64, 52)]
    joinsum.distribute(model, data[0][0])
    one, other = sgd(plain.parameters()), sgd(model.parameters())
    for x, y in data:
        for each, optimizer in ((plain, one), (model, other)):
            optimizer.zero_grad()
            loss(each(x), y).backward()
            optimizer.step()
    assert len(searches) == 2, "a forward and a backward pass"
    assert all(each == OTHER for each in origin(model, data[3][0]))
    joinsum.gather(model, other)
    same(model, plain, 1e-5)


def test_parts_of_a_model_that_start_where_another_plan_left_them_need_no_search(searches: list[str]) -> None:
    on(3, CUTTING)
    model = new_model("mlp")
    step = joinsum.train_step(model, CASES["mlp"].loss, sgd(model.parameters()))
    for x, y in batches("mlp", 3, 12):
        step(x, y)
    assert len(searches) == 1


# --- what it may lose -------------------------------------------------------------------------------------------------


def layers(count: int, width: int) -> nn.Sequential:
    return nn.Sequential(*[nn.Linear(width, width, bias=False) for _ in range(count)])


def wire_bytes(choice: PlanChoice) -> int:
    return joinsum.cost(joinsum.IaPlan(choice.plan)).wire_bytes


def all_reduce(elements: int, sites: int) -> int:
    return 2 * (sites - 1) * elements * 4


def test_a_plan_that_would_move_too_much_at_another_size_is_replaced_and_the_log_says_so(
    searches: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    sites, width = 4, 96
    on(sites, SLOW_LINKS)
    small = planned_step(layers(2, width), 12, width, width)
    assert wire_bytes(small) <= all_reduce(12 * width, sites), "activations move"
    with caplog.at_level(logging.INFO, logger="joinsum"):
        large = planned_step(layers(2, width), 1536, width, width)
    scalars = (sites - 1) * sites * sites * 4  # of the loss
    assert 0 <= wire_bytes(large) - all_reduce(2 * width * width, sites) <= scalars, "gradients move"
    lost = re.fullmatch(r"planned here: the plan of batch 12 would lose up to (\d+) %", large.origin)
    assert lost is not None
    assert int(lost[1]) > 10
    messages = [record.getMessage() for record in caplog.records if record.name == "joinsum"]
    assert messages == [f"planning anew for batch 1536: the plan of batch 12 would lose up to {lost[1]} %"]
    assert len(searches) == 2
    # Both are known now: each serves the sizes near it.
    assert planned_step(layers(2, width), 1500, width, width).origin.startswith("the plan of batch 1536, ")
    assert planned_step(layers(2, width), 13, width, width).origin.startswith("the plan of batch 12, ")
    assert len(searches) == 2


@pytest.mark.parametrize("cluster", [BALANCED, rare(SLOW_LINKS)], ids=lambda cluster: cluster.name)
def test_no_reused_plan_loses_more_than_is_reported(cluster: joinsum.Cluster) -> None:
    on(4, cluster)
    carried = 0
    for batch in (48, 44, 200, 90, 7, 61, 20, 300):
        runner = _step_of(batch)
        graph, free = runner.planned.choice.binary, frozenset(name for name, _ in runner.planned.choice.binary.outputs)
        request = PlanRequest(graph, cache=False, ends=Ends(free=free))
        reused = choose(joinsum.context(), replace(request, reuse=True))
        fresh = choose(joinsum.context(), request)
        lost = seconds(reused) / seconds(fresh) - 1
        if reused.reuse:
            carried += 1
            (most,) = re.findall(r"at most (\d+) %", reused.reuse)
            assert lost <= int(most) / 100 + 1e-9
            assert int(most) <= 10
        else:
            assert lost == pytest.approx(0)
    assert carried >= 3


def _step_of(batch: int) -> Any:
    torch._dynamo.reset()
    model = new_model("mlp")
    step = joinsum.train_step(model, CASES["mlp"].loss, sgd(model.parameters()))
    return step.captured(*batches("mlp", 1, batch)[0])


def seconds(choice: PlanChoice) -> float:
    return joinsum.cost(joinsum.IaPlan(choice.plan)).seconds


# --- what is no other size --------------------------------------------------------------------------------------------


def test_work_that_grows_with_the_square_of_the_batch_is_planned_for_each_size(searches: list[str]) -> None:
    on(2, CUTTING)
    scores = joinsum.compile(lambda x: torch.softmax(x @ x.T, -1))
    for batch in (16, 14):
        x = torch.rand(batch, 6)
        torch.testing.assert_close(scores(x), torch.softmax(x @ x.T, -1))
    assert len(searches) == 2
    # The explanation's graph has the names of the compiled one, so the plan of the second search is its plan.
    assert origin(scores, x) == ["the plan of the same sizes, modelled loss at most 0 %"]


def test_a_batch_of_fewer_elements_than_sites_is_cut_in_other_parts_and_planned(searches: list[str]) -> None:
    on(4, CUTTING)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU())
    planned_step(model, 16, 6, 8)
    few = planned_step(model, 3, 6, 8)
    assert "planned here: the plan of batch 16 cannot be reused: " in few.origin
    assert "cut in other parts" in few.origin
    assert len(searches) == 2


def test_constants_that_were_equal_and_no_longer_are_make_another_program() -> None:
    on(2, CUTTING)

    def scaled(x: Tensor) -> Tensor:
        return (x * (1 / x.shape[0])).sum(1) + (x * (1 / 8)).sum(1)

    function = joinsum.compile(scaled)
    for batch in (8, 6, 4):
        x = torch.rand(batch, 5)
        torch.testing.assert_close(function(x), scaled(x))


# --- plans on disk ----------------------------------------------------------------------------------------------------

PROGRAM = """
import json, sys
import joinsum, torch
from models import CASES, batches, new_model
from training import CUTTING, sgd
joinsum.init(sites=3, cluster=CUTTING)
from joinsum.planner import plan_choice
count, search = 0, plan_choice._searched
def counted(*arguments):
    global count
    count += 1
    return search(*arguments)
plan_choice._searched = counted
model, steps = new_model("mlp"), []
step = joinsum.train_step(model, CASES["mlp"].loss, sgd(model.parameters()))
for n in map(int, sys.argv[1:]):
    loss = step(*batches("mlp", 1, n)[0]).item()
    steps.append((loss, step.explain().passes[0].origin))
print(json.dumps([count, steps]))
"""


def test_a_second_process_takes_planned_and_reused_plans_from_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("JOINSUM_PLAN_CACHE", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2] / "support"))

    def run(*sizes: int) -> tuple[int, list[tuple[float, str]]]:
        command = [sys.executable, "-c", PROGRAM, *map(str, sizes)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        count, steps = json.loads(output)
        return count, steps

    first, second = run(33, 33, 30), run(33, 33, 30)
    assert (first[0], second[0]) == (1, 0)
    assert first[1][0][1] == "planned here"
    assert first[1][2][1] == second[1][2][1] == OTHER
    folder = re.escape(str(tmp_path / "joinsum" / "plans"))
    assert re.fullmatch(rf"cached in {folder}/\w+\.json", second[1][0][1])
    assert all(math.isclose(a[0], b[0], rel_tol=1e-6) for a, b in zip(first[1], second[1], strict=True))
    # A process that meets another size takes the cached plan for it: no search.
    third = run(33, 33, 27)
    assert third[0] == 0
    assert third[1][2][1] == OTHER
