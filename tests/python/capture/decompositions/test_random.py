"""Random operators: the same numbers for every cutting, other numbers for another seed, and the right distributions."""

from __future__ import annotations

from typing import Any

import joinsum  # noqa: F401  # defines the operators
import pytest
import torch
from capture_by_torch import Captured

ops = torch.ops.joinsum


def composed(name: str, *arguments: object) -> Any:
    """What runs on devices that an operator has no loops for."""
    return getattr(ops, name).default._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, *arguments)


def drawn(function: object, given: torch.Tensor, seed: int) -> torch.Tensor:
    with torch.no_grad():
        result: torch.Tensor = Captured(seed=seed).of(function)(given)  # type: ignore[arg-type]
    return result


FUNCTIONS = {
    "rand": lambda x: torch.rand_like(x),
    "randn": lambda x: torch.randn(x.shape),
    "dropout": lambda x: torch.nn.functional.dropout(x, 0.25),
    "bernoulli": lambda x: torch.bernoulli(torch.full_like(x, 0.3)),
    "randint": lambda x: torch.randint(3, 9, x.shape),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_shards_have_the_numbers_of_the_full_tensor_and_seeds_differ(name: str) -> None:
    """Evaluation compares shards along each axis with the full tensor."""
    x = torch.ones(6, 35)
    first, again, other = (drawn(FUNCTIONS[name], x, seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_two_draws_of_one_program_differ() -> None:
    result = drawn(lambda x: torch.rand_like(x) - torch.rand_like(x), torch.ones(5, 7), 3)
    assert bool((result != 0).all())


@pytest.mark.parametrize(
    ("name", "mean", "variance"),
    [
        ("rand", 0.5, 1 / 12),
        ("randn", 0.0, 1.0),
        ("dropout", 1.0, 1 / 3),
        ("bernoulli", 0.3, 0.21),
        ("randint", 5.5, 35 / 12),
    ],
)
def test_mean_and_variance_are_those_of_the_distribution(name: str, mean: float, variance: float) -> None:
    """Within five standard errors over 200,000 draws; draws of neighbours do not correlate."""
    result = drawn(FUNCTIONS[name], torch.ones(400, 500), 11).double()
    error = (variance / result.numel()) ** 0.5
    assert abs(result.mean().item() - mean) < 5 * error
    assert abs(result.var().item() / variance - 1) < 0.03
    centred = (result - mean) / variance**0.5
    for shifted in (centred.roll(1, 0), centred.roll(1, 1)):
        assert abs((centred * shifted).mean().item()) < 5 / result.numel() ** 0.5


def test_each_bit_is_set_in_half_of_the_draws() -> None:
    """But of the last one, which integers leave out."""
    shard = [100_000], [0], [100_000], [100_000]
    result = ops.integers(torch.tensor(0), 0, 0, (1 << 63) - 1, *shard, torch.int64)
    share = torch.stack([((result >> place) & 1).double().mean() for place in range(63)])
    assert bool(((share - 0.5).abs() < 5 * 0.5 / 100_000**0.5).all())


def test_the_gradient_of_dropout_goes_where_the_mask_holds() -> None:
    x = torch.ones(4, 9, requires_grad=True)
    result = Captured(seed=5).of(lambda x: torch.nn.functional.dropout(x, 0.5) * 1)(x)
    result.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, result.detach())


# Shards of tensors, with rows of adjacent elements that are short or long; and full tensors.
PARTS = {
    "rows": ([1, 0, 2], [2, 5, 7], [4, 5, 9]),
    "planes": ([1, 2, 0], [3, 300, 7], [4, 900, 7]),
    "all": ([0, 0], [300, 500], [300, 500]),
    "scalar": ([], [], []),
}
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_every_device_has_the_same_numbers(part: str, dtype: torch.dtype) -> None:
    """Bit by bit, also where several threads draw."""
    offsets, local, extents = PARTS[part]
    seed = torch.tensor((1 << 52) + 12345)
    for name in ("uniform", "normal"):
        given = (seed, 3, local, offsets, local, extents, dtype)
        result = getattr(ops, name)(*given)
        assert torch.equal(result, composed(name, *given))
        assert result.dtype is dtype
    whole = (seed, 2, -5, 1000, local, offsets, local, extents, torch.int64)
    assert torch.equal(ops.integers(*whole), composed("integers", *whole))
    x = torch.randn(local).to(dtype)
    for p in (0.0, 0.1, 0.5, 1.0):
        given = (x, seed, p, 1, offsets, local, extents)
        assert all(map(torch.equal, ops.dropout(*given), composed("dropout", *given)))


def test_dropout_preserves_the_strides_of_its_input() -> None:
    x = torch.randn(6, 5).t()
    result, mask = ops.dropout(x, torch.tensor(3), 0.5, 0, [0, 0], [5, 6], [5, 6])
    assert result.stride() == mask.stride() == x.stride()
    others = composed("dropout", x, torch.tensor(3), 0.5, 0, [0, 0], [5, 6], [5, 6])
    for own, other in zip((result, mask), others, strict=True):
        assert torch.equal(own, other)
        assert other.device == x.device


def test_numbers_that_follow_from_the_seed_stay_what_they_are() -> None:
    """A stored seed draws the same numbers in every version."""
    shard = [4], [2], [4], [9]
    assert ops.integers(torch.tensor(7), 3, 0, 1000, *shard, torch.int64).tolist() == [86, 410, 398, 790]


def test_shapes_alone_need_no_numbers() -> None:
    seed = torch.empty((), dtype=torch.int64, device="meta")
    result = ops.uniform(seed, 0, [2, 3], [0, 0], [2, 3], [2, 3], torch.float16)
    assert (result.shape, result.dtype, result.device.type) == ((2, 3), torch.float16, "meta")


def test_a_shard_of_other_sizes_is_refused() -> None:
    with pytest.raises(RuntimeError, match="the input is another part: elements=4, local="):
        ops.dropout(torch.ones(4), torch.tensor(3), 0.5, 0, [0], [5], [5])
    with pytest.raises(RuntimeError, match="integers lie between bounds: low=3, high=3"):
        ops.integers(torch.tensor(3), 0, 3, 3, [5], [0], [5], [5], torch.int64)
