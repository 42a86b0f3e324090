"""Compares two plans: where they differ, and what that costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from joinsum.algebra.plan import IaPlan, PlanNode
from joinsum.base.errors import PlanError
from joinsum.base.text_table import count_text, seconds_text, text_table
from joinsum.explanation.explanation import Explanation
from joinsum.planner.cost import NodeCost, PlanCost
from joinsum.planner.cost import cost as cost_of
from joinsum.planner.optimize import Optimized

__all__ = ["Difference", "PlanDiff", "Side", "diff"]

# What a value is, whatever its layout: an operator with its arguments, and the numbers of its operands' values.
_Meaning = tuple[str, tuple[int, ...]]


@dataclass(frozen=True)
class Side:
    """How one plan has a value: the nodes that compute it and then move it, and their costs together."""

    nodes: tuple[PlanNode, ...] = ()
    paper_floats: float = 0.0
    wire_bytes: int = 0
    seconds: float = 0.0

    @property
    def form(self) -> tuple[tuple[str, str], ...]:
        """What is done, without the nodes' names: operations and placements, in order."""
        return tuple((node.operation, node.type.text()) for node in self.nodes)

    def __str__(self) -> str:
        """Placements in the order that the value goes through them; `-` where the plan lacks it."""
        return ", then ".join(f"{node.name} {node.placement}" for node in self.nodes) or "-"


@dataclass(frozen=True)
class Difference:
    """A value that two plans have in different ways, or that only one of them has.

    value   the operator that computes it, or the input's name
    a, b    how each plan has it; no nodes where it does not
    """

    value: str
    a: Side
    b: Side

    @property
    def wire_bytes(self) -> int:
        """What b moves more than a."""
        return self.b.wire_bytes - self.a.wire_bytes

    @property
    def seconds(self) -> float:
        """What b takes longer than a."""
        return self.b.seconds - self.a.seconds


@dataclass(frozen=True, repr=False)
class PlanDiff:
    """What `joinsum.diff` found; `str` gives it as text.

    a, b          costs of the two plans
    differences   in the order in which the plans run
    same          values that both have in one way
    """

    a: PlanCost
    b: PlanCost
    differences: tuple[Difference, ...]
    same: int

    @property
    def equal(self) -> bool:
        """Whether the plans do the same."""
        return not self.differences

    def __repr__(self) -> str:
        totals = f"a: {_totals(self.a)}\nb: {_totals(self.b)}"
        if self.equal:
            return f"the plans do the same: {self.same} values\n{totals}"
        first = self.differences[0]
        rows = [
            [
                each.value,
                str(each.a),
                str(each.b),
                _signed(each.b.paper_floats - each.a.paper_floats, count_text),
                _signed(each.wire_bytes, count_text),
                _signed(each.seconds, seconds_text),
            ]
            for each in self.differences
        ]
        more = [self.b.paper_floats - self.a.paper_floats, float(self.b.wire_bytes - self.a.wire_bytes)]
        time = _signed(self.b.seconds - self.a.seconds, seconds_text)
        rows.append(["total", "", "", *(_signed(value, count_text) for value in more), time])
        header = ["value", "a", "b", "b - a: paper floats", "b - a: wire B", "b - a: time"]
        table = text_table(header, rows, right=range(3, 6))
        numbers = f"values that differ: {len(self.differences)}, that do not: {self.same}"
        title = f"the plans differ first at {first.value}; {numbers}"
        return f"{title}\n{table}\n{totals}"


