"""Claims about writing into tensors in blocks: smaller operands broadcast, and random numbers are torch's own."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import joinsum
import pytest
import torch
from joinsum import DistributedTensor
from joinsum.distributed.distributed_tensor import gathered
from torch import Tensor, nn


@pytest.fixture(autouse=True, params=[1, 3, 4])
def sites(request: pytest.FixtureRequest) -> Iterator[int]:
    joinsum.init(sites=request.param)
    yield request.param
    joinsum.init()


LAYOUTS = ["rows", "columns", "both", "replicated", "one block"]


def stored(x: Tensor, layout: str, sites: int) -> DistributedTensor:
    """A matrix in a layout."""
    parts = {"rows": (sites, 1), "columns": (1, sites), "both": (2, 2)}.get(layout, (1, 1))
    return DistributedTensor.of(x, parts=parts, place="replicated" if layout == "replicated" else None)


def stored_evenly(x: Tensor, sites: int) -> DistributedTensor:
    """Any tensor, divided along its first axis."""
    return DistributedTensor.of(
        x, parts=[min(sites, extent) if axis == 0 else 1 for axis, extent in enumerate(x.shape)]
    )


def draw(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def compare(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(gathered(found), wanted, equal_nan=True)


# --- operands that are smaller than the tensor ------------------------------------------------------------------------

OPERANDS = {"row": (6,), "flat row": (1, 6), "column": (5, 1), "element": (1,), "number": (), "matrix of one": (1, 1)}
UPDATES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "mul_": lambda w, y: w.mul_(y),
    "sub_": lambda w, y: w.sub_(y, alpha=2),
    "div_": lambda w, y: w.div_(y),
    "addcmul_": lambda w, y: w.addcmul_(y, y, value=0.5),
    "lerp_": lambda w, y: w.lerp_(y, 0.25),
    "clamp_": lambda w, y: w.clamp_(min=y),
    "masked_fill_": lambda w, y: w.masked_fill_(y > 0, 7.0),
    "copy_": lambda w, y: w.copy_(y),
    "operator": lambda w, y: w.__imul__(y),
    "out=": lambda w, y: torch.mul(w, y, out=w),
    "foreach": lambda w, y: torch._foreach_mul_([w, w], [y, y * 2]),
}
VALUES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "*": lambda w, y: w * y,
    "reflected -": lambda w, y: y - w,
    "where": lambda w, y: torch.where(y > 0, w, y),
    "foreach": lambda w, y: torch._foreach_add([w], [y])[0],
}


@pytest.mark.parametrize("distributed", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", UPDATES)
def test_smaller_operands_broadcast_in_place(sites: int, name: str, layout: str, distributed: bool) -> None:
    for shape in OPERANDS.values():
        w, y = draw(5, 6), draw(*shape, seed=2)
        cut = stored(w, layout, sites)
        UPDATES[name](cut, stored_evenly(y, sites) if distributed else y)
        UPDATES[name](w, y)
        compare(cut, w)


@pytest.mark.parametrize("distributed", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", VALUES)
def test_smaller_operands_broadcast_to_a_new_tensor(sites: int, name: str, layout: str, distributed: bool) -> None:
    for shape in OPERANDS.values():
        w, y = draw(5, 6), draw(*shape, seed=2)
        found = VALUES[name](stored(w, layout, sites), stored_evenly(y, sites) if distributed else y)
        compare(found, VALUES[name](w, y))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_views_of_distributed_tensors_are_operands(sites: int, layout: str) -> None:
    w, bias = draw(5, 6), draw(5, seed=2)
    cut = stored(w, layout, sites)
    cut.add_(stored_evenly(bias, sites)[:, None])
    compare(cut, w + bias[:, None])
    with pytest.raises(joinsum.PlanError, match="a view of distributed tensors is a copy"):
        cut[:, 0].add_(cut[:, 1])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_flow_through_broadcasting_in_place(sites: int, layout: str) -> None:
    w, y = draw(5, 6).requires_grad_(), draw(6, seed=2).requires_grad_()
    cut, row = stored(w, layout, sites).requires_grad_(), y.detach().requires_grad_()
    for x, factor in ((w, y), (cut, row)):
        ((x * 2).mul_(factor) * torch.arange(30.0).view(5, 6)).sum().backward()
    compare(cut.grad, w.grad)
    compare(row.grad, y.grad)


CENTRED: dict[str, Callable[[Tensor], Any]] = {
    "rows centred": lambda w: w.sub_(w.mean(1, keepdim=True)),
    "columns centred": lambda w: w.sub_(w.mean(0)),
    "rows of norm 1": lambda w: w.div_(w.norm(dim=1, keepdim=True)),
    "rows of norm at most 1": lambda w: w.mul_(1 / w.norm(dim=1, keepdim=True).clamp(min=1)),
    "columns scaled": lambda w: w.mul_(torch.arange(w.shape[1])),
}


@pytest.mark.parametrize("name", CENTRED)
def test_parameters_and_gradients_are_centred_and_scaled_in_place(sites: int, name: str) -> None:
    torch.manual_seed(3)
    plain, x = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)).double(), draw(5, 6).double()
    cut = joinsum.distribute(copy.deepcopy(plain), x)
    for model in (plain, cut):
        model(x).square().sum().backward()
        for layer in (model[0], model[2]):
            CENTRED[name](layer.weight.grad)
            with torch.no_grad():
                CENTRED[name](layer.weight)
    for p, q in zip(cut.parameters(), plain.parameters(), strict=True):
        assert isinstance(p, DistributedTensor)
        compare(p, q.detach())
        compare(p.grad, q.grad)


def test_operands_that_do_not_fit_are_refused(sites: int) -> None:
    w = stored(draw(5, 6), "rows", sites)
    before = w.full_tensor()
    for y in (draw(4), draw(6, 1), draw(2, 5, 6)):
        with pytest.raises(joinsum.PlanError, match="does not broadcast to the tensor"):
            w.mul_(y)
        with pytest.raises(joinsum.PlanError, match="does not broadcast to the tensor"):
            w.mul_(stored_evenly(y, sites))
    with pytest.raises(joinsum.PlanError, match="out= has another shape"):
        torch.mul(draw(6), 2 * draw(6), out=w)
    assert torch.equal(w.full_tensor(), before)


def test_tensors_of_one_layout_and_different_shapes_broadcast(sites: int) -> None:
    w = stored(draw(4, 6), "one block", sites)
    column, row = DistributedTensor(w.stored, (24, 1)), DistributedTensor(w.stored, (24,))
    wanted = draw(4, 6).view(24, 1) * draw(4, 6).view(24)
    compare(column * row, wanted)
    with torch.no_grad():
        compare(column * row, wanted)


# --- comparisons ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
def test_allclose_is_torchs(sites: int, layout: str) -> None:
    x = draw(5, 6)
    x[0, 0] = float("inf")
    holes = x.clone()
    holes[4, 5] = float("nan")
    near, far, row = x * (1 + 1e-4), x + torch.eye(5, 6), draw(6)
    one = stored(x, layout, sites).requires_grad_()
    for other in (x, near, far, holes, row, torch.tensor(1.0)):
        for tolerances in ({}, {"rtol": 1e-3}, {"atol": 2.0}, {"rtol": 0.0, "atol": 0.0}, {"equal_nan": True}):
            wanted = torch.allclose(x, other, **tolerances)
            for cut in (other, stored_evenly(other, sites)):
                assert torch.allclose(one, cut, **tolerances) is wanted
                assert torch.allclose(cut, one, **tolerances) is torch.allclose(other, x, **tolerances)
    empty = stored(holes, layout, sites)
    assert torch.allclose(empty, holes) is False
    assert torch.allclose(empty, empty, equal_nan=True) is True
    with torch.inference_mode():
        assert torch.allclose(one, x) is True
    with pytest.raises(RuntimeError, match="Double"):
        torch.allclose(one, x.double())


def test_masks_are_combined_in_place_in_inference_mode(sites: int) -> None:
    x = draw(5, 6)
    with torch.inference_mode():
        mask = stored(x, "rows", sites) > 0
        mask &= stored(x, "rows", sites) < 1
        compare(mask, (x > 0) & (x < 1))


# --- random numbers and initial values --------------------------------------------------------------------------------

DRAWS: dict[str, Callable[[Tensor], Any]] = {
    "uniform_": lambda w: w.uniform_(-1, 2),
    "normal_": lambda w: w.normal_(1, 3),
    "exponential_": lambda w: w.exponential_(2.0),
    "bernoulli_": lambda w: w.bernoulli_(0.3),
    "bernoulli_ of a tensor": lambda w: w.bernoulli_(w.abs().clamp(max=1)),
    "cauchy_": lambda w: w.cauchy_(),
    "log_normal_": lambda w: w.log_normal_(),
    "geometric_": lambda w: w.geometric_(0.5),
    "random_": lambda w: w.random_(),
    "random_ from": lambda w: w.random_(3, 9),
    "random_ to": lambda w: w.random_(5),
    "generator": lambda w: w.normal_(generator=torch.Generator().manual_seed(9)),
    "init.uniform_": lambda w: nn.init.uniform_(w, -2, 1),
    "init.normal_": lambda w: nn.init.normal_(w, 1, 2),
    "init.trunc_normal_": lambda w: nn.init.trunc_normal_(w, std=1.5),
    "init.trunc_normal_ of a tail": lambda w: nn.init.trunc_normal_(w, a=1.0, b=1.2),
    "init.xavier_uniform_": lambda w: nn.init.xavier_uniform_(w),
    "init.xavier_normal_": lambda w: nn.init.xavier_normal_(w, 2.0),
    "init.kaiming_uniform_": lambda w: nn.init.kaiming_uniform_(w, 5**0.5),
    "init.kaiming_normal_": lambda w: nn.init.kaiming_normal_(w, mode="fan_out"),
    "init.constant_": lambda w: nn.init.constant_(w, 2.5),
    "init.ones_": lambda w: nn.init.ones_(w),
    "init.zeros_": lambda w: nn.init.zeros_(w),
    "init.eye_": lambda w: nn.init.eye_(w),
    "init.orthogonal_": lambda w: nn.init.orthogonal_(w, 2.0),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", DRAWS)
def test_what_is_drawn_in_place_is_torchs(sites: int, name: str, layout: str) -> None:
    plain = nn.Parameter(draw(6, 5))
    cut = nn.Parameter(stored(draw(6, 5), layout, sites))
    following = []
    for w in (plain, cut):
        torch.manual_seed(7)
        with torch.no_grad():
            assert DRAWS[name](w) is w
        following.append(torch.rand(2))
    assert cut.requires_grad
    compare(cut, plain.detach())
    assert torch.equal(*following)  # the generator has advanced alike


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.int64])
def test_draws_have_the_dtype_of_the_tensor(sites: int, dtype: torch.dtype) -> None:
    plain = draw(6, 5).to(dtype)
    cut = stored(plain, "rows", sites)
    for w in (plain, cut):
        torch.manual_seed(7)
        w.random_(0, 100)
    assert torch.equal(cut.full_tensor(), plain)


def test_kernels_of_convolutions_begin_as_identities(sites: int) -> None:
    plain = torch.ones(4, 3, 3, 3)
    cut = stored_evenly(plain, sites)
    for w in (plain, cut):
        nn.init.dirac_(w)
    compare(cut, plain)


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[Tensor, ...]]] = {
    "linear": (lambda: nn.Linear(6, 8), (torch.ones(3, 6),)),
    "bilinear": (lambda: nn.Bilinear(4, 6, 8), (torch.ones(3, 4), torch.ones(3, 6))),
    "convolution": (lambda: nn.Conv2d(3, 4, 3), (torch.ones(2, 3, 5, 5),)),
    "embedding": (lambda: nn.Embedding(9, 4), (torch.arange(3),)),
    "embedding with padding": (lambda: nn.Embedding(9, 4, padding_idx=1), (torch.arange(3),)),
    "layer norm": (lambda: nn.LayerNorm(4), (torch.ones(3, 4),)),
    "batch norm": (lambda: nn.BatchNorm1d(4), (torch.ones(3, 4),)),
    "lstm": (lambda: nn.LSTM(4, 6), (torch.ones(3, 2, 4),)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_reset_their_parameters_as_in_torch(sites: int, name: str) -> None:
    make, inputs = LAYERS[name]
    cut, plain = make(), make()
    joinsum.distribute(cut, inputs)
    for layer in (cut, plain):
        torch.manual_seed(5)
        layer.reset_parameters()  # type: ignore[operator]
    for p, q in zip(cut.parameters(), plain.parameters(), strict=True):
        assert isinstance(p, DistributedTensor)
        assert torch.equal(p.full_tensor(), q)


def test_initial_values_that_have_no_rule_are_refused(sites: int) -> None:
    w, kernel = stored(draw(5, 6), "rows", sites), stored_evenly(draw(5, 3, 2), sites)
    before = w.full_tensor()
    for call in (
        lambda: nn.init.orthogonal_(w),  # torch transposes a wide matrix in place
        lambda: nn.init.orthogonal_(kernel),
        lambda: torch.eye(3, out=w),
        lambda: w.tril_(),
    ):
        with pytest.raises(joinsum.PlanError, match=r"full_tensor|out= has another shape"):
            call()
    assert torch.equal(w.full_tensor(), before)
    assert torch.equal(kernel.full_tensor(), draw(5, 3, 2))


# --- numbers written into views ---------------------------------------------------------------------------------------

IN_VIEWS: dict[str, Callable[[Tensor], Any]] = {
    "row": lambda w: w[1].fill_(2.0),
    "last row": lambda w: w[-1].zero_(),
    "item": lambda w: w.__setitem__((1, 2), 3.0),
    "rows": lambda w: w.__setitem__(slice(1, 4), torch.tensor(4.0)),
    "part of a row": lambda w: w[2, 1:3].fill_(torch.tensor(5)),
    "narrow": lambda w: w.narrow(0, 1, 2).zero_(),
    "flattened": lambda w: w.view(-1)[3:15].fill_(6.0),
    "data": lambda w: w.data[0].zero_(),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", IN_VIEWS)
def test_numbers_are_written_through_views_of_adjacent_elements(sites: int, name: str, layout: str) -> None:
    plain, cut = nn.Parameter(draw(5, 6)), nn.Parameter(stored(draw(5, 6), layout, sites))
    versions = []
    for w in (plain, cut):
        before = w._version
        with torch.no_grad():
            IN_VIEWS[name](w)
        versions.append(w._version - before)
    compare(cut, plain.detach())
    assert versions[0] == versions[1]


@torch.no_grad()
def test_a_view_shows_the_number_that_was_written(sites: int) -> None:
    w = stored(draw(5, 6), "rows", sites)
    view = w[1]
    assert view.fill_(2.0) is view
    compare(view, torch.full((6,), 2.0))
    integers = stored(torch.arange(30).view(5, 6), "rows", sites)
    integers[1] = 2.7
    compare(integers[1].clone(), torch.full((6,), 2))


def test_what_else_is_written_into_views_is_refused(sites: int) -> None:
    w = stored(draw(5, 6), "rows", sites)
    leaf = w.clone().requires_grad_()
    before = w.full_tensor()
    calls = (
        lambda: w[0].add_(1),
        lambda: w[0].copy_(torch.ones(6)),
        lambda: w[:, 0].zero_(),
        lambda: w.t().contiguous().zero_(),  # a copy in torch
        lambda: w[:, 1].contiguous().fill_(1.0),
        lambda: w.diagonal().fill_(1.0),
        lambda: (leaf * 2)[0].zero_(),  # autograd would have to see it
    )
    for call in calls:
        with pytest.raises(joinsum.PlanError, match="a view of distributed tensors is a copy"):
            call()
    assert torch.equal(w.full_tensor(), before)
