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

from importlib import import_module as _import_module
from pathlib import Path as _Path
from typing import TYPE_CHECKING as _TYPE_CHECKING

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

if _TYPE_CHECKING:
    from joinsum.frontend.backend import compile
    from joinsum.frontend.distribute import distribute, gather
    from joinsum.frontend.distributed_einsum import distributed_einsum
    from joinsum.frontend.distributed_tensor import DistributedTensor
    from joinsum.frontend.dtensor import from_dtensor, to_dtensor
    from joinsum.frontend.state import load_checkpoint, save_checkpoint
    from joinsum.frontend.train_step import TrainStep, train_step
    from joinsum.frontend.weights import load_safetensors, save_safetensors

__version__ = "0.1.0"

__all__ = [
    "CaptureError",
    "Cluster",
    "Context",
    "Difference",
    "DistributedTensor",
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
    "TrainStep",
    "TransportError",
    "Verdict",
    "VertexPlan",
    "and_",
    "calibrate",
    "cmake_prefix_path",
    "compile",
    "context",
    "cost",
    "diff",
    "distribute",
    "distributed_einsum",
    "einsum",
    "einsum_plan",
    "explain",
    "from_dtensor",
    "gather",
    "get_include",
    "grid",
    "init",
    "interpret",
    "kernels",
    "load_checkpoint",
    "load_safetensors",
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
    "save_checkpoint",
    "save_safetensors",
    "sites",
    "to_dtensor",
    "trace",
    "train_step",
    "unregister_kernel",
    "unregister_operator",
    "verify",
]

# Ways in from PyTorch code, and where they are: torch's compiler, which they need, is imported with the first of them.
_WAYS_IN = {
    "DistributedTensor": "distributed_tensor",
    "TrainStep": "train_step",
    "compile": "backend",
    "distribute": "distribute",
    "distributed_einsum": "distributed_einsum",
    "from_dtensor": "dtensor",
    "gather": "distribute",
    "load_checkpoint": "state",
    "load_safetensors": "weights",
    "save_checkpoint": "state",
    "save_safetensors": "weights",
    "to_dtensor": "dtensor",
    "train_step": "train_step",
}


def __getattr__(name: str) -> object:
    if name not in _WAYS_IN:
        raise AttributeError(f"module 'joinsum' has no attribute {name!r}")
    value = getattr(_import_module(f"joinsum.frontend.{_WAYS_IN[name]}"), name)
    globals()[name] = value
    return value


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
