"""Training loops with what users of PyTorch put into them: parameter groups, schedules, clipping, mixed precision,
compiled models, others' optimizers. Each has its step in plain torch too, which a test takes with reference subnets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import joinsum
import torch
from reference_subnets import Axes, Make, ReferenceSubnets, Step, tensors_of
from torch import nn
from torch.nn import functional as F

Optimizer = torch.optim.Optimizer


class Batch(NamedTuple):
    """A batch of one site; `number` counts those of the process that takes it."""

    number: int
    inputs: torch.Tensor
    classes: torch.Tensor


Begin = Callable[[nn.Module, Optimizer], Callable[[Batch], None]]


@dataclass(frozen=True)
class Loop:
    """A user's loop.

    make      the optimizer
    begin     what a user prepares before the loop; a step of it
    reference   the same step, with nothing that lives on between steps but the optimizer
    """

    make: Make
    begin: Begin
    reference: Step
    norm: type[nn.Module] = nn.BatchNorm1d
    dtype: torch.dtype = torch.float64
    tolerance: float = 1e-9


def network(widths: Mapping[str, int], norm: type[nn.Module] = nn.BatchNorm1d, dtype: Any = torch.float64) -> nn.Module:
    first, second = widths.get("0", 10), widths.get("3", 16)
    torch.manual_seed(1)
    return nn.Sequential(
        *(nn.Linear(7, first), norm(first), nn.ReLU()),
        *(nn.Linear(first, second), norm(second), nn.ReLU()),
        nn.Linear(second, 4),
    ).to(dtype)


def axes(model: nn.Module) -> Axes:
    """Where `network` is cut."""
    found: Axes = {
        **{f"0.{name}": {0: ("0", 1)} for name in ("weight", "bias")},
        **{f"1.{name}": {0: ("0", 1)} for name in ("weight", "bias", "running_mean", "running_var")},
        **{"3.weight": {0: ("3", 1), 1: ("0", 1)}, "3.bias": {0: ("3", 1)}},
        **{f"4.{name}": {0: ("3", 1)} for name in ("weight", "bias", "running_mean", "running_var")},
        "6.weight": {1: ("3", 1)},
    }
    return {name: cut for name, cut in found.items() if name in tensors_of(model)}


def batches(count: int, dtype: torch.dtype) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(5)
    return [
        (torch.randn(12, 7, generator=generator, dtype=dtype), torch.randint(0, 4, (12,), generator=generator))
        for _ in range(count)
    ]


def compare(loop: Loop, rounds: int, every: int, skipped: Iterable[int] = (), *, free: bool = False) -> joinsum.IST:
    """Trains `network` by the loop on the context's sites, and in plain torch; the results must be equal.

    skipped   batches, of all sites together, that have no finite gradient, and after which the loop takes no step
    free      whether the loop says when a round ends
    """
    current = joinsum.context()
    sites, local = current.sites, list(current.local_sites)
    model = network({}, loop.norm, loop.dtype)
    reference = ReferenceSubnets(
        model, partial(network, norm=loop.norm, dtype=loop.dtype), axes(model), loop.make, sites
    )
    before = {name: tensor.clone() for name, tensor in reference.full.items()}
    optimizer = loop.make(model.parameters())
    step = loop.begin(model, optimizer)
    ist = joinsum.IST(model, optimizer, every=None if free else every, seed=3)
    held = _held(model, optimizer, current.single_process)
    data = batches(rounds * every * sites, loop.dtype)
    for place in skipped:
        data[place][0][0, 0] = torch.inf
    number = 0
    for start in range(0, len(data), every * sites):
        mine = [(place, *data[place]) for place in range(start, start + every * sites)]
        own = [Batch(number + i, x, y) for i, (_, x, y) in enumerate(b for b in mine if b[0] % sites in local)]
        reference.round(ist, _shares(mine, sites, current.single_process, number), loop.reference)
        if free:
            with ist.round():
                for batch in own:
                    step(batch)
        else:
            for batch in own:
                step(batch)
        number += len(own)
        assert ist.rounds == 1 + start // (every * sites)
        assert _held(model, optimizer, current.single_process) == held
    ist.gather()
    reference.assert_equal(model, loop.tolerance)
    assert all(not torch.equal(reference.full[name], x) for name, x in before.items() if x.dim() > 1)
    return ist


def _shares(mine: list[tuple[int, torch.Tensor, torch.Tensor]], sites: int, loopback: bool, number: int) -> Any:
    """Each site's batches of a round that are finite. On loopback a batch without a step does not end a site's turn."""
    found: list[list[Batch]] = [[] for _ in range(sites)]
    turn = 0
    for i, (place, x, y) in enumerate(mine):
        if x.isfinite().all():
            found[turn % sites if loopback else place % sites].append(
                Batch(number + (i if loopback else i // sites), x, y)
            )
            turn += 1
    return found


def _held(model: nn.Module, optimizer: Optimizer, loopback: bool) -> list[Any]:
    """The parameters as objects and, on a process group, their memory and shapes."""
    grouped = [[id(p) for p in group["params"]] for group in optimizer.param_groups]
    memory = [] if loopback else [(x.data_ptr(), x.shape, x.stride()) for x in model.parameters()]
    return [[id(p) for p in model.parameters()], grouped, memory]


# --- the loops --------------------------------------------------------------------------------------------------------


def loss_of(model: Callable[[torch.Tensor], torch.Tensor], batch: Batch) -> torch.Tensor:
    return F.cross_entropy(model(batch.inputs), batch.classes)


def plain_step(model: nn.Module, optimizer: Optimizer, batch: Batch) -> None:
    optimizer.zero_grad()
    loss_of(model, batch).backward()
    optimizer.step()


def plain_begin(model: nn.Module, optimizer: Optimizer) -> Callable[[Batch], None]:
    return partial(plain_step, model, optimizer)


def adam(parameters: Iterable[nn.Parameter]) -> Optimizer:
    # A bias before a norm has no gradient but rounding errors, which a small eps would blow up.
    return torch.optim.Adam(parameters, lr=0.01, eps=1e-3)


RATES, DECAY, AFTER, NORM = (0.1, 0.03), 0.5, 3, 0.2


def groups(parameters: Iterable[nn.Parameter]) -> Optimizer:
    own = list(parameters)
    return torch.optim.SGD(
        [{"params": own[:4]}, {"params": own[4:], "lr": RATES[1], "momentum": 0.5}], lr=RATES[0], momentum=0.9
    )


def scheduled_begin(model: nn.Module, optimizer: Optimizer) -> Callable[[Batch], None]:
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, AFTER, DECAY)

    def step(batch: Batch) -> None:
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        assert torch.nn.utils.clip_grad_norm_(model.parameters(), NORM) > NORM
        optimizer.step()
        schedule.step()

    return step


def scheduled_reference(model: nn.Module, optimizer: Optimizer, batch: Batch) -> None:
    for group, rate in zip(optimizer.param_groups, RATES, strict=True):
        group["lr"] = rate * DECAY ** (batch.number // AFTER)
    optimizer.zero_grad()
    loss_of(model, batch).backward()
    size = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm()
    for p in model.parameters():
        assert p.grad is not None
        p.grad *= NORM / (size + 1e-6)
    optimizer.step()


SCHEDULED = Loop(groups, scheduled_begin, scheduled_reference)


def autocast_step(model: nn.Module, optimizer: Optimizer, batch: Batch) -> None:
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        scores = model(batch.inputs)
        assert scores.dtype is torch.bfloat16
        loss = F.cross_entropy(scores, batch.classes)
    loss.backward()
    optimizer.step()


def autocast_begin(model: nn.Module, optimizer: Optimizer) -> Callable[[Batch], None]:
    return partial(autocast_step, model, optimizer)


AUTOCAST = Loop(adam, autocast_begin, autocast_step, dtype=torch.float32, tolerance=1e-6)


def scaled_begin(model: nn.Module, optimizer: Optimizer) -> Callable[[Batch], None]:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)

    def step(batch: Batch) -> None:
        optimizer.zero_grad()
        scale = scaler.get_scale()
        scaler.scale(loss_of(model, batch)).backward()
        scaler.step(optimizer)
        scaler.update()
        assert (scaler.get_scale() < scale) == (not batch.inputs.isfinite().all())

    return step


# LayerNorm, because running statistics would not stay finite.
SCALED = Loop(adam, scaled_begin, plain_step, norm=nn.LayerNorm)


class Lion(Optimizer):
    """An elementwise optimizer that torch does not have.

    Source: X. Chen and others, Symbolic Discovery of Optimization Algorithms, 2023.
    """

    def __init__(self, params: Iterable[nn.Parameter], lr: float) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                momentum = self.state[p].setdefault("momentum", torch.zeros_like(p))
                # The sign would decide about rounding errors.
                p -= group["lr"] * torch.tanh(50 * (0.9 * momentum + 0.1 * p.grad))
                momentum.lerp_(p.grad, 0.01)


LION = Loop(lambda parameters: Lion(parameters, lr=0.01), plain_begin, plain_step)


@dataclass
class Compiled:
    """A loop whose model is compiled; `graphs` are those compiled so far, after each step.

    early   whether it has been called before it is cut
    """

    backend: str
    early: bool = False
    graphs: list[int] = field(default_factory=list)

    def begin(self, model: nn.Module, optimizer: Optimizer) -> Callable[[Batch], None]:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        compiled = torch.compile(model, backend=self.backend)
        if self.early:
            model.eval()  # leaves running statistics as they are
            compiled(batches(1, torch.float64)[0][0]).sum().backward()
            model.train()

        def step(batch: Batch) -> None:
            optimizer.zero_grad()
            loss_of(compiled, batch).backward()
            optimizer.step()
            self.graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])

        return step

    def loop(self) -> Loop:
        return Loop(adam, self.begin, plain_step)
