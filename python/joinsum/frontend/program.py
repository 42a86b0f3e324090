"""Captured graphs made ready to run: what needs no operator never reaches the planner."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from joinsum.errors import CaptureError
from joinsum.frontend import runner as runners

__all__ = ["Outcome", "Program"]


@dataclass(frozen=True)
class Outcome:
    """What a run gave.

    results   as the graph returns them
    written   for the position of an input that the graph writes into, its new value
    """

    results: list[Any]
    written: dict[int, torch.Tensor]


class Program:
    """A graph of ATen operators with its plan.

    gm               the graph; it is changed
    example_inputs   for each placeholder a tensor, that may be fake, or a number
    names            of the inputs
    ties             for a result of the graph, the input whose blocks it may overwrite
    stay             results of the graph that stay distributed
    state            inputs whose new values, where the graph writes into them, stay distributed and may overwrite them
    kept             inputs that are kept between runs, for plans made by hand; None where it is not known
    replicate        operators without a rule that run whole on every site

    What the graph asserts is checked while it runs. Writing into an input is a result that is copied into it after the
    run; results that are inputs or constants are given back as they are. Raises what `compile_fx` raises.
    """

    def __init__(
        self,
        gm: GraphModule,
        example_inputs: Sequence[Any],
        *,
        names: Sequence[str] | None = None,
        ties: Mapping[int, int] | None = None,
        stay: Collection[int] = (),
        state: Collection[int] = (),
        kept: Collection[int] | None = None,
        replicate: Collection[str] = (),
    ) -> None:
        self._kept = kept
        self._replicate = replicate
        _check_effects(gm.graph)
        ties = dict(ties or {})
        inputs = {node: i for i, node in enumerate(gm.graph.find_nodes(op="placeholder"))}
        writes = _lift_writes(gm.graph, inputs)
        entries = list(gm.graph.output_node().args[0])  # type: ignore[arg-type]
        self._count = len(entries)
        self._written = [into for into, _ in writes]
        entries += [value for _, value in writes]
        # For each entry: the input that it is, or the computed result, or a constant.
        self._sources: list[tuple[str, Any]] = []
        # Checks come first, before the run overwrites anything.
        computed = {node: i for i, node in enumerate(_lift_checks(gm.graph))}
        for entry in entries:
            if not isinstance(entry, Node):
                self._sources.append(("constant", entry))
            elif entry in inputs:
                self._sources.append(("input", inputs[entry]))
            else:
                self._sources.append(("result", computed.setdefault(entry, len(computed))))
        self._runner = self._compile(gm, example_inputs, list(computed), names, ties, stay, state)

    def _compile(
        self,
        gm: GraphModule,
        example_inputs: Sequence[Any],
        computed: list[Node],
        names: Sequence[str] | None,
        ties: dict[int, int],
        stay: Collection[int],
        state: Collection[int],
    ) -> runners.Runner | None:
        if not computed:
            return None
        for i, into in enumerate(self._written):
            if into in state:
                ties[self._count + i] = into
        staying = set(stay) | {self._count + i for i, into in enumerate(self._written) if into in state}
        gm.graph.output_node().args = (tuple(computed),)
        gm.graph.eliminate_dead_code()
        gm.recompile()
        read = {i for i, node in enumerate(gm.graph.find_nodes(op="placeholder")) if node.users}
        place = {i: at for i, (kind, at) in enumerate(self._sources) if kind == "result"}
        return runners.compile_fx(
            gm,
            example_inputs,
            names=names,
            ties={place[i]: into for i, into in ties.items() if i in place and into in read},
            stay=frozenset(place[i] for i in staying if i in place),
            state=self._kept,
            replicate=self._replicate,
        )

    @property
    def runner(self) -> runners.Runner | None:
        """The graph's plan; None where nothing is computed."""
        return self._runner

    def run(self, args: Sequence[Any]) -> Outcome:
        """Results and written values, for tensors and numbers in the placeholders' order."""
        made = [] if self._runner is None else self._runner(args)
        values = [args[at] if kind == "input" else made[at] if kind == "result" else at for kind, at in self._sources]
        return Outcome(values[: self._count], dict(zip(self._written, values[self._count :], strict=True)))


def _lift_writes(graph: Graph, inputs: Mapping[Node, int]) -> list[tuple[int, Any]]:
    """Removes the copies into inputs with which a functionalised graph ends: (input, value) each. Where a copy is also
    a result, that is the input itself."""
    writes = []
    for node in list(graph.nodes):
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        if not node.target._schema.is_mutable:
            continue
        given_back = all(user.op == "output" for user in node.users)
        if node.target is not torch.ops.aten.copy_.default or node.args[0] not in inputs or not given_back:
            line = (node.meta.get("stack_trace") or "").strip().splitlines()[-2:]
            raise CaptureError(
                f"capture: an operator writes into a tensor: operator={node.target}, code={' | '.join(line)}; "
                "write it without the trailing underscore"
            )
        writes.append((inputs[node.args[0]], node.args[1]))
        node.replace_all_uses_with(node.args[0])
        graph.erase_node(node)
    return writes


def _check_effects(graph: Graph) -> None:
    """Raises CaptureError for operators that torch keeps in order for what they do besides their results."""
    for node in graph.find_nodes(op="call_function", target=torch.ops.higher_order.with_effects):
        line = (node.meta.get("stack_trace") or "").strip().splitlines()[-2:]
        raise CaptureError(
            f"capture: an operator does more than give a result: operator={node.args[1]}, code={' | '.join(line)}; "
            "leave it out of the captured code (of torch.linalg's functions take those with _ex, which check nothing)"
        )


def _lift_checks(graph: Graph) -> list[Node]:
    """Makes assertions operators with a result, so that they run; gives these."""
    made = []
    for node in list(graph.nodes):
        if node.target not in (torch.ops.aten._assert_async.msg, torch.ops.aten._assert_async.default):
            continue
        condition = node.args[0]
        message = node.args[1] if len(node.args) > 1 else "the assertion of a tensor failed"
        line = (node.meta.get("stack_trace") or "").strip().splitlines()[-2:]
        # In plans quotes and semicolons have a meaning.
        told = " | ".join([str(message), *(each.strip() for each in line)]).translate(str.maketrans("';\n", '", '))
        with graph.inserting_before(node):
            check = graph.call_function(torch.ops.joinsum.checked.default, (condition, told))
        check.meta |= {"val": condition.meta["val"].new_empty((), dtype=torch.bool)}
        check.meta["stack_trace"] = node.meta.get("stack_trace")
        graph.erase_node(node)
        made.append(check)
    return made
