"""Claims about batches of several sizes: results are torch's, and one graph serves all of them."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import joinsum
import pytest
import torch
import torch.nn.functional as F
from joinsum.capture import planned_program
from joinsum.distributed.distributed_tensor import gathered
from joinsum.frontend.tracing import sizes as sizes_of_graphs
from joinsum.frontend.tracing.sizes import GraphBySize, results_of, sources_of
from joinsum.frontend.tracing.torch_internals import FakeTensor, aot_compile
from joinsum.planner import plan_choice
from resized_programs import compare_with_recordings
from torch import Tensor, fx, nn
from training import CUTTING, same

ONE, BOTH = (pytest.mark.parametrize("sites", numbers, indirect=True) for numbers in ([1], [1, 3]))


@pytest.fixture(autouse=True)
def sites(request: pytest.FixtureRequest) -> Iterator[int]:
    """Three sites, or the number that a test says."""
    torch._dynamo.reset()
    joinsum.init(sites=getattr(request, "param", 3), cluster=CUTTING)
    yield joinsum.sites()
    joinsum.init()


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each graph of Dynamo's that is compiled from now on."""
    found: list[int] = []

    def counting(*args: Any) -> Any:
        found.append(len(found))
        return aot_compile(*args)

    for module in ("backend", "training.step_graph"):
        monkeypatch.setattr(f"joinsum.frontend.{module}.aot_compile", counting)
    return found


class Reader(nn.Module):
    """Attention among tokens; it reads the length as a size, as a number and as an extent of new tensors."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.tokens = nn.Embedding(11, 6)
        self.key = nn.Linear(6, 4)
        self.head = nn.Linear(6, 3)
        self.double()

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        length = ids.shape[1]
        x = self.tokens(ids) + torch.arange(length, dtype=torch.float64)[:, None] / length
        key = self.key(x)
        scores = key @ key.mT * length**-0.5 + torch.full((length, length), -1e9, dtype=torch.float64).triu(1)
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None], -1e9)
        return self.head((scores.softmax(-1) @ x).reshape(ids.shape[0] * length, 6)).view(*ids.shape, 3).mean(1)


class Bag(nn.Module):
    """The mean of tokens, which is captured quickly."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.tokens = nn.Embedding(11, 6)
        self.head = nn.Linear(6, 3)
        self.double()

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.tokens(ids).sum(1) / ids.shape[1])


def batch(n: int, length: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(100 * n + length)
    return torch.randint(11, (n, length), generator=generator), torch.randint(3, (n,), generator=generator)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)


def compare_steps(make: Callable[[], nn.Module], data: Sequence[tuple[Tensor, Tensor]], accumulate: int = 1) -> None:
    """Asserts that losses and parameters of steps on these batches are plain torch's."""
    plain, planned = make(), make()
    optimizer = sgd(plain)
    step = joinsum.train_step(planned, F.cross_entropy, sgd(planned), accumulate=accumulate)
    for i, (x, y) in enumerate(data):
        loss = F.cross_entropy(plain(x), y)
        (loss / accumulate).backward()
        if (i + 1) % accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
        torch.testing.assert_close(step(x, y), loss.detach())
    step.sync()
    same(planned, plain, 1e-12)


# 6 and 4 are extents of parameters, too.
SIZES = [(4, 5), (6, 5), (3, 4), (6, 6), (4, 5)]


@BOTH
def test_steps_on_batches_of_several_sizes_are_torchs_by_one_graph(captures: list[int]) -> None:
    compare_steps(Reader, [batch(*each) for each in SIZES])
    assert len(captures) == 1


@ONE
def test_slices_are_captured_as_tensors_of_their_own(captures: list[int]) -> None:
    ids, y = batch(4, 9)
    compare_steps(Reader, [(ids, y), *((ids[:, :length], y) for length in (7, 5)), (ids[1:, 2:], y[1:])])
    assert len(captures) == 1


@BOTH
def test_distributed_models_take_batches_of_several_sizes_by_one_graph(captures: list[int]) -> None:
    plain = Reader()
    model = joinsum.distribute(copy.deepcopy(plain), batch(4, 5)[0])
    compare_calls(plain, model, model)
    assert len(captures) == 1


def test_compiled_models_take_batches_of_several_sizes_by_few_graphs(captures: list[int]) -> None:
    plain, model = Reader(), Reader()
    compare_calls(plain, model, torch.compile(model, backend="joinsum"))
    assert len(captures) <= 3  # Dynamo's: of numbers, then with a symbol for the axis that changed first, then for both


