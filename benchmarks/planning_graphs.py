"""Times the planner on the forward and the backward pass of LLaMA-7B's layers, written as einsums.

python benchmarks/planning_graphs.py [--layers N ...] [--calls P ...] [--json FILE]
python benchmarks/planning_graphs.py --growth FILE.png
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import click
import joinsum

# LLaMA-7B: batch b, tokens s and t, model a and e, heads h, elements of a head d and c, hidden f.
LLAMA_7B = {"b": 8, "s": 2048, "t": 2048, "a": 4096, "e": 4096, "h": 32, "d": 128, "c": 128, "f": 11008}


class Writer:
    """Writes a graph of einsums in the JSON form that `joinsum.plan_graph` reads."""

    def __init__(self, extents: dict[str, int]) -> None:
        self.extents = extents
        self.inputs: dict[str, list[int]] = {}
        self.ops: list[dict[str, Any]] = []

    def input(self, name: str, labels: str) -> str:
        self.inputs[name] = [self.extents[label] for label in labels]
        return name

    def op(self, name: str, equation: str, *inputs: str, join: str = "mul", agg: str = "sum") -> str:
        terms, out = equation.split("->")
        entry = {"name": name, "inputs": list(inputs), "in_labels": terms.split(","), "out_labels": out, "join": join}
        vanishing = set(terms) - {","} - set(out)
        self.ops.append(entry | ({"agg": agg} if vanishing else {}))
        return name

    def graph(self, outputs: list[str]) -> dict[str, Any]:
        """Outputs have names without primes, as plans take them."""
        named = {name.replace("'", ".gradient"): name for name in outputs}
        return {"inputs": self.inputs, "ops": self.ops, "outputs": named}


def llama(layers: int, extents: dict[str, int] = LLAMA_7B) -> dict[str, Any]:
    """Forward and backward pass of `layers` layers: norms, rotary embedding, attention, gated feed-forward.

    Backward, each product gives one product for each operand, and each elementwise step one step: a kernel of about
    its cost stands for it, as the planner asks for no more.
    """
    write = Writer(extents)
    stream = write.input("x", "bsa")
    write.input("rotation", "sdc")
    for layer in range(layers):
        stream = forward(write, f"l{layer}.", stream)
    gradient = write.input("gradient", "bsa")
    outputs = [stream]
    for layer in reversed(range(layers)):
        gradient, weights = backward(write, f"l{layer}.", "x" if layer == 0 else f"l{layer - 1}.out", gradient)
        outputs += weights
    return write.graph([*outputs, gradient])


def forward(write: Writer, at: str, x: str) -> str:
    """One layer; returns the residual stream after it."""
    for name, labels in {
        "wq": "ahd",
        "wk": "ahd",
        "wv": "ahd",
        "wo": "hda",
        "w1": "af",
        "w3": "af",
        "w2": "fa",
    }.items():
        write.input(at + name, labels)
    norm(write, at + "n1", x)
    for name in "qkv":
        write.op(at + name, "bsa,ahd->bshd", at + "n1", at + "w" + name)
    for name in "qk":
        write.op(at + name + "r", "bshd,sdc->bshc", at + name, "rotation")
    write.op(at + "scores", "bshd,bthd->bhst", at + "qr", at + "kr")
    write.op(at + "top", "bhst->bhs", at + "scores", agg="max")
    write.op(at + "exp", "bhst,bhs->bhst", at + "scores", at + "top", join="sub | exp")
    write.op(at + "total", "bhst->bhs", at + "exp")
    write.op(at + "p", "bhst,bhs->bhst", at + "exp", at + "total", join="div")
    write.op(at + "o", "bhst,bthd->bshd", at + "p", at + "v")
    write.op(at + "attended", "bshd,hda->bsa", at + "o", at + "wo")
    write.op(at + "mid", "bsa,bsa->bsa", x, at + "attended", join="add")
    norm(write, at + "n2", at + "mid")
    write.op(at + "gate", "bsa,af->bsf", at + "n2", at + "w1")
    write.op(at + "up", "bsa,af->bsf", at + "n2", at + "w3")
    write.op(at + "act", "bsf,bsf->bsf", at + "gate", at + "up", join="mul | sigmoid")
    write.op(at + "down", "bsf,fa->bsa", at + "act", at + "w2")
    return write.op(at + "out", "bsa,bsa->bsa", at + "mid", at + "down", join="add")


def norm(write: Writer, name: str, x: str) -> None:
    """RMS norm: the mean of squares of each token, and the division by its root with a learned scale."""
    write.input(name + ".scale", "a")
    write.op(name + ".square", "bsa->bs", x, join="square")
    write.op(name + ".unit", "bsa,bs->bsa", x, name + ".square", join="div")
    write.op(name, "bsa,a->bsa", name + ".unit", name + ".scale")


def norm_backward(write: Writer, name: str, x: str, gradient: str) -> tuple[str, str]:
    """Gradients of a norm's operand, without that of the residual stream beside it, and of its scale."""
    scale = write.op(name + ".scale'", "bsa,bsa->a", gradient, name + ".unit")
    write.op(name + ".unit'", "bsa,a->bsa", gradient, name + ".scale")
    write.op(name + ".square'", "bsa,bsa->bs", name + ".unit'", x)
    write.op(name + ".inner'", "bs,bs->bs", name + ".square'", name + ".square", join="mul")
    write.op(name + ".direct'", "bsa,bs->bsa", name + ".unit'", name + ".square", join="div")
    write.op(name + ".through'", "bsa,bs->bsa", x, name + ".inner'")
    return write.op(name + "'", "bsa,bsa->bsa", name + ".direct'", name + ".through'", join="add"), scale


