"""Cached rates of sites that have not been calibrated, from short measurements: one file for each set of hosts.

Two short measurements differ, above all on a busy machine, and a plan that was cached for other rates is stale. So a
cached rate stays in use while measurements are close to it. Other work makes sites look slower than they are, hardly
ever faster: a new rate that is clearly faster replaces the cached one, a slower one only if it is far slower.
"""

from __future__ import annotations

import json
import math
import warnings
from contextlib import suppress
from dataclasses import replace
from typing import Any

from joinsum.base.errors import PlanError
from joinsum.base.files import write_atomically
from joinsum.cluster.cache_folder import cache_folder, plan_cache_mebibytes
from joinsum.cluster.cluster import Cluster
from joinsum.cluster.machine import Machine, Sites

__all__ = ["FASTER", "SLOWER", "with_cached_rates"]

FORMAT = "joinsum rates"
VERSION = 1
FASTER = 1.5  # a rate that is so many times faster replaces the cached one
SLOWER = 8.0  # so does one that is so many times slower
_RATES = ("flops_per_second", "bytes_per_second", "latency_seconds")


def with_cached_rates(sites: Sites, machine: Machine, measured: Cluster, caches_plans: bool) -> Cluster:
    """The cluster of a short measurement, with the cached rates of earlier ones where these are close.

    Site 0's process reads the file, and writes it where a rate has changed, if it caches plans; all sites get the same
    and must call. A file of other hosts, layout or versions is replaced, and so is a damaged one, with a warning.
    """
    text = ""
    if 0 in sites.local_sites:
        now = {name: float(getattr(measured, name)) for name in _RATES}
        text = json.dumps(_with_file(machine, now) if caches_plans and _has_plan_cache() else now)
    return replace(measured, **json.loads(sites.transport.gather_texts("init", text)[0]))


def _has_plan_cache() -> bool:
    try:
        return plan_cache_mebibytes() > 0
    except PlanError:
        return False  # raised again where the first plan is made


def _with_file(machine: Machine, now: dict[str, float]) -> dict[str, float]:
    path = cache_folder() / machine.name.replace("calibration", "rates")
    body = {"format": FORMAT, "version": VERSION, "machine": machine.to_json()}
    try:
        cached = _rates_in(json.loads(path.read_text(encoding="utf-8")), body)
    except FileNotFoundError:
        cached = None
    except (OSError, ValueError) as error:
        warnings.warn(
            f"init: cached rates are not used, but those measured now: file={path}, reason={error}", stacklevel=2
        )
        cached = None
    rates = now if cached is None else {name: _near(name, cached[name], now[name]) for name in _RATES}
    if rates != cached:
        with suppress(OSError):  # the folder of plans is then none either, and says so
            write_atomically(path, json.dumps({**body, "rates": rates}))
    return rates


def _rates_in(content: Any, wanted: dict[str, Any]) -> dict[str, float] | None:
    """The rates of a file; None for other hosts, layout or versions. Raises ValueError for what is no such file."""
    rates = content.get("rates") if isinstance(content, dict) else None
    if not isinstance(rates, dict) or not all(_is_rate(rates.get(name)) for name in _RATES):
        raise ValueError("it is damaged")
    same = all(content.get(name) == value for name, value in wanted.items())
    return {name: rates[name] for name in _RATES} if same else None


def _is_rate(value: object) -> bool:
    return isinstance(value, float) and 0 < value < math.inf


def _near(name: str, cached: float, now: float) -> float:
    """The cached rate, unless the one that was measured now counts.

    >>> _near("bytes_per_second", 1e9, 3e8), _near("bytes_per_second", 1e9, 2e9), _near("latency_seconds", 1e-4, 2e-3)
    (1000000000.0, 2000000000.0, 0.002)
    """
    times_faster = cached / now if name == "latency_seconds" else now / cached
    return now if times_faster > FASTER or times_faster < 1 / SLOWER else cached
