"""Is the chosen plan the fastest one? Runs it beside the best other plans of its search and all baselines.

    python benchmarks/choice.py --suite quick
    python benchmarks/choice.py --workload language_model --size gpt-4x256 --ranks 2,4 --network open,1gbit --json FILE

The plans are those of the workload's largest program: what `joinsum.init()` and the workload get as they are, the plans
that searches found, those of least predicted seconds first, and what each baseline (all data parallel, all tensor
parallel, and so on) becomes. They take turns in one process a rank, on the rates that its start has measured. It prints
predicted and measured seconds of each, how far predictions are off, and how far the chosen plan is from the fastest.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import joinsum
import torch
import torch.distributed as dist
from frame.cells import Cell
from frame.contenders import Contender, rank
from frame.flags import cell_flags
from frame.launch import run_ranks, threads_of_rank
from frame.results import Results, machine
from frame.timing import ratio, spread, take_turns
from joinsum import _C
from joinsum.algebra.plan import TraPlan
from joinsum.base.text_table import text_table
from joinsum.cluster.context import Context
from joinsum.planner import plan_choice
from joinsum.planner.plan_choice import PlanRequest
from joinsum.planner.search import SearchOptions, SearchResult, search_in_process
from workloads import WORKLOADS

CHOSEN = "chosen"
# Plans of products are those of joinsum.optimize.
PLANNED = [name for name in WORKLOADS if name != "products"]


@dataclass
class Alternatives:
    """What searches found for a program, by where it comes from."""

    program: str = ""
    plans: dict[str, _C.IaPlan] = field(default_factory=dict)

    def add(self, name: str, plan: _C.IaPlan) -> None:
        """Unless it is known."""
        whole = plan.with_undecomposed_calls()
        if all(str(whole) != str(known) for known in self.plans.values()):
            self.plans.setdefault(name, whole)

    def ranked(self, cluster: joinsum.Cluster, count: int) -> dict[str, float]:
        """Names with predicted seconds: the chosen plan, the `count` best, and all baselines."""
        seconds = {name: _C.cost(plan, cluster.core()).seconds for name, plan in self.plans.items()}
        ascending = sorted(seconds, key=seconds.__getitem__)
        kept = {CHOSEN, *ascending[:count], *(name for name in ascending if name.startswith("baseline"))}
        return {name: seconds[name] for name in ascending if name in kept}


class Chooser:
    """Stands in for the planner's choice: remembers what its searches find, and makes a program take one of it."""

    def __init__(self) -> None:
        self.found = Alternatives()
        self.taken: str | None = None
        self._search = search_in_process
        self._choose = plan_choice._searched
        plan_choice.search_in_process = self.search  # type: ignore[attr-defined]
        plan_choice._searched = self.choose
        self._current = Alternatives()
        self._lock = threading.Lock()

    def search(
        self, current: Context, plan: TraPlan, options: SearchOptions, starts: Sequence[_C.PartialPlan] = ()
    ) -> SearchResult:
        result = self._search(current, plan, options, starts)
        with self._lock:  # searches run at the same time
            for number, completed in enumerate(result.completed):
                if completed is not None:
                    self._current.add(f"baseline {number + 1}", completed)
            for each in result.plans:
                self._current.add(each.name, each.plan.core)
        return result

    def choose(self, current: Context, request: PlanRequest, binary: _C.EinsumPlan, program: TraPlan) -> _C.IaPlan:
        if self.taken is not None and program.text == self.found.program:
            return self.found.plans[self.taken]
        self._current = Alternatives(program.text)
        plan = self._choose(current, request, binary, program)
        if self.taken is None and len(program.text) > len(self.found.program):
            names = {str(each): name for name, each in self._current.plans.items()}
            self._current.plans.pop(names.get(str(plan), ""), None)
            self.found = Alternatives(program.text, {CHOSEN: plan, **self._current.plans})
        return plan


