"""Scenes of distributed parameters that users write in place and draw anew; of checks and draws in captured code."""

from __future__ import annotations

from collections.abc import Callable

import joinsum
import torch
from joinsum import DistributedTensor
from stage import Scenes, enter, on_group, rank, ranks, scene
from torch import Tensor, nn

SCENES: Scenes = {}

WRITES: list[Callable[[Tensor, Tensor], object]] = [
    lambda w, _: w.mul_(torch.arange(6.0)),
    lambda w, _: w.sub_(w.mean(1, keepdim=True)),
    lambda w, _: w.div_(w.norm(dim=1, keepdim=True)),
    lambda w, b: w.add_(b[:, None]),
    lambda w, b: torch._foreach_mul_([w, w], [b[:, None], 2.0 * b[:, None]]),
    lambda w, _: nn.init.xavier_uniform_(w),
    lambda w, _: nn.init.trunc_normal_(w),
    lambda w, _: nn.init.eye_(w),
    lambda w, _: w[0].zero_(),
]


@scene(SCENES)
def parameters_are_written_as_torch_writes_them() -> int:
    enter(on_group())
    count, done = ranks(), 0
    for parts, place in (((count, 1), None), ((1, count), None), ((count, 1), "replicated"), ((1, 1), None)):
        torch.manual_seed(1)
        full, bias = torch.randn(5, 6), torch.randn(5)
        for write in WRITES:
            plain, stored = full.clone(), DistributedTensor.of(full, parts=parts, place=place)
            for tensor, other in ((plain, bias), (stored, DistributedTensor.of(bias, parts=count))):
                torch.manual_seed(0)
                with torch.no_grad():
                    write(tensor, other)
            torch.testing.assert_close(stored.full_tensor(), plain)
            assert torch.allclose(stored, plain)
            done += 1
    return done


@scene(SCENES)
def layers_draw_their_parameters_anew() -> list[float]:
    enter(on_group())
    torch.manual_seed(0)
    model, plain = nn.Linear(6, 8), nn.Linear(6, 8)
    joinsum.distribute(model, torch.ones(4, 6))
    for layer in (model, plain):
        torch.manual_seed(3)
        layer.reset_parameters()
    weight = joinsum.full_state_dict(model)["weight"]
    assert torch.equal(weight, plain.weight)
    return weight.flatten().tolist()  # type: ignore[no-any-return]


@scene(SCENES)
def a_matrix_without_an_inverse_is_an_error_on_all() -> str:
    enter(on_group())
    torch.manual_seed(0)
    x = torch.eye(32).repeat(64, 1, 1) + 0.01 * torch.randn(64, 32, 32)
    inverse = joinsum.compile(lambda x: torch.linalg.inv(x).sum(0))
    torch.testing.assert_close(inverse(x), torch.linalg.inv(x).sum(0))
    singular = x.clone()
    singular[50] = 0
    try:
        inverse(singular)
    except torch.linalg.LinAlgError as error:
        torch.testing.assert_close(inverse(x), torch.linalg.inv(x).sum(0))
        return str(error)
    raise AssertionError("no error")


@scene(SCENES)
def draws_are_the_same_on_all() -> list[float]:
    """The generators of the ranks differ."""
    enter(on_group())
    torch.manual_seed(rank())
    draw = joinsum.compile(lambda x: torch.empty_like(x).normal_() + torch.multinomial(x.abs() + 1, 4))
    found: list[float] = draw(torch.zeros(16, 4)).flatten().tolist()
    return found
