"""Claims about errors of runs: indices and labels out of range are said in the user's words."""

from __future__ import annotations

from collections.abc import Iterator

import joinsum
import pytest
import torch
import torch.nn.functional as F
from joinsum import TransportError
from joinsum.capture.run_errors import in_users_words
from torch import nn


@pytest.fixture(autouse=True)
def two_sites() -> Iterator[None]:
    torch._dynamo.reset()
    joinsum.init(sites=2)
    yield
    joinsum.init()


def test_a_label_out_of_range_is_said_in_one_sentence() -> None:
    model = nn.Linear(10, 4)
    step = joinsum.train_step(model, F.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.1))
    x, y = torch.randn(8, 10), torch.arange(8) % 4
    step(x, y)
    with pytest.raises(IndexError) as caught:
        step(x, y + 4 * (y == 3))
    assert (
        str(caught.value) == "capture: a label is out of range: label=7, classes=4; labels are the numbers from 0 to 3"
    )
    assert step(x, y).isfinite()


def test_an_index_out_of_range_names_its_operator_alone() -> None:
    model = nn.Embedding(10, 6)
    step = joinsum.train_step(model, lambda out, _: out.sum(), torch.optim.SGD(model.parameters(), lr=0.1))
    step(torch.arange(8), torch.zeros(()))
    with pytest.raises(IndexError, match=r"^capture: .*index.*out of range.*operator=\S+$") as caught:
        step(torch.arange(8) + 5, torch.zeros(()))
    assert "call" not in str(caught.value)


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("run: sites differ: line=2, site 0: input x: f32[8], site 1: input x: f32[6]", "input=x, site 0: f32[8], "),
        (
            "agree: sites make different calls: site 0: capture, site 2: run; every rank makes all calls, in one order",
            "site 0 captures a graph for new inputs, or has raised an error, and site 2 runs a graph that it captured "
            "before; the inputs of this rank: x=[8] torch.float32; pass the same batch on all ranks, or each",
        ),
    ],
)
def test_ranks_with_other_batches_are_told_what_to_do(said: str, wanted: str) -> None:
    found = in_users_words(TransportError(said), {"rate": "[] torch.float32", "x": "[8] torch.float32"})
    assert isinstance(found, TransportError)
    assert wanted in str(found)
    assert 'data="sharded"' in str(found)


@pytest.mark.parametrize(
    "error",
    [
        TransportError("run: site 1 is lost"),
        TransportError("run: sites differ: line=2, site 0: input w: [8], site 1: input w: [6]"),
        TransportError(
            "capture: sites differ: line=3, site 0: input x: [8], site 1: (no plan) PlanError: input x: [6]"
        ),
        TransportError("agree: sites make different calls: site 0: norm, site 1: run; every rank makes all calls"),
        IndexError("Target 7 is out of bounds."),
        RuntimeError("call: torch's operator fails: operator=aten::mm, error=index out of range, call=0"),
    ],
)
def test_what_has_another_cause_stays_as_it_is(error: Exception) -> None:
    assert in_users_words(error, {"x": "[8] torch.float32"}) is None
