"""torch.linalg in captured functions: values and gradients are torch's on several sites, for matrices of any layout,
and what torch refuses raises."""

from collections.abc import Callable

import joinsum
import pytest
import torch
from torch import Tensor, linalg


@pytest.fixture(params=[1, 2, 3])
def sites(request: pytest.FixtureRequest) -> int:
    joinsum.init(sites=request.param, plan_cache=False)
    torch._dynamo.reset()
    return int(request.param)


def definite(x: Tensor) -> Tensor:
    return x @ x.mT + x.shape[-1] * torch.eye(x.shape[-1], dtype=x.dtype)


def triangle(x: Tensor) -> Tensor:
    return x.tril() + 3 * torch.eye(x.shape[-1], dtype=x.dtype)


def density(x: Tensor) -> Tensor:
    normal = torch.distributions.MultivariateNormal(x[..., 0], definite(x), validate_args=False)
    return normal.log_prob(x[..., 1])


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "cholesky": lambda x: linalg.cholesky(definite(x)),
    "cholesky of the transposed": lambda x: linalg.cholesky(definite(x).mT, upper=True),
    "cholesky_inverse": lambda x: torch.cholesky_inverse(triangle(x)),
    "cholesky_solve": lambda x: torch.cholesky_solve(x, triangle(x)),
    "det": linalg.det,
    "eigh": lambda x: linalg.eigh(definite(x))[1].abs(),
    "eigvalsh": lambda x: linalg.eigvalsh(definite(x)),
    "householder_product": lambda x: linalg.householder_product(x, x[..., 0]),
    "inv": linalg.inv,
    "logdet": lambda x: torch.logdet(definite(x)),
    "lu": lambda x: linalg.lu(x)[1] + linalg.lu(x)[2],
    "lu_factor": lambda x: linalg.lu_factor(x)[0],
    "lu_solve": lambda x: linalg.lu_solve(*linalg.lu_factor(x), x + 1),
    "matrix_exp": linalg.matrix_exp,
    "matrix_norm": lambda x: linalg.matrix_norm(x, 2) + linalg.matrix_norm(x, "nuc"),
    "matrix_power": lambda x: linalg.matrix_power(x, -2),
    "multivariate normal": density,
    "pinv": linalg.pinv,
    "pinv of symmetric matrices": lambda x: linalg.pinv(definite(x), hermitian=True),
    "qr": lambda x: linalg.qr(x)[0] * linalg.qr(x)[1],
    "slogdet": lambda x: linalg.slogdet(x)[1],
    "solve": lambda x: linalg.solve(x, x + 1),
    "solve from the left": lambda x: linalg.solve(x, x + 1, left=False),
    "solve for vectors": lambda x: linalg.solve(x, x[..., 0]),
    "solve one system": lambda x: linalg.solve(x[0], x[1]),
    "solve one system for all": lambda x: linalg.solve(x[0], x),
    "solve_triangular": lambda x: linalg.solve_triangular(triangle(x), x, upper=False),
    "solve_triangular from the left": lambda x: linalg.solve_triangular(triangle(x), x, upper=False, left=False),
    "svd": lambda x: linalg.svd(x)[1],
    "svdvals": linalg.svdvals,
}


def outcome(function: Callable[[Tensor], Tensor], x: Tensor, layout: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """The value of the function, and a gradient."""
    leaf = x.clone().requires_grad_()
    value = function(layout(leaf))
    weights = torch.linspace(1, 2, value.numel(), dtype=value.dtype).reshape(value.shape)
    return [value.detach(), *torch.autograd.grad((value * weights).sum(), leaf)]


@pytest.mark.parametrize("layout", [lambda x: x * 1, lambda x: (x * 1).mT], ids=["rows", "columns"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients_are_torchs(sites: int, name: str, layout: Callable[[Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    x = torch.randn(5, 4, 4, dtype=torch.float64)
    wanted = outcome(FUNCTIONS[name], x, layout)
    found = outcome(torch.compile(FUNCTIONS[name], backend="joinsum", fullgraph=True), x, layout)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10 * max(1.0, float(other.abs().max())))


@pytest.mark.parametrize("function", [linalg.cholesky, linalg.inv, lambda x: linalg.solve(x, x), linalg.lu_factor])
def test_a_matrix_without_factors_is_torchs_error(sites: int, function: Callable[[Tensor], Tensor]) -> None:
    x = torch.eye(3).repeat(4, 1, 1)
    compiled = torch.compile(function, backend="joinsum", fullgraph=True)
    torch.testing.assert_close(compiled(x), function(x))
    x[2, 1, 1] = 0
    with pytest.raises(RuntimeError) as wanted:
        function(x)
    with pytest.raises(RuntimeError) as found:
        compiled(x)
    assert type(found.value) is type(wanted.value)
    assert str(found.value) == str(wanted.value)
