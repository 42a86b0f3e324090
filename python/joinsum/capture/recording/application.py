"""An operator where it occurs in an FX graph: its arguments by the names of its schema, and where the user wrote it."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import fx
from torch.fx.traceback import get_current_meta

from joinsum.base.errors import CaptureError
from joinsum.capture.recording.recorder import Recorder
from joinsum.capture.recording.symbolic_numbers import INTEGERS, NUMBERS, SymbolicNumber
from joinsum.capture.recording.values import Value

__all__ = [
    "Application",
    "TensorType",
    "argument_of",
    "arguments_of",
    "current_place",
    "described",
    "forward_node",
    "module_path",
    "operator_name",
    "place_of",
    "refuse",
    "source_line",
]

TensorType = tuple[Sequence[int], torch.dtype]  # shape and dtype

# Dynamo's path of a module: the variable that holds the model, then attributes.
_MODULE = re.compile(r"[LG]\['[^']*'\]\.?(.*)")

_METHOD = "__self__"
_JOINSUM = str(Path(__file__).resolve().parents[2])


@dataclass(frozen=True)
class Application:
    """An operator and its arguments.

    recorder    of the program that is being recorded
    name        as plans write it: `aten::mm`, `aten::sum.dim_IntList`
    arguments   by name; tensors are `Value`s, and arguments that are left out have their defaults. There may be more
                than the operator has, which rules read
    results     shape and dtype of each result; None for a result that is no tensor
    """

    recorder: Recorder
    node: fx.Node
    operator: torch._ops.OpOverload
    name: str
    arguments: dict[str, object]
    results: tuple[TensorType | None, ...]

    def tensors(self) -> Iterator[tuple[str, Value]]:
        """Name and value of each argument that is one tensor."""
        for each in self.operator._schema.arguments:
            value = self.arguments[each.name]
            if isinstance(value, Value):
                yield each.name, value

    def tensor_arguments(self) -> list[str]:
        """Names of the operator's arguments that are one tensor, in the order of its schema.

        Numbers in the place of tensors do not count.
        """
        return [each.name for each in self.operator._schema.arguments if "Tensor" in str(each.type)]

    def all_tensors(self) -> list[Value]:
        """The values of all tensors, also of those in lists."""
        values = [self.arguments[each.name] for each in self.operator._schema.arguments]
        lists = [value if isinstance(value, list) else [value] for value in values]
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
        """An argument that is a tensor, or None."""
        return None if self.arguments[name] is None else self.value(name)

    def number(self, name: str) -> int:
        """An argument that is an integer."""
        value: Any = self.arguments[name]
        assert isinstance(value, INTEGERS), (self.name, name, value)
        number: int = value
        return number

    def scalar(self, name: str) -> float | int | bool:
        """An argument that is a number."""
        value: Any = self.arguments[name]
        assert isinstance(value, NUMBERS), (self.name, name, value)
        number: float = value
        return number

    def numbers(self, name: str) -> list[int]:
        """An argument that is a list of integers or booleans, an integer, or None, which is an empty list."""
        value: Any = self.arguments[name]
        if isinstance(value, INTEGERS):
            return [value]
        assert value is None or isinstance(value, (list, tuple)), (self.name, name, value)
        numbers: list[Any] = [each if isinstance(each, SymbolicNumber) else int(each) for each in value or ()]
        return numbers

    def dim(self, name: str, rank: int) -> int:
        """An argument that is an axis, counted from the front."""
        return self.number(name) % max(rank, 1)

    def dims(self, name: str, rank: int) -> list[int]:
        """An argument that is a list of axes, counted from the front."""
        return [dim % rank for dim in self.numbers(name)] if rank else []

    def with_arguments(self, changed: Mapping[str, object]) -> Application:
        """The same with some other arguments."""
        return replace(self, arguments={**self.arguments, **changed})

    def of(self, operator: torch._ops.OpOverload, arguments: Mapping[str, object], *results: TensorType) -> Application:
        """Another operator in the place of this one; arguments that are left out have their defaults."""
        schema = operator._schema.arguments
        defaults = {each.name: each.default_value if each.has_default_value() else None for each in schema}
        types = tuple((tuple(shape), dtype) for shape, dtype in results)
        return Application(
            self.recorder, self.node, operator, operator_name(operator), {**defaults, **arguments}, types
        )

    def with_complex_tensors(self) -> Application:
        """The same with a tensor without axes in place of each complex number; of the overload that takes tensors."""
        numbers = {name: value for name, value in self.arguments.items() if isinstance(value, complex)}
        packet: Any = self.operator._overloadpacket
        overload = self.operator._overloadname.replace("Scalar", "Tensor")
        operator = getattr(packet, overload) if numbers and overload in packet.overloads() else self.operator
        tensors = {each.name for each in operator._schema.arguments if "Tensor" in str(each.type)}
        if not numbers or not numbers.keys() <= tensors:
            return self
        promoted = functools.reduce(torch.promote_types, [value.dtype for _, value in self.tensors()], torch.bool)
        dtype = torch.result_type(torch.empty((), dtype=promoted), 1j)
        constants = {name: self.recorder.scalar(number, dtype) for name, number in numbers.items()}
        changed = self.with_arguments(constants)
        return replace(changed, operator=operator, name=operator_name(operator))

    @property
    def types(self) -> list[TensorType]:
        """Shape and dtype of each result that is a tensor."""
        return [each for each in self.results if each is not None]

    @property
    def type(self) -> TensorType:
        """Shape and dtype of the first result."""
        if not self.results or self.results[0] is None:
            self.refuse("it has no tensor as result")
        return self.results[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the first result."""
        return tuple(self.type[0])

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the first result."""
        return self.type[1]

    def refuse(self, why: str) -> NoReturn:
        """Raises CaptureError for this operator at this place."""
        shapes = [list(value.shape) for value in self.all_tensors()]
        refuse(self.name, self.node, why, shapes)


def arguments_of(node: fx.Node) -> dict[str, Any]:
    """The arguments of an operator of the dispatcher by their names in the schema; defaults where they are left out."""
    assert isinstance(node.target, torch._ops.OpOverload)
    schema = node.target._schema.arguments
    given = dict(zip((each.name for each in schema), node.args, strict=False))
    return {**{each.name: each.default_value for each in schema}, **given, **node.kwargs}


def argument_of(node: fx.Node, name: str) -> Any:
    """The argument of an operator that has this name, as `arguments_of` gives it; None where there is none."""
    return arguments_of(node).get(name)


def operator_name(operator: torch._ops.OpOverload) -> str:
    """An overload as plans write it.

    >>> operator_name(torch.ops.aten.sum.dim_IntList), operator_name(torch.ops.aten.mm.default)
    ('aten::sum.dim_IntList', 'aten::mm')
    """
    overload = operator._overloadname
    return operator._schema.name + ("" if overload == "default" else f".{overload}")


def is_random(target: object) -> bool:
    """Whether what a node calls is an operator that draws from torch's generator."""
    return torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())


