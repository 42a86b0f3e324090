"""Plans of captured models as text: how their tensors are divided, what moves, and which operators take the time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from joinsum import _C
from joinsum.algebra.plan import PlanNode
from joinsum.base.text_table import count_text, seconds_text, text_table
from joinsum.explanation.explanation import Explanation
from joinsum.explanation.model import node_estimates
from joinsum.explanation.text import ESTIMATED, bytes_text, cluster_text, queries_text
from joinsum.ist.alternative import SubnetAlternative
from joinsum.planner.baseline_costs import PricedBaseline
from joinsum.planner.cost import PlanCost

__all__ = ["ModelExplanation", "Pass", "Vertex", "layout_text", "names_text"]

_SHOWN = 30
_PEAK_NOTE = (
    "the peak is of inputs, live blocks and messages; freed blocks add nothing, the allocator's unused memory does"
)
_ROUNDING = 1e-9  # of sums of seconds
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Vertex:
    """A step of a plan: an operator's work on all sites, or a move of its result.

    node         of the plan
    module       the user's module that computes the value, as `named_modules` calls it: `layers.0.attention`; empty
                 where Dynamo does not know it
    what         the operator: `aten::silu`, `einsum abc,dc->abd; add`; of a move where the value was: `move f32[4/2]`
    result       dtype and shape, with the parts of each axis: `f32[8, 64/4]`
    wire_bytes   payload bytes between different sites
    seconds      predicted; of a move those that its messages take to travel
    moves        whether it is a move
    measured     with `analyze=True`, of the site that took longest; of a move those that the site packed and waited
    estimated    `wire_bytes` where these follow from the estimated entries of a sparse value
    """

    node: str
    module: str
    what: str
    result: str
    wire_bytes: int
    seconds: float
    moves: bool = False
    measured: float | None = None
    estimated: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False)
class Pass:
    """A plan of a captured model: of a whole step, or of the forward or the backward pass.

    name          `train step`, `forward`, `backward`
    origin        where the plan comes from: planned here, or the file that it was cached in
    explanation   plan and costs as of any other plan: as a tree, JSON, graph and page
    baselines     what the usual baselines would cost; empty unless they were requested
    alternative   independent subnet training of a step's model, by expectation; None unless baselines were requested
    modules       the user's module of the plan's nodes, by name, where it is known
    """

    name: str
    origin: str
    explanation: Explanation
    baselines: tuple[PricedBaseline, ...] = ()
    alternative: SubnetAlternative | None = None
    modules: Mapping[str, str] = field(default_factory=dict)

    @property
    def inputs(self) -> dict[str, _C.PhysicalType]:
        """Where the plan wants parameters, state and inputs, by name."""
        return self.explanation.plan.inputs

    @property
    def vertices(self) -> tuple[Vertex, ...]:
        """The plan's steps, in the order in which they run. What is computed together is one."""
        nodes = {node.name: node for node in self.explanation.plan.nodes}
        costs = {cost.node: cost for cost in self.explanation.cost.nodes}
        run = self.explanation.measured
        out = []
        for node in nodes.values():
            if node.kind == "input" or node.fused:
                continue
            own = [costs[node.name], *(costs[name] for name in node.inputs if nodes[name].fused)]
            figures = sum(cost.wire_bytes for cost in own), sum(cost.seconds for cost in own)
            module = self.modules.get(node.name, "")
            measured = None if run is None else run.nodes[node.name].seconds
            what, layout = _what(node, nodes), layout_text(node.type)
            estimated = node_estimates(node, self.explanation.estimated)
            out.append(Vertex(node.name, module, what, layout, *figures, node.moves, measured, estimated))
        return tuple(out)

    def __str__(self) -> str:
        plan, cost, run = self.explanation.plan, self.explanation.cost, self.explanation.measured
        estimated = self.explanation.estimated
        sites = f"{plan.grid.sites} sites ({plan.grid})" if plan.grid.sites > 1 else "1 site"
        lines = [
            f"{self.name} on {sites}: {seconds_text(cost.seconds)} predicted, "
            f"{bytes_text('wire_bytes', cost.wire_bytes, estimated)} B between sites",
            f"peak {bytes_text('peak_bytes', cost.peak_bytes, estimated)} B on the busiest site; {self.origin}",
            *([ESTIMATED] if estimated else []),
            _PEAK_NOTE,
            f"costs are for {cluster_text(self.explanation)}",
            *self._run_text(),
            "",
            "where parameters, state and inputs are stored; names that differ in numbers are one line",
            _inputs_table(self.inputs),
            "",
            "operators and moves, the longest first; equal ones are one line",
            _vertices_table(self.vertices, overlaps=run is not None and not run.loopback),
        ]
        if self.explanation.queries:
            lines += ["", queries_text(self.explanation)]
        if self.baselines:
            lines += ["", "baselines", _baselines_table(self)]
        if self.alternative is not None:
            lines += ["", str(self.alternative)]
        return "\n".join(lines)

    __repr__ = __str__

    def _run_text(self) -> list[str]:
        run = self.explanation.measured
        if run is None:
            return []
        moves = [each for each in self.vertices if each.moves]
        predicted = sum(each.seconds for each in moves)
        share = (
            "" if run.loopback or predicted == 0 else f", {_hidden(moves) / predicted:.0%} of the moves' time hidden"
        )
        return [f"operators and moves of the last step on {run.sites}: {seconds_text(run.seconds)} measured{share}"]


