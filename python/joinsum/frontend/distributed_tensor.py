"""Tensors of the full shape whose elements lie in blocks on the sites."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from joinsum import _C
from joinsum.context import Context, context
from joinsum.dtypes import dtype_name, torch_dtype
from joinsum.errors import PlanError
from joinsum.frontend import dcp_blocks, one_block
from joinsum.frontend.distributed_operators import dispatch
from joinsum.relation import relation
from joinsum.stored import Place, StoredRelation

__all__ = ["DistributedTensor", "atoms_of", "gathered", "of_parts", "replace_tensor"]


class DistributedTensor(torch.Tensor):
    """A tensor of the full logical shape, of which each site keeps its blocks. Plans give them: parameters after
    `joinsum.distribute`, moments of `joinsum.train_step`.

    Elementwise operators, in place too, and those of lists of tensors (`torch._foreach_*`) act on the blocks, where the
    operands lie alike; norms, sums, `mean`, `max`, `min`, `any` and `all` of all elements give plain tensors. Every
    other operator raises PlanError: it takes `x.full_tensor()`. `requires_grad` and `grad` are as of any tensor; a
    gradient lies as its tensor does. They are not pickled; `joinsum.save_checkpoint` and torch.distributed.checkpoint
    write the blocks.

    On a process group all ranks make the same calls.

    >>> import joinsum, torch
    >>> _ = joinsum.init(sites=2)
    >>> x = joinsum.DistributedTensor.of(torch.arange(4.), parts=2)
    >>> x
    DistributedTensor(f32[4]<2> on 2 (0))
    >>> _ = x.mul_(2).add_(x)
    >>> x.sum(), x.full_tensor()
    (tensor(24.), tensor([ 0.,  4.,  8., 12.]))
    >>> x.sort()
    Traceback (most recent call last):
    ...
    joinsum.PlanError: DistributedTensor: no operator on blocks: operator=aten.sort.default; give x.full_tensor(), on \
