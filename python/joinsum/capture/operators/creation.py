"""Tensors that do not depend on other tensors: constants, elements that repeat, and random numbers.

A random number depends on the seed and on the global index of its element only.
"""

from __future__ import annotations

import torch
from torch import fx

from joinsum.capture.decompositions.random_nodes import RandomNodes, RandomRule
from joinsum.capture.recording.application import Application
from joinsum.capture.recording.symbolic_numbers import SymbolicNumber, shape_of
from joinsum.capture.recording.vertices import expanded
from joinsum.capture.rules.form import Form, shard_of
from joinsum.capture.rules.pointwise import Pointwise
from joinsum.capture.rules.row import Entry, Results, Traits, rows
from joinsum.capture.rules.undivided import undivided

__all__ = ["ROWS"]


def _filled(application: Application) -> Results:
    """One element, repeated. An empty tensor, whose elements torch leaves undefined, has zeros."""
    number = application.arguments.get("fill_value", application.arguments.get("value"))
    if number is None:
        number = 1 if "ones" in application.operator._opname else 0
    if isinstance(number, SymbolicNumber):
        return [expanded(application.recorder.scalar(number, application.dtype), application.shape)]
    assert isinstance(number, (int, float, complex))
    return [application.recorder.filled(application.shape, torch.tensor(number, dtype=application.dtype))]


# --- random numbers ---------------------------------------------------------------------------------------------------

_DROPOUT = Form("*a, -> *a, *a", shards=shard_of("*a"), flops="20 *a")
_RANDOM = Form(", -> *a", sizes={"size": "*a"}, lists={"a": "size"}, shards=shard_of("*a"), flops="20 *a")


def _without_dropout(application: Application) -> Results:
    """Dropout in evaluation, which draws nothing."""
    value = application.value("input")
    return [value, application.recorder.filled(value.shape, torch.tensor(True))]


def _dropout(nodes: RandomNodes, node: fx.Node) -> fx.Node | None:
    if nodes.argument(node, "train") is False:
        return None
    shape = list(shape_of(node.meta["val"][0]))
    arguments = (node.args[0], nodes.seed, nodes.argument(node, "p"), nodes.streams, [0] * len(shape), shape, shape)
    return nodes.call(node, torch.ops.joinsum.dropout.default, arguments)


def _floats(name: str) -> RandomRule:
    return lambda nodes, node: nodes.random(node, name, node.meta["val"].dtype)


def _integers(nodes: RandomNodes, node: fx.Node) -> fx.Node:
    low = nodes.argument(node, "low") or 0
    return nodes.random(node, "integers", node.meta["val"].dtype, low, nodes.argument(node, "high"))


def _bernoulli(nodes: RandomNodes, node: fx.Node) -> fx.Node:
    """True with the probability that is a number or a tensor."""
    probability = nodes.argument(node, "p")
    uniform = nodes.random(node, "uniform", torch.float32)
    if probability is None:
        below = nodes.call(node, torch.ops.aten.lt.Tensor, (uniform, node.args[0]), torch.bool)
    else:
        below = nodes.call(node, torch.ops.aten.lt.Scalar, (uniform, float(probability)), torch.bool)
    return nodes.call(node, torch.ops.prims.convert_element_type.default, (below, node.meta["val"].dtype))


def _random_entry(names: str, random: RandomRule, how: str) -> Entry:
    return Entry(names, None, f"joinsum::{how}: all labels may be divided", Traits(random=random))


_REPEATS = "a constant element that repeats; an empty tensor has zeros"

ROWS = [
    *rows(
        "creation",
        Entry(
            "full full_like new_full zeros zeros_like new_zeros ones ones_like new_ones fill.Scalar scalar_tensor "
            "_efficientzerotensor _new_zeros_with_same_feature_meta",
            _filled,
            _REPEATS,
        ),
        Entry(
            "empty.memory_format empty_like empty_permuted empty_strided new_empty new_empty_strided",
            _filled,
            _REPEATS,
            Traits(folded=False),
        ),
        Entry(
            "arange arange.start arange.start_step linspace eye eye.m",
            undivided,
            "a constant up to 65536 elements; else a call with all labels undivided",
        ),
    ),
    *rows(
        "random",
        Entry(
            "native_dropout",
            _without_dropout,
            "joinsum::dropout: all labels may be divided, the mask is that of the whole tensor",
            Traits(random=_dropout, may_alias=True),
        ),
        Entry("joinsum::dropout", _DROPOUT),
        Entry("joinsum::uniform joinsum::normal joinsum::integers", _RANDOM),
        _random_entry("rand rand_like", _floats("uniform"), "uniform"),
        _random_entry("randn randn_like", _floats("normal"), "normal"),
        _random_entry("randint randint.low", _integers, "integers"),
        _random_entry("bernoulli bernoulli.p", _bernoulli, "uniform below the probability"),
        Entry(
            "native_dropout_backward",
            Pointwise(2),
            "each element by itself; shapes broadcast, all labels may be divided",
        ),
    ),
]
