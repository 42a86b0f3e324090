"""Explanations of models: their operators by the user's modules."""

from __future__ import annotations

from dataclasses import replace

import joinsum
import pytest
import torch
from joinsum.explanation.model_text import Pass, names_text
from torch import nn
from training import CUTTING


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.softmax(self.up(self.norm(x)), -1))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Block(), Block()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


PATHS = {f"layers.{layer}.{name}" for layer in range(2) for name in ("norm", "up", "down")}


def modules(plan: Pass) -> set[str]:
    return {vertex.module for vertex in plan.vertices}


@pytest.mark.parametrize("sites", [1, 4])
def test_operators_of_both_passes_name_the_users_modules(sites: int) -> None:
    joinsum.init(sites=sites)
    forward, backward = joinsum.explain(Model(), torch.rand(8, 16)).passes
    assert modules(forward) >= PATHS
    assert {path for path in PATHS if not path.endswith("norm")} <= modules(backward)


def test_operators_of_a_training_step_name_the_users_modules() -> None:
    joinsum.init(sites=2)
    model = Model()
    step = joinsum.train_step(model, nn.functional.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1))
    explained = step.explain(torch.rand(8, 16), torch.rand(8, 16))
    assert modules(explained.passes[0]) >= PATHS


def test_equal_operators_of_numbered_modules_are_one_line() -> None:
    joinsum.init(sites=4)
    lines = str(joinsum.explain(Model(), torch.rand(8, 16)).passes[0]).splitlines()
    assert any(" layers.{0..1}.up " in line for line in lines)
    assert any(line.split()[:3] == ["what", "module", "result"] for line in lines)


def test_a_function_has_no_column_of_modules() -> None:
    joinsum.init(sites=2)
    text = str(joinsum.explain(lambda x: torch.tanh(x @ x), torch.rand(8, 8)))
    assert "module" not in text


def test_names_that_differ_in_numbers_are_one() -> None:
    assert names_text([""]) == ""
    assert names_text(["a.0.b", "a.2.b"]) == "a.*.b"


def trained_step() -> joinsum.TrainStep:
    model = Model()
    step = joinsum.train_step(model, nn.functional.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1))
    step(torch.rand(8, 16), torch.rand(8, 16))
    return step


def test_what_a_step_did_is_shown_beside_its_prediction() -> None:
    joinsum.init(sites=4, cluster=CUTTING)
    step = trained_step()
    entries = {entry.node: entry for entry in joinsum.trace()}
    (shown,) = step.explain(analyze=True).passes
    measured = shown.explanation.measured
    assert measured is not None
    assert measured.total.wire_bytes == sum(entry.bytes_sent for entry in entries.values())
    assert all(vertex.measured == entries[vertex.node].seconds for vertex in shown.vertices)
    assert any(vertex.moves for vertex in shown.vertices)
    lines = str(shown).splitlines()
    assert any(line.startswith("operators and moves of the last step on 4 sites of loopback") for line in lines)
    assert any(line.split()[-2:] == ["time", "measured"] for line in lines)
    assert "measured" not in str(step.explain())


def test_what_sites_did_not_wait_for_is_hidden() -> None:
    joinsum.init(sites=4, cluster=CUTTING)
    (shown,) = trained_step().explain(analyze=True).passes
    measured = shown.explanation.measured
    assert measured is not None
    moves = [vertex.node for vertex in shown.vertices if vertex.moves]
    # As if sites of a process group had spent a tenth of the predicted seconds on each move.
    costs = {cost.node: cost.seconds for cost in shown.explanation.cost.nodes}
    nodes = {name: figures._replace(seconds=costs[name] / 10) for name, figures in measured.nodes.items()}
    run = replace(measured, nodes=nodes, loopback=False)
    lines = str(replace(shown, explanation=replace(shown.explanation, measured=run))).splitlines()
    assert moves
    assert any(line.endswith("measured, 90% of the moves' time hidden") for line in lines)
    assert any(line.split()[-1:] == ["hidden"] for line in lines)


def test_figures_are_of_the_step_that_ran_last() -> None:
    joinsum.init(sites=4, cluster=CUTTING)
    step = trained_step()
    with pytest.raises(joinsum.PlanError, match="leave the batch out"):
        step.explain(torch.rand(8, 16), torch.rand(8, 16), analyze=True)
    trained_step()  # whose plan has the same nodes
    with pytest.raises(joinsum.PlanError, match="nothing else may run"):
        step.explain(analyze=True)
    joinsum.init(sites=1)
    with pytest.raises(joinsum.PlanError, match=r"use torch\.profiler"):
        trained_step().explain(analyze=True)
