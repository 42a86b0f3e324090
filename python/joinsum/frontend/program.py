"""Prepares captured graphs for running: writes into inputs, assertions, and results that need no operator."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from joinsum.base.errors import CaptureError
from joinsum.capture import executable
from joinsum.capture import rewrite as rewriting
from joinsum.capture.captured_graph import CapturedGraph, Executable
from joinsum.capture.recording.symbolic_numbers import plain
from joinsum.capture.recording.values import computed
from joinsum.cluster.context import context

__all__ = ["Outcome", "Program", "keep_labels", "replace_special_operators"]


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run.

    results   the graph's results, in its order
    written   the new values of inputs that the graph writes into, by the inputs' positions
    """

    results: list[Any]
    written: dict[int, torch.Tensor]


def keep_labels(gm: GraphModule, sparse: bool = False) -> None:
    """Replaces contractions of a Dynamo graph by joinsum's einsum operator, which keeps their labels, and RMS norms by
    joinsum's operator; in place. On one site contractions remain torch's operators, unless inputs are sparse."""
    rewriting.rewrite(gm, contractions=sparse or context().sites > 1)


class Program:
    """A captured graph of ATen operators with its plan.

    graph     the captured graph; its `gm` is changed in place
    updated   positions of inputs whose new values stay distributed and may overwrite them, if the graph writes there

    Assertions in the graph are checked while it runs. A write into an input becomes a result, which the caller copies
    into the input after the run. Results that are inputs or constants do not reach the planner. Raises the errors of
    `compile_fx`.
    """

    def __init__(self, graph: CapturedGraph, updated: Collection[int] = ()) -> None:
        gm = graph.gm
        replace_special_operators(gm.graph)
        inputs = {node: i for i, node in enumerate(gm.graph.find_nodes(op="placeholder"))}
        writes = _lift_writes(gm.graph, inputs)
        entries = list(gm.graph.output_node().args[0])  # type: ignore[arg-type]
        self._count = len(entries)
        self._written = [into for into, _ in writes]
        entries += [value for _, value in writes]
        # For each entry: the input that it is, or the computed result, or a constant.
        self._entries: list[tuple[str, Any]] = []
        # Checks come first, before the run overwrites anything.
        computed = {node: i for i, node in enumerate(_lift_checks(gm.graph))}
        for entry in entries:
            if not isinstance(entry, Node):
                self._entries.append(("constant", entry))
            elif entry in inputs:
                self._entries.append(("input", inputs[entry]))
            else:
                self._entries.append(("result", computed.setdefault(entry, len(computed))))
        self._passed = {at for kind, at in self._entries if kind == "input"}
        self._numbers = graph.numbers
        self._executable = self._compile(graph, list(computed), updated)
        self._sources = [(kind, plain(each)) for kind, each in self._entries]

    def resized(self, sizes: Mapping[str, int], full: Callable[[], Program]) -> Program | None:
        """The program for other sizes, by the names of symbols; None where they need another graph. `full` makes that
        program from its graph."""
        values = None if self._numbers is None else self._numbers.at(sizes)
        if values is None:
            return None

        def graph() -> CapturedGraph:
            made = full().executable
            assert isinstance(made, executable.DistributedExecutable)
            return made.graph

        made = copy.copy(self)
        made._sources = [(kind, computed(each, values)) for kind, each in self._entries]
        if isinstance(self._executable, executable.DistributedExecutable):
            made._executable = self._executable.resized(sizes, graph)
        return made

    def _compile(self, graph: CapturedGraph, computed: list[Node], updated: Collection[int]) -> Executable | None:
        if not computed:
            return None
        gm, ties, stay = graph.gm, dict(graph.ties), set(graph.stay)
        for i, into in enumerate(self._written):
            if into in updated:
                ties[self._count + i] = into
                stay.add(self._count + i)
        gm.graph.output_node().args = (tuple(computed),)
        gm.graph.eliminate_dead_code()
        gm.recompile()
        read = {i for i, node in enumerate(gm.graph.find_nodes(op="placeholder")) if node.users}
        place = {i: at for i, (kind, at) in enumerate(self._entries) if kind == "result"}
        ties = {place[i]: into for i, into in ties.items() if i in place and into in read}
        stays = frozenset(place[i] for i in stay if i in place)
        return executable.compile_fx(replace(graph, ties=ties, stay=stays))

    @property
    def written(self) -> Sequence[int]:
        """Positions of the inputs that the graph writes into."""
        return self._written

    @property
    def executable(self) -> Executable | None:
        """The planned graph; None if it computes nothing."""
        return self._executable

    def run(self, args: list[Any]) -> Outcome:
        """Runs the graph on tensors and numbers in the placeholders' order; the list may be emptied."""
        passed = {at: args[at] for at in self._passed}
        new = [] if self._executable is None else self._executable(args)
        values = [passed[at] if kind == "input" else new[at] if kind == "result" else at for kind, at in self._sources]
        return Outcome(values[: self._count], dict(zip(self._written, values[self._count :], strict=True)))