def backward(write: Writer, at: str, x: str, gradient: str) -> tuple[str, list[str]]:
    """One layer backwards; returns the gradient of the residual stream before it, and those of the weights."""
    op = write.op
    weights = [op(at + "w2'", "bsf,bsa->fa", at + "act", gradient)]
    op(at + "act'", "bsa,fa->bsf", gradient, at + "w2")
    op(at + "slope", "bsf,bsf->bsf", at + "gate", at + "up", join="mul | sigmoid")
    op(at + "gate'", "bsf,bsf->bsf", at + "act'", at + "slope")
    op(at + "up'", "bsf,bsf->bsf", at + "act'", at + "gate", join="mul | sigmoid")
    weights += [op(at + "w1'", "bsa,bsf->af", at + "n2", at + "gate'")]
    weights += [op(at + "w3'", "bsa,bsf->af", at + "n2", at + "up'")]
    op(at + "n2.gate'", "bsf,af->bsa", at + "gate'", at + "w1")
    op(at + "n2.up'", "bsf,af->bsa", at + "up'", at + "w3")
    op(at + "n2.both'", "bsa,bsa->bsa", at + "n2.gate'", at + "n2.up'", join="add")
    through, scale = norm_backward(write, at + "n2", at + "mid", at + "n2.both'")
    weights.append(scale)
    op(at + "mid'", "bsa,bsa->bsa", gradient, through, join="add")
    before, more = attention_backward(write, at, at + "mid'")
    through, scale = norm_backward(write, at + "n1", x, before)
    return op(at + "x'", "bsa,bsa->bsa", at + "mid'", through, join="add"), [*weights, *more, scale]


def attention_backward(write: Writer, at: str, gradient: str) -> tuple[str, list[str]]:
    """Attention backwards; returns the gradient of its normed operand, and those of its weights."""
    op = write.op
    weights = [op(at + "wo'", "bshd,bsa->hda", at + "o", gradient)]
    op(at + "o'", "bsa,hda->bshd", gradient, at + "wo")
    op(at + "p'", "bshd,bthd->bhst", at + "o'", at + "v")
    op(at + "v'", "bhst,bshd->bthd", at + "p", at + "o'")
    op(at + "dot'", "bhst,bhst->bhs", at + "p'", at + "p")
    op(at + "centred'", "bhst,bhs->bhst", at + "p'", at + "dot'", join="sub")
    op(at + "scores'", "bhst,bhst->bhst", at + "centred'", at + "p")
    op(at + "qr'", "bhst,bthd->bshd", at + "scores'", at + "kr")
    op(at + "kr'", "bhst,bshd->bthd", at + "scores'", at + "qr")
    for name in "qk":
        op(at + name + "'", "bshc,sdc->bshd", at + name + "r'", "rotation")
    for name in "qkv":
        weights.append(op(at + "w" + name + "'", "bsa,bshd->ahd", at + "n1", at + name + "'"))
        op(at + "n1." + name, "bshd,ahd->bsa", at + name + "'", at + "w" + name)
    op(at + "n1.qk", "bsa,bsa->bsa", at + "n1.q", at + "n1.k", join="add")
    return op(at + "n1.qkv", "bsa,bsa->bsa", at + "n1.qk", at + "n1.v", join="add"), weights


