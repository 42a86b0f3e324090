"""torch.einsum on all sites."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from joinsum import _C
from joinsum.arguments import check_array, integer, show
from joinsum.context import Context, context
from joinsum.contraction_order import paths_of
from joinsum.dtypes import dtype_name, torch_dtype
from joinsum.einsum_operations import ARGUMENTS, VertexText, folded_labels, make_vertex
from joinsum.errors import PlanError
from joinsum.plan import TraPlan
from joinsum.planning import Options, find
from joinsum.relation import Relation

__all__ = ["einsum", "evaluate"]

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_WORD = re.compile(r"\{([^{}]*)\}")


def einsum(
    *arguments: object, join: str = "mul", agg: str = "sum", extents: Mapping[str, int] | None = None
) -> torch.Tensor | Relation:
    """torch.einsum, computed on all sites; with other operations than products and sums, too.

    equation, operands   as torch.einsum's, in both of its forms: `einsum("ij,jk->ik", x, y)` and
                         `einsum(x, [0, 1], y, [1, 2], [0, 2])`. Labels of several letters stand in braces,
                         `"{row}j,jk->{row}k"`, or in lists: `einsum(x, ["row", "mid"], y, ["mid", "out"])`
    join                 what operands are combined by: an elementwise kernel of two operands, mul, add, sub, div, max,
                         min, squared_difference, abs_difference, or a chain such as "sub | square"; more than two are
                         taken from the left. Of a single operand a map: "exp", or nothing. Or an expression of the
                         operands x0, x1, ... (or x, y, z): "exp(x - y) * 2", "where(x0 < x1, pow(x2, 3), 0)"
    agg                  what labels fold by that the result lacks: sum, prod, max, min, logsumexp, any, all; argmax and
                         argmin give the first position of the extreme, as torch's of the folded labels flattened in
                         the order of the operands: 64-bit integers, without a gradient
    extents              extents of labels that only the result has, along which it repeats: `{"j": 5}`

    Tensors give a tensor, in torch's autograd. On a process group every rank calls with equal tensors, and gets the
    result and the gradients of one process; the first call of each plan compares checksums of the operands, every call
    with JOINSUM_CHECK=1 in the environment. Relations give a relation that is computed when it is asked for; labels
    that they share are cut alike. Floats of half width are summed in single precision.

    Raises PlanError where the equation does not fit the operands (the place is marked), KernelError for a dtype that
    the join or aggregation is not defined on, TransportError where ranks differ.

    >>> import joinsum, torch
    >>> _ = joinsum.init(sites=4)
    >>> x, y = torch.arange(6.).reshape(2, 3), torch.arange(12.).reshape(3, 4)
    >>> torch.equal(joinsum.einsum("ij,jk->ik", x, y), x @ y)
    True
    >>> joinsum.einsum("ik,jk->ij", x, x, join="squared_difference")
    tensor([[ 0., 27.],
            [27.,  0.]])
    >>> joinsum.einsum("ik,jk->ij", x, x, join="where(x < y, exp(x - y), 1)", agg="min")
    tensor([[1.0000, 0.0498],
            [1.0000, 1.0000]])
    >>> joinsum.einsum(y, ["row", "column"], ["row"], agg="argmax")
    tensor([3, 3, 3])
    >>> joinsum.einsum("i->ij", torch.arange(2.), extents={"j": 3})
    tensor([[0., 0., 0.],
            [1., 1., 1.]])
    >>> joinsum.einsum("ij,jk->ik", torch.ones(2, 3), torch.ones(4, 5))
    Traceback (most recent call last):
    ...
    joinsum.PlanError: einsum: extents of a label differ: label=j, operand 0=3, operand 1=4
      ij,jk->ik
         ^
    """
    equation, operands = _read(arguments)
    here = context()
    products = join == "mul" and agg == "sum"
    torchs = products and not extents and ("{" not in equation or "->" in equation)
    if here.sites == 1 and torchs and all(type(x) is torch.Tensor for x in operands):
        try:
            return torch.einsum(_with_letters(equation), *operands)
        except RuntimeError:
            _C.parse_equation(equation, [list(x.shape) for x in operands])
            raise
    new = _extents(extents)
    if any(isinstance(x, Relation) for x in operands):
        return _of_relations(equation, operands, (join, agg), new)
    with here.preparing("run"):
        tensors = [_checked(f"einsum: operand {i}", x) for i, x in enumerate(operands)]
        views, labels, result, known = _views(equation, tensors, new)
        if agg in ARGUMENTS:
            views.append(_positions(views, labels, result, known))

    def make() -> _Compiled:
        dtype = _common_dtype(equation, tensors) if products else None
        return _Compiled.of(here, _graph(views, VertexText(join, agg, labels, result, known), dtype))

    key = (equation, join, agg, *new.items(), *((x.shape, x.dtype) for x in tensors))
    compiled = here.remembered(key, make)
    return _run(compiled, [x.to(dtype) for x, dtype in zip(views, compiled.dtypes, strict=True)])[0]


def evaluate(who: str, graph: Sequence[str], tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The one output of a graph, given by the lines of its text after the inputs', which are these tensors: on all
    sites, in torch's autograd. `who` opens messages.

    >>> import torch
    >>> evaluate("softplus", ["output z = einsum[i->i; softplus; add](x)"], {"x": torch.zeros(2)})
    tensor([0.6931, 0.6931])
    """
    here = context()
    with here.preparing("run"):
        for name, tensor in tensors.items():
            _checked(f"{who}: {name}", tensor)

    def make() -> _Compiled:
        inputs = [
            f"input {name}: {dtype_name(who, x.dtype)}[{','.join(map(str, x.shape))}]" for name, x in tensors.items()
        ]
        return _Compiled.of(here, _C.EinsumPlan.parse("\n".join(["einsum", *inputs, *graph])))

    key = (*graph, *((name, x.shape, x.dtype) for name, x in tensors.items()))
    compiled = here.remembered(key, make)
    return _run(compiled, [tensors[name] for name in compiled.names])[0]


