"""Models with sparse tensors, as buffers and as inputs, planned with all that is dense; against dense torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import joinsum
import pytest
import torch
from torch import Tensor, nn

F = nn.functional
DIVIDING = joinsum.Cluster("slow sites, fast links", 1e6, 1e12, 1e-9)
LAYOUTS = {
    "coo": lambda x: x.to_sparse(),
    "csr": lambda x: x.to_sparse_csr(),
    "csc": lambda x: x.to_sparse_csc(),
}


@pytest.fixture(autouse=True, params=[1, 2, 4])
def _sites(request: pytest.FixtureRequest) -> Iterator[None]:
    torch._dynamo.reset()
    joinsum.init(sites=request.param, cluster=DIVIDING)
    yield
    joinsum.init()


def sparse(rows: int, columns: int, density: float = 0.2, seed: int = 0) -> Tensor:
    """Dense, with zeros."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(rows, columns, generator=generator)
    return values * (torch.rand(rows, columns, generator=generator) < density)


class GraphConvolutions(nn.Module):
    def __init__(self, adjacency: Tensor) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.register_buffer("adjacency", adjacency)
        self.first, self.second = nn.Linear(6, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(torch.sparse.mm(self.adjacency, self.first(x)))
        return self.adjacency @ self.second(hidden)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("way", ["train_step", "distribute"])
def test_graph_convolutions_train_as_dense_ones(way: str, layout: str) -> None:
    adjacency, x, classes = sparse(30, 30), torch.randn(30, 6), torch.arange(30) % 4
    plain, model = GraphConvolutions(adjacency), GraphConvolutions(LAYOUTS[layout](adjacency))
    theirs, ours = (torch.optim.Adam(each.parameters(), lr=0.05) for each in (plain, model))
    wanted = []
    for _ in range(4):
        theirs.zero_grad()
        wanted.append(F.cross_entropy(plain(x), classes))
        wanted[-1].backward()
        theirs.step()
    if way == "train_step":
        step = joinsum.train_step(model, F.cross_entropy, ours)
        found = [step(x, classes) for _ in range(4)]
    else:
        called, found = joinsum.distribute(model, x), []
        for _ in range(4):
            ours.zero_grad()
            found.append(F.cross_entropy(called(x), classes))
            found[-1].backward()
            ours.step()
    torch.testing.assert_close(torch.stack([each.detach() for each in found]), torch.stack(wanted).detach())
    with torch.no_grad():
        torch.testing.assert_close(model(x), plain(x), rtol=1e-4, atol=1e-5)
    joinsum.gather(model)
    for mine, other in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.detach(), other.detach(), rtol=1e-4, atol=1e-5)
    assert model.adjacency.layout is LAYOUTS[layout](adjacency).layout


