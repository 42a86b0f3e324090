"""Layers with sparse weights, against dense layers with zeros: values, gradients, training on the sites."""

from __future__ import annotations

from collections.abc import Iterator

import joinsum
import pytest
import torch
from joinsum.nn import SparseLinear
from torch import Tensor, nn


@pytest.fixture(autouse=True)
def _one_site_afterwards() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    joinsum.init()


def dense_of(layer: SparseLinear) -> Tensor:
    """The weight, in autograd."""
    shape = (layer.out_features, layer.in_features)
    return torch.zeros(shape, dtype=layer.values.dtype).index_put((layer.rows, layer.columns), layer.values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(7,), (3, 7), (2, 3, 7), (0, 7)])
@pytest.mark.parametrize("density", [0.01, 0.3, 1.0])
def test_values_and_gradients_are_those_of_a_dense_layer(
    shape: tuple[int, ...], dtype: torch.dtype, density: float
) -> None:
    torch.manual_seed(0)
    layer = SparseLinear(7, 5, density=density, dtype=dtype)
    x = torch.randn(shape, dtype=dtype, requires_grad=True)
    found, wanted = layer(x), nn.functional.linear(x, dense_of(layer), layer.bias)
    torch.testing.assert_close(found, wanted)
    leaves = [x, *layer.parameters()]
    for mine, theirs in zip(
        torch.autograd.grad(found.square().sum(), leaves),
        torch.autograd.grad(wanted.square().sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)


def test_it_can_be_differentiated_twice() -> None:
    layer = SparseLinear(4, 3, density=0.5, dtype=torch.float64)
    inputs = (torch.randn(2, 4, dtype=torch.float64, requires_grad=True), layer.values)
    call = lambda x, values: torch.func.functional_call(layer, {"values": values}, (x,))  # noqa: E731
    assert torch.autograd.gradcheck(call, inputs)
    assert torch.autograd.gradgradcheck(call, inputs)


def test_patterns_and_what_they_are_made_of() -> None:
    mask = torch.rand(6, 8) < 0.3
    patterns = [
        mask,
        mask.float(),
        mask.float().to_sparse(),
        mask.float().to_sparse_csr(),
        mask.float().to_sparse_csc(),
    ]
    for pattern in [*patterns, joinsum.SparseTensor.from_torch(mask.float().to_sparse())]:
        layer = SparseLinear(8, 6, pattern=pattern)
        assert torch.equal(layer.rows, mask.nonzero()[:, 0])
        assert torch.equal(layer.columns, mask.nonzero()[:, 1])
        assert torch.equal(layer.weight.to_dense(), dense_of(layer).detach())
    torch.manual_seed(3)
    first = SparseLinear(300, 200, density=0.02)
    torch.manual_seed(3)
    assert torch.equal(first.columns, SparseLinear(300, 200, density=0.02).columns)
    places = first.rows * 300 + first.columns
    assert len(places) == 1200
    assert torch.equal(places, places.unique())
    assert all(
        first.values[first.rows == row].abs().max() <= (first.rows == row).sum() ** -0.5 for row in first.rows[:9]
    )


def test_a_dense_layer_is_pruned() -> None:
    dense = nn.Linear(9, 4)
    x = torch.randn(3, 9)
    torch.testing.assert_close(SparseLinear.from_linear(dense)(x), dense(x))
    pruned = SparseLinear.from_linear(dense, density=0.25)
    assert len(pruned.values) == 9
    least = dense.weight.abs().flatten().sort(descending=True).values[8]
    torch.testing.assert_close(dense_of(pruned), dense.weight * (dense.weight.abs() >= least))
    assert SparseLinear.from_linear(nn.Linear(3, 2, bias=False)).bias is None


def test_state_is_saved_and_loaded() -> None:
    layer, other = SparseLinear(9, 4, density=0.3), SparseLinear(9, 4, density=0.3)
    assert set(layer.state_dict()) == {"rows", "columns", "values", "bias"}
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(torch.eye(9)), layer(torch.eye(9)))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.last = SparseLinear(12, 16, density=0.2), SparseLinear(16, 3, density=0.4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.first(x)))


def loss(result: Tensor, wanted: Tensor) -> Tensor:
    return (result - wanted).square().mean()


