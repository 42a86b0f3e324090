"""`joinsum calibrate`."""

from __future__ import annotations

from pathlib import Path

import click

from joinsum.cli.options import FILE, exit_codes

__all__ = ["calibrate"]


@click.command()
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=20.0,
    show_default=True,
    help="About how long it may take.",
)
@click.option("--path", type=FILE, help="File to write.  [default: one in the user's cache folder]")
def calibrate(seconds: float, path: Path | None) -> None:
    """Measure the sites, so that predicted times and the plans chosen by them are right here.

    Run it as programs are run: under torchrun for several processes or machines (torchrun --nproc-per-node N -m
    joinsum.cli calibrate). Later runs on the same machines and layout read the file.
    """
    import joinsum
    from joinsum.cluster.cache_folder import cache_folder
    from joinsum.cluster.machine import machine_of

    with exit_codes({joinsum.PlanError: 2, joinsum.TransportError: 5}):
        # Without a cluster, `init` would read the file that is to be written.
        current = joinsum.init(cluster=joinsum.Cluster())
        target = path if path is not None else cache_folder() / machine_of(current).name
        cluster = joinsum.calibrate(seconds, path)
        if 0 in current.local_sites:
            click.echo(f"{cluster}\nwritten to {target}")
