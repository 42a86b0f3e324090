"""How much of the machine other programs have while something is measured."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

__all__ = ["Others", "wait_for_quiet"]

_QUIET = 0.1
_LOOK_SECONDS = 2.0


def _busy_seconds() -> float:
    """Core seconds of all programs since the machine started; interrupts, which carry packets, left out."""
    user, nice, system = Path("/proc/stat").read_text(encoding="utf-8").split("\n", 1)[0].split()[1:4]
    return (int(user) + int(nice) + int(system)) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    """Core seconds of this program and of its child processes that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


class Others:
    """Watches from its creation on. Processes that this program started must have ended when `share` is called."""

    def __init__(self) -> None:
        self._start = (time.perf_counter(), _busy_seconds(), _own_seconds())

    def share(self) -> float:
        """Part of all cores' time that other programs had."""
        start, busy, own = self._start
        spent = (time.perf_counter() - start) * (os.cpu_count() or 1)
        return max(0.0, (_busy_seconds() - busy) - (_own_seconds() - own)) / spent


def wait_for_quiet(most: float = 60.0) -> None:
    """Returns when other programs are quiet, or after `most` seconds."""
    end = time.perf_counter() + most
    while time.perf_counter() < end:
        others = Others()
        time.sleep(_LOOK_SECONDS)
        if others.share() < _QUIET:
            return
