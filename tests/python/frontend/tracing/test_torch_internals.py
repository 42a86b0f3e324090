"""Claims about what is used of torch's private modules."""

from __future__ import annotations

import torch
from joinsum.frontend.tracing.torch_internals import with_own_code


class Scaled(torch.nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor, *, shift: float = 1.0) -> torch.Tensor:
        return super().extra_repr().__len__() + self.factor * x + shift


def test_a_copied_method_does_the_same_by_code_of_its_own() -> None:
    model = Scaled(2.0)
    copied = with_own_code(model.forward)
    assert torch.equal(copied(torch.ones(2)), torch.full((2,), 3.0))
    assert torch.equal(copied(torch.ones(2), shift=0.0), torch.full((2,), 2.0))
    assert copied.__self__ is model  # type: ignore[attr-defined]
    assert copied.__code__ is not model.forward.__code__  # type: ignore[attr-defined]
    assert with_own_code(model) is model


def test_graphs_of_another_model_of_the_class_do_not_count() -> None:
    first, second = Scaled(1.0), Scaled(2.0)
    limited = torch.compile(with_own_code(first.forward), backend="eager")
    with torch._dynamo.config.patch(recompile_limit=1):
        for axes in range(1, 4):
            limited(torch.ones([2] * axes))  # is given up after the first
        compiled = torch.compile(with_own_code(second.forward), backend="eager", fullgraph=True)
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))
