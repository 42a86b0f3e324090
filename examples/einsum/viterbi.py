"""Viterbi by (max, +): finds the most likely names of packages behind noisy ones.

The best score of a sequence is a chain of einsums. Its gradient with respect to the scores of single letters is 1 along
the best path and 0 elsewhere, so autograd finds the path.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import joinsum
import torch

DATA = Path(__file__).resolve().parents[2] / "data" / "debian-xml" / "labels.txt.gz"
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789+-."
LENGTH, NOISE, ASKED = 12, 0.25, 256


def names() -> torch.Tensor:
    """The first letters of package names of the data set, as numbers, [names, 12]."""
    lines = gzip.decompress(DATA.read_bytes()).decode().split()
    return torch.tensor([[LETTERS.index(c) for c in name[:LENGTH]] for name in lines if len(name) >= LENGTH])


def text(name: torch.Tensor) -> str:
    return "".join(LETTERS[int(c)] for c in name)


def transitions(known: torch.Tensor) -> torch.Tensor:
    """Logarithms of how often a letter follows another one, at each place, [11, 39, 39]."""
    counts = torch.full((LENGTH - 1, len(LETTERS), len(LETTERS)), 0.01, dtype=torch.float64)
    for place in range(LENGTH - 1):
        one = torch.ones(len(known), dtype=torch.float64)
        counts[place].index_put_((known[:, place], known[:, place + 1]), one, accumulate=True)
    return (counts / counts.sum(2, keepdim=True)).log()


def best_scores(emissions: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    """The score of the best path of each sequence; emissions [sequences, 12, 39], steps [11, 39, 39]."""
    scores = emissions[:, 0]
    for place in range(1, LENGTH):
        moved = joinsum.einsum("bi,ij->bj", scores, steps[place - 1], join="add", agg="max")
        assert isinstance(moved, torch.Tensor)
        scores = moved + emissions[:, place]
    best = joinsum.einsum("bi->b", scores, agg="max")
    assert isinstance(best, torch.Tensor)
    return best


def main() -> None:
    joinsum.init(sites=4)
    generator = torch.Generator().manual_seed(0)
    known = names()
    chosen = known[torch.randperm(len(known), generator=generator)[:ASKED]]
    wrong = torch.rand(chosen.shape, generator=generator) < NOISE
    heard = torch.where(wrong, torch.randint(len(LETTERS), chosen.shape, generator=generator), chosen)

    right, other = torch.tensor([1 - NOISE + NOISE / len(LETTERS), NOISE / len(LETTERS)]).double().log()
    same = torch.nn.functional.one_hot(heard, len(LETTERS)).bool()
    emissions = torch.where(same, right, other)
    first = known[:, 0].bincount(minlength=len(LETTERS)) + 0.01
    emissions[:, 0] += (first / first.sum()).log()
    emissions.requires_grad_()
    best = best_scores(emissions, transitions(known))
    (on_path,) = torch.autograd.grad(best.sum(), emissions)
    decoded = on_path.argmax(2)

    print(f"{ASKED} names of {LENGTH} letters, {len(LETTERS)} states, on 4 sites")
    one_each = torch.equal(on_path, torch.nn.functional.one_hot(decoded, len(LETTERS)).double())
    print(f"the gradient is 1 along one path of each name, 0 beside it: {one_each}")
    for i in range(6):
        print(f"heard {text(heard[i])}  read {text(decoded[i])}  was {text(chosen[i])}")
    print(f"letters right: heard {(heard == chosen).double().mean():.3f}, ", end="")
    print(f"read {(decoded == chosen).double().mean():.3f}")
    joinsum.init()


if __name__ == "__main__":
    main()
