"""Hidden layers of models in which modules are called in unusual ways: without being submodules, with any arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import joinsum
import pytest
import torch
from found_layers import found
from joinsum.ist.layers.discovery import find_layers
from torch import nn
from torch.nn import functional as F

# --- modules that are not registered ----------------------------------------------------------------------------------

RELU = nn.ReLU()


class Unregistered(nn.Module):
    """Calls modules that are no submodules: of Python's module, of a list, and made in the forward pass."""

    def __init__(self, last: nn.Module) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)
        self.others = [last]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.others[0](self.second(nn.Dropout(0.1)(RELU(self.norm(self.first(x))))))


class Around(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.up, self.norm, self.down = inner, nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.norm(self.up(self.inner(x))))


def test_modules_that_are_not_registered_are_followed_unless_they_have_parameters() -> None:
    plain, trained = Unregistered(nn.Softmax(1)), Unregistered(nn.Linear(3, 3))
    assert found(plain) == {"first": (8, ["first", "norm", "second"], False)}
    assert list(found(Around(plain))) == ["inner.first", "up"]
    assert list(found(Around(trained))) == ["up"]
    reason = "the model: torch.fx cannot follow its forward pass: it calls a module that has parameters and is no "
    with pytest.raises(joinsum.PlanError, match=f"{reason}submodule: kind=Linear"):
        find_layers(trained, False, None)


class Asking(nn.Module):
    """Calls a module with what torch.fx has no form of."""

    class Inner(nn.Module):
        def forward(self, x: torch.Tensor, how: object) -> torch.Tensor:
            return x if how is None else x + 1

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.part = self.Inner(), Unregistered(nn.Softmax(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(self.part(x), how=object())


def test_a_module_that_is_called_with_any_object_ends_the_walk() -> None:
    assert list(found(Asking())) == ["part.first"]


class StochasticDepth(nn.Module):
    """As torchvision has it: torch.fx sees a function that it does not know."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        keep = torch.rand(x.shape[0]) > 0.5 if self.training else torch.ones(int(x.shape[0]))
        return x * keep[:, None]


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(6), nn.Linear(6, 12), nn.Linear(12, 6)
        self.drop, self.last, self.head = StochasticDepth(), nn.LayerNorm(6), nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.last(x + self.drop(self.down(F.gelu(self.up(self.norm(x)))))))


def test_a_branch_of_random_depth_joins_its_residual() -> None:
    assert found(Deep()) == {"up": (12, ["up", "down"], True)}


# --- forward passes with any arguments --------------------------------------------------------------------------------


def passing_all(forward: Callable[..., Any]) -> Callable[..., Any]:
    """As transformers wraps the forward passes of its layers."""

    @functools.wraps(forward)
    def passing(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return forward(self, *args, **kwargs)

    return passing


class AnyArguments(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(6, 12), nn.LayerNorm(12), nn.Linear(12, 6)

    @passing_all
    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None, *, scale: float = 1.0, **kwargs: Any) -> Any:
        return self.down(F.gelu(self.norm(self.up(x)))) * scale


class Steps(nn.Module):
    """What torch.fx cannot follow, so that its parts are graphs of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(AnyArguments() for _ in range(2))

    def forward(self, x: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        for part in self.parts:
            x = part(x, **kwargs) if x.sum() > 0 else part(x)
        return x


def test_forward_passes_that_take_any_arguments_are_followed() -> None:
    assert list(found(AnyArguments())) == ["up"]
    assert list(found(Steps())) == ["parts.0.up", "parts.1.up"]


class Wrapper(nn.Module):
    """Passes all that it gets, or all but the first by name."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(6, 12), nn.LayerNorm(12), nn.Linear(12, 6))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.inner(*args, **kwargs)


class NamedWrapper(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Masked()

    def forward(self, x: torch.Tensor, **kwargs: Any) -> Any:
        return self.inner(x, **kwargs)


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(6, 12), nn.LayerNorm(12), nn.Linear(12, 6)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.down(self.norm(self.up(x * mask)))


def test_what_a_wrapper_has_inside_is_followed() -> None:
    assert list(found(Wrapper())) == ["inner.0"]
    assert list(found(NamedWrapper())) == ["inner.up"]


@pytest.mark.parametrize("kind", ["Bert", "Roberta", "Electra"])
def test_the_mlps_of_hugging_faces_encoders_are_cut_as_they_come(kind: str) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=20, max_position_embeddings=16, embedding_size=16, **sizes
    )
    model = getattr(transformers, f"{kind}ForSequenceClassification")(config)
    names = [f"{kind.lower()}.encoder.layer.{place}" for place in range(2)]
    layers = found(model, unnormalised="skip")  # some have a classifier without a norm
    for name in names:
        members = [f"{name}.intermediate.dense", f"{name}.output.dense"]
        assert layers[members[0]] == (24, members, True)
