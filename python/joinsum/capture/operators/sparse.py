"""Products of a sparse matrix, given by its entries, with a dense one: entries and the axes that they point into may be
divided, and leave partial results."""

from __future__ import annotations

import torch

from joinsum.capture.recording.application import Application
from joinsum.capture.rules.form import Form, shard_of
from joinsum.capture.rules.row import Entry, Results, rows

__all__ = ["ROWS"]

_SHARDS = {
    f"{side}_{what}": text for side, name in (("row", "i"), ("column", "j")) for what, text in shard_of(name).items()
}
_PRODUCT = Form("e, e, e, j k -> i k", reduce="e=add j=add", shards=_SHARDS, flops="2 e k")
_TO_VALUES = Form("e, e, i k, j k -> e", reduce="i=add j=add k=add", shards=_SHARDS, flops="2 e k")


def _product(application: Application) -> Results:
    arguments = {name: value for name, value in application.arguments.items() if name != "extent"}
    return list(_PRODUCT.apply(application, torch.ops.joinsum.sparse_mm_shard.default, arguments, application.type))


def _to_values(application: Application) -> Results:
    operator = torch.ops.joinsum.sparse_mm_values_shard.default
    return list(_TO_VALUES.apply(application, operator, application.arguments, application.type))


ROWS = rows(
    "sparse products",
    Entry("joinsum::sparse_mm", _product, _PRODUCT.described),
    Entry("joinsum::sparse_mm_values", _to_values, _TO_VALUES.described),
)
