"""Evaluation of the full model where a site has no room for a whole tensor."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import joinsum
import pytest
import torch
from torch import nn

SITES = 4


@pytest.fixture(autouse=True)
def one_site_afterwards() -> Iterator[None]:
    yield
    joinsum.init()


def evaluated(limit: int | None) -> tuple[torch.Tensor, int]:
    """What the full model computes, and the most bytes that a site had."""
    joinsum.init(sites=SITES, cluster=joinsum.Cluster(memory_bytes=limit))
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Linear(64, 1024), nn.BatchNorm1d(1024), nn.ReLU()),
        *(nn.Linear(1024, 1024), nn.BatchNorm1d(1024), nn.ReLU()),
        nn.Linear(1024, 16),
    )
    inputs = torch.randn(1024, 64)
    ist = joinsum.IST(model, torch.optim.SGD(model.parameters(), lr=0.1), every=2)
    with ist.full() as full, torch.no_grad():
        found = full(inputs)
    return found, max(each.site_bytes for each in joinsum.trace())


def test_a_plan_of_the_full_model_has_no_tensor_whole_where_a_site_has_no_room_for_it():
    limit = 7_000_000
    wanted, without_limit = evaluated(None)
    found, most = evaluated(limit)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
    assert most <= limit < without_limit


# --- what the copy of the model is made of ----------------------------------------------------------------------------


def perceptron(width: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(width, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def trained(model: nn.Module, inputs: list[Any], sites: int = 2) -> joinsum.IST:
    joinsum.init(sites=sites)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    ist = joinsum.IST(model, optimizer, every=1)
    for x in inputs:
        optimizer.zero_grad()
        (model(**x) if isinstance(x, dict) else model(x)).square().mean().backward()
        optimizer.step()
    return ist


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.recurrent, self.head = kind(5, 6, batch_first=True), perceptron(6)

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self.recurrent(x)[0][:, -1])


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_a_full_model_has_recurrent_modules(kind: type[nn.RNNBase]) -> None:
    model = Recurrent(kind)
    inputs = [torch.randn(4, 3, 5) for _ in range(6)]
    ist = trained(model, inputs)
    for _ in range(2):
        with ist.full() as full, torch.no_grad():
            found = full(inputs[0])
    ist.gather()
    torch.testing.assert_close(found, model.eval()(inputs[0]))


class Caching(nn.Module):
    """Keeps a result of its last call."""

    def __init__(self) -> None:
        super().__init__()
        self.head = perceptron(5)

    def forward(self, x: torch.Tensor) -> Any:
        self.last = [self.head(x)]
        return self.last[0]


def test_results_of_a_warm_up_call_are_not_copied() -> None:
    model = Caching()
    inputs = [torch.randn(4, 5) for _ in range(4)]
    model(inputs[0])
    ist = trained(model, inputs)
    with ist.full() as full, torch.no_grad():
        found = full(inputs[0])
    ist.gather()
    torch.testing.assert_close(found, model.eval()(inputs[0]))


@pytest.mark.filterwarnings("ignore:.*weight_norm.*")
def test_a_weight_that_a_hook_computes_is_not_copied() -> None:
    model = nn.Sequential(nn.utils.weight_norm(nn.Linear(5, 5)), nn.LayerNorm(5), *perceptron(5))
    inputs = [torch.randn(4, 5) for _ in range(4)]
    ist = trained(model, inputs)
    with ist.full(calibrate=inputs) as full, torch.no_grad():
        assert full(inputs[0]).shape == (4, 2)


def test_a_model_that_cannot_be_copied_is_trained_and_the_attribute_named(tmp_path: Path) -> None:
    model = perceptron(5)
    model[2].lock = threading.Lock()
    ist = trained(model, [torch.randn(4, 5) for _ in range(4)])
    assert ist.rounds == 2
    for call in (lambda: ist.full().__enter__(), lambda: ist.save_checkpoint(tmp_path)):
        with pytest.raises(joinsum.PlanError, match="module='2', attribute=lock"):
            call()
    assert ist.gather()[0].weight.shape == (8, 5)


# --- batches ----------------------------------------------------------------------------------------------------------


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = perceptron(5)

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        found = self.head(x)
        return found if labels is None else found - labels


class Reading(nn.Module):
    """Takes a whole batch."""

    def __init__(self) -> None:
        super().__init__()
        self.head = perceptron(5)

    def forward(self, batch: dict[str, torch.Tensor]) -> Any:
        return self.head(batch["x"])


def test_batches_that_are_mappings_are_passed_by_name() -> None:
    inputs = [torch.randn(4, 5) for _ in range(4)]
    named = [{"x": x, "labels": torch.ones(4, 2)} for x in inputs]
    means = []
    for batches in (named, [(x, 0) for x in inputs], [{"x": x} for x in inputs]):
        ist = trained(Named(), [{"x": x} for x in inputs])
        with ist.full(calibrate=batches) as full:
            means.append(joinsum.full_state_dict(full)["head.1.running_mean"])
    assert torch.equal(means[0], means[1])
    assert torch.equal(means[0], means[2])
    other = [{"x": x, "name": "text"} for x in inputs]
    with pytest.raises(joinsum.PlanError, match=r"keys=\['x', 'name'\], arguments=\['x', 'labels'\]"), ist.full(other):
        pass
    strange = [{"pixels": x} for x in inputs]
    with pytest.raises(joinsum.PlanError, match=r"keys=\['pixels'\], arguments=\['x', 'labels'\]"), ist.full(strange):
        pass


class Passing(Named):
    """Says nothing of its arguments, as a wrapper does."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        return super().forward(*args, **kwargs)


