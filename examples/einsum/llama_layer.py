"""A layer of LLaMA-7B as a graph of einsums: how the planner divides each step on 8, 64 and 1,024 sites."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import joinsum

# b sequences in a batch, s and t places in a sequence, a features of a place, h heads, d elements of a head,
# f features of the feed-forward part.
EXTENTS = {"b": 8, "s": 2048, "t": 2048, "a": 4096, "h": 32, "d": 128, "f": 11008}
ROLES = {"b": "batch", "s": "sequence", "t": "keys", "a": "model", "h": "heads", "d": "head", "f": "hidden"}

INPUTS = {"x": "bsa", "wq": "ahd", "wk": "ahd", "wv": "ahd", "wo": "hda", "w1": "af", "w3": "af", "w2": "fa"}
STEPS = [
    ("squares", "bsa->bs", "x", "square", "sum"),
    ("scales", "bs->bs", "squares", "sqrt | reciprocal", None),
    ("norm", "bsa,bs->bsa", "x scales", "mul", None),
    ("q", "bsa,ahd->bshd", "norm wq", "mul", "sum"),
    ("k", "bsa,ahd->bshd", "norm wk", "mul", "sum"),
    ("v", "bsa,ahd->bshd", "norm wv", "mul", "sum"),
    ("scores", "bshd,bthd->bhst", "q k", "mul", "sum"),
    ("most", "bhst->bhs", "scores", "id", "max"),
    ("weights", "bhst,bhs->bhst", "scores most", "sub | exp", None),
    ("total", "bhst->bhs", "weights", "id", "sum"),
    ("share", "bhst,bhs->bhst", "weights total", "div", None),
    ("heads", "bhst,bthd->bshd", "share v", "mul", "sum"),
    ("attended", "bshd,hda->bsa", "heads wo", "mul", "sum"),
    ("added", "bsa,bsa->bsa", "x attended", "add", None),
    ("squares2", "bsa->bs", "added", "square", "sum"),
    ("scales2", "bs->bs", "squares2", "sqrt | reciprocal", None),
    ("norm2", "bsa,bs->bsa", "added scales2", "mul", None),
    ("gate", "bsa,af->bsf", "norm2 w1", "mul", "sum"),
    ("open", "bsf->bsf", "gate", "sigmoid", None),
    ("silu", "bsf,bsf->bsf", "gate open", "mul", None),
    ("up", "bsa,af->bsf", "norm2 w3", "mul", "sum"),
    ("gated", "bsf,bsf->bsf", "silu up", "mul", None),
    ("down", "bsf,fa->bsa", "gated w2", "mul", "sum"),
    ("out", "bsa,bsa->bsa", "added down", "add", None),
]


def layer(extents: Mapping[str, int] = EXTENTS) -> dict[str, Any]:
    """The graph for these extents of labels, as `joinsum.plan_graph` reads it."""
    ops = []
    for name, equation, inputs, join, agg in STEPS:
        terms, result = equation.split("->")
        op = {"name": name, "inputs": inputs.split(), "in_labels": terms.split(","), "out_labels": result, "join": join}
        ops.append(op | ({"agg": agg} if agg else {}))
    inputs = {name: [extents[label] for label in labels] for name, labels in INPUTS.items()}
    return {"inputs": inputs, "ops": ops, "outputs": ["out"]}


def stored(sites: int) -> dict[str, list[int]]:
    """Parts by axis of the weights, which are divided by features over all sites."""
    weights = {name: labels for name, labels in INPUTS.items() if name != "x"}
    return {name: [sites if label == "a" else 1 for label in labels] for name, labels in weights.items()}


def divided(parts: Mapping[str, int], summed: set[str]) -> str:
    """Labels with their numbers of parts; `+` marks summed labels, whose partial values are reduced."""
    cut = [f"{label}/{parts[label]}{'+' if label in summed else ''}" for label in ROLES if parts.get(label, 1) > 1]
    return " ".join(cut) or "whole"


def rows_of(plan: joinsum.GraphPlan, graph: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """The labels that each pinned input and each step divides, and the elements or bytes that move."""
    rows = {}
    for value in plan.inputs:
        parts = {label: value.parts[str(axis)] for axis, label in enumerate(INPUTS[value.name])}
        rows[value.name] = (divided(parts, set()), amount(value.wire_bytes))
    steps = {step.name: step for step in plan.vertices}
    for op in graph["ops"]:
        step = steps[op["name"]]
        summed = set("".join(op["in_labels"])) - set(op["out_labels"])
        moved = step.cost if plan.objective == "paper" else step.wire_bytes
        rows[step.name] = (divided(step.parts, summed), amount(moved))
    return rows


def amount(number: int) -> str:
    """In thousands, millions or billions, on few letters."""
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:.1f} {letter}"
    return f"{number}  "


def main() -> None:
    graph = layer()
    for objective, unit in (("paper", "elements"), ("wire_bytes", "bytes")):
        columns = []
        for sites in (8, 64, 1024):
            on = {"calls": sites} if objective == "paper" else {"sites": sites, "pins": stored(sites)}
            plan = joinsum.plan_graph(graph, objective, **on)
            proof = "proven best" if plan.exact else f"no plan moves less than {int(plan.lower_bound):,}"
            print(f"{objective}, {sites} sites: {int(plan.cost):,} {unit} move, {proof}")
            columns.append(rows_of(plan, graph))
        print(f"{'step':9}" + "".join(f"{f'on {sites} sites':18}{unit:>9}   " for sites in (8, 64, 1024)).rstrip())
        for name in columns[0]:
            cells = (f"{what:18}{moved:>9}   " for what, moved in (column[name] for column in columns))
            print(f"{name:9}{''.join(cells)}".rstrip())
        print()


if __name__ == "__main__":
    main()
