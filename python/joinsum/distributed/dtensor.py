"""Distributed tensors as torch's DTensors, and back, without a copy, where both can express the layout."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard

from joinsum import _C
from joinsum.algebra.stored_relation import StoredRelation, fitted_type
from joinsum.base.dtypes import dtype_name
from joinsum.base.errors import PlanError
from joinsum.cluster.context import Context, context
from joinsum.distributed.distributed_tensor import DistributedTensor

__all__ = ["from_dtensor", "to_dtensor"]

Chunk = tuple[tuple[int, ...], tuple[int, ...]]  # shape and offsets of one rank's shard


def to_dtensor(tensor: DistributedTensor, mesh: DeviceMesh | None = None) -> DTensor:
    """The same elements as a DTensor, which shares their memory; detached.

    mesh   of the sites of `joinsum.init`, whose dimensions are products of consecutive axes of the grid; by default a
           new one (a collective call) that has a dimension for all consecutive axes with the same state

    Raises PlanError on loopback, where one process has several sites, and where no DTensor on the mesh has this layout:
    for cut points that are not torch.chunk's, several blocks on a site, a site without any.
    """
    current = _group_context("to_dtensor", tensor.context)
    states = tensor.physical_type.placement.states
    mesh = mesh if mesh is not None else _mesh(current, tensor.device.type, states)
    placements = _placements(tensor, states, _grid_axes("to_dtensor", current, list(mesh.shape)))
    blocks = tensor.blocks()
    for rank in range(current.sites):
        own, dtensors = _local_chunk(tensor, rank), _dtensor_chunk(tensor.shape, mesh, placements, rank)
        if own != dtensors:
            raise PlanError(
                "to_dtensor: no DTensor has these blocks; give distribute_tensor(x.full_tensor(), ...): "
                f"type={tensor.physical_type}, rank={rank}, block={own}, DTensor's={dtensors}"
            )
    held = _local_chunk(tensor, current.local_sites[0])
    assert held is not None
    local = blocks[0].reshape(held[0])
    stride = torch.empty(tensor.shape, device="meta").stride()
    return DTensor.from_local(local, mesh, placements, run_check=False, shape=tensor.shape, stride=stride)


def from_dtensor(dtensor: DTensor) -> DistributedTensor:
    """The same elements on joinsum's sites, sharing their memory; detached.

    Raises PlanError for a mesh of other ranks than the sites, one whose dimensions are no products of consecutive axes
    of the grid, partial sums, and shards that are no plain pieces of one axis.
    """
    current = _group_context("from_dtensor", context())
    mesh = dtensor.device_mesh
    assert current.group is not None
    if mesh.mesh.flatten().tolist() != dist.get_process_group_ranks(current.group):
        raise PlanError(f"from_dtensor: a mesh of other ranks than the sites: mesh={mesh}, sites={current.sites}")
    groups = _grid_axes("from_dtensor", current, list(mesh.shape))
    axis_dims: dict[int, int] = {}  # the tensor's axis that a grid axis divides
    for dim, placement in enumerate(dtensor.placements):
        if isinstance(placement, Partial) or not isinstance(placement, (Replicate, Shard)):
            raise PlanError(f"from_dtensor: not in blocks; redistribute it first: placement={placement}")
        if isinstance(placement, Shard):
            for axis in groups[dim]:
                axis_dims[axis] = placement.dim % dtensor.dim()
    relation = _chunked("from_dtensor", dtensor)
    states = [
        _C.Split(axis_dims[axis], relation.frontier[axis_dims[axis]]) if axis in axis_dims else _C.Replicated()
        for axis in range(len(current.grid.axes))
    ]
    place = _C.Placement.of_states(states)
    type_ = _C.PhysicalType.placed("from_dtensor", relation, current.grid, place)
    local = dtensor.to_local().detach()
    core = _C.place_blocks([local], type_, current.local_sites, current.store)
    tensor = DistributedTensor(StoredRelation(core, current))
    for rank in range(current.sites):
        if _local_chunk(tensor, rank) != _dtensor_chunk(dtensor.shape, mesh, dtensor.placements, rank):
            raise PlanError(f"from_dtensor: shards in another order than blocks: placements={dtensor.placements}")
    return tensor


def _group_context(who: str, current: Context) -> Context:
    if current.group is None:
        raise PlanError(f"{who}: a DTensor has one site per process; run under torchrun: sites={current}")
    return current


def _mesh(current: Context, device: str, states: Sequence[_C.AxisState]) -> DeviceMesh:
    """A mesh with a dimension for each run of grid axes with the same state."""
    shape: list[int] = []
    for axis, size in enumerate(current.grid.axes):
        if axis > 0 and states[axis] == states[axis - 1]:
            shape[-1] *= size
        else:
            shape.append(size)

    def make() -> DeviceMesh:
        assert current.group is not None
        ranks = torch.tensor(dist.get_process_group_ranks(current.group))
        return DeviceMesh(device, ranks.reshape(shape or [1]))

    return current.cached(("mesh", device, *shape), make)


def _grid_axes(who: str, current: Context, mesh: Sequence[int]) -> list[list[int]]:
    """For each dimension of a mesh, the grid's axes whose product it is."""
    out: list[list[int]] = []
    axes = iter(range(len(current.grid.axes)))
    for size in mesh:
        taken: list[int] = []
        while math.prod(current.grid.axes[axis] for axis in taken) < size:
            axis = next(axes, None)
            if axis is None:
                break
            taken.append(axis)
        if math.prod(current.grid.axes[axis] for axis in taken) != size:
            raise PlanError(f"{who}: a mesh's dimensions are products of grid axes: mesh={mesh}, grid={current.grid}")
        out.append(taken)
    if next(axes, None) is not None:
        raise PlanError(f"{who}: a mesh of other ranks than the sites: mesh={mesh}, grid={current.grid}")
    return out