every rank
    """

    _stored: StoredRelation

    # Tensors of which this one, kept for a backward pass, is a view, each with its version then.
    written_with: tuple[tuple[torch.Tensor, int], ...] = ()

    @staticmethod
    def __new__(
        cls, stored: StoredRelation, shape: Sequence[int] | None = None, requires_grad: bool = False
    ) -> DistributedTensor:
        """shape   of the tensor, whose axes are products of the relation's; by default those themselves"""
        type_ = stored.type
        if type_.placement.pending or not type_.relation.continuous:
            raise PlanError(f"DistributedTensor: blocks are no parts of one tensor: type={type_}")
        extents = [axis.extent for axis in type_.relation.axes] if shape is None else shape
        return cls._wrapped(stored, extents, torch_dtype(type_.relation.dtype), _device(stored), requires_grad)

    @classmethod
    def _wrapped(
        cls,
        stored: StoredRelation,
        shape: Sequence[int],
        dtype: torch.dtype,
        device: torch.device,
        requires_grad: bool = False,
    ) -> DistributedTensor:
        made: DistributedTensor = torch.Tensor._make_wrapper_subclass(
            cls, shape, dtype=dtype, device=device, requires_grad=requires_grad
        )
        made._stored = stored
        return made

    @classmethod
    def of_array(cls, array: torch.Tensor, type_: _C.PhysicalType, here: Context) -> DistributedTensor:
        """The tensor whose only block on the sites there are is `array`, of its shape: shared, not copied."""
        return cls._wrapped(StoredRelation.of_array(array, type_, here), array.shape, array.dtype, array.device)

    def with_blocks(self, blocks: Sequence[torch.Tensor], dtype: torch.dtype | None = None) -> DistributedTensor:
        """A tensor that lies as this one, whose blocks in this process are these, of `dtype` if there are none; shared,
        not copied."""
        here, type_ = self._stored.context, self._stored.type
        made = blocks[0].dtype if blocks else dtype or self.dtype
        if made is not self.dtype:
            type_ = retyped(type_, made)
        if len(blocks) == 1:
            stored = StoredRelation.of_array(blocks[0], type_, here)
        else:
            stored = StoredRelation(_C.place_blocks(list(blocks), type_, here.local_sites, here.store), here)
        return self._wrapped(stored, self.shape, made, self.device)

    def alias(self) -> DistributedTensor:
        """Another tensor of the same blocks, detached."""
        return self._wrapped(self._stored, self.shape, self.dtype, self.device)

    @classmethod
    def of(
        cls, tensor: torch.Tensor, parts: int | Sequence[int] | None = None, place: Place | None = None
    ) -> DistributedTensor:
        """A copy of `tensor` (equal on every rank) on the sites, cut as `joinsum.relation` cuts it.

        parts   for each axis, into how many parts it is cut; by default in one
        place   text, a list, or "replicated", as in `joinsum.relation`

        Raises PlanError for a tensor without data, for parts that do not fit, and for a place of other sites.

        >>> import joinsum, torch
        >>> _ = joinsum.init(sites=4)
        >>> joinsum.DistributedTensor.of(torch.ones(6, 4), parts=(2, 2), place=[0, "*"])
        DistributedTensor(f32[6,4]<2,2> on 2x2 (0, *))
        """
        stored = relation(tensor.detach(), parts=parts, place=place).stored()
        return cls.place(tensor, stored.type)

    @classmethod
    def place(cls, tensor: torch.Tensor, type_: _C.PhysicalType) -> DistributedTensor:
        """A copy of a whole tensor (equal on every rank) in blocks as `type_` has them; moves nothing between sites.

        Raises PlanError for another shape or dtype.
        """
        here = context()
        wanted = torch_dtype(type_.relation.dtype)
        if tensor.dtype is not wanted:
            raise PlanError(f"DistributedTensor: another dtype: wanted={wanted}, given={tensor.dtype}")
        whole = tensor.detach().resolve_conj().resolve_neg()
        core = _C.place_tensor(whole, type_, here.local_sites, here.store, True)
        return cls(StoredRelation(core, here), tensor.shape)

    @property
    def stored(self) -> StoredRelation:
        """The relation of the blocks."""
        return self._stored

    @property
    def data(self) -> torch.Tensor:
        """The same blocks outside of autograd. Another distributed tensor may be assigned, also one of another dtype:
        its blocks are then this one's too.

        Raises PlanError where a plain tensor is assigned; `x.copy_(y)` takes its elements.
        """
        found: torch.Tensor = torch.Tensor.data.__get__(self)  # type: ignore[attr-defined]
        return found

    @data.setter
    def data(self, other: torch.Tensor) -> None:
        if not isinstance(other, DistributedTensor):
            raise PlanError(
                f"DistributedTensor: data is a distributed tensor: assigned={type(other).__name__}; write its "
                "elements, x.copy_(y), under torch.no_grad()"
            )
        torch.Tensor.data.__set__(self, other)  # type: ignore[attr-defined]
        self._stored = other._stored

    @property
    def physical_type(self) -> _C.PhysicalType:
        """Type and placement; prints as in plans: `f32[4]<2> on 2 (0)`."""
        return self._stored.type

    @property
    def context(self) -> Context:
        """The sites that keep it."""
        return self._stored.context

    def blocks(self) -> list[torch.Tensor]:
        """The arrays on the sites of this process, site by site: views, through which the tensor is written.

        Raises PlanError where a run has overwritten it.
        """
        return self._stored.blocks()

    def full_tensor(self) -> torch.Tensor:
        """The whole tensor on every rank, as a copy, in autograd; all ranks call.

        >>> import joinsum, torch
        >>> _ = joinsum.init(sites=3)
        >>> x = joinsum.DistributedTensor.of(torch.ones(5), parts=3).requires_grad_()
        >>> (x.full_tensor() * torch.arange(5.)).sum().backward()
        >>> x.grad
        DistributedTensor(f32[5]<3> on 3 (0))
        """
        if torch.is_grad_enabled() and self.requires_grad:
            made: torch.Tensor = _Gather.apply(self)  # type: ignore[no-untyped-call]
            return made
        return self.whole()

    def whole(self) -> torch.Tensor:
        """The whole tensor on every rank, as a copy, detached; all ranks call."""
        return self._stored.to_tensor().reshape(self.shape)

    def like(self, type_: _C.PhysicalType) -> DistributedTensor:
        """The same elements in blocks as another type has them (its shape and dtype are this one's); itself if they lie
        so. Moves what is missing; all ranks call."""
        if type_ == self.physical_type:
            return self
        if type_.relation == self.physical_type.relation:
            return DistributedTensor(self._stored.move(type_.placement), self.shape)
        return DistributedTensor.place(self.whole(), type_)

    def adopt(self, other: DistributedTensor) -> None:
        """Takes the blocks of `other`, of the same shape and dtype, for its own; the tensor object stays."""
        if other.shape != self.shape or other.dtype is not self.dtype:
            raise PlanError(
                f"DistributedTensor: another shape or dtype: own={self.physical_type}, given={other.physical_type}"
            )
        self._stored = other._stored

    def share_replicas(self) -> None:
        """Makes replicas on the sites of this process one array each."""
        here, core = self.context, self._stored.core()
        shared = _C.place_tuples(core.tuples(here.store), self.physical_type, here.local_sites, here.store, True)
        self._stored = StoredRelation(shared, here)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        asks = ", requires_grad=True" if self.requires_grad else ""
        taken = "" if self._stored.alive else ", overwritten"
        return f"DistributedTensor({self.physical_type}{taken}{asks})"

    def __deepcopy__(self, memo: dict[int, Any]) -> DistributedTensor:
        if id(self) in memo:
            found: DistributedTensor = memo[id(self)]
            return found
        if not self.is_leaf:
            raise PlanError("DistributedTensor: only leaves of autograd are copied deeply; give x.detach()")
        with torch.no_grad():
            made: DistributedTensor = self.detach().clone()  # type: ignore[assignment]
        made.requires_grad_(self.requires_grad)
        if isinstance(self, torch.nn.Parameter):
            made._is_param = True
        memo[id(self)] = made
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise PlanError(
            "DistributedTensor: not pickled, its blocks are on the sites; save with joinsum.save_checkpoint or "
            f"torch.distributed.checkpoint, or give x.full_tensor(): type={self.physical_type}"
        )

    # What torch.distributed.checkpoint asks of a tensor in blocks.

    def __create_write_items__(self, fqn: str, object: Any) -> list[Any]:
        return dcp_blocks.write_items(self, fqn)

    def __create_chunk_list__(self) -> list[Any]:
        return dcp_blocks.chunks(self)

    def __get_tensor_shard__(self, index: Any) -> torch.Tensor:
        return dcp_blocks.shard(self, index)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return dispatch(func, args, kwargs or {})

    # Views and operators of subclasses give what dispatch says.
    __torch_function__: Callable[..., Any] = torch._C._disabled_torch_function_impl


