"""Measurements of the sites: the profile of `joinsum.calibrate`, and a quick one for sites without a calibration."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean, median
from typing import NamedTuple

import torch

from joinsum import _C
from joinsum.cluster.machine import Machine, Sites
from joinsum.cluster.profile import Curve, Elementwise, Links, Products, Profile, Reductions, monotone
from joinsum.cluster.timing import Bench, Stopwatch, lower_quartile, synchronize, timed

__all__ = ["FULL", "QUICK", "Coverage", "Measurement", "Tick", "axis_sets", "elementwise_families"]

Tick = Callable[[str], None]

_ROUNDS = 5
_ROUNDS_OF_OVERLAP = 4
_PARTS_OF_OVERLAP = 3
_WORK_SECONDS = 2e-3
_LEAST_SIDE = 128  # of square products that take longer than a call
_SHARES_OF_PRODUCTS = 4.0
_DTYPES = {4: "f32", 8: "f64"}
_RATE_SHOWS = 8.0  # times the seconds of the smallest message
_SMALL_BYTES = 1 << 16  # of messages that take a latency, whatever their size
_TURNS_SECONDS = 1.5e-2  # in which each process that shares a core has several turns
_OVERLAP_BYTES = 1 << 20  # that each site sends
# The fraction of the time for each family; the rest is for start-up and agreements.
_SHARES = {
    "links": 0.2,
    "after work": 0.2,
    "overlap": 0.05,
    "products": 0.2,
    "elementwise": 0.06,
    "reductions": 0.02,
    "copies": 0.02,
}


@dataclass(frozen=True)
class Coverage:
    """What is measured; between these sizes curves are linear.

    link_bytes          of messages
    elements            of the results of elementwise kernels and reductions
    copy_bytes          of copies
    extents             of matrix products, by dtype
    kernels_per_family  of elementwise kernels with equal facts
    """

    link_bytes: tuple[int, ...]
    elements: tuple[int, ...]
    copy_bytes: tuple[int, ...]
    extents: dict[str, tuple[int, ...]]
    kernels_per_family: int

    def steps(self, sites: Sites) -> int:
        """How often a measurement calls its `tick`."""
        links = 0 if sites.single_process else _ROUNDS * len(axis_sets(len(sites.grid.axes))) + 1
        links += not sites.single_process and sites.transport.shared_memory != _C.SharedMemory.all
        return links + len(self.extents) + len(elementwise_families()) + len(_DTYPES) + 1


FULL = Coverage(
    link_bytes=tuple(1 << power for power in range(12, 27, 2)),
    elements=tuple(1 << power for power in (8, 12, 15, 18, 20)),
    copy_bytes=tuple(1 << power for power in (12, 16, 20, 23, 26)),
    extents={"f32": (1, 8, 32, 128, 512, 1536), "f64": (1, 8, 32, 128, 512, 1024), "bf16": (1, 32, 512)},
    kernels_per_family=2,
)
QUICK = Coverage(
    link_bytes=tuple(1 << power for power in (12, 16, 20, 23)),
    elements=tuple(1 << power for power in (8, 15, 19)),
    copy_bytes=tuple(1 << power for power in (12, 20, 24)),
    extents={"f32": (1, 32, 512), "f64": (1, 32, 512)},
    kernels_per_family=1,
)


@dataclass
class _Stage:
    """Messages between all `pairs` at once; measured seconds by the bytes that a site sends to its `peers`."""

    pairs: list[tuple[int, int]]
    peers: int
    seconds: dict[int, list[float]] = field(default_factory=dict)

    def elements(self, size: int) -> int:
        """Of each message, in single precision, where a site sends `size` bytes."""
        return size // 4 // self.peers

    def curve(self, more: float, latency: float | None = None) -> Curve:
        """Lower quartiles of the rounds, and `more` seconds. If the latency is known otherwise, medians; then no
        message takes less than that and `more`, and small ones take as much."""
        sizes = sorted(self.seconds)
        middle = lower_quartile if latency is None else median
        seconds = [middle(self.seconds[size]) for size in sizes]
        if latency is not None:
            pairs = zip(sizes, seconds, strict=True)
            seconds = [latency if size <= _SMALL_BYTES else max(each, latency) for size, each in pairs]
        return Curve(tuple(map(float, sizes)), tuple(monotone([each + more for each in seconds])))


class Measurement:
    """One measurement of the sites, in about `seconds`; all sites measure at once. Every rank calls."""

    def __init__(self, sites: Sites, machine: Machine, seconds: float, coverage: Coverage, tick: Tick) -> None:
        self.sites = sites
        self.machine = machine
        self.seconds = seconds
        self.tick = tick
        self.coverage = coverage
        self.device = sites.device
        self.bench = Bench(self.device)
        self._received = _C.make_store("memory")
        self.crowding = 1.0
        self.work_product = self._product("f32", 256, 256, 256)
        self.work_calls = 1

    def profile(self) -> Profile:
        """Measures everything."""
        if not self.sites.single_process:
            if self.device.type != "cuda":
                threads = self.machine.most_on_a_host() * torch.get_num_threads()
                own = max(1.0, threads / len(os.sched_getaffinity(0)))
                (self.crowding,) = self.sites.transport.all_reduce_max([own])
            (each,) = Stopwatch(self.sites.transport, 0.01).work([self.work_product])
            self.work_calls = max(1, round(_WORK_SECONDS * self.crowding / each))
        return Profile(
            run_seconds=0.0 if self.sites.single_process else self._run(),
            node_seconds=self._node("input A: f32[8,8]<1,1> ()\noutput Z = map[(k1, k0); transpose](A)"),
            links=() if self.sites.single_process else tuple(self._links()),
            overlap=self._overlap(),
            products=tuple(self._products()),
            elementwise=tuple(self._elementwise()),
            reductions=tuple(self._reductions(size) for size in _DTYPES),
            copies=self._copies(),
            quick=self.coverage is QUICK,
        )

    def _stopwatch(self, family: str, points: int) -> Stopwatch:
        share = self.seconds * _SHARES[family]
        return Stopwatch(self.sites.transport, share / points, self.crowding)

    # --- runs and links -----------------------------------------------------------------------------------------------

    def _run(self) -> float:
        """Seconds of a run without nodes."""
        self.tick("runs")
        states = ", ".join("*" * len(self.sites.grid.axes))
        plan = _C.IaPlan.parse(f"ia on {self.sites.grid}\ninput A: f32[8]<1> ({states})\noutput Z = A\n")
        ((_, type_),) = plan.inputs
        ones = torch.ones(8, device=self.device)
        store = _C.make_store("memory")
        executor = _C.Executor(self.sites.transport, store)
        placed = _C.place_tensor(ones, type_, self.sites.local_sites, store, True)
        watch = Stopwatch(self.sites.transport, 0.02 * self.seconds)
        return watch.exchange(lambda: executor.run(plan, {"A": placed}, {}))

    def _node(self, text: str) -> float:
        return Stopwatch(self.sites.transport, 0.01 * self.seconds, self.crowding).work([self.bench.node(text)])[0]

    def _links(self) -> Iterator[Links]:
        """Every stage in several rounds, so that a disturbance affects one of them. Sites are slower to handle messages
        when they have just computed, by about as much for all of them. Those that share cores wait for their turns,
        for how long differs from round to round and not from stage to stage: their latency is the mean of all."""
        stages = {}
        for axes in axis_sets(len(self.sites.grid.axes)):
            groups = _C.SubGrids(self.sites.grid, axes).groups()
            everyone = [(a, b) for group in groups for a in group for b in group if a != b]
            stages[axes] = (_Stage(everyone, len(groups[0]) - 1), _Stage([(groups[0][0], groups[0][-1])], 1))
        share = _SHARES["links"] * self.seconds / (2 * _ROUNDS * len(stages))
        after_work = []
        for _ in range(_ROUNDS):
            for pair in stages.values():
                self.tick("links")
                for stage in pair:
                    self._measure(stage, share)
            self.tick("links")
            after_work.append(self._after_work())
        more = max(median(after_work), 0.0)
        turns = None
        if self.crowding > 1.0:
            turns = fmean(fmean(each.seconds[min(each.seconds)]) for each, _ in stages.values())
        for axes, (everyone_stage, pair_stage) in stages.items():
            yield Links(axes, everyone_stage.curve(more, turns), pair_stage.curve(more))

    def _after_work(self) -> float:
        """Seconds that small messages between all sites take longer if the sites work before."""
        watch = Stopwatch(self.sites.transport, _SHARES["after work"] * self.seconds / _ROUNDS)
        send = self._sender(self._everyone(), self.coverage.link_bytes[0])
        return watch.added(send, self._work) - watch.exchange(send)

    def _everyone(self) -> _Stage:
        """Each site sends to all others."""
        sites = range(self.sites.transport.sites)
        return _Stage([(a, b) for a in sites for b in sites if a != b], len(sites) - 1)

    def _sender(self, stage: _Stage, size: int, meanwhile: Callable[[], object] | None = None) -> Callable[[], None]:
        """Sends about `size` bytes from each site of the stage."""
        transport = self.sites.transport
        array = torch.ones(stage.elements(size), device=self.device)
        messages = [(a, b, array.nbytes) for a, b in stage.pairs]
        payload = {i: array for i, (a, _, _) in enumerate(messages) if a in transport.local_sites}
        return partial(self._send, messages, payload, array, meanwhile)

    def _measure(self, stage: _Stage, share: float) -> None:
        """One round of a stage. In the first one sizes ascend while they are likely to fit into `share` seconds, or
        their rate does not show yet beside the latency; the others measure the same ones. Sites that share cores wait
        now and then until others have had their turn, which only many small messages show."""
        window = share / len(self.coverage.link_bytes) / 2
        watch = Stopwatch(self.sites.transport, window)
        patient = Stopwatch(self.sites.transport, window if self.crowding == 1.0 else max(window, _TURNS_SECONDS))
        first = last = spent = 0.0
        known = len(stage.seconds)
        for size in self.coverage.link_bytes[: known or None]:
            # Time grows fourfold at most.
            if not known and last > _RATE_SHOWS * first and spent + 4 * last > share:
                break
            last = (patient if size <= _SMALL_BYTES else watch).exchange(self._sender(stage, size))
            first, spent = first or last, spent + last
            stage.seconds.setdefault(4 * stage.elements(size) * stage.peers, []).append(last)

    def _overlap(self) -> float:
        """The fraction of the seconds of messages in which sites can compute, in thirds: sites that work while messages
        travel are compared with sites that do one after the other. 0 where they share cores, which messages need too,
        or memory."""
        transport = self.sites.transport
        if self.sites.single_process or self.crowding > 1.0 or transport.shared_memory == _C.SharedMemory.all:
            return 0.0
        self.tick("overlap")
        watch = Stopwatch(transport, _SHARES["overlap"] * self.seconds / _ROUNDS_OF_OVERLAP)
        send = self._sender(self._everyone(), _OVERLAP_BYTES)
        rounds = max(1, round(watch.exchange(send) / _WORK_SECONDS))

        def work() -> None:
            for _ in range(rounds):
                self._work()
                transport.progress()
            synchronize(self.device)

        meanwhile = self._sender(self._everyone(), _OVERLAP_BYTES, work)
        taken = [
            (watch.exchange(send), watch.exchange(work), watch.exchange(meanwhile)) for _ in range(_ROUNDS_OF_OVERLAP)
        ]
        travel, alone, together = (fmean(seconds) for seconds in zip(*taken, strict=True))
        hidden = (travel + alone - together) / min(travel, alone)
        return round(_PARTS_OF_OVERLAP * min(max(hidden, 0.0), 1.0)) / _PARTS_OF_OVERLAP

    def _work(self) -> None:
        """Occupies a site for about `_WORK_SECONDS`, times the sites of a core: threads that have just computed are
        slower to handle messages."""
        for _ in range(self.work_calls):
            self.work_product()

    def _send(
        self,
        messages: list[tuple[int, int, int]],
        payload: dict[int, torch.Tensor],
        like: torch.Tensor,
        meanwhile: Callable[[], object] | None = None,
    ) -> None:
        # Arrays that arrive lie in memory that has been used before, as those of a run do.
        with _C.TorchAllocations(self._received):
            self.sites.transport.exchange("calibrate", messages, payload, like, meanwhile)
        synchronize(self.device)

    # --- kernels ------------------------------------------------------------------------------------------------------

    def _products(self) -> Iterator[Products]:
        share = _SHARES["products"] * self.seconds / len(self.coverage.extents)
        for dtype, wanted in self.coverage.extents.items():
            self.tick(f"products of {dtype}")
            extents = self._affordable(dtype, wanted, share)
            shapes = list(itertools.product(extents, repeat=3))
            # Half of the time is for the products that take longer than a window.
            watch = Stopwatch(self.sites.transport, share / 2 / len(shapes), self.crowding)
            seconds = watch.work([self._product(dtype, *shape) for shape in shapes])
            yield Products(dtype, tuple(map(float, extents)), tuple(seconds))

    def _affordable(self, dtype: str, extents: Sequence[int], share: float) -> Sequence[int]:
        """`extents` without the largest ones, if two calls of all products would take several times `share`: from small
        products none can tell the rate of large ones."""
        watch = Stopwatch(self.sites.transport, 0.0, self.crowding)
        while extents[-1] > _LEAST_SIDE:
            side = max(extents[-2], _LEAST_SIDE)
            (seconds,) = watch.work([self._product(dtype, side, side, side)])
            if 2 * seconds * (sum(extents) / side) ** 3 < _SHARES_OF_PRODUCTS * share:
                break
            extents = extents[:-1]
        return extents

    def _product(self, dtype: str, rows: int, inner: int, columns: int) -> Callable[[], float]:
        return self.bench.node(
            f"input A: {dtype}[{rows},{inner}]<1,1> ()\ninput B: {dtype}[{inner},{columns}]<1,1> ()\n"
            "output Z = agg[0, 2; add](join[1; 0; matmul](A, B))"
        )

    def _elementwise(self) -> Iterator[Elementwise]:
        families = {
            family: kernels[: self.coverage.kernels_per_family] for family, kernels in elementwise_families().items()
        }
        points = sum(len(rows) for rows in families.values()) * len(self.coverage.elements) * len(_DTYPES)
        watch = self._stopwatch("elementwise", points)
        for family, kernels in families.items():
            self.tick("elementwise kernels")
            for size, dtype in _DTYPES.items():
                curves = [self._curve(watch, partial(_call, kernel, family.operands, dtype)) for kernel in kernels]
                mean = [sum(values) / len(values) for values in zip(*(curve.seconds for curve in curves), strict=True)]
                yield Elementwise(*family, size, Curve(curves[0].sizes, tuple(mean)))

    def _curve(self, watch: Stopwatch, text: Callable[[int], str]) -> Curve:
        """Seconds of the node `text(elements)`."""
        seconds = watch.work([self.bench.node(text(elements)) for elements in self.coverage.elements])
        return Curve(tuple(map(float, self.coverage.elements)), tuple(monotone(seconds)))

    def _reductions(self, size: int) -> Reductions:
        self.tick("reductions")
        watch = self._stopwatch("reductions", 2 * len(self.coverage.elements) * len(_DTYPES))
        dtype = _DTYPES[size]

        def rows(elements: int) -> str:
            return f"input A: {dtype}[{elements // 16},16]<1,1> ()\noutput Z = map[(k0, k1); row_sum](A)"

        def keys(elements: int) -> str:
            return f"input A: {dtype}[{elements // 16}@-]<16> ()\noutput Z = agg[; add](A)"

        return Reductions(size, self._curve(watch, rows), self._curve(watch, keys))

    def _copies(self) -> Curve:
        self.tick("copies")
        watch = self._stopwatch("copies", len(self.coverage.copy_bytes))
        arrays = [torch.ones(size // 4, device=self.device) for size in self.coverage.copy_bytes]
        copies = [partial(torch.empty_like(array).copy_, array) for array in arrays]
        seconds = watch.work([partial(timed, self.device, copy) for copy in copies])
        return Curve(tuple(map(float, self.coverage.copy_bytes)), tuple(monotone(seconds)))


class Family(NamedTuple):
    """Facts of elementwise kernels; kernels with equal facts have one price."""

    operands: int
    flops_per_element: int
    domain: str


def elementwise_families() -> dict[Family, list[str]]:
    """Built-in elementwise kernels that compute something, as plans name them: the first and last row of each family.

    >>> elementwise_families()[Family(2, 1, "any")]
    ['add', 'equal']
    """
    families: dict[Family, list[str]] = {}
    for row in _C.kernel_rows():
        computes = row.form == "elementwise" and not row.user and not row.facts.moves_elements
        if not computes or set(row.parameters) - {"n"}:
            continue
        text = f"{row.name}[{', '.join(['0.5'] * len(row.parameters))}]" if row.parameters else row.name
        families.setdefault(Family(row.operands, row.flops_per_element, row.domain), []).append(text)
    return {family: sorted({names[0], names[-1]}) for family, names in families.items()}


def axis_sets(rank: int) -> list[tuple[int, ...]]:
    """Sets of grid axes whose links are measured: up to three axes, all sets; else each axis alone, and each axis with
    all later ones. The set of all axes is always among them.

    >>> axis_sets(2)
    [(0,), (1,), (0, 1)]
    >>> axis_sets(4)
    [(0,), (1,), (2,), (3,), (2, 3), (1, 2, 3), (0, 1, 2, 3)]
    """
    if rank <= 3:
        return [axes for size in range(1, rank + 1) for axes in itertools.combinations(range(rank), size)]
    return [(axis,) for axis in range(rank)] + [tuple(range(first, rank)) for first in range(rank - 2, -1, -1)]


def _call(kernel: str, operands: int, dtype: str, elements: int) -> str:
    """A plan that calls an elementwise kernel."""
    if operands == 1:
        return f"input A: {dtype}[{elements}]<1> ()\noutput Z = map[(k0); {kernel}](A)"
    inputs = "".join(f"input {name}: {dtype}[{elements}]<1> ()\n" for name in "AB")
    return f"{inputs}output Z = join[0; 0; {kernel}](A, B)"
