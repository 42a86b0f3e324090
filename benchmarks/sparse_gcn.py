"""Training of a graph convolutional network on a generated citation graph: joinsum on sites of one process beside
torch with its sparse tensors.

The graph is drawn from stochastic blocks: papers of seven fields, which cite mostly their own. Two layers of graph
convolutions (Kipf and Welling, 2017), Adam. Losses are compared; contenders take turns; figures are medians of
milliseconds of a step.

    python benchmarks/sparse_gcn.py [--sites 1,4] [--papers N] [--degree N] [--features N] [--hidden N] [--json FILE]
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median

import click
import joinsum
import torch
from torch import Tensor, nn

FIELDS = 7


def citations(papers: int, degree: int) -> tuple[Tensor, Tensor]:
    """The normalized adjacency, sparse, and the papers' fields."""
    generator = torch.Generator().manual_seed(0)
    fields = torch.randint(FIELDS, (papers,), generator=generator).sort().values
    first = torch.randint(papers, (papers * degree // 2,), generator=generator)
    ends = torch.bincount(fields, minlength=FIELDS).cumsum(0)
    begins = ends - torch.bincount(fields, minlength=FIELDS)
    inside = torch.rand(len(first), generator=generator) < 0.9
    drawn = torch.rand(len(first), generator=generator)
    own = fields[first]
    second = torch.where(inside, (begins[own] + drawn * (ends - begins)[own]).long(), (drawn * papers).long())
    every = torch.arange(papers)
    places = torch.stack([torch.cat([first, second, every]), torch.cat([second, first, every])])
    adjacency = torch.sparse_coo_tensor(places, torch.ones(places.shape[1]), (papers, papers)).coalesce()
    rows, columns = adjacency.indices()
    degrees = torch.bincount(rows, minlength=papers).float().rsqrt()
    values = degrees[rows] * degrees[columns]
    return torch.sparse_coo_tensor(adjacency.indices(), values, (papers, papers)).coalesce(), fields


class Network(nn.Module):
    def __init__(self, adjacency: Tensor, features: int, hidden: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.register_buffer("adjacency", adjacency)
        self.first, self.second = nn.Linear(features, hidden), nn.Linear(hidden, FIELDS)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(torch.sparse.mm(self.adjacency, self.first(x)))
        return torch.sparse.mm(self.adjacency, self.second(hidden))


def by_torch(model: nn.Module, x: Tensor, fields: Tensor) -> Callable[[], Tensor]:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), fields)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@click.command(help=__doc__)
@click.option("--sites", default="1,4", show_default=True)
@click.option("--papers", default=20_000, show_default=True)
@click.option("--degree", default=10, show_default=True)
@click.option("--features", default=256, show_default=True)
@click.option("--hidden", default=64, show_default=True)
@click.option("--rounds", default=7, show_default=True)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write the figures here too.")
def main(sites: str, papers: int, degree: int, features: int, hidden: int, rounds: int, json_file: Path | None) -> None:
    warnings.simplefilter("ignore")
    adjacency, fields = citations(papers, degree)
    x = torch.randn(papers, features, generator=torch.Generator().manual_seed(1))
    print(f"{papers:,} papers, {adjacency.values().numel():,} entries, {torch.get_num_threads()} threads")
    found: dict[str, float] = {}
    for count in map(int, sites.split(",")):
        joinsum.init(sites=count)
        planned = Network(adjacency, features, hidden)
        step = joinsum.train_step(planned, nn.functional.cross_entropy, torch.optim.Adam(planned.parameters(), lr=0.01))
        contenders: dict[str, Callable[[], Tensor]] = {
            "torch, COO": by_torch(Network(adjacency, features, hidden), x, fields),
            "torch, CSR": by_torch(Network(adjacency.to_sparse_csr(), features, hidden), x, fields),
            f"joinsum, {count} sites": lambda step=step: step(x, fields),  # type: ignore[misc]
        }
        seconds: dict[str, list[float]] = {name: [] for name in contenders}
        losses: dict[str, list[float]] = {name: [] for name in contenders}
        for number in range(rounds + 2):
            for name, call in contenders.items():
                start = time.perf_counter()
                losses[name].append(call().item())
                if number > 1:
                    seconds[name].append(1e3 * (time.perf_counter() - start))
        first, *others = losses.values()
        for other in others:
            torch.testing.assert_close(torch.tensor(other), torch.tensor(first), rtol=1e-4, atol=1e-5)
        found |= {name: median(each) for name, each in seconds.items()}
        print(", ".join(f"{name} {median(each):.1f} ms" for name, each in seconds.items()), flush=True)
    if json_file is not None:
        json_file.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
