"""Refuses graphs with sizes that depend on data where torch's symbols for them would have no value."""

from __future__ import annotations

import torch
from torch.fx.experimental.symbolic_shapes import free_symbols, free_unbacked_symbols

from joinsum.base.errors import CaptureError
from joinsum.capture.recording.application import operator_name, source_line

__all__ = ["check_sizes"]


def check_sizes(graph: torch.fx.Graph, joint: torch.fx.Graph | None = None) -> None:
    """Raises CaptureError, with the user's line, for a graph that has sizes of its inputs as symbols, if a size in it
    depends on data. Where all sizes of inputs are numbers, capture refuses the operators that it cannot run.

    joint   of which it is the backward graph
    """
    if not any(free_symbols(node.meta.get("val")) for node in graph.find_nodes(op="placeholder")):
        return
    called = (node for node in (joint or graph).nodes if node.op == "call_function")
    first = next((node for node in called if free_unbacked_symbols(node.meta.get("val"))), None)
    if first is None:
        return
    target = first.target
    name = operator_name(target) if isinstance(target, torch._ops.OpOverload) else str(target)
    raise CaptureError(
        f"capture: a shape or number depends on data: operator={name}, at={source_line(first)}; "
        "take torch.where, or sums over a mask, or leave it out of the captured code"
    )
