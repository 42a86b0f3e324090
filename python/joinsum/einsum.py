"""torch.einsum on all sites."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from joinsum import _C
from joinsum.arguments import check_array, show
from joinsum.context import Context, context
from joinsum.contraction_order import best_paths, paths_of
from joinsum.dtypes import dtype_name, torch_dtype
from joinsum.einsum_plan import join_kernel
from joinsum.errors import PlanError
from joinsum.plan import TraPlan
from joinsum.planning import Options, find
from joinsum.relation import Relation

__all__ = ["einsum"]

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def einsum(*arguments: object, join: str = "mul", agg: str = "sum") -> torch.Tensor | Relation:
    """torch.einsum, computed on all sites; with other operations than products and sums, too.

    equation, operands   as torch.einsum's, in both of its forms: `einsum("ij,jk->ik", x, y)` and
                         `einsum(x, [0, 1], y, [1, 2], [0, 2])`
    join                 what operands are combined by: an elementwise kernel of two operands, mul, add, sub, div, max,
                         min, squared_difference, abs_difference, or a chain such as "sub | square"; more than two are
                         taken from the left. Of a single operand a map: "exp", or nothing
    agg                  what labels fold by that the result lacks: sum, prod, max, min, logsumexp, any, all

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
    >>> joinsum.einsum("ij,jk->ik", torch.ones(2, 3), torch.ones(4, 5))
    Traceback (most recent call last):
    ...
    joinsum.PlanError: einsum: extents of a label differ: label=j, operand 0=3, operand 1=4
      ij,jk->ik
         ^
    """
    equation, operands = _read(arguments)
    here = context()
    if here.sites == 1 and join == "mul" and agg == "sum" and all(type(x) is torch.Tensor for x in operands):
        try:
            return torch.einsum(equation, *operands)
        except RuntimeError:
            _C.parse_equation(equation, [list(x.shape) for x in operands])
            raise
    if any(isinstance(x, Relation) for x in operands):
        return _of_relations(equation, operands, join, agg)
    with here.preparing("run"):
        tensors = [_checked(i, x) for i, x in enumerate(operands)]
        views, labels, result = _views(equation, tensors)

    def make() -> _Compiled:
        dtype = _common_dtype(equation, tensors) if (join, agg) == ("mul", "sum") else None
        return _Compiled.of(here, _graph(views, labels, result, (join, agg), dtype))

    compiled = here.remembered((equation, join, agg, *((x.shape, x.dtype) for x in tensors)), make)
    return _run(compiled, [x.to(dtype) for x, dtype in zip(views, compiled.dtypes, strict=True)])[0]


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
        else:
            raise PlanError(f"einsum: a label of a list is 0 to {len(_LETTERS) - 1} or ...: label={show(label)}")
    return text


def _checked(position: int, operand: object) -> torch.Tensor:
    """A tensor as joinsum can keep it."""
    tensor = operand
    if isinstance(operand, torch.Tensor) and operand.requires_grad:
        tensor = operand.detach()
    check_array(f"einsum: operand {position}", tensor)
    assert isinstance(operand, torch.Tensor)
    return operand


def _views(equation: str, tensors: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[list[str]], list[str]]:
    """Views of the operands with one axis for each of their labels: diagonals taken, and axes left out that are
    repeated along a label."""
    operands, result, extents = _C.parse_equation(equation, [list(x.shape) for x in tensors])
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
    return views, operands, result


def _common_dtype(equation: str, tensors: list[torch.Tensor]) -> torch.dtype | None:
    """The dtype of torch.einsum's result, which integers of sums and operands of several dtypes are converted to; None
    where torch has none."""
    small = [torch.ones([min(extent, 2) for extent in x.shape], dtype=x.dtype) for x in tensors]
    try:
        return torch.einsum(equation, *small).dtype
    except RuntimeError:
        dtypes = [str(x.dtype) for x in tensors]
        if len(set(dtypes)) > 1:
            raise PlanError(
                f"einsum: dtypes of the operands differ; convert one: dtypes={', '.join(dtypes)}, equation={equation}"
            ) from None
        return None


def _graph(
    views: Sequence[torch.Tensor],
    labels: Sequence[Sequence[str]],
    result: Sequence[str],
    kernels: tuple[str, str],
    dtype: torch.dtype | None,
) -> _C.EinsumPlan:
    inputs = [
        _C.einsum_input(f"x{i}", dtype_name("einsum", dtype or x.dtype), list(x.shape)) for i, x in enumerate(views)
    ]
    join, agg = kernels
    if agg in ("any", "all") and join == "mul" and len(views) > 1 and all(x.dtype is torch.bool for x in views):
        join = "min"  # the product of truth values
    kernel, fold = join_kernel("einsum", join, agg, len(inputs))
    vertex = _C.einsum_vertex(inputs, labels, result, _C.Kernel(kernel), _C.Kernel(fold), {})
    return _C.EinsumPlan.make([("z", vertex)])


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
        return _Compiled(here, graph.binary(best_paths(graph, here, everywhere=True)), names, dtypes, {})

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

    def gradient(self, needed: tuple[bool, ...]) -> _Compiled:
        """The plan of the gradients of those operands."""
        if needed not in self.gradients:
            of = [name for name, each in zip(self.names, needed, strict=True) if each]
            self.gradients[needed] = _Compiled.of(self.here, self.graph.gradient(of))
        return self.gradients[needed]


def _compare(here: Context, tensors: Sequence[torch.Tensor]) -> None:
    """Raises where the ranks' operands differ."""
    sums = []
    for i, tensor in enumerate(tensors):
        own = tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
        flat = own.flatten().view(torch.uint8).to(torch.int64)
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


def _of_relations(equation: str, operands: Sequence[object], join: str, agg: str) -> Relation:
    """A lazy relation: the same vertex over relations that are there."""
    relations = []
    for position, operand in enumerate(operands):
        if not isinstance(operand, Relation):
            raise PlanError(
                f"einsum: operands are all tensors or all relations: operand {position}={type(operand).__name__}"
            )
        relations.append(operand)
    shapes = [[axis.extent for axis in relation.type.axes] for relation in relations]
    labels, result, extents = _C.parse_equation(equation, shapes)
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
    kernel, fold = join_kernel("einsum", join, agg, len(inputs))
    vertex = _C.einsum_vertex(inputs, labels, result, _C.Kernel(kernel), _C.Kernel(fold), {})
    graph = _C.EinsumPlan.make([("z", vertex)])
    nodes = {name: relation.node for name, relation in zip(names, relations, strict=True)}
    (node,) = graph.binary(paths_of(graph)).lower_onto(nodes)
    return _relation_of(node, {relation.node.identity: relation for relation in relations})


def _relation_of(node: _C.TraNode, known: dict[int, Relation]) -> Relation:
    """The relation that a node is, over those that are known."""
    found = known.get(node.identity)
    if found is None:
        found = known[node.identity] = Relation(node, [_relation_of(each, known) for each in node.inputs])
    return found
