"""Graphs of ATen operators in which elementwise operators that follow one another are one pass over memory."""

from __future__ import annotations

import ast
import functools
import math
import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import torch
from torch import fx

from joinsum import _C
from joinsum.capture.operators.formulas import arguments_in, formula_of, has_formula, reduction_of
from joinsum.capture.recording.application import arguments_of, operator_name

__all__ = ["FUSED", "fuse_elementwise"]

assert _C  # its library defines the operators

FUSED = torch.ops.joinsum.fused.default

_ATEN = torch.ops.aten
_FLOATS = (torch.float32, torch.float64)
_SIGNS: Mapping[type[ast.AST], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
}
_FOLDED = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
# Results that are one number: the place of that argument.
_CONSTANTS = {_ATEN.full.default: 1, _ATEN.full_like.default: 1, _ATEN.scalar_tensor.default: 0}
_ONES_AND_ZEROS = {
    _ATEN.ones_like.default: 1.0,
    _ATEN.zeros_like.default: 0.0,
    _ATEN.ones.default: 1.0,
    _ATEN.zeros.default: 0.0,
}
_SUMS_OF_TWO = (_ATEN.add.Tensor, _ATEN.sub.Tensor)
_MULTIPLES = (_ATEN.mul.Tensor, _ATEN.mul.Scalar, _ATEN.div.Tensor, _ATEN.div.Scalar, _ATEN.neg.default)
_SUMS = (_ATEN.sum.default, _ATEN.sum.dim_IntList)
_MOVES = (
    *(_ATEN.view.default, _ATEN.reshape.default, _ATEN._unsafe_view.default, _ATEN.expand.default, _ATEN.t.default),
    *(_ATEN.transpose.int, _ATEN.permute.default, _ATEN.unsqueeze.default, _ATEN.squeeze.dim, _ATEN.squeeze.dims),
    *(_ATEN.slice.Tensor, _ATEN.select.int, _ATEN.split.Tensor, _ATEN.split_with_sizes.default, _ATEN.unbind.int),
    *(_ATEN.cat.default, _ATEN.stack.default, _ATEN.clone.default),
)
_SHAPES = (_ATEN.expand.default, _ATEN.view.default, _ATEN.reshape.default, _ATEN.unsqueeze.default, _ATEN.t.default)
# What a program has at most: values of a tile stay in the caches of a core.
_MOST_FUNCTIONS = 96
_MOST_OPERANDS = 24
# Two operators on fewer elements than this take as long as one pass for both.
_FEW = 4096
# The most that it may take to compute an element again where it is read, in additions, and what some functions take.
_CHEAP = 12
_ADDITIONS = dict.fromkeys(["unit", "neg", "abs", "sign", "floor", "ceil", "round", "trunc", "max", "min", "where"], 1)
_ADDITIONS |= dict.fromkeys(["sqrt", "reciprocal"], 3)
_ADDITIONS |= dict.fromkeys(["exp", "exp2", "sigmoid", "sin", "cos", "log", "log2", "log10"], 10)


@torch.library.register_fake("joinsum::fused")  # type: ignore[untyped-decorator]
def _of_fakes(operands: Sequence[torch.Tensor], program: str, *, channels_last: bool = False) -> list[torch.Tensor]:
    shape = _broadcast(operands)
    dtype = _dtype_of(operands)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    results = []
    for result in program.partition("->")[2].split():
        kind = result.partition(":")[2]
        own = operands[0].new_empty(() if kind in ("sum", "mean") else shape)
        own = own.to(torch.bool if kind == "bool" else dtype)
        results.append(own.contiguous(memory_format=layout) if own.dim() == 4 else own)
    return results


