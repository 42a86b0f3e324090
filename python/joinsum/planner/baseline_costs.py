"""Baselines of a captured program: what its plan is never worse than, and what they cost beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from joinsum import _C
from joinsum.algebra.plan import IaPlan, TraPlan
from joinsum.base.errors import PlanError
from joinsum.cluster.context import Context
from joinsum.planner.baselines.placement_baselines import PlacementBaseline, PlacementBaselines, ProgramInput
from joinsum.planner.cost import PlanCost, cost
from joinsum.planner.plan_choice import Baselines, Ends, PlanChoice, search_options
from joinsum.planner.search import from_first_site, search_in_process

__all__ = ["PricedBaseline", "ProgramBaselines"]


@dataclass(frozen=True)
class PricedBaseline:
    """A baseline with its costs on the same cluster as the chosen plan's.

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


@dataclass(frozen=True)
class ProgramBaselines:
    """The baselines of a program with these inputs, for the sites of a context."""

    context: Context
    inputs: Sequence[ProgramInput]

    @property
    def warm_starts(self) -> Baselines:
        """What a search completes beside its own plans."""

        def parts(graph: _C.EinsumPlan, program: TraPlan) -> Iterator[_C.PartialPlan]:
            names = graph.lowered_names(graph.even_cuts(self.context.sites))
            for baseline in self._baselines(graph, program, names):
                if baseline.reason is None:
                    yield _part(baseline, names)

        return Baselines(f"baselines: state={[each.name for each in self.inputs if each.state]}\n", parts)

    def priced(self, choice: PlanChoice, ends: Ends) -> tuple[PricedBaseline, ...]:
        """The best plan of each kind beside the chosen one, whose outputs end as `ends` says. On a process group site 0
        plans for all, and all must call."""
        current, graph, program = self.context, choice.binary, choice.program
        loose = replace(ends, starts={})
        names = graph.lowered_names(graph.even_cuts(current.sites))
        baselines = self._baselines(graph, program, names)
        possible = [each for each in baselines if each.reason is None]

        def answer() -> dict[str, Any]:
            starts = [_part(each, names) for each in possible]
            options = search_options(current, graph, loose)
            plans = search_in_process(current, program, options, starts).completed if possible else ()
            texts = {each.name: _text_or_reason(current, plan) for each, plan in zip(possible, plans, strict=True)}
            return {"plans": [texts.get(each.name, (None, each.reason)) for each in baselines]}

        request = f"{self.warm_starts.text}{choice.program_text}{loose.text(graph)}{current.cluster}"
        reply = answer() if current.single_process else from_first_site("explain", current, request, answer)
        chosen = cost(IaPlan(choice.plan)).seconds
        pairs = zip(baselines, reply["plans"], strict=True)
        return tuple(_priced(each.name, chosen, *text_and_reason) for each, text_and_reason in pairs)

    def _baselines(self, graph: _C.EinsumPlan, program: TraPlan, names: dict[str, str]) -> list[PlacementBaseline]:
        nodes = program.core.nodes
        types = graph.even_cuts(self.context.sites) | {vertex: nodes[name] for vertex, name in names.items()}
        return PlacementBaselines(self.inputs, graph, types, self.context.grid).all()


def _part(baseline: PlacementBaseline, names: dict[str, str]) -> _C.PartialPlan:
    """The same with names of the logical plan."""
    values = {names[vertex]: place for vertex, place in baseline.values.items()}
    return _C.PartialPlan(baseline.placements, values, baseline.everywhere)


def _text_or_reason(current: Context, plan: _C.IaPlan | None) -> tuple[str | None, str | None]:
    """The plan's text, or why there is none."""
    if plan is None:
        return None, "no placement of the other values goes with it"
    plan = plan.with_undecomposed_calls()
    try:
        _C.cost(plan, current.cluster.core())  # raises for more than the memory of a site
    except PlanError as error:
        return None, str(error)
    return str(plan), None


def _priced(name: str, chosen: float, text: str | None, reason: str | None) -> PricedBaseline:
    if text is None:
        return PricedBaseline(name, None, None, None, reason)
    plan = IaPlan(_C.IaPlan.parse(text, {}))
    price = cost(plan)
    return PricedBaseline(name, plan, price, price.seconds - chosen, None)
