"""Named layers of models that torch.fx cannot follow: the first call shows whether the forward pass follows them."""

from __future__ import annotations

import copy
from typing import Any

import joinsum
import pytest
import torch
from torch import nn
from torch.nn import functional as F


class Hidden(nn.Module):
    """Hidden neurons of each token, which `between` passes on; torch.fx cannot follow the forward pass."""

    def __init__(self, between: Any, norm: type[nn.Module] = nn.LayerNorm) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(7, 16), norm(16), nn.Linear(16, 7)
        self.between = between

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _, _, width = x.shape
        found = self.between(self.norm(self.first(x)), x)
        return found if found.shape[-1] == width else self.second(found)


class Counting(Hidden):
    """Writes into itself."""

    def __init__(self, between: Any) -> None:
        super().__init__(between)
        self.calls = 0
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.seen += len(x)
        return super().forward(x)


class Stacked(nn.Module):
    """Deep enough that one layer changes the result by little."""

    def __init__(self, between: Any, depth: int = 24) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Hidden(between) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(7) for _ in range(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block, norm in zip(self.blocks, self.norms, strict=True):
            x = x + block(norm(x))
        return x


def called(model: nn.Module, layers: Any, x: torch.Tensor, sites: int = 2, **options: Any) -> torch.Tensor:
    joinsum.init(sites=sites)
    joinsum.IST(model, torch.optim.SGD(model.parameters(), lr=0.1), layers=layers, seed=1, **options)
    found: torch.Tensor = model(x)
    return found


LAYER = [("first", "norm", "second")]
X = torch.randn(3, 5, 7, generator=torch.Generator().manual_seed(2))

FOLLOWS = {
    "a softmax over tokens": lambda h, _: h.softmax(1),
    "a mean over tokens": lambda h, _: h.mean(1, keepdim=True),
    "transposed and back": lambda h, _: F.avg_pool1d(h.transpose(1, 2), 2).transpose(1, 2),
    "an operator of elements": lambda h, _: torch.where(h > 0, h, 0.1 * torch.sin(h)),
    "a mask of tokens": lambda h, x: h * (x.sum(-1, keepdim=True) > 0),
    "dropout": lambda h, _: F.dropout(h, 0.0),
}
RAISES = r"with some of them the forward pass \(in evaluation mode\) raises RuntimeError"
DOES_NOT_FOLLOW = {
    "softmax": (lambda h, _: h.softmax(2), "with some of them the model computes something else"),
    "mean": (lambda h, _: h - h.mean(2, keepdim=True), "with some of them the model computes something else"),
    "pooling": (lambda h, _: F.max_pool1d(h, 3, 1, 1), "with some of them the model computes something else"),
    "order": (lambda h, _: h.roll(1, 2), "with some of them the model computes something else"),
    "fixed width": (lambda h, _: h.reshape(len(h), -1, 16), RAISES),
    "residual": (lambda h, x: h + x.repeat(1, 1, 2), RAISES),
    "a part": (lambda h, _: h[..., :4].repeat(1, 1, 4), RAISES),
    "unused": (lambda h, x: x, "what the model computes does not depend on them"),
}


@pytest.mark.parametrize("norm", [nn.LayerNorm, nn.RMSNorm])
@pytest.mark.parametrize("name", list(FOLLOWS))
def test_forward_passes_that_follow_the_neurons_are_let_through(name: str, norm: type[nn.Module]) -> None:
    torch.manual_seed(3)
    model = Hidden(FOLLOWS[name], norm)
    assert called(model, LAYER, X).isfinite().all()
    assert called(Hidden(FOLLOWS[name], norm).bfloat16(), LAYER, X.bfloat16()).isfinite().all()


@pytest.mark.parametrize("name", list(DOES_NOT_FOLLOW))
def test_forward_passes_that_do_not_follow_the_neurons_are_refused_by_name(name: str) -> None:
    between, reason = DOES_NOT_FOLLOW[name]
    torch.manual_seed(3)
    with pytest.raises(joinsum.PlanError, match=rf"cannot be dealt out: {reason}.*first.*leave the layer out"):
        called(Hidden(between), LAYER, X)


@pytest.mark.parametrize("sites", [2, 3])
def test_one_of_many_layers_is_told_from_the_others(sites: int) -> None:
    torch.manual_seed(3)
    layers = [(f"blocks.{each}.first", f"blocks.{each}.norm", f"blocks.{each}.second") for each in range(24)]
    model = Stacked(FOLLOWS["an operator of elements"])
    assert called(model, layers, X, sites, scaled=True).isfinite().all()
    model = Stacked(FOLLOWS["an operator of elements"])
    model.blocks[3].between = DOES_NOT_FOLLOW["softmax"][0]
    with pytest.raises(joinsum.PlanError, match=r"something else: layer=blocks.3.first"):
        called(model, layers, X, sites, scaled=True)


def test_a_trial_leaves_no_trace() -> None:
    joinsum.init(sites=2)
    torch.manual_seed(3)
    model = nn.Sequential(Counting(FOLLOWS["dropout"]), nn.BatchNorm1d(5), nn.Dropout(0.5))
    model[1].eval()
    layers = [("0.first", "0.norm", "0.second")]
    joinsum.IST(model, torch.optim.SGD(model.parameters(), lr=0.1), layers=layers)
    modes = [module.training for module in model.modules()]
    tensors = {name: x.clone() for name, x in (*model.named_parameters(), *model.named_buffers())}
    x = X.clone().requires_grad_()
    results = []
    for number in range(1, 4):  # the first call tries
        torch.manual_seed(4)
        results.append(model(x))
        assert model[0].calls == number
        assert float(model[0].seen) == 3 * number
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])
    assert results[0].requires_grad
    assert not model._forward_pre_hooks
    assert torch.equal(x, X)
    assert "forward" not in vars(model[0].norm)
    assert model[0].first.out_features == model[0].norm.normalized_shape[0] == model[0].second.in_features == 8
    assert [module.training for module in model.modules()] == modes
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        assert name == "0.seen" or torch.equal(tensor, tensors[name]), name


