"""The chain (A B) + (C (D E)) of the EinDecomp paper's first experiment, planned against a fixed division.

Square: all matrices are s x s. Skewed: A is s x s/10, B s/10 x s, C s x s/10, D s/10 x 10 s, E 10 s x s.
"""

from __future__ import annotations

import json
from typing import Any

import joinsum
import torch

CALLS = 16
SCALES = (1280, 2560, 5120, 10240)
FIXED = {"T1": {"i": 4, "j": 1, "k": 4}, "T2": {"l": 4, "m": 1, "k": 4}, "T3": {"i": 4, "l": 1, "k": 4}}


def chain(s: int, skewed: bool) -> dict[str, Any]:
    """The graph, as `joinsum.plan_graph` and `joinsum.Graph` read it."""
    thin, long = (s // 10, 10 * s) if skewed else (s, s)
    shapes = {"A": [s, thin], "B": [thin, s], "C": [s, thin], "D": [thin, long], "E": [long, s]}
    ops = [
        {"name": "T1", "inputs": ["A", "B"], "in_labels": ["ij", "jk"], "out_labels": "ik", "agg": "sum"},
        {"name": "T2", "inputs": ["D", "E"], "in_labels": ["lm", "mk"], "out_labels": "lk", "agg": "sum"},
        {"name": "T3", "inputs": ["C", "T2"], "in_labels": ["il", "lk"], "out_labels": "ik", "agg": "sum"},
        {"name": "Z", "inputs": ["T1", "T3"], "in_labels": ["ik", "ik"], "out_labels": "ik", "join": "add"},
    ]
    return {"inputs": shapes, "ops": ops, "outputs": ["Z"]}


def elements(s: int, skewed: bool) -> tuple[int, int]:
    """Elements that move in the worst case: by the best plan, and with every result in 4 by 4 blocks."""
    graph = chain(s, skewed)
    best = joinsum.plan_graph(graph, calls=CALLS)
    fixed = joinsum.plan_graph(graph, calls=CALLS, pins=FIXED | {"Z": {"i": 4, "k": 4}})
    return best.cost, fixed.cost


def run(s: int, skewed: bool, sites: int) -> tuple[float, int, int]:
    """Largest error against torch, and bytes predicted and sent; the sites divide the rows of every input."""
    joinsum.init(sites=sites)
    graph = joinsum.Graph.from_json(json.dumps(chain(s, skewed)))
    generator = torch.Generator().manual_seed(0)
    inputs = {name: torch.randn(value.shape, generator=generator) for name, value in graph.inputs.items()}
    rows: dict[str, list[int | str]] = {name: [0] * len(joinsum.grid().axes) for name in inputs}
    found = joinsum.optimize(graph.lower(sites), rows, minimize="wire_bytes")
    result = joinsum.run(found.plan, inputs)["Z"].to_tensor()
    sent = joinsum.trace().bytes_sent
    a, b, c, d, e = (inputs[name] for name in "ABCDE")
    wanted = a @ b + c @ (d @ e)
    error = (result - wanted).abs().max() / wanted.abs().max()
    joinsum.init()
    return float(error), found.cost.wire_bytes, sent


def main() -> None:
    print(joinsum.plan_graph(chain(1280, True), calls=CALLS))
    print("\nelements that move, 16 calls each           best plan   4 x 4 blocks   ratio")
    for skewed in (False, True):
        for s in SCALES:
            best, fixed = elements(s, skewed)
            print(f"{'skewed' if skewed else 'square'}  s = {s:5}  {best:36,} {fixed:14,} {fixed / best:7.2f}")
    print()
    for skewed in (False, True):
        error, predicted, sent = run(1280, skewed, 4)
        print(f"{'skewed' if skewed else 'square'}, s = 1280, run on 4 sites: equal to torch: {error < 1e-5}, ", end="")
        print(f"bytes predicted {predicted:,}, sent {sent:,}")


if __name__ == "__main__":
    main()
