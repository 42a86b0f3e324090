"""Scenes of what users put into loops that train subnets, on ranks: beside reference subnets in plain torch."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import joinsum
import torch
import torch.distributed as dist
from joinsum import _C
from stage import Scenes, enter, error_of, on_group, on_loopback, rank, ranks, scene

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))
from subnet_loops import (
    AUTOCAST,
    LION,
    SCALED,
    SCHEDULED,
    Batch,
    Compiled,
    adam,
    batches,
    compare,
    network,
    plain_step,
)

SCENES: Scenes = {}


@scene(SCENES)
def loops_on_ranks_train_as_plain_torch_does() -> None:
    enter(on_group())
    for loop in (SCHEDULED, AUTOCAST, LION):
        compare(loop, rounds=3, every=2)


@scene(SCENES)
def a_rank_that_skips_steps_ends_its_round_with_the_others() -> None:
    enter(on_group())
    sites, every, last = ranks(), 3, ranks() - 1
    # The last rank has no first step in the second round and no step at all in the third, the first rank no last one.
    skipped = [every * sites + last, *(2 * every * sites + last + sites * step for step in range(every))]
    compare(SCALED, 4, every, [*skipped, (3 * every - 1) * sites], free=True)


@scene(SCENES)
def a_compiled_model_is_compiled_for_one_round() -> list[int]:
    enter(on_group())
    compiled = Compiled("aot_eager")
    compare(compiled.loop(), rounds=3, every=2)
    return compiled.graphs


@scene(SCENES)
def an_exchange_in_parts_gives_what_one_plan_gives() -> None:
    data = batches(6 * ranks(), torch.float32)
    for wire in (None, torch.bfloat16):
        found = []
        for most in (300, 16 << 20):
            enter(on_group())
            model = network({}).float()
            optimizer = adam(model.parameters())
            with (
                patch("joinsum.ist.exchange.grouping.TOGETHER_BYTES", most),
                joinsum.IST(model, optimizer, every=2, wire=wire),
            ):
                for place in range(rank(), len(data), ranks()):
                    plain_step(model, optimizer, Batch(place, *data[place]))
            found.append(model.state_dict())
        assert all(torch.equal(found[0][name], wanted) for name, wanted in found[1].items())


def chain(folder: Path, group: bool) -> dict[str, torch.Tensor]:
    """Trains on one site more than there are ranks, goes on on as many sites as ranks, and then as at first; what is
    written goes through checkpoints."""
    data = batches(40, torch.float64)

    def more() -> joinsum.Context:
        return joinsum.Context(_C.make_loopback(ranks() + 1), joinsum.Cluster(), None, 60.0, _C.make_store("memory"))

    def begun(seed: int) -> tuple[joinsum.IST, torch.nn.Module]:
        model = network({})
        return joinsum.IST(model, adam(model.parameters()), every=2, seed=seed), model

    def train(ist: joinsum.IST, model: torch.nn.Module, steps: int) -> None:
        sites, local = joinsum.sites(), joinsum.context().local_sites
        for place in range(steps * sites):
            if place % sites in local:
                plain_step(model, ist.optimizer, Batch(place, *data[place]))

    own = folder / f"first_{rank()}_{group}"
    enter(more())
    ist, model = begun(3)
    train(ist, model, 5)
    ist.save_checkpoint(own)
    enter(on_group() if group else on_loopback())
    ist, model = begun(1)
    ist.load_checkpoint(own)
    assert (ist.rounds, ist.steps) == (3, 5)
    train(ist, model, 5)
    second = folder / ("second" if group else f"second_{rank()}")
    ist.save_checkpoint(second)
    enter(more())
    ist, model = begun(1)
    ist.load_checkpoint(second)
    assert (ist.rounds, ist.steps) == (6, 10)
    train(ist, model, 4)
    return ist.gather().state_dict()


@scene(SCENES)
def a_checkpoint_goes_on_at_other_numbers_of_sites() -> float:
    folder = [tempfile.mkdtemp() if rank() == 0 else ""]
    dist.broadcast_object_list(folder)
    try:
        own, other = (chain(Path(folder[0]), group) for group in (True, False))
        assert all(torch.equal(own[name], wanted) for name, wanted in other.items())
        dist.barrier()
    finally:
        if rank() == 0:
            shutil.rmtree(folder[0], ignore_errors=True)
    return sum(float(tensor.double().abs().sum()) for tensor in own.values())


class Branches(torch.nn.Module):
    """Two branches, of which sites may take other ones, and a filter of complex weights; each call makes the running
    mean anew."""

    def __init__(self) -> None:
        super().__init__()
        self.branches = torch.nn.ModuleList([network({}), network({})])
        self.filter = torch.nn.Parameter(torch.full((7,), 1.0 + 0.5j, dtype=torch.complex128))
        self.register_buffer("mean", torch.zeros(7, dtype=torch.float64))
        self.taken = [0, 1]

    def forward(self, x: torch.Tensor) -> Any:
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        x = torch.fft.ifft(torch.fft.fft(x - self.mean) * self.filter).real
        found = [self.branches[place](x) for place in self.taken]
        return found[0] if len(found) == 1 else found[0] + found[1]


@scene(SCENES)
def weights_in_a_file_go_on_and_a_rank_that_does_not_see_it_is_named() -> tuple[str, str]:
    enter(on_group())
    folder = [tempfile.mkdtemp() if rank() == 0 else ""]
    dist.broadcast_object_list(folder)
    path = Path(folder[0], "model.safetensors")
    try:
        model = network({})
        ist = joinsum.IST(model, adam(model.parameters()), every=2)
        for number, batch in enumerate(batches(5 * ranks(), torch.float64)[rank() :: ranks()]):
            plain_step(model, ist.optimizer, Batch(number, *batch))
        ist.save_safetensors(path)
        again = network({})
        resumed = joinsum.IST(again, adam(again.parameters()), every=2, seed=3)
        resumed.load_safetensors(path)
        assert (resumed.rounds, resumed.steps) == (ist.rounds, ist.steps) == (3, 5)
        wanted, found = ist.gather().state_dict(), resumed.gather().state_dict()
        assert all(torch.equal(value, wanted[name]) for name, value in found.items())
        plain = network({})
        joinsum.load_safetensors(path, plain)
        assert all(torch.equal(value, wanted[name]) for name, value in plain.state_dict().items())
        lost = joinsum.IST(plain, adam(plain.parameters()))
        return error_of(lambda: lost.load_safetensors(path if rank() else path.with_name("none")))[:2]
    finally:
        dist.barrier()
        if rank() == 0:
            shutil.rmtree(folder[0], ignore_errors=True)


def branched(group: bool, make: Callable[..., torch.optim.Optimizer]) -> dict[str, Any]:
    """Trains the second branch on the last site alone, from the second round on; the model and states in the end."""
    enter(on_group() if group else on_loopback())
    model, every = Branches(), 2
    ist = joinsum.IST(model, make(model.parameters(), lr=0.01), every=every, seed=2)
    assert len(ist.layers) == 4
    for place, batch in enumerate(batches(3 * every * ranks() + ranks(), torch.float64)):
        site = place % ranks()
        if site in joinsum.context().local_sites:
            model.taken = [int(site == ranks() - 1 and place >= every * ranks())]
            plain_step(model, ist.optimizer, Batch(place, *batch))
        if place == (2 * every + 1) * ranks() - 1:
            report = ist.explain()
    found: dict[str, Any] = {**ist.gather().state_dict(), "bytes": report.round_bytes}
    for name, p in model.named_parameters():
        # Numbers are each site's own.
        found |= {f"{name}.{key}": x for key, x in ist.optimizer.state[p].items() if x.shape == p.shape}
    return found


@scene(SCENES)
def sites_that_train_other_branches_give_what_loopback_gives() -> float:
    total = 0.0
    for make in (torch.optim.Adam, partial(torch.optim.SGD, momentum=0.9)):
        own = branched(True, make)
        if rank() == 0:
            other = branched(False, make)
            assert own.keys() == other.keys()
            differ = [n for n, x in other.items() if not torch.equal(torch.as_tensor(x), torch.as_tensor(own[n]))]
            assert not differ, differ
        total += sum(float(x.abs().sum()) for n, x in own.items() if n != "bytes" and "num_batches" not in n)
    return total


@scene(SCENES)
def parameters_that_no_layer_cuts_may_have_another_optimizer() -> float:
    enter(on_group())
    model = network({})
    *most, last = model.parameters()
    start = last.detach().clone()
    own, other = torch.optim.Adam(most, lr=0.01), torch.optim.SGD([last], lr=0.1, momentum=0.9)
    data = batches(4 * ranks(), torch.float64)[rank() :: ranks()]
    with joinsum.IST(model, own, every=2):
        for place, batch in enumerate(data):
            other.zero_grad()
            plain_step(model, own, Batch(place, *batch))
            other.step()
    assert not torch.equal(last, start)
    return sum(float(p.detach().abs().sum()) for p in model.parameters())


@scene(SCENES)
def training_goes_on_after_survivors_were_written_while_weights_moved() -> None:
    found = []
    for writes in (False, True):
        enter(on_group())
        model = network({})
        ist = joinsum.IST(model, adam(model.parameters()), every=3)
        for place, batch in enumerate(batches(9 * ranks(), torch.float64)[rank() :: ranks()]):
            plain_step(model, ist.optimizer, Batch(place, *batch))
            if writes and place in (0, 1, 4):
                with tempfile.TemporaryDirectory() as folder:
                    ist.save_survivor(folder)
        found.append(ist.gather().state_dict())
    assert all(torch.equal(found[0][name], wanted) for name, wanted in found[1].items())


@scene(SCENES)
def the_full_model_is_there_where_not_all_ranks_have_taken_a_step() -> list[float]:
    folders: list[Any] = [tempfile.mkdtemp() if rank() == 0 else None]
    dist.broadcast_object_list(folders)
    enter(on_group())
    model, sums = network({}), []
    ist = joinsum.IST(model, adam(model.parameters()), every=None)
    data = iter(batches(3, torch.float64))
    for load in (False, True):
        if load:
            ist.save_checkpoint(folders[0])
            ist.load_checkpoint(folders[0])
        if rank() == 0:
            plain_step(model, ist.optimizer, Batch(0, *next(data)))
        ist.explain()
        with ist.full() as full:
            values = joinsum.full_state_dict(full)
            sums.append(sum(float(x.abs().sum()) for name, x in values.items() if "num_batches" not in name))
        ist.end_round()
    dist.barrier()
    if rank() == 0:
        shutil.rmtree(folders[0])
    return sums


@scene(SCENES)
def recovery_knows_states_that_only_some_ranks_have() -> float:
    enter(on_group())
    model = Branches()
    ist = joinsum.IST(model, adam(model.parameters()), every=None, buddy=True)
    for place, batch in enumerate(batches(3, torch.float64)):
        model.taken = [int(rank() == 0 and place == 1)]
        plain_step(model, ist.optimizer, Batch(place, *batch))
        if place == 1:
            ist.recover()
        else:
            ist.end_round()
    return sum(float(x.abs().sum()) for name, x in ist.gather().state_dict().items() if "num_batches" not in name)


@scene(SCENES)
def a_group_of_one_rank_trains_as_plain_torch_to_the_bit() -> None:
    groups = [dist.new_group([each]) for each in range(ranks())]
    enter(on_group(group=groups[rank()]))
    model, plain = network({}), network({})
    own, other = adam(model.parameters()), adam(plain.parameters())
    with joinsum.IST(model, own, every=2) as ist:
        for number, batch in enumerate(batches(5 + rank(), torch.float64)):  # nobody waits for another group
            plain_step(model, own, Batch(number, *batch))
            plain_step(plain, other, Batch(number, *batch))
    assert (joinsum.sites(), ist.rounds) == (1, (5 + rank()) // 2)
    for name, wanted in plain.state_dict().items():
        assert torch.equal(model.state_dict()[name], wanted), name
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        assert all(torch.equal(own.state[p][key], wanted) for key, wanted in other.state[q].items())
    dist.barrier()