def diff(a: IaPlan | Optimized | Explanation, b: IaPlan | Optimized | Explanation) -> PlanDiff:
    """Compares two physical plans: where they differ, and what that costs.

    a, b   plans, priced for the context's cluster, or what `joinsum.optimize` or `joinsum.explain` gave

    Values are matched by what is computed, whatever their layouts: an input by its name, an operator by its arguments
    and operands. A value is listed with its moves. Operators that rules have rewritten match none of the other plan.
    Raises PlanError for anything else.

    >>> import joinsum
    >>> _ = joinsum.init(sites=2)
    >>> start = "ia on 2\\ninput X: f32[4,4]<2,2> (0)\\ninput W: f32[4,4]<2,2> "
    >>> end = "\\noutput Z = agg[0, 2; add](join[1; 0; matmul](X, w))"
    >>> a = joinsum.parse(start + "(0)\\nw = broadcast(W)" + end)
    >>> b = joinsum.parse(start + "(*)\\nw = W" + end)
    >>> joinsum.diff(a, b)
    the plans differ first at W; values that differ: 1, that do not: 3
    value  a                   b      b - a: paper floats  b - a: wire B  b - a: time
    -----  ------------------  -----  -------------------  -------------  -----------
    W      W (0), then t0 (*)  W (*)                  -32            -64       -50 us
    total                                             -32            -64       -50 us
    a: 32 paper floats, 64 wire B, 50 us, peak 160 B
    b: 0 paper floats, 0 wire B, 0.64 ns, peak 128 B
    """
    (plan_a, cost_a), (plan_b, cost_b) = _priced("a", a), _priced("b", b)
    numbers: dict[_Meaning, int] = {}
    values_a, values_b = _values(plan_a, cost_a, numbers), _values(plan_b, cost_b, numbers)
    differences = []
    same = 0
    for value in dict.fromkeys([*values_a, *values_b]):
        left, right = values_a.get(value, Side()), values_b.get(value, Side())
        if left.form == right.form and left.wire_bytes == right.wire_bytes:
            same += 1
            continue
        differences.append(Difference((left.nodes or right.nodes)[0].operation, left, right))
    return PlanDiff(cost_a, cost_b, tuple(differences), same)


def _priced(name: str, x: object) -> tuple[IaPlan, PlanCost]:
    if isinstance(x, (Optimized, Explanation)):
        return x.plan, x.cost
    if not isinstance(x, IaPlan):
        remedy = "lower or optimize a logical one first"
        raise PlanError(f"diff: a physical plan, or what optimize or explain gave; {remedy}: {name}={type(x).__name__}")
    return x, cost_of(x)


def _values(plan: IaPlan, cost: PlanCost, numbers: dict[_Meaning, int]) -> dict[int, Side]:
    """How the plan has each value, by the value's number, in the order that it runs. Both plans share `numbers`."""
    costs = {node.node: node for node in cost.nodes}
    value_of: dict[str, int] = {}
    nodes: dict[int, list[PlanNode]] = {}
    for node in plan.nodes:
        if node.moves:
            value = value_of[node.inputs[0]]
        else:
            what = f"{node.name}: {node.type.relation}" if node.kind == "input" else node.operation
            meaning = (what, tuple(value_of[name] for name in node.inputs))
            value = numbers.setdefault(meaning, len(numbers))
        value_of[node.name] = value
        nodes.setdefault(value, []).append(node)
    return {value: _side(found, costs) for value, found in nodes.items()}


def _side(nodes: Iterable[PlanNode], costs: Mapping[str, NodeCost]) -> Side:
    own = tuple(nodes)
    priced = [costs[node.name] for node in own]
    return Side(
        own,
        sum(each.paper_floats for each in priced),
        sum(each.wire_bytes for each in priced),
        sum(each.seconds for each in priced),
    )


def _signed(value: float, text: Callable[[float], str]) -> str:
    """A difference with its sign.

    >>> _signed(-1200, count_text), _signed(0.0, count_text)
    ('-1,200', '0')
    """
    sign = "+" if value > 0 else "-" if value < 0 else ""
    return sign + text(abs(value))


def _totals(cost: PlanCost) -> str:
    figures = f"{count_text(cost.paper_floats)} paper floats, {count_text(cost.wire_bytes)} wire B"
    return f"{figures}, {seconds_text(cost.seconds)}, peak {count_text(cost.peak_bytes)} B"