def refuse(name: str, node: fx.Node, why: str, shapes: Sequence[Sequence[int]] = ()) -> NoReturn:
    """Raises CaptureError with the operator, the user's module and line, shapes and the remedies."""
    raise CaptureError(
        f"capture: {why}: {described(name, node, shapes)}; give it a rule with "
        f'joinsum.register_operator("{name}", ...), or run it on every site with replicate=["{name}"]'
    )


def described(name: str, node: fx.Node, shapes: Sequence[Sequence[int]] = ()) -> str:
    """An operator with the shapes of its operands, the user's module and line."""
    module = module_path(node) or module_path(forward_node(node))
    of = f", module={module}" if module else ""
    return f"operator={name}, shapes={[list(shape) for shape in shapes]}{of}, at={source_line(node)}"


def module_path(node: fx.Node) -> str:
    """The user's module in which an FX node was computed, as `named_modules` calls it: `layers.0.attention`. Empty
    where Dynamo does not know it, and for the model itself.

    >>> from torch import fx
    >>> node = fx.Graph().placeholder("x")
    >>> node.meta["nn_module_stack"] = {"1": ("L['self'].layers", object), "2": ("L['self'].layers.0", object)}
    >>> module_path(node)
    'layers.0'
    """
    return _module_in(node.meta)


def _module_in(meta: Mapping[str, Any]) -> str:
    """The same, for an FX node's metadata."""
    stack = meta.get("nn_module_stack") or meta.get("fwd_nn_module_stack") or {}
    paths = [path for path, *_ in stack.values()]
    found = _MODULE.fullmatch(paths[-1]) if paths else None
    path = found[1].replace("['", ".").replace("']", "") if found is not None else ""
    return path.removesuffix(_METHOD).rpartition(f"{_METHOD}.")[2]  # the model is that of a method that Dynamo traces


def forward_node(node: fx.Node) -> fx.Node:
    """The operator of the forward pass, in the same graph, whose gradient an FX node is a part of; else the node."""
    number = node.meta.get("seq_nr") if node.meta.get("autograd_backward") else None
    if number is None:
        return node
    same = (each for each in node.graph.nodes if each.meta.get("seq_nr") == number and each.meta.get("stack_trace"))
    return next((each for each in same if not each.meta.get("autograd_backward")), node)


def source_line(node: fx.Node) -> str:
    """The user's line that an FX node comes from: file, number and text; for a gradient that of the forward operator.

    >>> from torch import fx
    >>> source_line(fx.Graph().placeholder("x"))
    'x (of no known line)'
    """
    node = forward_node(node)
    return _line_in(node.meta) or f"{node.name} (of no known line)"


def current_place() -> str:
    """The user's module and line of the FX node that torch traces again at this moment, as `place_of` has them."""
    return place_of(get_current_meta())


def place_of(meta: Mapping[str, Any]) -> str:
    """The user's module and line in an FX node's metadata, as further values of an error message; empty where they are
    not known.

    >>> place_of({"nn_module_stack": {"1": ("L['self'].layers", object)}})
    ', module=layers'
    """
    module, line = _module_in(meta), _line_in(meta)
    return (f", module={module}" if module else "") + (f", at={line}" if line and _JOINSUM not in line else "")


def _line_in(meta: Mapping[str, Any]) -> str:
    """The user's line in an FX node's metadata."""
    trace = meta.get("stack_trace") or ""
    lines = [line.strip() for line in trace.splitlines() if line.strip()]
    places = [position for position, line in enumerate(lines) if line.startswith("File ")]
    if not places:
        return ""
    last = places[-1]
    text = lines[last + 1] if last + 1 < len(lines) else ""
    return f"{lines[last]}: {text}" if text else lines[last]
