"""Claims about results of a step that the model keeps in an attribute."""

from __future__ import annotations

import joinsum
import pytest
import torch
from torch import Tensor, nn


def test_a_loss_that_the_model_keeps_is_to_be_returned() -> None:
    class Keeping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.aux = nn.Linear(4, 3), torch.zeros(())

        def forward(self, x: Tensor) -> Tensor:
            hidden: Tensor = self.layer(x)
            self.aux = hidden.square().mean()
            return hidden.tanh()

    torch._dynamo.reset()
    joinsum.init(sites=2)
    model = Keeping()
    step = joinsum.train_step(model, lambda out, _: out.sum() + model.aux, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(joinsum.CaptureError) as caught:
        step(torch.ones(2, 4), torch.ones(2, 3))
    text = str(caught.value)
    assert text.startswith(
        "train_step: the model stores a result of this step in an attribute or a list: result=mean; "
    )
    assert "return it from forward" in text
    assert "\n" not in text
