"""A model larger than a site's memory: what a site holds at most while it trains, evaluates and saves a part of it.

    python benchmarks/ist_memory.py                                    # the whole model in one process
    torchrun --nproc-per-node 4 benchmarks/ist_memory.py               # a subnet of it on each of 4 sites

A classifier of one wide hidden layer is trained with Adam: by plain torch in one process, and by `joinsum.IST` on
ranks. Its default sizes are those of the largest network of the thesis (table 2.2: 135,909 features, a hidden layer of
2,560, 670,091 labels) with a tenth of the features and labels.

Once its libraries are loaded, a process gets at most `--budget` MB of private memory more: the limit is the
kernel's (RLIMIT_DATA), under which an allocation fails. Printed is what is resident at most, which is also below the
budget, messages in shared memory included. The checkpoint is written without the limit: all weights and moments are
brought into their original order at once, which takes more.
"""

from __future__ import annotations

import gc
import os
import resource
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import click
import joinsum
import torch
import torch.distributed as dist
from torch import Tensor, nn

PHASES = ("training", "evaluation", "checkpoint")


class Sizes(NamedTuple):
    """Of the network, and of the points that a process trains on."""

    features: int
    hidden: int
    labels: int
    points: int

    @property
    def parameters(self) -> int:
        return self.hidden * (self.features + 3 + self.labels)

    def network(self) -> nn.Sequential:
        return nn.Sequential(
            nn.Linear(self.features, self.hidden),
            nn.BatchNorm1d(self.hidden),
            nn.ReLU(),
            nn.Linear(self.hidden, self.labels, bias=False),
        )

    def batch(self, site: int) -> tuple[Tensor, Tensor]:
        """Random points, and the label of each."""
        generator = torch.Generator().manual_seed(site)
        inputs = torch.randn(self.points, self.features, generator=generator)
        return inputs, torch.randint(0, self.labels, (self.points,), generator=generator)


class Budget:
    """Limits this process to so many bytes of private memory beyond what it has; notes what is resident at most in each
    phase beyond what was at the beginning."""

    def __init__(self, size: int) -> None:
        gc.collect()
        self.size = size
        self.peaks: dict[str, int] = {}
        self._before = _status("VmRSS")
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (_status("VmData") + size, hard))

    def lift(self) -> None:
        """Takes the limit away."""
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        try:
            yield
        finally:
            self.peaks[name] = _status("VmHWM") - self._before


