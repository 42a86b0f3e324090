"""How long `joinsum.optimize` takes, over sites and over the size of programs.

A step of the feed-forward network (the TRA paper's ten equations), a matrix product, and networks of many layers.
Figures are the best of some rounds: planning is deterministic, the rest is the machine's noise.

    python benchmarks/planning.py [--minimize seconds] [--plot FILE] [--json FILE]
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import joinsum

COSTS = ("paper_floats", "wire_bytes", "seconds")
STEP_LIMIT = 1.0  # seconds, up to 64 sites
PRODUCT_LIMIT = 0.05


class Figure(NamedTuple):
    """One program on some sites: seconds to plan it under each cost."""

    program: str
    sites: int
    nodes: int
    seconds: dict[str, float]


def product(parts: int) -> str:
    """A general matrix product of the paper's Table 4."""
    return f"""tra
input A: f32[40000,40000]<{parts},{parts}>
input B: f32[40000,40000]<{parts},{parts}>
output C = aggregate[0, 2; add](join[1; 0; matmul](A, B))"""


def step(parts: int) -> str:
    """A training step of the paper's network, every matrix divided into parts x parts tiles."""
    return f"""tra
input X: f32[10000,1600]<{parts},{parts}>
input Y: f32[10000,1000]<{parts},{parts}>
input W1: f32[1600,100000]<{parts},{parts}>
input W2: f32[100000,1000]<{parts},{parts}>
A1 = transform[relu](aggregate[0, 2; add](join[1; 0; matmul](X, W1)))
A2 = transform[sigmoid](aggregate[0, 2; add](join[1; 0; matmul](A1, W2)))
E2 = join[0, 1; 0, 1; sub](A2, Y)
G2 = aggregate[1, 2; add](join[0; 0; matmul_tn](A1, E2))
B1 = aggregate[0, 2; add](join[1; 1; matmul_nt](E2, W2))
E1 = join[0, 1; 0, 1; mul](transform[relu_derivative](A1), B1)
G1 = aggregate[1, 2; add](join[0; 0; matmul_tn](X, E1))
output V2 -> W2 = join[0, 1; 0, 1; sub](W2, transform[scale[0.1]](G2))
output V1 -> W1 = join[0, 1; 0, 1; sub](W1, transform[scale[0.1]](G1))"""


def layers(count: int, parts: int) -> str:
    """Inference through `count` layers of 1000 units."""
    matrix = f"f32[1000,1000]<{parts},{parts}>"
    lines = ["tra", f"input A0: {matrix}"]
    for i in range(count):
        lines.append(f"input W{i}: {matrix}")
        name = "output Z" if i + 1 == count else f"A{i + 1}"
        lines.append(f"{name} = transform[relu](aggregate[0, 2; add](join[1; 0; matmul](A{i}, W{i})))")
    return "\n".join(lines)


def planned(program: str, text: str, sites: int, costs: Sequence[str], rounds: int) -> Figure:
    """The least time of some rounds to plan `text`."""
    joinsum.init(sites=sites)
    plan = joinsum.parse(text)
    assert isinstance(plan, joinsum.TraPlan)
    seconds = {}
    for cost in costs:
        times = []
        for _ in range(rounds):
            start = time.perf_counter()
            joinsum.optimize(plan, minimize=cost)
            times.append(time.perf_counter() - start)
        seconds[cost] = min(times)
    operators = plan.text.count("(")  # in a plan's text each operator takes its operands in parentheses
    return Figure(program, sites, operators + len(plan.inputs), seconds)


def show(figures: Sequence[Figure], costs: Sequence[str]) -> None:
    """Prints a line for each figure, in milliseconds."""
    click.echo(f"{'program':12}{'sites':>6}{'nodes':>6}" + "".join(f"{cost + ' ms':>17}" for cost in costs))
    for figure in figures:
        times = "".join(f"{1e3 * figure.seconds[cost]:17.1f}" for cost in costs)
        click.echo(f"{figure.program:12}{figure.sites:6}{figure.nodes:6}{times}")


def judge(figures: Sequence[Figure]) -> None:
    """Says whether the limits hold that planning is held to."""
    for program, limit in (("step", STEP_LIMIT), ("product", PRODUCT_LIMIT)):
        longest = max(max(figure.seconds.values()) for figure in figures if figure.program == program)
        verdict = "within" if longest <= limit else "NOT within"
        click.echo(f"{program}: at most {1e3 * longest:.1f} ms, {verdict} {1e3 * limit:.0f} ms")


def plot(figures: Sequence[Figure], costs: Sequence[str], file: Path) -> None:
    """Draws planning time over sites, and over nodes."""
    from matplotlib import pyplot

    def line(axes: Any, program: str, over: str, cost: str, style: str) -> None:
        chosen = [figure for figure in figures if figure.program == program]
        x = [getattr(figure, over) for figure in chosen]
        y = [1e3 * figure.seconds[cost] for figure in chosen]
        axes.plot(x, y, style, color=f"C{costs.index(cost)}", label=f"{program}, {cost}")
        axes.set_xticks(x, [str(value) for value in x])
        axes.minorticks_off()

    drawing, (over_sites, over_nodes) = pyplot.subplots(1, 2, figsize=(11, 4.5))
    for axes, title in ((over_sites, "sites"), (over_nodes, "nodes of the logical plan, 8 sites")):
        axes.set(xscale="log", yscale="log", xlabel=title, ylabel="ms to plan")
        axes.grid(alpha=0.3)
    for cost in costs:
        line(over_sites, "product", "sites", cost, "s--")
        line(over_sites, "step", "sites", cost, "o-")
        line(over_nodes, "layers", "nodes", cost, "o-")
    over_sites.legend(fontsize=8)
    over_nodes.legend(fontsize=8)
    drawing.tight_layout()
    drawing.savefig(file, dpi=150)


def compare(sites: Sequence[int], counts: Sequence[int], costs: Sequence[str], rounds: int) -> list[Figure]:
    """Measures all programs and prints the figures."""
    figures = [planned("product", product(count), count, costs, rounds) for count in sites]
    figures += [planned("step", step(count), count, costs, rounds) for count in sites]
    figures += [planned("layers", layers(count, 8), 8, costs, rounds) for count in counts]
    show(figures, costs)
    judge(figures)
    return figures


@click.command()
@click.option("--minimize", type=click.Choice(COSTS), multiple=True, default=COSTS, help="By default each in turn.")
@click.option("--sites", type=click.IntRange(min=2), multiple=True, default=(4, 8, 12, 16, 32, 64), show_default=True)
@click.option("--layers", "counts", type=click.IntRange(min=1), multiple=True, default=(1, 2, 4, 8, 16, 32))
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--plot", "plot_file", type=click.Path(path_type=Path), help="Draw growth over sites and nodes here.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write the figures here too.")
def command(
    minimize: tuple[str, ...],
    sites: tuple[int, ...],
    counts: tuple[int, ...],
    rounds: int,
    plot_file: Path | None,
    json_file: Path | None,
) -> None:
    """Measure how long planning takes."""
    figures = compare(sites, counts, minimize, rounds)
    if plot_file is not None:
        plot(figures, minimize, plot_file)
    if json_file is not None:
        result = {"processor": platform.machine(), "figures": [figure._asdict() for figure in figures]}
        json_file.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    command()
