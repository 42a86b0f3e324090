"""The data of distributed tensors, without their operators: a shape, and blocks on the sites."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, TypeVar

import torch

from joinsum import _C
from joinsum.algebra.stored_relation import StoredRelation
from joinsum.base.dtypes import dtype_name, torch_dtype
from joinsum.base.errors import PlanError
from joinsum.cluster.context import Context, context

__all__ = ["BlockTensor", "axis_factors", "is_distributed", "relations_of", "retyped"]

Own = TypeVar("Own", bound="BlockTensor")


class BlockTensor(torch.Tensor):
    """Shape, dtype, device and blocks. `DistributedTensor` is the one subclass; it adds operators and autograd."""

    _stored: StoredRelation

    # Set when `form` is first read. That changes only with all attributes, in torch.utils.swap_tensors, or by an
    # assignment of `data`, which clears it.
    _form: tuple[torch.Size, torch.dtype, torch.device] | None = None

    # Whether this is a copy where torch has a view, so that writing into it would be lost.
    read_only: bool = False

    # What it is a view of, where that is a distributed tensor; see numbers_in_views.py.
    origin: Any = None

    # Not empty where it was stored for a tensor without memory and has not been written; shared with aliases.
    lacking_values: Sequence[None] = ()

    # Tensors of which this one, saved for backward, is a view, each with its version at that time.
    written_with: tuple[tuple[torch.Tensor, int], ...] = ()

    @staticmethod
    def __new__(
        cls: type[Own], stored: StoredRelation, shape: Sequence[int] | None = None, requires_grad: bool = False
    ) -> Own:
        """shape   of the tensor, whose axes are products of the relation's; by default those themselves"""
        type_ = stored.type
        if type_.placement.pending or not type_.relation.continuous:
            raise PlanError(f"DistributedTensor: the relation is not one tensor: type={type_}")
        extents = [axis.extent for axis in type_.relation.axes] if shape is None else shape
        return cls._wrapped(stored, extents, torch_dtype(type_.relation.dtype), _device(stored), requires_grad)

    @classmethod
    def _wrapped(
        cls: type[Own],
        stored: StoredRelation,
        shape: Sequence[int],
        dtype: torch.dtype,
        device: torch.device,
        requires_grad: bool = False,
    ) -> Own:
        tensor: Own = torch.Tensor._make_wrapper_subclass(
            cls, shape, dtype=dtype, device=device, requires_grad=requires_grad
        )
        tensor._stored = stored
        return tensor

    @classmethod
    def of_array(cls: type[Own], array: torch.Tensor, type_: _C.PhysicalType, current: Context) -> Own:
        """The tensor whose only block on the sites there are is `array`, of its shape: shared, not copied."""
        return cls._wrapped(StoredRelation.of_array(array, type_, current), array.shape, array.dtype, array.device)

    def with_blocks(self: Own, blocks: Sequence[torch.Tensor], dtype: torch.dtype | None = None) -> Own:
        """A tensor of this one's shape and layout whose blocks in this process are these, of `dtype` if there are none;
        they are shared, not copied."""
        current, type_ = self._stored.context, self._stored.type
        own = blocks[0].dtype if blocks else dtype or self.dtype
        if own is not self.dtype:
            type_ = retyped(type_, own)
        if len(blocks) == 1:
            stored = StoredRelation.of_array(blocks[0], type_, current)
        else:
            stored = StoredRelation(_C.place_blocks(list(blocks), type_, current.local_sites, current.store), current)
        return self._wrapped(stored, self.shape, own, self.device)

    def alias(self: Own) -> Own:
        """Another tensor of the same blocks, detached."""
        other = self._wrapped(self._stored, self.shape, self.dtype, self.device)
        if self.read_only:
            other.read_only = True
        if self.lacking_values:
            other.lacking_values = self.lacking_values
        return other

    @classmethod
    def stored_as(cls: type[Own], tensor: torch.Tensor, type_: _C.PhysicalType) -> Own:
        """A copy of an unsharded tensor (equal on every rank) in the blocks of `type_`; moves nothing between sites.

        Raises PlanError for another shape or dtype.
        """
        current = context()
        wanted = torch_dtype(type_.relation.dtype)
        if tensor.dtype is not wanted:
            raise PlanError(f"DistributedTensor: another dtype: wanted={wanted}, tensor={tensor.dtype}")
        values = tensor.detach().resolve_conj().resolve_neg()
        core = _C.place_tensor(values, type_, current.local_sites, current.store, True)
        return cls(StoredRelation(core, current), tensor.shape)

    @property
    def stored(self) -> StoredRelation:
        """The relation of the blocks."""
        return self._stored

    @property
    def form(self) -> tuple[torch.Size, torch.dtype, torch.device]:
        """Shape, dtype and device; the same object for as long as they are the same."""
        if self._form is None:
            self._form = self.shape, self.dtype, self.device
        return self._form

    @property
    def physical_type(self) -> _C.PhysicalType:
        """Type and placement; prints as in plans: `f32[4]<2> on 2 (0)`."""
        return self._stored.type

    @property
    def context(self) -> Context:
        """The sites that store it."""
        return self._stored.context

    def blocks(self) -> list[torch.Tensor]:
        """The arrays on the sites of this process, site by site: views, through which the tensor is written.

        Raises PlanError where a run has overwritten it.
        """
        return self._stored.blocks()

    def unsharded(self) -> torch.Tensor:
        """A copy of the unsharded tensor on every rank, detached; all ranks call."""
        return self._stored.to_tensor().reshape(self.shape)

    def like(self: Own, type_: _C.PhysicalType) -> Own:
        """The same elements in blocks as another type has them (its shape and dtype are this one's); itself if it has
        that layout. Moves what is missing; all ranks call."""
        if type_ == self.physical_type:
            return self
        if type_.relation == self.physical_type.relation:
            return type(self)(self._stored.move(type_.placement), self.shape)
        return self.stored_as(self.unsharded(), type_)

    def adopt(self, other: BlockTensor) -> None:
        """Replaces the blocks by those of `other`, of the same shape and dtype; the tensor object stays."""
        if other.shape != self.shape or other.dtype is not self.dtype:
            raise PlanError(
                f"DistributedTensor: another shape or dtype: own={self.physical_type}, other={other.physical_type}"
            )
        self._stored = other._stored

    def store(self, stored: StoredRelation) -> None:
        """Replaces the blocks by those of a relation of the same elements, in any layout."""
        self._stored = stored

    def share_replicas(self) -> None:
        """Makes replicas on the sites of this process one array each."""
        current, core = self.context, self._stored.core()
        shared = _C.place_tuples(core.tuples(), self.physical_type, current.local_sites, current.store, True)
        self._stored = StoredRelation(shared, current)

    # Results of operators have the class that `__torch_dispatch__` gives them.
    __torch_function__: Callable[..., Any] = torch._C._disabled_torch_function_impl


