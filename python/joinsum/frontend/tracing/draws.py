"""Random draws that are not supported: those without a rule, as each site would draw other numbers. They are refused in
the graph that Dynamo captured, where the user's line is known, also if it is code of torch.distributions that draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from joinsum.base.errors import CaptureError
from joinsum.capture.operators.table import rule_of
from joinsum.frontend.tracing.user_code import place_in

__all__ = ["check_draws"]

# The operator that each function calls.
_DRAWS: dict[Any, str] = {
    torch._standard_gamma: "aten::_standard_gamma",
    torch._sample_dirichlet: "aten::_sample_dirichlet",
    torch.binomial: "aten::binomial",
    torch.poisson: "aten::poisson",
}


def check_draws(gm: torch.fx.GraphModule) -> None:
    """Raises CaptureError, with the user's line, if a graph of Dynamo's has a draw without a rule."""
    graphs = [module.graph for module in gm.modules() if isinstance(module, torch.fx.GraphModule)]
    for node in (node for graph in graphs for node in graph.nodes if node.op == "call_function"):
        name = _DRAWS.get(node.target)
        if name is not None and rule_of(name) is None:
            place = place_in(node.meta.get("stack_trace") or "")
            raise CaptureError(
                f"capture: such random draws are not supported: operator={name}{place}; draw with torch.rand, "
                "torch.randn or torch.randint, or in the code that calls this"
            )


def _trace(name: str, fake: Callable[..., torch.Tensor]) -> None:
    """Lets torch trace an operator of which it does not know the shape. This acts on the whole process, as torch's own
    knowledge of shapes does; without it the trace ends before there is a graph, in the gradient of a draw."""
    operator = getattr(torch.ops.aten, name).default
    if not operator.has_kernel_for_dispatch_key(torch._C.DispatchKey.Meta):
        torch.library.register_fake(f"aten::{name}", fake, allow_override=True)


_trace("_standard_gamma_grad", lambda self, output: torch.empty_like(self))
_trace("_sample_dirichlet", lambda self, generator=None: torch.empty_like(self))
_trace("_dirichlet_grad", lambda x, alpha, total: torch.empty_like(x))
