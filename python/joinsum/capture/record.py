"""From an FX graph of ATen operators to a program of einsums and calls."""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import unset_fake_temporarily

from joinsum.capture.application import Application, operator_name, refuse, source_line
from joinsum.capture.axes import split
from joinsum.capture.operators.table import rule_of
from joinsum.capture.operators.whole import whole
from joinsum.capture.recorded import Recorded
from joinsum.capture.recorder import InputDraft, Recorder, Value
from joinsum.capture.resolve import resolve
from joinsum.errors import CaptureError, PlanError

__all__ = ["record"]

# Results up to this many elements that depend on no input are computed while recording.
_FOLDED = 1 << 16

# Operators whose result is not told by their arguments.
_NOT_FOLDED = ("rand", "dropout", "bernoulli", "multinomial", "normal", "copy_", "empty")


def record(
    gm: fx.GraphModule,
    names: Sequence[str] | None = None,
    replicate: Collection[str] = (),
    axes: Mapping[int, Sequence[Sequence[int]]] | None = None,
    ties: Mapping[int, int] | None = None,
) -> Recorded:
    """The program of an ATen graph, as AOTAutograd and make_fx give it, with fake tensors as its metadata.

    names       of the placeholders, in their order; else those of the graph
    replicate   operators without a rule, `aten::...`, that run whole on every site
    axes        for positions of placeholders the factors of each axis, as the sites already have them
    ties        for positions of results the placeholders that they become; both then have equal factors

    An output that is `None` or no tensor stays out; `copy_` into a placeholder is an output tied to it. Numbers among
    the placeholders, also symbolic ones, are those that the graph was traced with.

    Raises CaptureError for an operator without a rule, with the user's line and the remedies.

    >>> import torch
    >>> from torch.fx.experimental.proxy_tensor import make_fx
    >>> x, w = torch.rand(4, 3), torch.rand(3, 2)
    >>> graph = make_fx(lambda x, w: torch.tanh(x @ w), tracing_mode="fake")(x, w)
    >>> program = record(graph, ["x", "w"])
    >>> print(program)
    0: input x [4, 3]
    1: input w [3, 2]
    2: einsum ab,bc->ac; mul; add (0, 1)
    3: 0; aten::tanh; ab -> ab:f32; (%0{a,b}) -> {a,b}; flops=8 ab (2)
    output output.0 = 3
    >>> torch.allclose(program.evaluate([x, w])[0], torch.tanh(x @ w))
    True
    """
    # A compiler of Dynamo's is called where tensors are fake; constants are real.
    with unset_fake_temporarily(), torch.no_grad():
        return _Tracer(gm, names, replicate, axes or {}, ties or {}).run()


# Operators that take or give tensors without elements beside others.
_OF_NOTHING = ("aten::cat", "aten::slice_backward", "aten::_native_batch", "aten::native_batch")


