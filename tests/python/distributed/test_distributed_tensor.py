"""Claims about tensors in blocks: what they compute is what plain tensors compute, and the rest is refused."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import joinsum
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from joinsum import DistributedTensor
from joinsum.distributed.distributed_tensor import gathered, replace_tensor
from torch import Tensor, nn


@pytest.fixture(autouse=True, params=[1, 3, 4])
def sites(request: pytest.FixtureRequest) -> Iterator[int]:
    joinsum.init(sites=request.param)
    yield request.param
    joinsum.init()


def blocks(x: Tensor, sites: int, replicated: bool = False) -> DistributedTensor:
    return DistributedTensor.of(x, parts=(sites, 1), place="replicated" if replicated else None)


def draw(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


ELEMENTWISE: list[Callable[[Tensor, Tensor], Tensor]] = [
    lambda x, y: x + y,
    lambda x, y: x.mul(3).sub(y, alpha=2),
    lambda x, y: torch.where(x > y, x, y),
    lambda x, y: x.clamp(-1, 1).lerp(y, 0.25),
    lambda x, y: torch.addcdiv(x, y, x.abs() + 1, value=0.5),
    lambda x, y: (x < 0).to(torch.float64) * 2,
    lambda x, y: x.to(torch.bfloat16).float(),
    lambda x, y: torch.zeros_like(x) + torch.full_like(y, 3.0),
    lambda x, y: x * torch.tensor(2.0),
]
IN_PLACE: list[Callable[[Tensor, Tensor], Any]] = [
    lambda x, y: x.add_(y, alpha=2),
    lambda x, y: x.mul_(y).addcmul_(y, y, value=0.5),
    lambda x, y: x.lerp_(y, 0.1).sqrt_(),
    lambda x, y: x.zero_().add_(1),
    lambda x, y: x.copy_(y),
    lambda x, y: x.fill_(2.5),
    lambda x, y: torch._foreach_add_([x, y], [y, x], alpha=0.5),
    lambda x, y: torch._foreach_mul_([x, y], [2.0, 3.0]),
    lambda x, y: torch._foreach_addcdiv_([x], [y], [y * y + 1], 0.5),
    lambda x, y: torch._foreach_mul_([x, y], torch.tensor(0.5)),
    lambda x, y: torch._foreach_copy_([x, y], [y, x * 2]),
    lambda x, y: torch._foreach_zero_([x]),
    lambda x, y: setattr(x, "data", y * 2),
    lambda x, y: x.data.mul_(3),
]
REDUCTIONS: list[Callable[[Tensor], Tensor]] = [
    lambda x: x.norm(),
    lambda x: torch.linalg.vector_norm(x, 1),
    lambda x: torch.linalg.vector_norm(x, float("inf")),
    lambda x: x.sum(),
    lambda x: x.mean(),
    lambda x: x.max(),
    lambda x: (x * 100).to(torch.int64).min(),
    lambda x: (x > 0).any(),
    lambda x: x.isfinite().all(),
    lambda x: torch.stack(torch._foreach_norm([x, x * 2], 3)),
    lambda x: torch.stack(torch._foreach_max([x, x * 2])),
    lambda x: torch.norm(x, p=1),
    lambda x: torch.norm(x, "fro"),
    lambda x: torch.linalg.norm(x, "fro"),
    lambda x: torch.linalg.vector_norm(x, -1),
    lambda x: torch.linalg.vector_norm(x, float("-inf"), dim=(0, 1)),
    lambda x: x.to(torch.float16).norm(dtype=torch.float32),
    lambda x: x.to(torch.complex64).norm(),
    lambda x: (x.abs() * 20000).to(torch.float16).mean(),  # a sum beyond the halves' range
    lambda x: (x * 100).to(torch.int64).mean(dtype=torch.float64),
    lambda x: torch.nn.utils.get_total_norm([x, x * 2], 1),
    lambda x: torch.nn.utils.get_total_norm([x, x * 2], float("inf"), foreach=False),
]


@pytest.mark.parametrize("replicated", [False, True])
@pytest.mark.parametrize("index", range(len(ELEMENTWISE)))
def test_elementwise_operators_act_on_the_blocks(sites: int, index: int, replicated: bool) -> None:
    x, y = draw(5, 4), draw(5, 4, seed=2)
    result = ELEMENTWISE[index](blocks(x, sites, replicated), blocks(y, sites, replicated))
    assert isinstance(result, DistributedTensor)
    wanted = ELEMENTWISE[index](x, y)
    assert result.dtype is wanted.dtype
    torch.testing.assert_close(result.full_tensor(), wanted, rtol=0, atol=0)


@pytest.mark.parametrize("replicated", [False, True])
@pytest.mark.parametrize("index", range(len(IN_PLACE)))
def test_operators_in_place_write_each_block_once(sites: int, index: int, replicated: bool) -> None:
    x, y = draw(5, 4).abs(), draw(5, 4, seed=2).abs()
    cut = blocks(x, sites, replicated), blocks(y, sites, replicated)
    IN_PLACE[index](*cut)
    IN_PLACE[index](x, y)
    for own, wanted in zip(cut, (x, y), strict=True):
        torch.testing.assert_close(own.full_tensor(), wanted, rtol=0, atol=0)


@pytest.mark.parametrize("replicated", [False, True])
@pytest.mark.parametrize("index", range(len(REDUCTIONS)))
def test_reductions_of_all_elements_are_plain_tensors(sites: int, index: int, replicated: bool) -> None:
    x = draw(5, 4)
    result = REDUCTIONS[index](blocks(x, sites, replicated))
    assert not isinstance(result, DistributedTensor)
    torch.testing.assert_close(result, REDUCTIONS[index](x))


ORDERS = (2, 1, 0, 3, 0.5, -1, -2.5, float("inf"), float("-inf"))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_norms_along_any_axes_are_torchs(sites: int, dtype: torch.dtype, order: float) -> None:
    tolerance = 1e-10 if dtype is torch.float64 else 1e-5
    x = draw(5, 4, 2).to(dtype)
    x[0, 0, 0] = 0
    cut = DistributedTensor.of(x, parts=(sites, 1, 1))
    for dim in (None, (), 0, -1, (0, 2), (2, 1), (0, 1, 2)):
        for keepdim in (False, True):
            found = torch.linalg.vector_norm(cut, order, dim, keepdim)
            wanted = torch.linalg.vector_norm(x, order, dim, keepdim)
            assert not isinstance(found, DistributedTensor)
            torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)
    widened = torch.linalg.vector_norm(cut, order, 1, dtype=torch.promote_types(dtype, torch.float64))
    torch.testing.assert_close(
        widened, torch.linalg.vector_norm(x, order, 1, dtype=torch.promote_types(dtype, torch.float64))
    )


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.norm(dim=1),
        lambda x: x.norm(1, dim=0, keepdim=True),
        lambda x: torch.norm(x, float("inf"), dim=[0, 1], keepdim=True),
        lambda x: torch.linalg.norm(x, 2, dim=1),
        lambda x: nn.functional.normalize(x),
        lambda x: nn.functional.normalize(x, 3.0, dim=0),
        lambda x: nn.functional.cosine_similarity(x, x + 1),
    ],
)
@pytest.mark.parametrize("way", ["distribute", "train_step"])
def test_norms_along_an_axis_of_a_parameter_have_gradients(
    sites: int, way: str, function: Callable[[Tensor], Tensor]
) -> None:
    torch.manual_seed(3)
    layer, x = nn.Linear(4, 6).double(), draw(3, 4).double()
    if way == "distribute":
        joinsum.distribute(layer, x)
    else:
        step = joinsum.train_step(layer, nn.functional.mse_loss, torch.optim.SGD(layer.parameters(), lr=0.1))
        step(x, draw(3, 6).double())
    assert isinstance(layer.weight, DistributedTensor)
    plain = layer.weight.full_tensor().detach().requires_grad_()
    found, wanted = function(layer.weight), function(plain)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)
    with torch.inference_mode():
        torch.testing.assert_close(function(layer.weight), wanted, rtol=1e-10, atol=1e-10)
    layer.weight.grad = None
    weights = torch.arange(1.0, wanted.numel() + 1).view_as(wanted)
    (found * weights).sum().backward()
    (wanted * weights).sum().backward()
    assert layer.weight.grad is not None
    torch.testing.assert_close(gathered(layer.weight.grad), plain.grad, rtol=1e-10, atol=1e-10)


def in_place_operators() -> list[str]:
    """Methods in place of which torch says that their other form is elementwise, and that draw no numbers."""
    found = []
    for name in (name for name in dir(Tensor) if name.endswith("_") and not name.startswith("_")):
        packet = getattr(torch.ops.aten, name[:-1], None)
        forms = [getattr(packet, overload) for overload in packet.overloads()] if packet is not None else []
        tags = [form.tags for form in forms if not any(x.is_out for x in form._schema.arguments)]
        random = any(torch.Tag.nondeterministic_seeded in each for each in tags)
        if not random and any(torch.Tag.pointwise in each for each in tags):
            found.append(name)
    return [name for name in found if name not in ("float_power_", "mvlgamma_", "polygamma_")]  # other arguments


@pytest.mark.parametrize("name", in_place_operators())
def test_each_elementwise_operator_in_place_is_torchs(sites: int, name: str) -> None:
    compared = 0
    other = draw(5, 4, seed=2)
    for others in ([], [0.5], [2], [other.abs()], [0.2, 0.6], [other, draw(5, 4, seed=3).abs()], [other > 0, 0.5]):
        for start in (draw(5, 4).abs() / 2, (draw(5, 4) * 9).to(torch.int64), draw(5, 4) > 0):
            floats = [isinstance(x, Tensor) and x.dtype is not torch.bool for x in others]
            rest = [x.to(start.dtype) if each else x for x, each in zip(others, floats, strict=True)]
            wanted, x = start.clone(), blocks(start, sites)
            cut = [blocks(each, sites) if isinstance(each, Tensor) else each for each in rest]
            try:
                getattr(wanted, name)(*rest)
            except (RuntimeError, TypeError):
                continue  # not with such arguments
            getattr(x, name)(*cut)
            torch.testing.assert_close(x.full_tensor(), wanted, equal_nan=True)
            compared += 1
    assert compared


@pytest.mark.parametrize("foreach", [True, False])
@pytest.mark.parametrize("order", [1.0, 2.0, float("inf")])
def test_clipping_by_any_norm_is_torchs(sites: int, order: float, foreach: bool) -> None:
    cut, plain = (
        [nn.Parameter(make(draw(5, 4, seed=i))) for i in range(2)] for make in (lambda x: blocks(x, sites), lambda x: x)
    )
    for each in (cut, plain):
        for i, p in enumerate(each):
            p.grad = p.detach() * (i + 2)
    totals = [torch.nn.utils.clip_grad_norm_(each, 0.5, order, foreach=foreach) for each in (cut, plain)]
    torch.testing.assert_close(*totals)
    for p, q in zip(cut, plain, strict=True):
        torch.testing.assert_close(gathered(p.grad), q.grad)


def test_lists_are_refused_where_the_operator_is_not_elementwise(sites: int) -> None:
    x = blocks(draw(4, 4), sites)
    with pytest.raises(joinsum.PlanError, match=r"_foreach_mm.*full_tensor"):
        torch.ops.aten._foreach_mm([x], [x])


def test_data_of_a_plain_tensor_are_copied(sites: int) -> None:
    x = blocks(draw(4, 4), sites).requires_grad_()
    place, y = str(x.physical_type), draw(4, 4, seed=2)
    x.data = y
    assert torch.equal(x.full_tensor(), y)
    y.zero_()
    assert x.full_tensor().any()
    before = x.data
    x.data = y
    assert not x.full_tensor().any()
    assert before.full_tensor().any()
    x.data = before
    assert x.full_tensor().any()
    assert (str(x.physical_type), x.requires_grad, x.grad_fn) == (place, True, None)


@pytest.mark.parametrize("other", [torch.ones(4, 3), torch.ones(4, 4, dtype=torch.float64), 2.0])
def test_data_of_another_shape_or_dtype_are_refused(sites: int, other: Any) -> None:
    x = blocks(draw(4, 4), sites)
    before = x.full_tensor()
    with pytest.raises(joinsum.PlanError, match="data is a tensor of the same shape and dtype: assigned="):
        x.data = other
    assert torch.equal(x.full_tensor(), before)


def test_parameters_are_a_vector_and_back() -> None:
    joinsum.init(sites=3)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
    plain = copy.deepcopy(model)
    joinsum.distribute(model, torch.ones(4, 6))
    vector = nn.utils.parameters_to_vector(model.parameters())
    assert torch.equal(vector, nn.utils.parameters_to_vector(plain.parameters()))
    nn.utils.vector_to_parameters(vector * 2, model.parameters())
    for x, y in zip(model.parameters(), plain.parameters(), strict=True):
        assert isinstance(x, DistributedTensor)
        assert torch.equal(x.full_tensor(), 2 * y)


@settings(max_examples=25, deadline=None)
@given(
    shape=st.lists(st.integers(1, 7), min_size=1, max_size=3),
    data=st.data(),
)
def test_any_tiling_of_any_shape_is_the_tensor(shape: list[int], data: st.DataObject) -> None:
    parts = [data.draw(st.integers(1, n)) for n in shape]
    x = draw(*shape)
    y = DistributedTensor.of(x, parts=parts)
    assert y.shape == x.shape
    assert torch.equal((y * 2 + y).full_tensor(), x * 2 + x)
    torch.testing.assert_close(y.sum(), x.sum())
    torch.testing.assert_close(y.norm(), x.norm())


def test_the_user_s_tensor_is_not_written(sites: int) -> None:
    x = draw(6, 2)
    before = x.clone()
    blocks(x, sites).mul_(5)
    assert torch.equal(x, before)


def test_other_operators_are_refused_with_the_remedy(sites: int) -> None:
    x = blocks(draw(4, 4), sites)
    segments = torch.tensor([1, 3])
    calls = (
        lambda: torch.pdist(x),
        lambda: torch.segment_reduce(x, "sum", lengths=segments),
        lambda: x[x > 0],
        lambda: x.tril_(),
    )
    for call in calls:
        with pytest.raises(joinsum.PlanError, match="full_tensor"):
            call()


def test_operands_of_different_layouts_are_refused(sites: int) -> None:
    x, y = blocks(draw(4, 4), sites), DistributedTensor.of(draw(4, 4, seed=2), parts=(1, 2))
    with pytest.raises(joinsum.PlanError, match="operands have different layouts"):
        x + y
    wanted = x.full_tensor() + y.full_tensor()
    assert torch.equal((x + y.like(x.physical_type)).full_tensor(), wanted)
    x.copy_(y)  # copying moves
    assert torch.equal(x.full_tensor(), y.full_tensor())


def test_blocks_of_another_init_are_refused(sites: int) -> None:
    x = blocks(draw(4, 4), sites)
    joinsum.init(sites=sites)
    with pytest.raises(joinsum.PlanError, match="another init"):
        x + blocks(draw(4, 4), sites)


@pytest.mark.parametrize("replicated", [False, True])
def test_in_one_process_they_are_arrays_and_lists(sites: int, replicated: bool) -> None:
    x = draw(5, 4).double()
    cut = blocks(x, sites, replicated)
    for found in (cut.numpy(), cut.detach().cpu().numpy(), np.asarray(cut), np.array(cut), cut.numpy(force=True)):
        assert np.array_equal(found, x.numpy())
    assert np.asarray(cut, dtype=np.float32).dtype == np.float32
    assert cut.tolist() == x.tolist()
    assert cut.bfloat16().float().tolist() == x.bfloat16().float().tolist()
    with pytest.raises(ValueError, match="read-only"):
        cut.numpy()[0, 0] = 1
    np.array(cut)[0, 0] = 1
    torch.testing.assert_close(cut.full_tensor(), x, rtol=0, atol=0)


def test_arrays_of_parameters_are_asked_for_as_in_torch(sites: int) -> None:
    parameter = nn.Parameter(blocks(draw(5, 4), sites))
    for call in (lambda: parameter.numpy(), lambda: np.asarray(parameter), lambda: (parameter * 2).numpy()):
        with pytest.raises(RuntimeError, match=r"detach\(\)"):
            call()
    assert np.array_equal(parameter.detach().numpy(), draw(5, 4).numpy())
    assert np.array_equal(parameter.numpy(force=True), draw(5, 4).numpy())
    assert parameter.tolist() == draw(5, 4).tolist()


def test_numbers_of_one_element(sites: int) -> None:
    for x in (DistributedTensor.of(torch.tensor(1.5)), nn.Parameter(DistributedTensor.of(torch.tensor([1.5])))):
        assert (x.item(), float(x), int(x), bool(x)) == (1.5, 1.5, 1, True)
        assert "DistributedTensor(f32" in f"{x} {x!r}"
    assert f"{DistributedTensor.of(torch.tensor(1.5)):.2f}" == "1.50"
    with pytest.raises(TypeError, match="format"):
        f"{blocks(draw(5, 4), sites):.2f}"


def test_in_one_process_they_are_pickled_as_their_unsharded_tensors(sites: int) -> None:
    x = draw(4, 4)
    found = pickle.loads(pickle.dumps(blocks(x, sites)))
    assert type(found) is Tensor
    assert torch.equal(found, x)


def test_full_tensors_have_gradients_in_blocks(sites: int) -> None:
    x = draw(4, 3)
    y = blocks(x, sites).requires_grad_()
    (y.full_tensor() ** 2).sum().backward()
    (y.full_tensor() * 3).sum().backward()
    assert isinstance(y.grad, DistributedTensor)
    assert y.grad.physical_type == y.physical_type
    torch.testing.assert_close(y.grad.full_tensor(), 2 * x + 3)


def test_a_parameter_remains_the_same_object_when_it_is_distributed(sites: int) -> None:
    layer = nn.Linear(3, 5)
    weight, before = layer.weight, layer.weight.detach().clone()
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    weight.grad = torch.ones(5, 3)
    replace_tensor(weight, blocks(weight, sites))
    assert layer.weight is weight
    assert isinstance(weight, nn.Parameter)
    assert weight.requires_grad
    assert weight.is_leaf
    assert weight.grad.physical_type == weight.physical_type
    optimizer.step()
    torch.testing.assert_close(weight.full_tensor(), before - 1)
    replace_tensor(weight, gathered(weight))
    assert type(weight) is nn.Parameter
    torch.testing.assert_close(weight.detach(), before - 1)


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad])
def test_optimizers_step_on_the_blocks(sites: int, kind: Any, foreach: bool) -> None:
    plain, cut = nn.Linear(3, 5), nn.Linear(3, 5)
    cut.load_state_dict(plain.state_dict())
    replace_tensor(cut.weight, blocks(cut.weight, sites))
    one, other = (kind(m.parameters(), lr=0.1, foreach=foreach) for m in (plain, cut))
    for seed in range(3):
        grads = draw(5, 3, seed=seed), draw(5, seed=seed + 10)
        plain.weight.grad, plain.bias.grad = grads[0].clone(), grads[1].clone()
        cut.weight.grad, cut.bias.grad = blocks(grads[0], sites), grads[1].clone()
        norms = [torch.nn.utils.clip_grad_norm_(m.parameters(), 0.5) for m in (plain, cut)]
        torch.testing.assert_close(*norms)
        one.step()
        other.step()
    torch.testing.assert_close(cut.weight.full_tensor(), plain.weight.detach())
    torch.testing.assert_close(cut.bias, plain.bias)


def test_deep_copies_have_their_own_blocks(sites: int) -> None:
    layer = nn.Linear(3, 5)
    replace_tensor(layer.weight, blocks(layer.weight, sites))
    twin = copy.deepcopy(layer)
    with torch.no_grad():
        twin.weight.zero_()
    assert isinstance(twin.weight, nn.Parameter)
    assert twin.weight.requires_grad
    assert layer.weight.norm() > 0


def test_load_state_dict_takes_plain_tensors(sites: int) -> None:
    layer = nn.Linear(3, 5)
    replace_tensor(layer.weight, blocks(layer.weight, sites))
    layer.load_state_dict({"weight": torch.ones(5, 3), "bias": torch.zeros(5)})
    assert isinstance(layer.weight, DistributedTensor)
    assert torch.equal(layer.weight.full_tensor(), torch.ones(5, 3))


def test_it_prints_as_plans_do(sites: int) -> None:
    x = blocks(draw(6, 4), sites).requires_grad_()
    assert repr(x) == f"DistributedTensor({x.physical_type}, requires_grad=True)"


def test_what_a_run_has_overwritten_says_so(sites: int) -> None:
    x = blocks(draw(6, 4), sites)
    x.stored.take()
    assert "overwritten" in repr(x)
    with pytest.raises(joinsum.PlanError, match="overwritten"):
        x + 1


@pytest.mark.parametrize("convert", [joinsum.to_dtensor, lambda x: joinsum.from_dtensor(x)])
def test_loopback_has_no_dtensors(sites: int, convert: Any) -> None:
    with pytest.raises(joinsum.PlanError, match="torchrun"):
        convert(blocks(draw(4, 4), sites))


def test_blocks_that_do_not_fit_are_refused(sites: int) -> None:
    current = joinsum.context()
    x = blocks(draw(12, 4), sites)
    arrays = x.blocks()
    for wrong, message in (
        (arrays[:-1], "too few blocks"),
        ([*arrays, arrays[0]], "too many blocks"),
        ([array[:, :-1] for array in arrays], "block does not fit the relation: site=0"),
    ):
        with pytest.raises(joinsum.PlanError, match=message):
            joinsum._C.place_blocks(wrong, x.physical_type, current.local_sites, current.store)


def test_a_tensor_that_is_pending_or_has_holes_is_none(sites: int) -> None:
    holes = joinsum.relation({(0,): torch.ones(2), (2,): torch.ones(2)}, links=[0]).stored()
    with pytest.raises(joinsum.PlanError, match="the relation is not one tensor"):
        DistributedTensor(holes)


def test_the_form_stays_one_object_until_shape_or_dtype_change() -> None:
    x, y = joinsum.DistributedTensor.of(torch.ones(4)), joinsum.DistributedTensor.of(torch.ones(2, 3).double())
    form = x.form
    assert form == (torch.Size([4]), torch.float32, torch.device("cpu"))
    with torch.no_grad():
        x.add_(1).copy_(2 * x)
    assert x.form is form
    x.data = y
    assert x.form == (torch.Size([2, 3]), torch.float64, torch.device("cpu"))
    z = joinsum.DistributedTensor.of(torch.ones(5))
    forms = x.form, z.form
    torch.utils.swap_tensors(x, z)
    assert (z.form, x.form) == forms
    assert x.shape == (5,)