def fuse_elementwise(graph: fx.Graph, *, divided: bool = False, apart: Collection[str] = ()) -> int:
    """Replaces elementwise operators on the CPU that read one another, with results of one shape, floating-point dtype
    and layout, by `joinsum::fused`, which computes them tile by tile and stores only what others read; gives the number
    of operators that are gone. Losses, and sums and means of all elements, are computed with their operands. What takes
    little is computed again where it is read, not stored between a forward and a backward pass.

    divided   for more sites: sums of all elements, what partial sums may pass through, products that are summed and
              what is larger than its operands stay as they are
    apart     operators that stay as they are, `aten::mul.Tensor`

    >>> import torch
    >>> from torch.fx.experimental.proxy_tensor import make_fx
    >>> graph = make_fx(lambda x, y: torch.tanh(x * y + 1) * x, tracing_mode="fake")(torch.ones(9), torch.ones(9)).graph
    >>> fuse_elementwise(graph)
    4
    >>> next(node.args[1] for node in graph.nodes if node.target is FUSED)
    'mul x0 x1; add t0 1.0; tanh t1; mul t2 x0 -> t3'
    """
    return _Fusion(graph, divided, apart).run()


@dataclass(frozen=True)
class _Member:
    """An elementwise operator.

    shape      of its operands together: that of its result, unless it reduces
    dtype      of its computation; None where all are truth values
    values     the arguments in its formula: nodes and numbers
    reduction  `sum` or `mean` of all elements, or ""
    """

    shape: tuple[int, ...]
    dtype: torch.dtype | None
    channels_last: bool
    formula: ast.expr
    values: Mapping[str, Any]
    reduction: str = ""


@dataclass(eq=False)
class _Group:
    """Operators that are one program, in the graph's order, which runs in the place of the last one.

    copied     those of other groups that it computes again
    elsewhere  its own whose readers compute them again
    """

    members: dict[fx.Node, _Member]
    copied: dict[fx.Node, _Member] = field(default_factory=dict)
    elsewhere: set[fx.Node] = field(default_factory=set)

    @property
    def own(self) -> _Member:
        return next(iter(self.members.values()))

    @property
    def last(self) -> fx.Node:
        return next(reversed(self.members))

    @property
    def dtype(self) -> torch.dtype | None:
        return next((each.dtype for each in self.members.values() if each.dtype is not None), None)

    def fits(self, other: _Group) -> bool:
        one, two = self.own, other.own
        alike = one.shape == two.shape and one.channels_last == two.channels_last
        return alike and (self.dtype is None or other.dtype is None or self.dtype == other.dtype)

    @property
    def outputs(self) -> list[fx.Node]:
        """The results that are stored."""
        read = (node for node in self.members if any(user not in self.members for user in node.users))
        return [node for node in read if node not in self.elsewhere]

    def program(self, outputs: Sequence[fx.Node]) -> _Writer | None:
        """The program of these results; None where it would be too large, or operands do not tell dtype and shape."""
        writer = _Writer({**self.copied, **self.members})
        for node in outputs:
            writer.add_result(node)
        if len(writer.steps) > _MOST_FUNCTIONS or len(writer.operands) > _MOST_OPERANDS:
            return None
        return writer if _tell(writer.operands, self.own.shape, self.dtype) else None