def _lift_writes(graph: Graph, inputs: Mapping[Node, int]) -> list[tuple[int, Any]]:
    """Removes the copies into inputs at the end of a functionalized graph, and returns them as (input, value). A copy
    that is also a result becomes the input itself."""
    writes = []
    for node in list(graph.nodes):
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        if not node.target._schema.is_mutable:
            continue
        only_returned = all(user.op == "output" for user in node.users)
        if node.target is not torch.ops.aten.copy_.default or node.args[0] not in inputs or not only_returned:
            raise CaptureError(
                f"capture: an operator writes into a tensor: operator={node.target}, code={_line_of(node)}; "
                "write it without the trailing underscore"
            )
        writes.append((inputs[node.args[0]], node.args[1]))
        node.replace_all_uses_with(node.args[0])
        graph.erase_node(node)
    return writes


def replace_special_operators(graph: Graph) -> None:
    """Replaces what AOTAutograd's graphs have and ordinary programs lack: tokens that order side effects are removed,
    and tensors without memory, such as the gradient of `sgn`, become zeros. Raises CaptureError for other side
    effects."""
    _lift_effects(graph)
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten._efficientzerotensor.default):
        node.target = torch.ops.aten.zeros.default
        value = node.meta["val"]
        with value.fake_mode:
            node.meta["val"] = torch.zeros(value.shape, dtype=value.dtype, device=value.device)


def _lift_effects(graph: Graph) -> None:
    """Frees the checks of torch.linalg's functions of the tokens by which torch orders operators with side effects.
    Raises CaptureError for other such operators."""
    for node in graph.find_nodes(op="call_function", target=torch.ops.higher_order.with_effects):
        token, operator, *arguments = node.args
        if operator is not torch.ops.aten._linalg_check_errors.default:
            raise CaptureError(
                f"capture: an operator has a side effect: operator={operator}, code={_line_of(node)}; move it out of "
                "the captured code"
            )
        with graph.inserting_before(node):
            check = graph.call_function(operator, tuple(arguments), node.kwargs)
        check.meta |= node.meta
        for user in list(node.users):  # tokens: the operator has no result
            user.replace_all_uses_with(token)
            graph.erase_node(user)
        graph.erase_node(node)
    for target in (torch.ops.prims._sink_tokens.default, torch.ops.prims._make_token.default):
        for node in graph.find_nodes(op="call_function", target=target):
            graph.erase_node(node)


def _line_of(node: Node) -> str:
    """The place in the user's code that calls the operator: file and line, then the code; empty if it is unknown."""
    lines = (node.meta.get("stack_trace") or "").splitlines()
    return " | ".join([line.strip() for line in lines if line.strip()][-2:])


def _lift_checks(graph: Graph) -> list[Node]:
    """Replaces assertions by operators with a result, so that they are not removed as dead code; returns these."""
    checks = []
    for node in list(graph.nodes):
        value: Any = node.args[0] if node.args else None
        if node.target is torch.ops.aten._linalg_check_errors.default:
            operator, *arguments = torch.ops.joinsum.checked_factors.default, node.args[1], node.kwargs["is_matrix"]
        elif node.target in (torch.ops.aten._assert_async.msg, torch.ops.aten._assert_async.default):
            message = node.args[1] if len(node.args) > 1 else "the assertion of a tensor failed"
            # Quotes and semicolons are syntax in the text of plans.
            text = " | ".join(filter(None, [str(message), _line_of(node)])).translate(str.maketrans("';\n", '", '))
            operator, *arguments = torch.ops.joinsum.checked.default, text
        else:
            continue
        with graph.inserting_before(node):
            check = graph.call_function(operator, (value, *arguments))
        check.meta |= {"val": value.meta["val"].new_empty((), dtype=torch.bool)}
        check.meta["stack_trace"] = node.meta.get("stack_trace")
        graph.erase_node(node)
        checks.append(check)
    return checks
