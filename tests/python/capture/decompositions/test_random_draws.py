"""Random draws in captured functions: they have the distribution that torch's have, and are the same on every number of
sites."""

from __future__ import annotations

from collections.abc import Callable

import joinsum
import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, Laplace, LogNormal, Normal

COUNT = 40_000


def drawn(function: Callable[[Tensor], Tensor], x: Tensor, sites: int) -> Tensor:
    torch._dynamo.reset()
    joinsum.init(sites=sites, plan_cache=False)
    torch.manual_seed(3)
    try:
        result: Tensor = torch.compile(function, backend="joinsum", fullgraph=True)(x)
        return result
    finally:
        joinsum.init()


# Draws of one shape, and their cumulative distribution.
CONTINUOUS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "normal_": (lambda x: torch.empty_like(x).normal_(1, 2), Normal(1.0, 2.0).cdf),
    "normal of tensors": (lambda x: torch.normal(x, x.abs() + 2), Normal(0.0, 2.0).cdf),
    "normal of a mean": (lambda x: torch.normal(x, 3.0), Normal(0.0, 3.0).cdf),
    "normal of a deviation": (lambda x: torch.normal(1.0, x.abs() + 3), Normal(1.0, 3.0).cdf),
    "normal of a size": (lambda x: torch.normal(1.0, 2.0, x.shape, dtype=x.dtype), Normal(1.0, 2.0).cdf),
    "rsample": (lambda x: Normal(x, x + 2, validate_args=False).rsample(), Normal(0.0, 2.0).cdf),
    "uniform_": (lambda x: torch.empty_like(x).uniform_(-1, 3), lambda x: (x + 1) / 4),
    "exponential_": (lambda x: torch.empty_like(x).exponential_(2.0), lambda x: 1 - (-2 * x).exp()),
    "log_normal_": (lambda x: torch.empty_like(x).log_normal_(0.5, 0.3), LogNormal(0.5, 0.3).cdf),
    "cauchy_": (lambda x: torch.empty_like(x).cauchy_(1, 2), lambda x: ((x - 1) / 2).atan() / torch.pi + 0.5),
    "laplace": (lambda x: Laplace(x, x + 1, validate_args=False).rsample(), Laplace(0.0, 1.0).cdf),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CONTINUOUS)
def test_numbers_have_the_distribution(name: str, dtype: torch.dtype) -> None:
    function, cumulative = CONTINUOUS[name]
    one, several = (drawn(function, torch.zeros(COUNT // 8, 8, dtype=dtype), sites) for sites in (1, 3))
    assert one.dtype is dtype
    rounding = 4 * torch.finfo(dtype).eps  # exponentials and tangents of one site are those of fused operators
    torch.testing.assert_close(one, several, rtol=rounding, atol=rounding)
    uniform = cumulative(one.double().flatten()).sort().values
    distance = (uniform - (torch.arange(COUNT) + 0.5) / COUNT).abs().max()
    assert distance < 1.95 / COUNT**0.5  # Kolmogorov and Smirnov: one seed in a thousand is further away


WEIGHTS = torch.tensor([1.0, 0.0, 3.0, 4.0])
CHOICES: dict[str, Callable[[Tensor], Tensor]] = {
    "multinomial": lambda w: torch.multinomial(w, 1),
    "multinomial with replacement": lambda w: torch.multinomial(w, 3, replacement=True),
    "categorical": lambda w: Categorical(probs=w, validate_args=False).sample(),
    "gumbel": lambda w: torch.nn.functional.gumbel_softmax(w.log(), hard=True).argmax(-1),
}


@pytest.mark.parametrize("name", CHOICES)
def test_choices_have_the_frequencies(name: str) -> None:
    one, several = (drawn(CHOICES[name], WEIGHTS.expand(COUNT, 4).clone(), sites) for sites in (1, 3))
    assert torch.equal(one, several)
    wanted = WEIGHTS / WEIGHTS.sum()
    deviation = (wanted * (1 - wanted) / one.numel()).sqrt()
    assert ((torch.bincount(one.flatten(), minlength=4) / one.numel() - wanted).abs() <= 4 * deviation).all()


def test_choices_without_replacement_differ_and_leave_out_what_has_no_weight() -> None:
    one, several = (drawn(lambda w: torch.multinomial(w, 3), WEIGHTS.expand(500, 4).clone(), n) for n in (1, 3))
    assert torch.equal(one, several)
    assert torch.equal(one.sort().values, torch.tensor([0, 2, 3]).expand(500, 3))
    assert one[:, 0].unique().numel() == 3


def test_permutations_have_each_number_once() -> None:
    one, several = (drawn(lambda x: x * 0 + torch.randperm(100), torch.zeros(100), sites) for sites in (1, 3))
    assert torch.equal(one, several)
    assert torch.equal(one.sort().values, torch.arange(100.0))
    assert not torch.equal(one, torch.arange(100.0))


def test_trials_until_the_first_success() -> None:
    one, several = (drawn(lambda x: torch.empty_like(x).geometric_(0.25), torch.zeros(COUNT), n) for n in (1, 3))
    assert torch.equal(one, several)
    frequencies = torch.bincount(one.long())[1:6] / COUNT
    torch.testing.assert_close(frequencies, 0.25 * 0.75 ** torch.arange(5), rtol=0, atol=0.01)


def test_random_slopes_are_those_of_the_gradient() -> None:
    x = torch.linspace(-2, 2, 600).requires_grad_()
    y = drawn(torch.nn.RReLU(0.2, 0.4), x, 3)
    y.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad * x, y)
    below = x.grad[x < 0]
    assert ((below >= 0.2) & (below <= 0.4)).all()
    assert below.std() > 0.04
    assert (x.grad[x > 0] == 1).all()
    evaluated = torch.nn.RReLU(0.2, 0.4).eval()
    torch.testing.assert_close(drawn(evaluated, x.detach(), 3), evaluated(x.detach()))


def test_gradients_pass_through_reparametrised_draws() -> None:
    mean = torch.zeros(6, 4, requires_grad=True)
    drawn(lambda m: Normal(m, m.exp(), validate_args=False).rsample(), mean, 3).sum().backward()
    assert mean.grad is not None
    noise = drawn(lambda m: torch.empty_like(m).normal_(), mean.detach(), 3)
    torch.testing.assert_close(mean.grad, 1 + noise)


def test_integers_like_a_tensor_are_between_their_bounds() -> None:
    def integers(x: Tensor) -> Tensor:
        return torch.stack([torch.randint_like(x, 5), torch.randint_like(x, 2, 7)])

    one, several = (drawn(integers, torch.zeros(COUNT), sites) for sites in (1, 3))
    assert torch.equal(one, several)
    for row, low in zip(one.long(), (0, 2), strict=True):
        frequencies = torch.bincount(row - low, minlength=5) / COUNT
        torch.testing.assert_close(frequencies, torch.full((5,), 0.2), rtol=0, atol=0.01)


@pytest.mark.parametrize("sites", [1, 2])
@pytest.mark.parametrize("replicate", [[], ["aten::poisson"]])
def test_draws_that_would_differ_between_sites_are_refused(replicate: list[str], sites: int) -> None:
    joinsum.init(sites=sites)
    torch._dynamo.reset()
    try:
        with pytest.raises(
            joinsum.CaptureError, match=r"random draws are not supported: operator=aten::poisson.*torch\.poisson\(x\)"
        ):
            joinsum.compile(lambda x: torch.poisson(x), replicate=replicate)(torch.ones(4))
    finally:
        joinsum.init()