# --- arguments --------------------------------------------------------------------------------------------------------


def _read(arguments: Sequence[object]) -> tuple[str, list[torch.Tensor]]:
    """The equation as text, and the operands."""
    if not arguments:
        raise PlanError("einsum: give an equation and operands, as in einsum('ij,jk->ik', x, y)")
    first, *rest = arguments
    if not isinstance(first, str):
        return _from_sublists(arguments)
    if len(rest) == 1 and isinstance(rest[0], (list, tuple)):
        rest = list(rest[0])
    if not rest:
        raise PlanError(f"einsum: at least one operand: equation={show(first)}")
    return first, rest  # type: ignore[return-value]


def _from_sublists(arguments: Sequence[object]) -> tuple[str, list[torch.Tensor]]:
    """torch.einsum's other form: operands and lists of labels in turn, the result's last."""
    pairs = len(arguments) // 2
    operands = list(arguments[0 : 2 * pairs : 2])
    text = ",".join(_sublist_text(labels) for labels in arguments[1 : 2 * pairs : 2])
    if len(arguments) % 2:
        text += "->" + _sublist_text(arguments[-1])
    return text, operands  # type: ignore[return-value]


def _sublist_text(labels: object) -> str:
    if not isinstance(labels, (list, tuple)):
        raise PlanError(f"einsum: operands and lists of labels are given in turn: got={show(labels)}")
    text = ""
    for label in labels:
        if label is Ellipsis:
            text += "..."
        elif isinstance(label, int) and not isinstance(label, bool) and 0 <= label < len(_LETTERS):
            text += _LETTERS[label]
        elif isinstance(label, str) and label and not set("{}").intersection(label):
            text += label if len(label) == 1 and label.isalpha() else f"{{{label}}}"
        else:
            raise PlanError(f"einsum: a label of a list is text, 0 to {len(_LETTERS) - 1}, or ...: label={show(label)}")
    return text


