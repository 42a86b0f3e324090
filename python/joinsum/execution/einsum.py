"""torch.einsum on all sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.overrides import handle_torch_function, has_torch_function
from torch.utils._python_dispatch import _disable_current_modes

from joinsum import _C
from joinsum.base.arguments import check_outside_of_transforms, show
from joinsum.base.errors import PlanError
from joinsum.cluster.context import Context, context
from joinsum.execution.compressed_rows import known_call
from joinsum.execution.operands import (
    autocast_dtype,
    check_not_traced,
    check_not_transformed,
    check_operands,
    fixed_shape,
    recording,
    result_into,
    tensor_traits,
)
from joinsum.execution.planned_einsum import EinsumSignature, PlannedEinsum
from joinsum.execution.relation import Relation
from joinsum.execution.sparse_einsum import sparse_einsum
from joinsum.execution.sparse_operands import OutFormat, has_sparse
from joinsum.graphs.contraction_order import paths_of
from joinsum.graphs.equation import (
    ARGUMENTS,
    Operations,
    common_dtype,
    lettered,
    new_labels,
    read_arguments,
    read_operations,
    views_of,
)
from joinsum.sparse import SparseTensor

__all__ = ["check_sparse_call", "einsum"]


def einsum(
    *arguments: object,
    join: str = "mul",
    agg: str = "sum",
    extents: Mapping[str, int] | None = None,
    out: torch.Tensor | None = None,
    out_format: OutFormat = "auto",
) -> torch.Tensor | SparseTensor | Relation:
    """torch.einsum, computed on all sites; with other operations than products and sums, too, and of sparse operands.

    equation, operands   as torch.einsum's, in both of its forms: `einsum("ij,jk->ik", x, y)` and
                         `einsum(x, [0, 1], y, [1, 2], [0, 2])`. Labels of several letters stand in braces,
                         `"{row}j,jk->{row}k"`, or in lists: `einsum(x, ["row", "mid"], y, ["mid", "out"])`
    join                 what operands are combined by: an elementwise kernel of two operands, mul, add, sub, div, max,
                         min, squared_difference, abs_difference, or a chain such as "sub | square"; more than two are
                         taken from the left. Of a single operand a map: "exp", or nothing. Or an expression of the
                         operands x0, x1, ... (or x, y, z): "exp(x - y) * 2", "where(x0 < x1, pow(x2, 3), 0)"
    agg                  what reduces labels that the result lacks: sum, prod, max, min, logsumexp, any, all; argmax and
                         argmin give the first position of the extreme, as torch's of the reduced labels flattened in
                         the order of the operands: 64-bit integers, without a gradient
    extents              extents of labels that only the result has, along which it repeats: `{"j": 5}`
    out                  a tensor of the result's shape, dtype and device that the result is written into and that is
                         returned; it may be an operand. Without gradients
    out_format           of sparse operands: "dense" for a tensor, levels or their spelling ("csr") for a SparseTensor;
                         by default what the estimated entries of the result are best stored as

    Tensors give a tensor, in torch's autograd and its functional transforms (`torch.func`). On a process group every
    rank calls with equal tensors, and gets the result and the gradients of one process; the first call of each plan
    compares checksums of the operands, every call with JOINSUM_CHECK=1 in the environment. Relations give a relation
    that is computed when it is requested; labels that they share are cut alike. Floats of half width are summed in
    single precision.

    Operands may be SparseTensors and torch's own sparse tensors, beside dense ones; docs/sparse.md says how such
    einsums are planned, and divided among sites. The result's fill follows from the operands' fills. Sums, maxima,
    minima and logsumexp have gradients, for dense operands and for the values of sparse ones
    (`SparseTensor.with_values`); results in autograd are dense unless `out_format` names levels.

    Raises PlanError where the equation does not fit the operands (the place is marked), for operands without data, on
    several devices or of several dtypes, and for an `out` that does not fit; KernelError for a dtype that the join or
    aggregation is not defined on, TransportError where ranks differ.

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
    >>> joinsum.einsum("ij,jk->ik", torch.eye(3).to_sparse_csr(), x.T, out_format="dense")
    tensor([[0., 3.],
            [1., 4.],
            [2., 5.]])
    >>> joinsum.einsum("ij,jk->ik", torch.ones(2, 3), torch.ones(4, 5))
    Traceback (most recent call last):
    ...
    joinsum.PlanError: einsum: extents of a label differ: label=j, operand 0=3, operand 1=4
      ij,jk->ik
         ^
    """
    if out is None and extents is None and len(arguments) > 1 and not torch.compiler.is_dynamo_compiling():
        known = known_call(arguments, join, agg, out_format)
        if known is not None:
            return known
    equation, operands = read_arguments(arguments)
    if has_torch_function(operands):
        return handle_torch_function(
            einsum,
            operands,
            equation,
            *operands,
            join=join,
            agg=agg,
            extents=extents,
            out=out,
            out_format=out_format,
        )
    is_sparse = has_sparse(operands)
    if not is_sparse and out_format not in ("auto", "dense"):
        raise PlanError(f"einsum: dense operands give dense results: out_format={show(out_format)}")
    if torch.compiler.is_dynamo_compiling():
        if is_sparse:
            # Imported here, as it imports Dynamo.
            from joinsum.execution.outside_of_graphs import called_outside_of_graphs

            found: torch.Tensor | SparseTensor | Relation = called_outside_of_graphs(
                einsum, equation, *operands, join=join, agg=agg, extents=extents, out=out, out_format=out_format
            )
            return found
        result = _in_a_graph(equation, operands, read_operations("einsum", join, agg, extents))
        return result if out is None else result_into(out, result)
    if is_sparse:
        current = context()
        with current.preparing("einsum"):
            check_sparse_call(operands)
            if out is not None:
                raise PlanError("einsum: sparse operands give new results, so there is no out=")
            operations = read_operations("einsum", join, agg, extents)
        return sparse_einsum(current, equation, operands, operations, out_format)
    if any(isinstance(x, Relation) for x in operands):
        if out is not None:
            raise PlanError("einsum: relations are computed when they are requested, so there is no out=")
        return _of_relations(equation, operands, read_operations("einsum", join, agg, extents))
    result = _of_tensors(equation, operands, (join, agg, extents))
    return result if out is None else result_into(out, result)


def check_sparse_call(operands: Sequence[object]) -> None:
    """Raises where operands beside sparse ones have no data of their own."""
    if torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None:
        raise PlanError("einsum: sparse operands have data, so they are not computed under FakeTensorMode")
    for x in operands:
        if isinstance(x, torch.Tensor):
            check_outside_of_transforms("einsum: sparse operands", x)


def _of_tensors(
    equation: str, operands: Sequence[torch.Tensor], requested: tuple[object, object, object]
) -> torch.Tensor:
    current = context()
    join, agg, extents = requested
    # Without `->` words stand in the order of their text in the result, letters for them might not.
    torchs = join == "mul" and agg == "sum" and extents is None and ("{" not in equation or "->" in equation)
    if current.sites == 1 and torchs:
        return _of_torch(equation, operands)
    return _of_sites(current, equation, operands, requested)


def _of_torch(equation: str, operands: Sequence[torch.Tensor]) -> torch.Tensor:
    """torch's own, with joinsum's errors."""
    try:
        if not any(x.is_meta for x in operands):
            return torch.einsum(lettered(equation) if "{" in equation else equation, *operands)
    except Exception:
        _explain_failure(equation, operands)
        raise
    _explain_failure(equation, operands)
    raise AssertionError("an operand without data is refused")


def _explain_failure(equation: str, operands: Sequence[torch.Tensor]) -> None:
    """Raises what is wrong with the operands, if it is that."""
    tensors = check_operands("einsum", operands)
    shapes = [x.shape for x in tensors]
    views_of(equation, shapes)
    common_dtype(equation, shapes, [x.dtype for x in tensors])


# --- many sites, or other operations ----------------------------------------------------------------------------------


def _of_sites(
    current: Context, equation: str, operands: Sequence[torch.Tensor], requested: tuple[object, object, object]
) -> torch.Tensor:
    with current.preparing("einsum"):
        check_not_traced("einsum")
        operations = read_operations("einsum", *requested)
        if not all(isinstance(x, torch.Tensor) for x in operands):
            check_operands("einsum", operands)
        recorded = recording()
        traits = tensor_traits(operands, recorded)
        key = ("einsum", equation, operations, autocast_dtype(operands[0].device), recorded, *traits)
        planned = current.cached(key, lambda: _checked_einsum(current, equation, operands, operations))
    return planned.apply(operands)


def _checked_einsum(
    current: Context, equation: str, operands: Sequence[torch.Tensor], operations: Operations
) -> PlannedEinsum:
    tensors = check_operands("einsum", operands)
    shapes, dtypes = [fixed_shape(x) for x in tensors], [x.dtype for x in tensors]
    with _disable_current_modes():  # what torch makes of small tensors is no part of what it records
        return PlannedEinsum(current, EinsumSignature(equation, operations, shapes, dtypes, tensors[0].device))


# --- relations --------------------------------------------------------------------------------------------------------


def _of_relations(equation: str, operands: Sequence[object], operations: Operations) -> Relation:
    """The vertex over relations that are there. Raises PlanError.

    >>> import joinsum, torch
    >>> _ = joinsum.init(sites=2)
    >>> x = joinsum.relation(torch.ones(4, 6), parts=(2, 2), name="X")
    >>> z = joinsum.einsum("ij,kj->ik", x, x)
    >>> z.type
    f32[4,4]<2,2>
    >>> torch.equal(z.to_tensor(), torch.full((4, 4), 6.))
    True
    """
    if operations.agg in ARGUMENTS:
        raise PlanError(f"einsum: {operations.agg} is of tensors; give to_tensor() of each relation: {equation}")
    relations = []
    for position, operand in enumerate(operands):
        if not isinstance(operand, Relation):
            raise PlanError(
                f"einsum: operands are all tensors or all relations: operand {position}={type(operand).__name__}"
            )
        relations.append(operand)
    shapes = [[axis.extent for axis in relation.type.axes] for relation in relations]
    labels, result, extents = _C.parse_equation(equation, shapes, dict(operations.extents))
    for position, (names, shape) in enumerate(zip(labels, shapes, strict=True)):
        for label, extent in zip(names, shape, strict=True):
            if extent != extents[label]:
                raise PlanError(
                    f"einsum: an axis of a relation is not repeated: operand {position}, label={label}, "
                    f"extent={extent}, wanted={extents[label]}\n  {equation}"
                )
    names = [f"x{i}" for i in range(len(relations))]
    inputs = [
        _C.einsum_input(name, relation.type.dtype, shape)
        for name, relation, shape in zip(names, relations, shapes, strict=True)
    ]
    new = new_labels(labels, result, extents)
    vertex = _C.NamedVertex(operations.join, operations.agg, labels, result, new, [])
    graph = _C.EinsumPlan.make([("z", _C.named_einsum_vertex("einsum", inputs, vertex, "positions"))])
    nodes = {name: relation.node for name, relation in zip(names, relations, strict=True)}
    (node,) = graph.binary(paths_of(graph)).lower_onto(nodes)
    return _relation_of(node, {relation.node.identity: relation for relation in relations})


def _relation_of(node: _C.TraNode, known: dict[int, Relation]) -> Relation:
    """The relation that a node is, over those that are known."""
    relation = known.get(node.identity)
    if relation is None:
        relation = known[node.identity] = Relation(node, [_relation_of(each, known) for each in node.inputs])
    return relation


# --- graphs of torch's ------------------------------------------------------------------------------------------------

_LIBRARY = torch.library.Library("joinsum", "FRAGMENT")  # type: ignore[no-untyped-call]
_SCHEMA = "einsum_call(str equation, Tensor[] operands, str join, str agg, str[] labels, int[] extents) -> Tensor"
_LIBRARY.define(_SCHEMA)  # type: ignore[no-untyped-call]


def _in_a_graph(equation: str, operands: Sequence[torch.Tensor], operations: Operations) -> torch.Tensor:
    """The call as an operator, as which Dynamo leaves it in its graph."""
    check_not_transformed("einsum")
    labels = [label for label, _ in operations.extents]
    extents = [extent for _, extent in operations.extents]
    result: torch.Tensor = torch.ops.joinsum.einsum_call(
        equation, list(operands), operations.join, operations.agg, labels, extents
    )
    return result


def _out_of_a_graph(
    equation: str, operands: Sequence[torch.Tensor], join: str, agg: str, *extents: Sequence[Any]
) -> torch.Tensor:
    """`extents` are labels and their extents."""
    return _of_tensors(equation, operands, (join, agg, dict(zip(*extents, strict=True)) or None))


_LIBRARY.impl("einsum_call", _out_of_a_graph, "CompositeImplicitAutograd")  # type: ignore[no-untyped-call]
