"""Models with sparse tensors, as buffers and as inputs, planned with all that is dense; against dense torch."""

from __future__ import annotations

import copy
import itertools
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
    "transposed, with a gradient": lambda s, w, x: (s.T @ x.T @ w[:3] + s.transpose(0, 1) @ (x.T @ w[:3])).T @ w,
    "addmm": lambda s, w, x: torch.sparse.addmm(torch.ones(12, 7), s, w, beta=0.5, alpha=2.0),
    "torch.addmm": lambda s, w, x: torch.addmm(torch.ones(12, 7), s, w),
    "mv": lambda s, w, x: torch.mv(s, w[:, 0]),
    "linear": lambda s, w, x: F.linear(s, w.T),
    "to_dense": lambda s, w, x: (s.to_dense() * 2).relu() @ w,
    "sums": lambda s, w, x: s.sum() * w + s.sum(0) @ w + s.mean(1, keepdim=True).T @ x.T @ w[:3],
    "coalesce": lambda s, w, x: s.coalesce() @ w,
    "sparse.sum": lambda s, w, x: torch.sparse.sum(s) * w,
    "sparse.sum of rows": lambda s, w, x: torch.sparse.sum(s, 0).to_dense() @ w,
    "sparse.sum of columns": lambda s, w, x: torch.sparse.sum(s, dim=[-1]).to_dense() @ x.T @ w[:3],
    "sparse.sum of all axes": lambda s, w, x: torch.sparse.sum(s, dim=(0, 1)) * w,
    "twice": lambda s, w, x: torch.relu(s @ w) + s @ w.square(),
}


@pytest.mark.parametrize("name", USES)
def test_uses_of_a_sparse_input(name: str) -> None:
    use, x = USES[name], torch.randn(3, 12)
    plain, model = Called(use), Called(use)
    called = joinsum.distribute(model, (sparse(12, 9).to_sparse(), x))
    for seed, density in enumerate((0.2, 0.0, 0.9)):  # one plan for all
        s = sparse(12, 9, density, seed)
        dense = name != "coalesce" and not name.startswith("sparse.sum")  # which torch has of sparse tensors alone
        found, wanted = called(s.to_sparse(), x), plain(s if dense else s.to_sparse(), x)
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


OF_ONE_ELEMENT: dict[str, tuple[tuple[int, int], Callable[[Any, Tensor], Tensor]]] = {
    "a row": ((1, 9), lambda s, w: s @ w),
    "a column": ((9, 1), lambda s, w: s.t() @ w),
    "an inner axis": ((12, 1), lambda s, w: s @ w[:1]),
    "a sum over the column": ((9, 1), lambda s, w: w.t() @ s),
    "a dense copy": ((1, 9), lambda s, w: (s.to_dense() * 2) @ w),
    "an element": ((1, 1), lambda s, w: s @ w[:1]),
    "a vector": ((1, 9), lambda s, w: torch.mv(s, w[:, 0])),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", OF_ONE_ELEMENT)
def test_axes_of_one_element(name: str, dtype: torch.dtype) -> None:
    shape, use = OF_ONE_ELEMENT[name]
    tolerance = 1e-5 if dtype is torch.float32 else 1e-10
    plain = Called(lambda s, w, x: use(s, w)).to(dtype)
    model = copy.deepcopy(plain)
    x = torch.ones(3)
    called = joinsum.distribute(model, (sparse(*shape, 0.5).to(dtype).to_sparse(), x))
    for layout, density in (("coo", 0.5), ("csr", 1.0), ("csc", 0.0)):
        s = sparse(*shape, density).to(dtype)
        found, wanted = called(LAYOUTS[layout](s), x), plain(s, x)
        torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)
        (theirs,) = torch.autograd.grad(wanted.square().sum(), plain.weight)
        model.weight.grad = None
        found.square().sum().backward()
        assert model.weight.grad is not None
        torch.testing.assert_close(model.weight.grad.full_tensor(), theirs, rtol=tolerance, atol=tolerance)


def test_the_last_batch_of_an_epoch_may_be_one_sparse_sample() -> None:
    plain, model = nn.Linear(20, 4), nn.Linear(20, 4)
    model.load_state_dict(plain.state_dict())
    theirs = torch.optim.SGD(plain.parameters(), lr=0.2)
    step = joinsum.train_step(model, F.cross_entropy, torch.optim.SGD(model.parameters(), lr=0.2))
    for points in (4, 2, 1, 4, 1):
        x, classes = sparse(points, 20, 0.5, points), torch.zeros(points, dtype=torch.long)
        theirs.zero_grad()
        wanted = F.cross_entropy(plain(x), classes)
        wanted.backward()
        theirs.step()
        torch.testing.assert_close(step(x.to_sparse(), classes), wanted.detach())
    joinsum.gather(model)
    torch.testing.assert_close(model.weight.detach(), plain.weight.detach())


