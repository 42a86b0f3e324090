"""`joinsum.calibrate`: measures the sites, so that `seconds` predicts what runs take on them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from joinsum.base.arguments import is_number, show
from joinsum.base.errors import PlanError
from joinsum.cluster.calibration import Calibration, cluster_of
from joinsum.cluster.cluster import Cluster
from joinsum.cluster.context import Context, context
from joinsum.cluster.machine import machine_of
from joinsum.cluster.measurement import FULL, Measurement, Tick

__all__ = ["calibrate"]


def calibrate(seconds: float = 20.0, path: str | Path | None = None, progress: bool | None = None) -> Cluster:
    """Measures the sites, writes the result to a file, and returns the cluster that it describes.

    It measures the messages of the transport, from 4 KiB to 64 MiB, over the sub-grids of every set of grid axes; and
    the kernels, by family: matrix products by shape and dtype, elementwise kernels by the facts of their rows,
    reductions, copies. All sites measure at once, since they share cores and links.

    seconds    about how long it may take, > 0; with fewer, windows are shorter and the largest sizes are extrapolated
    path       the file; by default one in the user's cache folder, by machine and layout of the sites
    progress   whether rank 0 shows a progress bar; by default on a terminal

    On a process group every rank calls. The context then prices plans for the new cluster, and later `init`s on the
    same machine and layout read the file. On loopback there are no links to measure: the cluster has the kernels of
    this process on every site, and the default links between them. It is used where you pass it to `init(cluster=...)`
    or `cost`, since the sites of loopback are described ones.

    Raises PlanError for invalid arguments. Source: docs/calibration.md.

    >>> import joinsum, tempfile
    >>> _ = joinsum.init(sites=2)
    >>> found = joinsum.calibrate(seconds=0.05, path=tempfile.mktemp(suffix=".json"))
    >>> found
    Cluster(calibrated ... on loopback, 10 Gbit between sites: ... flop/s, 1.25e+09 B/s, 50 us; profile: links of axes \
none, products f32/f64/bf16, ... elementwise)
    """
    if not is_number(seconds) or not 0 < seconds < float("inf"):
        raise PlanError(f"calibrate: seconds are a positive number: seconds={show(seconds)}")
    sites = context()
    machine = machine_of(sites)
    with _progress(sites, progress) as tick:
        profile = Measurement(sites, machine, float(seconds), FULL, tick).profile()
    calibration = Calibration.now(machine, profile)
    calibration.write(path, sites)
    cluster = cluster_of(calibration)
    if not sites.loopback:
        sites.cluster = cluster
    return cluster


@contextmanager
def _progress(sites: Context, wanted: bool | None) -> Iterator[Tick]:
    """A progress bar on standard error, which advances with every step; on rank 0 only."""
    shown = sys.stderr.isatty() if wanted is None else wanted
    if not shown or 0 not in sites.local_sites:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("calibrating"), BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=FULL.steps(sites))

        def tick(what: str) -> None:
            bar.update(task, description=what, advance=1)

        yield tick
