"""Files of results: figures by cell, written after each cell, so that an interrupted run continues; and comparisons."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from frame.cells import Cell
from frame.timing import Spread, ratio, spread

__all__ = ["Fall", "Results", "fallen", "machine", "ratio_to_best", "table"]

FALL = 0.05


def machine() -> dict[str, str]:
    """What figures depend on besides the program."""
    processor = platform.machine()
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            processor = line.partition(":")[2].strip()
            break
    return {
        "processor": processor,
        "cores": str(len(os.sched_getaffinity(0))),
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


class Results:
    """Figures by cell, in memory and in a file, if there is one."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.cells: dict[Cell, dict[str, Any]] = {}

    @staticmethod
    def read(path: Path) -> Results:
        """What a file has; nothing if there is none."""
        found = Results(path)
        if path.exists():
            for entry in json.loads(path.read_text(encoding="utf-8")):
                found.cells[Cell(*(entry[name] for name in Cell._fields))] = entry
        return found

    def add(self, cell: Cell, figures: Mapping[str, Any]) -> None:
        """Adds or replaces a cell, and writes the file, whole or not at all."""
        self.cells[cell] = {**cell._asdict(), **figures}
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            beside = self._path.with_suffix(".new")
            beside.write_text(json.dumps(list(self.cells.values()), indent=1) + "\n", encoding="utf-8")
            beside.replace(self._path)


def ratio_to_best(seconds: Mapping[str, list[float]]) -> tuple[str, Spread] | None:
    """The best contender beside joinsum, and how many times faster than it joinsum is; None where there is none.

    >>> ratio_to_best({"joinsum": [2.0, 2.0], "DDP": [1.0, 1.0], "FSDP2": [3.0, 3.0]})
    ('DDP', Spread(median=0.5, low=0.5, high=0.5))
    """
    ratios = {name: ratio(seconds["joinsum"], other) for name, other in seconds.items() if name != "joinsum"}
    return min(ratios.items(), key=lambda item: item[1].median) if ratios else None


class Fall(NamedTuple):
    """A cell whose ratio to the best other contender is lower than it was."""

    cell: Cell
    before: float
    now: float


def fallen(now: Results, before: Results, by: float = FALL) -> Iterator[Fall]:
    """Cells of both runs whose ratio fell by more than that share."""
    for cell, figures in now.cells.items():
        if cell in before.cells:
            ratios = [ratio_to_best(each["seconds"]) for each in (before.cells[cell], figures)]
            if ratios[0] is not None and ratios[1] is not None:
                old, new = ratios[0][1].median, ratios[1][1].median
                if new < old * (1 - by):
                    yield Fall(cell, old, new)


def table(results: Results) -> list[list[str]]:
    """A row for each cell: what it is, joinsum's milliseconds, the best other's name and milliseconds, the ratio."""
    rows = []
    for cell, figures in results.cells.items():
        seconds = figures["seconds"]
        best = ratio_to_best(seconds)
        row = [cell.workload, cell.size, str(cell.ranks), cell.network, _milliseconds(seconds["joinsum"])]
        if best is None:
            row += ["", "", ""]
        else:
            name, of = best
            row += [name, _milliseconds(seconds[name]), f"{of.median:.2f} ({of.low:.2f} - {of.high:.2f})"]
        rows.append(row)
    return rows


HEADER = ["workload", "size", "ranks", "network", "joinsum ms", "best other", "its ms", "ratio (quartiles)"]


def _milliseconds(seconds: list[float]) -> str:
    median, low, high = (1e3 * value for value in spread(seconds))
    return f"{median:.1f} ({low:.1f} - {high:.1f})"
