"""A family of models forward and backward on the sites, beside plain torch: what differs, and what it takes."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import joinsum
import torch
from families import Family
from joinsum import _C
from joinsum.capture.planned_program import PlannedProgram
from joinsum.frontend.tracing.errors import capturing

__all__ = ["ATTENTIONS", "TOLERANCE", "WAYS", "Measured", "Spent", "Trained", "measure", "relative", "train"]

# Sites so slow and links so fast that even small models are divided; elsewhere each site would do all the work.
DIVIDING = joinsum.Cluster("slow sites, fast links", 1e6, 1e12, 1e-9)

_Tensors = dict[str, torch.Tensor | None]

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}

# Of the largest tensor: a tensor below it is compared with this, as it is the rounding of larger terms.
_FLOOR = 1e-2

# The second may compile again: some models write to their config in the first.
_STEPS = 3


@dataclass
class Spent:
    """CPU seconds of one thread, vertices of the programs that ran, forward and backward, and bytes between sites."""

    plan: float = 0.0
    run: float = 0.0
    einsums: int = 0
    calls: int = 0
    moved: int = 0


@dataclass(frozen=True)
class Measured:
    """How a family did on a number of sites.

    result    "equal", "refused", "wrong", or "failed"
    why       what was refused, differs or failed
    moved     bytes that a step moves between sites
    error     the largest difference of the loss, a gradient or a buffer in a step, relative to its magnitude
    capture   CPU seconds of capture by torch.compile and of recording
    plan      CPU seconds of choosing the plans
    run       CPU seconds of a later step
    """

    family: str
    sites: int
    result: str
    why: str = ""
    error: float = 0.0
    einsums: int = 0
    calls: int = 0
    moved: int = 0
    capture: float = 0.0
    plan: float = 0.0
    run: float = 0.0


WAYS = ("train_step", "distribute", "torch.compile")
ATTENTIONS = ("eager", "sdpa")


@dataclass(frozen=True)
class Trained:
    """How a family, as it comes from its config, trained three steps by one of `WAYS`.

    result    "equal", "refused", "wrong", "failed", or "none" if the model has no such attention
    error     the largest difference of a loss or a parameter from plain torch's, relative to its magnitude
    seconds   wall time of all three steps, capture and plans included
    """

    family: str
    way: str
    attention: str
    result: str
    why: str = ""
    error: float = 0.0
    seconds: float = 0.0


def train(family: Family, way: str, attention: str, sites: int, device: str = "cpu") -> Trained:
    """Three steps of SGD on `sites` loopback sites, all of them on one device, beside plain torch's."""
    joinsum.init(sites=sites, cluster=DIVIDING, plan_cache=False)
    torch._dynamo.reset()
    try:
        plain, model = (family.as_it_comes(attention).to(device) for _ in range(2))
    except ValueError as error:
        return Trained(family.name, way, attention, "none", str(error))
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            losses = _trained(model, family, way)
        except joinsum.CaptureError as error:
            return Trained(family.name, way, attention, "refused", str(error))
        except Exception as error:  # what fails is shown in the table
            return Trained(family.name, way, attention, "failed", f"{type(error).__name__}: {error}")
        seconds = time.perf_counter() - start
        expected = _trained(plain, family, "torch")
    joinsum.gather(model)
    wanted: _Tensors = {name: p.detach() for name, p in plain.named_parameters()}
    found: _Tensors = {name: p.detach() for name, p in model.named_parameters()}
    worst, where = max(relative(wanted, found), relative({"losses": expected}, {"losses": losses}))
    equal = worst <= TOLERANCE[torch.float32]
    why = "" if equal else f"{where} differs by {worst:.1e}"
    return Trained(family.name, way, attention, "equal" if equal else "wrong", why, worst, seconds)


