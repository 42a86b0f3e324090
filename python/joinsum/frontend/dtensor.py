"""Distributed tensors as torch's DTensors, and back, where both can say where the elements lie: without a copy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard

from joinsum import _C
from joinsum.context import Context, context
from joinsum.dtypes import dtype_name
from joinsum.errors import PlanError
from joinsum.frontend.distributed_tensor import DistributedTensor
from joinsum.stored import StoredRelation, fitted_type

__all__ = ["from_dtensor", "to_dtensor"]

Chunk = tuple[tuple[int, ...], tuple[int, ...]]  # shape and offsets of what one rank has


def to_dtensor(tensor: DistributedTensor, mesh: DeviceMesh | None = None) -> DTensor:
    """The same elements as a DTensor, which shares their memory; detached.

    mesh   of the sites of `joinsum.init`, whose dimensions are the grid's axes; by default one is made (collective)

    Raises PlanError on loopback, where one process has several sites; and where no DTensor says what lies where: for
    cuts that are not torch.chunk's, several blocks on a site, a site without any.
    """
    here = _group_context("to_dtensor", tensor.context)
    mesh = mesh if mesh is not None else _mesh(here, tensor.device.type)
    if list(mesh.shape) != list(here.grid.axes):
        raise PlanError(f"to_dtensor: a mesh of other axes than the grid: mesh={tuple(mesh.shape)}, grid={here.grid}")
    blocks = tensor.blocks()
    states = tensor.physical_type.placement.text(tensor.physical_type.relation.frontier).strip("()").split(",")
    placements = _placements(tensor, [state.strip() for state in states if state.strip()])
    for rank in range(here.sites):
        own, dtensors = _held(tensor, rank), _chunk(tensor.shape, mesh, placements, rank)
        if own != dtensors:
            raise PlanError(
                "to_dtensor: no DTensor has these blocks; give distribute_tensor(x.full_tensor(), ...): "
                f"type={tensor.physical_type}, rank={rank}, block={own}, DTensor's={dtensors}"
            )
    held = _held(tensor, here.local_sites[0])
    assert held is not None
    local = blocks[0].reshape(held[0])
    return DTensor.from_local(
        local, mesh, placements, run_check=False, shape=tensor.shape, stride=_strides(tensor.shape)
    )


def from_dtensor(dtensor: DTensor) -> DistributedTensor:
    """The same elements on joinsum's sites, sharing their memory; detached.

    Raises PlanError for a mesh of other ranks than the sites, one whose dimensions are no products of consecutive axes
    of the grid, partial sums, and shards that are no plain pieces of one axis.
    """
    here = _group_context("from_dtensor", context())
    mesh = dtensor.device_mesh
    assert here.group is not None
    if mesh.mesh.flatten().tolist() != dist.get_process_group_ranks(here.group):
        raise PlanError(f"from_dtensor: a mesh of other ranks than the sites: mesh={mesh}, sites={here.sites}")
    groups = _grid_axes(here, list(mesh.shape))
    states: list[str] = ["*"] * len(here.grid.axes)
    parts = [1] * dtensor.dim()
    for dim, placement in enumerate(dtensor.placements):
        if isinstance(placement, Partial) or not isinstance(placement, (Replicate, Shard)):
            raise PlanError(f"from_dtensor: not in blocks; redistribute it first: placement={placement}")
        if isinstance(placement, Shard):
            parts[placement.dim % dtensor.dim()] *= mesh.shape[dim]
            for axis in groups[dim]:
                states[axis] = str(placement.dim % dtensor.dim())
    relation = _chunked("from_dtensor", dtensor, parts)
    place = _C.Placement.parse(f"({', '.join(states)})", here.grid, relation.frontier)
    type_ = _C.PhysicalType.placed("from_dtensor", relation, here.grid, place)
    local = dtensor.to_local().detach()
    core = _C.place_blocks([local], type_, here.local_sites, here.store)
    made = DistributedTensor(StoredRelation(core, here))
    for rank in range(here.sites):
        if _held(made, rank) != _chunk(dtensor.shape, mesh, dtensor.placements, rank):
            raise PlanError(f"from_dtensor: shards in an order that blocks have not: placements={dtensor.placements}")
    return made


def _group_context(who: str, here: Context) -> Context:
    if here.group is None:
        raise PlanError(f"{who}: a DTensor has one site per process; run under torchrun: sites={here}")
    return here


def _mesh(here: Context, device: str) -> DeviceMesh:
    def make() -> DeviceMesh:
        assert here.group is not None
        ranks = torch.tensor(dist.get_process_group_ranks(here.group))
        return DeviceMesh(device, ranks.reshape(here.grid.axes or [1]))

    return here.remembered(("mesh", device), make)


def _grid_axes(here: Context, mesh: Sequence[int]) -> list[list[int]]:
    """For each dimension of a mesh, the grid's axes whose product it is."""
    out: list[list[int]] = []
    axes = iter(range(len(here.grid.axes)))
    for size in mesh:
        taken: list[int] = []
        while math.prod(here.grid.axes[axis] for axis in taken) < size:
            axis = next(axes, None)
            if axis is None:
                break
            taken.append(axis)
        if math.prod(here.grid.axes[axis] for axis in taken) != size:
            raise PlanError(
                f"from_dtensor: a mesh's dimensions are products of grid axes: mesh={mesh}, grid={here.grid}"
            )
        out.append(taken)
    return out