def _with_letters(equation: str) -> str:
    """The equation with a letter for each label in braces, as torch.einsum reads it.

    >>> _with_letters("{row}j,j{out}->{row}{out}")
    'Aj,jB->AB'
    """
    words = dict.fromkeys(_WORD.findall(equation))
    if not words:
        return equation
    bare = _WORD.sub("", equation)
    free = [letter for letter in _LETTERS if letter not in bare]
    if len(free) < len(words):
        raise PlanError(f"einsum: more labels than letters: most={len(_LETTERS)}, equation={equation}")
    letters = dict(zip(words, free, strict=False))
    return _WORD.sub(lambda word: letters[word[1]], equation)


def _extents(extents: Mapping[str, int] | None) -> dict[str, int]:
    if extents is None:
        return {}
    if not isinstance(extents, Mapping) or not all(isinstance(label, str) for label in extents):
        raise PlanError(f"einsum: extents are numbers by label, as in {{'j': 5}}: extents={show(extents)}")
    return {label: integer("einsum", f"extents[{label!r}]", extent) for label, extent in sorted(extents.items())}


def _positions(
    views: Sequence[torch.Tensor], labels: Sequence[Sequence[str]], result: Sequence[str], known: Mapping[str, int]
) -> torch.Tensor:
    """Numbers of the points of the folded labels."""
    extents = dict(known)
    for view, names in zip(views, labels, strict=True):
        extents |= dict(zip(names, view.shape, strict=True))
    shape = [extents[label] for label in folded_labels(labels, result)]
    if 0 in shape:
        raise PlanError(f"einsum: no position among no elements: folded extents={shape}")
    return torch.arange(math.prod(shape), device=views[0].device).reshape(shape)


def _checked(what: str, operand: object) -> torch.Tensor:
    """A tensor as joinsum can keep it; `what` opens messages."""
    tensor = operand
    if isinstance(operand, torch.Tensor) and operand.requires_grad:
        tensor = operand.detach()
    check_array(what, tensor)
    assert isinstance(operand, torch.Tensor)
    return operand


def _views(
    equation: str, tensors: list[torch.Tensor], new: Mapping[str, int]
) -> tuple[list[torch.Tensor], list[list[str]], list[str], dict[str, int]]:
    """Views of the operands with one axis for each of their labels: diagonals taken, and axes left out that are
    repeated along a label; the labels, and extents of those that only the result has."""
    operands, result, extents = _C.parse_equation(equation, [list(x.shape) for x in tensors], new)
    views = []
    for position, (tensor, labels) in enumerate(zip(tensors, operands, strict=True)):
        view = tensor
        axis = 0
        while axis < len(labels):
            label = labels[axis]
            if view.shape[axis] == 1 and extents[label] != 1:
                view = view.squeeze(axis)
                del labels[axis]
            elif label in labels[:axis]:
                first = labels.index(label)
                view = view.diagonal(0, first, axis).movedim(-1, first)
                del labels[axis]
            else:
                axis += 1
        views.append(view)
        operands[position] = labels
    given = {label for labels in operands for label in labels}
    return views, operands, result, {label: extents[label] for label in result if label not in given}


def _common_dtype(equation: str, tensors: list[torch.Tensor]) -> torch.dtype | None:
    """The dtype of torch.einsum's result, which integers of sums and operands of several dtypes are converted to; None
    where torch has none."""
    small = [torch.ones([min(extent, 2) for extent in x.shape], dtype=x.dtype) for x in tensors]
    try:
        return torch.einsum(_with_letters(equation), *small).dtype
    except RuntimeError:
        dtypes = [str(x.dtype) for x in tensors]
        if len(set(dtypes)) > 1:
            raise PlanError(
                f"einsum: dtypes of the operands differ; convert one: dtypes={', '.join(dtypes)}, equation={equation}"
            ) from None
        return None