for _name in (*one_block.IN_PLACE, *one_block.NEW):
    setattr(DistributedTensor, _name, one_block.on_blocks(_name))


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: DistributedTensor) -> torch.Tensor:
        ctx.physical_type = x.physical_type
        return x.whole()

    @staticmethod
    def backward(ctx: Any, *arrived: torch.Tensor) -> DistributedTensor:
        return DistributedTensor.place(arrived[0], ctx.physical_type)


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


def atoms_of(tensor: DistributedTensor) -> list[list[int]]:
    """For each axis the extents of the relation's axes that it is the product of, row-major; none where it has one
    element.

    >>> import joinsum, torch
    >>> _ = joinsum.init(sites=2)
    >>> heads = joinsum.relation(torch.ones(4, 3, 1), parts=(2, 1, 1)).stored()
    >>> atoms_of(DistributedTensor(heads, (12, 1)))
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


def of_parts(part: torch.Tensor) -> DistributedTensor:
    """The tensor of which each rank of a process group has a part, all of one shape: its first axis runs through them,
    rank by rank. Shares the part's memory and moves nothing; detached. Raises PlanError for a part without elements."""
    here = context()
    if part.numel() == 0:
        raise PlanError(f"DistributedTensor: a rank's part has no elements: shape={list(part.shape)}")
    shape = [here.sites * part.shape[0], *part.shape[1:]]
    name = dtype_name("DistributedTensor", part.dtype)
    wanted = _C.RelationType.of_tensor(name, shape, [here.sites] + [1] * (len(shape) - 1))
    split = ", ".join("0" for _ in here.grid.axes)
    type_ = _C.PhysicalType.placed(
        "DistributedTensor", wanted, here.grid, _C.Placement.parse(f"({split})", here.grid, wanted.frontier)
    )
    own = part.detach().resolve_conj().resolve_neg().contiguous()
    return DistributedTensor(StoredRelation(_C.place_blocks([own], type_, here.local_sites, here.store), here), shape)


def gathered(tensor: torch.Tensor) -> torch.Tensor:
    """The whole tensor, detached; a plain one is given back."""
    return tensor.whole() if isinstance(tensor, DistributedTensor) else tensor.detach()


def replace_tensor(old: torch.Tensor, new: torch.Tensor) -> None:
    """Makes `old` be `new`, so that all who know it (modules, optimizers) see that: the same Python object, the same
    `requires_grad` and hooks, a parameter if it was one. Its gradient becomes one of the same kind.

    Raises PlanError where a result in autograd still needs the old one.
    """
    grad = old.grad
    asks = old.requires_grad
    hooks, last_hooks = old._backward_hooks, old._post_accumulate_grad_hooks
    made = torch.nn.Parameter(new, requires_grad=asks) if isinstance(old, torch.nn.Parameter) else new
    if grad is not None:
        whole = gathered(grad)
        made.grad = DistributedTensor.place(whole, new.physical_type) if isinstance(new, DistributedTensor) else whole
    try:
        torch.utils.swap_tensors(old, made)  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        raise PlanError(
            f"model: a tensor is needed by a result that is still in autograd: shape={list(old.shape)}; before, run "
            "the backward pass of what the model has computed or drop it (del loss), and let the model keep no such "
            "result in an attribute"
        ) from error
    if hooks:
        old._backward_hooks = hooks
    if last_hooks:
        old._post_accumulate_grad_hooks = last_hooks
