"""Messages between ranks of one host: through shared memory, by torch.distributed on Gloo, and by joinsum on Gloo.

In a ping-pong, ranks 2i and 2i + 1 send one message there and back; its time is that of a message. In an exchange,
every rank sends a message to each other one at once; its time is that of the exchange. All three take turns in the same
processes, one thread each. Received arrays are new ones, as in a run of a plan.

    python benchmarks/messages.py [--ranks 2 --ranks 4] [--turns 20] [--quick] [--json FILE]
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import click
import joinsum
import torch
import torch.distributed as dist
from frame.launch import start_ranks
from frame.timing import ratio, spread, take_turns
from joinsum import _C
from network import run_all

SIZES = tuple(4 << shift for shift in range(10, 25, 2))  # 4 KiB to 64 MiB
PATTERNS = ("ping-pong", "exchange")
SECONDS = 3600.0  # after which the ranks have failed


class Figure(NamedTuple):
    """Median seconds of each way, and how many times faster than torch on Gloo shared memory is, in each turn."""

    ranks: int
    pattern: str
    bytes: int
    shared_seconds: float
    torch_seconds: float
    joinsum_on_gloo_seconds: float
    faster: float
    lower_quartile: float
    upper_quartile: float


def by_joinsum(transport: _C.Transport, pattern: str, payload: torch.Tensor) -> Callable[[], object]:
    """A step of the pattern by a transport."""
    rank, ranks, size = dist.get_rank(), dist.get_world_size(), payload.nbytes
    if pattern == "exchange":
        pairs = [(i, j, size) for i in range(ranks) for j in range(ranks) if i != j]
        own = {i: payload for i, pair in enumerate(pairs) if pair[0] == rank}
        return lambda: transport.exchange("exchange", pairs, own, payload)
    there = [(i, i + 1, size) for i in range(0, ranks, 2)]
    back = [(i + 1, i, size) for i in range(0, ranks, 2)]
    first, second = ({rank // 2: payload}, {}) if rank % 2 == 0 else ({}, {rank // 2: payload})

    def step() -> None:
        transport.exchange("there", there, first, payload)
        transport.exchange("back", back, second, payload)

    return step


def by_torch(pattern: str, payload: torch.Tensor) -> Callable[[], object]:
    """The same by torch.distributed."""
    rank, ranks = dist.get_rank(), dist.get_world_size()

    def exchange() -> None:
        others = [(rank + i) % ranks for i in range(1, ranks)]
        work = [dist.irecv(torch.empty_like(payload), other) for other in others]
        work += [dist.isend(payload, other) for other in others]
        for each in work:
            each.wait()  # type: ignore[union-attr]

    def ping_pong() -> None:
        if rank % 2 == 0:
            dist.send(payload, rank + 1)
        dist.recv(torch.empty_like(payload), rank ^ 1)
        if rank % 2 == 1:
            dist.send(payload, rank - 1)

    return exchange if pattern == "exchange" else ping_pong


def figure(shared: _C.Transport, sockets: _C.Transport, pattern: str, size: int, turns: int) -> Figure:
    payload = torch.zeros(size // 4)
    _, seconds = take_turns(
        {
            "shared": by_joinsum(shared, pattern, payload),
            "torch": by_torch(pattern, payload),
            "joinsum": by_joinsum(sockets, pattern, payload),
        },
        turns,
    )
    parts = 2 if pattern == "ping-pong" else 1
    shared_seconds, torch_seconds, gloo_seconds = (
        spread(seconds[name]).median / parts for name in ("shared", "torch", "joinsum")
    )
    faster = ratio(seconds["shared"], seconds["torch"])
    return Figure(
        ranks=dist.get_world_size(),
        pattern=pattern,
        bytes=size,
        shared_seconds=shared_seconds,
        torch_seconds=torch_seconds,
        joinsum_on_gloo_seconds=gloo_seconds,
        faster=faster.median,
        lower_quartile=faster.low,
        upper_quartile=faster.high,
    )


def measure(turns: int, sizes: list[int], out: Path) -> None:
    """What one rank does."""
    torch.set_num_threads(1)
    joinsum.init(cluster=joinsum.Cluster())
    group = dist.group.WORLD
    assert group is not None
    shared, sockets = (
        _C.make_process_group(group.group_name, 60.0, _C.Collectives.table, each, False) for each in (True, False)
    )
    if shared.shared_memory != _C.SharedMemory.all:
        raise click.ClickException("messages: the ranks cannot share memory here")
    figures = [figure(shared, sockets, pattern, size, turns) for pattern in PATTERNS for size in sizes]
    if dist.get_rank() == 0:
        out.write_text(json.dumps([each._asdict() for each in figures]))


def launch(ranks: int, turns: int, sizes: list[int]) -> list[Figure]:
    """Figures of a number of ranks, from processes of their own."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "figures.json"
        command = [sys.executable, __file__, "--out", str(out), "--turns", str(turns)]
        command += [argument for size in sizes for argument in ("--size", str(size))]
        run_all(start_ranks(ranks, command, {"OMP_NUM_THREADS": "1"}), SECONDS)
        return [Figure(**each) for each in json.loads(out.read_text())]


def size_text(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


HEADING = "ranks  pattern      size  shared us   torch us    gloo us  torch / shared (quartiles)"


def row(each: Figure) -> str:
    times = (each.shared_seconds, each.torch_seconds, each.joinsum_on_gloo_seconds)
    columns = " ".join(f"{1e6 * seconds:10.0f}" for seconds in times)
    quartiles = f"({each.lower_quartile:.1f} to {each.upper_quartile:.1f})"
    return f"{each.ranks:5}  {each.pattern:9} {size_text(each.bytes):>7} {columns} {each.faster:6.1f} {quartiles}"


@click.command()
@click.option("--ranks", type=int, multiple=True, default=(2, 4), help="Even numbers of ranks.")
@click.option("--turns", type=int, default=20, help="Of each way, for every size.")
@click.option("--size", "sizes", type=int, multiple=True, default=SIZES, help="Bytes of a message.")
@click.option("--quick", is_flag=True, help="Few turns and sizes.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Also writes the figures to FILE.")
@click.option("--out", type=click.Path(path_type=Path), hidden=True, help="This process is a rank.")
def command(
    ranks: tuple[int, ...], turns: int, sizes: tuple[int, ...], quick: bool, file: Path | None, out: Path | None
) -> None:
    chosen, turns = ([SIZES[0], 1 << 20], 3) if quick else (list(sizes), turns)
    if out is not None:
        return measure(turns, chosen, out)
    click.echo(HEADING)
    figures = []
    for number in ranks:
        figures += launch(number, turns, chosen)
        for each in figures[-len(chosen) * len(PATTERNS) :]:
            click.echo(row(each))
    if file is not None:
        file.write_text(json.dumps([each._asdict() for each in figures], indent=2) + "\n")


if __name__ == "__main__":
    command()
