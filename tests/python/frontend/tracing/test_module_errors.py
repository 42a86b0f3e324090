"""Claims about what capture refuses in modules and functions of torch: which one it is, and a remedy that works."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joinsum
import pytest
import torch
from torch import Tensor, nn
from torch.optim import swa_utils

DYNAMO = re.compile(r"\bu\d|unhinted|_check|[Hh]int|Dynamic shape|graph break|compiled autograd|grad_fn")


@pytest.fixture(autouse=True)
def two_sites() -> None:
    torch._dynamo.reset()
    joinsum.init(sites=2)


def refused(model: nn.Module, loss: Callable[..., Any] | None, *batch: Any) -> str:
    step = joinsum.train_step(model, loss, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(joinsum.CaptureError) as found:
        step(*batch)
    assert not DYNAMO.search(str(found.value).partition("code=")[0])
    return str(found.value)


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 4))


def nothing(*_: object) -> None:
    return None


@pytest.mark.parametrize(
    "register", ["register_full_backward_hook", "register_full_backward_pre_hook", "register_backward_hook"]
)
def test_hooks_on_the_backward_pass_of_a_module_are_named(register: str) -> None:
    hooked = model()
    handle = getattr(hooked[1], register)(nothing)
    x, y = torch.ones(6, 8), torch.ones(6, 4)
    said = refused(hooked, nn.functional.mse_loss, x, y)
    assert "a module has a hook on its backward pass" in said
    assert "module=1, hook=nothing" in said
    assert "parameter.register_hook" in said
    with pytest.raises(joinsum.CaptureError, match=r"distribute: .*module=1, hook=nothing"):
        joinsum.distribute(hooked, x)
    handle.remove()
    joinsum.train_step(hooked, nn.functional.mse_loss, torch.optim.SGD(hooked.parameters(), lr=0.1))(x, y)


def test_hooks_on_tensors_see_their_gradients() -> None:
    class Doubled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            y = super().forward(x)
            y.register_hook(lambda gradient: 2 * gradient)
            return y

    torch.manual_seed(0)
    plain, planned = Doubled(8, 4), Doubled(8, 4)
    planned.load_state_dict(plain.state_dict())
    x, y = torch.randn(6, 8), torch.randn(6, 4)
    one, other = (torch.optim.SGD(each.parameters(), lr=0.1) for each in (plain, planned))
    step = joinsum.train_step(planned, nn.functional.mse_loss, other)
    nn.functional.mse_loss(plain(x), y).backward()
    one.step()
    step(x, y)
    step.sync()
    torch.testing.assert_close(planned.state_dict(), plain.state_dict(), rtol=1e-5, atol=1e-6)


def test_hooks_that_are_added_between_calls_run() -> None:
    hooked = model()
    x, y = torch.randn(6, 8), torch.zeros(6, 4)
    step = joinsum.train_step(hooked, nn.functional.mse_loss, torch.optim.SGD(hooked.parameters(), lr=0.0))
    before = step(x, y)
    hooked[1].register_forward_hook(lambda _, __, result: 2 * result)
    torch.testing.assert_close(step(x, y), 4 * before)
    hooked[0].register_full_backward_hook(nothing)
    with pytest.raises(joinsum.CaptureError, match="module=0, hook=nothing"):
        step(x, y)


LENGTHS = (torch.tensor([10, 10]), torch.tensor([3, 3]))


@pytest.mark.parametrize(
    "loss",
    [
        lambda result, target: nn.functional.ctc_loss(result, target, *LENGTHS),
        lambda result, target: nn.CTCLoss()(result, target, *LENGTHS),
        lambda result, target: nn.functional.ctc_loss(result, target, (10, 10), (3, 3)),
    ],
)
def test_a_ctc_loss_is_for_plain_torch_after_a_distributed_model(loss: Callable[..., Tensor]) -> None:
    acoustic = nn.Sequential(nn.Linear(8, 5), nn.LogSoftmax(-1))
    x, target = torch.randn(10, 2, 8), torch.randint(1, 5, (2, 3))
    said = refused(acoustic, loss, x, target)
    assert "ctc_loss reads the values of its lengths" in said
    assert re.search(r"test_module_errors\.py:\d+ in <lambda>", said)
    assert "joinsum.distribute and the loss by plain torch" in said
    joinsum.gather(acoustic)
    wanted = loss(acoustic(x), target)
    torch.testing.assert_close(loss(joinsum.distribute(acoustic, x)(x), target), wanted)


def test_a_loss_that_branches_on_values_is_named_with_the_users_line() -> None:
    loss = nn.GaussianNLLLoss()
    said = refused(nn.Linear(8, 4), lambda x, y: loss(x, y, x.exp()), torch.ones(6, 8), torch.ones(6, 4))
    assert "in torch.nn.functional.gaussian_nll_loss" in said
    assert re.search(r"test_module_errors\.py:\d+ in <lambda>", said)
    assert "joinsum.distribute and this function by plain torch" in said


def test_batch_norm_with_a_cumulative_average_is_named() -> None:
    layers = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.BatchNorm1d(4, momentum=None))
    batch = torch.randn(6, 8), torch.randn(6, 4)
    said = refused(layers, nn.functional.mse_loss, *batch)
    assert "batch norm with momentum=None" in said
    assert "module=2; give it a number" in said
    layers[2].momentum = 0.1
    joinsum.train_step(layers, nn.functional.mse_loss, torch.optim.SGD(layers.parameters(), lr=0.1))(*batch)


def test_a_layer_of_torchs_that_branches_on_values_is_named() -> None:
    class Adaptive(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.AdaptiveLogSoftmaxWithLoss(8, 12, [4, 8])

        def forward(self, x: Tensor, y: Tensor) -> Any:
            return self.head(x, y).loss

    said = refused(Adaptive(), None, torch.randn(6, 8), torch.randint(0, 12, (6,)))
    assert "in torch.nn.modules.adaptive.forward: module=head: at " in said
    assert "code=return self.head(x, y).loss" in said


def test_an_average_of_a_trained_model_is_plain_after_gather() -> None:
    model = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4))
    step = joinsum.train_step(model, nn.functional.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1))
    batches = [(torch.randn(6, 8), torch.randn(6, 4)) for _ in range(3)]
    step(*batches[0])
    average = swa_utils.AveragedModel(model)
    for batch in batches:
        step(*batch)
        average.update_parameters(model)
    with pytest.raises(joinsum.CaptureError, match=r"make the averaged model plain before, joinsum\.gather"):
        swa_utils.update_bn([x for x, _ in batches], average)
    joinsum.gather(average)
    swa_utils.update_bn([x for x, _ in batches], average)
    norm = average.module[1]
    assert type(norm.running_mean) is torch.Tensor
    means = torch.stack([average.module[0](x).mean(0) for x, _ in batches]).mean(0)
    torch.testing.assert_close(norm.running_mean, means.detach())
    step(*batches[0])  # the model itself trains on


@pytest.mark.parametrize("who", ["train_step", "distribute"])
def test_modules_that_cannot_be_planned_are_named(who: str) -> None:
    def planned(model: nn.Module) -> object:
        if who == "distribute":
            return joinsum.distribute(model, torch.ones(2, 4))
        return joinsum.train_step(model, None, torch.optim.SGD([nn.Parameter(torch.ones(1))]))

    def refusal(model: nn.Module) -> str:
        with pytest.raises(joinsum.PlanError) as caught:
            planned(model)
        return str(caught.value)

    traced = nn.Sequential(nn.ReLU(), torch.jit.trace(nn.Linear(4, 4), torch.ones(2, 4)))
    assert f"{who}: a module of TorchScript cannot be captured: module=1; give the one that" in refusal(traced)
    assert f"{who}: a lazy parameter or buffer has no shape yet: name=0.weight" in refusal(
        nn.Sequential(nn.LazyLinear(3))
    )
    assert "name=running_mean" in refusal(nn.LazyBatchNorm1d(affine=False))


def test_what_models_of_transformers_draw_is_named_with_its_setting() -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    waves = {"conv_dim": (8, 8), "conv_stride": (5, 2), "conv_kernel": (10, 3), "num_feat_extract_layers": 2}
    config = transformers.Wav2Vec2Config(**sizes, **waves, num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2)
    model = transformers.Wav2Vec2ForSequenceClassification(config).train()
    step = joinsum.train_step(model, None, torch.optim.SGD(model.parameters(), lr=0.1))
    batch = {"input_values": torch.randn(2, 1200), "labels": torch.tensor([0, 1])}
    with pytest.raises(joinsum.CaptureError, match=r"SpecAugment.*model\.config\.apply_spec_augment = False"):
        step(**batch)
    model.config.apply_spec_augment = False
    with pytest.raises(joinsum.CaptureError, match=r"layer drop.*set layerdrop to 0"):
        step(**batch)
    model.config.layerdrop = 0.0
    assert step(**batch).isfinite()


def test_an_assertion_that_python_sees_as_a_branch_is_named(tmp_path: Path) -> None:
    path = tmp_path / "asserting.py"  # whose assertions pytest does not rewrite
    path.write_text("def check(x):\n    assert not (x < 0).any()\n    return x\n")
    spec = importlib.util.spec_from_file_location("asserting", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    said = refused(nn.Linear(4, 3), lambda x, y: module.check(x - y).sum(), torch.ones(2, 4), torch.ones(2, 3))
    assert "assert that something holds of all elements, assert (~x).all()" in said
