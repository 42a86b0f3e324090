"""What `joinsum.explain` reports of models, functions and training steps: the plans of their captured graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from joinsum.base.errors import PlanError
from joinsum.capture.captured_graph import Executable
from joinsum.cluster.context import context
from joinsum.explanation.analyze import measured_step
from joinsum.explanation.explanation import Explanation
from joinsum.explanation.measured import Measured
from joinsum.explanation.model_text import ModelExplanation, Pass
from joinsum.frontend.planned_forward import captured_model
from joinsum.frontend.training.train_step import TrainStep, train_step
from joinsum.ist.alternative import SubnetAlternative, subnet_alternative
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
        return _explain_step(x, *args, baselines=baselines, **keywords)
    if not args and not keywords:
        raise PlanError(f"explain: the plan depends on what it is called with; give that: explain({_name(x)}, inputs)")
    captured = captured_model("explain", x, args, keywords)
    passes = zip(("forward", "backward"), captured.programs, strict=False)
    executables = [(name, program.executable) for name, program in passes if program.executable is not None]
    return explained(executables, baselines)


def explained(
    executables: Iterable[tuple[str, Executable]],
    baselines: bool = False,
    measured: Measured | None = None,
    alternative: SubnetAlternative | None = None,
) -> ModelExplanation:
    """Plans with their costs on the context's cluster, and the costs of the baselines if requested."""
    passes = []
    for name, executable in executables:
        planned = executable.planned
        others = executable.baselines() if baselines else ()
        explanation = Explanation(planned.plan, cost(planned.plan), planned.program, measured=measured)
        passes.append(Pass(name, planned.origin, explanation, others, alternative, executable.modules()))
    return ModelExplanation(tuple(passes))


def _name(x: Callable[..., Any]) -> str:
    return "model" if isinstance(x, torch.nn.Module) else getattr(x, "__name__", "function")


def _explain_step(
    step: TrainStep, *batch: Any, baselines: bool = False, analyze: bool = False, **keywords: Any
) -> ModelExplanation:
    """The plan of a step, a `ModelExplanation`: the layout of parameters and state, what moves, what takes the time.
    Nothing is computed.

    batch, keywords   as for the step itself, of which shapes and dtypes count; without them, the step that ran last
    baselines         also prices the usual baselines; each costs a search. Besides, what independent subnet training
                      would move, which is another training and never chosen
    analyze           for the step that ran last, without a batch: seconds and bytes that were measured beside the
                      predicted ones, and how much of the moves' time was hidden behind computations; all ranks call

    Raises PlanError without a batch before the first step, with `analyze` also on one site, where torch runs the step,
    with a batch, and where something else ran since; and what a step raises.

    >>> import joinsum, torch
    >>> _ = joinsum.init(sites=2)
    >>> model = torch.nn.Linear(64, 64)
    >>> step = joinsum.train_step(model, torch.nn.functional.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1))
    >>> explained = step.explain(torch.ones(8, 64), torch.ones(8, 64))
    >>> explained.passes[0].name, "weight" in explained.passes[0].inputs
    ('train step', True)
    """
    executable = step.captured_or_last(*batch, **keywords)
    if not analyze:
        alternative = subnet_alternative(step.model, context().sites) if baselines else None
        return explained([("train step", executable)], baselines, alternative=alternative)
    if batch or keywords:
        raise PlanError("explain: analyze=True shows the step that ran last; leave the batch out")
    return explained([("train step", executable)], baselines, measured_step(executable.planned.plan))


TrainStep.explain = _explain_step  # the class is in a room below this one
