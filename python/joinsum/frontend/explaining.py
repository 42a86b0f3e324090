"""What `joinsum.explain` tells of models, functions and training steps: the plans of their captured graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from joinsum.cost import cost
from joinsum.errors import PlanError
from joinsum.explanation import Explanation
from joinsum.explanation.model_text import ModelExplanation, Pass
from joinsum.frontend.distribute import captured_model
from joinsum.frontend.runner import Runner
from joinsum.frontend.train_step import TrainStep
from joinsum.plan import IaPlan

__all__ = ["explain_callable", "explained"]


def explain_callable(
    x: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any], baselines: bool
) -> ModelExplanation:
    """The plans of a step, a model or a function for these arguments; nothing is computed. On a process group all ranks
    call. Raises what capturing it raises.

    baselines   whether the forward pass, or the whole step, is compared with plans that people make by hand
    """
    if isinstance(x, TrainStep):
        return x.explain(*args, baselines=baselines, **keywords)
    if not args and not keywords:
        raise PlanError(f"explain: the plan depends on what it is called with; give that: explain({_name(x)}, inputs)")
    captured = captured_model("explain", x, args, keywords)
    passes = zip(("forward", "backward"), captured.programs, strict=False)
    runners = [(name, program.runner) for name, program in passes if program.runner is not None]
    return explained(runners, baselines)


def explained(runners: Iterable[tuple[str, Runner]], baselines: bool = False) -> ModelExplanation:
    """Plans with their costs on the context's cluster, and those of plans made by hand if they are asked for."""
    passes = []
    for name, runner in runners:
        choice = runner.choice
        plan = IaPlan(choice.plan)
        others = runner.baselines() if baselines else ()
        passes.append(Pass(name, choice.origin, Explanation(plan, cost(plan), choice.program), others))
    return ModelExplanation(tuple(passes))


def _name(x: Callable[..., Any]) -> str:
    return "model" if isinstance(x, torch.nn.Module) else getattr(x, "__name__", "function")
