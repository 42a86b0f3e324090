"""Tests leave nothing in the user's cache folder; those of cached plans have a folder of their own. Each test draws the
same numbers in every run. Long tests come first, and the closing lines say which folders of tests took the time. What
nightly.txt names runs where JOINSUM_ALL_MODELS is 1."""

from __future__ import annotations

import itertools
import os
import random
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

os.environ["JOINSUM_PLAN_CACHE"] = "0"


# Folders with the files that take longest: one worker has that of the first, while another starts processes.
FIRST = ("tests/python/capture/operators/", "tests/distributed/", "tests/python/package/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files come first: no process should be left with them at the end."""
    items.sort(key=lambda item: next((i for i, name in enumerate(FIRST) if item.nodeid.startswith(name)), len(FIRST)))
    left_out = set() if os.environ.get("JOINSUM_ALL_MODELS", "0") not in ("", "0") else set(nightly())
    for item in items:
        if item.nodeid in left_out:
            item.add_marker(pytest.mark.skip(reason="JOINSUM_ALL_MODELS=1 runs it"))


def nightly() -> list[str]:
    """The names in nightly.txt."""
    lines = (Path(__file__).parent / "nightly.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if not line.startswith("#")]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test that draws numbers without a seed of its own fails in every run or in none."""
    seed = zlib.crc32(item.nodeid.encode())
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Adds a line with the seconds that the tests of each folder took, summed over all processes."""
    seconds: dict[str, float] = {}
    for report in itertools.chain.from_iterable(terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport):
            folder = report.nodeid.partition("::")[0].rpartition("/")[0]
            seconds[folder] = seconds.get(folder, 0) + report.duration
    if seconds:
        listed = sorted(seconds.items(), key=lambda item: -item[1])
        terminalreporter.write_line("seconds by folder: " + ", ".join(f"{name} {time:.0f}" for name, time in listed))
