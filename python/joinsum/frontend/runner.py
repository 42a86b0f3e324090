"""What runs captured graphs: one seam, so that the ways in know nothing of plans."""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import torch

from joinsum import _C
from joinsum.context import context
from joinsum.explanation.model_text import PassBaseline
from joinsum.graph_choice import Choice

__all__ = ["Runner", "compile_fx", "rewrite"]


class Runner(Protocol):
    """A captured graph with its plan.

    input_types   for each input, where the plan wants it; None for one that is no tensor or is not read
    """

    @property
    def input_types(self) -> Sequence[_C.PhysicalType | None]: ...

    @property
    def recorded(self) -> Any:
        """The program, a `joinsum.capture.recorded.Recorded`."""
        ...

    @property
    def choice(self) -> Choice:
        """The plan that ran last; before that, the one for whole inputs."""
        ...

    def baselines(self) -> tuple[PassBaseline, ...]:
        """What plans that people make by hand cost; none where nobody told which inputs are kept between runs."""
        ...

    def __call__(self, args: list[Any]) -> list[torch.Tensor]:
        """The results, for whole tensors (equal on every rank) or distributed ones, in the graph's order. The list may
        be emptied."""
        ...


def compile_fx(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    names: Sequence[str] | None,
    ties: Mapping[int, int],
    stay: Collection[int],
    state: Collection[int] | None = None,
    replicate: Collection[str] = (),
) -> Runner:
    """Plans a graph of ATen operators for the sites there are.

    example_inputs   for each placeholder a tensor, that may be fake, or a number
    names            what inputs are called in explanations and errors
    ties             for a result, the input whose blocks it may overwrite
    stay             results that stay distributed; the others are plain tensors on every rank
    state            positions of the inputs that are kept between runs, as parameters are; the others are data. Plans
                     that people make by hand from that are never better than the chosen one; None where it is not known
    replicate        operators without a rule, `aten::...`, that run whole on every site

    Raises CaptureError for an operator that is not captured, PlanError, KernelError.
    """
    capture = importlib.import_module("joinsum.capture.runner")
    made: Runner = capture.compile_fx(
        gm, example_inputs, names=names, ties=ties, stay=stay, state=state, replicate=replicate
    )
    return made


def rewrite(gm: torch.fx.GraphModule) -> None:
    """Contractions of a Dynamo graph become joinsum's einsum operator, which keeps their labels; in place. On one site
    they stay torch's."""
    if context().sites > 1:
        importlib.import_module("joinsum.capture.rewrite").rewrite(gm)