def measured(workload: str, size: str, plans: int, turns: int) -> dict[str, Any]:
    """Predicted and measured seconds by name of a plan; collective."""
    current = joinsum.init()
    joinsum.init = lambda *_, **__: current  # all plans on the same rates
    chooser = Chooser()
    prepare = WORKLOADS[workload].contenders(size)["joinsum"]
    contenders: dict[str, Contender] = {CHOSEN: prepare()}
    contenders[CHOSEN].step()
    own = chooser.found.ranked(current.cluster, plans) if rank() == 0 else {}
    sent: list[Any] = [own]
    dist.broadcast_object_list(sent)
    predicted: dict[str, float] = sent[0]
    if not predicted:
        raise click.ClickException(f"the planner chooses no plan of {workload} by itself")
    for name in predicted:
        if name != CHOSEN:
            chooser.taken = name
            current._plans.clear()
            contenders[name] = prepare()
            contenders[name].step()
    _, seconds = take_turns({name: each.step for name, each in contenders.items()}, turns)
    return {name: {"predicted": predicted[name], "seconds": seconds[name]} for name in predicted}


def to_the_fastest(figures: dict[str, Any]) -> float:
    """The chosen plan's seconds as a multiple of the fastest one's: the median of the turns, so that other load hits
    both."""
    fastest = min(figures.values(), key=lambda each: spread(each["seconds"]).median)
    return ratio(fastest["seconds"], figures[CHOSEN]["seconds"]).median


def errors(figures: dict[str, Any]) -> list[float]:
    """How far predictions are off, as parts of what was measured."""
    return [each["predicted"] / spread(each["seconds"]).median - 1 for each in figures.values()]


def plan_table(figures: dict[str, Any]) -> str:
    """The plans of a cell, the fastest first."""
    medians = {name: spread(each["seconds"]).median for name, each in figures.items()}
    least = min(medians.values())
    rows = [
        (
            name,
            f"{1e3 * figures[name]['predicted']:.1f} ms",
            f"{1e3 * seconds:.1f} ms",
            f"{figures[name]['predicted'] / seconds - 1:+.0%}",
            f"{seconds / least:.2f}",
        )
        for name, seconds in sorted(medians.items(), key=lambda item: item[1])
    ]
    return text_table(("plan", "predicted", "measured", "off by", "to the fastest"), rows, right=[1, 2, 3, 4])


def cell_table(results: Results) -> str:
    """The cells: how good the choice was, and the predictions."""
    found = {cell: entry["plans"] for cell, entry in results.cells.items()}
    rows = [
        (
            str(cell),
            str(len(plans)),
            f"{to_the_fastest(plans):.2f}",
            f"{statistics.median(map(abs, errors(plans))):.0%}",
        )
        for cell, plans in found.items()
    ]
    every = [abs(error) for plans in found.values() for error in errors(plans)]
    rows.append(("all", str(len(every)), "", f"{statistics.median(every):.0%}"))
    return text_table(("cell", "plans", "chosen to fastest", "predictions off by"), rows, right=[1, 2, 3])


def run_plans(cell: Cell, plans: int, turns: int) -> dict[str, Any]:
    """Figures of a cell by plan, from processes of its own."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "figures.json"
        command = [sys.executable, __file__, "--workload", cell.workload, "--size", cell.size]
        command += ["--plans", str(plans), "--turns", str(turns), "--out", str(out)]
        threads = threads_of_rank(cell.ranks)
        environment = {"OMP_NUM_THREADS": str(threads), "TORCH_CPP_LOG_LEVEL": "ERROR", "JOINSUM_PLAN_CACHE": "0"}
        run_ranks(cell.ranks, cell.network, command, environment, 1800)
        found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found


@click.command()
@cell_flags("quick", {name: WORKLOADS[name].sizes for name in PLANNED})
@click.option("--plans", default=8, show_default=True, help="How many beside the baselines.")
@click.option("--turns", default=7, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), hidden=True)
def main(suite: str, chosen: Sequence[Cell], results: Results, plans: int, turns: int, out: Path | None) -> None:
    """Run chosen plans beside others."""
    if out is not None:
        return one_rank(chosen[0], plans, turns, out)
    for cell in chosen:
        if cell.ranks == 1 or cell in results.cells:
            continue
        results.add(cell, {"plans": run_plans(cell, plans, turns), "machine": machine()})
        click.echo(f"{cell}\n{plan_table(results.cells[cell]['plans'])}\n")
    click.echo(cell_table(results))


def one_rank(cell: Cell, plans: int, turns: int, out: Path) -> None:
    """What a process that `run_plans` starts does."""
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    dist.init_process_group("gloo")
    figures = measured(cell.workload, cell.size, plans, turns)
    if rank() == 0:
        out.write_text(json.dumps(figures), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
