"""Claims about training by plans, on sites where dividing work pays: what they compute is what plain torch does."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import joinsum
import pytest
import torch
from joinsum import DistributedTensor
from joinsum.distributed.distributed_tensor import gathered
from models import CASES, batches, new_model
from torch import Tensor, nn
from training import (
    CLUSTERS,
    CUTTING,
    EVERYTHING,
    Make,
    adam,
    cases,
    compare,
    divided,
    inside,
    same,
    sgd,
    train_by_torch,
)

SITES = [1, 2, 3, 4, 8]
ALL = list(itertools.product(CASES, SITES))


def chosen(*some: tuple[str, int]) -> pytest.MarkDecorator:
    """Cases by name on a number of sites; all of them in the nightly run."""
    return pytest.mark.parametrize(("name", "sites"), ALL if EVERYTHING else some)


@pytest.fixture(autouse=True)
def afterwards_one_site() -> Iterator[None]:
    yield
    joinsum.init()


def on(sites: int, cluster: joinsum.Cluster = CUTTING) -> None:
    torch._dynamo.reset()
    joinsum.init(sites=sites, cluster=cluster)


# --- whole steps ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize(("name", "kind", "optimizer", "tolerance"), cases())
def test_ten_steps_on_four_sites_are_torchs(
    name: str, kind: str, optimizer: Make, tolerance: float, cluster: str
) -> None:
    on(4, CLUSTERS[cluster])
    compare(name, optimizer, torch.float64, tolerance)


@chosen(("mlp", 1), ("mlp", 8), ("cnn", 2), ("cnn", 3), ("encoder", 2), ("gpt", 4), ("llama", 3), ("t5", 4))
def test_ten_planned_steps_of_sgd_with_momentum_are_torchs(name: str, sites: int) -> None:
    on(sites)
    compare(name, sgd, torch.float32, 1e-5)


@chosen(("mlp", 8), ("cnn", 3), ("llama", 2))
def test_ten_planned_steps_of_adam_in_double_precision_are_torchs(name: str, sites: int) -> None:
    on(sites)
    compare(name, adam, torch.float64, 1e-8)


@chosen(("mlp", 3), ("cnn", 2))
def test_losses_of_a_hundred_planned_steps_are_torchs(name: str, sites: int) -> None:
    on(sites)
    plain, planned = new_model(name), new_model(name)
    loss, data = CASES[name].loss, batches(name, 5) * 20
    wanted = train_by_torch(plain, loss, torch.optim.SGD(plain.parameters(), lr=0.05), data)
    step = joinsum.train_step(planned, loss, torch.optim.SGD(planned.parameters(), lr=0.05))
    losses = [step(x, y).item() for x, y in data]
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(wanted), rtol=1e-4, atol=0)
    assert sum(losses[-5:]) < sum(losses[:5])


# --- the user's loop --------------------------------------------------------------------------------------------------


@chosen(("mlp", 8), ("cnn", 3), ("llama", 4))
def test_a_distributed_model_trains_by_plans_in_the_users_loop(name: str, sites: int) -> None:
    on(sites)
    plain, model = new_model(name), new_model(name)
    loss, data = CASES[name].loss, batches(name, 3)
    joinsum.distribute(model, data[0][0])
    one, other = sgd(plain.parameters()), sgd(model.parameters())
    for x, y in data:
        for each, optimizer in ((plain, one), (model, other)):
            optimizer.zero_grad()
            loss(each(x), y).backward()
            nn.utils.clip_grad_norm_(each.parameters(), 0.5)
            optimizer.step()
        assert sites == 1 or divided(model) or joinsum.trace().bytes_sent > 0
        for p, q in zip(model.parameters(), plain.parameters(), strict=True):
            assert isinstance(p.grad, DistributedTensor)
            assert p.grad.physical_type == p.physical_type
            torch.testing.assert_close(p.grad.full_tensor(), q.grad, rtol=1e-4, atol=1e-5)
    for each in (plain, model):
        each.eval()
    with torch.no_grad():
        torch.testing.assert_close(model(data[0][0]), plain(data[0][0]), rtol=1e-4, atol=1e-5)
    same(joinsum.gather(model), plain, 1e-5)


# --- random numbers ---------------------------------------------------------------------------------------------------


class Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 12), nn.Dropout(0.5), nn.Linear(12, 3), nn.Dropout(0.25))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def dropping_losses(sites: int, seed: int) -> list[float]:
    on(sites)
    torch.manual_seed(7)
    model = Dropping()
    step = joinsum.train_step(model, CASES["mlp"].loss, sgd(model.parameters()))
    torch.manual_seed(seed)
    losses = [step(x, y).item() for x, y in batches("mlp", 2) + batches("mlp", 1)]
    assert sites == 1 or divided(model)
    return losses


def test_dropouts_mask_is_a_function_of_the_seed_on_any_number_of_sites() -> None:
    wanted = dropping_losses(1, seed=3)
    for sites in (2, 3, 4):
        assert dropping_losses(sites, seed=3) == pytest.approx(wanted, rel=1e-5)
    assert dropping_losses(1, seed=4) != pytest.approx(wanted, rel=1e-2)


@pytest.mark.parametrize("sites", [1, 3])
def test_the_backward_pass_has_the_mask_of_the_forward_pass(sites: int) -> None:
    on(sites)
    drop = joinsum.compile(lambda x: torch.nn.functional.dropout(x * 2.0, 0.25))
    x = torch.ones(100, 40, requires_grad=True)
    torch.manual_seed(1)
    first, second = drop(x), drop(x)
    (gradient,) = torch.autograd.grad(first.sum(), x)
    assert torch.equal(gradient, first.detach())  # 2 / (1 - p) where the mask holds, and 0
    assert first.unique().tolist() == pytest.approx([0, 2 / 0.75])
    assert (first == 0).float().mean().item() == pytest.approx(0.25, abs=0.03)
    assert 0.2 < ((first == 0) != (second == 0)).float().mean() < 0.55
    torch.manual_seed(1)
    assert torch.equal(drop(x), first)


# --- bad input --------------------------------------------------------------------------------------------------------


def test_a_step_goes_on_after_batches_that_are_refused() -> None:
    on(3)
    plain, planned = new_model("mlp"), new_model("mlp")
    loss, data = CASES["mlp"].loss, batches("mlp", 4)
    wanted = train_by_torch(plain, loss, sgd(plain.parameters()), data)
    step = joinsum.train_step(planned, loss, sgd(planned.parameters()))
    losses = []
    for x, y in data:
        losses.append(step(x, y).item())
        with pytest.raises(joinsum.CaptureError, match="same reduction dim"):
            step(x[:, :-1], y)
        with pytest.raises(joinsum.CaptureError, match=r"batch_size|size"):
            step(x, y[:-1])
    assert losses == pytest.approx(wanted, rel=1e-5)
    step.sync()
    same(planned, plain, 1e-5)


def test_batches_that_are_no_numbers_make_parameters_none_and_other_steps_go_on() -> None:
    on(4)
    model = new_model("cnn")
    step = joinsum.train_step(model, CASES["cnn"].loss, sgd(model.parameters()))
    ((x, y),) = batches("cnn", 1)
    assert step(x * float("nan"), y).isnan()
    assert all(p.full_tensor().isnan().all() for p in (model.head.bias, model.conv.weight))
    compare("mlp", sgd, torch.float32, 1e-5, steps=2)


# --- checkpoints ------------------------------------------------------------------------------------------------------

PAIRS = list(itertools.product(SITES, [*SITES, None]))
SOME = [("cnn", 1, 4), ("cnn", 3, 8), ("cnn", 4, None), ("llama", 4, 3)]


@pytest.mark.parametrize(
    ("name", "saved", "loaded"),
    [(name, *pair) for name in ("cnn", "llama") for pair in PAIRS] if EVERYTHING else SOME,
)
def test_training_goes_on_from_a_checkpoint_of_other_sites(
    name: str, saved: int, loaded: int | None, tmp_path: Path
) -> None:
    loss, data = CASES[name].loss, batches(name, 4, dtype=torch.float64)

    def fresh(sites: int | None) -> tuple[nn.Module, torch.optim.Optimizer, Any]:
        on(sites or 1)
        model = new_model(name, torch.float64)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, eps=1e-5, amsgrad=True)
        return model, optimizer, joinsum.train_step(model, loss, optimizer) if sites else None

    plain, its, _ = fresh(None)
    wanted = train_by_torch(plain, loss, its, data)
    model, optimizer, step = fresh(saved)
    losses = [step(x, y).item() for x, y in data[:2]]
    assert saved == 1 or inside(model)
    joinsum.save_checkpoint(tmp_path, model, optimizer, extra={"step": 2})
    keys = list(model.state_dict())
    values = [gathered(x) for x in model.state_dict().values()]
    model, optimizer, step = fresh(loaded)
    if step is not None:
        step(*data[3])  # so that it has its own cuts when it is loaded
        assert loaded == 1 or inside(model)
    assert joinsum.load_checkpoint(tmp_path, model, optimizer) == {"step": 2}
    assert list(model.state_dict()) == keys
    assert all(torch.equal(gathered(x), y) for x, y in zip(model.state_dict().values(), values, strict=True))
    if step is not None:
        losses += [step(x, y).item() for x, y in data[2:]]
        step.sync()
    else:
        losses += train_by_torch(model, loss, optimizer, data[2:])
    assert losses == pytest.approx(wanted, rel=1e-9)
    same(model, plain, 1e-8)


def test_a_gathered_hugging_face_model_is_saved_and_read_by_its_own_functions(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=17,
        hidden_size=8,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
    )
    torch.manual_seed(7)
    plain = transformers.LlamaForCausalLM(config)
    torch.manual_seed(7)
    model = transformers.LlamaForCausalLM(config)
    ids = batches("llama", 1)[0][0]
    one, other = sgd(plain.parameters()), sgd(model.parameters())
    plain(input_ids=ids, labels=ids).loss.backward()
    one.step()
    on(3)
    step = joinsum.train_step(model, None, other)
    step(input_ids=ids, labels=ids)
    assert divided(model)
    joinsum.gather(model, other)
    model.save_pretrained(tmp_path)
    read = transformers.LlamaForCausalLM.from_pretrained(tmp_path)
    same(read, plain, 1e-5)