class _Tracer:
    def __init__(
        self,
        gm: fx.GraphModule,
        names: Sequence[str] | None,
        replicate: Collection[str],
        axes: Mapping[int, Sequence[Sequence[int]]],
        ties: Mapping[int, int],
    ) -> None:
        self._axes = axes
        self._ties = ties
        self._inputs: dict[int, Value] = {}
        self._gm = gm
        self._names = names
        self._replicate = frozenset(replicate)
        self._recorder = Recorder()
        self._made: dict[fx.Node, Any] = {}
        self._placeholders: dict[fx.Node, str] = {}
        self._outputs: list[tuple[str, Value, str | None]] = []

    def run(self) -> Recorded:
        position = 0
        for node in self._gm.graph.nodes:
            if node.op == "placeholder":
                self._placeholder(node, position)
                position += 1
            elif node.op == "get_attr":
                self._made[node] = self._attribute(node)
            elif node.op == "call_function":
                try:
                    self._made[node] = self._called(node)
                except _DependsOnData:
                    raise CaptureError(
                        f"capture: a shape or number depends on data: operator={_name(node)}, at={source_line(node)}; "
                        "take torch.where, or sums over a mask, or leave it out of the captured code"
                    ) from None
            elif node.op == "output":
                self._output(node)
            else:
                refuse(str(node.target), node, f"a graph of ATen operators has no {node.op}")
        return resolve(self._recorder, self._outputs)

    # --- nodes ----------------------------------------------------------------------------------------------------

    def _placeholder(self, node: fx.Node, position: int) -> None:
        name = self._names[position] if self._names is not None else node.name
        self._placeholders[node] = name
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            made = self._recorder.input(name, position, _shape(value), value.dtype)
            for axis, factors in zip(made.axes, self._axes.get(position, ()), strict=False):
                split(axis, factors)
            self._made[node] = self._inputs[position] = made
        elif isinstance(value, (int, float, torch.SymInt, torch.SymFloat, torch.SymBool)):
            self._made[node] = _number(value)
        elif value is not None:
            refuse(name, node, f"a placeholder is a tensor or a number: got={type(value).__name__}")

    def _attribute(self, node: fx.Node) -> Value:
        found: Any = self._gm
        for part in str(node.target).split("."):
            found = getattr(found, part)
        if not isinstance(found, torch.Tensor):
            refuse(str(node.target), node, f"an attribute is a tensor: got={type(found).__name__}")
        return self._recorder.constant(found)

    def _called(self, node: fx.Node) -> Any:
        if node.target is operator.getitem:
            values, index = node.args
            return self._read(values)[index]
        value = node.meta.get("val")
        if not isinstance(node.target, torch._ops.OpOverload):
            if isinstance(value, (int, float, torch.SymInt, torch.SymFloat, torch.SymBool)):
                return _number(value)
            refuse(str(node.target), node, "it is no ATen operator")
        if node.target.namespace == "aten" and node.target._opname == "copy_":
            return self._copied(node)
        if isinstance(value, (int, float, torch.SymInt, torch.SymFloat, torch.SymBool)):
            return _number(value)
        application = self._application(node, node.target)
        folded = self._folded(application)
        if folded is not None:
            return folded
        made = self._applied(application)
        return made if isinstance(value, (tuple, list)) else made[0]

    def _application(self, node: fx.Node, target: torch._ops.OpOverload) -> Application:
        schema = target._schema.arguments
        arguments = {each.name: each.default_value if each.has_default_value() else None for each in schema}
        positional = [each.name for each in schema if not each.kwarg_only]
        arguments |= zip(positional, map(self._read, node.args), strict=False)
        arguments |= {name: self._read(value) for name, value in node.kwargs.items()}
        value = node.meta.get("val")
        results = tuple(_type(each) for each in (value if isinstance(value, (tuple, list)) else [value]))
        return Application(node, target, operator_name(target), arguments, results)

    def _applied(self, application: Application) -> list[Value | None]:
        shapes = [value.shape for value in application.met()]
        results = [each for each in application.results if each is not None]
        if results and all(0 in shape for shape, _ in results) and not application.operator._schema.is_mutable:
            return [None if each is None else self._nothing(*each) for each in application.results]
        shapes += [shape for shape, _ in results]
        if any(0 in shape for shape in shapes) and not application.name.startswith(_OF_NOTHING):
            raise CaptureError(
                f"capture: a tensor has no elements: operator={application.name}, shapes={[list(x) for x in shapes]}, "
                f"at={source_line(application.node)}; give batches of at least one element, or leave the operator out "
                "of the captured code"
            )
        rule = rule_of(application.name)
        if rule is None and application.name in self._replicate:
            rule = whole
        if rule is None:
            application.refuse("there is no rule for this operator")
        made = rule(self._recorder, application)
        for value, expected in zip(made, application.results, strict=True):
            if value is not None and expected is not None and (value.shape, value.dtype) != expected:
                application.refuse(f"its rule makes another tensor: {value.shape} {value.dtype}, expected={expected}")
        return made

    def _nothing(self, shape: Sequence[int], dtype: torch.dtype) -> Value:
        """A tensor without elements: whatever makes it, it is an element that repeats zero times."""
        return self._recorder.filled(shape, torch.zeros((), dtype=dtype))

    def _folded(self, application: Application) -> Any:
        """What the operator gives where that depends on no input and is small; None otherwise."""
        operator = application.operator
        if operator._schema.is_mutable or any(word in application.name for word in _NOT_FOLDED):
            return None
        elements = [_elements(each[0]) for each in application.results if each is not None]
        if not elements or max(elements) > _FOLDED:
            return None
        constant = True

        def real(value: object) -> object:
            nonlocal constant
            if isinstance(value, Value):
                constant = constant and value.constant is not None
                return value.constant
            return [real(each) for each in value] if isinstance(value, (list, tuple)) else value

        given = {name: real(value) for name, value in application.arguments.items()}
        if not constant:
            return None
        made = _run(operator, given)
        if isinstance(made, torch.Tensor):
            return self._recorder.constant(made)
        return [self._recorder.constant(each) for each in made]

    def _copied(self, node: fx.Node) -> Value:
        """`copy_` of a value into an input."""
        target, source = node.args[0], self._read(node.args[1])
        if not isinstance(target, fx.Node) or target not in self._placeholders:
            refuse("aten::copy_", node, "only inputs are written to", [source.shape])
        assert isinstance(source, Value)
        into = self._made[target]
        if (source.shape, source.dtype) != (into.shape, into.dtype):
            refuse("aten::copy_", node, "an input keeps its shape and dtype", [into.shape, source.shape])
        name = self._placeholders[target]
        self._outputs.append((f"{name}.new", source, name))
        self._made[target] = source
        return source

    def _output(self, node: fx.Node) -> None:
        values = node.args[0] if isinstance(node.args[0], (tuple, list)) else [node.args[0]]
        for number, value in enumerate(map(self._read, values)):
            if isinstance(value, Value):
                into = self._ties.get(number)
                if into is None:
                    self._outputs.append((f"output.{number}", value, None))
                    continue
                value = self._recorder.like(value, self._inputs[into])
                place = self._inputs[into].source.draft
                assert isinstance(place, InputDraft)
                self._outputs.append((f"output.{number}", value, place.name))

    def _read(self, argument: Any) -> Any:
        """An argument with values in the place of nodes."""
        if isinstance(argument, fx.Node):
            return self._made.get(argument)
        if isinstance(argument, (list, tuple)):
            return [self._read(each) for each in argument]
        return _number(argument) if isinstance(argument, (torch.SymInt, torch.SymFloat, torch.SymBool)) else argument


def _run(operator: torch._ops.OpOverload, arguments: Mapping[str, Any]) -> Any:
    schema = operator._schema.arguments
    positional = [arguments[each.name] for each in schema if not each.kwarg_only]
    return operator(*positional, **{each.name: arguments[each.name] for each in schema if each.kwarg_only})


class _DependsOnData(PlanError):
    """A symbolic number that has no value in this trace."""


def _name(node: fx.Node) -> str:
    return operator_name(node.target) if isinstance(node.target, torch._ops.OpOverload) else str(node.target)


def _number(value: Any) -> int | float | bool:
    """A number, or the one that stands for a symbolic number in this trace."""
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        hint = value.node.hint
        if hint is None:
            raise _DependsOnData(f"capture: a number depends on data: number={value}")
        return hint  # type: ignore[no-any-return]
    return value  # type: ignore[no-any-return]


def _shape(tensor: torch.Tensor) -> tuple[int, ...]:
    return tuple(int(_number(extent)) for extent in tensor.shape)


def _type(value: object) -> tuple[tuple[int, ...], torch.dtype] | None:
    return (_shape(value), value.dtype) if isinstance(value, torch.Tensor) else None


def _elements(shape: Sequence[int]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count
