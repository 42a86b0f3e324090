"""Rates of sites that nobody has calibrated, as quick looks have found them: one file for each set of hosts.

A quick look differs from the last one, above all on a busy machine, and a plan that is kept for other rates is stale.
So a rate stays what it was while looks come near it. Other work makes sites look slower than they are, hardly ever
faster: a look that is clearly faster counts, one that is slower only where it is so by far, as of another machine.
"""

from __future__ import annotations

import json
import math
import warnings
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from joinsum.calibration import Machine, cache_folder, write_whole
from joinsum.cluster import Cluster
from joinsum.errors import PlanError
from joinsum.kept_plans import plans_folder

if TYPE_CHECKING:
    from joinsum.context import Context

__all__ = ["FASTER", "SLOWER", "settled"]

FORMAT = "joinsum rates"
VERSION = 1
FASTER = 1.5  # a look that is so many times faster counts
SLOWER = 8.0  # so does one that is so many times slower
_RATES = ("flops_per_second", "bytes_per_second", "latency_seconds")


def settled(here: Context, measured: Cluster, keeps_plans: bool) -> Cluster:
    """`measured`, a quick look at the context's sites, with the rates of earlier ones where these are near.

    Site 0's process reads the file, and writes it where a rate has changed, if it keeps plans; all sites get the same
    and must call. A file of other hosts, layout or versions is replaced, and so is a damaged one, with a warning.
    """
    machine = here.machine
    told = ""
    if 0 in here.local_sites:
        now = {name: float(getattr(measured, name)) for name in _RATES}
        told = json.dumps(_settled_here(machine, now) if keeps_plans and _on() else now)
    return replace(measured, **json.loads(here.from_first_site("init", told)))


def _on() -> bool:
    try:
        return plans_folder() is not None
    except PlanError:
        return False  # raised where a plan is asked for


def _settled_here(machine: Machine, now: dict[str, float]) -> dict[str, float]:
    path = cache_folder() / machine.name.replace("calibration", "rates")
    body = {"format": FORMAT, "version": VERSION, "machine": machine.to_json()}
    try:
        kept = _rates_in(json.loads(path.read_text(encoding="utf-8")), body)
    except FileNotFoundError:
        kept = None
    except (OSError, ValueError) as error:
        warnings.warn(
            f"init: kept rates are not used, but those measured now: file={path}, reason={error}", stacklevel=2
        )
        kept = None
    rates = now if kept is None else {name: _near(name, kept[name], now[name]) for name in _RATES}
    if rates != kept:
        with suppress(OSError):  # the folder of plans is then none either, and says so
            write_whole(path, json.dumps({**body, "rates": rates}))
    return rates


def _rates_in(told: Any, wanted: dict[str, Any]) -> dict[str, float] | None:
    """The rates of a file; None for other hosts, layout or versions. Raises ValueError for what is no such file."""
    rates = told.get("rates") if isinstance(told, dict) else None
    if not isinstance(rates, dict) or not all(_is_rate(rates.get(name)) for name in _RATES):
        raise ValueError("it is damaged")
    same = all(told.get(name) == value for name, value in wanted.items())
    return {name: rates[name] for name in _RATES} if same else None


def _is_rate(value: object) -> bool:
    return isinstance(value, float) and 0 < value < math.inf


def _near(name: str, kept: float, now: float) -> float:
    """The kept rate, unless the one that was measured now counts.

    >>> _near("bytes_per_second", 1e9, 3e8), _near("bytes_per_second", 1e9, 2e9), _near("latency_seconds", 1e-4, 2e-3)
    (1000000000.0, 2000000000.0, 0.002)
    """
    times_faster = kept / now if name == "latency_seconds" else now / kept
    return now if times_faster > FASTER or times_faster < 1 / SLOWER else kept
