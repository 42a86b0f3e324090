"""The first token of LLaMA (prefill) on 8 sites: joinsum's plan of a layer beside those that people make by hand."""

from __future__ import annotations

from typing import Any

import joinsum
import torch
from llama_layer import INPUTS, STEPS

SITES = 8
# Half width, as the devices run it; 8 of them share 300 GB/s links. Rates are rounded from data sheets.
CLUSTER = joinsum.Cluster("8 V100, NVLink", flops_per_second=5e13, bytes_per_second=1.5e11, latency_seconds=1e-5)
SIZES = {
    "7B": {"a": 4096, "h": 32, "d": 128, "f": 11008},
    "65B": {"a": 8192, "h": 64, "d": 128, "f": 22016},
}
# Batches and sequences of the paper's experiments.
CASES = [("7B", 1, 4096), ("7B", 2, 4096), ("7B", 4, 4096), ("7B", 8, 4096), ("7B", 8, 1024), ("7B", 16, 2048)]
CASES += [("65B", 16, 512), ("65B", 16, 1024), ("65B", 16, 2048), ("65B", 16, 4096)]

# The label that a plan made by hand divides, the first of these that a step has, and where the residual stream lies.
WAYS: dict[str, tuple[str, str]] = {"Megatron": ("hf", ""), "sequence": ("s", "s"), "attention": ("h", "s")}


def layer(extents: dict[str, int]) -> dict[str, Any]:
    """A layer of these sizes, as `joinsum.plan_graph` reads it."""
    ops = []
    for name, equation, inputs, join, agg in STEPS:
        given, result = equation.split("->")
        op = {"name": name, "inputs": inputs.split(), "in_labels": given.split(","), "out_labels": result, "join": join}
        ops.append(op | ({"agg": agg} if agg else {}))
    shapes = {name: [extents[label] for label in labels] for name, labels in INPUTS.items()}
    return {"inputs": shapes, "ops": ops, "outputs": ["out"]}