_stored_of: Callable[[BlockTensor], StoredRelation] = attrgetter("_stored")


def relations_of(tensors: Sequence[Any]) -> list[StoredRelation] | None:
    """The relation of each tensor, if all are distributed."""
    if not all(isinstance(x, BlockTensor) for x in tensors):
        return None
    return list(map(_stored_of, tensors))


def is_distributed(x: object) -> bool:
    """Whether it is a DistributedTensor."""
    return isinstance(x, BlockTensor)


def _device(stored: StoredRelation) -> torch.device:
    blocks = stored.blocks()
    return blocks[0].device if blocks else stored.context.device


def retyped(type_: _C.PhysicalType, dtype: torch.dtype) -> _C.PhysicalType:
    """The same blocks, of another dtype."""
    relation_ = type_.relation
    name = dtype_name("DistributedTensor", dtype)
    if relation_.dtype == name:
        return type_
    other = _C.RelationType.make("DistributedTensor", name, relation_.frontier, relation_.axes, relation_.all_keys())
    return _C.PhysicalType.placed("DistributedTensor", other, type_.grid, type_.placement)


def axis_factors(tensor: BlockTensor) -> list[list[int]]:
    """For each axis the extents of the relation's axes that it is the product of, row-major; none where it has one
    element.

    >>> import joinsum, torch
    >>> _ = joinsum.init(sites=2)
    >>> heads = joinsum.relation(torch.ones(4, 3, 1), parts=(2, 1, 1)).stored()
    >>> axis_factors(joinsum.DistributedTensor(heads, (12, 1)))
    [[4, 3], []]
    """
    left = [axis.extent for axis in tensor.physical_type.relation.axes if axis.extent != 1]
    out: list[list[int]] = []
    for extent in tensor.shape:
        out.append([])
        while extent > 1:
            out[-1].append(left.pop(0))
            extent //= out[-1][-1]
    return out