def test_functions_take_arguments_of_several_sizes() -> None:
    plain, model = Reader(), Reader()
    compare_calls(plain, model, joinsum.compile(model))


def compare_calls(plain: nn.Module, model: nn.Module, called: Callable[..., Tensor]) -> None:
    """Asserts that results and gradients for batches of several sizes are plain torch's."""
    for each in SIZES:
        x, y = batch(*each)
        wanted, actual = plain(x), called(x)
        torch.testing.assert_close(actual, wanted)
        F.cross_entropy(wanted, y).backward()
        F.cross_entropy(actual, y).backward()
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(gathered(p.grad), q.grad)


@ONE
def test_forty_lengths_in_a_row_and_the_first_one_again_are_torchs(captures: list[int]) -> None:
    compare_steps(Bag, [batch(4, length) for length in (*range(2, 42), 2, 41)])
    assert len(captures) == 1


@ONE
def test_batches_of_one_update_may_have_different_sizes() -> None:
    compare_steps(Bag, [batch(4, 5), batch(2, 9), batch(4, 3), batch(3, 5)], accumulate=2)


@ONE
@pytest.mark.parametrize("first", [(1, 5), (4, 5), (4, 1)])
def test_batches_and_lengths_of_one_are_torchs(first: tuple[int, int]) -> None:
    compare_steps(Bag, [batch(*each) for each in (first, (1, 3), (4, 3), (3, 1), first)])


