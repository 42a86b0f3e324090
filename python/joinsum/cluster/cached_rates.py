"""Cached rates of sites that have not been calibrated, from short measurements: one file for each set of hosts.

Two short measurements differ, above all on a busy machine, and a plan that was cached for other rates is stale. So
cached rates stay in use while a look at three of them is close. Other work makes sites look slower than they are,
hardly ever faster: rates are measured again where one looks clearly faster, or far slower.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from joinsum.base.errors import PlanError
from joinsum.base.files import write_atomically
from joinsum.cluster.cache_folder import cache_folder, plan_cache_mebibytes
from joinsum.cluster.cluster import Cluster
from joinsum.cluster.machine import Machine, Sites
from joinsum.cluster.profile import Profile

__all__ = ["FASTER", "SLOWER", "with_cached_rates"]

FORMAT = "joinsum rates"
VERSION = 4
FASTER = 1.5  # a rate that looks so many times faster is measured again
SLOWER = 4.0  # so is one that looks so many times slower
_RATES = ("flops_per_second", "bytes_per_second", "latency_seconds")


def with_cached_rates(
    sites: Sites, machine: Machine, look: Cluster, caches_plans: bool, measured: Callable[[], Profile]
) -> Cluster:
    """The cluster of the flat rates of a look at the sites, with the profile that `measured` finds; or the cached rates
    and profile of an earlier start, where the look is close to them.

    Site 0's process reads the file, and writes what has been measured, if it caches plans; all sites get the same and
    must call. A file of other hosts, layout or versions is replaced, and so is a damaged one, with a warning.
    """
    cached = ""
    uses_file = caches_plans and _has_plan_cache()
    if 0 in sites.local_sites and uses_file:
        found = _read(machine)
        if found is not None and _near(found, look):
            cached = json.dumps([{name: getattr(found, name) for name in _RATES}, _profile_of(found).to_json()])
    cached = sites.transport.gather_texts("init", cached)[0]
    if cached:
        rates, profile = json.loads(cached)
        return replace(look, **rates, profile=Profile.of_json(profile))
    cluster = replace(look, profile=measured())
    if 0 in sites.local_sites and uses_file:
        with suppress(OSError):  # the folder of plans is then none either, and says so
            write_atomically(_path(machine), _file_text(machine, cluster))
    return cluster


def _has_plan_cache() -> bool:
    try:
        return plan_cache_mebibytes() > 0
    except PlanError:
        return False  # raised again where the first plan is made


def _path(machine: Machine) -> Path:
    return cache_folder() / machine.name.replace("calibration", "rates")


def _file_text(machine: Machine, cluster: Cluster) -> str:
    rates = {name: float(getattr(cluster, name)) for name in _RATES}
    body = {**_header(machine), "rates": rates, "profile": _profile_of(cluster).to_json()}
    return json.dumps(body)


def _header(machine: Machine) -> dict[str, Any]:
    return {"format": FORMAT, "version": VERSION, "machine": machine.to_json()}


def _profile_of(cluster: Cluster) -> Profile:
    assert cluster.profile is not None
    return cluster.profile


def _read(machine: Machine) -> Cluster | None:
    """The file's rates; None where there is no file, or one of other hosts, layout or versions."""
    path = _path(machine)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError("it is damaged")
        if any(content.get(name) != value for name, value in _header(machine).items()):
            return None
        rates = content.get("rates")
        if not isinstance(rates, dict) or not all(_is_rate(rates.get(name)) for name in _RATES):
            raise ValueError("it is damaged")
        return Cluster(**{name: rates[name] for name in _RATES}, profile=Profile.of_json(content.get("profile")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, PlanError) as error:
        warnings.warn(
            f"init: cached rates are not used, but those measured now: file={path}, reason={error}", stacklevel=2
        )
        return None


def _is_rate(value: object) -> bool:
    return isinstance(value, float) and 0 < value < math.inf


def _near(cached: Cluster, look: Cluster) -> bool:
    """Whether no rate of the look is clearly faster than the cached one, or far slower.

    >>> _near(Cluster(), Cluster(bytes_per_second=4e8)), _near(Cluster(), Cluster(latency_seconds=2e-5))
    (True, False)
    """
    times_faster = [
        look.flops_per_second / cached.flops_per_second,
        look.bytes_per_second / cached.bytes_per_second,
        cached.latency_seconds / look.latency_seconds,
    ]
    return all(1 / SLOWER <= times <= FASTER for times in times_faster)
