"""The first token of LLaMA (prefill): joinsum's plan of a layer against Megatron, sequence and attention partitions.

Source: EinDecomp paper, section 9, experiment 3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import joinsum
import torch
from llama_layer import INPUTS, STEPS, layer

MODELS = {"7B": {"a": 4096, "h": 32, "d": 128, "f": 11008}, "65B": {"a": 8192, "h": 64, "d": 128, "f": 22016}}
# Model, batch, sequence; 8 sites.
CASES = [("7B", 1, 4096), ("7B", 4, 4096), ("7B", 8, 4096), ("7B", 8, 1024), ("65B", 16, 512), ("65B", 16, 2048)]
SITES = 8
# A site does 15 Tflop/s and sends 150 GB/s: about what data sheets say of a V100 with NVLink, in single precision.
CLUSTER = joinsum.Cluster("described", flops_per_second=1.5e13, bytes_per_second=1.5e11, latency_seconds=1e-5)

ATTENTION = {"q", "k", "v", "scores", "most", "weights", "total", "share", "heads", "attended"}
# The label that the sites divide: in attention, in the feed-forward part, in the rest and between layers ("*": none,
# all sites do it); and of the weights of attention and of the feed-forward part, of which each site stores its share.
WAYS = {
    "Megatron": ("h", "f", "*", "h", "f"),
    "sequence": ("s", "s", "s", "a", "a"),
    "attention": ("h", "s", "s", "h", "a"),
}


def stored(attention: str, hidden: str, sites: int) -> dict[str, list[int]]:
    """Parts by axis of the weights, when each site stores its shard along a label."""
    cuts = {name: attention if "h" in labels else hidden for name, labels in INPUTS.items() if name != "x"}
    return {name: [sites if label == cut else 1 for label in INPUTS[name]] for name, cut in cuts.items()}


def between(parts: Mapping[str, int]) -> dict[str, Any]:
    """The layer's input and result have one placement, as layers follow each other."""
    cut = {label: parts.get(label, 1) for label in "bsa"}
    return {"x": list(cut.values()), "out": cut}


def by_hand(way: str, sites: int) -> dict[str, Any]:
    """Pins of all steps, and of the placements of weights, input and result."""
    attention, hidden, rest, *weights = WAYS[way]
    pins: dict[str, Any] = stored(*weights, sites) | between({} if rest == "*" else {rest: sites})
    for name, equation, *_ in STEPS[:-1]:
        label = attention if name in ATTENTION else hidden if "f" in equation else rest
        pins[name] = {each: sites if each == label else 1 for each in equation if each.isalpha()}
    return pins


def planned(graph: dict[str, Any], pins: dict[str, Any], sites: int) -> joinsum.GraphPlan:
    return joinsum.plan_graph(graph, "seconds", sites=sites, pins=pins, cluster=CLUSTER, parameters=list(INPUTS)[1:])


def plans(extents: Mapping[str, int], sites: int) -> dict[str, joinsum.GraphPlan]:
    """The plan of each strategy, and joinsum's: the fastest whose weights, input and result have the placements of one
    of them, or whose input and result are divided by batch."""
    graph = layer(extents)
    found = {way: planned(graph, by_hand(way, sites), sites) for way in WAYS}
    batches = math.gcd(extents["b"], sites)
    ends = [between(parts) for parts in ({}, {"s": sites}, {"b": batches, "s": sites // batches})]
    weights = [stored(*way[3:], sites) for way in WAYS.values()]
    free = [planned(graph, end | weight, sites) for end in ends for weight in weights]
    return {"joinsum": min(free, key=lambda plan: plan.seconds)} | found


def by_torch(x: torch.Tensor, weights: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The layer, in plain torch."""
    norm = x / x.square().sum(-1, keepdim=True).sqrt()
    q, k, v = (torch.einsum("bsa,ahd->bhsd", norm, weights[name]) for name in ("wq", "wk", "wv"))
    heads = torch.softmax(q @ k.transpose(-1, -2), -1) @ v
    x = x + torch.einsum("bhsd,hda->bsa", heads, weights["wo"])
    norm = x / x.square().sum(-1, keepdim=True).sqrt()
    return x + (torch.nn.functional.silu(norm @ weights["w1"]) * (norm @ weights["w3"])) @ weights["w2"]


def run(extents: Mapping[str, int], sites: int) -> dict[str, tuple[float, int, int]]:
    """For each plan, the largest error against torch of a run on the sites of this process, over the largest element,
    and bytes predicted and sent."""
    joinsum.init(sites=sites)
    generator = torch.Generator().manual_seed(0)
    shapes = layer(extents)["inputs"]
    inputs = {name: torch.randn(shape, generator=generator) / shape[0] ** 0.5 for name, shape in shapes.items()}
    wanted = by_torch(inputs["x"], inputs)
    out = {}
    for way, plan in plans(extents, sites).items():
        assert plan.physical is not None
        result = joinsum.run(plan.physical, inputs)["out"].to_tensor()
        error = (result - wanted).abs().max() / wanted.abs().max()
        out[way] = float(error), plan.wire_bytes, joinsum.trace().bytes_sent
    joinsum.init()
    return out


def main() -> None:
    print(f"{'a layer on 8 sites':22}" + "".join(f"{way:>22}" for way in ("joinsum", *WAYS)))
    for model, batch, sequence in CASES:
        found = plans(MODELS[model] | {"b": batch, "s": sequence, "t": sequence}, SITES)
        cells = (f"{plan.seconds * 1e3:.1f} ms, {plan.wire_bytes / 1e9:.1f} GB" for plan in found.values())
        print(f"{model:>3}, batch {batch:2}, {sequence:4} " + "".join(f"{cell:>22}" for cell in cells))
    print("\nb=4 s=64 a=128 h=8 d=16 f=352, run on 4 sites")
    for way, (error, predicted, sent) in run(
        {"b": 4, "s": 64, "t": 64, "a": 128, "h": 8, "d": 16, "f": 352}, 4
    ).items():
        print(f"{way:9}  equal to torch: {error < 1e-5}, bytes predicted {predicted:,}, sent {sent:,}")


if __name__ == "__main__":
    main()
