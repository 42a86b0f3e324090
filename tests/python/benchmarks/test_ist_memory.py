"""A model that does not fit a process's memory is trained on four that have as little."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch.distributed as dist
from forks import Forks

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
FEATURES, HIDDEN, LABELS = 8_000, 1_024, 16_000
PARAMETERS = HIDDEN * (FEATURES + 3 + LABELS)
MB = 1_000_000


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with pytest.MonkeyPatch.context() as environment:
        # The heap gives back what is freed, which counts in a model as small as this.
        environment.setenv("MALLOC_MMAP_THRESHOLD_", str(1 << 20))
        with Forks(["joinsum", "torch._dynamo", "torch.distributed.checkpoint"], BENCHMARKS) as process:
            yield process


def measured(forks: Forks, log: Path, budget: int, ranks: int = 0) -> str:
    sizes = ["--features", FEATURES, "--hidden", HIDDEN, "--labels", LABELS, "--rounds", 2, "--every", 3]
    return forks.output([BENCHMARKS / "ist_memory.py", *sizes, "--budget", budget], log, ranks)


@pytest.mark.distributed
@pytest.mark.slow
@pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="torch has no gloo")
def test_a_budget_that_is_too_small_for_the_whole_model_is_enough_for_subnets(forks: Forks, tmp_path: Path):
    budget = 15 * PARAMETERS // MB  # of 16 bytes a parameter, with gradients
    whole = measured(forks, tmp_path / "whole", budget)
    assert "does not train: RuntimeError" in whole
    assert "allocate" in whole
    assert "the whole model trains" in measured(forks, tmp_path / "enough", 18 * PARAMETERS // MB)
    found = measured(forks, tmp_path / "subnets", budget, ranks=4)
    rows = re.findall(r"^ +(\d) +([\d,]+) MB +([\d,]+) MB +([\d,]+) MB +([\d,]+) MB$", found, re.MULTILINE)
    sites = [[int(each.replace(",", "")) for each in row] for row in rows]
    assert [site for site, *_ in sites] == [0, 1, 2, 3]
    for _, subnet, *peaks in sites:
        assert subnet == pytest.approx(4 * PARAMETERS / MB, abs=1)
        assert all(subnet < peak <= budget for peak in peaks[:2])  # the checkpoint is written without a limit
    (right,) = re.findall(r"^full model: ([\d.]+) of the points", found, re.MULTILINE)
    assert float(right) > 0.9
