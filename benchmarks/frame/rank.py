"""One rank of a cell: prepares all contenders in this process, checks that they agree, and lets them take turns.

Started by `launch.py`, with the variables that torch.distributed reads. Rank 0 writes the figures.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import click
import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from workloads import WORKLOADS

from frame.contenders import Absent, Contender, Workload, check_equal, rank
from frame.launch import end_with_the_driver
from frame.timing import of_all_ranks, take_turns


def _checked(name: str, contender: Contender, workload: Workload, expected: list[torch.Tensor]) -> dict[str, float]:
    """Compares the result of the first steps; figures of these steps."""
    start = time.perf_counter()
    contender.step()
    first = of_all_ranks(time.perf_counter() - start)
    for _ in range(workload.checked_steps - 1):
        contender.step()
    check_equal(name, contender.result(), expected, workload.tolerance)
    return {"first_step_seconds": first}


def measured(workload: Workload, size: str, turns: int, only: set[str]) -> dict[str, Any]:
    """Figures of a cell; `only` names the contenders beside joinsum, all if empty."""
    reference = workload.reference(size)
    for _ in range(workload.checked_steps):
        reference.step()
    expected = [x.detach().clone() for x in reference.result()]
    del reference
    prepared: dict[str, Contender] = {}
    absent: dict[str, str] = {}
    figures: dict[str, dict[str, float]] = {}
    for name, prepare in workload.contenders(size).items():
        if only and name not in only | {"joinsum"}:
            continue
        try:
            prepared[name] = prepare()
        except Absent as reason:
            absent[name] = str(reason)
            continue
        figures[name] = _checked(name, prepared[name], workload, expected)
    del expected
    gc.collect()
    steps, seconds = take_turns({name: each.step for name, each in prepared.items()}, turns)
    for name, contender in prepared.items():
        figures[name] |= contender.figures()
    return {"steps_of_a_turn": steps, "seconds": seconds, "absent": absent, "figures": figures}


@click.command()
@click.option("--workload", required=True)
@click.option("--size", required=True)
@click.option("--turns", type=int, required=True)
@click.option("--threads", type=int, required=True)
@click.option("--only", multiple=True)
@click.option("--out", type=click.Path(path_type=Path), required=True)
def main(workload: str, size: str, turns: int, threads: int, only: tuple[str, ...], out: Path) -> None:
    """Measure one cell; the driver starts this program."""
    end_with_the_driver()
    torch.set_num_threads(threads)
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    result = measured(WORKLOADS[workload], size, turns, set(only))
    if rank() == 0:
        out.write_text(json.dumps(result) + "\n", encoding="utf-8")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
