"""Claims about calls that graphs do not hold: Python makes them between the graphs, with gradients, and where one graph
is asked for, the error says what to give instead."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import joinsum
import pytest
import torch
from torch import Tensor

MATRIX = torch.tensor([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]])
SPARSE = joinsum.SparseTensor.from_torch(MATRIX.to_sparse())


def rectified(x: Tensor) -> Tensor:
    return joinsum.einsum("ij,j->i", SPARSE, x - 1).relu()


@pytest.mark.parametrize("backend", ["aot_eager", "joinsum"])
@pytest.mark.filterwarnings("ignore:compile. not one graph")
def test_a_sparse_tensor_of_a_compiled_function_is_read_between_its_graphs(backend: str) -> None:
    torch._dynamo.reset()
    x, plain = (torch.tensor([1.0, 3.0, 2.0], requires_grad=True) for _ in range(2))
    compiled: Callable[[Tensor], Tensor] = torch.compile(rectified, backend=backend)
    for _ in range(2):
        found, expected = compiled(x), (MATRIX @ (plain - 1)).relu()
        torch.testing.assert_close(found, expected)
        found.sum().backward()
        expected.sum().backward()
    torch.testing.assert_close(x.grad, plain.grad)


def test_results_are_as_outside_of_compiled_functions() -> None:
    def twice(x: joinsum.SparseTensor) -> Tensor | joinsum.SparseTensor:
        return joinsum.einsum("ij,ij->ij", x, x, join="add")

    large = joinsum.SparseTensor.from_torch(torch.eye(50).to_sparse())
    found, expected = torch.compile(twice, backend="aot_eager")(large), twice(large)
    assert isinstance(found, joinsum.SparseTensor)
    assert isinstance(expected, joinsum.SparseTensor)
    assert found.levels == expected.levels
    assert torch.equal(found.to_dense(), 2 * torch.eye(50))


def test_one_graph_of_a_sparse_tensor_is_refused_with_what_to_give() -> None:
    with pytest.raises(
        joinsum.CaptureError, match=r"do not read sparse tensors; call joinsum\.einsum outside .* x\.to_torch\('csr'\)"
    ):
        joinsum.compile(rectified)(torch.ones(3))


def test_importing_joinsum_does_not_import_dynamo() -> None:
    program = "import joinsum, sys; assert 'torch._dynamo' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_results_of_dense_operands_are_dense_in_compiled_functions_too() -> None:
    compiled = torch.compile(lambda x: joinsum.einsum("ij,ij->ij", x, x, out_format="csr"), backend="aot_eager")
    with pytest.raises(joinsum.PlanError, match="dense operands give dense results: out_format='csr'"):
        compiled(torch.ones(2, 2))


def test_tensors_of_torch_in_coordinates_are_read_between_the_graphs() -> None:
    matrix, x = MATRIX.to_sparse(), torch.tensor([1.0, 3.0, 2.0])
    compiled = torch.compile(lambda x: joinsum.einsum("ij,j->i", matrix, x).relu(), backend="aot_eager")
    torch.testing.assert_close(compiled(x), MATRIX @ x)
