"""Scenes of training by plans, one site per rank."""

from __future__ import annotations

import contextlib
import copy
import os
import pickle
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest.mock import patch

import joinsum
import numpy as np
import torch
import torch.distributed as dist
from joinsum import DistributedTensor
from joinsum.distributed import batch_shards
from stage import Scenes, enter, error_of, on_group, rank, ranks, scene
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))
from models import CASES, batches, new_model
from training import CLUSTERS, CUTTING, EVERYTHING, cases, compare, divided, same, sgd, train_by_torch

SCENES: Scenes = {}


def begin(cluster: joinsum.Cluster = CUTTING) -> None:
    """Sites of this group; by default where dividing work pays."""
    torch._dynamo.reset()
    enter(on_group()).cluster = cluster


@scene(SCENES)
def planned_steps_are_those_of_one_process() -> dict[str, list[float]]:
    """Every change trains by each optimizer on one cluster; on more than two ranks a model that is divided."""
    losses = {}
    some = {("SGD", "default"), ("AdamW", "dividing")} if ranks() == 2 else {("AdamW", "dividing")}
    for where, cluster in CLUSTERS.items():
        for name, kind, optimizer, tolerance in cases("llama") if ranks() > 2 else cases():
            if EVERYTHING or (kind, where) in some:
                begin(cluster)
                losses[f"{name}, {kind}, {where}"] = compare(name, optimizer, torch.float64, tolerance)
    return losses


@scene(SCENES)
def single_precision_and_clipping_are_those_of_one_process() -> list[float]:
    begin()
    return [
        *compare("cnn", sgd, torch.float32, 1e-5, steps=3),
        *compare("cnn", lambda p: torch.optim.AdamW(p, lr=0.01), torch.float64, 1e-9, steps=4, max_norm=0.1),
    ]


@scene(SCENES)
def one_plan_serves_several_batch_sizes() -> list[str]:
    begin()
    plain, planned = new_model("mlp"), new_model("mlp")
    loss, data = CASES["mlp"].loss, [batches("mlp", 1, n=size)[0] for size in (64, 64, 60, 17)]
    wanted = train_by_torch(plain, loss, sgd(plain.parameters()), data)
    step = joinsum.train_step(planned, loss, sgd(planned.parameters()))
    losses, origins = [], []
    for x, y in data:
        losses.append(step(x, y).item())
        origins.append(step.explain().passes[0].origin)
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(wanted), rtol=1e-4, atol=0)
    step.sync()
    same(planned, plain, 1e-5)
    return origins


@scene(SCENES)
def each_rank_passes_its_shard_of_the_batch() -> list[float]:
    begin()
    plain, planned = new_model("cnn"), new_model("cnn")
    loss, data = CASES["cnn"].loss, batches("cnn", 3, n=2 * ranks())
    wanted = train_by_torch(plain, loss, sgd(plain.parameters()), data)
    step = joinsum.train_step(planned, loss, sgd(planned.parameters()), data="sharded")
    own = slice(2 * rank(), 2 * rank() + 2)
    original = DistributedTensor.full_tensor
    DistributedTensor.full_tensor = None  # type: ignore[method-assign,assignment]  # only the plan moves data
    try:
        losses = [step(x[own], y[own]).item() for x, y in data]
    finally:
        DistributedTensor.full_tensor = original  # type: ignore[method-assign]
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(wanted), rtol=1e-4, atol=0)
    step.sync()
    same(planned, plain, 1e-5)
    return losses


