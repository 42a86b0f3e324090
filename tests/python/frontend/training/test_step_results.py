"""Claims about what a step returns beside the loss, and how it clips gradients: all of it is plain torch's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import joinsum
import pytest
import torch
import torch.nn.functional as F
from joinsum import DistributedTensor
from models import CASES, batches, new_model
from torch import Tensor, nn
from training import CUTTING, same

LOSS = CASES["mlp"].loss


@pytest.fixture(autouse=True)
def three_sites() -> Iterator[None]:
    torch._dynamo.reset()
    joinsum.init(sites=3, cluster=CUTTING)
    yield
    joinsum.init()


def models() -> tuple[nn.Module, nn.Module]:
    return new_model("mlp", torch.float64), new_model("mlp", torch.float64)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def data(count: int) -> list[tuple[Tensor, Tensor]]:
    return batches("mlp", count, dtype=torch.float64)


# --- losses with other entries ----------------------------------------------------------------------------------------


def as_tuple(scores: Tensor, target: Tensor) -> Any:
    return LOSS(scores, target), scores, (scores.argmax(1), None, [scores[:2] * 2]), 3, 0.5, "text", scores.sum()


def as_dictionary(scores: Tensor, target: Tensor) -> Any:
    return {"scores": scores, "loss": LOSS(scores, target), "nested": {"count": len(target), "right": scores.argmax(1)}}


def without_a_name(scores: Tensor, target: Tensor) -> Any:
    return {"cross_entropy": LOSS(scores, target), "scores": scores}


@pytest.mark.parametrize("sites", [1, 3])
@pytest.mark.parametrize("function", [as_tuple, as_dictionary])
def test_entries_beside_the_loss_are_returned_detached(function: Callable[..., Any], sites: int) -> None:
    joinsum.init(sites=sites, cluster=CUTTING)
    plain, planned = models()
    optimizer, step = sgd(plain), joinsum.train_step(planned, function, sgd(planned))
    for x, y in data(3):
        wanted = function(plain(x), y)
        loss = wanted["loss"] if isinstance(wanted, dict) else wanted[0]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        actual = step(x, y)
        if isinstance(wanted, dict):
            assert actual.keys() == wanted.keys()
            assert actual["loss"].metrics["loss"] is actual["loss"]
        else:
            assert isinstance(actual, tuple)
            assert actual[2][1] is None
            assert actual[3:6] == (3, 0.5, "text")
        for found, tensor in zip(tensors(actual), tensors(wanted), strict=True):
            assert not found.requires_grad
            assert not isinstance(found, DistributedTensor)
            assert found.dtype is tensor.dtype
            torch.testing.assert_close(found, tensor.detach())
    step.sync()
    same(planned, plain, 1e-12)


def tensors(results: Any) -> list[Tensor]:
    """All tensors among results, in an order that does not depend on that of a dictionary's entries."""
    if isinstance(results, Tensor):
        return [results]
    if isinstance(results, dict):
        results = [results[name] for name in sorted(results)]
    return [x for each in results for x in tensors(each)] if isinstance(results, (list, tuple)) else []


def test_the_first_entry_of_a_dictionary_without_a_loss_is_the_loss() -> None:
    plain, planned = models()
    ((x, y),) = data(1)
    result = joinsum.train_step(planned, without_a_name, sgd(planned))(x, y)
    torch.testing.assert_close(result["loss"], LOSS(plain(x), y).detach())
    torch.testing.assert_close(result["scores"], plain(x).detach())


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda z, y: F.cross_entropy(z, y, reduction="none"), r"no loss of one element: .*shape=\[[6*]\]"),
        (lambda z, y: (z, z.sum()), r"no loss of one element: result=tuple, shape=\[[6*], 3\]"),
        (lambda z, y: {"scores": z}, r"no loss of one element: result=dict"),
        (lambda z, y: (), r"no loss of one element: result=tuple, shape=None"),
        (lambda z, y: None, r"no loss of one element: result=NoneType"),
        (lambda z, y: 3.0, r"no loss of one element: result=float"),
    ],
)
def test_what_is_no_loss_is_refused_and_changes_nothing(function: Callable[..., Any], message: str) -> None:
    plain, planned = models()
    with pytest.raises(joinsum.PlanError, match=message):
        joinsum.train_step(planned, function, sgd(planned))(*data(1)[0])
    joinsum.gather(planned)
    same(planned, plain, 0)


