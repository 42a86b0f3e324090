"""Attention: at once where neither queries nor keys are divided, else in parts of them."""

from __future__ import annotations

import torch

from joinsum.capture.application import Application
from joinsum.capture.operators.cut_forms import either, stored
from joinsum.capture.operators.form import Form
from joinsum.capture.operators.row import Made, Row, rows
from joinsum.capture.recorder import Recorder

__all__ = ["ROWS"]

# A mask is for all samples and heads, or has axes for them.
_MASKS = {2: "l s", 4: "b h l s"}
_GIVEN = "b h l e, b h s e, b h s e"
_GRADS = f"b h l e, {_GIVEN}, b h l e, b h l"
_PARTS = {"rows": "part l", "columns": "part s"}


def _forms(left: str, right: str, whole: str, fold: str, flops: str) -> dict[int, Form]:
    """By the number of axes of the mask."""
    parts = _PARTS if fold else {}
    return {
        rank: Form(f"{left}, {mask} -> {right}", whole, fold, flops=flops, parts=parts) for rank, mask in _MASKS.items()
    }


_ATTENTION = _forms(_GIVEN, "b h l e, b h l", "l s e", "", "4 b h l s e")
_LSE = _forms(_GIVEN, "b h l", "e", "s=logaddexp", "1 b h l s e")
_OF = _forms(f"{_GIVEN}, b h l", "b h l e", "e", "s=add", "3 b h l s e")
_BACKWARD = _forms(_GRADS, "b h l e, b h s e, b h s e", "l s e", "", "10 b h l s e")
_TO_QUERY = _forms(_GRADS, "b h l e", "e", "s=add", "4 b h l s e")
_TO_KEYS = _forms(_GRADS, "b h s e, b h s e", "e", "l=add", "6 b h l s e")


_GROUPED = "b (g h) l e, b g s e, b g s e"


def _is_grouped(application: Application) -> bool:
    return application.value("query").shape[1] != application.value("key").shape[1]


def _grouped(recorder: Recorder, application: Application) -> Made:
    """A head of keys and values serves several of the queries, which only run together backward."""
    mask = application.optional("attn_mask")
    seen = "l s"
    if mask is not None and len(mask.axes) == 4:
        seen = "b 1 l s" if mask.shape[1] == 1 else "b (g h) l s"
    if "grad_out" not in application.arguments:
        form = Form(f"{_GROUPED}, {seen} -> b (g h) l e, b (g h) l", "l s e", flops="4 b g h l s e")
    else:
        given = f"b (g h) l e, {_GROUPED}, b (g h) l e, b (g h) l, {seen}"
        form = Form(f"{given} -> b (g h) l e, b g s e, b g s e", "l s e h", flops="10 b g h l s e")
    return form(recorder, application)


def _checked(recorder: Recorder, application: Application) -> tuple[Application, int, dict[str, object]]:
    """The operator with stored operands, the number of axes of its mask, and what all its parts are given."""
    application = stored(recorder, application)
    mask = application.optional("attn_mask")
    # Dropout inside would draw another mask on each part.
    if application.scalar("dropout_p") != 0:
        application.refuse("dropout inside of attention has no rule: choose SDPBackend.MATH for it")
    given: dict[str, object] = {name: application.value(name) for name in ("query", "key", "value")}
    given |= {"mask": mask, "causal": application.arguments["is_causal"], "scale": application.arguments["scale"]}
    return application, 2 if mask is None else len(mask.axes), given


def _attention(recorder: Recorder, application: Application) -> Made:
    """Each query's sum of exponentials, then the weighted values: both are partial where keys are divided."""
    application, rank, given = _checked(recorder, application)
    if _is_grouped(application):
        return _grouped(recorder, application)
    once = _ATTENTION[rank](recorder, application)
    out, sums = application.results
    assert out is not None
    assert sums is not None
    operator = torch.ops.joinsum.attention_lse.default
    lse = _LSE[rank](recorder, application.of(operator, {**given, "dtype": sums[1]}, [sums]))
    lse = either(lse, once, 1)
    operator = torch.ops.joinsum.attention_of.default
    made = _OF[rank](recorder, application.of(operator, {**given, "lse": lse[0]}, [out]))
    return [either(made, once)[0], lse[0]]


def _attention_backward(recorder: Recorder, application: Application) -> Made:
    """The queries' gradient adds up over keys, those of keys and values over queries."""
    application, rank, given = _checked(recorder, application)
    if _is_grouped(application):
        return _grouped(recorder, application)
    once = _BACKWARD[rank](recorder, application)
    query, *others = (each for each in application.results if each is not None)
    given |= {"grad": application.value("grad_out"), "out": application.value("out")}
    given["lse"] = application.value("logsumexp")
    operator = torch.ops.joinsum.attention_grad_query.default
    first = _TO_QUERY[rank](recorder, application.of(operator, given, [query]))
    operator = torch.ops.joinsum.attention_grad_keys.default
    rest = _TO_KEYS[rank](recorder, application.of(operator, given, others))
    return [either(first, once)[0], *either(rest, once, 1)[:2]]


_HOW = "in parts of queries, and of keys, whose folds are add and logaddexp"

ROWS: list[Row] = [
    *rows(
        "attention",
        "_scaled_dot_product_flash_attention_for_cpu",
        _attention,
        f"`{_ATTENTION[4].text}`: at once where l and s are not divided, else {_HOW}",
    ),
    *rows(
        "attention",
        "_scaled_dot_product_flash_attention_for_cpu_backward",
        _attention_backward,
        f"`{_BACKWARD[4].text}`: at once where l and s are not divided, else {_HOW}",
    ),
]
