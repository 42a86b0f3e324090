"""How long the first call of a training step takes: capture by phases, and a start of ranks beside torch.compile's.

    python benchmarks/first_calls.py capture [--layers 4 --layers 32] [--sites 4] [--json FILE]
    python benchmarks/first_calls.py start [--size gpt-4x256] [--ranks 4] [--json FILE]

`capture` traces a decoder's step in this process, with all sites; phases are Dynamo (with its guards), AOTAutograd, the
optimizer's updates, recording, planning, and the first two runs. `start` starts ranks twice, first with empty caches
and then with what they left there; joinsum's seconds contain `joinsum.init()`, which measures rates. Its contender is
torch.compile of a DistributedDataParallel model and the loss, each rank with its shard of the batch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import joinsum
import torch
import torch.distributed as dist
from frame.contenders import own_rows
from frame.launch import start_ranks, threads_of_rank
from joinsum.capture import executable
from joinsum.frontend.training import step_graph
from network import run_all
from torch import Tensor, nn
from workloads.decoder import Decoder, Shape, batch, loss_of
from workloads.language_model import SIZES, adamw

# What is timed inside of a capture: a phase, and the function of a module that it is.
_TIMED = {
    "AOTAutograd": (step_graph, "aot_compile"),
    "updates": (step_graph, "updated_graph"),
    "record": (executable, "record"),
}


@contextmanager
def timed(seconds: dict[str, float]) -> Iterator[None]:
    """Adds up the seconds of each phase while the context is open."""
    originals = {phase: getattr(module, name) for phase, (module, name) in _TIMED.items()}

    def timing(phase: str) -> Callable[..., Any]:
        def run(*args: Any, **keywords: Any) -> Any:
            begin = time.perf_counter()
            try:
                return originals[phase](*args, **keywords)
            finally:
                seconds[phase] = seconds.get(phase, 0.0) + time.perf_counter() - begin

        return run

    for phase, (module, name) in _TIMED.items():
        setattr(module, name, timing(phase))
    try:
        yield
    finally:
        for phase, (module, name) in _TIMED.items():
            setattr(module, name, originals[phase])


def capture_of(layers: int, sites: int) -> dict[str, float]:
    """Seconds of the phases of a step's first call, and of its second one."""
    joinsum.init(sites=sites, plan_cache=False)
    torch._dynamo.reset()
    shape = Shape("gpt", layers, 256)
    model, (inputs, target) = Decoder(shape), batch(shape)
    step = joinsum.train_step(model, loss_of, adamw(list(model.parameters())))
    inner: dict[str, float] = {}
    times = [time.perf_counter()]
    with timed(inner):
        captured = step.captured(inputs, target)
        times.append(time.perf_counter())
        if sites > 1:  # on one site torch runs the graph, and nothing is recorded or planned
            _ = captured.planned.choice
        times.append(time.perf_counter())
    for _ in range(2):
        step(inputs, target)
        times.append(time.perf_counter())
    capture, plan, first, second = (end - begin for begin, end in pairwise(times))
    phases = {"Dynamo and the rest": capture - sum(inner.values()), **inner}
    return {"capture": capture, **phases, "plan": plan, "first run": first, "second run": second}


def joinsum_step(model: nn.Module, inputs: Tensor, target: Tensor) -> Callable[[], object]:
    joinsum.init()
    step = joinsum.train_step(model, loss_of, adamw(list(model.parameters())))
    return lambda: step(inputs, target)


def inductor_step(model: nn.Module, inputs: Tensor, target: Tensor) -> Callable[[], object]:
    parallel = nn.parallel.DistributedDataParallel(model) if dist.is_initialized() else model
    if dist.is_initialized():
        inputs, target = own_rows(inputs), own_rows(target)
    compiled = torch.compile(lambda x, y: loss_of(parallel(x), y))
    optimizer = adamw(list(model.parameters()))

    def step() -> None:
        compiled(inputs, target).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    return step


CONTENDERS = {"joinsum": joinsum_step, "torch.compile": inductor_step}


def first_call(contender: str, size: str) -> dict[str, float]:
    """Seconds of the first call in this process, and of the second one."""
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    shape = SIZES[size]
    torch.manual_seed(0)
    model, (inputs, target) = Decoder(shape), batch(shape)
    times = [time.perf_counter()]
    step = CONTENDERS[contender](model, inputs, target)
    for _ in range(2):
        step()
        times.append(time.perf_counter())
    if dist.is_initialized():
        dist.destroy_process_group()
    return {"first call": times[1] - times[0], "second call": times[2] - times[1]}


def started(contender: str, size: str, ranks: int, caches: Path) -> dict[str, float]:
    """The same in ranks of their own, whose caches are in a folder; the figures of rank 0."""
    out = caches / "found.json"
    command = [sys.executable, __file__, "start", "--size", size, "--contender", contender, "--out", str(out)]
    environment = {"XDG_CACHE_HOME": str(caches), "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor")}
    environment["OMP_NUM_THREADS"] = str(threads_of_rank(ranks))
    processes: list[subprocess.Popen[bytes]] = start_ranks(ranks, command, environment)
    run_all(processes, 600)
    found: dict[str, float] = json.loads(out.read_text(encoding="utf-8"))
    return found


def show(title: str, figures: dict[str, float]) -> None:
    click.echo(f"{title}: " + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in figures.items()))


def write(file: Path | None, found: Sequence[dict[str, Any]]) -> None:
    if file is not None:
        file.write_text(json.dumps(found) + "\n", encoding="utf-8")


@click.group()
def main() -> None:
    """Measure the first call of a training step."""


@main.command()
@click.option("--layers", type=int, multiple=True, default=(4, 32), show_default=True)
@click.option("--sites", type=int, default=4, show_default=True)
@click.option("--json", "file", type=click.Path(path_type=Path))
def capture(layers: tuple[int, ...], sites: int, file: Path | None) -> None:
    """Capture a decoder's step, with all sites in this process."""
    found = []
    for count in layers:
        found.append({"layers": count, "sites": sites, **capture_of(count, sites)})
        show(f"{count} layers, {sites} sites", {k: v for k, v in found[-1].items() if k not in ("layers", "sites")})
    write(file, found)


@main.command()
@click.option("--size", default="gpt-4x256", type=click.Choice(list(SIZES)))
@click.option("--ranks", default=4, show_default=True)
@click.option("--json", "file", type=click.Path(path_type=Path))
@click.option("--contender", type=click.Choice(list(CONTENDERS)), hidden=True)
@click.option("--out", type=click.Path(path_type=Path), hidden=True)
def start(size: str, ranks: int, file: Path | None, contender: str | None, out: Path | None) -> None:
    """Start ranks with empty caches, then again with what they left there."""
    if contender is not None and out is not None:
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        figures = first_call(contender, size)
        if os.environ.get("RANK", "0") == "0":
            out.write_text(json.dumps(figures), encoding="utf-8")
        return
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for caches in ("empty", "filled"):
            for name in CONTENDERS:
                figures = started(name, size, ranks, Path(folder))
                found.append({"contender": name, "caches": caches, "ranks": ranks, **figures})
                show(f"{name}, {ranks} ranks, {caches} caches", figures)
    write(file, found)


if __name__ == "__main__":
    main()
