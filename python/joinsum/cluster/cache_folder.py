"""The user's cache folder, and how much of it plans may take."""

from __future__ import annotations

import os
from pathlib import Path

from joinsum.base.arguments import show
from joinsum.base.errors import PlanError

__all__ = ["PLAN_CACHE_VARIABLE", "cache_folder", "plan_cache_mebibytes"]

PLAN_CACHE_VARIABLE = "JOINSUM_PLAN_CACHE"
_DEFAULT_MEBIBYTES = 64.0


def cache_folder() -> Path:
    """`joinsum` in $XDG_CACHE_HOME, or in ~/.cache: calibration files, cached rates, and the plan cache.

    >>> cache_folder().name
    'joinsum'
    """
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if os.path.isabs(home) else Path.home() / ".cache") / "joinsum"


def plan_cache_mebibytes() -> float:
    """The plan cache's limit in MiB: JOINSUM_PLAN_CACHE in the environment, 64 by default; 0 means no plan cache.

    Raises PlanError for what is no such number.
    """
    text = os.environ.get(PLAN_CACHE_VARIABLE, "")
    try:
        mebibytes = float(text) if text else _DEFAULT_MEBIBYTES
    except ValueError:
        mebibytes = -1.0
    if not 0 <= mebibytes < float("inf"):
        raise PlanError(
            f"einsum: {PLAN_CACHE_VARIABLE} is a limit in MiB, 0 for no folder of plans: "
            f"{PLAN_CACHE_VARIABLE}={show(text)}"
        )
    return mebibytes
