"""What the examples compute, against searches that are written out here; `test_golden_plans` runs the programs."""

from __future__ import annotations

import importlib.util
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import joinsum
import pytest
import torch

EXAMPLES = Path(__file__).parents[3] / "examples" / "einsum"


@pytest.fixture(autouse=True)
def four_sites() -> Iterator[None]:
    joinsum.init(sites=4)
    yield
    joinsum.init()


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def steps_from(graph: dict[str, list[str]], start: str) -> dict[str, int]:
    """Least numbers of steps, by a breadth-first search."""
    steps = {start: 0}
    waiting = deque([start])
    while waiting:
        package = waiting.popleft()
        for name in graph[package]:
            if name not in steps:
                steps[name] = steps[package] + 1
                waiting.append(name)
    return steps


def test_shortest_paths_are_those_of_a_breadth_first_search() -> None:
    of = example("shortest_paths")
    everything = of.dependencies()
    packages = list(everything)[:200]
    graph = {name: [needed for needed in everything[name] if needed in packages] for name in packages}
    steps, _ = of.all_pairs(of.one_step(graph))
    for i, package in enumerate(packages):
        known = steps_from(graph, package)
        assert steps[i].tolist() == [known.get(name, float("inf")) for name in packages]


def test_prefill_of_llama_is_never_slower_than_the_baselines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    of = example("llama_prefill")
    extents = {"b": 2, "s": 24, "t": 24, "a": 32, "h": 4, "d": 8, "f": 48}
    plans = of.plans(extents, 4)
    assert list(plans) == ["joinsum", "Megatron", "sequence", "attention"]
    assert plans["joinsum"].seconds == min(plan.seconds for plan in plans.values())
    stream, keys = 2 * 24 * 32 * 4, 2 * 24 * 4 * 8 * 4
    weights = 4 * (4 * 32 * 32 + 3 * 32 * 48)
    # Two all-reduces; an all-gather of weights, keys and values. What every site lacks is sent to it.
    assert plans["Megatron"].wire_bytes == 2 * 2 * 3 * stream
    assert plans["sequence"].wire_bytes == 3 * (weights + 2 * keys)
    for way, (error, predicted, sent) in of.run(extents, 4).items():
        assert error < 1e-5, way
        assert sent == predicted == plans[way].wire_bytes, way


def test_viterbi_finds_the_best_of_all_paths() -> None:
    of = example("viterbi")
    of.LENGTH = 4
    generator = torch.Generator().manual_seed(0)
    emissions = torch.randn(3, 4, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    steps = torch.randn(3, 5, 5, generator=generator, dtype=torch.float64)
    best = of.best_scores(emissions, steps)
    (on_path,) = torch.autograd.grad(best.sum(), emissions)
    for sequence in range(3):
        paths = torch.cartesian_prod(*[torch.arange(5)] * 4)
        scores = emissions[sequence, range(4), paths].sum(1)
        scores = scores + sum(steps[t, paths[:, t], paths[:, t + 1]] for t in range(3))
        torch.testing.assert_close(best[sequence], scores.max())
        assert on_path[sequence].argmax(1).tolist() == paths[scores.argmax()].tolist()