@scene(SCENES)
def a_distributed_model_takes_and_returns_shards() -> list[float]:
    begin()
    plain, planned = new_model("cnn"), new_model("cnn")
    loss, data = CASES["cnn"].loss, batches("cnn", 3, n=2 * ranks())
    wanted = train_by_torch(plain, loss, sgd(plain.parameters()), data)
    own = slice(2 * rank(), 2 * rank() + 2)
    joinsum.distribute(planned, data[0][0][own], data="sharded")
    optimizer = sgd(planned.parameters())
    losses = []
    for x, y in data:
        with patch.object(batch_shards, "_LocalShard", None):  # which takes the shard of what every rank has
            scores = planned(x[own])
        assert len(scores) == 2
        value = loss(scores, y[own])
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(value.detach_())
        losses.append(value.item() / ranks())
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(wanted), rtol=1e-4, atol=0)
    assert divided(planned)
    joinsum.gather(planned, optimizer)
    same(planned, plain, 1e-5)
    shard = torch.ones(2, 6, requires_grad=True)
    error = error_of(lambda: joinsum.distribute(new_model("mlp"), shard, data="sharded"))
    assert "shard of a batch has no gradient" in error[1]
    return losses


class Words(nn.Module):
    """Scores by the mean of few rows of a table, whose gradient is sparse."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(300, 8, sparse=True, dtype=torch.float64)
        self.scores = nn.Linear(8, 5, dtype=torch.float64)

    def forward(self, words: Tensor) -> Tensor:
        scores: Tensor = self.scores(self.table(words).mean(1))
        return scores


@scene(SCENES)
def tables_with_sparse_gradients_train_on_shards() -> list[float]:
    """A table that is cut, as torch's SparseAdam updates it by the rows of all ranks' shards."""
    begin()
    torch.manual_seed(0)
    plain = Words()
    planned = copy.deepcopy(plain)
    generator = torch.Generator().manual_seed(1)
    words = torch.randint(0, 300, (4, 2 * ranks(), 3), generator=generator)
    classes = torch.randint(0, 5, (4, 2 * ranks()), generator=generator)
    own = slice(2 * rank(), 2 * rank() + 2)
    joinsum.distribute(planned, words[0, own], data="sharded")
    parts = (ranks(), 1)
    planned.table.weight.data = DistributedTensor.of(planned.table.weight.full_tensor().detach(), parts)
    losses = []
    for model, shard in ((plain, slice(None)), (planned, own)):
        optimizers = [torch.optim.SparseAdam(model.table.parameters(), lr=0.1), sgd(model.scores.parameters())]
        for x, y in zip(words, classes, strict=True):
            nn.functional.cross_entropy(model(x[shard]), y[shard]).backward()
            assert model.table.weight.grad is not None
            assert model.table.weight.grad.is_sparse
            for each in optimizers:
                each.step()
                each.zero_grad()
        losses.append(nn.functional.cross_entropy(model(words[0, shard]), classes[0, shard]).item())
    assert divided(planned)
    joinsum.gather(planned)
    same(planned, plain, 1e-10)
    return losses[:1]


def shares(total: int) -> list[int]:
    """Rows on each rank: none on the last one, more on the first."""
    counts = [total // ranks() + (each == 0) - (each == ranks() - 1) for each in range(ranks())]
    return [total - sum(counts[1:]), *counts[1:]]


@scene(SCENES)
def ranks_pass_shards_of_several_lengths() -> list[float]:
    """In training steps and in the user's loop, after a batch of equal shards, and with a rank that has none."""
    begin()
    case = CASES["mlp"]
    data = [batches("mlp", 1, n=n)[0] for n in (2 * ranks(), ranks(), 2 * ranks() + 1, 2 * ranks())]
    counts = [[2] * ranks(), shares(ranks()), shares(2 * ranks() + 1), [2] * ranks()]
    plain, planned, looped = (new_model("mlp") for _ in range(3))
    wanted = train_by_torch(plain, case.loss, sgd(plain.parameters()), data)
    step = joinsum.train_step(planned, case.loss, sgd(planned.parameters()), data="sharded", outputs="local")
    joinsum.distribute(looped, data[0][0][:2], data="sharded")
    optimizer = sgd(looped.parameters())
    losses = []
    for (x, y), each in zip(data, counts, strict=True):
        own = slice(sum(each[: rank()]), sum(each[: rank() + 1]))
        losses.append(step(x[own], y[own]).item())
        scores = looped(x[own])
        assert len(scores) == each[rank()]
        # The mean of the ranks' losses is that of the batch where each is weighted by its share.
        value = case.loss(scores, y[own]) * each[rank()] * ranks() / sum(each) if each[rank()] else scores.sum()
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(wanted), rtol=1e-4, atol=0)
    for model in (planned, looped):
        joinsum.gather(model)
        same(model, plain, 1e-5)
    return losses