class Called(nn.Module):
    def __init__(self, function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.weight, self.function = nn.Parameter(torch.randn(9, 7)), function

    def forward(self, s: Tensor, x: Tensor) -> Tensor:
        return self.function(s, self.weight, x)


USES: dict[str, Callable[[Any, Tensor, Tensor], Tensor]] = {
    "sparse.mm": lambda s, w, x: torch.sparse.mm(s, w),
    "@": lambda s, w, x: s @ w,
    "on the right": lambda s, w, x: (x @ s) @ w,
    "transposed": lambda s, w, x: (s.t() @ x.T) @ w[:3],
    "addmm": lambda s, w, x: torch.sparse.addmm(torch.ones(12, 7), s, w, beta=0.5, alpha=2.0),
    "torch.addmm": lambda s, w, x: torch.addmm(torch.ones(12, 7), s, w),
    "mv": lambda s, w, x: torch.mv(s, w[:, 0]),
    "linear": lambda s, w, x: F.linear(s, w.T),
    "to_dense": lambda s, w, x: (s.to_dense() * 2).relu() @ w,
    "twice": lambda s, w, x: torch.relu(s @ w) + s @ w.square(),
}


@pytest.mark.parametrize("name", USES)
def test_uses_of_a_sparse_input(name: str) -> None:
    use, x = USES[name], torch.randn(3, 12)
    plain, model = Called(use), Called(use)
    called = joinsum.distribute(model, (sparse(12, 9).to_sparse(), x))
    for seed, density in enumerate((0.2, 0.0, 0.9)):  # one plan for all
        s = sparse(12, 9, density, seed)
        found, wanted = called(s.to_sparse(), x), plain(s, x)
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
        (theirs,) = torch.autograd.grad(wanted.square().sum(), plain.weight)
        model.weight.grad = None
        found.square().sum().backward()
        assert model.weight.grad is not None
        torch.testing.assert_close(model.weight.grad.full_tensor(), theirs, rtol=1e-4, atol=1e-3)


def test_batches_of_sparse_features_train_as_dense_ones() -> None:
    def model_of() -> nn.Module:
        torch.manual_seed(2)
        return nn.Sequential(nn.Linear(40, 8), nn.ReLU(), nn.Linear(8, 5))

    plain, model = model_of(), model_of()
    theirs = torch.optim.SGD(plain.parameters(), lr=0.2)
    step = joinsum.train_step(model, F.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.2))
    for seed, points in enumerate((12, 12, 12, 9)):
        x, classes = sparse(points, 40, 0.1, seed), torch.arange(points) % 5
        theirs.zero_grad()
        wanted = F.cross_entropy(plain(x), classes)
        wanted.backward()
        theirs.step()
        torch.testing.assert_close(step(x.to_sparse(), classes), wanted.detach())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_changes_of_a_sparse_buffer_are_seen(layout: str) -> None:
    adjacency, x = sparse(30, 30), torch.randn(30, 6)
    plain, model = GraphConvolutions(adjacency), GraphConvolutions(LAYOUTS[layout](adjacency))
    called = joinsum.distribute(model, x)
    with torch.no_grad():
        torch.testing.assert_close(called(x), plain(x), rtol=1e-4, atol=1e-5)
        values = model.adjacency._values() if layout == "coo" else model.adjacency.values()
        values.mul_(2)
        plain.adjacency = plain.adjacency * 2
        torch.testing.assert_close(called(x), plain(x), rtol=1e-4, atol=1e-5)
        other = sparse(30, 30, seed=5)
        model.adjacency, plain.adjacency = LAYOUTS[layout](other), other
        torch.testing.assert_close(called(x), plain(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (lambda s, w, x: (s * 2) @ w, r"give this operator its to_dense\(\): input=s, operator="),
        (lambda s, w, x: s.sum() * w, r"give this operator its to_dense\(\): input=s, operator="),
        (lambda s, w, x: torch.softmax(s, 1) @ w, r"give this operator its to_dense\(\): input=s, operator="),
        (lambda s, w, x: (s @ s.T) @ x.T, r"give this operator its to_dense\(\): input=s, operator="),
    ],
)
def test_other_uses_are_refused_by_name(use: Callable[[Tensor, Tensor, Tensor], Tensor], said: str) -> None:
    with pytest.raises(joinsum.CaptureError, match=said):
        joinsum.distribute(Called(use), (sparse(12, 9).to_sparse(), torch.randn(3, 12)))


def test_a_sparse_tensor_with_a_gradient_is_refused() -> None:
    s = sparse(12, 9).to_sparse().requires_grad_()
    with pytest.raises(joinsum.PlanError, match="SparseLinear trains the values"):
        joinsum.distribute(Called(USES["@"]), (s, torch.randn(3, 12)))


class Product(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3))

    def forward(self, matrix: Tensor, x: Tensor) -> Tensor:
        return torch.sparse.mm(matrix, x @ self.weight)


def test_each_call_has_its_own_sparse_argument() -> None:
    """In other layouts, with swapped indices, with values changed in memory that it shares, and dense."""
    model, x, other = Product(), torch.randn(9, 3), sparse(9, 9)
    rows = other.to_sparse_csr()
    indices, values = torch.tensor([[0, 1], [2, 3]]), torch.tensor([1.0, 2.0])
    shared = torch.sparse_coo_tensor(indices, values, (9, 9))
    called = joinsum.distribute(model, (rows, x))

    def check(matrix: Tensor) -> None:
        torch.testing.assert_close(called(matrix, x), matrix.to_dense() @ (x @ model.weight), rtol=1e-4, atol=1e-5)

    with torch.no_grad():
        for matrix in (rows, rows.t(), shared, torch.sparse_coo_tensor(indices.T, values, (9, 9)), other, rows, other):
            check(matrix)
        check(shared)
        values.mul_(3)
        check(shared)
    with torch.inference_mode():
        check(sparse(9, 9, seed=3).to_sparse())


def test_a_dense_copy_has_the_dtype_that_is_asked_for() -> None:
    class Copy(nn.Module):
        def forward(self, matrix: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            return matrix.to_dense(dtype=torch.float64) @ x.double(), (x * 2).to_dense(torch.float64)

    matrix, x = sparse(9, 9), torch.randn(9, 3)
    product, doubled = joinsum.distribute(Copy(), (matrix.to_sparse(), x))(matrix.to_sparse(), x)
    torch.testing.assert_close(product, matrix.double() @ x.double())
    torch.testing.assert_close(doubled, (x * 2).double())