class _Fusion:
    """The groups of a graph."""

    def __init__(self, graph: fx.Graph, divided: bool, apart: Collection[str]) -> None:
        self.graph = graph
        self.places = {node: place for place, node in enumerate(graph.nodes)}
        self.group_of: dict[fx.Node, _Group] = {}
        members = {node: _member(node, divided) for node in self.places}
        planned_apart = _planned_apart(members) if divided else set()
        for node, member in members.items():
            if member is None or node in planned_apart or _named(node, apart):
                continue
            group = self._joined(node, member)
            for each in group.members:
                self.group_of[each] = group
        self.groups = sorted(set(self.group_of.values()), key=lambda each: self.places[each.last])

    def run(self) -> int:
        fused = [group for group in self.groups if self._is_worth_it(group)]
        self._compute_again(set(fused))
        replaced: dict[fx.Node, fx.Node] = {}
        for group in fused:
            self._insert(group, replaced)
        gone = {node for group in fused for node in group.members}
        maybe_unread = {node for group in self.groups for node in group.elsewhere}
        maybe_unread |= {node for node in self.places if node.op == "call_function" and _constant(node) is not None}
        before = len(self.graph.nodes)
        for node in sorted(gone | maybe_unread, key=self.places.__getitem__, reverse=True):
            if node in gone or not node.users:
                self.graph.erase_node(node)
        return before - len(self.graph.nodes)

    def _joined(self, node: fx.Node, member: _Member) -> _Group:
        """The group of a node: of those of its operands the ones that it can join, one after the other, as one."""
        out = _Group({node: member})
        near = {self.group_of[each] for each in node.all_input_nodes if each in self.group_of}
        for group in sorted(near, key=lambda each: -self.places[each.last]):
            together = {**group.members, **out.members}
            if not out.fits(group) or len(together) > _MOST_FUNCTIONS // 2 or len(_read(together)) > _MOST_OPERANDS:
                continue
            reduced = {each for each, member in group.members.items() if member.reduction}
            # Nobody else reads a result before the program runs.
            early = (user for each in together for user in each.users if user not in together)
            if (
                reduced.isdisjoint(_read(out.members))
                and not self._waits(group, node, together)
                and all(self.places[user] > self.places[node] for user in early)
            ):
                out = _Group({each: together[each] for each in sorted(together, key=self.places.__getitem__)})
        return out

    def _waits(self, group: _Group, node: fx.Node, together: Collection[fx.Node]) -> bool:
        """Whether a group's operands would take more memory than its result until an operand of the node is there."""
        last = self.places[group.last]
        later = [each for each in node.all_input_nodes if each not in together and self.places[each] > last]
        if not any(each.op == "call_function" for each in later):
            return False
        dying = [
            each
            for each in _read(group.members)
            if each.op == "call_function" and all(self.places[user] <= last for user in each.users)
        ]
        return sum(map(_bytes, dying)) > _bytes(group.last)

    def _is_worth_it(self, group: _Group) -> bool:
        few = math.prod(group.own.shape) <= _FEW
        return len(group.members) >= (3 if few else 2) and group.program(group.outputs) is not None

    def _compute_again(self, fused: Collection[_Group]) -> None:
        """Decides which results are computed again by the programs that read them."""
        for group in self.groups:
            stored: set[fx.Node] = set()
            for node in group.outputs:
                readers = {self.group_of.get(user) for user in node.users if user not in group.members}
                possible = not group.members[node].reduction and all(each in fused for each in readers)
                copies = {} if not possible else self._copies(group, node, stored)
                rest = _Group(group.members, group.copied, {*group.elsewhere, node})
                if group in fused and rest.outputs and rest.program(rest.outputs) is None:
                    possible = False
                if not possible or not all(_takes(reader, node, copies) for reader in readers if reader is not None):
                    stored.add(node)
                    continue
                for reader in readers:
                    assert reader is not None
                    reader.copied.update(copies)
                group.elsewhere.add(node)

    def _copies(self, group: _Group, node: fx.Node, stored: Collection[fx.Node]) -> dict[fx.Node, _Member]:
        """What computes a result of a group from what is stored."""
        own = {**group.copied, **group.members}
        found: dict[fx.Node, _Member] = {}
        left = [node]
        while left:
            each = left.pop()
            if each in own and each not in stored and each not in found:
                found[each] = own[each]
                left += [value for value in own[each].values.values() if isinstance(value, fx.Node)]
        return found

    def _insert(self, group: _Group, replaced: dict[fx.Node, fx.Node]) -> None:
        """Inserts a group's program; `replaced`: by results of programs what stands in their place, which grows."""
        outputs = group.outputs
        if not outputs:
            return
        writer = group.program(outputs)
        assert writer is not None
        values = [node.meta["val"] for node in outputs]
        with self.graph.inserting_after(group.last):
            operands = [replaced.get(each, each) for each in writer.operands]
            fused = self.graph.call_function(FUSED, (operands, writer.text))
        if group.own.channels_last:
            fused.kwargs = {"channels_last": True}
        fused.meta = {**group.last.meta, "val": values}
        for place, node in reversed(list(enumerate(outputs))):
            with self.graph.inserting_after(fused):
                result = self.graph.call_function(operator.getitem, (fused, place))
            result.meta = dict(node.meta)
            replaced[node] = result
            node.replace_all_uses_with(result, lambda user: user not in group.members)