def with_scores(scores: Tensor, target: Tensor) -> dict[str, Tensor]:
    """A loss with results whose first axis is the batch's, and one of another axis."""
    right = scores.argmax(1) == target
    return {"loss": CASES["mlp"].loss(scores, target), "scores": scores, "right": right, "mean": scores.mean(0)}


@scene(SCENES)
def results_beside_the_loss_are_gathered_sharded_or_local() -> dict[str, str]:
    """Of equal shards, unequal ones, and equal ones again; returns the layout of the scores that stay distributed."""
    begin()
    data = [batches("mlp", 1, n=n)[0] for n in (2 * ranks(), 2 * ranks() + 1, 2 * ranks())]
    counts = [[2] * ranks(), shares(2 * ranks() + 1), [2] * ranks()]
    layouts = {}
    for outputs in (None, "gathered", "sharded", "local") if EVERYTHING else ("gathered", "sharded", "local"):
        plain, planned = new_model("mlp"), new_model("mlp")
        optimizer = sgd(plain.parameters())
        step = joinsum.train_step(planned, with_scores, sgd(planned.parameters()), data="sharded", outputs=outputs)
        for (x, y), each in zip(data, counts, strict=True):
            own = slice(sum(each[: rank()]), sum(each[: rank() + 1]))
            wanted = {name: value.detach() for name, value in with_scores(plain(x), y).items()}
            train_by_torch(plain, CASES["mlp"].loss, optimizer, [(x, y)])
            found = step(x[own], y[own])
            assert found.keys() == wanted.keys()
            for name in ("scores", "right", "mean"):
                assert isinstance(found[name], DistributedTensor) is (outputs == "sharded"), (outputs, name)
            if outputs == "sharded":
                layouts[str(len(y))] = str(found["scores"].physical_type)
                found = {name: value if name == "loss" else value.full_tensor() for name, value in found.items()}
            elif outputs == "local":
                wanted |= {name: wanted[name][own] for name in ("scores", "right")}
            torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
        joinsum.gather(planned)
        same(planned, plain, 1e-5)
    return layouts


@scene(SCENES)
def evaluation_between_steps_gathers_no_parameter() -> int:
    """Returns how many parameters have no copy of all of their elements on a rank."""
    begin()
    plain, planned = new_model("mlp"), new_model("mlp")
    loss, ((x, y), (other, _)) = CASES["mlp"].loss, batches("mlp", 2, n=2 * ranks())
    step = joinsum.train_step(planned, loss, sgd(planned.parameters()))
    step(x, y)
    train_by_torch(plain, loss, sgd(plain.parameters()), [(x, y)])
    gathered: list[Tensor] = []
    original = DistributedTensor.unsharded

    def noting(tensor: DistributedTensor) -> Tensor:
        gathered.append(tensor)
        return original(tensor)

    with patch.object(DistributedTensor, "unsharded", noting), torch.no_grad():
        found = [step.evaluate(other), planned(other)]
    states = {id(each) for each in planned.parameters()}
    assert not [each for each in gathered if id(each) in states or each.shape != found[0].shape]
    for each in found:
        torch.testing.assert_close(each, plain(other).detach(), rtol=1e-5, atol=1e-6)
    return len(divided(planned))


