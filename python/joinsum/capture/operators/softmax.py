"""Softmax and attention: in one call where the axes that they mix are not divided, else in calls on shards of these."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from joinsum.base.dtypes import accumulation_dtype
from joinsum.capture.operators.reduction import Over, reduced, summed
from joinsum.capture.recording.application import Application
from joinsum.capture.recording.values import Value, axis_names
from joinsum.capture.rules.along import Along
from joinsum.capture.rules.decomposed import decomposed_or, with_materialized_operands
from joinsum.capture.rules.form import Form
from joinsum.capture.rules.row import Entry, Results, rows

__all__ = ["ROWS"]

_JOINSUM = torch.ops.joinsum
_UNDECOMPOSED = Along(flops=10)


@dataclass(frozen=True)
class _Rows:
    """The rows of a softmax along axis `dim`.

    full      names of all axes
    partial   the same with one element in the place of `dim`
    name      of `dim`
    kind      shape and dtype of a sum along `dim`
    """

    dim: int
    full: str
    partial: str
    name: str
    kind: tuple[list[int], torch.dtype]

    @staticmethod
    def of(application: Application, value: Value) -> _Rows:
        names = axis_names(len(value.axes))
        dim = application.dim("dim", len(names))
        partial = " ".join("1" if axis == dim else name for axis, name in enumerate(names))
        shape = [1 if axis == dim else extent for axis, extent in enumerate(value.shape)]
        return _Rows(dim, " ".join(names), partial, names[dim], (shape, accumulation_dtype(value.dtype)))


def _softmax(application: Application) -> Results:
    """Softmax and log softmax: the maximum, the sum of exponentials of the differences from it, and the quotient."""
    application = with_materialized_operands(application)
    undecomposed = _UNDECOMPOSED(application)
    value = application.value("self")
    if not value.axes:
        return undecomposed
    line = _Rows.of(application, value)
    most = reduced(value, Over([line.dim]), "id", "max", value.dtype)
    sums = Form(f"{line.full}, {line.partial} -> {line.partial}", reduce=f"{line.name}=add", flops=f"5 {line.full}")
    arguments: dict[str, object] = {"input": value, "most": most}
    (total,) = sums.apply(application, _JOINSUM.softmax_total.default, {**arguments, "dim": line.dim}, line.kind)
    arguments |= {"total": total, "dtype": application.dtype}
    operator = _JOINSUM.log_softmax_of if "log" in application.name else _JOINSUM.softmax_of
    quotient = Form(f"{line.full}, {line.partial}, {line.partial} -> {line.full}", flops=f"4 {line.full}")
    return decomposed_or(undecomposed, quotient.apply(application, operator.default, arguments, application.type))


def _softmax_backward(application: Application) -> Results:
    """The gradients of both: a sum along the rows, then each element by itself."""
    application = with_materialized_operands(application)
    undecomposed = _UNDECOMPOSED(application)
    grad, output = application.value("grad_output"), application.value("output")
    if not grad.axes:
        return undecomposed
    line = _Rows.of(application, grad)
    arguments: dict[str, object] = {"grad": grad, "output": output}
    if "log" in application.name:
        operator, sums = _JOINSUM.log_softmax_grad_of, {"total": summed(grad, Over([line.dim]))}
    else:
        form = Form(f"{line.full}, {line.full} -> {line.partial}", reduce=f"{line.name}=add", flops=f"2 {line.full}")
        slope = form.apply(application, _JOINSUM.softmax_slope.default, {**arguments, "dim": line.dim}, line.kind)
        operator, sums = _JOINSUM.softmax_grad_of, {"slope": slope[0]}
    arguments |= {**sums, "dtype": application.dtype}
    gradient = Form(f"{line.full}, {line.full}, {line.partial} -> {line.full}", flops=f"6 {line.full}")
    return decomposed_or(undecomposed, gradient.apply(application, operator.default, arguments, application.type))


# --- attention --------------------------------------------------------------------------------------------------------

_ROWS = {"rows": "shard l"}
_SHARDS = {**_ROWS, "columns": "shard s"}


@dataclass(frozen=True)
class _Heads:
    """Names of the heads of queries, and of keys and values, each of which may serve several of the queries.

    mask   axes of the mask: it is for all samples and heads, or has axes for them
    """

    query: str
    key: str
    mask: str

    @staticmethod
    def of(application: Application, mask: Value | None) -> _Heads:
        grouped = application.value("query").shape[1] != application.value("key").shape[1]
        query = "(g h)" if grouped else "h"
        axes = "l s"
        if mask is not None and len(mask.axes) == 4:
            # A pattern cannot repeat an axis for a product of two labels.
            axes = "b 1 l s" if grouped and mask.shape[1] == 1 else f"b {query} l s"
        return _Heads(query, "g" if grouped else "h", axes)

    @property
    def shared(self) -> str:
        """The label of the queries that share a head of keys; empty where none do."""
        return "h" if self.key == "g" else ""

    def form(self, text: str, undivided: str, reduce: str, flops: str, shards: Mapping[str, str]) -> Form:
        """`Q`, `O`, `L` and `K` stand for queries, outputs, one number for each query, and keys or values. Results but
        `L` are stored by sample, position, head and element, as torch's kernels do, and as products read them."""
        named = {"Q": f"b {self.query} l e", "O": f"b {self.query} l e", "L": f"b {self.query} l"}
        named |= {"K": f"b {self.key} s e", "M": self.mask}
        pattern = re.sub(r"[QOLKM]", lambda found: named[found[0]], text)
        heads = "g h" if self.shared else "h"
        orders = {"Q": f"b l {heads} e", "K": f"b s {self.key} e", "L": f"b {heads} l"}
        stored = ",".join(orders[result.strip().replace("O", "Q")] for result in text.partition("->")[2].split(","))
        return Form(pattern, undivided, reduce, flops=flops.replace("h", heads), shards=shards, stored=stored)

    # With the exponentials, attention takes about half as long again as its products.
    def undecomposed(self, causal: bool) -> Form:
        return self.form("Q, K, K, M -> O, L", "s e", "", "6 b h l s e", _ROWS if causal else {})

    def backward(self, causal: bool) -> Form:
        """The queries' gradient is summed over keys, those of keys and values over queries, also of several heads."""
        reduce = " ".join(f"{name}=add" for name in ("l", "s", self.shared) if name)
        return self.form("O, Q, K, K, O, L, M -> Q, K, K", "e", reduce, "16 b h l s e", _SHARDS if causal else {})


