"""The kernels that plans name, and users' own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from joinsum import _C
from joinsum.base.arguments import integer, integers, is_number, show
from joinsum.base.errors import KernelError
from joinsum.base.text_table import text_table

__all__ = ["Facts", "KernelRow", "KernelTable", "kernels", "register_kernel", "unregister_kernel"]

Facts = Mapping[str, object] | Iterable[str]
Shape = Sequence[int]

_FLAGS = ("associative", "commutative", "idempotent", "additive", "linear", "moves_elements")
_NUMBERS = ("identity", "annihilator")
_SIDES = {"left": (True, False), "right": (False, True), "both": (True, True)}


@dataclass(frozen=True)
class KernelRow:
    """A row of the kernel table.

    operands     how many it takes; 0 where the first parameter says it
    parameters   what stands in its brackets, one letter each: i integer, n number or `$scalar`, l label
    form         how result axes follow: elementwise, labelled, opaque (a shape rule), ...
    facts        what rules may assume of it, as text: `associative`, `identity=0`, `distributes over max`
    user         whether it is a user's
    """

    name: str
    summary: str
    operands: int
    parameters: str
    form: str
    facts: tuple[str, ...]
    flops_per_element: int
    user: bool


class KernelTable(list[KernelRow]):
    """Rows of the kernel table; prints as a table."""

    def __repr__(self) -> str:
        rows = [
            [row.name, str(row.operands), row.parameters, row.form, row.summary, ", ".join(row.facts)] for row in self
        ]
        return text_table(["name", "operands", "parameters", "form", "what", "facts"], rows, right=[1])


def kernels() -> KernelTable:
    """All kernels, built-in ones first. Rules of the optimizer use their facts.

    >>> import joinsum
    >>> matmul = next(row for row in joinsum.kernels() if row.name == "matmul")
    >>> matmul.summary, matmul.operands, "associative" in matmul.facts
    ('matrix product AB', 2, True)
    """
    return KernelTable(
        KernelRow(
            row.name,
            row.summary,
            row.operands,
            row.parameters,
            row.form,
            tuple(_facts_text(row.facts)),
            row.flops_per_element,
            row.user,
        )
        for row in _C.kernel_rows()
    )


def register_kernel(
    name: str,
    function: Callable[..., torch.Tensor],
    *,
    labels: str | None = None,
    shape: Callable[..., Shape] | None = None,
    elementwise: bool = False,
    operands: int = 1,
    facts: Facts = (),
    flops_per_element: int = 1,
    summary: str = "",
) -> None:
    """Adds a kernel that plans then name; on a process group every rank registers it.

    function           takes `operands` torch tensors and returns one of the operands' dtype; it changes none of them
    labels             letters of the operands' axes and the result's, as in `"ij,jk->ik"`
    shape              or: a function from the operands' shapes (tuples of ints) to the result's
    elementwise        or: result[i] = f(a[i], b[i]), shapes broadcast as in torch; the function may get several
                       arrays as one
    facts              names of facts that hold, or a dict with values: `associative`, `commutative`, `idempotent`,
                       `additive` (of two operands: f(a + c, b + d) = f(a, b) + f(c, d)), `linear`,
                       `moves_elements`, `identity` and `annihilator` (numbers), `distributes_over` (a kernel's
                       name, a list of names, or {name: "left" | "right" | "both"})
    flops_per_element  of the result; with `labels` per point of the space of all letters

    The function is tried on random float64 arrays, and declared facts with it: a false one is refused with a
    counterexample. At run time an exception in it, or a wrong shape, is a KernelError that names the kernel.
    Raises KernelError.

    >>> import joinsum, torch
    >>> facts = ["associative", "commutative"]
    >>> joinsum.register_kernel("log_add", torch.logaddexp, elementwise=True, operands=2, facts=facts)
    >>> x = joinsum.relation(torch.zeros(2, 3), parts=(2, 1)).aggregate(keep=[], kernel="log_add")
    >>> x.tuples()
    [((), tensor([[0.6931, 0.6931, 0.6931]]))]
    >>> try:
    ...     joinsum.register_kernel("half", lambda a, b: (a + b) / 2, elementwise=True, operands=2, facts=facts)
    ... except joinsum.KernelError as error:
    ...     print(str(error).split(": counterexample")[0].split(", counterexample")[0])
    register_kernel: declared fact does not hold: kernel=half, fact=associative
    >>> joinsum.unregister_kernel("log_add")
    """
    if not isinstance(name, str) or not callable(function):
        raise KernelError(f"register_kernel: give a name and a function: name={show(name)}, function={show(function)}")
    if sum((labels is not None, shape is not None, bool(elementwise))) != 1:
        raise KernelError(f"register_kernel: give one of labels, shape and elementwise=True: name={name}")
    if labels is not None and not isinstance(labels, str):
        raise KernelError(f"register_kernel: labels are text such as 'ij->i': name={name}, labels={show(labels)}")
    if shape is not None and not callable(shape):
        raise KernelError(f"register_kernel: shape is a function of shapes: name={name}, shape={show(shape)}")
    count = (
        labels.split("->")[0].count(",") + 1 if labels is not None else integer("register_kernel", "operands", operands)
    )
    flops = integer("register_kernel", "flops_per_element", flops_per_element)
    rule = _shape_rule(name, shape) if shape is not None else None
    _C.register_kernel(name, str(summary), count, flops, labels, rule, _facts(name, facts), function)
    if elementwise:
        try:
            _check_elementwise(name, function, count)
        except BaseException:
            _C.unregister_kernel(name)
            raise


def unregister_kernel(name: str) -> None:
    """Takes a kernel that `register_kernel` added out of the table; plans that name it no longer run.

    Raises KernelError for a built-in or unknown one.
    """
    if not isinstance(name, str):
        raise KernelError(f"unregister_kernel: a kernel is named by text: name={show(name)}")
    _C.unregister_kernel(name)


def _facts_text(facts: _C.Facts) -> list[str]:
    """Facts as the table prints them."""
    text = [fact for fact in _FLAGS if getattr(facts, fact)]
    text += [f"{number}={getattr(facts, number):g}" for number in _NUMBERS if getattr(facts, number) is not None]
    sides = {(True, True): "", (True, False): " (left)", (False, True): " (right)"}
    return text + [f"distributes over {over}{sides[left, right]}" for over, left, right in facts.distributes_over]


def _check_elementwise(name: str, function: Callable[..., torch.Tensor], operands: int) -> None:
    """Tries that each element of the result depends on the operands' elements at its place only."""
    generator = torch.Generator().manual_seed(0)
    arrays = [torch.rand(2, 3, generator=generator, dtype=torch.float64) + 0.5 for _ in range(operands)]
    batched = function(*(array.clone() for array in arrays))
    for row in range(2):
        for column in range(3):
            single = function(*(array[row, column].clone() for array in arrays))
            if not torch.allclose(batched[row, column], single, rtol=1e-8, atol=1e-12, equal_nan=True):
                found = f"f(a)[{row},{column}]={batched[row, column]:.6g}, f(a[{row},{column}])={single:.6g}"
                example = f"a={arrays[0].tolist()}, {found}"
                raise KernelError(f"register_kernel: not elementwise; give labels or shape: name={name}, {example}")


