"""Updates of the rows that a lookup has read, beside torch's optimizers with sparse gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import joinsum  # noqa: F401
import pytest
import torch

ops = torch.ops.joinsum

ROWS, WIDTH, PADDING, STEP = 10, 6, 4, 3
SHARDS = [([0], [10], [10]), ([3], [4], [10]), ([1, 0], [1, 5], [2, 5]), ([2], [0], [10])]


def rows_of(shard: tuple[list[int], ...]) -> torch.Tensor:
    """The numbers of the rows in a shard of ten."""
    offsets, local, _ = shard
    begin = offsets[0] if len(offsets) == 1 else offsets[0] * 5
    return torch.arange(begin, begin + torch.tensor(local).prod())


def composed(operator: Any, *arguments: object) -> Any:
    """What runs on devices that the operator has no kernel for."""
    return operator.default._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, *arguments)


def directly(operator: Any, *arguments: object) -> Any:
    return operator(*arguments)


def into_operands(operator: Any, *arguments: Any) -> Any:
    """Over copies of the table and its moments."""
    schema = operator.out._schema.arguments
    copies = [x.clone() if each.name + "_out" in OUTPUTS else x for each, x in zip(schema, arguments, strict=False)]
    outputs = {each.name: copies[i] for i, x in enumerate(schema) for each in schema if each.name == f"{x.name}_out"}
    operator.out(*copies, **outputs)
    return tuple(outputs.values()) if len(outputs) > 1 else next(iter(outputs.values()))


OUTPUTS = ("param_out", "sum_out", "exp_avg_out", "exp_avg_sq_out")
CALLS = [directly, composed, into_operands]


def numbers(*values: float) -> list[torch.Tensor]:
    return [torch.tensor(x, dtype=torch.float64) for x in values]


def sgd(maximize: bool) -> tuple[Any, list[str], list[torch.Tensor], Any]:
    return ops.sgd_lookup_update, [], numbers(-0.3), lambda p: torch.optim.SGD([p], lr=0.3, maximize=maximize)


def adagrad(maximize: bool) -> tuple[Any, list[str], list[torch.Tensor], Any]:
    optimizer = lambda p: torch.optim.Adagrad([p], lr=0.3, eps=1e-3, maximize=maximize)  # noqa: E731
    return ops.adagrad_lookup_update, ["sum"], numbers(0.3, 1e-3), optimizer


def sparse_adam(maximize: bool) -> tuple[Any, list[str], list[torch.Tensor], Any]:
    rate = 0.1 * (1 - 0.99 ** (STEP + 1)) ** 0.5 / (1 - 0.8 ** (STEP + 1))
    optimizer = lambda p: torch.optim.SparseAdam([p], lr=0.1, betas=(0.8, 0.99), eps=1e-3, maximize=maximize)  # noqa: E731
    return ops.sparse_adam_lookup_update, ["exp_avg", "exp_avg_sq"], numbers(rate, 0.2, 0.01, 1e-3), optimizer


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("shard", SHARDS, ids=str)
@pytest.mark.parametrize("kind", [sgd, adagrad, sparse_adam])
def test_rows_change_as_by_torchs_optimizer(
    kind: Callable[[bool], Any], shard: tuple[list[int], ...], maximize: bool, call: Any
) -> None:
    operator, moments, given, optimizer_of = kind(maximize)
    table = torch.randn(ROWS, WIDTH, dtype=torch.float64)
    index, grad = torch.tensor([[0, 6, 6, 4], [9, 3, 0, 6]]), torch.randn(2, 4, WIDTH, dtype=torch.float64)
    grad[1, 0] = 0  # a row that is read moves by its moments
    parameter = torch.nn.Parameter(table.clone())
    optimizer = optimizer_of(parameter)
    state = {name: torch.rand(ROWS, WIDTH, dtype=torch.float64) for name in moments}
    step = STEP if kind is sparse_adam else torch.tensor(0.0)
    optimizer.state[parameter].update(
        {"step": step, **{name: x.clone() for name, x in state.items()}} if moments else {}
    )
    torch.nn.functional.embedding(index, parameter, PADDING, sparse=True).backward(grad)
    optimizer.step()

    own = rows_of(shard)
    before = [table, *state.values()]
    tables = [x[own] for x in before]
    found = call(operator, *tables, grad, index, *given, PADDING, maximize, *shard)
    wanted = [parameter.detach(), *(optimizer.state[parameter][name] for name in moments)]
    for x, y, z in zip(found if moments else [found], wanted, before, strict=True):
        torch.testing.assert_close(x, y[own])
        rests = ~torch.isin(own, torch.tensor([0, 3, 6, 9]))
        assert torch.equal(x[rests], z[own][rests])
    for x, y in zip(tables, before, strict=True):
        assert torch.equal(x, y[own]), "an operand was overwritten"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_rows_in_low_precision_are_summed_in_single(dtype: torch.dtype) -> None:
    table, index = torch.ones(3, 2, dtype=dtype), torch.full((4096,), 1)
    grad = torch.full((4096, 2), 2.0**-11, dtype=dtype)
    for call in (directly, composed):
        found = call(ops.sgd_lookup_update, table, grad, index.int(), torch.tensor(-0.25), -1, False)
        assert torch.equal(found, torch.tensor([[1.0, 1.0], [0.5, 0.5], [1.0, 1.0]], dtype=dtype))


def test_sums_do_not_depend_on_threads() -> None:
    torch.manual_seed(0)
    table, index = torch.randn(500, 33), torch.randint(0, 500, (20_000,))
    grad = torch.randn(20_000, 33)
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            found.append(ops.sgd_lookup_update(table, grad, index, torch.tensor(-0.1), 7, False))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_no_entries_change_nothing() -> None:
    table = torch.randn(3, 2)
    nothing = torch.zeros(0, 5, 2), torch.zeros(0, 5, dtype=torch.int64)
    for call in (directly, composed):
        assert torch.equal(call(ops.sgd_lookup_update, table, *nothing, torch.tensor(-0.1), -1, False), table)


def test_a_row_out_of_range_is_named() -> None:
    with pytest.raises(IndexError, match="an index is out of range: index=3, extent=3"):
        ops.sgd_lookup_update(torch.ones(3, 2), torch.ones(1, 2), torch.tensor([3]), torch.tensor(-0.1), -1, False)


def test_there_are_no_values_on_the_meta_device() -> None:
    table = torch.ones(3, 2, device="meta")
    index = torch.ones(4, dtype=torch.int64, device="meta")
    found = ops.adagrad_lookup_update(table, table, table[:1].expand(4, 2), index, *[table[0, 0]] * 2, -1, False)
    assert [x.shape for x in found] == [(3, 2), (3, 2)]