def test_a_sparse_input_that_is_a_result_keeps_its_axes() -> None:
    class Views(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(9, 7))

        def forward(self, s: Tensor) -> tuple[Tensor, Tensor]:
            return s.t(), s @ self.weight

    for rows in (4, 1):
        s = sparse(rows, 9, 0.5)
        view, _ = joinsum.distribute(Views(), s.to_sparse())(s.to_sparse())
        assert view.is_sparse
        torch.testing.assert_close(view.to_dense(), s.t())


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
        (lambda s, w, x: s.sum(dtype=torch.float64) * w, r"give this operator its to_dense\(\): input=s, operator="),
        (lambda s, w, x: torch.softmax(s, 1) @ w, r"give this operator its to_dense\(\): input=s, operator="),
        (lambda s, w, x: (s @ s.T) @ x.T, r"give this operator its to_dense\(\): input=s, operator="),
    ],
)
def test_other_uses_are_refused_by_name(use: Callable[[Tensor, Tensor, Tensor], Tensor], said: str) -> None:
    with pytest.raises(joinsum.CaptureError, match=said):
        joinsum.distribute(Called(use), (sparse(12, 9).to_sparse(), torch.randn(3, 12)))


REFUSED: dict[str, Callable[[Any, Tensor, Tensor], Tensor]] = {
    "Tensor.values": lambda s, w, x: s.values().sum() * w,
    "Tensor.indices": lambda s, w, x: s.coalesce().indices().sum() * w,
    "Tensor._values": lambda s, w, x: s._values().sum() * w,
    "Tensor._nnz": lambda s, w, x: s._nnz() * w,
    "Tensor.crow_indices": lambda s, w, x: s.crow_indices().sum() * w,
    "Tensor.sparse_dim": lambda s, w, x: s.sparse_dim() * w,
    "Tensor.to_sparse_csr": lambda s, w, x: s.to_sparse_csr() @ w,
    "torch.sparse.softmax": lambda s, w, x: torch.sparse.softmax(s, 1) @ w,
    "torch.sparse.log_softmax": lambda s, w, x: torch.sparse.log_softmax(s, dim=1) @ w,
    "torch.sparse.sampled_addmm": lambda s, w, x: torch.sparse.sampled_addmm(s, x.T, x) @ w,
    r"torch\.sparse\.mm\(\.\.\., 'mean'\)": lambda s, w, x: torch.sparse.mm(s, w, "mean"),
    r"torch\.sparse\.mm\(\.\.\., 'amax'\)": lambda s, w, x: torch.sparse.mm(s, w, reduce="amax"),
}


def distributed(model: nn.Module, arguments: tuple[Tensor, ...]) -> None:
    joinsum.distribute(model, arguments)


def stepped(model: nn.Module, arguments: tuple[Tensor, ...]) -> None:
    joinsum.train_step(model, None, torch.optim.SGD(model.parameters()))(*arguments)


@pytest.mark.parametrize("way", [distributed, stepped])
@pytest.mark.parametrize("call", REFUSED)
def test_calls_that_no_plan_has_are_refused_before_torch_fails(
    call: str, way: Callable[[nn.Module, tuple[Tensor, ...]], None], capfd: pytest.CaptureFixture[str]
) -> None:
    model, arguments = Called(REFUSED[call]), (sparse(12, 9).to_sparse(), torch.randn(3, 12))
    line = r'File ".*test_sparse_models\.py", line \d+: .*lambda s, w, x:'
    with pytest.raises(joinsum.CaptureError, match=rf"call={call}, tensor=\w+(\.0)?, at={line}.*x\.to_dense\(\)$"):
        way(model, arguments)
    assert "failed while attempting to run meta" not in capfd.readouterr().err


def test_a_refused_call_names_a_buffer_of_a_module() -> None:
    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("adjacency", sparse(9, 9).to_sparse())

        def forward(self, x: Tensor) -> Tensor:
            return self.adjacency.values().sum() * x

    with pytest.raises(joinsum.CaptureError, match=r"call=Tensor\.values, tensor=1\.adjacency, at=.*adjacency\.values"):
        joinsum.distribute(nn.Sequential(nn.Linear(4, 9), Rows()), torch.ones(2, 4))


