"""Attention: at once where neither queries nor keys are divided, else in parts of them."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch

from joinsum.capture.application import Application
from joinsum.capture.operators.cut_forms import either, stored
from joinsum.capture.operators.form import Form
from joinsum.capture.operators.row import Made, Row, rows
from joinsum.capture.recorder import Recorder

__all__ = ["ROWS"]

_PARTS = {"rows": "part l", "columns": "part s"}


@dataclass(frozen=True)
class _Heads:
    """Names of the heads of queries, and of keys and values, of which each may serve several of the queries.

    mask   axes of the mask: it is for all samples and heads, or has axes for them
    """

    query: str
    key: str
    mask: str

    @staticmethod
    def of(application: Application) -> _Heads:
        grouped = application.value("query").shape[1] != application.value("key").shape[1]
        query = "(g h)" if grouped else "h"
        mask = application.optional("attn_mask")
        seen = "l s"
        if mask is not None and len(mask.axes) == 4:
            # A product has no form of an axis that is repeated for it.
            seen = "b 1 l s" if grouped and mask.shape[1] == 1 else f"b {query} l s"
        return _Heads(query, "g" if grouped else "h", seen)

    @property
    def all(self) -> str:
        """Names of all labels of heads."""
        return "g h" if self.key == "g" else "h"

    @property
    def shared(self) -> str:
        """The label of the queries that share a head of keys; empty where none do."""
        return "h" if self.key == "g" else ""

    def form(self, text: str, whole: str, fold: str, flops: str) -> Form:
        """`Q`, `O`, `L`, `K` stand for queries, what is made of them, a number for each, and keys and values."""
        named = {"Q": f"b {self.query} l e", "O": f"b {self.query} l e", "L": f"b {self.query} l"}
        named |= {"K": f"b {self.key} s e", "M": self.mask}
        made = re.sub(r"[QOLKM]", lambda found: named[found[0]], text)
        return Form(made, whole, fold, flops=flops.replace("h", self.all), parts=_PARTS if fold else {})

    def once(self) -> Form:
        return self.form("Q, K, K, M -> O, L", "l s e", "", "4 b h l s e")

    def once_backward(self) -> Form:
        return self.form("O, Q, K, K, O, L, M -> Q, K, K", f"l s e {self.shared}".rstrip(), "", "10 b h l s e")


def _checked(recorder: Recorder, application: Application) -> tuple[Application, _Heads, dict[str, object]]:
    """The operator with stored operands, the names of its heads, and what all its parts are given."""
    application = stored(recorder, application)
    mask = application.optional("attn_mask")
    # Dropout inside would draw another mask on each part.
    if application.scalar("dropout_p") != 0:
        application.refuse("dropout inside of attention has no rule: choose SDPBackend.MATH for it")
    given: dict[str, object] = {name: application.value(name) for name in ("query", "key", "value")}
    given |= {"mask": mask, "causal": application.arguments["is_causal"], "scale": application.arguments["scale"]}
    return application, _Heads.of(application), given


def _attention(recorder: Recorder, application: Application) -> Made:
    """Each query's sum of exponentials, then the weighted values: both are partial where keys are divided."""
    application, heads, given = _checked(recorder, application)
    once = heads.once()(recorder, application)
    out, sums = application.results
    assert out is not None
    assert sums is not None
    operator = torch.ops.joinsum.attention_lse.default
    form = heads.form("Q, K, K, M -> L", "e", "s=logaddexp", "1 b h l s e")
    lse = either(form(recorder, application.of(operator, {**given, "dtype": sums[1]}, [sums])), once, 1)
    operator = torch.ops.joinsum.attention_of.default
    form = heads.form("Q, K, K, L, M -> O", "e", "s=add", "3 b h l s e")
    made = form(recorder, application.of(operator, {**given, "lse": lse[0]}, [out]))
    return [either(made, once)[0], lse[0]]


def _attention_backward(recorder: Recorder, application: Application) -> Made:
    """The queries' gradient adds up over keys, those of keys and values over queries, also of several heads."""
    application, heads, given = _checked(recorder, application)
    once = heads.once_backward()(recorder, application)
    query, *others = (each for each in application.results if each is not None)
    given |= {"grad": application.value("grad_out"), "out": application.value("out")}
    given["lse"] = application.value("logsumexp")
    operator = torch.ops.joinsum.attention_grad_query.default
    form = heads.form("O, Q, K, K, O, L, M -> Q", "e", "s=add", "4 b h l s e")
    first = form(recorder, application.of(operator, given, [query]))
    operator = torch.ops.joinsum.attention_grad_keys.default
    adds = " ".join(f"{name}=add" for name in ("l", heads.shared) if name)
    form = heads.form("O, Q, K, K, O, L, M -> K, K", "e", adds, "6 b h l s e")
    rest = form(recorder, application.of(operator, given, others))
    return [either(first, once)[0], *either(rest, once, 1)[:2]]


_PLAIN = _Heads("h", "h", "b h l s")
_HOW = "in parts of queries, and of keys, whose folds are add and logaddexp"

ROWS: list[Row] = [
    *rows(
        "attention",
        "_scaled_dot_product_flash_attention_for_cpu",
        _attention,
        f"`{_PLAIN.once().text}`: at once where l and s are not divided, else {_HOW}",
    ),
    *rows(
        "attention",
        "_scaled_dot_product_flash_attention_for_cpu_backward",
        _attention_backward,
        f"`{_PLAIN.once_backward().text}`: at once where l and s are not divided, else {_HOW}",
    ),
]
