"""Plans of captured models as text: what their tensors are cut into, what moves, and which operators take the time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from joinsum import _C
from joinsum.cost import PlanCost
from joinsum.explanation.model import Explanation
from joinsum.explanation.text import cluster_text
from joinsum.plan import IaPlan, PlanNode
from joinsum.text_table import count_text, seconds_text, text_table

__all__ = ["ModelExplanation", "Pass", "PassBaseline", "Vertex", "cut_text"]

_SHOWN = 30
_ROUNDING = 1e-9  # of sums of seconds
_COLUMNS = ["what", "result", "times", "wire B", "time"]


@dataclass(frozen=True)
class Vertex:
    """A step of a plan: an operator's work on all sites, or a move of its result.

    node         of the plan
    what         the operator: `aten::silu`, `einsum abc,dc->abd; add`; of a move where the value was: `move f32[4/2]`
    result       dtype and shape, with the parts of each axis: `f32[8, 64/4]`
    wire_bytes   payload bytes between different sites
    seconds      predicted
    """

    node: str
    what: str
    result: str
    wire_bytes: int
    seconds: float


@dataclass(frozen=True)
class PassBaseline:
    """A plan that people make by hand, with its costs on the same cluster as the chosen one's.

    name     `data parallel`, `fully sharded data parallel`, `tensor parallel`, `sequence split`, `replicate all`
    plan     the best one whose inputs start as the name says; None where there is none
    cost     of that plan, or None
    loses    its predicted seconds beyond those of the chosen plan, or None
    reason   why there is no such plan, or None
    """

    name: str
    plan: IaPlan | None
    cost: PlanCost | None
    loses: float | None
    reason: str | None


@dataclass(frozen=True, repr=False)
class Pass:
    """A plan of a captured model: of a whole step, or of the forward or the backward pass.

    name          `train step`, `forward`, `backward`
    origin        where the plan comes from: planned here, or the file that it was kept in
    explanation   plan and costs as of any other plan: as a tree, JSON, graph and page
    baselines     what plans that people make by hand would cost; empty where they were not asked for
    """

    name: str
    origin: str
    explanation: Explanation
    baselines: tuple[PassBaseline, ...] = ()

    @property
    def inputs(self) -> dict[str, _C.PhysicalType]:
        """Where the plan wants parameters, state and inputs, by name."""
        return self.explanation.plan.inputs

    @property
    def vertices(self) -> tuple[Vertex, ...]:
        """The plan's steps, in the order in which they run. What is computed together is one."""
        nodes = {node.name: node for node in self.explanation.plan.nodes}
        costs = {cost.node: cost for cost in self.explanation.cost.nodes}
        made = []
        for node in nodes.values():
            if node.kind == "input" or node.fused:
                continue
            own = [costs[node.name], *(costs[name] for name in node.inputs if nodes[name].fused)]
            figures = sum(cost.wire_bytes for cost in own), sum(cost.seconds for cost in own)
            made.append(Vertex(node.name, _what(node, nodes), cut_text(node.type), *figures))
        return tuple(made)

    def __str__(self) -> str:
        plan, cost = self.explanation.plan, self.explanation.cost
        sites = f"{plan.grid.sites} sites ({plan.grid})" if plan.grid.sites > 1 else "1 site"
        lines = [
            f"{self.name} on {sites}: {seconds_text(cost.seconds)} predicted, "
            f"{count_text(cost.wire_bytes)} B between sites",
            f"peak {count_text(cost.peak_bytes)} B on the busiest site; {self.origin}",
            f"costs are for {cluster_text(self.explanation)}",
            "",
            "where parameters, state and inputs lie (* stands for numbers in names)",
            _inputs_table(self.inputs),
            "",
            "operators and moves, the longest first; equal ones are one line",
            _vertices_table(self.vertices),
        ]
        if self.baselines:
            lines += ["", "plans made by hand", _baselines_table(self)]
        return "\n".join(lines)

    __repr__ = __str__


@dataclass(frozen=True, repr=False)
class ModelExplanation:
    """What `joinsum.explain` tells of a model, a function, or a training step.

    passes   a whole step, or the forward and then the backward pass
    """

    passes: tuple[Pass, ...]

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.passes))

    __repr__ = __str__


