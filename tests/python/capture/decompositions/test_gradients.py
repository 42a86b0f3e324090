"""Gradients that ATen has only together with others, products of groups, and copies by strides, beside torch's."""

from __future__ import annotations

from typing import Any

import joinsum  # defines the operators
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses import FakeTensorMode

ops = torch.ops.joinsum
DTYPES = [torch.float32, torch.float64, torch.bfloat16]


def near(found: Any, wanted: Any) -> None:
    half = found[0].dtype is torch.bfloat16
    torch.testing.assert_close(found, wanted, rtol=2e-2 if half else 1e-5, atol=1e-1 if half else 1e-5)


def strided(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Of every second element in memory, its axes in reversed order."""
    return (
        torch.randn(*reversed(shape[:-1]), shape[-1] * 2)
        .to(dtype)[..., ::2]
        .permute(*reversed(range(len(shape) - 1)), -1)
    )


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("composed", [False, True])
def test_gradients_of_a_layer_norm(composed: bool, dtype: torch.dtype, affine: bool) -> None:
    x, grad = strided(5, 4, 18, dtype=dtype), strided(5, 4, 18, dtype=dtype)
    weight = torch.randn(18).to(dtype) if affine else None
    given = [x.clone().requires_grad_(), torch.randn(18).to(dtype).requires_grad_(), torch.zeros(18, dtype=dtype)]
    if weight is not None:
        given[1] = weight.clone().requires_grad_()
    result = F.layer_norm(given[0], [18], given[1] if affine else None, given[2].requires_grad_())
    wanted = torch.autograd.grad(result, given, grad, allow_unused=True)
    _, mean, rstd = torch.native_layer_norm(x, [18], None, None, 1e-5)
    mean, rstd = (each.expand(5, 4, 2).contiguous()[..., :1] for each in (mean, rstd))  # strides of 2

    def call(operator: Any, *arguments: object) -> Any:
        key = torch._C.DispatchKey.CompositeExplicitAutograd
        return operator.default._op_dk(key, *arguments) if composed else operator(*arguments)

    near([call(ops.layer_norm_grad_input, grad, x, [18], mean, rstd, weight)], [wanted[0]])
    to_weight, to_bias = call(ops.layer_norm_grad_affine, grad, x, [18], mean, rstd)
    near([to_bias], [wanted[2]])
    if affine:
        near([to_weight], [wanted[1]])


@pytest.mark.parametrize("dim", [0, 1])
def test_weight_norms_of_operands_in_any_layout(dim: int) -> None:
    v, g, grad = strided(4, 6), torch.rand(4, 6).sum(1 - dim, keepdim=True), strided(4, 6)
    given = [v.clone().requires_grad_(), g.clone().requires_grad_()]
    wanted = torch._weight_norm(*given, dim)
    result, norms = ops.weight_norm(v, g, dim)
    near([result], [wanted.detach()])
    near(ops.weight_norm_backward(grad, v, g, norms, dim), torch.autograd.grad(wanted, given, grad))


def test_gradients_of_a_group_norm() -> None:
    x, grad, weight = strided(3, 4, 5), strided(3, 4, 5), torch.randn(4)
    given = [x.contiguous().requires_grad_(), weight.clone().requires_grad_(), torch.zeros(4, requires_grad=True)]
    wanted = torch.autograd.grad(F.group_norm(given[0], 2, *given[1:]), given, grad)
    _, mean, rstd = torch.native_group_norm(x.contiguous(), None, None, 3, 4, 5, 2, 1e-5)
    near([ops.group_norm_grad_input(grad, x, mean, rstd, weight, 3, 4, 5, 2)], [wanted[0]])
    near(ops.group_norm_grad_affine(grad, x, mean, rstd, 3, 4, 5, 2), wanted[1:])


@pytest.mark.parametrize("transposed", [False, True])
def test_each_gradient_of_a_convolution(transposed: bool) -> None:
    x, weight = torch.randn(2, 4, 7, 6, requires_grad=True), torch.randn(4, 2, 3, 3, requires_grad=True)
    options = ([2, 1], [1, 1], [1, 1], transposed, [1, 0] if transposed else [0, 0], 2)
    result = torch.ops.aten.convolution(x, weight, None, *options)
    grad = torch.randn(result.shape)
    wanted = torch.autograd.grad(result, [x, weight], grad)
    x, weight = x.detach(), weight.detach()
    found = [
        ops.convolution_gradient(grad, None, weight, x.shape, *options),
        ops.convolution_gradient(grad, x, None, weight.shape, *options),
    ]
    near(found, list(wanted))


@pytest.mark.parametrize(("window", "stride", "dilation"), [(7, 1, 1), (5, 2, 1), (5, 1, 2), (3, 1, 1)])
def test_the_gradient_of_a_weight_of_each_channel(window: int, stride: int, dilation: int) -> None:
    x, weight = torch.randn(3, 6, 14, 13), torch.randn(6, 1, window, window, requires_grad=True)
    options = ([stride, 1], [1, 2], [dilation, dilation], False, [0, 0], 6)
    result = torch.ops.aten.convolution(x, weight, None, *options)
    grad = torch.randn(result.shape)
    wanted = torch.autograd.grad(result, [weight], grad)
    found = ops.convolution_gradient(grad, x, None, weight.shape, *options)
    near([found], list(wanted))
    assert found.is_contiguous()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("index", [torch.int32, torch.int64], ids=str)
def test_products_of_groups(index: torch.dtype, dtype: torch.dtype) -> None:
    ends = torch.tensor([2, 2, 6], dtype=index)
    parts = [slice(0, 2), slice(2, 2), slice(2, 6)]
    rows, columns, matrices = (torch.randn(shape).to(dtype) for shape in ((7, 5), (5, 7), (3, 5, 5)))
    wanted = torch.zeros(7, 5, dtype=dtype)
    for part, matrix in zip(parts, matrices, strict=True):
        wanted[part] = rows[part] @ matrix
    near([ops.grouped_product(rows, matrices, ends)], [wanted])
    wanted = torch.zeros(5, 7, dtype=dtype)
    for part, matrix in zip(parts, matrices, strict=True):
        wanted[:, part] = matrix @ columns[:, part]
    near([ops.grouped_product(matrices, columns, ends)], [wanted])
    wanted = torch.stack([columns[:, part] @ rows[part] for part in parts])
    near([ops.grouped_product(columns, rows, ends)], [wanted])


def test_copies_by_strides_are_row_major() -> None:
    x = torch.arange(24.0).view(4, 6).t()
    seen = x.contiguous().as_strided([2, 3], [1, 4], 5)
    found = ops.strided(x, [2, 3], [1, 4], 5)
    assert torch.equal(found, seen)
    assert found.is_contiguous()
    source = -torch.ones(2, 3)
    wanted = x.contiguous().clone()
    wanted.as_strided([2, 3], [1, 4], 5).copy_(source)
    found = ops.strided_scatter(x, source, [2, 3], [1, 4], 5)
    assert torch.equal(found, wanted)
    assert found.is_contiguous()
    assert torch.equal(x, torch.arange(24.0).view(4, 6).t())


def in_fake_tensors(condition: Tensor) -> Tensor:
    with FakeTensorMode() as mode:
        result: Tensor = ops.checked(mode.from_tensor(condition), "never read")
        return result


def test_a_false_condition_raises_with_the_message_of_the_program() -> None:
    condition = torch.tensor(True)
    found = ops.checked(condition, "a value is negative")
    assert found.item() is True
    assert found.data_ptr() != condition.data_ptr()
    assert ops.checked(torch.tensor(2.0), "").dtype is torch.bool
    with pytest.raises(RuntimeError, match=r"^a value is negative$"):
        ops.checked(torch.tensor(False), "a value is negative")
    for values in (lambda x: ops.checked(x.to("meta"), ""), in_fake_tensors):
        result = values(torch.tensor(False))
        assert (result.shape, result.dtype) == ((), torch.bool)


def test_a_program_on_sites_raises_its_own_message() -> None:
    def positive(x: Tensor) -> Tensor:
        torch._assert_async((x > 0).all(), "an element is not positive")
        return x * 2

    joinsum.init(sites=2)
    try:
        run = torch.compile(positive, backend="joinsum", fullgraph=True)
        torch.testing.assert_close(run(torch.ones(4, 6)), torch.full((4, 6), 2.0))
        with pytest.raises(RuntimeError, match=r"^an element is not positive"):
            run(-torch.ones(4, 6))
    finally:
        joinsum.init()
