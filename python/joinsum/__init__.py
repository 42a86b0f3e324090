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
from joinsum.algebra.kernels import KernelRow, KernelTable, kernels, register_kernel, unregister_kernel
from joinsum.algebra.key_functions import and_, lookup, not_, or_
from joinsum.algebra.plan import IaPlan, TraPlan, lower, parse, plan
from joinsum.algebra.rules import Rule, rules
from joinsum.algebra.stored_relation import StoredRelation
from joinsum.algebra.verify import Verdict, verify
from joinsum.base.errors import (
    CaptureError,
    CheckpointError,
    Error,
    InternalError,
    KernelError,
    PlanError,
    TransportError,
)
from joinsum.base.libraries import openblas as _openblas
from joinsum.base.version import JOINSUM_VERSION as _VERSION
from joinsum.cluster.calibrate import calibrate
from joinsum.cluster.calibration import RejectedCalibration
from joinsum.cluster.cluster import Cluster
from joinsum.cluster.context import Context, context, grid, init, sites
from joinsum.cluster.trace import Trace
from joinsum.execution.einsum import einsum
from joinsum.execution.einsum_plan import einsum_plan
from joinsum.execution.planned_einsum import PlannedEinsum
from joinsum.execution.planned_graph import PlannedGraph
from joinsum.execution.planned_sparse_einsum import PlannedSparseEinsum
from joinsum.execution.relation import Relation, relation
from joinsum.execution.run import interpret, run, trace
from joinsum.graphs.graph import Graph, GraphValue
from joinsum.planner.cost import NodeCost, PlanCost, cost
from joinsum.planner.graph_report import GraphPlan, VertexPlan
from joinsum.planner.optimize import Optimized, optimize

_C.set_openblas(_openblas())

if _TYPE_CHECKING:
    from joinsum import sparse
    from joinsum.capture import register_operator, unregister_operator
    from joinsum.distributed.checkpoint import load_checkpoint, save_checkpoint
    from joinsum.distributed.distributed_tensor import DistributedTensor
    from joinsum.distributed.dtensor import from_dtensor, to_dtensor
    from joinsum.distributed.full_state import full_state_dict
    from joinsum.distributed.safetensors import load_safetensors, save_safetensors
    from joinsum.explanation import Explanation
    from joinsum.explanation.diff import Difference, PlanDiff, diff
    from joinsum.explanation.explain import explain
    from joinsum.frontend.backend import compile
    from joinsum.frontend.distribute import distribute, gather
    from joinsum.frontend.distributed_einsum import distributed_einsum
    from joinsum.frontend.empty_models import init_empty
    from joinsum.frontend.training.train_step import TrainStep, train_step
    from joinsum.ist import IST
    from joinsum.planner.graph_plan import plan_graph, plan_graph_file
    from joinsum.sparse import SparseTensor

__version__ = _VERSION

__all__ = [
    "IST",
    "CaptureError",
    "CheckpointError",
    "Cluster",
    "Context",
    "Difference",
    "DistributedTensor",
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
    "PlannedSparseEinsum",
    "RejectedCalibration",
    "Relation",
    "RelationType",
    "Rule",
    "SparseTensor",
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
    "full_state_dict",
    "gather",
    "get_include",
    "grid",
    "init",
    "init_empty",
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
    "sparse",
    "to_dtensor",
    "trace",
    "train_step",
    "unregister_kernel",
    "unregister_operator",
    "verify",
]

# Entry points for PyTorch code, and where they are: torch's compiler, which they need, is imported with the first one.
_ENTRY_POINTS = {
    "compile": "joinsum.frontend.backend",
    "distribute": "joinsum.frontend.distribute",
    "distributed_einsum": "joinsum.frontend.distributed_einsum",
    "DistributedTensor": "joinsum.distributed.distributed_tensor",
    "from_dtensor": "joinsum.distributed.dtensor",
    "full_state_dict": "joinsum.distributed.full_state",
    "gather": "joinsum.frontend.distribute",
    "init_empty": "joinsum.frontend.empty_models",
    "load_checkpoint": "joinsum.distributed.checkpoint",
    "load_safetensors": "joinsum.distributed.safetensors",
    "save_checkpoint": "joinsum.distributed.checkpoint",
    "save_safetensors": "joinsum.distributed.safetensors",
    "to_dtensor": "joinsum.distributed.dtensor",
    "train_step": "joinsum.explanation.callables",
    "TrainStep": "joinsum.explanation.callables",
}

# What only some programs use, imported with its first use.
_SELDOM_USED = {
    "diff": "joinsum.explanation.diff",
    "Difference": "joinsum.explanation.diff",
    "explain": "joinsum.explanation.explain",
    "IST": "joinsum.ist",
    "Explanation": "joinsum.explanation",
    "plan_graph": "joinsum.planner.graph_plan",
    "plan_graph_file": "joinsum.planner.graph_plan",
    "PlanDiff": "joinsum.explanation.diff",
    "register_operator": "joinsum.capture",
    "SparseTensor": "joinsum.sparse",
    "unregister_operator": "joinsum.capture",
}


def __getattr__(name: str) -> object:
    if name == "sparse":
        return _import_module("joinsum.sparse")
    module = _ENTRY_POINTS.get(name)
    if module is not None:
        _import_module("joinsum.capture.single_operator")  # distributed tensors run other operators by it
    else:
        module = _SELDOM_USED.get(name)
    if module is None:
        raise AttributeError(f"module 'joinsum' has no attribute {name!r}")
    value = getattr(_import_module(module), name)
    globals()[name] = value
    return value


def _explain(x: Relation, *args: object, **options: object) -> object:
    _import_module("joinsum.explanation.explain")  # which replaces this method by its own
    return Relation.explain(x, *args, **options)


Relation.explain = _explain

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
