"""`joinsum.einsum_plan`: an einsum that is planned once, to be looked at and run often."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import torch

from joinsum.base.arguments import show
from joinsum.base.errors import PlanError
from joinsum.cluster.context import context
from joinsum.execution.einsum import check_sparse_call, einsum
from joinsum.execution.operands import autocast_dtype
from joinsum.execution.planned_einsum import EinsumSignature, PlannedEinsum
from joinsum.execution.planned_sparse_einsum import PlannedSparseEinsum
from joinsum.execution.sparse_einsum import plan_sparse_einsum
from joinsum.execution.sparse_operands import OutFormat, has_sparse
from joinsum.graphs.equation import read_arguments, read_operations

__all__ = ["einsum_plan"]


def einsum_plan(
    *arguments: object,
    dtype: torch.dtype = torch.float32,
    join: str = "mul",
    agg: str = "sum",
    extents: Mapping[str, int] | None = None,
    out_format: OutFormat = "auto",
    cache: bool = True,
) -> PlannedEinsum | PlannedSparseEinsum:
    """Plans an einsum once, to run it often: the plan is called with the operands.

    equation             as `joinsum.einsum`'s, in both of its forms: `einsum_plan((4, 5), [0, 1], (5, 6), [1, 2])`
    operands             tensors, of which shape and dtype are read and nothing else (they may be without data, on
                         "meta"), or shapes
    dtype                of operands that are shapes
    join, agg, extents, out_format
                         as `joinsum.einsum`'s
    cache                whether the plan may come from memory, or the user's cache folder, and is stored there

    Its table says in which order the einsums of two operands are taken; then, for each step of the physical plan, the
    partition vector (into how many parts the sites divide each label), the result's placement, and the bytes and
    seconds that it is predicted to take. On a process group all ranks call. On one site, too, joinsum's own plan runs;
    `joinsum.einsum` calls torch there.

    Where an operand is sparse (all are then tensors, whose entries count), the plan is a `joinsum.sparse.Plan` of one
    query `z` over the operands `x0`, `x1`, ...: its logical queries with their estimated entries, loop nests, formats,
    and seconds to plan, compile and run. `tried_first` says which loops of their own compute the einsum where they can,
    `site_plan` how several sites divide the queries. `run(analyze=True)` runs the loop nests in this process, for the
    true entries. Calls of the plan are `joinsum.einsum` of the operands.

    Raises PlanError, KernelError as `joinsum.einsum`.

    >>> import joinsum, torch
    >>> _ = joinsum.init(sites=4)
    >>> run = joinsum.einsum_plan("ij,jk->ik", (512, 2048), (2048, 512), cache=False)
    >>> run
    ij,jk->ik
    plan of x0, x1 -> z, on 4 sites (2x2), planned here
    order
    einsum  labels     operands
    ------  ---------  --------
    (1)     ij,jk->ik  x0, x1
    steps
    step   operation                                      parts        placement     wire B     time
    -----  ---------------------------------------------  -----------  ---------  ---------  -------
    t0     local_join[1; 0; contract[ab,bc->ac]](x0, x1)  i=4 j=1 k=1  (0, 0)             0  2.68 ms
    t1     local_aggregate[0, 2; add](t0)                 i=4 k=1      (0, 0)             0      0 s
    t2     broadcast[0, 1](t1)                            i=1 k=1      (*, *)     3,145,728   679 us
    total                                                                         3,145,728  3.36 ms
    >>> x, y = torch.rand(512, 2048), torch.rand(2048, 512)
    >>> torch.allclose(run(x, y), x @ y, rtol=1e-4)
    True
    >>> _ = joinsum.init()
    >>> graph = joinsum.SparseTensor.from_edges([[0, 1], [0, 2], [1, 2], [1, 3], [2, 3], [3, 0]], 4, levels="coo")
    >>> joinsum.einsum_plan("ij,jk->ik", graph, graph)
    ij,jk->ik
    cost 24
    z[i,k] = +[j] (x0[i,j] * x1[j,k])
        entries 12 of 12, cost 24
        for i in x0   # 4 iterations
          for j in x0, lookup x1   # 6 iterations
            for k in x1   # 12 iterations
        result i:dense k:dense
    """
    current = context()
    with current.preparing("einsum"):
        equation, operands = read_arguments(arguments, "einsum_plan", shapes=True)
        operations = read_operations("einsum_plan", join, agg, extents)
        sparse = has_sparse(operands)
        if sparse:
            check_sparse_call(operands)
        elif out_format not in ("auto", "dense"):
            raise PlanError(f"einsum_plan: dense operands give dense results: out_format={show(out_format)}")
    if sparse:
        again = partial(einsum, equation, join=join, agg=agg, extents=extents, out_format=out_format)
        return plan_sparse_einsum(current, equation, operands, operations, out_format, cache, again)
    with current.preparing("einsum"):
        shapes = [_shape(i, operand) for i, operand in enumerate(operands)]
        dtypes = [x.dtype if isinstance(x, torch.Tensor) else dtype for x in operands]
        devices = [x.device for x in operands if isinstance(x, torch.Tensor) and not x.is_meta]
        signature = EinsumSignature(equation, operations, shapes, dtypes, devices[0] if devices else current.device)

    def make() -> PlannedEinsum:
        with current.preparing("einsum"):
            return PlannedEinsum(current, signature, cache)

    key = ("einsum_plan", equation, operations, autocast_dtype(signature.device), *shapes, *dtypes)
    planned = current.cached(key, make) if cache else make()
    _ = planned.choice
    return planned


def _shape(position: int, operand: object) -> tuple[int, ...]:
    if isinstance(operand, torch.Tensor):
        return operand.shape
    good = isinstance(operand, Sequence) and not isinstance(operand, str)
    if not good or not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in operand):  # type: ignore[attr-defined]
        raise PlanError(
            f"einsum_plan: an operand is a tensor, or a shape such as (4, 5): operand={position}, given={show(operand)}"
        )
    return tuple(operand)  # type: ignore[arg-type]
