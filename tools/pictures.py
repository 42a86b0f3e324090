"""Takes the pictures of docs/einsum_examples.md again, from what the examples compute: `make pictures`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import joinsum
import matplotlib
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parent.parent


def example(name: str) -> ModuleType:
    """An example as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / "einsum" / f"{name}.py")
    if spec is None or spec.loader is None:
        raise ImportError(f"no such example: name={name}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def chain(path: Path) -> None:
    """Elements that move, by scale: the best plan and 4 by 4 blocks."""
    of = example("matrix_chain")
    figure, sides = plt.subplots(1, 2, figsize=(8, 3), sharey=True)
    for side, skewed in zip(sides, (False, True), strict=True):
        costs = [of.elements(s, skewed) for s in of.SCALES]
        side.loglog(of.SCALES, [best for best, _ in costs], "o-", label="best plan")
        side.loglog(of.SCALES, [fixed for _, fixed in costs], "s--", label="4 by 4 blocks")
        side.set_xticks(of.SCALES, [str(s) for s in of.SCALES], minor=False)
        side.set_xticks([], minor=True)
        side.set_title("skewed" if skewed else "square")
        side.set_xlabel("scale s")
    sides[0].set_ylabel("elements that move")
    sides[0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def paths(path: Path) -> None:
    """How many pairs of packages are how far apart."""
    of = example("shortest_paths")
    joinsum.init(sites=4)
    steps, _ = of.all_pairs(of.one_step(of.dependencies()))
    joinsum.init()
    counts = steps[steps.isfinite() & (steps > 0)].int().bincount()[1:]
    figure, axes = plt.subplots(figsize=(6, 2.6))
    axes.bar(range(1, len(counts) + 1), counts.tolist())
    axes.set_xlabel("steps from one package to another that it pulls in")
    axes.set_ylabel("pairs")
    axes.set_xticks(range(1, len(counts) + 1))
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    """Writes all pictures."""
    matplotlib.use("Agg")
    chain(ROOT / "docs" / "einsum-chain.png")
    paths(ROOT / "docs" / "einsum-paths.png")


if __name__ == "__main__":
    main()
