"""The floors of csrc/ and of python/joinsum, lowest first: a file reaches its own folder and the floors below it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["APART", "CPP", "PYTHON", "ROOT", "Floor"]

# The folder of python/joinsum/__init__.py: the public names.
ROOT = "joinsum"


@dataclass(frozen=True)
class Floor:
    """One folder.

    projects   other projects that its files may reach: torch, pybind11, nlohmann; cuda in files named cuda* alone
    only       the floors that it may reach; None for all below
    """

    folder: str
    projects: frozenset[str] = frozenset()
    only: frozenset[str] | None = None


_TORCH = frozenset({"torch"})
_DEVICE = frozenset({"torch", "cuda"})

CPP = (
    Floor("base"),
    Floor("kernels/semiring", frozenset({"cuda"})),
    Floor("kernels/rows"),
    Floor("kernels/expression"),
    Floor("kernels/table"),
    Floor("kernels/call"),
    Floor("kernels/reference"),
    Floor("sparse/operators"),
    Floor("sparse/tensor"),
    Floor("sparse/kernels/compilation"),
    Floor("sparse/kernels/nest"),
    Floor("sparse/kernels"),
    Floor("sparse/program"),
    Floor("sparse/statistics"),
    Floor("sparse/logical"),
    Floor("sparse/physical"),
    Floor("sparse"),
    Floor("kernels/threads", _TORCH),
    Floor("kernels/processor", _TORCH),
    Floor("kernels/products", _TORCH),
    Floor("kernels/fusion", _TORCH),
    Floor("kernels/pairs", _DEVICE),
    Floor("kernels/dense", _DEVICE),
    Floor("kernels/sparse", _TORCH),
    Floor("kernels/torch_call", _TORCH),
    Floor("relation"),
    Floor("ia"),
    Floor("ia/analysis"),
    Floor("ia/transforms"),
    Floor("tra"),
    Floor("einsum"),
    Floor("einsum/notation"),
    Floor("einsum/transforms"),
    Floor("einsum/gradients"),
    Floor("einsum/json", frozenset({"nlohmann"})),
    Floor("optimizer/cost"),
    Floor("optimizer/min_sum"),
    Floor("optimizer/division"),
    Floor("optimizer/layouts"),
    Floor("optimizer/model"),
    Floor("optimizer/resharding"),
    Floor("optimizer/rules"),
    Floor("optimizer/lowering"),
    Floor("optimizer/solvers"),
    Floor("optimizer/eindecomp"),
    Floor("optimizer/verification"),
    Floor("optimizer/reuse"),
    Floor("optimizer"),
    Floor("runtime/storage", _DEVICE),
    Floor("runtime/communication/links"),
    Floor("runtime/communication/shared_memory"),
    Floor("runtime/communication/sockets"),
    Floor("runtime/communication/watch", _DEVICE),
    Floor("runtime/communication", _DEVICE),
    Floor("runtime/communication/moves", _DEVICE),
    Floor("runtime/execution/local", _DEVICE),
    Floor("runtime/execution", _DEVICE),
    Floor("bindings", _TORCH | {"pybind11"}),
)

# Neither reaches the other, whichever stands lower in the table.
APART = (("optimizer", "runtime"),)

PYTHON = (
    Floor("base"),
    Floor("cluster"),
    Floor("sparse"),
    Floor("algebra"),
    Floor("graphs"),
    Floor("planner/baselines"),
    Floor("planner"),
    Floor("execution"),
    Floor("distributed"),
    Floor("capture/recording"),
    Floor("capture/decompositions"),
    Floor("capture/rules"),
    Floor("capture/operators"),
    Floor("capture"),
    Floor("frontend/tracing"),
    Floor("frontend"),
    Floor("frontend/training"),
    Floor("ist/layers"),
    Floor("ist/subnets"),
    Floor("ist/exchange"),
    Floor("ist"),
    Floor("explanation"),
    Floor("nn"),
    Floor(ROOT),
    # Clients of the public names.
    Floor("extreme", only=frozenset({ROOT})),
    Floor("cli"),
)