# --- models that give their loss --------------------------------------------------------------------------------------


def hugging_face() -> Any:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(3)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12}
    config = transformers.BertConfig(
        **sizes, vocab_size=20, max_position_embeddings=8, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    return transformers.BertForSequenceClassification(config).double().train()


def labelled() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(4)
    return {"input_ids": torch.randint(20, (6, 5), generator=generator), "labels": torch.arange(6) % 2}


def test_tuples_of_hugging_face_need_no_loss_function() -> None:
    plain, planned = hugging_face(), hugging_face()
    optimizer = sgd(plain)
    step = joinsum.train_step(planned, None, sgd(planned))
    for _ in range(2):
        wanted = plain(**labelled(), return_dict=False)[0]
        optimizer.zero_grad()
        wanted.backward()
        optimizer.step()
        loss = step(**labelled(), return_dict=False)
        assert type(loss) is Tensor
        torch.testing.assert_close(loss, wanted.detach())
    step.sync()
    same(planned, plain, 1e-12)


def test_results_of_hugging_face_are_returned_where_outputs_are_wanted() -> None:
    plain, planned = hugging_face(), hugging_face()
    step = joinsum.train_step(planned, None, sgd(planned), outputs="gathered")
    wanted = plain(**labelled(), output_hidden_states=True)
    actual = step(**labelled(), output_hidden_states=True)
    assert list(actual) == list(wanted)
    torch.testing.assert_close(actual["loss"], wanted.loss.detach())
    torch.testing.assert_close(actual["logits"], wanted.logits.detach())
    assert len(actual["hidden_states"]) == 2
    torch.testing.assert_close(actual["hidden_states"], tuple(x.detach() for x in wanted.hidden_states))


def test_a_model_without_labels_has_no_loss() -> None:
    model = hugging_face()
    step = joinsum.train_step(model, None, sgd(model), outputs=None)
    with pytest.raises(joinsum.PlanError, match=r"no loss of one element.*if labels are given"):
        step(labelled()["input_ids"])


# --- where results lie ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sites", [1, 3])
@pytest.mark.parametrize("outputs", ["gathered", "sharded", "local"])
def test_results_lie_where_outputs_says(outputs: Any, sites: int) -> None:
    joinsum.init(sites=sites, cluster=CUTTING)
    plain, planned = models()
    ((x, y),) = data(1)
    step = joinsum.train_step(
        planned,
        lambda z, y: (LOSS(z, y), z, z.sum(0), z.sum()),
        sgd(planned),
        outputs=outputs,
        data="sharded" if outputs == "local" else "whole",
    )
    loss, *others = step(x, y)
    z = plain(x).detach()
    assert [isinstance(each, DistributedTensor) for each in others] == [outputs == "sharded"] * 2 + [False]
    assert type(loss) is Tensor
    others = [each.full_tensor() if isinstance(each, DistributedTensor) else each for each in others]
    for found, wanted in zip(others, (z, z.sum(0), z.sum()), strict=True):
        torch.testing.assert_close(found, wanted)


def test_without_a_loss_function_outputs_returns_the_models_tuple() -> None:
    class WithLoss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = new_model("mlp", torch.float64)

        def forward(self, x: Tensor, labels: Tensor) -> Any:
            scores = self.inner(x)
            return LOSS(scores, labels), scores

    ((x, y),) = data(1)
    plain, planned, other = WithLoss(), WithLoss(), WithLoss()
    wanted = tuple(each.detach() for each in plain(x, y))
    torch.testing.assert_close(joinsum.train_step(planned, None, sgd(planned), outputs="gathered")(x, y), wanted)
    torch.testing.assert_close(joinsum.train_step(other, None, sgd(other))(x, y), wanted[0])


def test_outputs_that_make_no_sense_are_refused() -> None:
    model = new_model("mlp")
    with pytest.raises(joinsum.PlanError, match="gathered, sharded or local"):
        joinsum.train_step(model, LOSS, sgd(model), outputs="whole")  # type: ignore[arg-type]
    with pytest.raises(joinsum.PlanError, match='data="sharded"'):
        joinsum.train_step(model, LOSS, sgd(model), outputs="local")


# --- metrics and clipping ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("norm_type", "max_norm", "sites"),
    [(1.0, 0.5, 3), (2.0, 0.05, 3), (3.0, 0.05, 3), (math.inf, 0.05, 3), (2.0, math.inf, 1), (math.inf, 0.05, 1)],
)
def test_norms_of_gradients_are_torchs_and_so_is_clipping(max_norm: float, norm_type: float, sites: int) -> None:
    joinsum.init(sites=sites, cluster=CUTTING)
    plain, planned = models()
    optimizer = sgd(plain)
    step = joinsum.train_step(planned, LOSS, sgd(planned), max_norm=max_norm, norm_type=norm_type)
    for x, y in data(2):
        optimizer.zero_grad()
        LOSS(plain(x), y).backward()
        wanted = torch.nn.utils.clip_grad_norm_(plain.parameters(), max_norm, norm_type)
        optimizer.step()
        loss = step(x, y)
        torch.testing.assert_close(loss.metrics["gradient_norm"], wanted)
    step.sync()
    same(planned, plain, 1e-12)


