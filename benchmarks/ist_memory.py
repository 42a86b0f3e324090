"""A model larger than a site's memory: what a rank holds at most while it trains a subnet of it.

    torchrun --nproc-per-node 4 benchmarks/ist_memory.py

A classifier of one wide hidden layer is built in `joinsum.init_empty` and trained by `joinsum.IST` with Adam. Printed
are the bytes that the whole model needs with its gradients and moments, and by how much a rank's resident memory has
grown at most, from before the model was built to the end of the last round.
"""

from __future__ import annotations

import gc
import resource

import click
import joinsum
import torch
from torch import nn


def resident_bytes() -> int:
    """The most that this process has had in memory so far."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@click.command(help=__doc__)
@click.option("--features", default=20_000, show_default=True)
@click.option("--hidden", default=4_096, show_default=True)
@click.option("--classes", default=4_000, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--every", default=3, show_default=True, help="Steps of a round.")
def main(features: int, hidden: int, classes: int, rounds: int, every: int) -> None:
    torch.set_num_threads(1)
    context = joinsum.init(cluster=joinsum.Cluster())
    warm_up(context.sites)
    before = resident_bytes()
    torch.manual_seed(0)
    with joinsum.init_empty():
        model = network(features, hidden, classes)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    ist = joinsum.IST(model, optimizer, every=every)
    for _ in range(rounds * every):
        optimizer.zero_grad()
        inputs, target = torch.randn(16, features), torch.randint(0, classes, (16,))
        nn.functional.cross_entropy(model(inputs), target).backward()
        optimizer.step()
    grown = [resident_bytes() - before]
    peaks = context.all_gather("memory", torch.tensor(grown))
    if 0 in context.local_sites:
        whole, most = 16 * parameters, max(int(peak) for peak in peaks)
        click.echo(f"{context.sites} ranks, {parameters:,} parameters, {ist.rounds} rounds")
        click.echo(f"whole model with gradients and moments: {whole / 1e6:,.0f} MB")
        click.echo(f"a rank's memory grew at most by: {most / 1e6:,.0f} MB ({most / whole:.2f} of it)")


def network(features: int, hidden: int, classes: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(features, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, classes, bias=False)
    )


def warm_up(sites: int) -> None:
    """A round of a small model, after which libraries and caches are in memory."""
    model = network(8, 8 * sites, 8)
    optimizer = torch.optim.Adam(model.parameters())
    joinsum.IST(model, optimizer, every=1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
    gc.collect()


if __name__ == "__main__":
    main()
