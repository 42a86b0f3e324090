"""Plans that people make by hand, for a captured program: what a choice is never worse than, and what they cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from joinsum import _C
from joinsum.capture.baselines import Start, starts
from joinsum.capture.recorded import Recorded
from joinsum.context import Context
from joinsum.cost import cost
from joinsum.errors import PlanError
from joinsum.explanation.model_text import PassBaseline
from joinsum.graph_choice import Choice, Ends, Rivals, logical_program, search_options
from joinsum.plan import IaPlan, TraPlan
from joinsum.planning import Given, by_first_site, find_here

__all__ = ["ByHand"]

_PROBE = "value."


@dataclass(frozen=True)
class ByHand:
    """A program that plans are made for by hand.

    state   positions of the inputs that are kept between runs
    """

    here: Context
    recorded: Recorded
    state: frozenset[int]

    @property
    def rivals(self) -> Rivals:
        """These plans."""

        def found(graph: _C.EinsumPlan, program: TraPlan) -> Iterator[_C.PartialPlan]:
            names = _lowered_names(graph, program, self.here.sites)
            for start in self._starts(graph, program, names):
                if start.reason is None:
                    yield _part(start, names)

        return Rivals(f"plans by hand: state={sorted(self.state)}\n", found)

    def compared(self, choice: Choice, ends: Ends) -> tuple[PassBaseline, ...]:
        """The best plan of each kind, beside the chosen one, of which `ends` says where outputs end. On a process group
        site 0 plans for all, and all must call."""
        here, graph, program = self.here, choice.binary, choice.program
        loose = replace(ends, starts={})
        names = _lowered_names(graph, program, here.sites)
        found = self._starts(graph, program, names)
        possible = [start for start in found if start.reason is None]

        def answer() -> dict[str, Any]:
            given = Given([_part(start, names) for start in possible], told=True)
            plans = find_here(here, program, search_options(here, graph, loose), given).given if possible else ()
            made = {start.name: _told(here, plan) for start, plan in zip(possible, plans, strict=True)}
            return {"plans": [made.get(start.name, (None, start.reason)) for start in found]}

        request = f"{self.rivals.text}{choice.program_text}{loose.text(graph)}{here.cluster}"
        told = answer() if here.whole else by_first_site("explain", here, request, answer)
        chosen = cost(IaPlan(choice.plan)).seconds
        pairs = zip(found, told["plans"], strict=True)
        return tuple(_baseline(start.name, chosen, *each) for start, each in pairs)

    def _starts(self, graph: _C.EinsumPlan, program: TraPlan, names: dict[str, str]) -> list[Start]:
        nodes = program.core.nodes
        types = graph.even_cuts(self.here.sites) | {vertex: nodes[name] for vertex, name in names.items()}
        return starts(self.recorded, graph, types, self.state, self.here.grid)


def _part(start: Start, names: dict[str, str]) -> _C.PartialPlan:
    """The same with names of the logical plan."""
    values = {names[vertex]: place for vertex, place in start.values.items()}
    return _C.PartialPlan(start.placements, values, start.everywhere)


def _told(here: Context, plan: _C.IaPlan | None) -> tuple[str | None, str | None]:
    """The plan's text, or why there is none."""
    if plan is None:
        return None, "no placement of the other values goes with it"
    plan = plan.with_uncut_calls()
    try:
        _C.cost(plan, here.cluster.core())  # raises for more than the memory of a site
    except PlanError as error:
        return None, str(error)
    return str(plan), None


def _baseline(name: str, chosen: float, text: str | None, reason: str | None) -> PassBaseline:
    if text is None:
        return PassBaseline(name, None, None, None, reason)
    plan = IaPlan(_C.IaPlan.parse(text, {}))
    price = cost(plan)
    return PassBaseline(name, plan, price, price.seconds - chosen, None)


def _lowered_names(graph: _C.EinsumPlan, program: TraPlan, sites: int) -> dict[str, str]:
    """For each vertex of the graph, the value of its logical plan that is the result."""
    vertices = [name for name, *_ in graph.uses]
    probes = "".join(f"output {_PROBE}{name} = {name}\n" for name in vertices)
    lines = logical_program(_C.EinsumPlan.parse(f"{graph}".rstrip("\n") + f"\n{probes}"), sites).text.splitlines()
    head = f"output {_PROBE}"
    assert [line for line in lines if not line.startswith(head)] == program.text.splitlines()
    found = [line.removeprefix(head).partition(" = ") for line in lines if line.startswith(head)]
    return {vertex: name for vertex, _, name in found}
