"""Claims about tensors that are written between forward and backward pass: either that raises as torch does, or the
gradients are those of the values that the forward pass has read."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import joinsum
import pytest
import torch
import torch.nn.functional as F
from joinsum.distributed.distributed_tensor import gathered
from torch import Tensor, nn


@pytest.fixture(autouse=True, params=[1, 3])
def sites(request: pytest.FixtureRequest) -> Iterator[int]:
    torch._dynamo.reset()
    joinsum.init(sites=request.param)
    yield request.param
    joinsum.init()


class Model(nn.Module):
    def __init__(self, function: Callable[[Tensor, Tensor], Tensor], shape: tuple[int, ...]) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.rand(shape, generator=torch.Generator().manual_seed(1)) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.weight)


# What is saved for the backward pass: a parameter, views of it and of the input, results, views of these, copies.
CASES: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], tuple[int, ...]]] = {
    "square": (lambda x, w: w.square() + x, (8,)),
    "product": (lambda x, w: x @ w, (8, 12)),
    "batches": (lambda x, w: x.view(2, 3, 8) @ w, (2, 8, 5)),
    "transposed": (lambda x, w: x * w.t(), (8, 6)),
    "slice": (lambda x, w: x * w[:6], (12, 8)),
    "repeated": (lambda x, w: x * w[:, None].expand(6, 8), (6,)),
    "attention": (lambda x, w: F.scaled_dot_product_attention(x.view(1, 2, 3, 8), w, w), (1, 2, 5, 8)),
    "copy": (lambda x, w: w.clone() * x, (6, 8)),
    "result": (lambda x, w: (x @ w).tanh(), (8, 5)),
    "view of a result": (lambda x, w: (x @ w).tanh().view(2, 15), (8, 5)),
    "normed": (lambda x, w: F.layer_norm(x, (8,), w), (8,)),
}
WAYS: dict[str, Callable[[Model, Tensor], Callable[[Tensor], Tensor]]] = {
    "torch": lambda model, x: model,
    "compile": lambda model, x: joinsum.compile(model),
    "distribute": lambda model, x: joinsum.distribute(model, x),
}


def outcome(way: str, case: str, write: Callable[[Model, Tensor, Tensor], None]) -> Any:
    """What the backward pass raises, or the gradients of parameter and input."""
    model = Model(*CASES[case])
    x = torch.rand(6, 8, generator=torch.Generator().manual_seed(2)) + 0.5
    call = WAYS[way](model, x)
    x.requires_grad_()
    y = call(x)
    with torch.no_grad():
        write(model, x, y)
    try:
        y.backward(torch.full_like(y, 0.7))
    except RuntimeError as error:
        return str(error)
    assert model.weight.grad is not None
    return gathered(model.weight.grad), x.grad


def nothing(model: Model, x: Tensor, y: Tensor) -> None:
    pass


@pytest.mark.parametrize("way", ["compile", "distribute"])
@pytest.mark.parametrize("case", CASES)
def test_what_is_written_is_noticed_or_has_no_part_in_the_gradients(way: str, case: str) -> None:
    torch.testing.assert_close(outcome(way, case, nothing), wanted := outcome("torch", case, nothing))
    writes: dict[str, Callable[[Model, Tensor, Tensor], Any]] = {
        "parameter": lambda model, x, y: model.weight.mul_(2),
        "list": lambda model, x, y: torch._foreach_mul_([model.weight], 2),
        "copied": lambda model, x, y: model.weight.copy_(model.weight * 2),
        "input": lambda model, x, y: x.mul_(2),
        "result": lambda model, x, y: y.mul_(2),
    }
    for written, write in writes.items():
        actual, theirs = outcome(way, case, write), outcome("torch", case, write)
        if isinstance(actual, str):
            assert "modified by an inplace operation" in actual
            assert isinstance(theirs, str), written
        else:
            torch.testing.assert_close(actual, wanted, msg=written)
            assert not isinstance(theirs, str) or written == "result"


@pytest.mark.parametrize("way", ["compile", "distribute"])
def test_results_are_written_in_place_in_autograd(way: str) -> None:
    wanted = (Model(*CASES["product"])(torch.ones(6, 8)) / 2).sum()
    model = Model(*CASES["product"])
    result = WAYS[way](model, torch.ones(6, 8))(torch.ones(6, 8))
    result /= 2
    result.sum().backward()
    torch.testing.assert_close(result.sum(), wanted)
    assert model.weight.grad is not None
    torch.testing.assert_close(gathered(model.weight.grad), torch.full((8, 12), 3.0))


@pytest.mark.parametrize("way", ["compile", "distribute"])
def test_results_that_the_backward_pass_reads_are_unsharded_for_the_user(way: str) -> None:
    def largest(x: Tensor, w: Tensor) -> Any:
        return (x @ w).max(1)

    x = torch.rand(6, 8, generator=torch.Generator().manual_seed(2))
    model, plain = Model(largest, (8, 5)), Model(largest, (8, 5))
    results, wanted = WAYS[way](model, x)(x), plain(x)
    assert [type(each) for each in results] == [Tensor, Tensor]
    torch.testing.assert_close(tuple(results), tuple(wanted))
    results[0].sum().backward()
    wanted[0].sum().backward()
    assert model.weight.grad is not None
    torch.testing.assert_close(gathered(model.weight.grad), plain.weight.grad)


@pytest.mark.parametrize("way", ["compile", "distribute"])
def test_results_share_no_memory_with_parameters_inputs_and_constants(way: str) -> None:
    def copies(x: Tensor, w: Tensor) -> Any:
        return w.clone(), w.t().contiguous(), w[0].clone(), x.clone(), torch.arange(8) + 0, w.sum()

    x = torch.rand(6, 8, generator=torch.Generator().manual_seed(2))
    model, wanted = Model(copies, (8, 5)), Model(copies, (8, 5))(x)
    call = WAYS[way](model, x)
    for _ in range(2):
        results = call(x)
        torch.testing.assert_close(tuple(results), tuple(wanted))
        for each in results:
            each.detach().mul_(3)


class Bank(nn.Module):
    """A memory that the forward pass reads through a copy, and then writes into, as momentum contrast does."""

    bank: Tensor

    def __init__(self, copy: str, write: str) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(2)
        self.weight = nn.Parameter(torch.rand(4, 6, generator=generator))
        self.register_buffer("bank", torch.rand(6, 8, generator=generator))
        self.copy, self.write = COPIES[copy], WRITES[write]

    def forward(self, x: Tensor) -> Tensor:
        hidden = x @ self.weight
        scores = hidden @ self.copy(self.bank)
        with torch.no_grad():
            self.write(self.bank, hidden)
        return scores


COPIES: dict[str, Callable[[Tensor], Tensor]] = {
    "clone": lambda bank: bank.clone(),
    "detached": lambda bank: bank.detach().clone(),
    "transposed": lambda bank: bank.clone().T.contiguous().T,
    "converted": lambda bank: bank.to(torch.float32, copy=True),
    "scaled": lambda bank: bank * 2,
}
WRITES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "mul_": lambda bank, _: bank.mul_(3.0),
    "lerp_": lambda bank, _: bank.lerp_(torch.zeros(6, 8), 0.5),
    "row": lambda bank, _: bank[0].fill_(5.0),
    "queue": lambda bank, hidden: bank.copy_(torch.cat([bank[:, 2:], hidden.T[:, :2]], 1)),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("copy", COPIES)
def test_gradients_are_those_of_a_copy_that_was_made_before_the_forward_pass_wrote(copy: str, write: str) -> None:
    x = torch.rand(5, 4)
    plain, compiled, model = Bank(copy, write), Bank(copy, write), Bank(copy, write)
    ways = [torch.compile(compiled, backend="joinsum", fullgraph=True), joinsum.distribute(model, x)]
    plain(x).square().sum().backward()
    for way, own in zip(ways, [compiled, model], strict=True):
        way(x).square().sum().backward()
        torch.testing.assert_close(gathered(own.weight.grad), plain.weight.grad)
        torch.testing.assert_close(gathered(own.bank), plain.bank)


# --- empty batches ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layers", [1, 2])
def test_an_empty_batch_is_refused_by_the_forward_pass_that_saves_it(layers: int, sites: int) -> None:
    model = nn.Sequential(*[x for _ in range(layers) for x in (nn.Linear(10, 10), nn.ReLU())][: 2 * layers - 1])
    joinsum.distribute(model, torch.randn(8, 10))
    empty = torch.randn(0, 10)
    if sites == 1:  # torch runs them
        model(empty).sum().backward()
        return
    with pytest.raises(
        joinsum.CaptureError, match=r"no elements: .*shape=\[0, 10\].*; give batches of at least one elem"
    ):
        model(empty)
    with torch.no_grad():
        assert model(empty).shape == (0, 10)
    assert model(torch.randn(8, 10)).shape == (8, 10)


def test_frozen_batch_norm_saves_tensors_without_elements() -> None:
    """Whose statistics torch's operator does not save in evaluation mode."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).double()
    model[1].eval()
    plain, x = copy.deepcopy(model), torch.randn(4, 6, dtype=torch.float64)
    plain(x).square().sum().backward()
    distributed = joinsum.distribute(model, (x,))
    distributed(x).square().sum().backward()
    for own, wanted in zip(distributed.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(gathered(own.grad), wanted.grad, rtol=1e-10, atol=1e-12)
