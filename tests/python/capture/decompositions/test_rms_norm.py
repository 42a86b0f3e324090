"""RMS norms and their gradients beside torch's, into given memory and in captured programs."""

import joinsum
import pytest
import torch
import torch.nn.functional as F
from joinsum.capture.decompositions import rms_norm  # noqa: F401  (registers the operators)

ops = torch.ops.joinsum
SHAPES = [((5, 7), 1), ((3, 4, 256), 1), ((2, 100), 1), ((40, 70), 1), ((3, 4, 5), 2), ((0, 4), 1)]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("shape", "rank"), SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_an_rms_norm_and_its_gradients(shape: tuple[int, ...], rank: int, dtype: torch.dtype, weighted: bool) -> None:
    normalized = list(shape[-rank:])
    x, grad = (torch.randn(shape).to(dtype) for _ in range(2))
    weight = torch.randn(normalized).to(dtype) if weighted else None
    own = [each.clone().requires_grad_() for each in (x, weight) if each is not None]
    wanted = F.rms_norm(own[0], normalized, own[1] if weighted else None, 1e-5)
    gradients = torch.autograd.grad(wanted, own, grad)

    found, rstd = ops.rms_norm(x, normalized, weight, 1e-5)
    torch.testing.assert_close(found, wanted)
    over, given = x.clone(), torch.full_like(rstd, 7)
    ops.rms_norm.out(over, normalized, weight, 1e-5, input_out=over, rstd_out=given)
    assert torch.equal(over, found)
    assert torch.equal(given, rstd)

    to_input = ops.rms_norm_grad_input(grad, x, normalized, rstd, weight)
    near = {"rtol": 2e-2, "atol": 2e-2} if dtype is torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(to_input, gradients[0], **near)
    over = grad.clone()
    assert ops.rms_norm_grad_input.out(over, x, normalized, rstd, weight, grad_out=over) is over
    assert torch.equal(over, to_input)
    if weighted:
        to_weight = ops.rms_norm_grad_weight(grad, x, normalized, rstd)
        near = {"rtol": 2e-2, "atol": 1e-1} if dtype is torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-5}
        torch.testing.assert_close(to_weight, gradients[1], **near)
        given = torch.full_like(to_weight, 7)
        assert torch.equal(ops.rms_norm_grad_weight.out(grad, x, normalized, rstd, weight_out=given), to_weight)


def test_operands_in_any_layout() -> None:
    x, grad = torch.randn(6, 5).t(), torch.randn(6, 5).t()
    found, rstd = ops.rms_norm(x, [6], None, 1e-5)
    torch.testing.assert_close(found, F.rms_norm(x, [6], None, 1e-5))
    to_input = ops.rms_norm_grad_input(grad, x, [6], rstd, None)
    torch.testing.assert_close(to_input, ops.rms_norm_grad_input(grad.contiguous(), x.contiguous(), [6], rstd, None))


def test_gradients_have_gradients() -> None:
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(4, dtype=torch.float64, requires_grad=True)

    def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = ops.rms_norm(x, [4], weight, 1e-3)[0]
        return result

    assert torch.autograd.gradcheck(norm, (x, weight))
    assert torch.autograd.gradgradcheck(norm, (x, weight))


@pytest.mark.parametrize("sites", [1, 2])
@pytest.mark.parametrize("eps", [None, 1e-3])
def test_captured_norms_are_torchs(sites: int, eps: float | None) -> None:
    joinsum.init(sites=sites)
    model = torch.nn.RMSNorm(12, eps=eps)
    torch.nn.init.uniform_(model.weight)
    run = joinsum.compile(model)
    x = torch.randn(6, 12, requires_grad=True)
    gradients = []
    for function in (model, run):
        result = function(x)
        gradients.append([result, *torch.autograd.grad(result.square().sum(), [x, model.weight])])
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-5, atol=1e-5)


def test_a_norm_of_whole_rows_is_one_call_in_each_direction() -> None:
    joinsum.init(sites=2)
    model = torch.nn.RMSNorm(64)
    step = joinsum.train_step(model, F.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1))
    data = torch.randn(256, 64), torch.randn(256, 64)
    plan = str(joinsum.IaPlan(step.captured(*data).planned.choice.plan))
    assert "joinsum::rms_norm;" in plan
    assert "joinsum::rms_norm_grad_weight;" in plan
    assert "rsqrt" not in plan


def test_halves_are_left_to_torch() -> None:
    joinsum.init(sites=1)
    x = torch.randn(6, 12, dtype=torch.bfloat16)
    run = torch.compile(lambda x: F.rms_norm(x, [12]), backend="joinsum", fullgraph=True)
    torch.testing.assert_close(run(x), F.rms_norm(x, [12]))
