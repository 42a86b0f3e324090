"""What `joinsum.explain` reports of models, functions and training steps: the plans of their captured graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from joinsum.base.errors import PlanError
from joinsum.capture.captured_graph import Executable
from joinsum.explanation.explanation import Explanation
from joinsum.explanation.model_text import ModelExplanation, Pass
from joinsum.frontend.distribute import captured_model
from joinsum.frontend.training.train_step import TrainStep, train_step
from joinsum.planner.cost import cost

__all__ = ["TrainStep", "explain_callable", "explained", "train_step"]


def explain_callable(
    x: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any], baselines: bool
) -> ModelExplanation:
    """The plans of a step, a model or a function for these arguments; nothing is computed. On a process group all ranks
    call. Raises what capturing it raises.

    baselines   whether the forward pass, or the whole step, is compared with the usual baselines
    """
    if isinstance(x, TrainStep):
        return explained([("train step", x.captured_or_last(*args, **keywords))], baselines)
    if not args and not keywords:
        raise PlanError(f"explain: the plan depends on what it is called with; give that: explain({_name(x)}, inputs)")
    captured = captured_model("explain", x, args, keywords)
    passes = zip(("forward", "backward"), captured.programs, strict=False)
    executables = [(name, program.executable) for name, program in passes if program.executable is not None]
    return explained(executables, baselines)


def explained(executables: Iterable[tuple[str, Executable]], baselines: bool = False) -> ModelExplanation:
    """Plans with their costs on the context's cluster, and the costs of the baselines if requested."""
    passes = []
    for name, executable in executables:
        planned = executable.planned
        others = executable.baselines() if baselines else ()
        explanation = Explanation(planned.plan, cost(planned.plan), planned.program)
        passes.append(Pass(name, planned.origin, explanation, others, executable.modules()))
    return ModelExplanation(tuple(passes))


def _name(x: Callable[..., Any]) -> str:
    return "model" if isinstance(x, torch.nn.Module) else getattr(x, "__name__", "function")


def _explain_step(step: TrainStep, *batch: Any, baselines: bool = False, **keywords: Any) -> ModelExplanation:
    """The plan of a step, a `ModelExplanation`: the layout of parameters and state, what moves, what takes the time.
    Nothing is computed.

    batch, keywords   as for the step itself, of which shapes and dtypes count; without them, the step that ran last
    baselines         also prices the usual baselines; each costs a search

    Raises PlanError without a batch before the first step, and what a step raises.

    >>> import joinsum, torch
    >>> _ = joinsum.init(sites=2)
    >>> model = torch.nn.Linear(64, 64)
    >>> step = joinsum.train_step(model, torch.nn.functional.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1))
    >>> explained = step.explain(torch.ones(8, 64), torch.ones(8, 64))
    >>> explained.passes[0].name, "weight" in explained.passes[0].inputs
    ('train step', True)
    """
    return explain_callable(step, batch, keywords, baselines)


TrainStep.explain = _explain_step  # the class is in a room below this one