def _read(members: Mapping[fx.Node, _Member]) -> set[fx.Node]:
    """What operators read of others."""
    values = (value for member in members.values() for value in member.values.values() if isinstance(value, fx.Node))
    return {value for value in values if value not in members}


def _takes(reader: _Group, node: fx.Node, copies: Mapping[fx.Node, _Member]) -> bool:
    """Whether a program may compute a result again from what it reads, and from operands more that are not larger."""
    double = reader.dtype is torch.float64
    if sum(_cost(member.formula, double) for each, member in copies.items() if each not in reader.copied) > _CHEAP:
        return False
    if not all(reader.fits(_Group({each: member})) for each, member in copies.items()):
        return False
    before = reader.program(reader.outputs)
    with_copies = _Group(reader.members, {**reader.copied, **copies}, reader.elsewhere)
    after = with_copies.program(with_copies.outputs)
    if before is None or after is None:
        return False
    more = [each for each in after.operands if each not in before.operands]
    return sum(map(_bytes, more)) <= _bytes(node)


def _bytes(node: fx.Node) -> int:
    value = node.meta["val"]
    return int(math.prod(value.shape) * value.itemsize)  # not nbytes, which fails for symbolic strides


@functools.cache
def _cost(formula: ast.expr, double: bool) -> int:
    """About how many additions a formula takes as long as; exponentials of double precision take longer."""
    cost = 0
    for each in ast.walk(formula):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name):
            own = _ADDITIONS.get(each.func.id, 2 * _CHEAP)
            cost += 2 * own if double and own > 3 else own
        elif isinstance(each, ast.BinOp):
            cost += 3 if isinstance(each.op, ast.Div) else 1
        elif isinstance(each, (ast.Compare, ast.UnaryOp)):
            cost += 1
    return cost


def _named(node: fx.Node, names: Collection[str]) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and operator_name(node.target) in names


def _planned_apart(members: Mapping[fx.Node, _Member | None]) -> set[fx.Node]:
    """Which nodes are better planned by themselves on several sites: what depends on no argument, which is computed
    once; results that are larger than their operands, which need not be stored to be reduced, and what is computed of
    these; products of which only sums are read; and sums of two values that both may be partial sums, with what they
    are multiples of, as these are added before they are reduced.

    members   all nodes of a graph in its order, with what they would be in a program
    """
    fixed: set[fx.Node] = set()
    larger: set[fx.Node] = set()
    partial: set[fx.Node] = set()  # contractions and reductions, sums and multiples of such, and where they move
    products: set[fx.Node] = set()
    sums: set[fx.Node] = set()
    for node, member in members.items():
        operands = node.all_input_nodes
        if node.op in ("get_attr", "call_function") and all(each in fixed for each in operands):
            fixed.add(node)
        elif node.op != "call_function":
            continue
        elif member is None:
            moves = not isinstance(node.target, torch._ops.OpOverload) or node.target in _MOVES
            if not moves or all(each in partial for each in operands):
                partial.add(node)
        elif any(each in larger for each in operands) or all(_shape(each) != member.shape for each in operands):
            larger.add(node)
        elif node.target in _SUMS_OF_TWO and len(operands) == 2 and all(each in partial for each in operands):
            partial.add(node)
            sums.add(node)
        elif node.target is _ATEN.mul.Tensor and all(user.target in _SUMS for user in node.users):
            products.add(node)
        elif _is_multiple(node, partial):
            partial.add(node)
    added = set(sums)
    left = list(sums)
    while left:
        for each in left.pop().all_input_nodes:
            if each in partial and each not in added and (members[each] is not None or each.target in _MOVES):
                added.add(each)
                left.append(each)
    reductions = {node for node, member in members.items() if member is not None and member.reduction}
    return fixed | larger | products | added | reductions


