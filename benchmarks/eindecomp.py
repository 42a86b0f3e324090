"""The EinDecomp paper's four experiments at this machine's scale: the planner against fixed strategies, on Gloo ranks.

python benchmarks/eindecomp.py [--quick] [--ranks N]

Every strategy starts from the same storage, with each input divided once between the ranks, and pins the placement of
each result. The optimizer chooses the rest, as it does for the planner: the plan with the fewest seconds on a described
cluster (joinsum.Cluster()).
Source: EinDecomp paper, section 9.2.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import joinsum
import torch

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 20

# Labels by preference, for each axis of the sites' grid: a result is divided by the first that it has; the last entry
# holds for the axes that follow.
Strategy = Sequence[str]


@dataclass(frozen=True)
class Experiment:
    """A graph, and the strategies that the paper compares the planner with."""

    name: str
    graph: dict[str, Any]
    strategies: Mapping[str, Strategy]


def chain(s: int, skewed: bool) -> Experiment:
    """Experiment 1: (A B) + (C (D E)), against blocks of equal shape."""
    graph = _example("matrix_chain").chain(s, skewed)
    return Experiment(f"1 chain, {'skewed' if skewed else 'square'}, s={s}", graph, {"square blocks": ("il", "k")})


def classifier(batch: int, features: int, hidden: int, labels: int) -> Experiment:
    """Experiment 2: a training step of a feed-forward network, gradients of both weights; against data parallel."""
    steps = [
        ("A", "bi,ih->bh", "X W1", "mul", "sum"),
        ("H", "bh->bh", "A", "relu", None),
        ("Y", "bh,hl->bl", "H W2", "mul", "sum"),
        ("dY", "bl,bl->bl", "Y T", "sigmoid_difference", None),
        ("dW2", "bh,bl->hl", "H dY", "mul", "sum"),
        ("dH", "bl,hl->bh", "dY W2", "mul", "sum"),
        ("slope", "bh->bh", "A", "relu_derivative", None),
        ("dA", "bh,bh->bh", "dH slope", "mul", None),
        ("dW1", "bi,bh->ih", "X dA", "mul", "sum"),
    ]
    inputs = {"X": [batch, features], "W1": [features, hidden], "W2": [hidden, labels], "T": [batch, labels]}
    graph = _graph(inputs, steps, ["dW1", "dW2"])
    return Experiment(f"2 classifier, batch {batch}, {features} features", graph, {"data parallel": ("b",)})


def language_model(number: int, batch: int, sequence: int, strategies: Mapping[str, Strategy]) -> Experiment:
    """Experiments 3 and 4: the first token of one layer of LLaMA, its widths divided by 16."""
    extents = {"b": batch, "s": sequence, "t": sequence, "a": 256, "h": 8, "d": 32, "f": 688}
    of = _example("llama_layer")
    inputs = {name: [extents[label] for label in labels] for name, labels in of.INPUTS.items()}
    return Experiment(
        f"{number} layer, batch {batch}, {sequence} tokens", _graph(inputs, of.STEPS, ["out"]), strategies
    )


def experiments(quick: bool) -> list[Experiment]:
    """All four."""
    parallel = {"data parallel": ("b",), "sequence": ("s",), "Megatron": ("hf",)}
    gathered = {"weights gathered": ("b",)}
    if quick:
        return [chain(160, True), classifier(16, 64, 32, 48), language_model(3, 4, 16, parallel)]
    return [
        chain(1280, False),
        chain(1280, True),
        classifier(128, 4096, 512, 1024),
        classifier(512, 4096, 512, 1024),
        language_model(3, 4, 256, parallel),
        language_model(3, 1, 512, {name: parallel[name] for name in ("sequence", "Megatron")}),
        language_model(4, 16, 32, gathered),
        language_model(4, 16, 128, gathered),
    ]


def _example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / "einsum" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _graph(
    inputs: dict[str, list[int]], steps: Sequence[tuple[str, str, str, str, str | None]], outputs: list[str]
) -> dict[str, Any]:
    ops = []
    for name, equation, operands, join, agg in steps:
        terms, result = equation.split("->")
        op = {"name": name, "inputs": operands.split(), "in_labels": terms.split(","), "out_labels": result}
        ops.append(op | {"join": join} | ({"agg": agg} if agg else {}))
    return {"inputs": inputs, "ops": ops, "outputs": outputs}


# --- planning and running ---------------------------------------------------------------------------------------------


def planned(graph: dict[str, Any], strategy: Strategy | None) -> joinsum.Optimized:
    """The plan of a strategy, or the planner's own."""
    results = {op["name"]: op["out_labels"] for op in graph["ops"]}
    outputs = list(results) if strategy is not None else graph["outputs"]
    program = joinsum.Graph.from_json(json.dumps(graph | {"outputs": outputs})).lower(joinsum.sites())
    axes = len(joinsum.grid().axes)
    place = {name: [0] * axes for name, type_ in program.inputs.items() if type_.frontier}
    pins = {}
    if strategy is not None:
        pins = {
            name: [_divided(results[name], type_, strategy[min(axis, len(strategy) - 1)]) for axis in range(axes)]
            for name, type_ in program.outputs.items()
        }
    return joinsum.optimize(program, place, pins=pins, minimize="seconds", cluster=joinsum.Cluster())


def _divided(labels: str, type_: joinsum.RelationType, preferred: str) -> int | str:
    """The key dimension of the first preferred label that the result has and divides; else replicated."""
    for label in preferred:
        key_dim = type_.axes[labels.index(label)].key_dim if label in labels else None
        if key_dim is not None:
            return int(key_dim)
    return "*"


def measured(found: joinsum.Optimized) -> float:
    """The least seconds of some runs."""
    generator = torch.Generator().manual_seed(0)
    inputs = {
        name: torch.randn([axis.extent for axis in type_.axes], generator=generator)
        for name, type_ in found.program.inputs.items()
    }
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        joinsum.run(found.plan, inputs)
        times.append(time.perf_counter() - start)
    return min(times)


def compare(quick: bool) -> None:
    """Runs on every rank; rank 0 prints a line for each experiment and strategy."""
    current = joinsum.context()
    prints = 0 in current.local_sites
    if prints:
        click.echo(f"{'experiment':38} {'strategy':17} {'bytes':>12} {'predicted':>10} {'measured':>10}")
    for experiment in experiments(quick):
        strategies: dict[str, Strategy | None] = {"planner": None, **experiment.strategies}
        for name, strategy in strategies.items():
            found = planned(experiment.graph, strategy)
            seconds = measured(found)
            if prints:
                cost = found.cost
                click.echo(
                    f"{experiment.name:38} {name:17} {cost.wire_bytes:12,} {1e3 * cost.seconds:7.1f} ms "
                    f"{1e3 * seconds:7.1f} ms"
                )


def launch(quick: bool, ranks: int) -> None:
    """Runs `compare` on that many processes of one thread each."""
    program = [str(Path(__file__).resolve()), "--worker", *(["--quick"] if quick else [])]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    subprocess.run([*launcher, *program], check=True)


@click.command()
@click.option("--quick", is_flag=True, help="Small sizes.")
@click.option("--ranks", type=click.IntRange(min=2), default=4, show_default=True)
@click.option("--worker", is_flag=True, hidden=True)
def command(quick: bool, ranks: int, worker: bool) -> None:
    """Compare the planner with fixed strategies on the paper's experiments."""
    if worker:
        joinsum.init(cluster=joinsum.Cluster())
        compare(quick)
    else:
        launch(quick, ranks)


if __name__ == "__main__":
    command()