def _chunked(who: str, dtensor: DTensor, parts: Sequence[int]) -> _C.RelationType:
    """The relation whose axes are cut as torch.chunk cuts them."""
    sizes = [
        [max(0, min(-(-extent // count), extent - i * -(-extent // count))) for i in range(count)]
        for extent, count in zip(dtensor.shape, parts, strict=True)
    ]
    keys = list(itertools.product(*(range(count) for count in parts)))
    shapes = [[sizes[axis][k] for axis, k in enumerate(key)] for key in keys]
    return fitted_type(who, dtype_name(who, dtensor.dtype), keys, shapes, list(range(dtensor.dim())))


def _placements(tensor: DistributedTensor, states: Sequence[str]) -> list[Placement]:
    axes = {str(axis.key_dim): a for a, axis in enumerate(tensor.physical_type.relation.axes)}
    frontier = tensor.physical_type.relation.frontier
    out: list[Placement] = []
    for state in states:
        split = state in axes and frontier[int(state)] > 1
        if state != "*" and not split:
            raise PlanError(
                f"to_dtensor: some sites have no block, which a DTensor cannot say: type={tensor.physical_type}"
            )
        out.append(Shard(axes[state]) if split else Replicate())
    return out


def _held(tensor: DistributedTensor, rank: int) -> Chunk | None:
    """What a site has, if that is one box."""
    type_ = tensor.physical_type
    keys = [key for key in type_.relation.all_keys() if rank in type_.sites_of(key)]
    if not keys:
        return None
    offsets, shape = [], []
    for axis in type_.relation.axes:
        cuts, dim = axis.cuts, axis.key_dim
        lower, upper = (0, 0) if dim is None else (min(k[dim] for k in keys), max(k[dim] for k in keys))
        offsets.append(0 if dim is None else cuts[lower])
        shape.append(axis.extent if dim is None else cuts[upper + 1] - cuts[lower])
    return tuple(shape), tuple(offsets)


def _chunk(shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Placement], rank: int) -> Chunk:
    """What a DTensor has at a rank's place in the mesh."""
    place = torch.unravel_index(torch.tensor(rank), tuple(mesh.shape))
    sizes, offsets = list(shape), [0] * len(shape)
    for at, count, placement in zip(place, mesh.shape, placements, strict=True):
        if isinstance(placement, Shard):
            dim = placement.dim % len(sizes)
            step = -(-sizes[dim] // count)
            begin = min(int(at) * step, sizes[dim])
            offsets[dim] += begin
            sizes[dim] = min(step, sizes[dim] - begin)
    return tuple(sizes), tuple(offsets)


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
