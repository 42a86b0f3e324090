"""Templates against recordings of the same functions at other sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import joinsum
import pytest
import torch
from joinsum.capture.record import record_with_template
from joinsum.capture.recording.recorded import Recorded
from joinsum.capture.recording.symbolic_numbers import SymbolicNumbers
from joinsum.capture.recording.template import Template
from joinsum.frontend.tracing.sizes import _with_sizes, sizes_in, sources_of
from resized_programs import assert_same
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

Function = Callable[[Tensor], Tensor]


def recording(function: Function, x: Tensor, sizes: Any = None) -> tuple[Recorded, Template | None, dict[str, int]]:
    """The program of a function that is traced with symbolic sizes, for those of `x` or others."""
    gm = make_fx(function, tracing_mode="symbolic")(x)
    examples = [node.meta["val"] for node in gm.graph.find_nodes(op="placeholder")]
    traced = dict(sizes_in(sources_of(examples), examples))
    found = dict(zip(traced, sizes, strict=True)) if sizes is not None else traced
    numbers = SymbolicNumbers(found)
    graph, _ = _with_sizes(gm, examples, found, numbers)
    return *record_with_template(graph, ["x"], (), {}, {}, numbers), found


def template_at(function: Function, first: tuple[int, int], then: tuple[int, int]) -> bool:
    """Whether the program for the first sizes has a template for the second ones; it has to be their program."""
    x = torch.ones(first, dtype=torch.float64)
    _, template, sizes = recording(function, x)
    wanted, _, _ = recording(function, x, then)
    resized = None if template is None else template.at(dict(zip(sizes, then, strict=True)))
    if resized is not None:
        assert_same(resized.signature, resized.graph, wanted, wanted.graph())
    return resized is not None


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.mean(1) / x.shape[0],
        lambda x: x + torch.arange(x.shape[1]) * x.shape[0],
        lambda x: x[1:, :-1].reshape(-1) * 2,
        lambda x: torch.cat([x, x.new_zeros(x.shape[0], 3)], 1).softmax(1),
        lambda x: torch.nn.functional.pad(x, (2, 1)).cumsum(1),
        lambda x: torch.triu(torch.ones(x.shape[1], x.shape[1])) @ x.T.float(),
        lambda x: x * 50021 + 50022.0,
    ],
)
def test_the_program_for_other_sizes(function: Function) -> None:
    assert template_at(function, (4, 6), (5, 9))


def test_other_branches_are_other_programs() -> None:
    def function(x: Tensor) -> Tensor:
        halves = x.reshape(-1, 2)
        return halves.sum(0)

    assert template_at(function, (4, 6), (5, 8))
    # Without elements the slice is left out.
    assert not template_at(lambda x: torch.cat([x[:, 3:], x], 1), (4, 6), (5, 3))


def test_a_constant_of_equal_elements_keeps_its_element() -> None:
    def by_length(x: Tensor) -> Tensor:
        return x + torch.full((x.shape[1],), 2.0) * torch.ones(x.shape[1])

    assert template_at(by_length, (4, 6), (5, 9))
    # Its elements are no longer equal.
    assert not template_at(lambda x: x.sum() + torch.arange(x.shape[1] - 5), (4, 6), (5, 9))
    # Its element is another one.
    assert not template_at(lambda x: x + torch.full((1, 2), x.shape[1]).sum(), (4, 6), (5, 9))


def test_a_program_with_all_marks_has_no_template(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("joinsum.capture.recording.template._FIRST_MARKS", (50021,))
    assert not template_at(lambda x: x * 50021, (4, 6), (5, 9))
    assert template_at(lambda x: x * 40021, (4, 6), (5, 9))


def test_a_program_of_plain_numbers_has_no_template() -> None:
    gm = make_fx(lambda x: x + 1, tracing_mode="fake")(torch.ones(3))
    assert record_with_template(gm, ["x"], (), {}, {}, None)[1] is None


def test_outputs_with_the_axes_of_the_user() -> None:
    joinsum.init(sites=2)
    x = torch.ones(4, 6)
    _, template, sizes = recording(lambda x: x.T + 1, x)
    wanted, _, _ = recording(lambda x: x.T + 1, x, (5, 9))
    assert template is not None
    resized = template.at(dict(zip(sizes, (5, 9), strict=True)), {"output.0"})
    assert resized is not None
    assert str(resized.graph) == str(wanted.graph({"output.0"}))
    joinsum.init()
