"""joinsum: distributed einsum on the tensor relational algebra.

An einsum is a join of its operands on their shared labels, and a sum over the labels that disappear. joinsum writes
tensor programs in that algebra and runs them on every site there is.

>>> import torch, joinsum
>>> _ = joinsum.init(sites=4)
>>> x = joinsum.relation(torch.ones(4, 6), parts=(2, 3))
>>> y = joinsum.relation(torch.ones(6, 4), parts=(3, 2))
>>> z = x.join(y, on=([1], [0]), kernel="matmul").aggregate(keep=[0, 2], kernel="add")
>>> z
<Relation f32[4,4]<2,2> = aggregate[0, 2; add]>
>>> torch.equal(z.to_tensor(), torch.ones(4, 6) @ torch.ones(6, 4))
True
"""

from __future__ import annotations

from pathlib import Path as _Path

import torch as _torch

from joinsum._built_with import TORCH_VERSION as _TORCH_VERSION

if _torch.__version__.split(".")[:2] != _TORCH_VERSION.split(".")[:2]:
    raise ImportError(
        f"joinsum: compiled for another torch: compiled for={_TORCH_VERSION}, found={_torch.__version__}; "
        "reinstall it with pip install --no-build-isolation --force-reinstall --no-deps joinsum"
    )

from joinsum import _C, nn
from joinsum._C import Grid, NodeTrace, PhysicalType, Placement, RelationType
from joinsum.calibrate import calibrate
from joinsum.calibration import RejectedCalibration
from joinsum.capture import register_operator, unregister_operator
from joinsum.cluster import Cluster
from joinsum.context import Context, context, grid, init, sites
from joinsum.cost import NodeCost, PlanCost, cost
from joinsum.diff import Difference, PlanDiff, diff
from joinsum.einsum import einsum
from joinsum.einsum_plan import EinsumPlan
from joinsum.errors import CaptureError, Error, InternalError, KernelError, PlanError, TransportError
from joinsum.explain import explain
from joinsum.explanation import Explanation
from joinsum.graph import Graph, GraphValue
from joinsum.graph_plan import GraphPlan, VertexPlan, plan_graph, plan_graph_file
from joinsum.kernels import KernelRow, KernelTable, kernels, register_kernel, unregister_kernel
from joinsum.key_trace import and_, lookup, not_, or_
from joinsum.optimize import Optimized, optimize
from joinsum.plan import IaPlan, TraPlan, lower, parse, plan
from joinsum.planned_graph import PlannedEinsum, PlannedGraph, einsum_plan
from joinsum.relation import Relation, relation
from joinsum.rules import Rule, rules
from joinsum.run import interpret, run, trace
from joinsum.stored import StoredRelation
from joinsum.trace import Trace
from joinsum.verify import Verdict, verify

__version__ = "0.1.0"

__all__ = [
    "CaptureError",
    "Cluster",
    "Context",
    "Difference",
    "EinsumPlan",
    "Error",
    "Explanation",
    "Graph",
    "GraphPlan",
    "GraphValue",
    "Grid",
    "IaPlan",
    "InternalError",
    "KernelError",
    "KernelRow",
    "KernelTable",
    "NodeCost",
    "NodeTrace",
    "Optimized",
    "PhysicalType",
    "Placement",
    "PlanCost",
    "PlanDiff",
    "PlanError",
    "PlannedEinsum",
    "PlannedGraph",
    "RejectedCalibration",
    "Relation",
    "RelationType",
    "Rule",
    "StoredRelation",
    "TraPlan",
    "Trace",
    "TransportError",
    "Verdict",
    "VertexPlan",
    "and_",
    "calibrate",
    "cmake_prefix_path",
    "context",
    "cost",
    "diff",
    "einsum",
    "einsum_plan",
    "explain",
    "get_include",
    "grid",
    "init",
    "interpret",
    "kernels",
    "lookup",
    "lower",
    "nn",
    "not_",
    "optimize",
    "or_",
    "parse",
    "plan",
    "plan_graph",
    "plan_graph_file",
    "register_kernel",
    "register_operator",
    "relation",
    "rules",
    "run",
    "sites",
    "trace",
    "unregister_kernel",
    "unregister_operator",
    "verify",
]

_FOLDER = _Path(_C.__file__).resolve().parent

# What CMAKE_PREFIX_PATH needs for find_package(joinsum).
cmake_prefix_path = str(_FOLDER)


def get_include() -> str:
    """Folder of joinsum's C++ headers, for a compiler's -I; the library is in `lib` beside it.

    >>> import joinsum
    >>> joinsum.get_include().endswith("include")
    True
    """
    return str(_FOLDER / "include")
