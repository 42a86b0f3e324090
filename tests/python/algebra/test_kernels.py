"""Users' kernels: declared facts are checked, results too, and errors name the kernel."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from typing import Any

import joinsum
import pytest
import torch
from joinsum import _C


@pytest.fixture(autouse=True)
def clean_table() -> Iterator[None]:
    joinsum.init()
    yield
    joinsum.init()
    for row in joinsum.kernels():
        if row.user:
            joinsum.unregister_kernel(row.name)


def parts(value: float = 1.0) -> joinsum.Relation:
    return joinsum.relation(torch.full((4, 3), value), parts=(2, 1))


# --- the table --------------------------------------------------------------------------------------------------------


def test_the_table_lists_what_plans_may_name() -> None:
    rows = {row.name: row for row in joinsum.kernels()}
    assert rows["add"].facts[:2] == ("associative", "commutative")
    assert "identity=0" in rows["add"].facts
    assert rows["scale"].parameters == "n"
    assert rows["contract"].form == "labelled"
    assert "matrix product AB" in repr(joinsum.kernels())


def test_a_kernel_of_the_table_runs_on_tensors_with_its_epilogue_and_reduces_axes() -> None:
    x = torch.tensor([[1.0, -2.0], [3.0, 4.0]])
    assert torch.equal(_C.Kernel("sub | square").run([x, torch.ones(1, 2)]), (x - 1).square())
    for row in (row for row in joinsum.kernels() if row.name in ("add", "mul", "max", "min", "logaddexp")):
        kernel = _C.Kernel(row.name)
        assert torch.allclose(kernel.reduce(x, [1]), kernel.run([x[:, 0], x[:, 1]])), row.name
    with pytest.raises(joinsum.KernelError, match=r"^div: no axes are reduced by it: kernel=div$"):
        _C.Kernel("div").reduce(x, [1])


def test_a_registered_kernel_is_a_row_until_it_is_unregistered() -> None:
    joinsum.register_kernel("twice", lambda a: a + a, elementwise=True, facts=["linear"], summary="2 x")
    row = next(row for row in joinsum.kernels() if row.name == "twice")
    assert (row.user, row.summary, row.facts, row.operands) == (True, "2 x", ("linear",), 1)
    doubled = parts().transform("twice")
    assert doubled.to_tensor().tolist() == [[2.0] * 3] * 4
    joinsum.unregister_kernel("twice")
    with pytest.raises(joinsum.KernelError, match="unknown name: name=twice"):
        parts().transform("twice")
    joinsum.register_kernel("twice", lambda a: 2 * a, elementwise=True)
    assert parts().transform("twice").to_tensor().tolist() == [[2.0] * 3] * 4


# --- what they compute ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sites", [1, 2, 4])
def test_an_elementwise_kernel_joins_and_aggregates(sites: int) -> None:
    joinsum.init(sites=sites)
    facts = {"associative": True, "commutative": True, "idempotent": False, "identity": float("-inf")}
    joinsum.register_kernel("log_add", torch.logaddexp, elementwise=True, operands=2, facts=facts)
    x = torch.randn(6, 5)
    reduced = joinsum.relation(x, parts=(3, 2)).aggregate(keep=[1], kernel="log_add")
    torch.testing.assert_close(reduced.to_tensor(), torch.logsumexp(x.reshape(3, 2, 5), dim=0))
    joined = joinsum.relation(x, parts=(3, 2)).join(joinsum.relation(x, parts=(3, 2)), ([0, 1], [0, 1]), "log_add")
    torch.testing.assert_close(joined.to_tensor(), torch.logaddexp(x, x))


@pytest.mark.parametrize("sites", [1, 3])
def test_a_labelled_kernel_gets_the_arrays_of_one_tuple(sites: int) -> None:
    """A softmax along a cut axis is taken part by part: labels say what shapes result, no more."""
    joinsum.init(sites=sites)
    joinsum.register_kernel("softmax", lambda a: torch.softmax(a, dim=-1), labels="ij->ij")
    x = torch.randn(4, 6)
    found = joinsum.relation(x, parts=(2, 3)).transform("softmax").to_tensor()
    torch.testing.assert_close(found, torch.cat([torch.softmax(part, -1) for part in x.split(2, 1)], 1))


@pytest.mark.parametrize("sites", [1, 2, 4])
def test_a_linear_labelled_kernel_is_summed_by_itself(sites: int) -> None:
    joinsum.init(sites=sites)
    joinsum.register_kernel("twice_matmul", lambda a, b: 2 * (a @ b), labels="ij,jk->ik", facts=["linear"])
    x, y = torch.ones(4, 6), torch.ones(6, 4)
    left, right = joinsum.relation(x, parts=(2, 3)), joinsum.relation(y, parts=(3, 2))
    product = left.join(right, on=([1], [0]), kernel="twice_matmul").aggregate(keep=[0, 2])
    assert torch.equal(product.to_tensor(), 2 * (x @ y))


@pytest.mark.parametrize("sites", [1, 2])
def test_an_opaque_kernel_says_its_shape(sites: int) -> None:
    joinsum.init(sites=sites)
    joinsum.register_kernel("outer", lambda a, b: a.flatten()[:, None] * b.flatten(), operands=2, shape=outer_shape)
    x = joinsum.relation({0: torch.tensor([1.0, 2.0]), 1: torch.tensor([3.0])})
    found = x.join(x, on=([0], [0]), kernel="outer").tuples()
    assert [array.tolist() for _, array in found] == [[[1, 2], [2, 4]], [[9]]]


def outer_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, int]:
    return torch.Size(a).numel(), torch.Size(b).numel()


def test_kernels_preserve_the_dtype() -> None:
    joinsum.register_kernel("twice", lambda a: a + a, elementwise=True)
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.complex64):
        assert joinsum.relation(torch.ones(3, dtype=dtype)).transform("twice").to_tensor().dtype is dtype


# --- refused at registration ------------------------------------------------------------------------------------------

REFUSED: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (lambda a, b: a - b, {"elementwise": True, "operands": 2, "facts": ["associative"]}, "fact=associative, counterex"),
    (lambda a, b: a - b, {"elementwise": True, "operands": 2, "facts": ["commutative"]}, "fact=commutative, counterex"),
    (lambda a, b: a + b, {"elementwise": True, "operands": 2, "facts": ["idempotent"]}, "fact=idempotent, counterex"),
    (lambda a, b: a + b, {"elementwise": True, "operands": 2, "facts": {"identity": 1.0}}, "fact=identity, counterex"),
    (
        lambda a, b: a + b,
        {"elementwise": True, "operands": 2, "facts": {"annihilator": 0}},
        "fact=annihilator, countere",
    ),
    (lambda a: a * a, {"elementwise": True, "facts": ["linear"]}, "fact=distributes over add in operand 0"),
    (lambda a: -a, {"elementwise": True, "facts": {"distributes_over": "max"}}, "distributes over max in operand 0"),
    (lambda a: a + 1, {"elementwise": True, "facts": ["moves_elements"]}, "fact=moves_elements, counterex"),
    (lambda a: a.sum(1), {"labels": "ij->j"}, "another shape than the row says"),
    (lambda a: a.cumsum(-1) if a.dim() else a, {"elementwise": True}, "not elementwise"),
    (lambda a: 1 / 0, {"elementwise": True}, "ZeroDivisionError"),
    (lambda a: 3, {"elementwise": True}, "returns no tensor: returned=int"),
    (lambda a: a, {}, "give one of labels, shape and elementwise=True"),
    (lambda a: a, {"labels": "ij->i", "elementwise": True}, "give one of labels, shape and elementwise=True"),
    (lambda a: a, {"labels": "ij->k"}, "k"),
    (lambda a: a, {"labels": 3}, "labels are text"),
    (lambda a: a, {"shape": 3}, "shape is a function"),
    (lambda a: a, {"elementwise": True, "facts": ["lucky"]}, "unknown fact or value: name=mine, fact='lucky'"),
    (lambda a: a, {"elementwise": True, "facts": {"identity": "zero"}}, "unknown fact or value"),
    (lambda a: a, {"elementwise": True, "facts": {"distributes_over": 3}}, "distributes_over takes"),
    (lambda a: a, {"elementwise": True, "facts": {"distributes_over": {"max": "up"}}}, "distributes_over takes"),
    (
        lambda a: a,
        {"elementwise": True, "facts": {"distributes_over": "nothing"}},
        "distributes over one of two operands",
    ),
    (lambda a: a, {"elementwise": True, "facts": 3}, "facts are names, or a dict"),
    (lambda a: a, {"elementwise": True, "facts": ["associative"]}, "facts of two operands"),
    (lambda a: a, {"elementwise": True, "flops_per_element": -1}, "negative flops"),
]


@pytest.mark.parametrize(("function", "options", "problem"), REFUSED, ids=range(len(REFUSED)))
def test_a_wrong_declaration_is_refused(function: Callable[..., Any], options: dict[str, Any], problem: str) -> None:
    with pytest.raises(joinsum.KernelError) as caught:
        joinsum.register_kernel("mine", function, **options)
    assert problem in str(caught.value)
    assert "mine" not in [row.name for row in joinsum.kernels()]
    assert parts().transform("relu").to_tensor().sum() == 12


def test_names_are_identifiers_and_taken_once() -> None:
    for name in ("relu", "two words", "", 3):
        with pytest.raises(joinsum.KernelError):
            joinsum.register_kernel(name, lambda a: a, elementwise=True)  # type: ignore[arg-type]
    for name in ("relu", "unknown", 3):
        with pytest.raises(joinsum.KernelError):
            joinsum.unregister_kernel(name)  # type: ignore[arg-type]
    with pytest.raises(joinsum.KernelError):
        joinsum.register_kernel("mine", 3, elementwise=True)  # type: ignore[arg-type]


# --- errors at run time -----------------------------------------------------------------------------------------------


def test_an_exception_in_the_function_is_the_cause_of_an_error_that_names_the_kernel() -> None:
    def fussy(a: torch.Tensor) -> torch.Tensor:
        if a.dtype == torch.float32:
            raise LookupError("no singles")
        return a

    joinsum.register_kernel("fussy", fussy, elementwise=True)
    with pytest.raises(
        joinsum.KernelError, match="kernel fussy: its function raised LookupError: no singles"
    ) as caught:
        parts().transform("fussy").tuples()
    assert isinstance(caught.value.__cause__, LookupError)
    assert caught.value.__cause__.__traceback__ is not None
    assert parts().transform("relu").to_tensor().sum() == 12


def test_a_wrong_result_names_kernel_wanted_and_got() -> None:
    def fickle(a: torch.Tensor) -> torch.Tensor:
        return a if a.dtype == torch.float64 else a.sum(0) if a.dtype == torch.float32 else a.double()

    joinsum.register_kernel("fickle", fickle, elementwise=True)
    with pytest.raises(joinsum.KernelError, match=r"fickle: result does not fit: wanted shape=\[.*\], .*given shape="):
        parts().transform("fickle").tuples()
    with pytest.raises(joinsum.KernelError, match=r"fickle: result does not fit: .*dtype=Int.*dtype=Double"):
        joinsum.relation(torch.ones(2, dtype=torch.int32)).transform("fickle").tuples()


def test_a_failing_shape_rule_names_kernel_and_shapes() -> None:
    joinsum.register_kernel("first", lambda a: a.sum(0), shape=lambda a: a[1:] if a[0] < 4 else {}[a])
    assert joinsum.relation(torch.ones(2, 3)).transform("first").to_tensor().tolist() == [2, 2, 2]
    with pytest.raises(
        joinsum.KernelError, match=r"kernel first: its shape rule raised KeyError.*operands=\[\[5, 3\]\]"
    ):
        joinsum.relation(torch.ones(5, 3)).transform("first")


def test_kernels_are_not_interpreted() -> None:
    joinsum.register_kernel("twice", lambda a: a + a, elementwise=True)
    with pytest.raises(joinsum.KernelError, match="twice"):
        joinsum.interpret(parts().transform("twice").plan(), {"r0": torch.ones(4, 3)})


def test_interrupts_pass_through() -> None:
    def interrupted(a: torch.Tensor) -> torch.Tensor:
        if a.dtype == torch.float32:
            raise KeyboardInterrupt
        return a

    joinsum.register_kernel("interrupted", interrupted, elementwise=True)
    with pytest.raises(KeyboardInterrupt):
        parts().transform("interrupted").tuples()
    assert parts().to_tensor().sum() == 12


def test_runs_of_several_threads_wait_for_each_other_and_not_for_pythons_lock() -> None:
    joinsum.init(sites=2)
    joinsum.register_kernel("slow", lambda a: a + 1, elementwise=True)
    found: list[float] = []

    def work() -> None:
        for _ in range(20):
            found.append(float(parts().transform("slow").to_tensor().sum()))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert found == [24.0] * 80


@pytest.mark.parametrize("ending", ["", "joinsum.unregister_kernel('mine')", "del joinsum"])
def test_a_process_with_kernels_ends_quietly(ending: str) -> None:
    program = f"""
        import torch, joinsum
        class Held:
            def __call__(self, a):
                return a + 1
            def __del__(self):
                pass
        joinsum.register_kernel("mine", Held(), elementwise=True)
        joinsum.register_kernel("other", lambda a: a.sum(0), shape=lambda a: a[1:] if a else None)
        x = joinsum.relation(torch.ones(4), parts=2).transform("mine")
        assert x.to_tensor().sum() == 8
        {ending}
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
