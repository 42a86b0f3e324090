"""Captured graphs on one site: torch runs them as they are.

Nothing is planned before a plan is asked for. Random operators are joinsum's own, with the numbers that more sites
draw. New values of tied inputs overwrite the old ones, and intermediate values that nobody reads again their operands,
as an optimizer of torch's does.
"""

from __future__ import annotations

import functools
import operator
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any

import torch
from torch import fx

from joinsum import _C
from joinsum.base.dtypes import dtype_name
from joinsum.capture.captured_graph import CapturedGraph, Executable
from joinsum.capture.decompositions.cross_entropy_nodes import use_cross_entropies
from joinsum.capture.decompositions.random import SEEDS
from joinsum.capture.decompositions.random_nodes import with_random_operators
from joinsum.capture.failures import other_sites_error
from joinsum.capture.fusion import fuse_elementwise
from joinsum.capture.in_place import add_products, merge_updates, overwrite_operands
from joinsum.capture.layouts import align_group_norms, use_channels_last
from joinsum.capture.missing_rules import refuse_missing_rules
from joinsum.capture.operators.table import random_rule_of
from joinsum.capture.products import accumulate_products, use_products
from joinsum.capture.recording.application import refuse
from joinsum.capture.recording.recorded import Recorded
from joinsum.capture.views import merge_views
from joinsum.cluster.context import Context, context
from joinsum.distributed.distributed_tensor import DistributedTensor
from joinsum.execution.planned_graph import PlannedGraph
from joinsum.planner.baseline_costs import PricedBaseline

__all__ = ["SingleSiteExecutable"]

_NUMBERS = (int, float, torch.SymInt, torch.SymFloat, torch.SymBool)


class SingleSiteExecutable:
    """A captured graph that torch runs on the only site there is. It overwrites tied inputs that are distributed: plain
    tensors stay as they are.

    plan   makes the program and its plan, which explanations show; nothing runs them

    Raises CaptureError for an operator that is not captured on more sites.
    """

    def __init__(self, graph: CapturedGraph, plan: Callable[[], Executable]) -> None:
        self._here: Context = context()
        self._plan = plan
        self._examples = [(x.shape, x.dtype) if isinstance(x, torch.Tensor) else None for x in graph.example_inputs]
        self._ties = dict(graph.ties)
        self._tied = sorted(set(graph.ties.values()))
        self._stay = sorted(graph.stay)
        nodes, seed = with_random_operators(graph.gm.graph, random_rule_of)
        self._seeded = seed is not None
        self._device = graph.device
        use_cross_entropies(nodes)
        for node in nodes.nodes:
            _check(node)
        refuse_missing_rules(nodes.nodes, graph.replicate)
        use_channels_last(nodes)
        merge_views(nodes)
        add_products(nodes, self._tied)
        accumulate_products(nodes)
        fuse_elementwise(nodes)
        overwrite_operands(nodes, self._tied)
        merge_updates(nodes, self._tied)
        use_products(nodes)
        align_group_norms(nodes)
        _take_from_list(nodes)
        self._forward = _function_of(nodes, graph.gm)
        self._types: dict[tuple[torch.Size, torch.dtype], _C.PhysicalType] = {}

    @cached_property
    def _on_more_sites(self) -> Executable:
        return self._plan()

    @property
    def recorded(self) -> Recorded:
        """The program that more sites would run."""
        return self._on_more_sites.recorded

    @property
    def planned(self) -> PlannedGraph:
        """That program with its plan on one site."""
        return self._on_more_sites.planned

    def baselines(self) -> tuple[PricedBaseline, ...]:
        """There are none on one site, which they say."""
        return self._on_more_sites.baselines()

    def modules(self) -> dict[str, str]:
        """For nodes of the plan on one site, by name, the user's module that computes them, where that is known."""
        return self._on_more_sites.modules()

    @property
    def input_types(self) -> list[_C.PhysicalType | None]:
        """For each input that is a tensor, all of it on the site."""
        return [None if each is None else self._type(*each) for each in self._examples]

    def __call__(self, args: list[Any]) -> list[Any]:
        """The results, for plain or distributed tensors and numbers, in the graph's order; the list is emptied, so that
        what nobody else holds is freed once it is read."""
        if context() is not self._here:
            raise other_sites_error(self._here)
        values = [_array(x) if isinstance(x, DistributedTensor) else x for x in args]
        taken = {p: args[p] for p in self._tied if isinstance(args[p], DistributedTensor)}
        overwritten = {p: values[p] for p in taken}
        for position in self._copied(values, taken):
            values[position] = values[position].clone(memory_format=torch.contiguous_format)
            overwritten.pop(position, None)
        versions = list(map(_version, overwritten.values()))
        args.clear()
        if self._seeded:
            values.append(torch.randint(SEEDS, ()).to(self._device))
        try:
            with torch.no_grad(), _C.TorchAllocations(self._here.store):
                results = list(self._forward(values))
        except BaseException:
            # What a run that failed has not overwritten is as it was.
            for (position, array), version in zip(overwritten.items(), versions, strict=True):
                if array._version != version:
                    taken[position].stored.take()
            raise
        updated = set()
        for position in self._stay:
            place, array = self._ties.get(position), results[position]
            if place in overwritten and array is overwritten[place]:
                results[position] = taken[place]
                updated.add(place)
            else:
                results[position] = self._staying(array)
        for place in taken.keys() - updated:
            taken[place].stored.take()
        return results

    def _copied(self, values: Sequence[Any], taken: Collection[int]) -> list[int]:
        """The positions of arrays that the graph is not to overwrite: they are plain tensors', or share memory with
        another value."""
        copied = [position for position in self._tied if position not in taken]
        if not taken:
            return copied
        addresses = _C.storage_addresses([x for x in values if isinstance(x, torch.Tensor)])
        if len(set(addresses)) == len(addresses):
            return copied
        uses = Counter(addresses)
        return copied + [p for p in taken if uses[values[p].untyped_storage().data_ptr()] > 1]

    def _staying(self, value: torch.Tensor) -> DistributedTensor:
        type_ = self._type(value.shape, value.dtype)
        return DistributedTensor.of_array(value.contiguous(), type_, self._here)

    def _type(self, shape: torch.Size, dtype: torch.dtype) -> _C.PhysicalType:
        key = (shape, dtype)
        if key not in self._types:
            relation = _C.RelationType.of_tensor(dtype_name("capture", dtype), list(shape), [1] * len(shape))
            place = _C.Placement.replicated(self._here.grid)
            self._types[key] = _C.PhysicalType.placed("capture", relation, self._here.grid, place)
        return self._types[key]


