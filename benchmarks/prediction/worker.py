"""One rank of the prediction benchmark: calibrates, then predicts and times every plan. Rank 0 writes the figures."""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import click
import joinsum
import torch
from joinsum import _C
from joinsum.cluster.context import Context

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from prediction.plans import plans

ROUNDS = 3
MOST_RUNS = 9
LEAST_RUNS = 3

Figure = dict[str, Any]


def placed(current: Context, plan: joinsum.IaPlan) -> dict[str, _C.StoredRelation]:
    """Random inputs in the placements of the plan."""
    generator = torch.Generator().manual_seed(0)
    inputs = {}
    for name, type_ in plan.inputs.items():
        shape = [axis.extent for axis in type_.relation.axes]
        array = torch.randn(shape, generator=generator) / shape[-1] ** 0.5
        inputs[name] = _C.place_tensor(array, type_, current.local_sites, current.store, True)
    return inputs


def timed(current: Context, plan: joinsum.IaPlan, seconds: float) -> tuple[list[float], list[list[float]]]:
    """Seconds of runs, from a moment at which all ranks are ready until the last one has ended; and, run by run, of the
    nodes, each on the rank where it took longest."""
    inputs = placed(current, plan)
    runs: list[float] = []
    nodes: list[list[float]] = []
    for index in range(MOST_RUNS + 1):
        current.transport.agree("ready", "")
        start = time.perf_counter()
        current.execute(plan.core, inputs, {})
        (spent,) = current.transport.all_reduce_max([time.perf_counter() - start])
        longest = current.transport.all_reduce_max([entry.seconds for entry in current.last_trace])
        if index > 0:  # the first run warms up
            runs.append(spent)
            nodes.append(longest)
        if len(runs) >= LEAST_RUNS and sum(runs) > seconds:
            break
    return runs, nodes


def predicted_and_measured(current: Context, name: str, text: str, cluster: joinsum.Cluster, quick: bool) -> Figure:
    """Figures of one plan in one round."""
    plan = joinsum.parse(text)
    assert isinstance(plan, joinsum.IaPlan)
    predicted = joinsum.cost(plan, cluster)
    runs, nodes = timed(current, plan, 0.3 if quick else 1.5)
    return {
        "plan": name,
        "predicted": predicted.seconds,
        "described": joinsum.cost(plan, joinsum.Cluster()).seconds,
        "runs": runs,
        "nodes": [[node.node, node.operation, node.seconds] for node in predicted.nodes],
        "traced": [
            [entry.node, entry.operation, statistics.median(values)]
            for entry, values in zip(current.last_trace, zip(*nodes, strict=True), strict=True)
        ],
    }


def together(rounds: list[Figure]) -> Figure:
    """A plan's figures of all rounds: medians of predictions and of runs; nodes of the last round."""
    runs = [run for figure in rounds for run in figure["runs"]]
    predictions = [figure["predicted"] for figure in rounds]
    medians = {"predicted": statistics.median(predictions), "measured": statistics.median(runs)}
    return {**rounds[-1], **medians, "predictions": predictions, "runs": runs}


@click.command()
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--seconds", type=float, default=20.0, help="For each calibration.")
@click.option("--quick", is_flag=True)
def main(out: Path, seconds: float, quick: bool) -> None:
    """Calibrates, predicts and measures in turns, since a machine is not equally fast all the time."""
    torch.set_num_threads(1)
    current = joinsum.init(cluster=joinsum.Cluster())
    rounds: list[list[Figure]] = []
    for _ in range(1 if quick else ROUNDS):
        start = time.perf_counter()
        cluster = joinsum.calibrate(seconds, path=out.with_suffix(".calibration.json"))
        (calibrating,) = current.transport.all_reduce_max([time.perf_counter() - start])
        named = plans(current.sites, quick).items()
        rounds.append([predicted_and_measured(current, name, text, cluster, quick) for name, text in named])
    if 0 in current.local_sites:
        figures = [together(list(each)) for each in zip(*rounds, strict=True)]
        figures_of_run = {
            "sites": current.sites,
            "calibrating": calibrating,
            "cluster": str(cluster),
            "figures": figures,
        }
        out.write_text(json.dumps(figures_of_run, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
