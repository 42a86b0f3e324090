"""A layer of LLaMA-7B as a graph of einsums: what the planner makes of each of its steps on 8, 64 and 1,024 sites."""

from __future__ import annotations

from collections import Counter
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


def layer() -> dict[str, Any]:
    """The graph, as `joinsum.plan_graph` reads it."""
    ops = []
    for name, equation, inputs, join, agg in STEPS:
        given, result = equation.split("->")
        op = {"name": name, "inputs": inputs.split(), "in_labels": given.split(","), "out_labels": result, "join": join}
        ops.append(op | ({"agg": agg} if agg else {}))
    inputs = {name: [EXTENTS[label] for label in labels] for name, labels in INPUTS.items()}
    return {"inputs": inputs, "ops": ops, "outputs": ["out"]}


def doing(vertex: joinsum.VertexPlan, summed: set[str]) -> str:
    """What the parts of one step mean."""
    parts = vertex.parts
    divided = [f"{ROLES[label]} / {parts[label]}" for label in ROLES if parts.get(label, 1) > 1]
    partial = any(vertex.parts[label] > 1 for label in summed)
    return ", ".join(divided) + ("; partial sums are added" if partial else "")


def main() -> None:
    graph = layer()
    for calls in (8, 64, 1024):
        plan = joinsum.plan_graph(graph, calls=calls)
        proof = "proven best" if plan.exact else f"no plan moves less than {plan.lower_bound:,}"
        print(f"{calls} sites: {plan.cost:,} elements move, {proof}")
        if calls == 8:
            print(f"{'step':9} {'divided':46} {'elements that move':>18}")
        kinds: Counter[str] = Counter()
        for vertex, op in zip(plan.vertices, graph["ops"], strict=True):
            what = doing(vertex, set("".join(op["in_labels"])) - set(op["out_labels"]))
            kinds[what] += 1
            if calls == 8:
                print(f"{vertex.name:9} {what:46} {vertex.cost:18,}")
        if calls > 8:
            for what, count in kinds.most_common():
                print(f"{count:4} x {what}")
        print()


if __name__ == "__main__":
    main()