def _chunked(who: str, dtensor: DTensor) -> _C.RelationType:
    """The relation whose axes are cut as the dimensions of the mesh cut them, one after another, by torch.chunk."""
    sizes = [[extent] for extent in dtensor.shape]
    for count, placement in zip(dtensor.device_mesh.shape, dtensor.placements, strict=True):
        if isinstance(placement, Shard):
            axis = placement.dim % dtensor.dim()
            sizes[axis] = [size for extent in sizes[axis] for size in _chunk_sizes(extent, count)]
    keys = list(itertools.product(*(range(len(each)) for each in sizes)))
    shapes = [[sizes[axis][k] for axis, k in enumerate(key)] for key in keys]
    return fitted_type(who, dtype_name(who, dtensor.dtype), keys, shapes, list(range(dtensor.dim())))


def _chunk_sizes(extent: int, count: int) -> list[int]:
    """The extents that torch.chunk gives each of `count` ranks: `_chunk_sizes(9, 4)` is [3, 3, 3, 0]."""
    step = -(-extent // count)
    return [max(0, min(step, extent - i * step)) for i in range(count)]


def _placements(
    tensor: DistributedTensor, states: Sequence[_C.AxisState], groups: Sequence[Sequence[int]]
) -> list[Placement]:
    """The placement on each dimension of a mesh, which stands for a group of the grid's axes."""
    type_ = tensor.physical_type
    axes = {axis.key_dim: a for a, axis in enumerate(type_.relation.axes)}
    out: list[Placement] = []
    for group in groups:
        found = {states[axis] for axis in group} or {_C.Replicated()}
        state = next(iter(found))
        divided = isinstance(state, _C.Split) and state.dim in axes and type_.relation.frontier[state.dim] > 1
        if len(found) > 1 or not (divided or isinstance(state, _C.Replicated)):
            raise PlanError(
                f"to_dtensor: no placement on the mesh has this layout, or some sites have no block: type={type_}, "
                f"grid axes={list(group)}; give distribute_tensor(x.full_tensor(), ...)"
            )
        out.append(Shard(axes[state.dim]) if isinstance(state, _C.Split) else Replicate())
    return out


def _local_chunk(tensor: DistributedTensor, rank: int) -> Chunk | None:
    """A site's block, if it is one box."""
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


def _dtensor_chunk(shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Placement], rank: int) -> Chunk:
    """A DTensor's local shard at a rank's coordinate in the mesh."""
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
