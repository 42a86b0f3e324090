"""The machine that costs are priced for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from joinsum import _C
from joinsum.base.arguments import is_number, show
from joinsum.base.errors import PlanError
from joinsum.base.text_table import seconds_text
from joinsum.cluster.profile import Profile
from joinsum.cluster.timing import Stopwatch, timed

__all__ = ["Cluster", "measure"]

_WINDOW_SECONDS = 0.05
_RATE_ELEMENTS = 1 << 20


@dataclass(frozen=True)
class Cluster:
    """Rates of one site and its link; `seconds` in a plan's cost is for this machine.

    flops_per_second   floating-point operations per second of one site, > 0
    bytes_per_second   bytes per second of one site's link in each direction, > 0
    latency_seconds    seconds of one stage of an exchange, >= 0
    memory_bytes       bytes that one site may hold; a plan that needs more is a PlanError. None: no limit
    profile            measured rates (`joinsum.calibrate`), or None; the flat ones above are for what it does not say

    Raises PlanError for a number outside its range.

    >>> Cluster("two racks", flops_per_second=1e13, bytes_per_second=3e9, latency_seconds=2e-5)
    Cluster(two racks: 1e+13 flop/s, 3e+09 B/s, 20 us)
    """

    name: str = "10 Gbit between sites, one device each"
    flops_per_second: float = 1e11
    bytes_per_second: float = 1.25e9
    latency_seconds: float = 5e-5
    memory_bytes: int | None = None
    profile: Profile | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise PlanError(f"cluster: a name is text: name={show(self.name)}")
        for name, least in (("flops_per_second", 1e-30), ("bytes_per_second", 1e-30), ("latency_seconds", 0.0)):
            value = getattr(self, name)
            if not is_number(value) or not math.isfinite(value) or value < least:
                raise PlanError(f"cluster: a rate is a positive number, a latency not negative: {name}={show(value)}")
        memory = self.memory_bytes
        if memory is not None and (isinstance(memory, bool) or not isinstance(memory, int) or memory < 0):
            raise PlanError(f"cluster: memory is a number of bytes or None: memory_bytes={show(memory)}")
        if self.profile is not None and not isinstance(self.profile, Profile):
            raise PlanError(f"cluster: a profile is what joinsum.calibrate finds: profile={show(self.profile)}")

    def __repr__(self) -> str:
        memory = "" if self.memory_bytes is None else f", {self.memory_bytes:,} B"
        latency = seconds_text(self.latency_seconds)
        rates = f"{self.flops_per_second:.3g} flop/s, {self.bytes_per_second:.3g} B/s"
        profile = "" if self.profile is None else f"; profile: {self.profile}"
        return f"Cluster({self.name}: {rates}, {latency}{memory}{profile})"

    @property
    def origin(self) -> str:
        """Where its figures come from: `calibrated`, `measured` (in a short look at the start), `default` (joinsum
        ships it, for unknown sites), or `described`.

        >>> Cluster().origin, Cluster(bytes_per_second=1e9).origin
        ('default', 'described')
        """
        if self.profile is not None:
            return "measured" if self.profile.quick else "calibrated"
        return "default" if replace(self, memory_bytes=None) == Cluster() else "described"

    @property
    def with_hidden_messages(self) -> Cluster:
        """The same where messages take only what no schedule avoids: without latency, which moves that travel together
        share, and without the seconds in which sites can compute."""
        if self.profile is None:
            return self
        left = 1 - self.profile.overlap
        links = tuple(
            replace(link, all=link.all.beyond_first(left), pair=link.pair.beyond_first(left))
            for link in self.profile.links
        )
        return replace(self, profile=replace(self.profile, links=links, overlap=0.0))

    @property
    def coarse(self) -> Cluster:
        """Flat rates alone, so coarse that all short measurements of one machine agree on them: powers of ten, and of
        its root for the rate of products, which is that of the largest measured one.

        >>> Cluster("here", flops_per_second=8.1e10, bytes_per_second=9.4e8, latency_seconds=1.3e-4).coarse
        Cluster(here: 1e+11 flop/s, 1e+09 B/s, 100 us)
        """
        flops = None if self.profile is None else self.profile.product_rate
        return replace(
            self,
            flops_per_second=_nearest_power(flops or self.flops_per_second, math.sqrt(10)),
            bytes_per_second=_nearest_power(self.bytes_per_second, 10),
            latency_seconds=_nearest_power(self.latency_seconds, 10),
            profile=None,
        )

    def core(self) -> _C.Cluster:
        """The same for the C++ core."""
        return _C.Cluster(
            self.name,
            float(self.flops_per_second),
            float(self.bytes_per_second),
            float(self.latency_seconds),
            self.memory_bytes,
            None if self.profile is None else self.profile.core,
        )


def _nearest_power(rate: float, base: float) -> float:
    return base ** round(math.log(rate, base)) if rate > 0 else 0.0


def measure(transport: _C.Transport, device: torch.device, name: str) -> Cluster:
    """Times a float32 matrix product, on all sites at once, and messages around the ring of sites, in less than 0.3 s;
    every site calls.

    The slowest site's rates count, so all sites get the same answer. One site has no link; its rate is the default one.
    """
    watch = Stopwatch(transport, _WINDOW_SECONDS)
    size = 4096 if device.type == "cuda" else 512
    x = torch.ones(size, size, device=device)
    (seconds,) = watch.work([lambda: timed(device, lambda: torch.ops.joinsum.matrix_product(x, x))])
    flops = 2 * size**3 / seconds
    if transport.sites == 1:
        return Cluster(name, flops_per_second=flops)
    latency = watch.exchange(_around_ring(transport, device, 1))
    seconds = watch.exchange(_around_ring(transport, device, _RATE_ELEMENTS))
    return Cluster(name, flops, 4 * _RATE_ELEMENTS / max(seconds - latency, 1e-9), latency)


def _around_ring(transport: _C.Transport, device: torch.device, elements: int) -> Callable[[], float]:
    """Every site sends `elements` float32 to the next one."""
    sites = transport.sites
    array = torch.ones(elements, device=device)
    messages = [(site, (site + 1) % sites, array.nbytes) for site in range(sites)]
    payload = dict.fromkeys(transport.local_sites, array)
    return lambda: timed(device, lambda: transport.exchange("init", messages, payload, array))
