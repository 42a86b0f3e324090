"""The operator table: the rule of each operator that is captured."""

from __future__ import annotations

from joinsum.base.errors import CaptureError
from joinsum.capture import decompositions
from joinsum.capture.decompositions.random_nodes import RandomRule
from joinsum.capture.operators import (
    complex_numbers,
    contraction,
    creation,
    elementwise,
    images,
    indexing,
    linalg,
    losses,
    norms,
    reduction,
    slices,
    softmax,
    sparse,
    views,
)
from joinsum.capture.rules.form import Form
from joinsum.capture.rules.row import Row, Rule, Traits

__all__ = ["random_rule_of", "register_operator", "rule_of", "table", "traits_of", "unregister_operator"]

assert decompositions.__all__  # the modules register operators with torch that rules name

_FAMILIES = (
    contraction,
    elementwise,
    reduction,
    losses,
    softmax,
    norms,
    images,
    views,
    slices,
    indexing,
    creation,
    complex_numbers,
    linalg,
    sparse,
)
_BUILT_IN: dict[str, Row] = {row.name: row for family in _FAMILIES for row in family.ROWS}
_USERS: dict[str, Row] = {}


def table() -> list[Row]:
    """All rows, built-in ones first, family by family."""
    return [*_BUILT_IN.values(), *_USERS.values()]


def traits_of(name: str) -> Traits:
    """The properties of an operator, `aten::cat`; the common ones for an operator without a row."""
    row = _USERS.get(name) or _BUILT_IN.get(name)
    return Traits() if row is None else row.traits


def random_rule_of(name: str) -> RandomRule | None:
    """The function that makes the node of joinsum's in the place of a random operator; None of other operators."""
    return traits_of(name).random


def rule_of(name: str) -> Rule | None:
    """The rule of an operator, `aten::sum.dim_IntList`; None for an operator without a row."""
    row = _USERS.get(name) or _BUILT_IN.get(name)
    return None if row is None else row.rule


def register_operator(
    name: str,
    rule: str,
    *,
    undivided: str = "",
    reduce: str = "",
    sizes: dict[str, str] | None = None,
    flops: str = "",
) -> None:
    """Registers how the axes of an operator belong together, so that captured programs may contain it.

    name       as `torch.ops` has it, with its overload unless that is `default`: `"mylib::scaled"`, `"aten::frac"`
    rule       names of the axes of the operands, in the order of the schema's tensors, and of the results, as in
               `"b s d, d -> b s d"`; `*b` is any number of axes, `1` an axis of one element
    undivided  names along which the operator mixes elements: these axes are never divided between sites
    reduce     `"k=add"` (also max, min): where an axis `k` that no result has is divided, partial results are reduced
    sizes      arguments that hold the extents of the tensors: {"normalized_shape": "d"}
    flops      work, as coefficients and names: `"2 b s d"`

    All other axes may be divided: run on a shard of its operands along such an axis, the operator gives that shard of
    its results. Results are wrong if a mixed axis is not declared `undivided`; `joinsum.capture.interpret.interpret`
    with `check=True` detects it.

    Raises CaptureError for an operator that joinsum has a rule for, and for a rule without `->`.

    >>> import joinsum, torch
    >>> @torch.library.custom_op("mylib::centred", mutates_args=())
    ... def centred(x: torch.Tensor) -> torch.Tensor:
    ...     return x - x.mean(-1, keepdim=True)
    >>> joinsum.register_operator("mylib::centred", "*b d -> *b d", undivided="d", flops="2 *b d")
    >>> joinsum.unregister_operator("mylib::centred")
    """
    if not isinstance(name, str) or "::" not in name or not isinstance(rule, str) or "->" not in rule:
        raise CaptureError(
            f"register_operator: give a name and a rule, as ('mylib::op', 'b d -> b d'): name={name!r}, rule={rule!r}"
        )
    if name in _BUILT_IN:
        raise CaptureError(f"register_operator: joinsum has a rule for this operator: name={name}")
    form = Form(rule, undivided, reduce, sizes or {}, {}, flops)
    _USERS[name] = Row(name, "registered", form, form.described)


def unregister_operator(name: str) -> None:
    """Removes an operator that `register_operator` added. Raises CaptureError for another name."""
    if _USERS.pop(name, None) is None:
        raise CaptureError(f"unregister_operator: no such operator was registered: name={name}")