def cut_text(type_: _C.PhysicalType) -> str:
    """Dtype and shape with the parts of each axis; then how many sites hold the same part, or only partial results.

    >>> import joinsum
    >>> plan = joinsum.parse("ia on 2x2\\ninput X: f32[8,6]<4,1> (0, *)\\noutput Y = X")
    >>> cut_text(plan.inputs["X"])
    'f32[8/2, 6], 2 copies'
    """
    states = [state.strip() for state in type_.placement.text(type_.relation.frontier).strip("()").split(",")]
    parts: dict[str, int] = {}
    for state, sites in zip(states, type_.grid.axes, strict=False):
        parts[state] = parts.get(state, 1) * sites
    shape = []
    for axis in type_.relation.axes:
        cut = 1 if axis.key_dim is None else parts.pop(str(axis.key_dim), 1)
        shape.append(f"{axis.extent}/{cut}" if cut > 1 else str(axis.extent))
    text = f"{type_.relation.dtype}[{', '.join(shape)}]"
    copies = parts.pop("*", 1)
    text += f", {copies} copies" if copies > 1 else ""
    # What is left of the states: sums that the sites have parts of, by another kernel than `add` where it is named.
    kernels = {state.removeprefix("+") if state.startswith("+") else "add" for state in parts if state}
    return text + "".join(f", partial {kernel}" for kernel in sorted(kernels))


def _what(node: PlanNode, nodes: dict[str, PlanNode]) -> str:
    if node.moves:
        return f"move {cut_text(nodes[node.inputs[0]].type)}"
    inner = node.operation.partition("[")[2].removesuffix("]")
    if node.kind == "local_call":
        return inner.split(";")[1].strip()
    kernel = inner.rpartition("; ")[2]
    if node.kind == "local_aggregate" and nodes[node.inputs[0]].fused:
        return f"{_what(nodes[node.inputs[0]], nodes)}; {kernel}"
    found = re.fullmatch(r"contract\[(.*)\]", kernel)
    return f"einsum {found[1]}" if found else kernel


def _inputs_table(inputs: dict[str, _C.PhysicalType]) -> str:
    rows: dict[tuple[str, str], list[int]] = {}
    for name, type_ in inputs.items():
        largest = max(type_.bytes(site) for site in range(type_.sites))
        rows.setdefault((re.sub(r"\d+", "*", name), cut_text(type_)), []).append(largest)
    lines = [[name, cut, str(len(sizes)), count_text(sum(sizes))] for (name, cut), sizes in sorted(rows.items())]
    return text_table(["name", "as it is cut", "times", "B on a site"], lines, right=[2, 3])


def _baselines_table(told: Pass) -> str:
    """The chosen plan, and each baseline with what it costs more, or the reason why there is none."""
    rows = [["chosen", *_price(told.explanation.cost), ""]]
    for each in told.baselines:
        if each.cost is None or each.loses is None:
            rows.append([each.name, "", "", "", f"none: {each.reason}"])
        else:
            less = f"-{seconds_text(-each.loses)}" if each.loses < 0 else f"+{seconds_text(each.loses)}"
            same = abs(each.loses) <= _ROUNDING * each.cost.seconds
            rows.append([each.name, *_price(each.cost), "the same" if same else less])
    return text_table(["plan", "time", "wire B", "peak B", "against the choice"], rows, right=[1, 2, 3])


def _price(cost: PlanCost) -> list[str]:
    return [seconds_text(cost.seconds), count_text(cost.wire_bytes), count_text(cost.peak_bytes)]


def _vertices_table(vertices: Sequence[Vertex]) -> str:
    rows: dict[tuple[str, str], tuple[int, int, float]] = {}
    for each in vertices:
        times, wire, seconds = rows.get((each.what, each.result), (0, 0, 0.0))
        rows[each.what, each.result] = (times + 1, wire + each.wire_bytes, seconds + each.seconds)
    ordered = sorted(rows.items(), key=lambda row: (-row[1][2], row[0]))
    lines = [[what, result, *_figures(*sums)] for (what, result), sums in ordered[:_SHOWN]]
    rest = [sums for _, sums in ordered[_SHOWN:]]
    if rest:
        times, wire, seconds = (sum(column) for column in zip(*rest, strict=True))
        lines.append([f"{len(rest)} more lines", "", *_figures(int(times), int(wire), seconds)])
    return text_table(_COLUMNS, lines, right=[2, 3, 4])


def _figures(times: int, wire: int, seconds: float) -> list[str]:
    return [str(times), count_text(wire), seconds_text(seconds)]
