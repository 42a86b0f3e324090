"""Operators of a graph that have no rule: one error names all of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import torch
from torch import fx

from joinsum.base.errors import CaptureError
from joinsum.capture.operators.table import rule_of
from joinsum.capture.recording.application import described, is_random, operator_name, refuse

__all__ = ["refuse_missing_rules"]


def refuse_missing_rules(nodes: Iterable[fx.Node], replicate: Collection[str] = ()) -> None:
    """Raises CaptureError if operators of a graph have no rule, with the place where each occurs first. Operators that
    depend on no input do not count.

    replicate   operators that every site runs instead, which random ones cannot be: each site would draw other numbers
    """
    missing: dict[str, fx.Node] = {}
    checks: dict[str, fx.Node] = {}  # of numbers that depend on values
    constant: set[fx.Node] = set()
    for node in nodes:
        if node.op == "get_attr" or (node.op == "call_function" and constant.issuperset(node.all_input_nodes)):
            constant.add(node)
        elif isinstance(node.target, torch._ops.OpOverload):
            name = operator_name(node.target)
            if rule_of(name) is None and is_random(node.target):
                raise CaptureError(
                    f"capture: such random draws are not supported: {described(name, node, _shapes(node))}; draw with "
                    "torch.rand, torch.randn or torch.randint, or in the code that calls this"
                )
            if rule_of(name) is None and name not in replicate and _needs_rule(node):
                is_check = node.meta.get("val") is None and not _shapes(node)
                (checks if is_check else missing).setdefault(name, node)
    if not missing:
        missing = dict(list(checks.items())[:1])
    if len(missing) == 1:
        ((name, node),) = missing.items()
        refuse(name, node, "there is no rule for this operator", _shapes(node))
    if missing:
        lines = [f"  {described(name, node, _shapes(node))}" for name, node in missing.items()]
        names = ", ".join(f'"{name}"' for name in missing)
        raise CaptureError(
            "\n".join([f"capture: there are no rules for these operators: count={len(missing)}", *lines])
            + "\ngive them rules with joinsum.register_operator, or run them on every site with "
            + f"replicate=[{names}]"
        )


def _needs_rule(node: fx.Node) -> bool:
    """Whether it is more than a number, a tensor without elements, or `copy_` into an input."""
    value = node.meta.get("val")
    if isinstance(value, _NUMBERS) or str(node.target).startswith("aten.copy_."):
        return False
    results = [x for x in (value if isinstance(value, (tuple, list)) else [value]) if isinstance(x, torch.Tensor)]
    # An extent that depends on values may be anything.
    return not results or any(all(not isinstance(extent, int) or extent > 0 for extent in x.shape) for x in results)


_NUMBERS = (int, float, torch.SymInt, torch.SymFloat, torch.SymBool)


def _shapes(node: fx.Node) -> list[list[int]]:
    values = (each.meta.get("val") for each in node.all_input_nodes)
    return [list(x.shape) for x in values if isinstance(x, torch.Tensor)]
