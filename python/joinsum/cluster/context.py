"""The sites that joinsum runs on: `init`, and what it set up."""

from __future__ import annotations

import atexit
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cached_property
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore  # type: ignore[attr-defined]
from torch.distributed.distributed_c10d import _world
from torch.distributed.rendezvous import rendezvous

from joinsum import _C
from joinsum.base.arguments import integer, is_number, show
from joinsum.base.errors import PlanError
from joinsum.cluster.cached_rates import with_cached_rates
from joinsum.cluster.calibration import RejectedCalibration, load
from joinsum.cluster.cluster import Cluster, measure
from joinsum.cluster.machine import Machine, machine_of
from joinsum.cluster.measurement import QUICK, Measurement
from joinsum.cluster.trace import Trace

__all__ = ["Context", "cluster_or_current", "companion", "context", "context_of", "grid", "init", "sites"]

Value = TypeVar("Value")

_PLANS_CACHED = 512
_QUICK_SECONDS = 0.8


class Context:
    """Sites, the transport between them, and the store of their arrays. `joinsum.init` creates one.

    sites         number of sites
    grid          the same as a grid of prime factors; `str(grid)` is `2x2x2`
    local_sites   sites of this process: all of them on loopback, one on a process group
    cluster       the machine that costs are priced for
    group         the process group, or None on loopback
    timeout       seconds that another site may stay silent
    caches_plans   whether plans of einsums are cached in the user's folder
    idle_companions   contexts of the same sites that `companion` has made and nothing uses
    """

    def __init__(
        self,
        transport: _C.Transport,
        cluster: Cluster,
        group: dist.ProcessGroup | None,
        timeout: float,
        store: _C.BlockStore,
    ) -> None:
        self.group = group
        self.timeout = timeout
        self.caches_plans = True
        self.store = store
        self.sites = transport.sites
        self.local_sites = list(transport.local_sites)
        self.grid = _C.Grid.of_sites(self.sites)
        self._last_run: _C.RunTrace | None = None
        self._last_trace = Trace()
        self._last_plan: _C.IaPlan | None = None
        self._transport = transport
        self._executor = _C.Executor(transport, self.store)
        self.cluster = cluster
        self._one_run = threading.Lock()
        self._plans: dict[Hashable, Any] = {}
        self._plans_lock = threading.Lock()
        # Of sparse einsums: what computes a call that was made before.
        self.calls: dict[Hashable, Callable[[Any], Any]] = {}
        # Blocks of sparse operands on these sites, by the operand's cache, then by their type.
        self.sparse_blocks: weakref.WeakKeyDictionary[object, dict[str, _C.StoredRelation]] = (
            weakref.WeakKeyDictionary()
        )
        self._seeds_differ = False  # between ranks, at any time
        self.idle_companions: list[Context] = []

    def __repr__(self) -> str:
        where = f"{self.sites} site{'s' if self.sites > 1 else ''}"
        grid = f" ({self.grid})" if len(self.grid.axes) > 1 else ""
        return f"<joinsum on {where}{grid}, {self._transport.name}, costs for {self.cluster.name}>"

    @property
    def cluster(self) -> Cluster:
        """The machine that costs are priced for. All ranks of a process group set the same one: plans that run for the
        first time are scheduled by its rates."""
        return self._cluster

    @cluster.setter
    def cluster(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._executor.schedule_for(cluster.core())

    @property
    def transport(self) -> _C.Transport:
        """What moves arrays between the sites."""
        return self._transport

    @property
    def device(self) -> torch.device:
        """The default device of this process's arrays: its GPU on a group with NCCL."""
        return _device_of(self.group)

    @cached_property
    def machine(self) -> Machine:
        """Hosts, grid, transport and versions. Collective at its first use: every rank of a process group must call."""
        return machine_of(self)

    @property
    def loopback(self) -> bool:
        """Whether all sites are in this process."""
        return self.group is None

    @property
    def single_process(self) -> bool:
        """Whether this process has all sites."""
        return len(self.local_sites) == self.sites

    @property
    def bytes(self) -> int:
        """Bytes of the blocks that the sites of this process hold now."""
        return self.store.bytes

    @property
    def resident_bytes(self) -> int:
        """`bytes`, and those of freed blocks that the store has not returned to the system."""
        return self.store.bytes + self.store.pooled_bytes

    @contextmanager
    def preparing(self, what: str) -> Iterator[None]:
        """For checks of arguments before the agreement that opens the call `what` (`run`, `optimize`): an error of one
        site is also raised on the others, at that agreement, so that they do not wait."""
        try:
            yield
        except _C.TransportError:
            raise  # every site raises one
        except Exception as error:
            if not self.single_process and not getattr(error, "reported_to_other_sites", False):
                error.reported_to_other_sites = True  # type: ignore[attr-defined]
                # This site raises its own error, which says more.
                with suppress(_C.TransportError), torch._C._DisableFuncTorch():
                    self._transport.agree(what, f"(no plan) {type(error).__name__}: {error}")
            raise

    def cached(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The result of `make` for `key`, cached; the least recently used ones are dropped. Threads that need one key
        at the same time may each call `make`."""
        with self._plans_lock:
            known: Value | None = self._plans.pop(key, None)
            if known is not None:
                self._plans[key] = known
                return known
        result = make()
        with self._plans_lock:
            while len(self._plans) >= _PLANS_CACHED:
                del self._plans[next(iter(self._plans))]
            self._plans[key] = result
        return result

    def from_first_site(self, what: str, text: str) -> str:
        """Site 0's text, on every site; collective."""
        return self._transport.gather_texts(what, text if 0 in self.local_sites else "")[0]

    def common_seed(self, own: int) -> int:
        """The seed of a run's random numbers: the first rank's of those that ranks draw from torch's generators. That
        rank warns where they differ for the first time. Collective."""
        if self.single_process:
            return own
        seeds = self._transport.gather_texts("random numbers", str(own))
        if len({*seeds}) > 1 and not self._seeds_differ:
            self._seeds_differ = True
            if 0 in self.local_sites:
                warnings.warn(
                    "random numbers: the ranks' generators differ, and plans take those of rank 0; give all ranks one "
                    "number with torch.manual_seed, and draw alike",
                    stacklevel=2,
                )
        return int(seeds[0])

    def all_gather(self, operation: str, array: torch.Tensor, of: str | None = None) -> list[torch.Tensor]:
        """The arrays of all processes, in the order of the ranks; collective. They have one shape and dtype.

        operation   opens the message of the TransportError that is raised where another process is lost
        of          what the arrays are of, the same on all ranks: where it differs, or ranks call something else, all
                    raise TransportError. None where the ranks have agreed before
        """
        if self.single_process:
            return [array]
        if of is not None:
            self._transport.agree(operation, of)
        (gathered,) = self._transport.all_gather(operation, _C.SubGrids.all(self.sites), [array])
        return list(gathered)

    def execute(
        self,
        plan: _C.IaPlan,
        inputs: Mapping[str, _C.StoredRelation],
        scalars: Mapping[str, float],
        *,
        traced: bool = True,
        update: bool = False,
        overwritten: set[str] | None = None,
    ) -> dict[str, _C.StoredRelation]:
        """Runs `plan`; one run at a time. A traced run is what `joinsum.trace()` shows. With `update`, an output that
        is tied to an input of its type becomes the value of that input's relation, and is not returned. `overwritten`
        receives the names of the tied inputs that a failed run has overwritten."""
        with self._one_run:
            try:
                outputs, trace = self._executor.run(plan, dict(inputs), dict(scalars), update)
            except BaseException:
                if overwritten is not None:
                    overwritten |= self._executor.overwritten()
                raise
            if traced:
                self._last_run, self._last_plan = trace, plan
        return outputs

    def executable_text(self, plan: _C.IaPlan) -> str:
        """The steps that a run of `plan` walks in this process."""
        with self._one_run:
            return self._executor.executable_text(plan)

    def share(self, blocks: Sequence[torch.Tensor], type_: _C.PhysicalType) -> _C.StoredRelation:
        """The relation whose blocks on the sites of this process are these, not copied."""
        return _C.place_blocks(list(blocks), type_, self.local_sites, self.store)

    @property
    def last_plan(self) -> _C.IaPlan | None:
        """The plan of the last traced run."""
        return self._last_plan

    @property
    def last_trace(self) -> Trace:
        """What the nodes of the last traced run did."""
        if self._last_run is not None:
            self._last_trace, self._last_run = Trace(self._last_run.entries()), None
        return self._last_trace

    @last_trace.setter
    def last_trace(self, trace: Trace) -> None:
        """Makes runs that belong together one trace."""
        self._last_trace, self._last_run = trace, None


_current: Context | None = None
_measured: weakref.WeakKeyDictionary[Any, Cluster] = weakref.WeakKeyDictionary()


def init(
    sites: int | None = None,
    *,
    group: object | None = None,
    cluster: Cluster | None = None,
    timeout: float = 300.0,
    plan_cache: bool = True,
    store: str | None = None,
) -> Context:
    """Sets up the sites; calling it again replaces them. Every other function calls `init()` if the program has not.

    Without a process group, `sites` sites run in this process one after another (loopback, 1 by default): the same
    plans, the same bytes counted. Where torch.distributed is initialised, or under `torchrun` (RANK and WORLD_SIZE are
    set: then `init` creates the default process group, of gloo and, with CUDA, nccl), there is one site per rank.

    sites     number of sites on loopback; on a process group it must be the group's size, if given
    group     a ProcessGroup that this process is in, or a DeviceMesh of one dimension (`mesh["dp"]`); collective
    cluster   the machine that costs are priced for; its `memory_bytes` also limits what freed blocks take beside the
              sites' blocks. On loopback, by default a described one (10 Gbit). On a process group, by default
              what `joinsum.calibrate` has measured on these sites, if there is a valid file; else a short measurement
              (once for each group, in about a second; the slowest site's rates). Where plans are cached, the rates of
              an earlier start are used if a shorter measurement is close to them, so that cached plans stay valid
    timeout   seconds that another site may stay silent before a run raises TransportError, > 0
    plan_cache  whether plans of einsums are cached in the user's folder for the next process (`docs/einsum.md`);
              JOINSUM_PLAN_CACHE=0 in the environment also turns that off
    store     what holds the sites' blocks: "memory", or "relocating", which tests use: it moves every block that no
              operation uses and poisons the memory that the block leaves. By default what JOINSUM_STORE in the
              environment names, else "memory"

    Ranks of one host exchange arrays of the CPU through shared memory where the system permits it, others through
    sockets of their own (`docs/architecture.md`); JOINSUM_SHARED_MEMORY=0 and JOINSUM_SOCKETS=0 in the environment of
    a rank turn these off for it.

    A calibration file of other sites, versions or layout is not used; a warning says what differs. Raises
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
    _check_cluster("init", cluster)
    blocks = _C.make_store(_store_name(store))
    process_group = _process_group(group, timeout)
    transport = _transport(process_group, sites, timeout)
    new = Context(transport, Cluster() if cluster is None else cluster, process_group, timeout, blocks)
    new.caches_plans = bool(plan_cache)
    if process_group is not None and cluster is None:
        new.cluster = _calibrated(new) or _measured_quickly(new, process_group)
    if new.cluster.memory_bytes is not None:
        blocks.set_budget(new.cluster.memory_bytes * len(new.local_sites))
    if _current is not None:
        _current.sparse_blocks.clear()
    _current = new
    return new


def companion(current: Context) -> Context:
    """Another context of the sites of `current`, on a process group of CPUs and with a store of its own: its runs may
    go on in a thread beside those of `current`. Collective. Takes an idle one, if there is any: none is destroyed, as
    torch would give the next group of these ranks the same name, and with it the old addresses."""
    if current.idle_companions:
        return current.idle_companions.pop()
    assert current.group is not None
    ranks = dist.get_process_group_ranks(current.group)
    with _as_many_groups(current):
        group = _new_group(ranks, current.timeout)
    store = _C.make_store(current.store.name)
    return Context(_transport(group, None, current.timeout), current.cluster, group, current.timeout, store)


@contextmanager
def _as_many_groups(current: Context) -> Iterator[None]:
    """Has all ranks know equally many process groups, by groups of one rank. Torch names a group that only its ranks
    make by that number, and ranks with other names would wait for each other. Collective."""
    own = len(_world.pg_names)
    most = max(map(int, current.transport.gather_texts("init", str(own))))
    fillers = [_new_group([dist.get_rank()], current.timeout) for _ in range(most - own)]
    try:
        yield
    finally:
        for each in fillers:
            dist.destroy_process_group(each)


def _new_group(ranks: Sequence[int], timeout: float) -> dist.ProcessGroup:
    """A process group on CPUs that only its ranks make."""
    patience = timedelta(seconds=timeout)
    group = dist.new_group(list(ranks), timeout=patience, backend="gloo", use_local_synchronization=True)
    assert isinstance(group, dist.ProcessGroup)
    return group


def context() -> Context:
    """The current context; calls `init()` if there is none.

    >>> import joinsum
    >>> joinsum.init(sites=2).loopback
    True
    >>> joinsum.context().local_sites
    [0, 1]
    """
    return _current if _current is not None else init()


def context_of(group: object | None) -> Context:
    """The current context, if it is of this process group or mesh dimension; else `init(group=group)`. Without a group
    `context()`. All ranks of the group call, and no others."""
    if group is None or (_current is not None and _current.group is _process_group(group, _current.timeout)):
        return context()
    return init(group=group)


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


def cluster_or_current(who: str, cluster: object) -> Cluster:
    """`cluster`, or the context's for None. Raises PlanError for what is no cluster; `who` opens the message."""
    return _check_cluster(who, cluster) or context().cluster


def _check_cluster(who: str, cluster: object) -> Cluster | None:
    if cluster is not None and not isinstance(cluster, Cluster):
        raise PlanError(f"{who}: a cluster is a joinsum.Cluster: cluster={show(cluster)}")
    return cluster


def _seconds(timeout: object) -> float:
    if not is_number(timeout) or not timeout > 0:
        raise PlanError(f"init: a timeout is a positive number of seconds: timeout={show(timeout)}")
    return float(timeout)


def _store_name(store: object) -> str:
    if store is None:
        return os.environ.get("JOINSUM_STORE") or "memory"
    if not isinstance(store, str):
        raise PlanError(f"init: a store is a name: store={show(store)}, choices={', '.join(_C.store_names())}")
    return store


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
        dist.init_process_group(backend, timeout=timedelta(seconds=timeout), **_attempt())
        atexit.register(_destroy_default_group)
    return dist.group.WORLD


def _attempt() -> dict[str, Any]:
    """Where torchrun has restarted the ranks of one host: a store without the addresses that earlier ones left in it,
    which Gloo would connect to (torchrun makes a new one only with `--standalone` or another rendezvous)."""
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if attempt == "0" or os.environ.get("LOCAL_WORLD_SIZE") != os.environ["WORLD_SIZE"]:
        return {}
    store, rank, ranks = next(rendezvous("env://"))
    return {"store": PrefixStore(f"attempt_{attempt}", store), "rank": rank, "world_size": ranks}


def _destroy_default_group() -> None:
    """Destroys the group that `init` created, unless the user has."""
    _C.close_process_groups()
    if dist.is_initialized():
        dist.destroy_process_group()


def _transport(group: dist.ProcessGroup | None, sites: int | None, timeout: float) -> _C.Transport:
    if group is None:
        return _C.make_loopback(1 if sites is None else sites)
    if sites is not None and sites != group.size():
        raise PlanError(f"init: a process group has one site per rank: sites={sites}, ranks={group.size()}")
    share_memory, sockets = (os.environ.get(f"JOINSUM_{way}") != "0" for way in ("SHARED_MEMORY", "SOCKETS"))
    return _C.make_process_group(group.group_name, timeout, _C.Collectives.table, share_memory, sockets)


def _calibrated(current: Context) -> Cluster | None:
    """The cluster of the calibration file of these sites, if there is a valid one."""
    try:
        return load(current)
    except RejectedCalibration as rejected:
        if 0 in current.local_sites:
            warnings.warn(f"init: {rejected}", stacklevel=3)
        return None


def _measured_quickly(current: Context, group: dist.ProcessGroup) -> Cluster:
    """Rates of a short measurement; where plans are cached, those of earlier ones if they are close."""
    cluster = _measured.get(group)
    if cluster is None:
        machine = current.machine
        look = measure(current.transport, current.device, f"measured quickly on {current.sites} ranks, not calibrated")
        quick = Measurement(current, machine, _QUICK_SECONDS, QUICK, lambda _: None)
        cluster = with_cached_rates(current, machine, look, current.caches_plans, quick.profile)
        _measured[group] = cluster
    return cluster


def _device_of(group: dist.ProcessGroup | None) -> torch.device:
    cuda = group is not None and "nccl" in dist.get_backend_config(group)
    return torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")
