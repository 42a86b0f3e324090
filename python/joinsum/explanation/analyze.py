"""Running a plan to measure it."""

from __future__ import annotations

from joinsum.algebra.expression import NamedSources
from joinsum.algebra.plan import IaPlan
from joinsum.base.errors import PlanError
from joinsum.cluster.context import Context, context
from joinsum.cluster.trace import Trace
from joinsum.execution.run import Scalars, rehearse
from joinsum.explanation.measured import Figures, Measured

__all__ = ["measured_run", "measured_step"]


def measured_run(plan: IaPlan, sources: NamedSources, scalars: Scalars | None) -> Measured:
    """Runs the plan once and drops its results. Every rank of a process group calls, and gets the same figures."""
    return _measured(*rehearse(plan, sources, scalars))


def measured_step(plan: IaPlan) -> Measured:
    """What the last run did, which was one of this plan; its seconds are the sum of its nodes'. Every rank of a process
    group calls, and gets the same figures. Raises PlanError where another plan ran, or none."""
    if context().last_plan is not plan.core:
        raise PlanError(
            "explain: analyze=True shows what the step did that ran last, and nothing else may run before it is shown; "
            "on one site torch runs the step: use torch.profiler"
        )
    trace = context().last_trace
    return _measured(trace, trace.seconds)


def _measured(trace: Trace, seconds: float) -> Measured:
    sites = context()
    figures, slowest = _of_all_sites(sites, trace, seconds)
    pooled = int(sites.transport.all_reduce_max([float(trace.pooled_bytes)])[0])
    nodes = {entry.node: each for entry, each in zip(trace, figures, strict=True)}
    return Measured(nodes, slowest, _text(sites), sites.loopback, pooled)


def _of_all_sites(sites: Context, trace: Trace, seconds: float) -> tuple[list[Figures], float]:
    """Figures by node: bytes summed over the processes, the maximum of seconds and of peaks; and that of `seconds`.

    The transport reduces by maximum only, so each process writes its bytes at positions of its own for the sums.
    """
    count = len(trace)
    processes, own = (1, 0) if sites.single_process else (sites.sites, sites.local_sites[0])
    values = [seconds, *(entry.seconds for entry in trace), *(float(entry.site_bytes) for entry in trace)]
    for process in range(processes):
        values += [float(entry.bytes_sent) if process == own else 0.0 for entry in trace]
    most = sites.transport.all_reduce_max(values)
    longest, peaks, sent = most[1 : count + 1], most[count + 1 : 2 * count + 1], most[2 * count + 1 :]
    sums = [sum(sent[node::count]) for node in range(count)]
    return [Figures(int(sums[i]), longest[i], int(peaks[i])) for i in range(count)], most[0]


def _text(sites: Context) -> str:
    text = f"{sites.sites} site{'s' if sites.sites > 1 else ''}"
    return f"{text} of loopback, all in this process" if sites.loopback else f"{text} of {sites.transport.name}"