def products(labels: int) -> dict[str, Any]:
    """A chain of eight products of tensors of `labels` axes, each of which sums over one axis and adds another."""
    names = "abcdefghijklmnop"[: labels + 1]
    write = Writer(dict.fromkeys(names, 64))
    value, reduced, added = write.input("x", names[:-1]), 0, labels
    for step in range(8):
        inside = "".join(name for name in names if name != names[added])
        outside = "".join(name for name in names if name != names[reduced])
        weight = write.input(f"w{step}", names[reduced] + names[added])
        value = write.op(f"y{step}", f"{inside},{names[reduced]}{names[added]}->{outside}", value, weight)
        reduced, added = (reduced + 1) % len(names), reduced
    return write.graph([value])


def growth(file: str) -> None:
    """Prints how the time of a plan grows with layers, labels and sites, and draws it."""
    curves: dict[str, list[tuple[str, list[int], list[float]]]] = {"layers": [], "labels": [], "sites": []}
    for objective in ("wire_bytes", "seconds"):
        for of, numbers, planned in (
            ("layers", [1, 2, 4, 8, 16, 32], lambda number: (llama(number), 8)),
            ("labels", [2, 3, 4, 5, 6, 7], lambda number: (products(number), 8)),
            ("sites", [2, 4, 8, 16, 64, 256, 1024, 4096], lambda number: (llama(1), number)),
        ):
            taken = []
            for number in numbers:
                graph, sites = planned(number)
                start = time.perf_counter()
                plan = joinsum.plan_graph(graph, objective, sites=sites)
                taken.append(time.perf_counter() - start)
                print(f"{objective}, {of}={number}: {taken[-1]:.2f} s, {gap_text(plan)}", flush=True)
            curves[of].append((objective, numbers, taken))
    draw(curves, file)


def draw(curves: dict[str, list[tuple[str, list[int], list[float]]]], file: str) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    for place, (of, lines) in zip(figure.subplots(1, 3, sharey=True), curves.items(), strict=True):
        for objective, numbers, taken in lines:
            place.plot(numbers, taken, marker="o", label=objective)
        place.set_xscale("log", base=2)
        place.set_yscale("log")
        place.set_xticks(lines[0][1], [f"{number:,}" for number in lines[0][1]], fontsize=8)
        place.minorticks_off()
        place.set_xlabel(of)
        place.grid(alpha=0.3)
        place.legend()
    figure.axes[0].set_ylabel("seconds to plan")
    figure.savefig(file, dpi=150)


@click.command()
@click.option("--layers", type=click.IntRange(min=1), multiple=True, default=(1, 32), show_default=True)
@click.option("--calls", type=click.IntRange(min=1), multiple=True, default=(8,), show_default=True)
@click.option("--objective", type=click.Choice(["paper", "wire_bytes", "seconds"]), default="paper", show_default=True)
@click.option("--sites", type=click.IntRange(min=1), multiple=True, default=(8,), show_default=True)
@click.option("--json", "file", type=click.File("w"), help="Write the graph of the last number of layers there.")
@click.option("--growth", "picture", type=click.Path(dir_okay=False), help="Draw the time over layers, labels, sites.")
def command(
    layers: tuple[int, ...],
    calls: tuple[int, ...],
    objective: str,
    sites: tuple[int, ...],
    file: Any,
    picture: str | None,
) -> None:
    """Plan LLaMA-7B's layers, forward and backward, by the paper's element counts or on sites."""
    if picture is not None:
        growth(picture)
        return
    compare(layers, calls if objective == "paper" else sites, objective)
    if file is not None:
        json.dump(llama(layers[-1]), file, indent=1)


def compare(layers: Sequence[int], numbers: Sequence[int], objective: str = "paper") -> None:
    """Prints the seconds of each plan, and how far from the best it may be; `numbers` are calls or sites."""
    what = "calls" if objective == "paper" else "sites"
    for count in layers:
        graph = llama(count)
        for number in numbers:
            start = time.perf_counter()
            calls, sites = (number, None) if what == "calls" else (None, number)
            plan = joinsum.plan_graph(graph, objective, calls=calls, sites=sites)
            seconds = time.perf_counter() - start
            print(f"{count} layers, {len(plan.vertices)} einsums, {number} {what}: {seconds:.2f} s, {gap_text(plan)}")


def gap_text(plan: joinsum.GraphPlan) -> str:
    if plan.exact:
        return "proven best"
    if plan.lower_bound == 0:
        return "no bound"
    return f"at most {plan.cost / plan.lower_bound - 1:.2%} above the best"


if __name__ == "__main__":
    command()
