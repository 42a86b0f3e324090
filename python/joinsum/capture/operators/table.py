"""The operator table: what each ATen operator becomes."""

from __future__ import annotations

from collections.abc import Sequence

from joinsum.capture import attention_parts, parts, random, rewrite, row_parts
from joinsum.capture.operators import (
    attention,
    chance,
    contraction,
    convolution,
    creation,
    elementwise,
    images,
    indexing,
    reduction,
    softmax_norm_loss,
    views,
)
from joinsum.capture.operators.form import Form
from joinsum.capture.operators.row import Row, Rule
from joinsum.errors import CaptureError

__all__ = ["register_operator", "rule_of", "table", "unregister_operator"]

# Rows name the operators that these register with torch.
_REGISTERED = (attention_parts, parts, random, rewrite, row_parts)

_FAMILIES: Sequence[list[Row]] = [
    contraction.ROWS,
    elementwise.ROWS,
    reduction.ROWS,
    softmax_norm_loss.ROWS,
    attention.ROWS,
    convolution.ROWS,
    images.ROWS,
    views.ROWS,
    indexing.ROWS,
    creation.ROWS,
    chance.ROWS,
]
_BUILT_IN: dict[str, Row] = {row.name: row for family in _FAMILIES for row in family}
_USERS: dict[str, Row] = {}


def table() -> list[Row]:
    """All rows, built-in ones first, family by family."""
    return [*_BUILT_IN.values(), *_USERS.values()]


def rule_of(name: str) -> Rule | None:
    """The rule of an operator, `aten::sum.dim_IntList`; None where it has none."""
    row = _USERS.get(name) or _BUILT_IN.get(name)
    return None if row is None else row.rule


def register_operator(
    name: str,
    rule: str,
    *,
    whole: str = "",
    fold: str = "",
    sizes: dict[str, str] | None = None,
    flops: str = "",
) -> None:
    """Says how the axes of an operator belong together, so that captured programs may contain it.

    name    as `torch.ops` has it, with its overload unless that is `default`: `"mylib::scaled"`, `"aten::frac"`
    rule    names of the axes of the operands, in the order of the schema's tensors, and of the results, as in
            `"b s d, d -> b s d"`; `*b` is any number of axes, `1` an axis of one element
    whole   names along which the operator mixes elements: they are never divided between sites
    fold    `"k=add"` (also max, min): where `k`, which no result has, is divided, results are partial and are folded
    sizes   arguments that hold the extents of the tensors: {"normalized_shape": "d"}
    flops   work, as coefficients and names: `"2 b s d"`

    All other names are free: the operator, run on a part of such an axis, gives that part of its results. A name that
    is not declared `whole` although it is mixed gives wrong results; `Recorded.evaluate(check=True)` finds it.

    Raises CaptureError for an operator that joinsum has a rule for, and for a rule without `->`.

    >>> import joinsum, torch
    >>> @torch.library.custom_op("mylib::centred", mutates_args=())
    ... def centred(x: torch.Tensor) -> torch.Tensor:
    ...     return x - x.mean(-1, keepdim=True)
    >>> joinsum.register_operator("mylib::centred", "*b d -> *b d", whole="d", flops="2 *b d")
    """
    if not isinstance(name, str) or "::" not in name or not isinstance(rule, str) or "->" not in rule:
        raise CaptureError(
            f"register_operator: give a name and a rule, as ('mylib::op', 'b d -> b d'): name={name!r}, rule={rule!r}"
        )
    if name in _BUILT_IN:
        raise CaptureError(f"register_operator: joinsum has a rule for this operator: name={name}")
    form = Form(rule, whole, fold, sizes or {}, {}, flops)
    _USERS[name] = Row(name, "registered", form, form.described)


def unregister_operator(name: str) -> None:
    """Takes back what `register_operator` added. Raises CaptureError for another name."""
    if _USERS.pop(name, None) is None:
        raise CaptureError(f"unregister_operator: no such operator was registered: name={name}")
