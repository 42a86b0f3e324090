"""torch.einsum on all sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch.overrides import handle_torch_function, has_torch_function
from torch.utils._python_dispatch import _disable_current_modes

from joinsum.compiled_graph import check_not_traced, check_not_transformed, recording
from joinsum.context import Context, context
from joinsum.einsum_arguments import (
    autocast_dtype,
    check_operands,
    common_dtype,
    fixed_shape,
    lettered,
    read_arguments,
    result_into,
    views_of,
)
from joinsum.einsum_call import EinsumCall, einsum_call
from joinsum.einsum_operations import Operations, read_operations
from joinsum.einsum_relations import einsum_of_relations
from joinsum.errors import PlanError
from joinsum.relation import Relation

__all__ = ["einsum"]


def einsum(
    *arguments: object,
    join: str = "mul",
    agg: str = "sum",
    extents: Mapping[str, int] | None = None,
    out: torch.Tensor | None = None,
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
    out                  a tensor of the result's shape, dtype and device that the result is written into and that is
                         returned; it may be an operand. Without gradients

    Tensors give a tensor, in torch's autograd and its functional transforms (`torch.func`). On a process group every
    rank calls with equal tensors, and gets the result and the gradients of one process; the first call of each plan
    compares checksums of the operands, every call with JOINSUM_CHECK=1 in the environment. Relations give a relation
    that is computed when it is asked for; labels that they share are cut alike. Floats of half width are summed in
    single precision.

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
    >>> joinsum.einsum("ij,jk->ik", torch.ones(2, 3), torch.ones(4, 5))
    Traceback (most recent call last):
    ...
    joinsum.PlanError: einsum: extents of a label differ: label=j, operand 0=3, operand 1=4
      ij,jk->ik
         ^
    """
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
        )
    if torch.compiler.is_dynamo_compiling():
        result = _in_a_graph(equation, operands, read_operations("einsum", join, agg, extents))
        return result if out is None else result_into(out, result)
    if any(isinstance(x, Relation) for x in operands):
        if out is not None:
            raise PlanError("einsum: relations are computed when they are asked for, so there is no out=")
        return einsum_of_relations(equation, operands, read_operations("einsum", join, agg, extents))
    result = _of_tensors(equation, operands, (join, agg, extents))
    return result if out is None else result_into(out, result)


def _of_tensors(equation: str, operands: Sequence[torch.Tensor], asked: tuple[object, object, object]) -> torch.Tensor:
    here = context()
    join, agg, extents = asked
    # Without `->` words stand in the order of their text in the result, letters for them might not.
    torchs = join == "mul" and agg == "sum" and extents is None and ("{" not in equation or "->" in equation)
    if here.sites == 1 and torchs:
        return _of_torch(equation, operands)
    return _of_sites(here, equation, operands, asked)


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
    here: Context, equation: str, operands: Sequence[torch.Tensor], asked: tuple[object, object, object]
) -> torch.Tensor:
    with here.preparing("einsum"):
        check_not_traced("einsum")
        operations = read_operations("einsum", *asked)
        if not all(isinstance(x, torch.Tensor) for x in operands):
            check_operands("einsum", operands)
        # All that the operands' checks read is in the key: equal operands are checked once.
        recorded = recording()
        shapes = [fixed_shape(x) if recorded else x.shape for x in operands]
        traits = [(shape, x.dtype, x.device, x.layout, type(x)) for shape, x in zip(shapes, operands, strict=True)]
        key = ("einsum", equation, operations, autocast_dtype(operands[0].device), recorded, *traits)
        call = here.remembered(key, lambda: _checked_call(equation, operands, operations))
    return call.run(operands)


def _checked_call(equation: str, operands: Sequence[torch.Tensor], operations: Operations) -> EinsumCall:
    tensors = check_operands("einsum", operands)
    shapes, dtypes = [fixed_shape(x) for x in tensors], [x.dtype for x in tensors]
    with _disable_current_modes():  # what torch makes of small tensors is no part of what it records
        return einsum_call(equation, shapes, dtypes, operations, device=tensors[0].device)


# --- graphs of torch's ------------------------------------------------------------------------------------------------

_LIBRARY = torch.library.Library("joinsum", "FRAGMENT")  # type: ignore[no-untyped-call]
_SCHEMA = "einsum_call(str equation, Tensor[] operands, str join, str agg, str[] labels, int[] extents) -> Tensor"
_LIBRARY.define(_SCHEMA)  # type: ignore[no-untyped-call]


def _in_a_graph(equation: str, operands: Sequence[torch.Tensor], operations: Operations) -> torch.Tensor:
    """The call as an operator, as which Dynamo leaves it in its graph."""
    check_not_transformed("einsum")
    labels = [label for label, _ in operations.extents]
    extents = [extent for _, extent in operations.extents]
    made: torch.Tensor = torch.ops.joinsum.einsum_call(
        equation, list(operands), operations.join, operations.agg, labels, extents
    )
    return made


def _out_of_a_graph(
    equation: str,
    operands: Sequence[torch.Tensor],
    join: str,
    agg: str,
    labels: Sequence[str],
    extents: Sequence[int],
) -> torch.Tensor:
    return _of_tensors(equation, operands, (join, agg, dict(zip(labels, extents, strict=True)) or None))


_LIBRARY.impl("einsum_call", _out_of_a_graph, "CompositeImplicitAutograd")  # type: ignore[no-untyped-call]