def _is_multiple(node: fx.Node, partial: Collection[fx.Node]) -> bool:
    """Whether a node is an element of `partial` times, or divided by, what is none."""
    if node.target not in _MULTIPLES:
        return False
    found = [each in partial for each in node.args if isinstance(each, fx.Node)]
    return found.count(True) == 1 and (found[0] or node.target is _ATEN.mul.Tensor)


def _shape(node: fx.Node) -> torch.Size:
    return torch.Size(node.meta["val"].shape)


def _member(node: fx.Node, divided: bool) -> _Member | None:
    """The node as a part of a program; None where it cannot be one. `divided`: on several sites, where all values lie
    in the order of their axes."""
    target = node.target
    value: Any = node.meta.get("val")
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload) or not _is_plain(value):
        return None
    name = operator_name(target)
    if value.dtype not in (*_FLOATS, torch.bool) or not has_formula(name):
        return None
    given = arguments_of(node)
    tensors = [each for each in given.values() if isinstance(each, fx.Node)]
    if not tensors or not all(_is_plain(each.meta.get("val")) for each in tensors):
        return None
    dtypes = {each.meta["val"].dtype for each in tensors if each.meta["val"].dim() > 0}
    single = {each.meta["val"].dtype for each in tensors if each.meta["val"].dim() == 0}
    numbers = dtypes - {torch.bool} or single - {torch.bool}
    truth = value.dtype is torch.bool
    if not dtypes <= {*_FLOATS, torch.bool} or not single <= {*_FLOATS, torch.bool} or len(numbers) > 1:
        return None
    dtype = next(iter(numbers), None)
    if not truth and dtype not in (None, value.dtype):
        return None
    shape = _broadcast([each.meta["val"] for each in tensors])
    given["elements"] = math.prod(shape)
    formula = formula_of(name, given, truth=truth, all_truth=not numbers)
    if formula is None:
        return None
    reduction = reduction_of(name, given)
    channels_last = False
    if reduction:
        if not divided and (not shape or any(not each.meta["val"].is_contiguous() for each in tensors)):
            return None
    elif not divided and not value.is_contiguous():
        channels_last = value.dim() == 4 and value.is_contiguous(memory_format=torch.channels_last)
        if not channels_last:
            return None
    values = {each: given[each] for each in arguments_in(formula)}
    if any(not isinstance(each, (fx.Node, int, float)) for each in values.values()):
        return None
    return _Member(shape, dtype if truth else value.dtype, channels_last, formula, values, reduction)


def _is_plain(value: Any) -> TypeGuard[torch.Tensor]:
    """Whether a value is a dense tensor on the CPU, whose shape is known."""
    return (
        isinstance(value, torch.Tensor)
        and value.layout is torch.strided
        and value.device.type == "cpu"
        and all(type(extent) is int for extent in value.shape)
    )