@pytest.mark.parametrize("sites", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("way", ["train_step", "distribute", "compile", "torch.compile"])
def test_models_train_as_by_torch(way: str, sites: int) -> None:
    joinsum.init(sites=sites, cluster=joinsum.Cluster("slow sites, fast links", 1e6, 1e12, 1e-9))
    plain, model = Model(), Model()
    x, wanted = torch.randn(8, 12), torch.randn(8, 3)
    theirs = torch.optim.Adam(plain.parameters(), lr=0.05)
    losses = []
    for _ in range(4):
        theirs.zero_grad()
        losses.append(loss(plain(x), wanted))
        losses[-1].backward()
        theirs.step()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    if way == "train_step":
        step = joinsum.train_step(model, loss, optimizer)
        found = [step(x, wanted) for _ in range(4)]
    else:
        ways = {
            "distribute": lambda: joinsum.distribute(model, x),
            "compile": lambda: joinsum.compile(model),
            "torch.compile": lambda: torch.compile(model, backend="joinsum"),
        }
        called, found = ways[way](), []
        for _ in range(4):
            optimizer.zero_grad()
            found.append(loss(called(x), wanted))
            found[-1].backward()
            optimizer.step()
    torch.testing.assert_close(torch.stack([each.detach() for each in found]), torch.stack(losses).detach())
    joinsum.gather(model)
    for mine, other in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.detach(), other.detach(), rtol=1e-4, atol=1e-5)
    assert torch.equal(model.first.rows, plain.first.rows)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "either density or pattern"),
        ({"density": 0.1, "pattern": torch.ones(2, 3)}, "either density or pattern"),
        ({"density": 0.0}, "above 0 and at most 1"),
        ({"density": 1.5}, "above 0 and at most 1"),
        ({"density": "much"}, "above 0 and at most 1"),
        ({"pattern": torch.ones(3, 2)}, r"another shape than the weight: pattern=\(3, 2\), weight=\(2, 3\)"),
        ({"pattern": torch.ones(2, 3, 1)}, "another shape"),
        ({"pattern": [1]}, "a pattern is a tensor"),
    ],
)
def test_wrong_arguments_are_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(joinsum.PlanError, match=said):
        SparseLinear(3, 2, **options)  # type: ignore[arg-type]


def test_sizes_and_inputs_that_do_not_fit_are_refused() -> None:
    with pytest.raises(joinsum.PlanError, match="no features"):
        SparseLinear(-3, 2, density=0.5)
    with pytest.raises(joinsum.PlanError, match="last axis has in_features"):
        SparseLinear(3, 2, density=0.5)(torch.ones(3, 2))


@pytest.mark.parametrize(("density", "entries"), [(0.07, 7), (0.55, 55), (0.001, 1), (1.0, 100)])
def test_a_density_is_rounded_to_elements(density: float, entries: int) -> None:
    assert len(SparseLinear(10, 10, density=density).values) == entries


def test_layers_without_memory_are_made() -> None:
    layer = SparseLinear(10, 10, density=0.5, device="meta")
    assert layer.values.is_meta
    assert layer.rows.is_meta


@pytest.mark.parametrize("sites", [1, 4])
def test_autocast_multiplies_in_its_dtype(sites: int) -> None:
    joinsum.init(sites=sites)
    layer, x = SparseLinear(10, 4, density=0.5), torch.randn(6, 10)
    dense = torch.nn.functional.linear(x, layer.weight.to_dense(), layer.bias)
    called = joinsum.distribute(torch.nn.Sequential(torch.nn.Linear(10, 10), layer), x)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x).dtype == called(x).dtype == torch.bfloat16
        torch.testing.assert_close(layer(x).float(), dense, rtol=0.02, atol=0.02)
    joinsum.init()


def test_entries_out_of_range_are_refused() -> None:
    layer = SparseLinear(3, 2, pattern=torch.ones(2, 3))
    layer.columns[0] = 7
    with pytest.raises(IndexError, match="index=7, extent=3"):
        layer(torch.ones(1, 3))


def test_sparse_inputs_are_refused_with_the_remedy() -> None:
    layer, x = joinsum.nn.SparseLinear(6, 3, density=0.5), torch.eye(6)
    for given in (x.to_sparse(), x.to_sparse_csr(), joinsum.SparseTensor.from_torch(x)):
        with pytest.raises(joinsum.PlanError, match=r"SparseLinear: .*shape=\[6, 6\]; give input.to_dense\(\)"):
            layer(given)


@pytest.mark.parametrize("sites", [1, 3])
def test_the_weight_can_be_read_after_training(sites: int) -> None:
    joinsum.init(sites=sites)
    torch.manual_seed(0)
    layer = SparseLinear(9, 4, density=0.5)
    dense = torch.nn.Linear(9, 4)
    with torch.no_grad():
        dense.weight.copy_(layer.weight.to_dense())
        dense.bias.copy_(layer.bias)
    pattern = dense.weight.detach() != 0
    x, y = torch.randn(7, 9), torch.randint(0, 4, (7,))
    step = joinsum.train_step(layer, nn.functional.cross_entropy, torch.optim.SGD(layer.parameters(), lr=0.5))
    step(x, y)
    nn.functional.cross_entropy(dense(x), y).backward()
    wanted = dense.weight.detach() - 0.5 * dense.weight.grad * pattern
    torch.testing.assert_close(layer.weight.to_dense(), wanted)