def _shape_rule(name: str, shape: Callable[..., Shape]) -> Callable[[list[list[int]]], list[int]]:
    """The user's shape rule on lists, with its result checked."""

    def rule(shapes: list[list[int]]) -> list[int]:
        result = integers(f"kernel {name}", "shape", shape(*map(tuple, shapes)))
        if any(extent < 0 for extent in result):
            raise KernelError(f"kernel {name}: negative extent: shape={result}, operands={shapes}")
        return result

    return rule


def _facts(name: str, facts: Facts) -> _C.Facts:
    """Facts for the C++ core."""
    if isinstance(facts, str):
        facts = [facts]
    if not isinstance(facts, Iterable):
        raise KernelError(f"register_kernel: facts are names, or a dict: name={name}, facts={show(facts)}")
    declared = dict(facts) if isinstance(facts, Mapping) else dict.fromkeys(facts, True)
    result = _C.Facts()
    for fact, value in declared.items():
        if fact in _FLAGS and isinstance(value, bool):
            setattr(result, fact, value)
        elif fact in _NUMBERS and is_number(value):
            setattr(result, fact, float(value))
        elif fact == "distributes_over":
            result.distributes_over = _distributions(name, value)
        else:
            known = [*_FLAGS, *(f"{number}=..." for number in _NUMBERS), "distributes_over=..."]
            what = f"fact={show(fact)}, value={show(value)}, facts={known}"
            raise KernelError(f"register_kernel: unknown fact or value: name={name}, {what}")
    return result


def _distributions(name: str, value: object) -> list[tuple[str, bool, bool]]:
    """(kernel, in the left operand, in the right operand) for each reduction it distributes over."""
    if isinstance(value, str):
        value = [value]
    over = dict(value) if isinstance(value, Mapping) else value
    if not isinstance(over, dict) and isinstance(over, Iterable):
        over = dict.fromkeys(over, "both")
    if not isinstance(over, dict) or not all(
        isinstance(reduction, str) and side in _SIDES for reduction, side in over.items()
    ):
        wanted = 'a kernel\'s name, a list, or {name: "left" | "right" | "both"}'
        raise KernelError(f"register_kernel: distributes_over takes {wanted}: name={name}, value={show(value)}")
    return [(reduction, *_SIDES[side]) for reduction, side in over.items()]