def _constant(node: fx.Node) -> float | None:
    """The number that all elements of a node are, if the graph says it."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dtype not in _FLOATS:
        return None
    if node.target in _CONSTANTS:
        number = node.args[_CONSTANTS[node.target]]
        if not isinstance(number, (int, float)):
            return None
        # Rounded to the dtype of the node, which may be narrower than the program's.
        return float(torch.tensor(number, dtype=value.dtype, device="cpu"))
    if node.target in _SHAPES:
        below: Any = node.args[0]
        return _constant(below)
    target: Any = node.target
    return _ONES_AND_ZEROS.get(target)


def _broadcast(values: Sequence[torch.Tensor]) -> tuple[int, ...]:
    """The shape that tensors broadcast to."""
    shapes = [tuple(value.shape) for value in values]
    rank = max(map(len, shapes))
    aligned = ((1,) * (rank - len(shape)) + shape for shape in shapes)
    return tuple(next((extent for extent in extents if extent != 1), 1) for extents in zip(*aligned, strict=True))


class _Writer:
    """Writes the program of results of members; equal functions of equal values once."""

    def __init__(self, members: Mapping[fx.Node, _Member]) -> None:
        self.operands: list[fx.Node] = []
        self.steps: list[str] = []
        self._members = members
        self._results: list[str] = []
        self._known: dict[str, str] = {}
        self._tokens: dict[fx.Node, str | float] = {}

    @property
    def text(self) -> str:
        return f"{'; '.join(self.steps)} -> {' '.join(self._results)}"

    def add_result(self, node: fx.Node) -> None:
        token = self._token(node)
        if not isinstance(token, str) or token[0] != "t":
            token = self._step("mul", token, 1.0)  # an operand as it is, or a number
        kind = "bool" if node.meta["val"].dtype is torch.bool else self._members[node].reduction
        self._results.append(f"{token}:{kind}" if kind else token)

    def _token(self, value: Any) -> str | float:
        if not isinstance(value, fx.Node):
            return float(value)
        if value in self._tokens:
            return self._tokens[value]
        member = self._members.get(value)
        number = _constant(value)
        if number is not None:
            return number
        if member is not None:
            self._tokens[value] = self._written(member.formula, member.values)
        else:
            self._tokens[value] = f"x{len(self.operands)}"
            self.operands.append(value)
        return self._tokens[value]

    def _written(self, formula: ast.expr, values: Mapping[str, Any]) -> str | float:
        match formula:
            case ast.Name(id="inf"):
                return float("inf")
            case ast.Name(id=name):
                return self._token(values[name])
            case ast.Constant(value=int() | float() as number):
                return float(number)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                value = self._written(operand, values)
                return -value if isinstance(value, float) else self._step("neg", value)
            case ast.BinOp(left=left, op=sign, right=right):
                a, b = self._written(left, values), self._written(right, values)
                if isinstance(sign, (ast.Mult, ast.Div)) and b == 1:
                    return a
                if isinstance(a, float) and isinstance(b, float) and type(sign) in _FOLDED:
                    return float(_FOLDED[type(sign)](a, b))
                return self._step(_SIGNS[type(sign)], a, b)
            case ast.Compare(left=left, ops=[sign], comparators=[right]):
                return self._step(_SIGNS[type(sign)], self._written(left, values), self._written(right, values))
            case ast.Call(func=ast.Name(id=name), args=arguments):
                return self._step(name, *(self._written(each, values) for each in arguments))
        raise AssertionError(ast.dump(formula))

    def _step(self, name: str, *arguments: str | float) -> str:
        text = " ".join([name, *(each if isinstance(each, str) else repr(each) for each in arguments)])
        if text not in self._known:
            self._known[text] = f"t{len(self.steps)}"
            self.steps.append(text)
        return self._known[text]


def _dtype_of(operands: Sequence[torch.Tensor]) -> torch.dtype | None:
    """The dtype of a program's computation, as operands tell it; None where all are truth values."""
    with_axes = [value.dtype for value in operands if value.dim() > 0 and value.dtype is not torch.bool]
    found = with_axes or [value.dtype for value in operands if value.dtype is not torch.bool]
    return found[0] if found else None


def _tell(operands: Sequence[fx.Node], shape: tuple[int, ...], dtype: torch.dtype | None) -> bool:
    """Whether operands tell a program's dtype and shape."""
    values = [each.meta["val"] for each in operands]
    return dtype is not None and _dtype_of(values) is dtype and _broadcast(values) == shape
