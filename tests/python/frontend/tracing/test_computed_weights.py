"""Claims about weights that hooks compute: modules that have them train and are distributed as in plain torch."""

from __future__ import annotations

import copy
from collections.abc import Callable

import joinsum
import pytest
import torch
from joinsum.frontend.tracing.computed_weights import computed_weights, detach_weights
from torch import Tensor, nn
from torch.nn.utils import prune

MAKE: dict[str, Callable[[nn.Module], object]] = {
    "spectral_norm": nn.utils.spectral_norm,
    "weight_norm": nn.utils.weight_norm,
    "prune": lambda layer: prune.l1_unstructured(layer, "weight", 0.5),
    "prune twice": lambda layer: prune.l1_unstructured(prune.l1_unstructured(layer, "weight", 0.5), "weight", 0.3),
}


def model_with(kind: str) -> nn.Sequential:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))
    MAKE[kind](model[0])
    return model


def batches() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(5)
    return [(torch.randn(6, 8, generator=generator), torch.randn(6, 4, generator=generator)) for _ in range(4)]


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize("sites", [1, 2])
@pytest.mark.parametrize("kind", MAKE)
def test_steps_are_torchs(kind: str, sites: int) -> None:
    torch._dynamo.reset()
    joinsum.init(sites=sites)
    plain, planned, distributed = (model_with(kind) for _ in range(3))
    models = [plain, planned, joinsum.distribute(distributed, batches()[0][0])]
    one, other, third = (torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9) for model in models)
    step = joinsum.train_step(planned, nn.functional.mse_loss, other)
    for x, y in batches():
        losses = [nn.functional.mse_loss(plain(x), y), nn.functional.mse_loss(distributed(x), y)]
        for loss, optimizer in zip(losses, (one, third), strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        for loss in (step(x, y), losses[1]):
            torch.testing.assert_close(loss, losses[0], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(planned[0].weight, plain[0].weight, rtol=1e-5, atol=1e-6)
    step.sync()
    joinsum.gather(distributed, third)
    for model in (planned, distributed):
        torch.testing.assert_close(model.state_dict(), plain.state_dict(), rtol=1e-5, atol=1e-6)


def test_a_removed_hook_computes_no_weight() -> None:
    model = model_with("spectral_norm")
    weights = computed_weights(model)
    assert weights == [(model[0], "weight")]
    nn.utils.remove_spectral_norm(model[0])
    detach_weights(weights)
    assert computed_weights(model) == []
    assert isinstance(copy.deepcopy(model)[0].weight, nn.Parameter)