def test_metrics_say_what_the_last_step_did() -> None:
    _, planned = models()
    groups = [{"params": list(planned.layers[0].parameters()), "lr": 0.5}, {"params": [planned.layers[2].weight]}]
    optimizer = torch.optim.SGD(groups, lr=0.25)
    step = joinsum.train_step(planned, LOSS, optimizer, max_norm=math.inf, accumulate=2)
    assert step.metrics == {}
    first, second = (step(x, y) for x, y in data(2))
    assert first.metrics.keys() == {"loss", "learning_rate"}  # made no update
    assert second.metrics.keys() == {"loss", "learning_rate", "gradient_norm"}
    assert first.metrics["loss"] is first
    assert step.metrics["loss"] is second
    assert second.metrics["learning_rate"] == [0.5, 0.25]
    optimizer.param_groups[0]["lr"] = 0.125
    third = step(*data(1)[0])
    assert third.metrics["learning_rate"] == step.metrics["learning_rate"] == [0.125, 0.25]
    assert second.metrics["learning_rate"] == [0.5, 0.25]


def test_norms_are_of_sums_of_all_batches_of_an_update() -> None:
    plain, planned = models()
    step = joinsum.train_step(planned, LOSS, sgd(planned), max_norm=math.inf, accumulate=2)
    for x, y in data(2):
        (LOSS(plain(x), y) / 2).backward()
        loss = step(x, y)
    wanted = torch.nn.utils.clip_grad_norm_(plain.parameters(), math.inf)
    torch.testing.assert_close(loss.metrics["gradient_norm"], wanted)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_elements_of_gradients_are_clipped_as_by_torch(accumulate: int) -> None:
    plain, planned = models()
    optimizer = sgd(plain)
    step = joinsum.train_step(planned, LOSS, sgd(planned), max_value=0.01, accumulate=accumulate)
    for i, (x, y) in enumerate(data(4)):
        (LOSS(plain(x), y) / accumulate).backward()
        if (i + 1) % accumulate == 0:
            torch.nn.utils.clip_grad_value_(plain.parameters(), 0.01)
            optimizer.step()
            optimizer.zero_grad()
        step(x, y)
    step.sync()
    same(planned, plain, 1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_norm": 1.0, "max_value": 1.0}, "max_norm or max_value"),
        ({"max_value": 0.0}, "positive value"),
        ({"max_norm": 1.0, "norm_type": 0.0}, "norm_type=0.0"),
        ({"max_norm": 1.0, "norm_type": math.nan}, "norm_type=nan"),
    ],
)
def test_clipping_that_makes_no_sense_is_refused(options: dict[str, float], message: str) -> None:
    model = new_model("mlp")
    with pytest.raises(joinsum.PlanError, match=message):
        joinsum.train_step(model, LOSS, sgd(model), **options)  # type: ignore[arg-type]