@scene(SCENES)
def shards_of_other_widths_are_refused() -> tuple[str, str, float]:
    begin()
    model = new_model("mlp")
    step = joinsum.train_step(model, CASES["mlp"].loss, sgd(model.parameters()), data="sharded")
    ((x, y),) = batches("mlp", 1, n=2)
    error = error_of(lambda: step(torch.ones(2, 7) if rank() == 1 else x, y))
    step(x, y)
    return error


@scene(SCENES)
def ranks_that_pass_batches_of_their_own_are_told_what_to_do() -> dict[str, tuple[str, str, float]]:
    """Of other values or sizes, at the first step, at a size that is new on one rank, and at sizes that both know."""
    begin()
    loss, ((x, y),) = CASES["mlp"].loss, batches("mlp", 1, n=8)
    own, rows = rank() == 1, slice(6 if rank() == 1 else 8)
    errors = {}
    for way in ("step", "loop"):
        for case in ("values", "size"):
            call = one_step(way, new_model("mlp"), loss, x)
            inputs = (x + own, y) if case == "values" else (x[rows], y[rows])
            errors[f"{way}, {case}"] = error_of(partial(call, *inputs))
            call(x, y)
        call = one_step(way, new_model("mlp"), loss, x)
        call(x, y)
        errors[f"{way}, a new size"] = error_of(partial(call, x[rows], y[rows]))
        call(x[:6], y[:6])
        errors[f"{way}, known sizes"] = error_of(partial(call, x[rows], y[rows]))
        call(x, y)
    return errors


def one_step(way: str, model: nn.Module, loss: Callable[..., Tensor], x: Tensor) -> Callable[[Tensor, Tensor], object]:
    """A training step, or forward and backward pass of a distributed model."""
    if way == "step":
        return joinsum.train_step(model, loss, sgd(model.parameters()))
    model = joinsum.distribute(model, x)
    return lambda x, y: loss(model(x), y).backward()


class Small(nn.Module):
    """A layer, and then a function of the test."""

    def __init__(self, then: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.layer, self.then = nn.Linear(4, 4), then

    def forward(self, x: Tensor) -> Tensor:
        return self.then(self.layer(x))


def dropped(x: Tensor) -> Tensor:
    return nn.functional.dropout(x, 0.5)


def small_step(then: Callable[[Tensor], Tensor]) -> Callable[[], Tensor]:
    model = Small(then)
    step = joinsum.train_step(model, nn.functional.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1))
    return lambda: step(torch.ones(6, 4), torch.zeros(6, 4))


def seeded_losses(step: Callable[[], Tensor]) -> list[float]:
    torch.manual_seed(3)
    return [float(step()) for _ in range(3)]


@scene(SCENES)
def dropout_on_a_group_is_that_of_one_process_with_the_first_ranks_seed() -> tuple[list[float], list[str]]:
    begin()
    step = small_step(dropped)
    losses = seeded_losses(step)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            torch.manual_seed(rank())
            losses.append(float(step()))
    enter(joinsum.Context(joinsum._C.make_loopback(1), CUTTING, None, 60.0, joinsum._C.make_store("memory")))
    torch._dynamo.reset()
    step = small_step(dropped)
    wanted = seeded_losses(step)
    for _ in range(2):
        torch.manual_seed(0)
        wanted.append(float(step()))
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(wanted))
    return losses, [str(each.message) for each in caught if "generators differ" in str(each.message)]