@dataclass(frozen=True, repr=False)
class ModelExplanation:
    """What `joinsum.explain` reports of a model, a function, or a training step.

    passes   a whole step, or the forward and then the backward pass
    """

    passes: tuple[Pass, ...]

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.passes))

    __repr__ = __str__


def layout_text(type_: _C.PhysicalType) -> str:
    """Dtype and shape with the shards of each axis; then how many sites hold the same shard, or only partial values.

    >>> import joinsum
    >>> plan = joinsum.parse("ia on 2x2\\ninput X: f32[8,6]<4,1> (0, *)\\noutput Y = X")
    >>> layout_text(plan.inputs["X"])
    'f32[8/2, 6], 2 copies'
    """
    shape = []
    for axis in type_.relation.axes:
        parts = 1 if axis.key_dim is None else type_.parts[axis.key_dim]
        shape.append(f"{axis.extent}/{parts}" if parts > 1 else str(axis.extent))
    text = f"{type_.relation.dtype}[{', '.join(shape)}]"
    states = type_.placement.states
    axes = zip(type_.grid.axes, states, strict=False)
    copies = prod(sites for sites, state in axes if isinstance(state, _C.Replicated))
    text += f", {copies} copies" if copies > 1 else ""
    # Keys that no axis follows are terms of a sum that is still to be taken.
    linked = {axis.key_dim for axis in type_.relation.axes}
    terms = any(isinstance(state, _C.Split) and state.dim not in linked for state in states)
    kernels = {state.kernel for state in states if isinstance(state, _C.Pending)} | ({"add"} if terms else set())
    return text + "".join(f", partial {kernel}" for kernel in sorted(kernels))


def _what(node: PlanNode, nodes: dict[str, PlanNode]) -> str:
    if node.moves:
        return f"move {layout_text(nodes[node.inputs[0]].type)}"
    if node.core.call is not None:
        return node.core.call.function
    if node.core.kernel is None:
        return node.operation
    if node.kind == "local_aggregate" and nodes[node.inputs[0]].fused:
        return f"{_what(nodes[node.inputs[0]], nodes)}; {node.core.kernel}"
    return _kernel_text(node.core.kernel)


def _kernel_text(kernel: _C.Kernel) -> str:
    if kernel.name != "contract":
        return str(kernel)
    return " | ".join([f"einsum {kernel.parameters[0]}", *map(str, kernel.epilogue)])


def _inputs_table(inputs: dict[str, _C.PhysicalType]) -> str:
    rows: dict[tuple[tuple[str, ...], str], dict[str, int]] = {}
    for name, type_ in inputs.items():
        largest = max(type_.bytes(site) for site in range(type_.sites))
        rows.setdefault((tuple(_NUMBER.split(name)), layout_text(type_)), {})[name] = largest
    lines = [
        [names_text(list(sizes)), cut, str(len(sizes)), count_text(sum(sizes.values()))]
        for (_, cut), sizes in sorted(rows.items())
    ]
    return text_table(["name", "layout", "times", "B on a site"], lines, right=[2, 3])