_version = attrgetter("_version")


def _array(x: DistributedTensor) -> torch.Tensor:
    """The array of a tensor on the only site, in the tensor's shape."""
    block = x.stored.only_block()
    if block is None:
        return x.unsharded()
    return block if block.shape == x.shape else block.view(x.shape)


def _check(node: fx.Node) -> None:
    """Raises for a node that is no operator."""
    if node.op in ("placeholder", "output", "get_attr"):
        return
    if node.op != "call_function":
        refuse(str(node.target), node, f"a graph of ATen operators has no {node.op}")
    if node.target is operator.getitem or isinstance(node.meta.get("val"), _NUMBERS):
        return
    if not isinstance(node.target, torch._ops.OpOverload):
        refuse(str(node.target), node, "it is no ATen operator")


def _function_of(graph: fx.Graph, attributes: torch.nn.Module) -> Callable[[list[Any]], Sequence[Any]]:
    """The graph as a function. It calls operators without the Python function around each, which takes half a
    microsecond, and a page of memory where a frame of Python's stack ends just there."""
    code = graph.python_code("self")
    operators: dict[str, Any] = {}

    def named(found: re.Match[str]) -> str:
        name = found[0].replace(".", "_")
        operators[name] = operator.attrgetter(found[1])(torch.ops)._op
        return name

    source = re.sub(r"\btorch\.ops\.(\w+\.\w+\.\w+)(?=\()", named, code.src)
    scope = {**code.globals, **operators}
    exec(compile(source, f"<graph {id(graph)}>", "exec"), scope)
    function: Callable[[Any, list[Any]], Sequence[Any]] = scope["forward"]
    return functools.partial(function, attributes)


def _take_from_list(graph: fx.Graph) -> None:
    """The graph's only argument becomes a list, from which the values of its placeholders are taken."""
    placeholders = graph.find_nodes(op="placeholder")
    if not placeholders:
        graph.placeholder("values")
        return
    with graph.inserting_before(placeholders[0]):
        values = graph.placeholder("values")
        for old in reversed(placeholders):
            old.replace_all_uses_with(graph.call_method("pop", (values,)))
    for old in placeholders:
        graph.erase_node(old)
