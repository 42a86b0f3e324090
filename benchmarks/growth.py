"""How seconds grow with the number of sites, of tuples, of nodes and of bytes, and the exponents that fit them.

| curve | what is timed |
|---|---|
| sites | a product whose rows are divided, 64 rows of 512 a site, its second operand sent to all: a run in loopback |
| tuples | a map, a join and a sum over keys of tuples of one element each, stored on one site |
| nodes, run | a chain of maps of eight elements: a run |
| nodes, parse | the same: reading its text |
| nodes, plan | a chain of products on 4 sites: `joinsum.optimize`, which rewrites programs of up to about 120 nodes |
| bytes | a run in which two processes send each other that much at once |

An exponent is the slope of the straight line through the points of a curve, from its middle on, where both axes are
logarithmic: 1 is linear. Figures are medians.

    python benchmarks/growth.py [--quick] [--json FILE] [--plot FILE]
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import linear_regression, median

import click
import joinsum
import torch
import torch.distributed as dist
from frame.launch import run_ranks
from joinsum import _C
from joinsum.base.text_table import seconds_text, text_table

SITES = (1, 2, 4, 8, 16, 32, 64)
TUPLES = (100, 1_000, 10_000, 100_000)
NODES = (10, 100, 1_000, 10_000)
PLANNED_NODES = (10, 30, 100, 300, 1_000, 3_000, 10_000)
BYTES = tuple(1 << power for power in range(12, 27, 2))
RUNS = 15
LIMIT = 600.0  # seconds after which ranks have failed

Curve = dict[int, float]


def fitted_exponent(curve: Mapping[int, float]) -> float:
    """Of the points from the middle of a curve on.

    >>> fitted_exponent({1: 5.0, 2: 5.0, 4: 16.0, 8: 64.0})
    2.0
    """
    upper = sorted(curve.items())[len(curve) // 2 :]
    sizes, seconds = zip(*((math.log2(size), math.log2(spent)) for size, spent in upper), strict=True)
    return linear_regression(sizes, seconds).slope


def timed(action: Callable[[], object]) -> float:
    """Median seconds of a few runs after a first one."""
    action()
    taken = []
    for _ in range(RUNS):
        start = time.perf_counter()
        action()
        taken.append(time.perf_counter() - start)
    return median(taken)


def run_of(text: str, sites: int) -> Callable[[], object]:
    """A run of a plan on arrays of ones, in loopback or on the ranks of a process group."""
    current = joinsum.init(sites=None if dist.is_initialized() else sites, cluster=joinsum.Cluster())
    plan = _C.IaPlan.parse(text)
    inputs = {}
    for name, type_ in plan.inputs:
        ones = torch.ones([axis.extent for axis in type_.relation.axes])
        inputs[name] = _C.place_tensor(ones, type_, current.local_sites, current.store, True)
    return lambda: current.execute(plan, inputs, {})


def of_sites(sites: int) -> float:
    rows, columns = ("(0)", "(1)") if sites > 1 else ("()", "()")
    text = f"input A: f32[{64 * sites},512]<{sites},1> {rows}\ninput B: f32[512,512]<1,{sites}> {columns}\n"
    result = "output Z = agg[0, 2; add](join[1; 0; matmul](A, broadcast(B)))\n"
    return timed(run_of(f"ia on {sites}\n{text}{result}", sites))


def of_tuples(tuples: int) -> float:
    text = f"ia on 1\ninput A: f32[{tuples}]<{tuples}> ()\ninput B: f32[{tuples}]<{tuples}> ()\n"
    return timed(run_of(text + "output Z = agg[; add](join[0; 0; mul](map[(k0); exp](A), B))\n", 1))


def chain(nodes: int) -> str:
    lines = ["ia on 1", "input A: f32[8]<1> ()"]
    lines += [f"t{i} = map[(k0); scale[1.0]]({f't{i - 1}' if i else 'A'})" for i in range(nodes)]
    return "\n".join([*lines, f"output Z = t{nodes - 1}", ""])


def of_runs(nodes: int) -> float:
    return timed(run_of(chain(nodes), 1))


def of_parsing(nodes: int) -> float:
    text = chain(nodes)
    return timed(lambda: _C.IaPlan.parse(text))


def of_planning(nodes: int) -> float:
    joinsum.init(sites=4, cluster=joinsum.Cluster())
    lines = ["tra", "input X: f32[256,256]<4,4>", "input W: f32[256,256]<4,4>"]
    lines += [f"t{i} = agg[0, 2; add](join[1; 0; matmul]({f't{i - 1}' if i else 'X'}, W))" for i in range(nodes // 2)]
    plan = joinsum.parse("\n".join([*lines, f"output Z = t{nodes // 2 - 1}", ""]))
    assert isinstance(plan, joinsum.TraPlan)
    start = time.perf_counter()
    joinsum.optimize(plan)
    return time.perf_counter() - start


def of_messages(sizes: Sequence[int]) -> Curve:
    """From processes of their own."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        command = [sys.executable, __file__, "--out", str(out), "--sizes", ",".join(map(str, sizes))]
        run_ranks(2, "open", command, {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}, LIMIT)
        found = json.loads(out.read_text(encoding="utf-8"))
    return {int(size): seconds for size, seconds in found.items()}


