"""Scenes of independent subnet training: a group of ranks gives what as many loopback sites give, bit for bit."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import joinsum
import torch
import torch.distributed as dist
from joinsum.cluster.context import Context
from stage import Scenes, enter, error_of, everywhere, on_group, on_loopback, rank, ranks, scene
from torch import nn

SCENES: Scenes = {}

Batch = tuple[torch.Tensor, torch.Tensor]


def mlp(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        *(nn.Linear(10, 21), nn.BatchNorm1d(21), nn.ReLU()),
        *(nn.Linear(21, 30), nn.BatchNorm1d(30), nn.ReLU()),
        nn.Linear(30, 5),
    )


def with_attention(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    block = nn.TransformerEncoderLayer(16, 4, 24, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.Linear(10, 48), nn.Unflatten(1, (3, 16)), block, nn.Flatten(), nn.Linear(48, 5))


def convolutions(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Unflatten(1, (1, 10)),
        *(nn.Conv1d(1, 13, 3), nn.BatchNorm1d(13), nn.ReLU()),
        *(nn.Conv1d(13, 9, 3), nn.BatchNorm1d(9), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(54, 5)),
    )


def batches(count: int) -> list[Batch]:
    generator = torch.Generator().manual_seed(5)
    return [
        (torch.randn(16, 10, generator=generator), torch.randint(0, 5, (16,), generator=generator))
        for _ in range(count)
    ]


def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch) -> None:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
    optimizer.step()


def trained(
    data: list[Batch], seed: int, make: Callable[[int], nn.Module] = mlp, every: int | None = 3, **options: Any
) -> tuple[joinsum.IST, nn.Module, int]:
    """The IST of a model after these batches in rounds of three, the model, and the bytes of its last exchange."""
    model = make(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    ist = joinsum.IST(model, optimizer, every=every, seed=7, **options)
    length = 3 * len(joinsum.context().local_sites)
    for start in range(0, len(data), length):
        with nullcontext() if every else ist.round():
            for batch in data[start : start + length]:
                step(model, optimizer, batch)
    return ist, model, sum(entry.bytes_sent for entry in joinsum.trace())


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


WAYS: list[dict[str, Any]] = [
    {},
    {"homes": "fixed"},
    {"buddy": True},
    {"state": "reset"},
    {"every": None},
    {"make": with_attention, "attention_heads": True},
    {"make": convolutions, "wire": torch.bfloat16},
    {"layers": [("0", "1", "3")], "scaled": True},
]
EVERYTHING = os.environ.get("JOINSUM_ALL_MODELS", "0") not in ("", "0")


@scene(SCENES)
def a_group_trains_what_loopback_trains() -> float:
    data = batches(9 * ranks())
    total = 0.0
    for options in WAYS if EVERYTHING or ranks() == 4 else WAYS[:1]:
        enter(on_group())
        ist, _, sent = trained(data[rank() :: ranks()], 1 + rank(), **options)  # all take the first rank's values
        assert (ist.rounds, ist.site) == (3, rank())
        assert ("2.self_attn" in [layer.name for layer in ist.layers]) == ("attention_heads" in options)
        own = ist.gather().state_dict()
        sent = everywhere(sent)
        if rank() == 0:
            enter(on_loopback())
            ist, _, counted = trained(data, 1, **options)
            assert equal(own, ist.gather().state_dict()), options
            assert sent == counted, options
        total += sum(float(tensor.double().abs().sum()) for tensor in own.values())
    return total


@scene(SCENES)
def a_checkpoint_of_the_group_goes_on_as_training_does() -> None:
    folder = [tempfile.mkdtemp() if rank() == 0 else ""]
    dist.broadcast_object_list(folder)
    try:
        context = enter(on_group())
        data = batches(11 * ranks())[rank() :: ranks()]
        ist, model, _ = trained(data[:7], seed=1)
        ist.save_checkpoint(folder[0], {"epoch": 2})
        assert ist.rounds == 3
        again = mlp(3)
        optimizer = torch.optim.Adam(again.parameters(), lr=0.5)
        resumed = joinsum.IST(again, optimizer, every=3, seed=1)
        assert resumed.load_checkpoint(folder[0]) == {"epoch": 2}
        for batch in data[7:]:
            step(again, optimizer, batch)
            step(model, ist.optimizer, batch)
        assert equal(ist.gather().state_dict(), resumed.gather().state_dict())
        plain = mlp(4)
        note = joinsum.load_checkpoint(folder[0], plain)
        assert note == {"joinsum.IST": {"round": 3, "step": 7, "seed": 7}, "extra": {"epoch": 2}}
        assert context.sites == ranks()
        dist.barrier()
    finally:
        if rank() == 0:
            shutil.rmtree(folder[0], ignore_errors=True)


@scene(SCENES)
def the_full_model_is_evaluated_where_its_parts_are() -> None:
    enter(on_group())
    ist, _, _ = trained(batches(7 * ranks())[rank() :: ranks()], seed=1)
    inputs = [batch[0] for batch in batches(3)]
    before = ist.neurons("0")
    with ist.full(calibrate=inputs, data="whole") as model, torch.no_grad():
        found = model(inputs[0])
        weight = dict(model.named_parameters())["3.weight"]
        assert isinstance(weight, joinsum.DistributedTensor)
        assert sum(block.numel() for block in weight.stored.blocks()) < weight.numel()
        state = joinsum.full_state_dict(model)
    with ist.full(calibrate=[inputs[rank() % 3]]) as model, torch.no_grad():
        own = model(inputs[rank() % 3])  # each rank's own shard, of a batch that all have together
    plain = mlp(2)
    plain.load_state_dict(state)
    torch.optim.swa_utils.update_bn([torch.cat([inputs[each % 3] for each in range(ranks())])], plain)
    assert torch.allclose(own, plain.eval()(inputs[rank() % 3]), atol=1e-6)
    plain.load_state_dict(state)
    torch.optim.swa_utils.update_bn(inputs, plain)
    assert torch.allclose(found, plain.eval()(inputs[0]), atol=1e-6)
    assert ist.neurons("0") == before


def moved(data: list[Batch], **options: Any) -> tuple[dict[str, torch.Tensor], list[int], list[int]]:
    """The whole model after rounds of three steps, the bytes that each round sent, and those that it sent while it
    lasted."""
    model = mlp(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    ist = joinsum.IST(model, optimizer, every=3, seed=7, **options)
    sent, ahead = [], []
    for number, batch in enumerate(data, 1):
        step(model, optimizer, batch)
        if number % 3 == 2:
            report = ist.explain()
            ahead.append(report.ahead_bytes)
        if number % 3 == 0:
            sent.append(int(everywhere(sum(entry.bytes_sent for entry in joinsum.trace()))))
            assert sent[-1] == report.round_bytes
    return ist.gather().state_dict(), sent, ahead


@scene(SCENES)
def weights_that_rest_move_while_others_train() -> None:
    enter(on_group())
    data = batches(13 * ranks())[rank() :: ranks()]  # one step beyond the last round
    for wire in (None, torch.bfloat16):
        own, sent, ahead = moved(data, wire=wire)
        other, together, none = moved(data, wire=wire, overlap=False)
        assert equal(own, other)
        assert sent[0] < together[0]  # moments begin where their weights are
        assert sent[1:] == together[1:]
        assert min(ahead) > 0
        assert max(none) == 0


@scene(SCENES)
def a_training_that_has_ended_leaves_nothing_running() -> list[tuple[int, int]]:
    """Threads that move weights, and process groups, after each of four trainings."""
    folder = [tempfile.mkdtemp() if rank() == 0 else ""]
    dist.broadcast_object_list(folder)
    left = []
    try:
        enter(on_group())
        data = batches(7 * ranks())[rank() :: ranks()]
        for _ in range(4):
            ist, model, _ = trained(data, seed=1)
            ist.save_checkpoint(folder[0])
            for _ in range(2):
                step(model, ist.optimizer, data[0])  # weights move ahead
                ist.load_checkpoint(folder[0])
            ist.gather()
            moving = [each for each in threading.enumerate() if each.name.startswith("joinsum.IST")]
            left.append((len(moving), dist.get_pg_count()))
        dist.barrier()
    finally:
        if rank() == 0:
            shutil.rmtree(folder[0], ignore_errors=True)
    return left


@scene(SCENES)
def an_error_of_weights_that_move_ends_the_round() -> tuple[str, str, float]:
    enter(on_group())
    beside, execute = [], Context.execute

    def failing(self: Context, *arguments: Any, **options: Any) -> Any:
        if threading.current_thread() is threading.main_thread():
            return execute(self, *arguments, **options)
        beside.append(self)
        raise joinsum.TransportError("shuffle t1: lost site 1")

    Context.execute = failing  # type: ignore[method-assign]
    try:
        found = error_of(lambda: moved(batches(3)))
    finally:
        Context.execute = execute  # type: ignore[method-assign]
    assert [each is not joinsum.context() for each in beside] == [True]
    return found


@scene(SCENES)
def ranks_with_other_seeds_are_told_so() -> str:
    enter(on_group())
    model = mlp(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    name, text, _ = error_of(lambda: joinsum.IST(model, optimizer, seed=rank()))
    assert name == "TransportError", text
    return text


def failing_loader() -> Iterator[torch.Tensor]:
    yield batches(1)[0][0]
    raise OSError("the disk is gone")


def refused_here(case: str) -> Callable[[], object]:
    """A call that only rank 1 gets wrong."""
    odd = rank() == 1
    model = mlp(1)
    if case == "no norm" and odd:
        model[1] = nn.Identity()
    options = {"layers": [("0", "1", "nowhere" if odd else "3")]} if case == "layers" else {}
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if case == "optimizer" and odd:
        optimizer = torch.optim.Adafactor(model.parameters(), lr=0.1)
        step(model, optimizer, batches(1)[0])
    if case in ("no norm", "layers", "optimizer"):
        return lambda: joinsum.IST(model, optimizer, **options)  # type: ignore[arg-type]
    ist = joinsum.IST(model, optimizer)
    if case == "survivors":
        folder = f"{tempfile.gettempdir()}/joinsum_survivors_{rank()}_of_{ranks()}"
        shutil.rmtree(folder, ignore_errors=True)
        if not odd:
            ist.save_survivor(folder)
        return lambda: ist.load_survivors(folder)
    if case == "round":
        for batch in batches(2):
            step(model, optimizer, batch)
        if odd:
            optimizer.state[model[0].weight]["factors"] = torch.ones(3)
        return ist.end_round
    good = [batch[0] for batch in batches(3)]
    loader = {"empty": list[torch.Tensor], "failing": failing_loader, "short": lambda: good[:2]}[case] if odd else None

    def calibrate() -> None:
        with ist.full(calibrate=good if loader is None else loader(), data="whole"):
            pass

    return calibrate


@scene(SCENES)
def what_one_rank_refuses_is_told_on_all() -> dict[str, tuple[str, str, float]]:
    enter(on_group(timeout=10.0))
    return {
        case: error_of(refused_here(case))
        for case in ("no norm", "layers", "optimizer", "round", "survivors", "empty", "failing", "short")
    }
