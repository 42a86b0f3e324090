"""Tensors that do not depend on other tensors: constants, elements that repeat, and random numbers.

A random number depends on the seed and on the global index of its element only.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import fx

from joinsum.capture.decompositions.random_nodes import RandomNodes, RandomRule
from joinsum.capture.recording.application import Application
from joinsum.capture.recording.values import Value
from joinsum.capture.recording.vertices import as_dtype
from joinsum.capture.rules.form import Form, shard_of
from joinsum.capture.rules.pointwise import Pointwise
from joinsum.capture.rules.row import Entry, Results, Rule, Traits, rows
from joinsum.capture.rules.undivided import undivided

__all__ = ["ROWS"]


def _filled(application: Application) -> Results:
    """One element, repeated. An empty tensor, whose elements torch leaves undefined, has zeros."""
    number = application.arguments.get("fill_value", application.arguments.get("value"))
    if number is None:
        number = 1 if "ones" in application.operator._opname else 0
    assert isinstance(number, (int, float))
    return [application.recorder.filled(application.shape, torch.tensor(number, dtype=application.dtype))]


# --- random numbers ---------------------------------------------------------------------------------------------------

_DROPOUT = Form("*a, -> *a, *a", shards=shard_of("*a"), flops="20 *a")
_RANDOM = Form(", -> *a", sizes={"size": "*a"}, lists={"a": "size"}, shards=shard_of("*a"), flops="20 *a")


def _dropout(application: Application) -> Results:
    value, recorder = application.value("input"), application.recorder
    if application.arguments["train"] is False:
        return [value, recorder.filled(value.shape, torch.tensor(True))]
    arguments = {"input": value, "seed": recorder.seed(), "p": application.scalar("p"), "stream": recorder.stream()}
    operator = torch.ops.joinsum.dropout.default
    return _DROPOUT.apply(application, operator, arguments, (value.shape, value.dtype), (value.shape, torch.bool))


def _random(application: Application, name: str, dtype: torch.dtype, **more: object) -> Value:
    """Random numbers of the result's shape by `joinsum::name`."""
    recorder, shape = application.recorder, application.shape
    arguments = {"seed": recorder.seed(), "stream": recorder.stream(), "size": list(shape), "dtype": dtype, **more}
    return _RANDOM.apply(application, getattr(torch.ops.joinsum, name).default, arguments, (shape, dtype))[0]


def _floats(name: str) -> Rule:
    return lambda application: [_random(application, name, application.dtype)]


def _integers(application: Application) -> Results:
    bounds = {"low": application.arguments.get("low", 0), "high": application.number("high")}
    return [_random(application, "integers", application.dtype, **bounds)]


def _bernoulli(application: Application) -> Results:
    """True with the probability that is a number or a tensor."""
    probability = application.arguments.get("p", application.arguments["self"])
    uniform = _random(application, "uniform", torch.float32)
    if not isinstance(probability, Value):
        assert isinstance(probability, (int, float))
        probability = application.recorder.constant(torch.tensor(float(probability)))
    operands = {"self": uniform, "other": probability}
    (below,) = Pointwise()(application.of(torch.ops.aten.lt.Tensor, operands, (application.shape, torch.bool)))
    assert below is not None
    return [as_dtype(below, application.dtype)]


# --- nodes of graphs that torch runs ----------------------------------------------------------------------------------


def _dropout_node(nodes: RandomNodes, node: fx.Node) -> fx.Node | None:
    if nodes.argument(node, "train") is False:
        return None
    shape = list(node.meta["val"][0].shape)
    arguments = (node.args[0], nodes.seed, nodes.argument(node, "p"), nodes.streams, [0] * len(shape), shape, shape)
    return nodes.graph.call_function(torch.ops.joinsum.dropout.default, arguments)


def _floats_node(name: str) -> Callable[[RandomNodes, fx.Node], fx.Node]:
    return lambda nodes, node: nodes.random(node, name, node.meta["val"].dtype)


def _integers_node(nodes: RandomNodes, node: fx.Node) -> fx.Node:
    low = nodes.argument(node, "low") or 0
    return nodes.random(node, "integers", node.meta["val"].dtype, low, nodes.argument(node, "high"))


def _bernoulli_node(nodes: RandomNodes, node: fx.Node) -> fx.Node:
    probability = nodes.argument(node, "p")
    uniform = nodes.random(node, "uniform", torch.float32)
    if probability is None:
        below = nodes.graph.call_function(torch.ops.aten.lt.Tensor, (uniform, node.args[0]))
    else:
        below = nodes.graph.call_function(torch.ops.aten.lt.Scalar, (uniform, float(probability)))
    return nodes.graph.call_function(torch.ops.aten._to_copy.default, (below,), {"dtype": node.meta["val"].dtype})


def _random_entry(names: str, rule: Rule, node: RandomRule, how: str) -> Entry:
    return Entry(names, rule, f"joinsum::{how}: all labels may be divided", Traits(random=node))


_REPEATS = "a constant element that repeats; an empty tensor has zeros"

ROWS = [
    *rows(
        "creation",
        Entry(
            "full full_like new_full zeros zeros_like new_zeros ones ones_like new_ones fill.Scalar scalar_tensor "
            "_efficientzerotensor",
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
            _dropout,
            "joinsum::dropout: all labels may be divided, the mask is that of the whole tensor",
            Traits(random=_dropout_node, may_alias=True),
        ),
        _random_entry("rand rand_like", _floats("uniform"), _floats_node("uniform"), "uniform"),
        _random_entry("randn randn_like", _floats("normal"), _floats_node("normal"), "normal"),
        _random_entry("randint randint.low", _integers, _integers_node, "integers"),
        _random_entry("bernoulli bernoulli.p", _bernoulli, _bernoulli_node, "uniform below the probability"),
        Entry(
            "native_dropout_backward",
            Pointwise(2),
            "each element by itself; shapes broadcast, all labels may be divided",
        ),
    ),
]