def _status(field: str) -> int:
    """Bytes of a line of /proc/self/status."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(lines[field].split()[0])


def train(model: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple[Tensor, Tensor], steps: int) -> list[float]:
    """The losses of so many steps on one batch."""
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train_whole(sizes: Sizes, budget: int, steps: int) -> None:
    """Trains the whole model in this process, and prints whether it fits."""
    small = Sizes(8, 8, 8, 4).network()
    train(small, torch.optim.Adam(small.parameters()), Sizes(8, 8, 8, 4).batch(0), 1)
    memory = Budget(budget)
    failure = None
    try:
        with memory.phase("training"):
            model = sizes.network()
            losses = train(model, torch.optim.Adam(model.parameters(), fused=True), sizes.batch(0), steps)
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "memory" not in str(error):
            raise
        failure = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    click.echo(f"resident at most: {_mb(memory.peaks['training'])}")
    if failure is None:
        click.echo(f"the whole model trains: its loss falls from {losses[0]:.2f} to {losses[-1]:.2f}")
    else:
        click.echo(f"the whole model does not train: {failure}")


def train_subnets(sizes: Sizes, budget: int, rounds: int, every: int) -> None:
    """Trains a subnet on each rank, evaluates and saves the full model, and prints the peaks of all ranks."""
    torch.manual_seed(0)
    context = joinsum.init(cluster=joinsum.Cluster(memory_bytes=budget))
    site, sites = context.local_sites[0], context.sites
    folder = _shared_folder()
    warm_up(sites, folder)
    torch.manual_seed(0)
    memory = Budget(budget)
    batch = sizes.batch(site)
    with memory.phase("training"):
        with joinsum.init_empty():
            model = sizes.network()
        optimizer = torch.optim.Adam(model.parameters(), fused=True)
        ist = joinsum.IST(model, optimizer, every=every)
        losses = train(model, optimizer, batch, rounds * every)
    with memory.phase("evaluation"), ist.full(calibrate=[batch]) as full, torch.no_grad():
        right = (full(batch[0]).argmax(1) == batch[1]).float().mean()
    memory.lift()
    with memory.phase("checkpoint"):
        ist.save_checkpoint(folder)
    stored = 16 * sum(parameter.numel() for parameter in model.parameters())
    own = torch.tensor([losses[0], losses[-1], right, stored, *(memory.peaks[phase] for phase in PHASES)])
    found = torch.stack(context.all_gather("memory", own.double()))
    if site == 0:
        written = sum(path.stat().st_size for path in folder.rglob("*.distcp"))
        shutil.rmtree(folder)
        click.echo(f"loss: {found[:, 0].mean():.2f} in the first step, {found[:, 1].mean():.2f} in the last")
        click.echo(f"full model: {found[:, 2].mean():.2f} of the points that it was trained on are right")
        click.echo(f"checkpoint, written without the limit: {_mb(written)}")
        print_peaks(found[:, 3:].long().tolist(), 16 * sizes.parameters)
    if max(memory.peaks[phase] for phase in PHASES[:2]) > budget:
        raise click.ClickException(f"site {site} had more than its budget: {memory.peaks}")


def print_peaks(rows: list[list[int]], whole: int) -> None:
    """A line for each site: what its subnet takes, and what is resident at most in each phase."""
    click.echo(f"{'site':>8} {'subnet':>12}" + "".join(f"{phase:>14}" for phase in PHASES))
    for site, row in enumerate(rows):
        click.echo(f"{site:>8} {_mb(row[0]):>12}" + "".join(f"{_mb(each):>14}" for each in row[1:]))
    most = [max(column) / whole for column in zip(*rows, strict=True)]
    click.echo(f"{'of whole':>8} {most[0]:>12.2f}" + "".join(f"{each:>14.2f}" for each in most[1:]))


def _mb(size: float) -> str:
    return f"{size / 1e6:,.0f} MB"


def _shared_folder() -> Path:
    """A new folder that all ranks know."""
    name = [tempfile.mkdtemp() if dist.get_rank() == 0 else ""]
    dist.broadcast_object_list(name)
    return Path(name[0])


def warm_up(sites: int, folder: Path) -> None:
    """Does all that is measured with a small model, after which libraries, with what they keep for products as large as
    these, and caches are in memory."""
    sizes = Sizes(4_096, 64 * sites, 8, 32)
    model, batch = sizes.network(), sizes.batch(0)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    with joinsum.IST(model, optimizer, every=1) as ist:
        train(model, optimizer, batch, 2)
        with ist.full(calibrate=[batch]) as full, torch.no_grad():
            full(batch[0])
        ist.save_checkpoint(folder)


@click.command(help=__doc__)
@click.option("--features", default=13_591, show_default=True)
@click.option("--hidden", default=2_560, show_default=True)
@click.option("--labels", default=67_009, show_default=True)
@click.option("--points", default=16, show_default=True, help="That a site trains on.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--every", default=3, show_default=True, help="Steps of a round.")
@click.option("--budget", type=int, help="MB of a process; by default five sixths of weights and moments.")
def main(features: int, hidden: int, labels: int, points: int, rounds: int, every: int, budget: int | None) -> None:
    torch.set_num_threads(1)
    sizes = Sizes(features, hidden, labels, points)
    whole, moments = 16 * sizes.parameters, 12 * sizes.parameters
    size = 5 * moments // 6 if budget is None else budget * 1_000_000
    if int(os.environ.get("RANK", "0")) == 0:
        click.echo(
            f"{sizes.parameters:,} parameters: {_mb(moments)} of weights and moments, {_mb(whole)} with gradients; "
            f"budget of a process: {_mb(size)}"
        )
    if "RANK" in os.environ:
        train_subnets(sizes, size, rounds, every)
    else:
        train_whole(sizes, size, rounds * every)


if __name__ == "__main__":
    main()
