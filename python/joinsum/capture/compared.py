"""What plans that people make by hand cost, for a captured program."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from joinsum import _C
from joinsum.capture.baselines import Start, starts
from joinsum.capture.recorded import Recorded
from joinsum.context import Context
from joinsum.cost import cost
from joinsum.errors import PlanError
from joinsum.explanation.model_text import PassBaseline
from joinsum.graph_choice import Choice, Ends, logical_program
from joinsum.plan import IaPlan
from joinsum.planning import Options, by_first_site, find_here

__all__ = ["compared"]

_PROBE = "value."


def compared(
    here: Context, recorded: Recorded, graph: _C.EinsumPlan, choice: Choice, state: Collection[int], ends: Ends
) -> tuple[PassBaseline, ...]:
    """The best plan of each kind that people make by hand, beside the chosen one.

    graph   of the recorded program, which the choice was made for
    state   positions of the inputs that are kept between runs
    ends    where outputs end; inputs start as each kind says

    On a process group site 0 plans for all, and all must call.
    """
    names = _lowered_names(graph, choice, here.sites)
    nodes = choice.program.core.nodes
    types = graph.even_cuts(here.sites) | {vertex: nodes[name] for vertex, name in names.items()}
    found = starts(recorded, graph, types, state, here.grid)
    loose = {*ends.free, *graph.ties}
    pins = {name: _C.Placement.replicated(here.grid) for name, _ in graph.outputs if name not in loose}

    def answer() -> dict[str, Any]:
        return {"plans": [_planned(here, choice, each, pins, names) for each in found]}

    request = f"baselines, state={sorted(state)}\n{choice.program_text}{ends.text(graph)}{here.cluster}"
    told = answer() if here.whole else by_first_site("explain", here, request, answer)
    chosen = cost(IaPlan(choice.plan)).seconds
    made = []
    for start, (text, reason) in zip(found, told["plans"], strict=True):
        plan = None if text is None else IaPlan(_C.IaPlan.parse(text, {}))
        price = None if plan is None else cost(plan)
        loses = None if price is None else price.seconds - chosen
        made.append(PassBaseline(start.name, plan, price, loses, reason))
    return tuple(made)


def _planned(
    here: Context, choice: Choice, start: Start, ends: Mapping[str, _C.Placement], names: Mapping[str, str]
) -> tuple[str | None, str | None]:
    """A plan's text, or the reason why there is none."""
    if start.reason is not None:
        return None, start.reason
    program = choice.program
    pins = {names[vertex]: place for vertex, place in start.values.items()}
    if start.everywhere:
        work = program.core.nodes.keys() - program.inputs.keys()
        pins = dict.fromkeys(sorted(work), _C.Placement.replicated(here.grid))
    pins |= ends
    try:
        found = find_here(here, program, Options(dict(start.placements), pins, "seconds", here.cluster))
    except PlanError as error:
        return None, str(error)
    return str(found.plans[0].plan.with_uncut_calls()), None


def _lowered_names(graph: _C.EinsumPlan, choice: Choice, sites: int) -> dict[str, str]:
    """For each vertex of the graph, the value of the logical plan that is its result."""
    vertices = [name for name, *_ in graph.uses]
    probes = "".join(f"output {_PROBE}{name} = {name}\n" for name in vertices)
    lines = logical_program(_C.EinsumPlan.parse(f"{graph}".rstrip("\n") + f"\n{probes}"), sites).text.splitlines()
    head = f"output {_PROBE}"
    assert [line for line in lines if not line.startswith(head)] == choice.program_text.splitlines()
    pairs = (line.removeprefix(head).split(" = ") for line in lines if line.startswith(head))
    return {vertex: name for vertex, name in pairs}