# Arguments of torch's operators for attention by the names that joinsum's have.
_OWN_NAMES = {"attn_mask": "mask", "is_causal": "causal", "grad_out": "grad", "logsumexp": "lse"}


def _scoring(application: Application) -> tuple[Application, _Heads, dict[str, Any]]:
    """The operator with materialized operands, the names of its heads, and the arguments by joinsum's names."""
    application = with_materialized_operands(application)
    arguments: dict[str, Any] = {_OWN_NAMES.get(name, name): each for name, each in application.arguments.items()}
    # Dropout inside would draw another mask on each shard.
    if arguments.get("dropout_p", 0) != 0:
        application.refuse("dropout inside of attention has no rule: choose SDPBackend.MATH for it")
    return application, _Heads.of(application, arguments["mask"]), arguments


def _attention(application: Application) -> Results:
    """Each query's sum of exponentials, then the weighted values: both are partial where keys are divided. Each
    of the two computes the scores."""
    application, heads, arguments = _scoring(application)
    out, sums = application.types
    form = heads.undecomposed(bool(arguments["causal"]))
    undecomposed: Results = [*form.apply(application, _JOINSUM.attention.default, arguments, out, sums)]
    form = heads.form("Q, K, K, M -> L", "e", "s=logaddexp", "3 b h l s e", _SHARDS)
    lse = form.apply(application, _JOINSUM.attention_lse.default, {**arguments, "dtype": sums[1]}, sums)
    (first,) = decomposed_or(undecomposed, lse, 1)
    form = heads.form("Q, K, K, L, M -> O", "e", "s=add", "6 b h l s e", _SHARDS)
    weighted = form.apply(application, _JOINSUM.attention_of.default, {**arguments, "lse": first}, out)
    return [decomposed_or(undecomposed, weighted)[0], first]


def _attention_backward(application: Application) -> Results:
    application, heads, arguments = _scoring(application)
    form = heads.backward(bool(arguments["causal"]))
    return [*form.apply(application, _JOINSUM.attention_backward.default, arguments, *application.types)]


_PLAIN = _Heads("h", "h", "b h l s")
ROWS = [
    *rows(
        "softmax",
        Entry("_safe_softmax", _UNDECOMPOSED, "along `dim`, which is undivided; all other labels may be divided"),
        Entry(
            "_softmax _log_softmax",
            _softmax,
            "along `dim`: in one call where it is not divided, else of partial maxima and sums; all other labels "
            "may be divided",
        ),
        Entry(
            "_softmax_backward_data _log_softmax_backward_data",
            _softmax_backward,
            "along `dim`: in one call where it is not divided, else of partial sums; all other labels may be divided",
        ),
    ),
    *rows(
        "attention",
        Entry(
            "joinsum::attention _scaled_dot_product_flash_attention_for_cpu",
            _attention,
            f"{_PLAIN.undecomposed(False).described}; where s is divided, in two calls, reduced by logaddexp and add",
        ),
        Entry(
            "joinsum::attention_backward _scaled_dot_product_flash_attention_for_cpu_backward",
            _attention_backward,
            f"{_PLAIN.backward(False).described}",
        ),
    ),
]