def test_a_wrapper_gets_mappings_by_name() -> None:
    inputs = [torch.randn(4, 5) for _ in range(4)]
    means = []
    for model, batches in ((Passing(), [{"x": x} for x in inputs]), (Named(), inputs)):
        ist = trained(model, [{"x": x} for x in inputs])
        with ist.full(calibrate=batches) as full:
            means.append(joinsum.full_state_dict(full)["head.1.running_mean"])
    assert torch.equal(means[0], means[1])


def test_a_forward_pass_that_reads_a_mapping_gets_it_whole() -> None:
    inputs = [torch.randn(4, 5) for _ in range(4)]
    ist = trained(Reading(), [{"batch": {"x": x}} for x in inputs])
    with ist.full(calibrate=[{"x": x} for x in inputs]) as full, torch.no_grad():
        assert full({"x": inputs[0]}).shape == (4, 2)


class Branching(Named):
    def forward(self, x: torch.Tensor) -> Any:  # type: ignore[override]
        return self.head(x if x.sum() > 0 else -x)


def test_a_model_that_cannot_be_captured_trains_and_the_error_says_what_to_do() -> None:
    joinsum.init(sites=2)
    model = Branching()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    norm, last = "head.1", f"head.{len(model.head) - 1}"
    ist = joinsum.IST(model, optimizer, every=1, layers=[("head.0", norm, last)])
    for _ in range(4):
        model(torch.randn(4, 5)).square().sum().backward()
        optimizer.step()
    refusal = r"IST: the full model cannot be planned: a branch depends on a tensor's value.*ist\.gather\(\)"
    with pytest.raises(joinsum.CaptureError, match=refusal), ist.full() as full:
        full(torch.randn(4, 5))
    ist.gather()
    assert model(torch.randn(4, 5)).shape == (4, 2)


def test_batches_to_calibrate_with_are_checked() -> None:
    ist = trained(perceptron(5), [torch.randn(4, 5) for _ in range(4)])
    for batches in (torch.randn(4, 5), 5):
        with pytest.raises(joinsum.PlanError, match="calibrate is an iterable of batches"), ist.full(batches):  # type: ignore[arg-type]
            pass
    for count, reason in ((0, "at least one batch: batches=0"), (1.5, "batches is an integer: batches=1.5")):
        with pytest.raises(joinsum.PlanError, match=reason), ist.full([torch.randn(4, 5)], count):  # type: ignore[arg-type]
            pass


def test_no_state_is_loaded_into_a_subnet() -> None:
    model = perceptron(5)
    whole = model.state_dict()
    ist = trained(model, [torch.randn(4, 5) for _ in range(4)])
    for load in (
        lambda: model.load_state_dict(whole),
        lambda: model[0].load_state_dict({}),
        lambda: ist.optimizer.load_state_dict({}),
    ):
        with pytest.raises(joinsum.PlanError, match="read a checkpoint with"):
            load()
    ist.gather()
    model.load_state_dict(whole)
