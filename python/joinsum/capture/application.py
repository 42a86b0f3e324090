"""An operator where it occurs in an FX graph: its arguments by the names of its schema, and where the user wrote it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

import torch
from torch import fx

from joinsum.capture.recorder import Value
from joinsum.errors import CaptureError

__all__ = ["Application", "operator_name", "refuse", "source_line"]


@dataclass(frozen=True)
class Application:
    """An operator and its arguments.

    name        as plans write it: `aten::mm`, `aten::sum.dim_IntList`
    arguments   by name; tensors are `Value`s, and what is left out has its default
    results     shape and dtype of each result; None where it has none
    """

    node: fx.Node
    operator: torch._ops.OpOverload
    name: str
    arguments: dict[str, object]
    results: tuple[tuple[tuple[int, ...], torch.dtype] | None, ...]

    def tensors(self) -> Iterator[tuple[str, Value]]:
        """Name and value of each argument that is one tensor."""
        for name, value in self.arguments.items():
            if isinstance(value, Value):
                yield name, value

    def met(self) -> list[Value]:
        """All tensors, also those in lists."""
        lists = [value if isinstance(value, list) else [value] for value in self.arguments.values()]
        return [value for each in lists for value in each if isinstance(value, Value)]

    def value(self, name: str) -> Value:
        """An argument that is a tensor."""
        value = self.arguments[name]
        if not isinstance(value, Value):
            self.refuse(f"argument {name} is no tensor")
        return value

    def values(self, name: str) -> list[Value]:
        """An argument that is a list of tensors."""
        values = self.arguments[name]
        if not isinstance(values, list) or not all(isinstance(value, Value) for value in values):
            self.refuse(f"argument {name} is no list of tensors")
        return values

    def optional(self, name: str) -> Value | None:
        """An argument that is a tensor or left out."""
        return None if self.arguments[name] is None else self.value(name)

    def number(self, name: str) -> int:
        """An argument that is an integer."""
        value = self.arguments[name]
        assert isinstance(value, int), (self.name, name, value)
        return value

    def scalar(self, name: str) -> float | int | bool:
        """An argument that is a number."""
        value = self.arguments[name]
        assert isinstance(value, (int, float, bool)), (self.name, name, value)
        return value

    def numbers(self, name: str) -> list[int]:
        """An argument that is a list of integers; none where it is left out."""
        value = self.arguments[name]
        if isinstance(value, int):
            return [value]
        assert value is None or isinstance(value, (list, tuple)), (self.name, name, value)
        return [int(each) for each in value or ()]

    def dim(self, name: str, rank: int) -> int:
        """An argument that is an axis, counted from the front."""
        return self.number(name) % max(rank, 1)

    def dims(self, name: str, rank: int) -> list[int]:
        """An argument that is a list of axes, counted from the front."""
        return [dim % rank for dim in self.numbers(name)] if rank else []

    def with_arguments(self, changed: Mapping[str, object]) -> Application:
        """The same with some other arguments."""
        return replace(self, arguments={**self.arguments, **changed})

    def of(
        self,
        operator: torch._ops.OpOverload,
        arguments: Mapping[str, object],
        results: Sequence[tuple[Sequence[int], torch.dtype]],
    ) -> Application:
        """Another operator at the same place; arguments that are left out have their defaults."""
        schema = operator._schema.arguments
        given = {each.name: each.default_value if each.has_default_value() else None for each in schema}
        types = tuple((tuple(shape), dtype) for shape, dtype in results)
        return Application(self.node, operator, operator_name(operator), {**given, **arguments}, types)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the first result."""
        return self._first()[0]

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the first result."""
        return self._first()[1]

    def _first(self) -> tuple[tuple[int, ...], torch.dtype]:
        if not self.results or self.results[0] is None:
            self.refuse("it has no tensor as result")
        return self.results[0]

    def refuse(self, why: str) -> NoReturn:
        """Raises CaptureError for this operator at this place."""
        shapes = [list(value.shape) for value in self.met()]
        refuse(self.name, self.node, why, shapes)


def operator_name(operator: torch._ops.OpOverload) -> str:
    """An overload as plans write it.

    >>> operator_name(torch.ops.aten.sum.dim_IntList), operator_name(torch.ops.aten.mm.default)
    ('aten::sum.dim_IntList', 'aten::mm')
    """
    overload = operator._overloadname
    return operator._schema.name + ("" if overload == "default" else f".{overload}")


def refuse(name: str, node: fx.Node, why: str, shapes: Sequence[Sequence[int]] = ()) -> NoReturn:
    """Raises CaptureError with the operator, the user's line, shapes and the remedies."""
    raise CaptureError(
        f"capture: {why}: operator={name}, shapes={[list(shape) for shape in shapes]}, at={source_line(node)}; "
        f'give it a rule with joinsum.register_operator("{name}", ...), or run it on every site with '
        f'replicate=["{name}"]'
    )


def source_line(node: fx.Node) -> str:
    """The user's line that an FX node comes from: file, number and text.

    >>> from torch import fx
    >>> source_line(fx.Graph().placeholder("x"))
    'x (of no known line)'
    """
    trace = node.meta.get("stack_trace") or ""
    lines = [line.strip() for line in trace.splitlines() if line.strip()]
    places = [position for position, line in enumerate(lines) if line.startswith("File ")]
    if not places:
        return f"{node.name} (of no known line)"
    last = places[-1]
    text = lines[last + 1] if last + 1 < len(lines) else ""
    return f"{lines[last]}: {text}" if text else lines[last]
