"""Training by plain torch and by joinsum's steps side by side, for tests that compare them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import joinsum
import torch
from joinsum.frontend.distributed_tensor import atoms_of
from models import CASES, batches, made
from torch import Tensor, nn

# Small models run replicated on ordinary machines. Here dividing work pays, so that plans cut what can be cut.
CUTTING = joinsum.Cluster("slow sites, fast links", 1e6, 1e9, 0.0)

# All cases, as `make nightly` asks for; else a choice of them.
EVERYTHING = os.environ.get("JOINSUM_ALL_MODELS", "0") not in ("", "0")

Make = Callable[[Any], torch.optim.Optimizer]


def train_by_torch(
    model: nn.Module, loss: Callable[..., Tensor], optimizer: torch.optim.Optimizer, data: list[Any], **options: Any
) -> list[float]:
    """Losses of the plain loop."""
    losses = []
    accumulate = options.get("accumulate", 1)
    for i, (x, y) in enumerate(data):
        value = loss(model(x), y)
        (value / accumulate).backward()
        losses.append(value.item())
        if (i + 1) % accumulate == 0:
            if "max_norm" in options:
                torch.nn.utils.clip_grad_norm_(model.parameters(), options["max_norm"])
            optimizer.step()
            optimizer.zero_grad()
    return losses


def compare(
    name: str, optimizer: Make, dtype: torch.dtype, tolerance: float, steps: int = 10, **options: Any
) -> list[float]:
    """Asserts that a whole step's losses and parameters are plain torch's; returns the losses."""
    plain, planned = made(name, dtype), made(name, dtype)
    data, loss = batches(name, steps, dtype=dtype), CASES[name].loss
    wanted = train_by_torch(plain, loss, optimizer(plain.parameters()), data, **options)
    step = joinsum.train_step(planned, loss, optimizer(planned.parameters()), **options)
    losses = [step(x, y).item() for x, y in data]
    if joinsum.context().cluster is CUTTING and joinsum.sites() > 1:
        assert divided(planned)
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(wanted), rtol=1e-4, atol=0)
    step.sync()
    same(planned, plain, tolerance)
    return losses


def divided(model: nn.Module) -> list[str]:
    """Names of parameters of which no site has all."""
    return [
        name
        for name, p in model.named_parameters()
        if isinstance(p, joinsum.DistributedTensor) and not p.physical_type.placement.fully_replicated
    ]


def inside(model: nn.Module) -> list[str]:
    """Of these, the names of those with an axis that is a product, as heads x width, and is cut."""
    found = []
    for name in divided(model):
        p = model.get_parameter(name)
        products = [extent for group in atoms_of(p) if len(group) > 1 for extent in group]
        if any(len(axis.cuts) > 2 and axis.extent in products for axis in p.physical_type.relation.axes):
            found.append(name)
    return found


def same(given: nn.Module, wanted: nn.Module, tolerance: float) -> None:
    """Asserts that two models have equal parameters and buffers."""
    for (name, x), y in zip(given.state_dict().items(), wanted.state_dict().values(), strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=tolerance, msg=lambda text, name=name: f"{name}: {text}")


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def adam(parameters: Any) -> torch.optim.Optimizer:
    """Adam whose eps keeps it from dividing noise by noise, where a gradient vanishes (a bias of attention's keys)."""
    return torch.optim.Adam(parameters, lr=0.01, eps=1e-5)
