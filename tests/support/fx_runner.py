"""A runner of captured graphs for tests of the ways in: torch.fx's interpreter on whole tensors, with results that are
to stay cut in blocks. It knows no plans; what it computes is torch's."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import joinsum
import pytest
import torch
from joinsum import _C
from joinsum.dtypes import dtype_name
from joinsum.frontend import runner as runners
from joinsum.frontend.distributed_tensor import DistributedTensor, gathered

graphs: list[torch.fx.GraphModule] = []


def use(monkeypatch: pytest.MonkeyPatch, plans: bool) -> None:
    """Runs captured graphs by their plans, or by this runner; `graphs` notes them either way."""
    if not plans:
        monkeypatch.setattr(runners, "compile_fx", compile_fx)
        monkeypatch.setattr(runners, "rewrite", rewrite)
        return
    original = runners.compile_fx

    def noting(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], **options: Any) -> Any:
        graphs.append(gm)
        return original(gm, example_inputs, **options)

    monkeypatch.setattr(runners, "compile_fx", noting)


def cut_type(shape: Sequence[int], dtype: torch.dtype) -> _C.PhysicalType:
    """The longest axis in as many parts as there are sites, or as it has elements."""
    here = joinsum.context()
    axis = max(range(len(shape)), key=lambda a: shape[a], default=0)
    parts = [max(1, min(here.sites, n)) if a == axis else 1 for a, n in enumerate(shape)]
    relation = _C.RelationType.of_tensor(dtype_name("test", dtype), list(shape), parts)
    whole = max(parts, default=1) == here.sites
    state = str(axis) if whole and shape else "*"
    place = _C.Placement.parse(f"({', '.join([state] * len(here.grid.axes))})", here.grid, relation.frontier)
    return _C.PhysicalType.placed("test", relation, here.grid, place)


class InterpretedRunner:
    def __init__(self, gm: torch.fx.GraphModule, inputs: Sequence[Any], ties: Mapping[int, int], stay: frozenset[int]):
        self.gm, self.ties, self.stay = gm, ties, stay
        self.strides = [x.stride() if isinstance(x, torch.Tensor) else None for x in inputs]
        self.input_types = [cut_type(x.shape, x.dtype) if isinstance(x, torch.Tensor) else None for x in inputs]

    def __call__(self, args: Sequence[Any]) -> list[torch.Tensor]:
        whole = [self._whole(x, i) if isinstance(x, torch.Tensor) else x for i, x in enumerate(args)]
        with torch.no_grad():
            made = torch.fx.Interpreter(self.gm).run(*whole)
        for into in self.ties.values():
            if isinstance(args[into], DistributedTensor):
                args[into].stored.take()  # as a run that overwrites its input does
        return [self._result(i, x) for i, x in enumerate(made)]

    def _whole(self, x: torch.Tensor, i: int) -> torch.Tensor:
        """The tensor; from blocks, with the strides that the graph was traced with: its views may need them."""
        strides = self.strides[i]
        if not isinstance(x, DistributedTensor) or strides is None:
            return x
        return torch.empty_strided(x.shape, strides, dtype=x.dtype).copy_(gathered(x))

    def _result(self, i: int, x: torch.Tensor) -> torch.Tensor:
        return DistributedTensor.place(x, cut_type(x.shape, x.dtype)) if i in self.stay else x.clone()


def compile_fx(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    names: Sequence[str] | None,
    ties: Mapping[int, int],
    stay: Collection[int],
    state: Collection[int] | None = None,
    replicate: Collection[str] = (),
) -> InterpretedRunner:
    gm.graph.lint()
    assert names is None or len(names) == len(example_inputs)
    assert not any(
        isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable for node in gm.graph.nodes
    )
    assert len(set(ties.values())) == len(ties)
    assert set(ties) <= set(stay)
    assert state is None or set(state) <= set(range(len(example_inputs)))
    graphs.append(gm)
    return InterpretedRunner(gm, example_inputs, ties, frozenset(stay))


def rewrite(gm: torch.fx.GraphModule) -> None:
    """Contractions stay torch's."""
