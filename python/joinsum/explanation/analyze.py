"""Running a plan to measure it."""

from __future__ import annotations

from joinsum.context import Context, context
from joinsum.explanation.measured import Figures, Measured, MeasuredNode
from joinsum.expression import NamedSources
from joinsum.plan import IaPlan
from joinsum.run import Scalars, rehearse
from joinsum.trace import Trace

__all__ = ["measured_run"]


def measured_run(plan: IaPlan, sources: NamedSources, scalars: Scalars | None) -> Measured:
    """Runs the plan once and drops its results. Every rank of a process group calls, and gets the same figures."""
    trace, seconds = rehearse(plan, sources, scalars)
    here = context()
    figures, slowest = _of_all_sites(here, trace, seconds)
    nodes = tuple(MeasuredNode(entry.node, each) for entry, each in zip(trace, figures, strict=True))
    return Measured(nodes, slowest, _where(here), here.loopback)


def _of_all_sites(here: Context, trace: Trace, seconds: float) -> tuple[list[Figures], float]:
    """Figures by node: bytes summed over the processes, the most of seconds and of peaks; and the most of `seconds`.

    Sums are taken by maxima, which is what the transport offers: each process tells its bytes at places of its own.
    """
    count = len(trace)
    processes, own = (1, 0) if here.whole else (here.sites, here.local_sites[0])
    told = [seconds, *(entry.seconds for entry in trace), *(float(entry.site_bytes) for entry in trace)]
    for process in range(processes):
        told += [float(entry.bytes_sent) if process == own else 0.0 for entry in trace]
    most = here.transport.greatest(told)
    longest, peaks, sent = most[1 : count + 1], most[count + 1 : 2 * count + 1], most[2 * count + 1 :]
    sums = [sum(sent[node::count]) for node in range(count)]
    return [Figures(int(sums[i]), longest[i], int(peaks[i])) for i in range(count)], most[0]


def _where(here: Context) -> str:
    sites = f"{here.sites} site{'s' if here.sites > 1 else ''}"
    return f"{sites} of loopback, all in this process" if here.loopback else f"{sites} of {here.transport.name}"
