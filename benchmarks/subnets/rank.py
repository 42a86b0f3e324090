"""One rank of benchmarks/ist.py, which starts it: trains methods for their curves, or measures their steps."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import joinsum
import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from frame.launch import end_with_the_driver
from frame.timing import of_all_ranks
from network import DEVICE
from subnets.methods import METHODS, Method
from subnets.tasks import TASKS, Batch, Task, evaluated

CALIBRATION = 2  # batches of each rank
WARM_ROUNDS = 2
STEPS_OF_DDP = 3  # in a turn


def curve(task: Task, name: str, rate: float, seed: int, every: int, steps: int, each: int) -> dict[str, Any]:
    """The measures after each so many steps, and the seconds of training until then."""
    method = METHODS[name](task, rate, every, seed)
    batches, points, seconds = task.training(seed), [], []
    start, evaluating = time.perf_counter(), 0.0
    for step in range(1, steps + 1):
        method.step(next(batches))
        if step % each == 0:
            before = time.perf_counter()
            seconds.append(before - start - evaluating)
            with method.whole(CALIBRATION) as model:
                points.append([step, *evaluated(task, model)])
            evaluating += time.perf_counter() - before
    return {"points": points, "seconds": seconds, "evaluation_seconds": evaluating}


def bytes_sent() -> int:
    """By this rank's device since it was made; 0 where the ranks meet on the machine itself."""
    for line in Path("/proc/net/dev").read_text(encoding="utf-8").splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == DEVICE:
            return int(numbers.split()[8])
    return 0


def turn(method: Method, batches: Iterator[Batch]) -> dict[str, float]:
    """A round of a method: seconds of a step without an exchange and of the exchange, and bytes sent in all; DDP's
    round is some steps, each with its exchange."""
    count = method.every if method.every > 1 else STEPS_OF_DDP
    alone = count - 1 if method.every > 1 else count
    dist.barrier()
    sent, start = bytes_sent(), time.perf_counter()
    for _ in range(alone):
        method.step(next(batches))
    step = of_all_ranks(time.perf_counter() - start) / alone
    if alone == count:
        return {"step": step, "exchange": 0.0, "bytes": (bytes_sent() - sent) / count}
    begin = time.perf_counter()
    method.step(next(batches))
    last = of_all_ranks(time.perf_counter() - begin)
    return {"step": step, "exchange": max(0.0, last - step), "bytes": (bytes_sent() - sent) / count}


def times(task: Task, names: list[str], every: int, turns: int) -> dict[str, list[dict[str, float]]]:
    """Turns of all methods."""
    methods = {name: METHODS[name](task, 1e-3, every) for name in names}
    batches = task.training()
    for method in methods.values():
        for _ in range(WARM_ROUNDS * method.every):
            method.step(next(batches))
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for index in range(turns):
        for name in names[index % len(names) :] + names[: index % len(names)]:
            found[name].append(turn(methods[name], batches))
    return found


@click.command()
@click.argument("request")
@click.option("--out", type=click.Path(path_type=Path), required=True)
def main(request: str, out: Path) -> None:
    """REQUEST is JSON, as is the answer that rank 0 writes."""
    end_with_the_driver()
    asked = json.loads(request)
    torch.set_num_threads(asked["threads"])
    dist.init_process_group("gloo")
    joinsum.init(plan_cache=False)
    task, every = TASKS[asked["workload"]](), asked["every"]
    if "turns" in asked:
        found: dict[str, Any] = {"turns": times(task, asked["methods"], every, asked["turns"])}
    else:
        found = curve(task, asked["method"], asked["rate"], asked["seed"], every, asked["steps"], asked["each"])
    if dist.get_rank() == 0:
        out.write_text(json.dumps(found), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