def test_other_code_that_torch_compiles_is_left_alone() -> None:
    with pytest.raises(Exception, match="coalesce expected sparse"):
        torch.compile(lambda x: x.coalesce() * 2, backend="eager", fullgraph=True)(torch.ones(2, 2))
    with pytest.raises(Exception, match="expected sparse"):
        torch.compile(lambda x: torch.sparse.sum(x), backend="eager", fullgraph=True)(torch.ones(2, 2))
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    doubled = torch.compile(lambda x: x.values() * 2, backend="eager", fullgraph=True)(nested)
    assert torch.equal(doubled, torch.full((5,), 2.0))


def test_a_coalesced_buffer_is_that_of_torch() -> None:
    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.weight = nn.Parameter(torch.randn(5, 2))
            places = torch.tensor([[0, 1, 0, 2], [1, 2, 1, 4]])  # one of them twice
            self.register_buffer("adjacency", torch.sparse_coo_tensor(places, torch.arange(1.0, 5.0), (4, 5)))

        def forward(self, x: Tensor) -> Tensor:
            return self.adjacency.coalesce() @ self.weight + x

    plain, model, x = Rows(), Rows(), torch.ones(4, 2)
    torch.testing.assert_close(joinsum.distribute(model, x)(x), plain(x))


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


def crowded(vertices: int, edges: int) -> Tensor:
    """A graph whose first vertices have most of the edges."""
    draw = torch.Generator().manual_seed(2)
    heavy = (torch.rand(edges, generator=draw) ** 3 * vertices).long()
    places = torch.stack([heavy, torch.randint(0, vertices, (edges,), generator=draw)])
    return torch.sparse_coo_tensor(
        places, torch.full((edges,), 0.1), (vertices, vertices), check_invariants=True
    ).coalesce()


class OverVertices(GraphConvolutions):
    """Of which the features of vertices are a buffer, or parameters."""

    def __init__(self, adjacency: Tensor, trained: bool) -> None:
        super().__init__(adjacency)
        features = torch.randn(adjacency.shape[0], 6, generator=torch.Generator().manual_seed(4))
        if trained:
            self.features = nn.Parameter(features)
        else:
            self.register_buffer("features", features)

    def forward(self) -> Tensor:  # type: ignore[override]
        return super().forward(self.features)


@pytest.mark.filterwarnings("error:capture")
@pytest.mark.parametrize("trained", [False, True])
def test_sites_have_about_equal_parts_of_uneven_graphs(trained: bool) -> None:
    adjacency, classes = crowded(400, 6000), torch.arange(400) % 4
    plain, model = OverVertices(adjacency, trained), OverVertices(adjacency, trained)
    theirs, ours = (torch.optim.Adam(each.parameters(), lr=0.01) for each in (plain, model))
    step = joinsum.train_step(model, lambda scores, target: F.cross_entropy(scores, target), ours)
    for _ in range(3):
        theirs.zero_grad()
        loss = F.cross_entropy(plain(), classes)
        loss.backward()
        theirs.step()
        torch.testing.assert_close(step(classes), loss.detach(), rtol=1e-5, atol=1e-5)
    inputs = dict(step.captured_or_last().planned.plan.core.inputs)
    cuts = list(inputs["adjacency"].relation.axes[0].cuts)
    if len(cuts) > 2:
        rows = torch.bincount(adjacency.indices()[0], minlength=400)
        parts = len(cuts) - 1
        shares = [rows[begin:end].sum().item() for begin, end in itertools.pairwise(cuts)]
        assert max(shares) < 0.9 * rows[: 400 // parts].sum().item()  # the first part's, were they cut evenly
        assert cuts == list(inputs["features"].relation.axes[0].cuts)
    # Another graph, of the stored features, takes them as they lie.
    with torch.no_grad():
        torch.testing.assert_close(joinsum.gather(model)(), plain(), rtol=1e-4, atol=1e-4)


class HoldsSparseTensor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.graph = joinsum.SparseTensor.from_edges([[0, 1], [1, 0]], 2)
        self.linear = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return joinsum.einsum("ij,jk->ik", self.graph, self.linear(x))


def test_a_sparse_tensor_in_a_model_is_named_with_what_to_do() -> None:
    model = HoldsSparseTensor()
    step = joinsum.train_step(model, F.mse_loss, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(joinsum.CaptureError, match="attribute=graph; register it as a buffer"):
        step(torch.ones(2, 2), torch.ones(2, 2))


def test_sample_inputs_that_are_no_tuple_are_an_error() -> None:
    with pytest.raises(joinsum.PlanError, match="several sample inputs are a tuple"):
        joinsum.distribute(GraphConvolutions(sparse(5, 5)), torch.ones(5, 6), torch.ones(5, 6))  # type: ignore[arg-type]