def names_text(names: Sequence[str]) -> str:
    """Names that differ in numbers alone, as one: a range of numbers, or `*` where it is no range.

    >>> names_text(["0.weight"]), names_text(["layers.0.w2", "layers.1.w2"]), names_text(["0.bias", "4.bias"])
    ('0.weight', 'layers.{0..1}.w2', '*.bias')
    """
    numbers = list(zip(*(map(int, _NUMBER.findall(name)) for name in names), strict=True))
    ranges = [range(min(each), max(each) + 1) for each in numbers]
    complete = prod(map(len, ranges)) == len(names)
    shown = [str(each[0]) if len(each) == 1 else f"{{{each[0]}..{each[-1]}}}" if complete else "*" for each in ranges]
    pieces = _NUMBER.split(names[0])
    return pieces[0] + "".join(number + piece for number, piece in zip(shown, pieces[1:], strict=True))


def _baselines_table(plan: Pass) -> str:
    """The chosen plan, and each baseline with what it costs more, or the reason why there is none."""
    rows = [["chosen", *_price(plan.explanation.cost), ""]]
    for each in plan.baselines:
        if each.cost is None or each.loses is None:
            rows.append([each.name, "", "", "", f"none: {each.reason}"])
        else:
            less = f"-{seconds_text(-each.loses)}" if each.loses < 0 else f"+{seconds_text(each.loses)}"
            same = abs(each.loses) <= _ROUNDING * each.cost.seconds
            rows.append([each.name, *_price(each.cost), "the same" if same else less])
    return text_table(["plan", "time", "wire B", "peak B", "against the choice"], rows, right=[1, 2, 3])


def _price(cost: PlanCost) -> list[str]:
    return [seconds_text(cost.seconds), count_text(cost.wire_bytes), count_text(cost.peak_bytes)]


def _vertices_table(vertices: Sequence[Vertex], overlaps: bool) -> str:
    """Equal steps of modules whose paths differ in numbers alone are one line. `overlaps`: measured moves may have
    travelled while sites computed."""
    rows: dict[tuple[str, tuple[str, ...], str], list[Vertex]] = {}
    for each in vertices:
        rows.setdefault((each.what, tuple(_NUMBER.split(each.module)), each.result), []).append(each)
    ordered = sorted(rows.items(), key=lambda row: (-sum(each.seconds for each in row[1]), row[0]))
    lines = [
        [what, names_text(sorted({each.module for each in same})), result, *_sums(same, overlaps)]
        for (what, _, result), same in ordered[:_SHOWN]
    ]
    rest = [each for _, same in ordered[_SHOWN:] for each in same]
    if rest:
        lines.append([f"{len(ordered) - _SHOWN} more lines", "", "", *_sums(rest, overlaps)])
    figures = ["times", "wire B", "time"]
    if any(each.measured is not None for each in vertices):
        figures += ["measured", "hidden"] if overlaps else ["measured"]
    columns = ["what", "module", "result", *figures]
    if not any(each.module for each in vertices):
        columns.remove("module")
        lines = [[what, *others] for what, _, *others in lines]
    return text_table(columns, lines, right=range(len(columns) - len(figures), len(columns)))


def _sums(vertices: Sequence[Vertex], overlaps: bool) -> list[str]:
    seconds = sum(each.seconds for each in vertices)
    estimated = {name for each in vertices for name in each.estimated}
    wire = bytes_text("wire_bytes", sum(each.wire_bytes for each in vertices), estimated)
    out = [str(len(vertices)), wire, seconds_text(seconds)]
    measured = [each.measured for each in vertices if each.measured is not None]
    if measured:
        out.append(seconds_text(sum(measured)))
    if measured and overlaps:
        out.append(seconds_text(_hidden(vertices)) if all(each.moves for each in vertices) else "")
    return out


def _hidden(moves: Iterable[Vertex]) -> float:
    """Predicted seconds of moves that the sites did not spend on them, as they computed while messages travelled. Moves
    that travel together share what was measured, so these are summed."""
    return max(0.0, sum(each.seconds - (each.measured or 0.0) for each in moves))