def exchange_messages(sizes: Sequence[int], out: Path) -> None:
    """What each of the two processes does: a run in which it sends its half of an array to the other one."""
    dist.init_process_group("gloo")
    text = "ia on 2\ninput A: f32[{}]<2> (0)\noutput Z = broadcast(A)\n"
    found = {size: timed(run_of(text.format(size // 2), 2)) for size in sizes}
    if dist.get_rank() == 0:
        out.write_text(json.dumps(found), encoding="utf-8")
    dist.destroy_process_group()


def curves(quick: bool) -> dict[str, Curve]:
    """All curves by name; only their first points if `quick`."""

    def some(sizes: Sequence[int]) -> Sequence[int]:
        return sizes[:3] if quick else sizes

    ways = {
        "sites": (of_sites, SITES),
        "tuples": (of_tuples, TUPLES),
        "nodes, run": (of_runs, NODES),
        "nodes, parse": (of_parsing, NODES),
        "nodes, plan": (of_planning, PLANNED_NODES),
    }
    found = {name: {size: way(size) for size in some(sizes)} for name, (way, sizes) in ways.items()}
    return {**found, "bytes": of_messages(some(BYTES))}


def table(found: Mapping[str, Curve]) -> str:
    """A line for each curve: its ends and its exponent."""
    rows = []
    for name, curve in found.items():
        least, most = min(curve), max(curve)
        ends = (f"{least:,}", seconds_text(curve[least]), f"{most:,}", seconds_text(curve[most]))
        rows.append((name, *ends, f"{fitted_exponent(curve):.2f}"))
    return text_table(("curve", "from", "", "to", "", "exponent"), rows, right=[1, 2, 3, 4, 5])


def draw(found: Mapping[str, Curve], path: Path) -> None:
    """All curves, with logarithmic axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 5.5), layout="constrained")
    for place, (name, curve) in enumerate(found.items()):
        axes = figure.add_subplot(2, 3, place + 1)
        axes.loglog(list(curve), list(curve.values()), marker="o")
        axes.set_title(f"{name}: exponent {fitted_exponent(curve):.2f}", fontsize=10)
        axes.set_ylabel("s")
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


@click.command()
@click.option("--quick", is_flag=True, help="Short curves: shows that the benchmark runs.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Write all points here.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the curves here.")
@click.option("--sizes", hidden=True)
@click.option("--out", type=click.Path(path_type=Path), hidden=True)
def main(quick: bool, file: Path | None, plot: Path | None, sizes: str | None, out: Path | None) -> None:
    """Measure how seconds grow."""
    torch.set_num_threads(1)
    if out is not None and sizes is not None:
        return exchange_messages([int(size) for size in sizes.split(",")], out)
    found = curves(quick)
    click.echo(table(found))
    if file is not None:
        file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if plot is not None:
        draw(found, plot)


if __name__ == "__main__":
    main()
