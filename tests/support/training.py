"""Training by plain torch and by joinsum's steps side by side, for tests that compare them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import joinsum
import pytest
import torch
from joinsum import _C
from joinsum.base.dtypes import dtype_name
from joinsum.capture import executable
from joinsum.capture.captured_graph import CapturedGraph, Executable
from joinsum.distributed.block_tensor import axis_factors
from models import CASES, batches, new_model
from torch import Tensor, fx, nn

# Small models run replicated on ordinary machines. Here dividing work pays, so that plans divide what can be divided.
CUTTING = joinsum.Cluster("slow sites, fast links", 1e6, 1e9, 0.0)

# The clusters of every change's training tests.
CLUSTERS = {"default": joinsum.Cluster(), "dividing": CUTTING}

# All cases in `make nightly`; a choice of them in `make test`.
EVERYTHING = os.environ.get("JOINSUM_ALL_MODELS", "0") not in ("", "0")


takes_long = pytest.mark.skipif(not EVERYTHING, reason="JOINSUM_ALL_MODELS=1 runs it")


def rare(*values: object) -> Any:
    """A case of a test that only `make nightly` runs."""
    return pytest.param(*values, marks=takes_long)


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
    plain, planned = new_model(name, dtype), new_model(name, dtype)
    data, loss = batches(name, steps, dtype=dtype), CASES[name].loss
    wanted = train_by_torch(plain, loss, optimizer(plain.parameters()), data, **options)
    step = joinsum.train_step(planned, loss, optimizer(planned.parameters()), **options)
    losses = [step(x, y).item() for x, y in data]
    if joinsum.context().cluster is CUTTING and joinsum.sites() > 1:
        assert divided(planned)
    assert losses == pytest.approx(wanted, rel=1e-4 if dtype is torch.float32 else 1e-8)
    step.sync()
    same(planned, plain, tolerance)
    return losses


def cases(*names: str) -> Iterator[tuple[str, str, Make, float]]:
    """What every change trains, or of it these models: a model, its optimizer by name and function, and the tolerance
    of parameters after ten steps in double precision."""
    for name in CASES if EVERYTHING else names or ("mlp", "cnn", "llama"):
        yield name, "SGD", sgd, 1e-10
        if EVERYTHING or name != "cnn":
            yield name, "AdamW", adamw, 1e-8


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
        products = [extent for group in axis_factors(p) if len(group) > 1 for extent in group]
        if any(len(axis.cuts) > 2 and axis.extent in products for axis in p.physical_type.relation.axes):
            found.append(name)
    return found


def same(actual: nn.Module, wanted: nn.Module, tolerance: float) -> None:
    """Asserts that two models have equal parameters and buffers."""
    for (name, x), y in zip(actual.state_dict().items(), wanted.state_dict().values(), strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=tolerance, msg=lambda text, name=name: f"{name}: {text}")


def cut_type(shape: Sequence[int], dtype: torch.dtype) -> _C.PhysicalType:
    """The longest axis divided among the sites where it has an element for each; else a copy on every site."""
    context = joinsum.context()
    axis = max(range(len(shape)), key=lambda a: shape[a], default=0)
    parts = [max(1, min(context.sites, n)) if a == axis else 1 for a, n in enumerate(shape)]
    relation = _C.RelationType.of_tensor(dtype_name("test", dtype), list(shape), parts)
    state = str(axis) if shape and max(parts) == context.sites else "*"
    place = _C.Placement.parse(f"({', '.join([state] * len(context.grid.axes))})", context.grid, relation.frontier)
    return _C.PhysicalType.placed("test", relation, context.grid, place)


def note_graphs(monkeypatch: pytest.MonkeyPatch) -> list[fx.GraphModule]:
    """The graphs that are planned from now on, in order."""
    graphs: list[fx.GraphModule] = []
    original = executable.compile_fx

    def noting(graph: CapturedGraph) -> Executable:
        graphs.append(graph.gm)
        return original(graph)

    monkeypatch.setattr(executable, "compile_fx", noting)
    return graphs


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def adam(parameters: Any) -> torch.optim.Optimizer:
    """Adam whose eps keeps it from dividing noise by noise, where a gradient vanishes (a bias of attention's keys)."""
    return torch.optim.Adam(parameters, lr=0.01, eps=1e-5)


def adamw(parameters: Any) -> torch.optim.Optimizer:
    """The same with decay of weights."""
    return torch.optim.AdamW(parameters, lr=0.01, eps=1e-5, weight_decay=0.1)