def test_autocast_is_as_it_was_after_a_trial() -> None:
    joinsum.init(sites=2)
    torch.manual_seed(3)
    model = Hidden(FOLLOWS["dropout"])
    joinsum.IST(model, torch.optim.SGD(model.parameters(), lr=0.1), layers=LAYER)
    with torch.autocast("cpu", torch.bfloat16):
        assert model(X).dtype == torch.bfloat16


def test_a_model_without_subnets_is_not_tried() -> None:
    torch.manual_seed(3)
    model = Hidden(DOES_NOT_FOLLOW["softmax"][0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    joinsum.init(sites=17)
    with pytest.raises(joinsum.PlanError, match="fewer neurons than sites"):
        joinsum.IST(model, optimizer, layers=LAYER)
    wanted = model(X)
    assert not model._forward_pre_hooks
    joinsum.init(sites=2)
    joinsum.IST(model, optimizer, layers=LAYER).gather()
    assert torch.equal(model(X), wanted)
    assert not model._forward_pre_hooks


def test_the_full_model_is_not_tried() -> None:
    joinsum.init(sites=2)
    torch.manual_seed(3)
    model = Hidden(FOLLOWS["dropout"])
    ist = joinsum.IST(model, torch.optim.SGD(model.parameters(), lr=0.1), layers=LAYER)
    wanted = copy.deepcopy(ist._skeleton)
    assert [hook.__name__ for hook in wanted._forward_pre_hooks.values()] == ["_nothing"]
    with ist.full() as full, torch.no_grad():
        assert full(X).shape == (3, 5, 7)
    assert len(model._forward_pre_hooks) == 1


def test_a_compiled_model_is_tried_too() -> None:
    joinsum.init(sites=2)
    torch.manual_seed(3)
    for between, refused in ((FOLLOWS["an operator of elements"], False), (DOES_NOT_FOLLOW["softmax"][0], True)):
        model = Hidden(between)
        joinsum.IST(model, torch.optim.SGD(model.parameters(), lr=0.1), layers=LAYER)
        compiled = torch.compile(model, backend="eager")
        if refused:
            with pytest.raises(joinsum.PlanError, match="something else: layer=first"):
                compiled(X)
        else:
            torch.testing.assert_close(compiled(X), model(X))
