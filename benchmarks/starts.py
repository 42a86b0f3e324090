"""Starts a program many times with empty caches: does it get the same plan, and the same rates?

    python benchmarks/starts.py [--workload language_model] [--size gpt-4x256] [--ranks 2] [--network open]
                                [--starts 20] [--json FILE]

Every start has a cache folder of its own, so that rates are measured and the program is planned anew. A plan is told by
the operations of its trace. Figures are those of rank 0.
"""

from __future__ import annotations

import collections
import hashlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import joinsum
import torch
import torch.distributed as dist
from frame.launch import run_ranks, threads_of_rank
from workloads import WORKLOADS

RATES = ("flops_per_second", "bytes_per_second", "latency_seconds")


def one_start(workload: str, size: str) -> dict[str, Any]:
    """What a new process finds, after one step."""
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    contender = WORKLOADS[workload].contenders(size)["joinsum"]()
    start = time.perf_counter()
    contender.step()
    first = time.perf_counter() - start
    trace = joinsum.trace()
    text = "\n".join(entry.operation for entry in trace)
    cluster = joinsum.context().cluster
    found: dict[str, Any] = {name: getattr(cluster, name) for name in RATES}
    found |= {"plan": hashlib.sha256(text.encode()).hexdigest()[:8], "nodes": len(trace)}
    found |= {
        "first_seconds": first,
        "moves": sum(entry.bytes_sent > 0 for entry in trace),
        "sent_bytes": trace.bytes_sent,
    }
    if dist.is_initialized():
        dist.destroy_process_group()
    return found


def started(workload: str, size: str, ranks: int, link: str) -> dict[str, Any]:
    """The same, from processes of their own with an empty cache folder."""
    threads = threads_of_rank(ranks)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        command = [sys.executable, __file__, "--workload", workload, "--size", size, "--out", str(out)]
        environment = {"OMP_NUM_THREADS": str(threads), "XDG_CACHE_HOME": folder}
        run_ranks(ranks, link, command, environment, 600)
        found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found


def summary(found: Sequence[dict[str, Any]]) -> str:
    """Plans with their numbers of starts, and the spread of the rates."""
    plans = collections.Counter(
        f"{each['plan']} ({each['nodes']} nodes, {each['moves']} moves, {each['sent_bytes']:,} B sent)"
        for each in found
    )
    lines = [f"{count:3} x plan {plan}" for plan, count in plans.most_common()]
    for name in RATES:
        values = [each[name] for each in found]
        middle = statistics.median(values)
        lines.append(f"{name:17} {middle:9.3g}, from {min(values) / middle:.2f} to {max(values) / middle:.2f} of that")
    return "\n".join(lines)


@click.command()
@click.option("--workload", default="language_model", type=click.Choice(list(WORKLOADS)))
@click.option("--size", default="gpt-4x256")
@click.option("--ranks", default=2)
@click.option("--network", "link", default="open", help="open, or what benchmarks/network.py emulates")
@click.option("--starts", default=20)
@click.option("--json", "file", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), hidden=True)
def main(workload: str, size: str, ranks: int, link: str, starts: int, file: Path | None, out: Path | None) -> None:
    """Start a program many times with empty caches."""
    if out is not None:
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        found = one_start(workload, size)
        if os.environ.get("RANK", "0") == "0":
            out.write_text(json.dumps(found), encoding="utf-8")
        return
    all_found = []
    for number in range(starts):
        all_found.append(started(workload, size, ranks, link))
        click.echo(f"start {number + 1}: {all_found[-1]}", err=True)
    click.echo(f"{workload} {size}, {ranks} ranks, {link}, {starts} starts\n{summary(all_found)}")
    if file is not None:
        file.write_text(json.dumps(all_found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
