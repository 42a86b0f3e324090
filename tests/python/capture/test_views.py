"""Views that change nothing are gone from captured graphs, and results are what they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from joinsum.capture.views import merge_views
from torch.fx.experimental.proxy_tensor import make_fx

X = torch.arange(24.0).view(4, 6)


def gone(function: Callable[..., Any], *tensors: torch.Tensor) -> int:
    """How many operators are gone from the graph; its results are those of before."""
    gm = make_fx(function, tracing_mode="fake")(*tensors)
    before = gm(*tensors)
    count = merge_views(gm.graph)
    gm.graph.lint()
    gm.recompile()
    after = gm(*tensors)
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    for one, other in zip(after, before, strict=True):
        assert one.stride() == other.stride()
    assert len({id(each) for each in after}) == len(after), "a result is given twice"
    return count


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (lambda x: [x.t().t().exp()], 2),
        (lambda x: [x.transpose(0, 1).transpose(-1, -2).exp()], 2),
        (lambda x: [x.unsqueeze(0).transpose(0, 1).transpose(1, 2).exp()], 0),
        (lambda x: [x.detach().exp()], 1),
        (lambda x: [x.view(4, 6).exp()], 1),
        (lambda x: [x.view(24).view(6, 4).exp()], 1),
        (lambda x: [x.t().exp(), x.t().sin(), x.t().cos()], 2),
        (lambda x: [x.view(2, 12).exp(), x.view(12, 2).exp()], 0),
        (lambda x: [x.t().exp(), x.permute(1, 0).exp()], 0),
    ],
)
def test_views_that_there_are_already_are_gone(function: Callable[..., Any], count: int) -> None:
    assert gone(function, X) == count


def test_a_view_of_a_view_that_is_not_contiguous_stays() -> None:
    # The middle view splits the axis of stride 1, the last one merges what lies apart: torch refuses it in one step.
    assert gone(lambda x: [x.t().view(6, 2, 2).view(6, 4).exp()], X) == 0


def test_results_stay_tensors_of_their_own() -> None:
    assert gone(lambda x: [x.detach(), x.view(4, 6), x.t(), x.t(), (y := x.exp()), y.detach()], X) == 0
