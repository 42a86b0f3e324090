"""Graphs of einsums as sparse programs, whose plans choose loops and formats instead of placements."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from joinsum import _C
from joinsum.base.dtypes import torch_dtype
from joinsum.base.errors import PlanError
from joinsum.sparse import Program, SparseTensor

__all__ = ["SparseData", "sparse_program"]

# An input: its entries, or `nnz` or `coo`, `degrees` and `fill` as a tensor of a program has them.
SparseData = SparseTensor | Mapping[str, Any]

_WHOLE = {"i32", "i64"}


def sparse_program(who: str, graph: _C.JsonGraph, inputs: Mapping[str, SparseData]) -> Program:
    """The program with one query for each operation, of its name and in the order of the graph.

    inputs   what is known of inputs, by name; others have the entries that the graph states, or else all elements

    Computes in float64, over inputs of int32 or int64 in that dtype.

    Raises PlanError, or KernelError for an unknown kernel, that name the place: for what is no graph, for an input of
    another shape than the graph's, and for joins and aggregations that sparse programs do not have.

    >>> from joinsum.graphs.json_form import read_json_value
    >>> op = {"name": "Z", "inputs": ["X", "Y"], "in_labels": ["ij", "jk"], "out_labels": "ik", "agg": "sum"}
    >>> graph = read_json_value("plan", {"inputs": {"X": [90, 80], "Y": [80, 5]}, "ops": [op], "outputs": ["Z"]})
    >>> print(sparse_program("plan", graph, {"X": {"nnz": 40}}).plan())
    cost 400
    Z[i,k] = +[j] (X[i,j] * Y[j,k])
        entries 200 of 200, cost 400
        for i in X   # 40 iterations
          for j in X, lookup Y   # 40 iterations
            for k in Y   # 200 iterations
        result i:bytemap k:dense
    """
    # Also checks what the JSON form does not say: kernels, dtypes, numbers of elements.
    nodes = graph.plan(who)[1]
    sizes: dict[str, int] = {}
    dtypes = {nodes[name].dtype for name in graph.inputs}
    dtype = dtypes.pop() if len(dtypes) == 1 and dtypes <= _WHOLE else "f64"
    queries = [_query(graph, number, sizes, dtype) for number in range(len(graph.operations))]
    tensors = {name: _tensor(who, name, nodes[name], inputs.get(name)) for name in graph.inputs}
    return Program({"index_sizes": sizes, "tensors": tensors, "queries": queries, "dtype": torch_dtype(dtype)})


def _query(graph: _C.JsonGraph, number: int, sizes: dict[str, int], dtype: str) -> dict[str, Any]:
    """The operation as a query; adds the extents of indices that only its result has to `sizes`."""
    operation = graph.operations[number]
    operands = zip(operation.inputs, operation.in_labels, strict=True)
    read = {label for labels in operation.in_labels for label in labels}
    reduced = [label for label in operation.labels if label in read and label not in operation.out_labels]
    try:
        leaves = [_C.sparse_input(name, labels) for name, labels in operands]
        body = _C.sparse_join(operation.join, leaves, dtype)
        if reduced:
            assert operation.aggregate is not None
            body = _C.sparse_aggregate(_C.sparse_aggregation(operation.aggregate), reduced, body)
    except PlanError as error:
        raise PlanError(f"{error}: at=$.ops[{number}]") from None
    output = []
    for label in operation.out_labels:
        index = label if label in read else _new_index(graph, operation, label)
        if label not in read:
            sizes[index] = operation.extents[label]
        output.append(index)
    return {"name": operation.name, "expr": body.data(), "output": output}


def _new_index(graph: _C.JsonGraph, operation: _C.JsonOperation, label: str) -> str:
    """The index of a label that only the result has: its extent holds in all queries, so where another operation has
    the label with another extent, the index gets a name that no label has."""
    extent = operation.extents[label]
    one = all(other.extents.get(label, extent) == extent for other in graph.operations)
    return label if one else f"{label}@{operation.name}"


def _tensor(who: str, name: str, node: _C.EinsumNode, known: SparseData | None) -> SparseData:
    if known is None:
        return {"shape": node.extents, "nnz": math.prod(node.extents) if node.entries is None else node.entries}
    shape = known.shape if isinstance(known, SparseTensor) else known.get("shape", node.extents)
    if not isinstance(shape, (list, tuple)) or list(shape) != node.extents:
        shown = list(shape) if isinstance(shape, (list, tuple)) else shape
        raise PlanError(
            f"{who}: an input has another shape than in the graph: input={name}, shape={shown}, graph={node.extents}"
        )
    return known if isinstance(known, SparseTensor) else {"shape": node.extents, **known}