# --- autocast, hooks --------------------------------------------------------------------------------------------------


def test_autocast_is_torchs_in_forward_pass_and_loss() -> None:
    plain, planned = new_model("mlp"), new_model("mlp")
    start = {name: x.clone() for name, x in plain.state_dict().items()}
    optimizer = sgd(plain)
    step = joinsum.train_step(
        planned, lambda z, y: (LOSS(z, y), z), sgd(planned), autocast=torch.bfloat16, max_norm=math.inf
    )
    for x, y in batches("mlp", 2):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            z = plain(x)
            wanted = LOSS(z, y)
        optimizer.zero_grad()
        wanted.backward()
        norm = torch.nn.utils.clip_grad_norm_(plain.parameters(), math.inf)
        optimizer.step()
        loss, scores = step(x, y)
        assert scores.dtype is torch.bfloat16
        assert loss.dtype is wanted.dtype is torch.float32
        torch.testing.assert_close(loss, wanted.detach(), rtol=1e-2, atol=0)
        torch.testing.assert_close(loss.metrics["gradient_norm"], norm, rtol=2e-2, atol=0)
    step.sync()
    for name, x in planned.state_dict().items():
        assert x.dtype is torch.float32
        change = plain.state_dict()[name] - start[name]
        torch.testing.assert_close(x - start[name], change, rtol=0, atol=2e-2 * float(change.abs().max()))


def test_hooks_on_gradients_run_in_order_before_sums_norms_and_updates() -> None:
    plain, planned = models()
    for model in (plain, planned):
        weight = model.layers[2].weight
        weight.register_hook(lambda g: g.clamp(min=-0.01))
        weight.register_hook(lambda g: g * 3 + 0.125)
        weight.register_hook(lambda g: None)
        model.layers[4].bias.register_hook(lambda g: torch.zeros_like(g))
    optimizer = sgd(plain)
    step = joinsum.train_step(planned, LOSS, sgd(planned), max_norm=0.5, accumulate=2)
    for i, (x, y) in enumerate(data(4)):
        (LOSS(plain(x), y) / 2).backward()
        loss = step(x, y)
        if i % 2 == 1:
            norm = torch.nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
            torch.testing.assert_close(loss.metrics["gradient_norm"], norm)
            optimizer.step()
            optimizer.zero_grad()
    step.sync()
    same(planned, plain, 1e-12)


class _Scaled(nn.Module):
    """Gives a buffer that it writes to, its parameter, a view of it, and the batch repeated."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, 3))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        self.count.add_(1)
        return (self.weight * x).sum(), self.count, self.weight, self.weight[0, :2], x.expand(2, *x.shape), x


@pytest.mark.parametrize("sites", [1, 2])
def test_results_that_are_parameters_or_inputs_are_those_of_the_forward_pass(sites: int) -> None:
    joinsum.init(sites=sites)
    planned, plain = _Scaled(), _Scaled()
    step = joinsum.train_step(planned, lambda results, _: results, torch.optim.SGD(planned.parameters(), lr=0.1))
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    held = []
    for rows in (4, 4, 3, 4):
        x = torch.rand(rows, 3)
        results = plain(x)
        wanted = [each.detach().clone() for each in results]
        optimizer.zero_grad()
        results[0].backward()
        optimizer.step()
        held.append((step(x, torch.zeros(())), wanted))
    for found, wanted in held:
        for mine, its in zip(found, wanted, strict=True):
            torch.testing.assert_close(mine, its)
