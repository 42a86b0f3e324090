"""From an FX graph of ATen operators to a program of einsums and calls."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import unset_fake_temporarily

from joinsum.base.errors import CaptureError, PlanError
from joinsum.capture.decompositions.cross_entropy_nodes import use_cross_entropies
from joinsum.capture.decompositions.random_nodes import with_random_operators
from joinsum.capture.fusion import fuse_elementwise
from joinsum.capture.missing_rules import refuse_missing_rules
from joinsum.capture.operators.table import random_rule_of, rule_of, traits_of
from joinsum.capture.recording.application import (
    Application,
    is_random,
    module_path,
    operator_name,
    refuse,
    source_line,
)
from joinsum.capture.recording.axes import Axis, extent_of, split
from joinsum.capture.recording.recorded import Recorded
from joinsum.capture.recording.recorder import SEED, Recorder
from joinsum.capture.recording.resolve import Draft, OutputDraft, resolve
from joinsum.capture.recording.symbolic_numbers import NUMBERS, SymbolicNumber, SymbolicNumbers, plain, shape_of
from joinsum.capture.recording.template import Template, template_of
from joinsum.capture.recording.values import InputDraft, Recipe, Value, computed
from joinsum.capture.recording.vertices import with_factors_of
from joinsum.capture.rules.row import Results
from joinsum.capture.rules.undivided import undivided

__all__ = ["record", "record_with_template"]

# Results up to this many elements that depend on no input are computed while recording.
_LARGEST_FOLDED = 1 << 16
_NUMBERS = (*NUMBERS, torch.SymInt, torch.SymFloat, torch.SymBool)


def record(
    gm: fx.GraphModule,
    names: Sequence[str] | None = None,
    replicate: Collection[str] = (),
    axes: Mapping[int, Sequence[Sequence[int]]] | None = None,
    ties: Mapping[int, int] | None = None,
) -> Recorded:
    """The program of an ATen graph that AOTAutograd or make_fx traced, with fake tensors as metadata of its nodes.

    names       of the placeholders, in their order; by default those in the graph
    replicate   operators without a rule, `aten::...`, that every site runs on unsharded tensors
    axes        by position of the placeholder, the factors of each axis that the tensor's stored layout has
    ties        by position of the result, the position of the placeholder that it overwrites; both get equal factors

    Results that are no tensors are not outputs of the program; `copy_` into a placeholder is an output that is tied to
    it. Numbers among the placeholders, also symbolic ones, have the values of the trace.

    Raises CaptureError for an operator without a rule, with the user's line and the remedies.

    >>> import torch
    >>> from joinsum.capture.interpret import interpret
    >>> from torch.fx.experimental.proxy_tensor import make_fx
    >>> x, w = torch.rand(4, 3), torch.rand(3, 2)
    >>> graph = make_fx(lambda x, w: torch.tanh(x @ w), tracing_mode="fake")(x, w)
    >>> program = record(graph, ["x", "w"])
    >>> print(program.graph())
    einsum
    input x: f32[4,3]
    input w: f32[3,2]
    t0 = einsum[ab,bc->ac; mul; add](x, w): f32[4,2]
    t1 = call[0; aten::tanh; ab -> ab:f32; (%0{a,b}) -> {a,b}; flops=8.0 ab](t0): f32[4,2]
    output output.0 = t1
    <BLANKLINE>
    >>> torch.allclose(interpret(program, [x, w])[0], torch.tanh(x @ w))
    True
    """
    return record_with_template(gm, names, replicate, axes, ties, None)[0]


def record_with_template(
    gm: fx.GraphModule,
    names: Sequence[str] | None,
    replicate: Collection[str],
    axes: Mapping[int, Sequence[Sequence[int]]] | None,
    ties: Mapping[int, int] | None,
    numbers: SymbolicNumbers | None,
    sparse: Mapping[str, int] | None = None,
    fuse: bool = False,
) -> tuple[Recorded, Template | None]:
    """The program of a graph in which some numbers are symbolic, and its template, if there is one. `fuse`: elementwise
    operators that follow one another become one."""
    # Dynamo calls its compiler under a fake tensor mode; constants of the program are real tensors.
    with unset_fake_temporarily(), torch.no_grad():
        return _Tracer(gm, names, replicate, axes or {}, ties or {}, numbers, sparse or {}, fuse).run()


@dataclass
class _Tracer:
    gm: fx.GraphModule
    names: Sequence[str] | None
    replicate: Collection[str]
    axes: Mapping[int, Sequence[Sequence[int]]]
    ties: Mapping[int, int]
    numbers: SymbolicNumbers | None
    sparse: Mapping[str, int]  # entries of sparse inputs, by name
    fuse: bool
    recorder: Recorder = field(default_factory=Recorder)
    inputs: dict[int, Value] = field(default_factory=dict)  # by position of the placeholder
    values: dict[fx.Node, Any] = field(default_factory=dict)  # results of nodes: values, numbers, and lists of these
    placeholders: dict[fx.Node, str] = field(default_factory=dict)
    outputs: list[OutputDraft] = field(default_factory=list)
    modules: dict[Draft, str] = field(default_factory=dict)  # the user's module of each vertex

    def run(self) -> tuple[Recorded, Template | None]:
        position = 0
        graph, seed = with_random_operators(self.gm.graph, random_rule_of)
        use_cross_entropies(graph)
        if self.fuse:
            fuse_elementwise(graph, divided=True, apart=self.replicate)
        for node in graph.nodes:
            if seed is not None and node is seed:
                self.values[node] = self.recorder.input(SEED, None, (), torch.int64)
            elif node.op == "placeholder":
                self._placeholder(node, position)
                position += 1
            elif node.op == "get_attr":
                self.values[node] = self._attribute(node)
            elif node.op == "call_function":
                try:
                    self.values[node] = self._called(node)
                except _DependsOnData:
                    raise CaptureError(
                        f"capture: a shape or number depends on data: operator={_name(node)}, at={source_line(node)}; "
                        "take torch.where, or sums over a mask, or leave it out of the captured code"
                    ) from None
            elif node.op == "output":
                self._output(node)
            else:
                refuse(str(node.target), node, f"a graph of ATen operators has no {node.op}")
        recorded = resolve(self.recorder, self.outputs, self.modules)
        if self.numbers is None:
            return recorded, None
        again = functools.partial(resolve, self.recorder, self.outputs, self.modules)
        return recorded, template_of(self.recorder, self.numbers, recorded, again)

    # --- nodes ----------------------------------------------------------------------------------------------------

    def _placeholder(self, node: fx.Node, position: int) -> None:
        name = self.names[position] if self.names is not None else node.name
        self.placeholders[node] = name
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            input = self.recorder.input(name, position, _shape(value), value.dtype, self.sparse.get(name))
            for axis, factors in zip(input.axes, self.axes.get(position, ()), strict=False):
                split(axis, self._factors(axis, factors))
            self.values[node] = self.inputs[position] = input
        elif isinstance(value, _NUMBERS):
            self.values[node] = _number(value)
        elif value is not None:
            refuse(name, node, f"a placeholder is a tensor or a number: got={type(value).__name__}")

    def _factors(self, axis: Axis, factors: Sequence[int]) -> Sequence[int]:
        """The factors of an axis. Those of one that depends on sizes are taken for the sizes that they are equal to; if
        there is one that is not, it is the rest of the axis."""
        extent: Any = extent_of(axis)
        if self.numbers is None or not isinstance(extent, SymbolicNumber):
            return factors
        sizes = list(map(self.numbers.size_of, factors))
        others = [place for place, size in enumerate(sizes) if not isinstance(size, SymbolicNumber)]
        if len(others) == 1:
            sizes[others[0]] = extent // math.prod(size for place, size in enumerate(sizes) if place != others[0])
        return sizes

    def _attribute(self, node: fx.Node) -> Value:
        found: Any = self.gm
        for part in str(node.target).split("."):
            found = getattr(found, part)
        if not isinstance(found, torch.Tensor):
            refuse(str(node.target), node, f"an attribute is a tensor: got={type(found).__name__}")
        return self.recorder.constant(found)

    def _called(self, node: fx.Node) -> Any:
        if node.target is operator.getitem:
            values, index = node.args
            return self._read(values)[index]
        value = node.meta.get("val")
        if not isinstance(node.target, torch._ops.OpOverload):
            if isinstance(value, _NUMBERS):
                return _number(value)
            refuse(str(node.target), node, "it is no ATen operator")
        if node.target.namespace == "aten" and node.target._opname == "copy_":
            return self._copied(node)
        if isinstance(value, _NUMBERS):
            return _number(value)
        application = self._application(node, node.target).with_complex_tensors()
        folded = self._folded(application)
        if folded is not None:
            return folded
        results = self._applied(application)
        self._note_module(node, results)
        return results if isinstance(value, (tuple, list)) else results[0]

    def _note_module(self, node: fx.Node, made: Iterable[Value | None]) -> None:
        """Notes the user's module for all vertices that are new."""
        path = module_path(node)
        drafts = [value.producer.draft for value in made if value is not None]
        while drafts:
            draft = drafts.pop()
            if draft not in self.modules and not isinstance(draft, InputDraft):
                self.modules[draft] = path
                drafts += [source.draft for source in draft.inputs]

    def _application(self, node: fx.Node, target: torch._ops.OpOverload) -> Application:
        schema = target._schema.arguments
        arguments = {each.name: each.default_value if each.has_default_value() else None for each in schema}
        positional = [each.name for each in schema if not each.kwarg_only]
        arguments |= zip(positional, map(self._read, node.args), strict=False)
        arguments |= {name: self._read(value) for name, value in node.kwargs.items()}
        value = node.meta.get("val")
        results = tuple(_type(each) for each in (value if isinstance(value, (tuple, list)) else [value]))
        return Application(self.recorder, node, target, operator_name(target), arguments, results)

    def _applied(self, application: Application) -> Results:
        shapes: list[Sequence[int]] = [value.shape for value in application.all_tensors()]
        results = [each for each in application.results if each is not None]
        if results and all(0 in shape for shape, _ in results) and not application.operator._schema.is_mutable:
            return [None if each is None else self._without_elements(*each) for each in application.results]
        shapes += [shape for shape, _ in results]
        if any(0 in shape for shape in shapes) and not traits_of(application.name).without_elements:
            raise CaptureError(
                f"capture: a tensor has no elements: operator={application.name}, shapes={[list(x) for x in shapes]}, "
                f"at={source_line(application.node)}; give batches of at least one element, or leave the operator out "
                "of the captured code"
            )
        rule = rule_of(application.name)
        if rule is None and application.name in self.replicate and not is_random(application.operator):
            rule = undivided
        if rule is None:
            refuse_missing_rules(application.node.graph.nodes, self.replicate)
            application.refuse("there is no rule for this operator")
        values = rule(application)
        for value, expected in zip(values, application.results, strict=True):
            if value is not None and expected is not None and (value.shape, value.dtype) != expected:
                application.refuse(f"its rule gives another tensor: {value.shape} {value.dtype}, expected={expected}")
        return values

    def _without_elements(self, shape: Sequence[int], dtype: torch.dtype) -> Value:
        """A tensor without elements: an element that repeats zero times, whichever operator gives it."""
        return self.recorder.filled(shape, torch.zeros((), dtype=dtype))

    def _folded(self, application: Application) -> Any:
        """The operator's result if it is small and depends on no input; else None."""
        operator = application.operator
        if operator._schema.is_mutable or is_random(operator) or not traits_of(application.name).folded:
            return None
        elements = [math.prod(shape) for shape, _ in application.types]
        constant = all(value.constant is not None for value in application.all_tensors())
        if not constant or not elements or max(elements) > _LARGEST_FOLDED:
            return None
        arguments, shapes = application.arguments, [shape for shape, _ in application.types]
        result = _run(operator, {name: _constants(value) for name, value in arguments.items()})

        def recipe(place: int | None) -> Recipe | None:
            if not _depends_on_sizes([shapes, *arguments.values()]):
                return None

            def run(numbers: Sequence[Any]) -> torch.Tensor:
                made = _run(operator, {name: computed(value, numbers) for name, value in arguments.items()})
                one: torch.Tensor = made if place is None else made[place]
                return one

            return run

        if isinstance(result, torch.Tensor):
            return self.recorder.constant(result, shapes[0], recipe(None))
        return [self.recorder.constant(each, shapes[i], recipe(i)) for i, each in enumerate(result)]

    def _copied(self, node: fx.Node) -> Value:
        """`copy_` of a value into an input."""
        target, source = node.args[0], self._read(node.args[1])
        if not isinstance(target, fx.Node) or target not in self.placeholders:
            refuse("aten::copy_", node, "only inputs are written to", [source.shape])
        assert isinstance(source, Value)
        into = self.values[target]
        if (source.shape, source.dtype) != (into.shape, into.dtype):
            refuse(
                "aten::copy_",
                node,
                "a value of another shape or dtype is written into an input",
                [into.shape, source.shape],
            )
        name = self.placeholders[target]
        self.outputs.append(OutputDraft(f"{name}.new", source, name))
        self.values[target] = source
        return source

    def _output(self, node: fx.Node) -> None:
        values = node.args[0] if isinstance(node.args[0], (tuple, list)) else [node.args[0]]
        for number, value in enumerate(map(self._read, values)):
            if isinstance(value, Value):
                into = self.ties.get(number)
                if into is None:
                    self.outputs.append(OutputDraft(f"output.{number}", value, None, number))
                    continue
                value = with_factors_of(self.inputs[into], value)
                draft = self.inputs[into].producer.draft
                assert isinstance(draft, InputDraft)
                self.outputs.append(OutputDraft(f"output.{number}", value, draft.name, number))

    def _read(self, argument: Any) -> Any:
        """An argument in which values replace nodes, and numbers symbolic ones."""
        if isinstance(argument, fx.Node):
            return self.values.get(argument)
        if isinstance(argument, (list, tuple)):
            return [self._read(each) for each in argument]
        return _number(argument)