@scene(SCENES)
def models_of_other_seeds_take_the_first_ranks_values() -> tuple[list[float], list[str]]:
    losses: dict[str, list[float]] = {}
    notes = []
    for way in ("plain", "train_step", "distribute", "init_empty"):
        begin()
        torch.manual_seed(0 if way == "plain" else rank())
        with joinsum.init_empty() if way == "init_empty" else contextlib.nullcontext():
            model = nn.Sequential(nn.Linear(150, 150), nn.BatchNorm1d(150), nn.Linear(150, 150))
        x = torch.randn(6, 150, generator=torch.Generator().manual_seed(1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if way in ("train_step", "init_empty"):
                step = joinsum.train_step(model, nn.functional.mse_loss, optimizer)
                losses[way] = [float(step(x, x)) for _ in range(3)]
            else:
                if way == "distribute":
                    joinsum.distribute(model, x)
                losses[way] = []
                for _ in range(3):
                    value = nn.functional.mse_loss(model(x), x)
                    optimizer.zero_grad()
                    value.backward()
                    optimizer.step()
                    losses[way].append(float(value))
        notes += [str(each.message) for each in caught if "different parameters" in str(each.message)]
    for each in losses.values():
        torch.testing.assert_close(torch.tensor(each), torch.tensor(losses["plain"]), rtol=1e-5, atol=1e-6)
    return losses["plain"], notes


@scene(SCENES)
def ranks_with_different_models_all_raise() -> list[tuple[str, str, float]]:
    begin()
    odd = rank() == 1
    calls: list[Callable[[], object]] = [
        small_step(torch.tanh if odd else torch.relu),
        lambda: joinsum.distribute(Small(torch.tanh if odd else torch.relu), torch.ones(6, 4)),
        small_step(without_rule if odd else torch.relu),
        lambda: joinsum.distribute(Small(branching if odd else torch.relu), torch.ones(6, 4)),
    ]
    errors = []
    for call in calls:
        torch._dynamo.reset()
        errors.append(error_of(call))
    small_step(torch.relu)()
    return errors


def without_rule(x: Tensor) -> Tensor:
    return x * torch.special.bessel_j0(x.detach())


def branching(x: Tensor) -> Tensor:
    return x if x.sum() > 0 else -x


@scene(SCENES)
def planned_state_goes_to_other_numbers_of_sites_and_to_dtensors() -> int:
    begin()
    name = [tempfile.mkdtemp() if rank() == 0 else None]
    dist.broadcast_object_list(name)
    folder = Path(str(name[0]))
    model = new_model("mlp")
    optimizer = torch.optim.AdamW(model.parameters(), amsgrad=True)
    step = joinsum.train_step(model, CASES["mlp"].loss, optimizer)
    step(*batches("mlp", 1)[0])
    assert divided(model)
    joinsum.save_checkpoint(folder, model, optimizer)
    kind, text, _ = error_of(lambda: pickle.dumps(next(model.parameters())))
    assert kind == "PlanError"
    assert "joinsum.full_state_dict" in text
    for call, remedy in ((lambda x: x.numpy(), "numpy"), (np.asarray, "numpy"), (lambda x: x.tolist(), "tolist")):
        kind, text, _ = error_of(lambda call=call: call(next(model.parameters()).detach()))  # type: ignore[misc]
        assert kind == "PlanError"
        assert f"x.full_tensor().{remedy}()" in text
    count = 0
    for x in model.parameters():
        try:
            there = joinsum.to_dtensor(x)
        except joinsum.PlanError:
            continue  # its blocks are none that a DTensor has
        count += 1
        assert torch.equal(there.full_tensor(), x.detach().full_tensor())
        assert there.to_local().untyped_storage().data_ptr() == x.blocks()[0].untyped_storage().data_ptr()
        assert torch.equal(joinsum.from_dtensor(there).full_tensor(), x.detach().full_tensor())
    values = [x.full_tensor() for x in model.state_dict().values()]
    enter(joinsum.Context(joinsum._C.make_loopback(3), CUTTING, None, 60.0, joinsum._C.make_store("memory")))
    torch._dynamo.reset()
    other = new_model("mlp")
    its = torch.optim.AdamW(other.parameters(), amsgrad=True)
    joinsum.train_step(other, CASES["mlp"].loss, its)(*batches("mlp", 1)[0])
    with torch.no_grad():
        for p in other.parameters():
            p.zero_()
    joinsum.load_checkpoint(folder, other, its)
    assert all(torch.equal(x.full_tensor(), y) for x, y in zip(other.state_dict().values(), values, strict=True))
    assert os.path.exists(folder / "current.json")
    return count