def test_sizes_that_are_equal_at_first_may_differ_later() -> None:
    class Cross(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(1)
            self.layer = nn.Linear(6, 6).double()

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return self.layer(x) @ self.layer(y).T

    plain, generator = Cross(), torch.Generator().manual_seed(2)
    model = joinsum.distribute(copy.deepcopy(plain), (torch.ones(5, 6).double(), torch.ones(5, 6).double()))
    for n, m in [(5, 5), (5, 7), (7, 5), (6, 6), (3, 8)]:
        x, y = (torch.randn(k, 6, generator=generator, dtype=torch.float64) for k in (n, m))
        torch.testing.assert_close(model(x, y), plain(x, y))


@ONE
def test_models_that_branch_on_sizes_are_torchs() -> None:
    class Branching(Bag):
        def forward(self, ids: Tensor) -> Tensor:
            result = super().forward(ids[:, -5:])
            return result * 2 if ids.shape[1] > 6 else result

    plain = Branching()
    model = joinsum.distribute(copy.deepcopy(plain), batch(4, 5)[0])
    for length in (5, 9, 3, 6, 7):
        x, _ = batch(4, length)
        torch.testing.assert_close(model(x), plain(x))


def test_masks_are_given_for_some_batches_alone() -> None:
    plain = Reader()
    x, _ = batch(4, 5)
    model = joinsum.distribute(copy.deepcopy(plain), {"ids": x, "mask": x > 2})
    for n, length, masked in [(4, 5, True), (3, 7, True), (4, 5, False), (2, 6, False), (2, 9, True)]:
        x, _ = batch(n, length)
        keywords = {"mask": x > 2} if masked else {}
        torch.testing.assert_close(model(x, **keywords), plain(x, **keywords))


@ONE
def test_sizes_that_do_not_fit_raise_as_at_first_and_the_next_batch_is_torchs() -> None:
    plain, planned = Bag(), Bag()
    optimizer = sgd(plain)
    step = joinsum.train_step(planned, F.cross_entropy, sgd(planned))
    for i, (x, y) in enumerate([batch(4, 5), batch(3, 7), batch(4, 6)]):
        loss = F.cross_entropy(plain(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(step(x, y), loss.detach())
        with pytest.raises(joinsum.CaptureError, match="batch_size"):
            step(x, batch(4 + i, 5)[1][1:] if i else y[1:])
    step.sync()
    same(planned, plain, 1e-12)


# --- graphs by size ---------------------------------------------------------------------------------------------------


class OfOneSize(fx.GraphModule):
    """A graph for some sizes, from which that for other sizes cannot be made."""

    def resized(self, sizes: Any, full: Callable[[], Any]) -> None:
        """Nothing."""


def by_size(function: Callable[..., Any], made: list[fx.GraphModule]) -> Callable[..., Any]:
    """The function by its graphs of numbers, which are added to `made`."""

    def make(graph: fx.GraphModule, examples: Sequence[Any], _: object) -> OfOneSize:
        made.append(OfOneSize(graph, graph.graph))
        return made[-1]

    def compiler(gm: fx.GraphModule, inputs: Sequence[Any], _: frozenset[int]) -> Callable[..., Any]:
        found = GraphBySize(gm, inputs, make)
        return lambda args: found.of(args)(*args)

    def backend(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return aot_compile(gm, inputs, compiler, compiler)

    return torch.compile(function, backend=backend, dynamic=True, fullgraph=True)


def arithmetic(x: Tensor, n: int, y: Tensor) -> tuple[Tensor, ...]:
    rows, columns = x.shape
    return (
        (x * rows**0.5).reshape(columns, rows).repeat(n, 1),
        torch.arange(rows * n - 1).float() + columns // 2,
        y.new_zeros(n, y.shape[0] + 1)[:, :-1] + y / (rows + columns),
        x[: (rows + 1) // 2].sum() + max(rows, n),
    )


@pytest.mark.parametrize("sites", [1], indirect=True)
def test_graphs_of_numbers_compute_what_the_function_does() -> None:
    made: list[fx.GraphModule] = []
    compiled, generator = by_size(arithmetic, made), torch.Generator().manual_seed(1)
    calls = [(5, 3, 2, 4), (4, 6, 3, 7), (9, 2, 2, 4), (5, 3, 4, 4), (5, 3, 2, 4)]
    for rows, columns, n, extent in calls:
        x, y = torch.randn(rows, columns, generator=generator), torch.randn(extent, generator=generator)
        torch.testing.assert_close(compiled(x, n, y), arithmetic(x, n, y))
    for graph in made:
        for node in graph.graph.nodes:
            value = node.meta.get("val")
            assert not isinstance(value, torch.SymInt) or (node.op == "placeholder" and not node.users)
            if isinstance(value, Tensor):
                assert all(type(extent) is int for extent in (*value.shape, *value.stride()))


def test_graphs_are_made_once_a_size_and_those_used_least_recently_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes_of_graphs, "_CACHED", 3)
    made: list[fx.GraphModule] = []
    compiled = by_size(lambda x: x * x.shape[0], made)
    counts = []
    for n in (2, 3, 4, 2, 5, 2, 4, 3, 5):
        torch.testing.assert_close(compiled(torch.ones(n)), torch.full((n,), float(n)))
        counts.append(len(made))
    # 5 drops 3, as 2 was used after it; 3 drops 5.
    assert counts == [1, 2, 3, 3, 4, 4, 4, 5, 6]


def test_a_graph_of_numbers_is_made_once_when_it_is_asked_for() -> None:
    graph = fx.symbolic_trace(lambda x: x + 1)
    made: list[fx.GraphModule] = []
    found = GraphBySize(graph, [torch.ones(2)], lambda gm, *_: made.append(gm) or gm)
    assert not made
    assert found.latest is graph is found.of([torch.ones(2)])
    assert made == [graph]


# --- programs for other sizes -----------------------------------------------------------------------------------------


def positions(x: Tensor, table: Tensor) -> Tensor:
    length = x.shape[1]
    return (x + table[:length] + torch.arange(length)[:, None] / length).mean((0, 1)).sum() + x.sum() / x.shape[0]


def slices(x: Tensor, table: Tensor) -> Tensor:
    joined = torch.cat([x[:, 1:], x[:, :-1], x[:, -2:] * 2], 1)
    return (joined[:, ::2].sum() + F.pad(x, (0, 0, 1, 2))[:, 1:-1].square().sum()) * x.flip(1).cumsum(1).mean()


def causal(x: Tensor, table: Tensor) -> Tensor:
    length = x.shape[1]
    mask = torch.tril(torch.ones(length, length, dtype=torch.bool))
    scores = (x @ x.mT).masked_fill(~mask, -torch.inf)
    return (scores.softmax(-1) @ x).square().mean() + F.scaled_dot_product_attention(
        x[:, None], x[:, None], x[:, None], is_causal=True
    ).sum()


def reshaped(x: Tensor, table: Tensor) -> Tensor:
    batch, length, width = x.shape
    flat = x.reshape(batch * length, width) @ table[:width]
    return flat.view(batch, length, -1).transpose(0, 1).reshape(length, -1).logsumexp(1).sum()


def filled(x: Tensor, table: Tensor) -> Tensor:
    weights = torch.full(x.shape[:2], 1 / x.shape[1], dtype=x.dtype)
    return (x * weights[..., None]).sum() + x.new_zeros(x.shape[0]).add(max(*x.shape)).sum() + x.var(1).sum()


def chosen(x: Tensor, table: Tensor) -> Tensor:
    index = torch.arange(x.shape[1]) % table.shape[0]
    rows = F.embedding(index, table) + F.one_hot(index % 4, table.shape[1]).to(x.dtype)
    losses = F.cross_entropy((x * rows).flatten(0, 1), index.repeat(x.shape[0]) % 4, reduction="none")
    return losses.view(x.shape[0], -1).sum(1).exp().log().mean()


SHAPES = [(4, 16), (5, 12), (7, 9), (3, 8), (6, 15), (4, 16)]


@pytest.mark.parametrize("function", [positions, slices, causal, reshaped, filled, chosen])
def test_programs_for_other_sizes_are_those_that_are_recorded(
    monkeypatch: pytest.MonkeyPatch, function: Callable[[Tensor, Tensor], Tensor]
) -> None:
    made = compare_with_recordings(monkeypatch)
    compiled = torch.compile(function, backend="joinsum", dynamic=True, fullgraph=True)
    generator = torch.Generator().manual_seed(2)
    table = torch.randn(20, 4, dtype=torch.float64, generator=generator)
    for batch, length in SHAPES:
        x = torch.randn(batch, length, 4, dtype=torch.float64, generator=generator)
        results = []
        for run in (function, compiled):
            operands = [each.clone().requires_grad_() for each in (x, table)]
            value = run(*operands)
            value.backward()
            results.append([value.detach(), *(each.grad for each in operands)])
        torch.testing.assert_close(results[1], results[0], rtol=1e-10, atol=1e-10)
    assert sum(made) >= 4  # forward and backward, at least for two sizes


def test_a_step_at_another_length_needs_no_search(
    monkeypatch: pytest.MonkeyPatch, captures: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    made = compare_with_recordings(monkeypatch)
    plain = Reader()
    planned = copy.deepcopy(plain)
    step = joinsum.train_step(planned, F.mse_loss, torch.optim.SGD(planned.parameters(), lr=0.1))
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(6)
    for batch, length in [(6, 5), (6, 8), (9, 7), (6, 12)]:
        ids = torch.randint(11, (batch, length), generator=generator)
        target = torch.randn(plain(ids).shape, dtype=torch.float64, generator=generator)
        step(ids, target)
        optimizer.zero_grad()
        F.mse_loss(plain(ids), target).backward()
        optimizer.step()
    step.sync()
    same(planned, plain, 1e-10)
    assert made == [True, True, True]
    assert len(captures) == 1


def test_a_plan_of_other_sizes_is_searched_for_once_it_may_have_lost_that_time(monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[int] = []
    chosen = planned_program.choose
    monkeypatch.setattr(planned_program, "choose", lambda *args: searches.append(1) or chosen(*args))
    joinsum.init(sites=3, cluster=CUTTING, plan_cache=False)
    clock = itertools.count()
    # A search takes 1 ns, and any plan loses all that it takes.
    monkeypatch.setattr(plan_choice, "time", SimpleNamespace(perf_counter=lambda: next(clock) * 1e-9))
    monkeypatch.setattr(planned_program, "seconds_of_work", lambda *_: 0.0)
    compiled = torch.compile(lambda x, w: (x @ w).relu().sum(1), backend="joinsum", dynamic=True, fullgraph=True)
    w = torch.ones(40, 40)
    compiled(torch.ones(30, 40), w)
    found = len(searches)
    for run in range(12):
        torch.testing.assert_close(compiled(torch.ones(600, 40), w), torch.full((600,), 1600.0))
        assert len(searches) - found == (run >= 8), run


def test_results_of_a_graph_for_other_sizes_are_fake_tensors_of_their_shapes() -> None:
    found = []

    def backend(gm: Any, inputs: Any) -> Any:
        (symbol,) = sources_of(inputs)
        found.extend(results_of(gm, {symbol: 5}))
        return gm

    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return torch.cat([x, x]), (2 * x).T, torch.zeros(x.shape[0] // 2)

    x = torch.ones(3, 2)
    torch._dynamo.maybe_mark_dynamic(x, 0)
    torch.compile(function, backend=backend, fullgraph=True)(x)
    assert sorted(tuple(y.shape) for y in found) == [(2,), (2, 5), (10, 2)]
    assert all(isinstance(y, FakeTensor) for y in found)