def _trained(model: torch.nn.Module, family: Family, way: str) -> torch.Tensor:
    """The losses of three steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    device = next(model.parameters()).device

    def batch() -> dict[str, Any]:
        given = family.call_as_it_comes()
        return {name: x.to(device) if isinstance(x, torch.Tensor) else x for name, x in given.items()}

    if way == "train_step":
        step = joinsum.train_step(model, None, optimizer)
        return torch.stack([step(**batch()) for _ in range(_STEPS)])
    called: Any = model
    if way == "distribute":
        called = joinsum.distribute(model, batch())
    if way == "torch.compile":
        called = torch.compile(model, backend="joinsum")
    losses = []
    for _ in range(_STEPS):
        loss = called(**batch()).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


@dataclass
class _Step:
    """The CPU seconds of one step, its loss, and what it leaves in the model. Each is compared by itself: a buffer may
    be far larger than all gradients."""

    seconds: float
    loss: _Tensors
    gradients: _Tensors
    buffers: _Tensors


def measure(family: Family, sites: int) -> Measured:
    """Steps of the model under torch.compile on `sites` loopback sites against steps of plain torch."""
    joinsum.init(sites=sites, cluster=DIVIDING, plan_cache=False)
    torch._dynamo.reset()
    plain = family.build()
    expected = [_step(plain, plain, family) for _ in range(_STEPS)]
    model = family.build()
    if family.prepared is not None:
        family.prepared(model, family.inputs())
    compiled = torch.compile(model, backend="joinsum", fullgraph=True, dynamic=False)
    try:
        with _watched() as spent, capturing(family.name):
            found = [_step(compiled, model, family)]
        found += [_step(compiled, model, family) for _ in expected[1:]]
    except joinsum.CaptureError as error:
        return Measured(family.name, sites, "refused", str(error))
    except Exception as error:  # what fails is shown in the table
        return Measured(family.name, sites, "failed", f"{type(error).__name__}: {error}")
    worst, where = max(_differing(x, y) for x, y in zip(expected, found, strict=True))
    equal = worst <= TOLERANCE[family.dtype]
    return Measured(
        family.name,
        sites,
        "equal" if equal else "wrong",
        "" if equal else f"{where} differs by {worst:.1e}",
        worst,
        einsums=spent.einsums,
        calls=spent.calls,
        moved=spent.moved,
        capture=found[0].seconds - spent.plan - spent.run,
        plan=spent.plan,
        run=found[-1].seconds,
    )


def _step(called: Any, model: torch.nn.Module, family: Family) -> _Step:
    """One forward and backward pass by `called`, which is the model or what it is compiled to."""
    model.zero_grad()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.process_time()
        loss = called(**family.inputs())[0]
        loss.backward()
        seconds = time.process_time() - start
    gradients = {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}
    buffers: _Tensors = {name: buffer.clone() for name, buffer in model.named_buffers()}
    return _Step(seconds, {"loss": loss.detach()}, gradients, buffers)


def _differing(expected: _Step, found: _Step) -> tuple[float, str]:
    """The largest difference, and of what."""
    return max(
        relative(expected.loss, found.loss),
        relative(expected.gradients, found.gradients),
        relative(expected.buffers, found.buffers),
    )


@contextmanager
def _watched() -> Iterator[Spent]:
    """Counts what programs hold and take when they run."""
    spent = Spent()
    original, place = PlannedProgram.run_placed, PlannedProgram.placed

    def placed_by_plan(self: PlannedProgram, args: Any, stored: Any) -> Any:
        start = time.process_time()
        _ = self.choice
        spent.plan += time.process_time() - start
        return place(self, args, stored)

    def run(self: PlannedProgram, args: Any, placed: Any) -> Any:
        start = time.process_time()
        outcome = original(self, args, placed)
        spent.run += time.process_time() - start
        einsums = sum(vertex.einsum is not None for vertex in self.recorded.vertices)
        spent.einsums += einsums
        spent.moved += _C.cost(self.choice.plan, self.context.cluster.core()).wire_bytes
        spent.calls += len(self.recorded.vertices) - einsums
        return outcome

    with (
        mock.patch.object(PlannedProgram, "run_placed", run),
        mock.patch.object(PlannedProgram, "placed", placed_by_plan),
    ):
        yield spent


def relative(expected: _Tensors, got: _Tensors) -> tuple[float, str]:
    """The largest difference of two sets of tensors, over the magnitude of the tensor that differs, and its name;
    infinite where one of them lacks a tensor or a number is not finite."""
    if expected.keys() != got.keys():
        return float("inf"), f"the names {sorted(expected.keys() ^ got.keys())}"
    sizes = {name: float(x.double().abs().max()) for name, x in expected.items() if x is not None and x.numel()}
    floor = _FLOOR * max(sizes.values(), default=0.0)
    worst, where = 0.0, ""
    for name, x in expected.items():
        y = got[name]
        if x is None or y is None or (x.shape, x.dtype) != (y.shape, y.dtype):
            if x is not y:
                return float("inf"), name
            continue
        if not x.numel():
            continue
        error = float((x.double() - y.double()).abs().max()) / max(sizes[name], floor, 1e-30)
        if not error <= worst:
            worst, where = (error if error == error else float("inf")), name
    return worst, where