def _run(operator: torch._ops.OpOverload, arguments: Mapping[str, Any]) -> Any:
    schema = operator._schema.arguments
    positional = [arguments[each.name] for each in schema if not each.kwarg_only]
    return operator(*positional, **{each.name: arguments[each.name] for each in schema if each.kwarg_only})


class _DependsOnData(PlanError):
    """A symbolic number that has no value in this trace."""


def _name(node: fx.Node) -> str:
    return operator_name(node.target) if isinstance(node.target, torch._ops.OpOverload) else str(node.target)


def _number(value: Any) -> Any:
    """The number that a symbolic one has in this trace; any other value itself."""
    if not isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return value
    if value.node.hint is None:
        raise _DependsOnData(f"capture: a number depends on data: number={value}")
    return value.node.hint


def _shape(tensor: torch.Tensor) -> tuple[int, ...]:
    return tuple(_number(extent) for extent in shape_of(tensor))


def _type(value: object) -> tuple[tuple[int, ...], torch.dtype] | None:
    return (_shape(value), value.dtype) if isinstance(value, torch.Tensor) else None


def _constants(value: object) -> object:
    """An argument in which tensors replace values."""
    if isinstance(value, Value):
        return value.constant
    return [_constants(each) for each in value] if isinstance(value, (list, tuple)) else plain(value)


def _depends_on_sizes(value: object) -> bool:
    """Whether an argument does."""
    if isinstance(value, (list, tuple)):
        return any(map(_depends_on_sizes, value))
    return isinstance(value, SymbolicNumber) or (isinstance(value, Value) and value.recipe is not None)