def _graph(views: Sequence[torch.Tensor], vertex: VertexText, dtype: torch.dtype | None) -> _C.EinsumPlan:
    operands = views[: len(vertex.in_labels)]
    inputs = [
        _C.einsum_input(f"x{i}", dtype_name("einsum", dtype or x.dtype), list(x.shape)) for i, x in enumerate(operands)
    ]
    truth = len(operands) > 1 and all(x.dtype is torch.bool for x in operands)
    if vertex.agg in ("any", "all") and vertex.join == "mul" and truth:
        vertex = replace(vertex, join="min")  # the product of truth values
    return _C.EinsumPlan.make([("z", make_vertex("einsum", inputs, vertex))])


# --- running ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Compiled:
    """A graph that is planned for the sites there are."""

    here: Context
    graph: _C.EinsumPlan
    names: list[str]
    dtypes: list[torch.dtype]
    gradients: dict[tuple[bool, ...], _Compiled]

    @staticmethod
    def of(here: Context, graph: _C.EinsumPlan) -> _Compiled:
        names = [name for name, _ in graph.inputs]
        dtypes = [torch_dtype(dtype) for _, (dtype, _) in graph.inputs]
        return _Compiled(here, graph.binary(paths_of(graph)), names, dtypes, {})

    @cached_property
    def outputs(self) -> list[str]:
        return [name for name, _ in self.graph.outputs]

    @cached_property
    def differentiable(self) -> bool:
        dtypes = [torch_dtype(dtype) for _, (dtype, _) in self.graph.outputs]
        return all(dtype.is_floating_point or dtype.is_complex for dtype in dtypes)

    @cached_property
    def plan(self) -> _C.IaPlan:
        here = self.here
        with here.preparing("run"):
            program = TraPlan(self.graph.lower(self.graph.even_cuts(here.sites)))
            pins = {name: _C.Placement.replicated(here.grid) for name in self.outputs}
            options = Options({}, pins, "seconds", here.cluster)
        return find("einsum", here, program, options).plans[0].plan

    @cached_property
    def types(self) -> dict[str, _C.PhysicalType]:
        return dict(self.plan.inputs)

    def run(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        here = self.here
        first = "plan" not in self.__dict__
        if not here.whole and (first or os.environ.get("JOINSUM_CHECK", "0") not in ("", "0")):
            _compare(here, tensors)
        placed = {
            name: _C.place_tensor(
                tensor.detach().resolve_conj().resolve_neg(), self.types[name], here.local_sites, here.store, False
            )
            for name, tensor in zip(self.names, tensors, strict=True)
            if name in self.types  # an expression need not read its operands
        }
        results = here.execute(self.plan, placed, {})
        return tuple(self._whole(results[name], tensors) for name in self.outputs)

    def _whole(self, relation: _C.StoredRelation, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """The result as a tensor that shares no memory with an operand."""
        store = self.here.store
        whole = relation.whole_tensor(store)
        shared = any(whole.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for x in tensors)
        own = not shared and 0 not in whole.stride()
        return whole if own else whole.clone(memory_format=torch.contiguous_format)

    def gradient(self, needed: tuple[bool, ...]) -> _Compiled | None:
        """The plan of the gradients of those operands; None where the result depends on none of them."""
        if needed not in self.gradients:
            read = dict(self.graph.inputs)
            of = [name for name, each in zip(self.names, needed, strict=True) if each and name in read]
            if not of:
                return None
            self.gradients[needed] = _Compiled.of(self.here, self.graph.gradient(of))
        return self.gradients[needed]


def _compare(here: Context, tensors: Sequence[torch.Tensor]) -> None:
    """Raises where the ranks' operands differ."""
    sums = []
    for i, tensor in enumerate(tensors):
        flat = tensor.detach().resolve_conj().resolve_neg().flatten().contiguous().view(torch.uint8).to(torch.int64)
        place = torch.arange(1, flat.numel() + 1, device=flat.device) % 65521
        sums.append(f"operand {i}: {list(tensor.shape)} {tensor.dtype}, checksum {int((flat * place).sum())}")
    here.transport.agree("run", "operands are the same on every rank\n" + "\n".join(sums))


class _Differentiable(torch.autograd.Function):
    """A graph in torch's autograd: its backward pass is the graph of the gradients, in autograd again."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, compiled: _Compiled, *tensors: torch.Tensor) -> object:
        ctx.save_for_backward(*tensors)
        ctx.compiled = compiled  # type: ignore[attr-defined]
        return compiled.run(tensors)

    @staticmethod
    def backward(ctx: object, *arrived: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        compiled: _Compiled = ctx.compiled  # type: ignore[attr-defined]
        tensors: tuple[torch.Tensor, ...] = ctx.saved_tensors  # type: ignore[attr-defined]
        needed = tuple(ctx.needs_input_grad[1:])  # type: ignore[attr-defined]
        gradient = compiled.gradient(needed)
        if gradient is None:
            return (None,) * (len(tensors) + 1)
        values = dict(zip(compiled.names, tensors, strict=True))
        values |= {f"d_{name}": d for name, d in zip(compiled.outputs, arrived, strict=True)}
        made = dict(zip(gradient.outputs, _run(gradient, [values[name] for name in gradient.names]), strict=True))
        return (None, *(made.get(f"d_{name}") for name in compiled.names))


def _run(compiled: _Compiled, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    if compiled.differentiable and torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        results = _Differentiable.apply(compiled, *tensors)  # type: ignore[no-untyped-call]
        return tuple(results)
    return compiled.run(tensors)


# --- relations --------------------------------------------------------------------------------------------------------


def _of_relations(
    equation: str, operands: Sequence[object], kernels: tuple[str, str], new: Mapping[str, int]
) -> Relation:
    """A lazy relation: the same vertex over relations that are there."""
    join, agg = kernels
    if agg in ARGUMENTS:
        raise PlanError(f"einsum: {agg} is of tensors; give to_tensor() of each relation: equation={equation}")
    relations = []
    for position, operand in enumerate(operands):
        if not isinstance(operand, Relation):
            raise PlanError(
                f"einsum: operands are all tensors or all relations: operand {position}={type(operand).__name__}"
            )
        relations.append(operand)
    shapes = [[axis.extent for axis in relation.type.axes] for relation in relations]
    labels, result, extents = _C.parse_equation(equation, shapes, new)
    for position, (names, shape) in enumerate(zip(labels, shapes, strict=True)):
        for label, extent in zip(names, shape, strict=True):
            if extent != extents[label]:
                raise PlanError(
                    f"einsum: an axis of a relation is not repeated: operand {position}, label={label}, "
                    f"extent={extent}, wanted={extents[label]}"
                )
    names = [f"x{i}" for i in range(len(relations))]
    inputs = [
        _C.einsum_input(name, relation.type.dtype, shape)
        for name, relation, shape in zip(names, relations, shapes, strict=True)
    ]
    given = {label for names in labels for label in names}
    only = {label: extents[label] for label in result if label not in given}
    graph = _C.EinsumPlan.make([("z", make_vertex("einsum", inputs, VertexText(join, agg, labels, result, only)))])
    nodes = {name: relation.node for name, relation in zip(names, relations, strict=True)}
    (node,) = graph.binary(paths_of(graph)).lower_onto(nodes)
    return _relation_of(node, {relation.node.identity: relation for relation in relations})


def _relation_of(node: _C.TraNode, known: dict[int, Relation]) -> Relation:
    """The relation that a node is, over those that are known."""
    found = known.get(node.identity)
    if found is None:
        found = known[node.identity] = Relation(node, [_relation_of(each, known) for each in node.inputs])
    return found
