"""Claims about elementwise methods of tensors in blocks: on one site they go to the block, and nobody can tell."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import joinsum
import pytest
import torch
from joinsum import DistributedTensor
from joinsum.distributed import local_fast_path as one_block
from joinsum.distributed.distributed_tensor import replace_tensor
from torch import Tensor, nn

ARGUMENTS: dict[str, Any] = {
    **dict.fromkeys(("abs", "neg", "sign", "sqrt"), lambda y: ()),
    **dict.fromkeys(("addcdiv", "addcmul"), lambda y: (y, y + 2)),
    **dict.fromkeys(("add", "div", "mul", "sub"), lambda y: (y,)),
    **dict.fromkeys(("__add__", "__mul__", "__sub__", "__truediv__"), lambda y: (y,)),
    "clamp": lambda y: (0.25, 0.75),
    "lerp": lambda y: (y, 0.25),
    "pow": lambda y: (2.5,),
}


@pytest.fixture(autouse=True, params=[1, 3])
def sites(request: pytest.FixtureRequest) -> Iterator[int]:
    joinsum.init(sites=request.param)
    yield request.param
    joinsum.init()


def blocks(x: Tensor, sites: int) -> DistributedTensor:
    return DistributedTensor.of(x, parts=(sites, 1))


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) + 0.1


def called(x: Tensor, name: str, args: Any) -> Tensor:
    result: Tensor = getattr(x, name)(*args)
    return result


@pytest.mark.parametrize("grad_mode", [False, True])
@pytest.mark.parametrize("name", one_block.NEW)
def test_new_tensors_are_torchs(sites: int, name: str, grad_mode: bool) -> None:
    x, y = drawn(1, 5, 4), drawn(2, 5, 4)
    with torch.set_grad_enabled(grad_mode):
        wanted = called(x, name, ARGUMENTS[name](y))
        a, b = blocks(x, sites), blocks(y, sites)
        actual = called(a, name, ARGUMENTS[name](b))
    assert isinstance(actual, DistributedTensor)
    assert actual.physical_type == a.physical_type
    assert torch.equal(actual.full_tensor(), wanted)
    assert torch.equal(a.full_tensor(), x)


@pytest.mark.parametrize("grad_mode", [False, True])
@pytest.mark.parametrize("name", one_block.IN_PLACE)
def test_what_is_written_in_place_is_torchs(sites: int, name: str, grad_mode: bool) -> None:
    x, y = drawn(1, 5, 4), drawn(2, 5, 4)
    a, b = blocks(x, sites), blocks(y, sites)
    with torch.set_grad_enabled(grad_mode):
        called(x, name, ARGUMENTS[name[:-1]](y))
        assert called(a, name, ARGUMENTS[name[:-1]](b)) is a
    assert torch.equal(a.full_tensor(), x)


@torch.no_grad()
def test_dtypes_are_promoted_as_torch_does(sites: int) -> None:
    whole, floats = torch.arange(12).reshape(6, 2), drawn(3, 6, 2)
    counts, single = blocks(whole, sites), blocks(floats, sites)
    for actual, wanted in (
        (counts / 2, whole / 2),
        (counts * single, whole * floats),
        (single.add(blocks(floats.double(), sites)), floats.add(floats.double())),
        (single.add_(blocks(floats.double(), sites)), floats.add_(floats.double())),
        (single.mul(torch.tensor(2.0)), floats.mul(2.0)),
    ):
        assert isinstance(actual, DistributedTensor)
        assert actual.dtype is wanted.dtype
        assert torch.equal(actual.full_tensor(), wanted)
    with pytest.raises(RuntimeError, match="can't be cast"):
        counts.mul_(0.5)


@torch.no_grad()
def test_operands_of_different_layouts_are_refused_without_a_gradient_too(sites: int) -> None:
    x = blocks(drawn(1, 6, 6), sites)
    with pytest.raises(joinsum.PlanError, match="no operator on blocks"):
        torch.nonzero(x)
    with pytest.raises(joinsum.PlanError, match="does not broadcast"):
        x.add_(torch.ones(5))
    joinsum.init(sites=2)
    other = DistributedTensor.of(drawn(1, 6, 6), parts=(1, 2))
    with pytest.raises(joinsum.PlanError, match="another init"):
        x.add_(other)


def test_autograd_sees_what_is_written_in_place(sites: int) -> None:
    weight = blocks(drawn(1, 4, 3), sites).requires_grad_()
    product = weight * weight
    with torch.no_grad():
        weight.mul_(2).add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_in_inference_mode_they_are_as_elsewhere(sites: int) -> None:
    with torch.inference_mode():
        x = blocks(drawn(1, 4, 3), sites)
        assert torch.equal(x.mul_(2).add(1).full_tensor(), drawn(1, 4, 3) * 2 + 1)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.AdamW, {}),
        (torch.optim.Adam, {"amsgrad": True, "weight_decay": 0.1}),
        (torch.optim.SGD, {}),
        (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
    ],
)
def test_fused_optimizers_step_on_the_blocks(sites: int, kind: Any, options: Any) -> None:
    plain, cut = nn.Linear(3, 5), nn.Linear(3, 5)
    cut.load_state_dict(plain.state_dict())
    for parameter in (cut.weight, cut.bias)[: 1 + (sites == 1)]:
        parts = (sites,) + (1,) * (parameter.dim() - 1)
        replace_tensor(parameter, DistributedTensor.of(parameter, parts=parts))
    optimizers = [kind(m.parameters(), lr=0.1, fused=True, **options) for m in (plain, cut)]
    for seed in range(3):
        for p, q in zip(plain.parameters(), cut.parameters(), strict=True):
            p.grad = drawn(seed, *p.shape) - 0.5
            q.grad = (
                DistributedTensor.stored_as(p.grad, q.physical_type) if isinstance(q, DistributedTensor) else p.grad
            )
        for optimizer in optimizers:
            optimizer.step()
    assert isinstance(cut.weight, DistributedTensor)
    torch.testing.assert_close(cut.weight.full_tensor(), plain.weight.detach())
    for value in optimizers[1].state[cut.weight].values():
        assert isinstance(value, DistributedTensor) or value.dim() == 0


@torch.no_grad()
@pytest.mark.parametrize("make", [torch._foreach_mul, torch._foreach_add])
def test_lists_of_blocks_are_torchs(sites: int, make: Any) -> None:
    xs, ys = [drawn(i, 4, 3) for i in range(3)], [drawn(i + 3, 4, 3) for i in range(3)]
    actual = make([blocks(x, sites) for x in xs], [blocks(y, sites) for y in ys])
    for a, b in zip(actual, make(xs, ys), strict=True):
        assert isinstance(a, DistributedTensor)
        assert torch.equal(a.full_tensor(), b)


@torch.no_grad()
def test_a_result_of_one_block_is_a_distributed_tensor_like_any_other(sites: int) -> None:
    x = blocks(drawn(1, 4, 6), sites)
    y = x.mul(2)
    before = y.stored.to_tensor()  # a plan reads it
    assert torch.equal(before, drawn(1, 4, 6) * 2)
    y.add_(1)
    assert torch.equal(y.full_tensor(), before + 1)
    y.stored.take()
    with pytest.raises(joinsum.PlanError, match="overwritten"):
        y.add_(1)


@torch.no_grad()
def test_temporaries_on_one_site_never_enter_the_store(sites: int) -> None:
    current = joinsum.context()
    x = blocks(drawn(1, 6, 5), sites)
    before = current.bytes
    root = x.sqrt().add_(1)
    assert current.bytes == before + (0 if sites == 1 else root.numel() * 4)
    seen = weakref.ref(root.blocks()[0])
    del root
    gc.collect()
    assert current.bytes == before
    assert seen() is None


@torch.no_grad()
def test_plain_tensors_of_the_shape_are_operands_without_a_copy(sites: int) -> None:
    x, y = drawn(1, 6, 5), drawn(2, 5, 6).t()
    a = blocks(x, sites)
    assert torch.equal(a.mul(y).full_tensor(), x * y)
    assert torch.equal(a.copy_(y).full_tensor(), y)
    a.add_(1)
    assert torch.equal(y, drawn(2, 5, 6).t())
    joined = DistributedTensor(joinsum.relation(drawn(3, 4, 3, 2), parts=(min(sites, 2), 1, 1)).stored(), (12, 2))
    assert torch.equal(joined.copy_(drawn(4, 12, 2)).full_tensor(), drawn(4, 12, 2))
    assert torch.equal(joined.add(drawn(5, 12, 2)).full_tensor(), drawn(4, 12, 2) + drawn(5, 12, 2))
