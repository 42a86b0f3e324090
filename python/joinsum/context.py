"""The sites that joinsum runs on: `init`, and what it set up."""

from __future__ import annotations

import atexit
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cached_property
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from joinsum import _C
from joinsum.arguments import integer, show
from joinsum.calibration import Machine, RejectedCalibration, load, machine_of
from joinsum.cluster import Cluster, measure
from joinsum.errors import PlanError
from joinsum.kept_rates import settled
from joinsum.trace import Trace

__all__ = ["Context", "context", "grid", "init", "sites"]

Made = TypeVar("Made")

_PLANS_KEPT = 512


class Context:
    """Sites, the transport between them, and the arrays that they keep. `joinsum.init` makes one.

    sites         number of sites
    grid          the same as a grid of prime factors; `str(grid)` is `2x2x2`
    local_sites   sites of this process: all of them on loopback, one on a process group
    cluster       the machine that costs are priced for
    group         the process group, or None on loopback
    timeout       seconds that another site may stay silent
    keeps_plans   whether plans of einsums are kept in the user's cache folder
    """

    def __init__(
        self, transport: _C.Transport, cluster: Cluster, group: dist.ProcessGroup | None, timeout: float
    ) -> None:
        self.cluster = cluster
        self.group = group
        self.timeout = timeout
        self.keeps_plans = True
        self.store = _C.make_memory_store()
        self.sites = transport.sites
        self.local_sites = list(transport.local_sites)
        self.grid = _C.Grid.of_sites(self.sites)
        self._last_run: _C.RunTrace | None = None
        self._last_trace = Trace()
        self._transport = transport
        self._executor = _C.Executor(transport, self.store)
        self._one_run = threading.Lock()
        self._plans: dict[Hashable, Any] = {}
        self._plans_lock = threading.Lock()

    def __repr__(self) -> str:
        where = f"{self.sites} site{'s' if self.sites > 1 else ''}"
        grid = f" ({self.grid})" if len(self.grid.axes) > 1 else ""
        return f"<joinsum on {where}{grid}, {self._transport.name}, costs for {self.cluster.name}>"

    @property
    def transport(self) -> _C.Transport:
        """What moves arrays between the sites."""
        return self._transport

    @property
    def device(self) -> torch.device:
        """Where this process's arrays are, unless the user says otherwise: its GPU on a group with NCCL."""
        return _device_of(self.group)

    @cached_property
    def machine(self) -> Machine:
        """Hosts, grid, transport and versions; the first time every rank of a process group must ask."""
        return machine_of(self)

    @property
    def loopback(self) -> bool:
        """Whether all sites are in this process."""
        return self.group is None

    @property
    def whole(self) -> bool:
        """Whether this process holds all sites' arrays."""
        return len(self.local_sites) == self.sites

    @property
    def bytes(self) -> int:
        """Bytes that the sites of this process keep now."""
        return self.store.bytes

    @contextmanager
    def preparing(self, what: str) -> Iterator[None]:
        """Where an argument that is wrong on one site only is found: the other sites then raise its error too, at the
        agreement that opens `what` (`run`, `optimize`), and do not wait."""
        try:
            yield
        except _C.TransportError:
            raise  # every site has its own
        except Exception as error:
            if not self.whole and not getattr(error, "told_other_sites", False):
                error.told_other_sites = True  # type: ignore[attr-defined]
                # This site's own error says more.
                with suppress(_C.TransportError), torch._C._DisableFuncTorch():
                    self._transport.agree(what, f"(no plan) {type(error).__name__}: {error}")
            raise

    def remembered(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What was planned for `key`, of the type that `make` gives: the last ones are kept. Threads that ask for one
        key at a time may plan it each."""
        with self._plans_lock:
            known: Made | None = self._plans.pop(key, None)
            if known is not None:
                self._plans[key] = known
                return known
        made = make()
        with self._plans_lock:
            while len(self._plans) >= _PLANS_KEPT:
                del self._plans[next(iter(self._plans))]
            self._plans[key] = made
        return made

    def from_first_site(self, what: str, text: str) -> str:
        """Site 0's text, on every site; collective."""
        if self.whole:
            return text
        sent = torch.tensor(list(text.encode()), dtype=torch.uint8, device=self.device)
        length = torch.tensor([sent.numel()], dtype=torch.int64, device=self.device)
        (size,) = self._sent_by_first_site(what, length)
        return bytes(self._sent_by_first_site(what, sent, int(size)).tolist()).decode()

    def _sent_by_first_site(self, what: str, array: torch.Tensor, elements: int = 1) -> torch.Tensor:
        messages = [(0, site, elements) for site in range(1, self.sites)]
        first = 0 in self.local_sites
        payload = dict.fromkeys(range(len(messages)), array) if first else {}
        arrived = self._transport.exchange(what, messages, payload, array)
        return array if first else next(part for part in arrived if part is not None)

    def execute(
        self,
        plan: _C.IaPlan,
        inputs: Mapping[str, _C.StoredRelation],
        scalars: Mapping[str, float],
        *,
        traced: bool = True,
        overwritten: set[str] | None = None,
    ) -> dict[str, _C.StoredRelation]:
        """Runs `plan`; one run at a time. A traced run is what `joinsum.trace()` shows. `overwritten` takes the names
        of the tied inputs that a run which failed has overwritten."""
        with self._one_run:
            try:
                outputs, trace = self._executor.run(plan, dict(inputs), dict(scalars))
            except BaseException:
                if overwritten is not None:
                    overwritten |= self._executor.overwritten()
                raise
            if traced:
                self._last_run = trace
        return outputs

    @property
    def last_trace(self) -> Trace:
        """What the nodes of the last traced run did."""
        if self._last_run is not None:
            self._last_trace, self._last_run = Trace(self._last_run.entries()), None
        return self._last_trace


_current: Context | None = None
_measured: weakref.WeakKeyDictionary[Any, Cluster] = weakref.WeakKeyDictionary()


def init(
    sites: int | None = None,
    group: object | None = None,
    cluster: Cluster | None = None,
    timeout: float = 300.0,
    plan_cache: bool = True,
) -> Context:
    """Sets up the sites; calling it again replaces them. Every other call does `init()` if nobody has.

    Without a process group, `sites` sites run in this process one after another (loopback, 1 by default): the same
    plans, the same bytes counted. Where torch.distributed is initialised, or under `torchrun` (RANK and WORLD_SIZE are
    set: then the default process group is made, of gloo and, with CUDA, nccl), there is one site per rank.

    sites     number of sites on loopback; on a process group it must be the group's size, if given
    group     a ProcessGroup that this process is in, or a DeviceMesh of one dimension (`mesh["dp"]`); collective
    cluster   the machine that costs are priced for. By default a described one on loopback (10 Gbit), on a process
              group what `joinsum.calibrate` has found on these sites, if there is a valid file; else what a quick look
              finds (once for each group, in less than 0.3 s; the slowest site's rates), and where plans are kept what
              earlier looks found, if that is near: then plans that are kept fit
    timeout   seconds that another site may stay silent before a run raises TransportError, > 0
    plan_cache  whether plans of einsums are kept in the user's cache folder for the next process (`docs/einsum.md`);
              JOINSUM_PLAN_CACHE=0 in the environment turns that off, too

    A calibration file of other sites, versions or layout is passed over with a warning that says what differs. Raises
    PlanError for arguments that contradict each other, and for a damaged calibration file.
    Source: the sites are those of the TRA paper, section 4; the grid is `docs/algebra.md`'s.

    >>> import joinsum
    >>> joinsum.init(sites=12)
    <joinsum on 12 sites (2x2x3), loopback, costs for 10 Gbit between sites, one device each>
    >>> joinsum.sites(), str(joinsum.grid())
    (12, '2x2x3')
    >>> _ = joinsum.init()
    """
    global _current
    timeout = _seconds(timeout)
    if sites is not None:
        sites = integer("init", "sites", sites)
        if sites < 1:
            raise PlanError(f"init: at least one site: sites={sites}")
    if cluster is not None and not isinstance(cluster, Cluster):
        raise PlanError(f"init: a cluster is a joinsum.Cluster: cluster={show(cluster)}")
    process_group = _process_group(group, timeout)
    if process_group is None:
        described = cluster if cluster is not None else Cluster()
        _current = Context(_C.make_loopback(1 if sites is None else sites), described, None, timeout)
    else:
        _current = _on_group(process_group, sites, cluster, timeout, bool(plan_cache))
    _current.keeps_plans = bool(plan_cache)
    return _current


def context() -> Context:
    """What `init` set up; calls `init()` if nobody has.

    >>> import joinsum
    >>> joinsum.init(sites=2).loopback
    True
    >>> joinsum.context().local_sites
    [0, 1]
    """
    return _current if _current is not None else init()


def sites() -> int:
    """Number of sites.

    >>> import joinsum
    >>> _ = joinsum.init(sites=3)
    >>> joinsum.sites()
    3
    """
    return context().sites


def grid() -> _C.Grid:
    """The sites as a grid of prime factors, the slowest link's axis first; a placement gives each axis a state.

    >>> import joinsum
    >>> _ = joinsum.init(sites=8)
    >>> joinsum.grid().axes
    [2, 2, 2]
    """
    return context().grid


def _seconds(timeout: object) -> float:
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0:
        raise PlanError(f"init: a timeout is a positive number of seconds: timeout={show(timeout)}")
    return float(timeout)


def _process_group(group: object | None, timeout: float) -> dist.ProcessGroup | None:
    """The process group to run on; None for loopback."""
    if group is None:
        return _default_group(timeout)
    if hasattr(group, "get_group") and hasattr(group, "mesh_dim_names"):
        if group.ndim != 1:  # type: ignore[attr-defined]
            raise PlanError(f"init: a mesh of one dimension; pick one, as in mesh['dp']: mesh={show(group)}")
        group = group.get_group()
    if group == dist.GroupMember.NON_GROUP_MEMBER:
        raise PlanError("init: this process is not in the group: rank=" + str(dist.get_rank()))
    if not isinstance(group, dist.ProcessGroup):
        raise PlanError(f"init: a group is a ProcessGroup or a DeviceMesh: group={show(group)}")
    return group


def _default_group(timeout: float) -> dist.ProcessGroup | None:
    if not dist.is_available():
        return None
    if not dist.is_initialized():
        if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
            return None
        with_cuda = torch.cuda.is_available() and dist.is_nccl_available()
        if with_cuda:
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        backend = "cpu:gloo,cuda:nccl" if with_cuda else "gloo"
        dist.init_process_group(backend, timeout=timedelta(seconds=timeout))
        atexit.register(_destroy_default_group)
    return dist.group.WORLD


def _destroy_default_group() -> None:
    """Ends the group that `init` made, unless its user has."""
    _C.close_process_groups()
    if dist.is_initialized():
        dist.destroy_process_group()


def _on_group(
    group: dist.ProcessGroup, sites: int | None, cluster: Cluster | None, timeout: float, keeps_plans: bool
) -> Context:
    if sites is not None and sites != group.size():
        raise PlanError(f"init: a process group has one site per rank: sites={sites}, ranks={group.size()}")
    transport = _C.make_process_group(group.group_name, timeout, _C.Collectives.table)
    here = Context(transport, cluster if cluster is not None else Cluster(), group, timeout)
    if cluster is None:
        here.cluster = _calibrated(here) or _measured_quickly(here, group, keeps_plans)
    return here


def _calibrated(here: Context) -> Cluster | None:
    """What the calibration file of these sites says, if there is a valid one."""
    try:
        return load(here)
    except RejectedCalibration as rejected:
        if 0 in here.local_sites:
            warnings.warn(f"init: {rejected}", stacklevel=4)
        return None


def _measured_quickly(here: Context, group: dist.ProcessGroup, keeps_plans: bool) -> Cluster:
    """Rates as a quick look finds them; where plans are kept, those of earlier looks if these are near."""
    cluster = _measured.get(group)
    if cluster is None:
        cluster = measure(here.transport, here.device, f"measured quickly on {here.sites} ranks, not calibrated")
        _measured[group] = cluster
    return settled(here, cluster, keeps_plans)


def _device_of(group: dist.ProcessGroup | None) -> torch.device:
    cuda = group is not None and "nccl" in dist.get_backend_config(group)
    return torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")
