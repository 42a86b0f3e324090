"""Tensors of the full shape whose elements are stored in blocks on the sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from joinsum import _C
from joinsum.algebra.stored_relation import Place, StoredRelation
from joinsum.base.arguments import shape_text, show
from joinsum.base.dtypes import dtype_name
from joinsum.base.errors import PlanError
from joinsum.cluster.context import context
from joinsum.distributed import dcp_blocks, local_fast_path
from joinsum.distributed.block_tensor import BlockTensor
from joinsum.distributed.operators import dispatch
from joinsum.execution.relation import relation

__all__ = ["DistributedTensor", "from_local_shards", "gathered", "replace_tensor"]


class DistributedTensor(BlockTensor):
    """A tensor of the full logical shape, of which each site stores its blocks. Plans give them: parameters after
    `joinsum.distribute`, moments of `joinsum.train_step`.

    Elementwise operators, in place too, and those of lists of tensors (`torch._foreach_*`) act on the blocks, where
    operands of the same shape have the same layout; smaller ones broadcast. Random numbers in place, as `torch.nn.init`
    draws them, are torch's for the unsharded tensor. Norms, sums, `mean`, `max`, `min`, `any` and `all` of all elements
    give plain tensors. Every other operator that writes into nothing runs as a plan of its own, whose result is a plain
    tensor on every rank; one without a rule raises PlanError. `requires_grad` and `grad` are as of any tensor; a
    gradient has its tensor's layout. In a single process they are pickled as their unsharded tensors (`torch.save`); on
    process groups `joinsum.save_checkpoint` and torch.distributed.checkpoint write the blocks, and
    `joinsum.full_state_dict` gives what can be pickled.

    On a process group all ranks make the same calls.

    >>> import joinsum, torch
    >>> _ = joinsum.init(sites=2)
    >>> x = joinsum.DistributedTensor.of(torch.arange(4.), parts=2)
    >>> x
    DistributedTensor(f32[4]<2> on 2 (0))
    >>> _ = x.mul_(2).add_(x)
    >>> x.sum(), x.full_tensor()
    (tensor(24.), tensor([ 0.,  4.,  8., 12.]))
    >>> x @ x
    tensor(224.)
    >>> torch.nonzero(x)
    Traceback (most recent call last):
    ...
    joinsum.PlanError: DistributedTensor: no operator on blocks: operator=aten.nonzero.default; give x.full_tensor(), \
on every rank
    """

    @classmethod
    def of(
        cls, tensor: torch.Tensor, parts: int | Sequence[int] | None = None, place: Place | None = None
    ) -> DistributedTensor:
        """A copy of `tensor` (equal on every rank) on the sites, in tiles as those of `joinsum.relation`.

        parts   for each axis, the number of its tiles; by default 1
        place   text, a list, or "replicated", as in `joinsum.relation`

        Raises PlanError for a tensor without data, for parts that do not fit, and for a place of other sites.

        >>> import joinsum, torch
        >>> _ = joinsum.init(sites=4)
        >>> joinsum.DistributedTensor.of(torch.ones(6, 4), parts=(2, 2), place=[0, "*"])
        DistributedTensor(f32[6,4]<2,2> on 2x2 (0, *))
        """
        stored = relation(tensor.detach(), parts=parts, place=place).stored()
        return cls.stored_as(tensor, stored.type)

    @property
    def data(self) -> torch.Tensor:
        """The same blocks outside of autograd. Another distributed tensor may be assigned, also one of another dtype:
        its blocks are then this one's too. Of a plain tensor the elements are copied into blocks of the same layout.

        Raises PlanError for a plain tensor of another shape or dtype.
        """
        found: torch.Tensor = torch.Tensor.data.__get__(self)  # type: ignore[attr-defined]
        return found

    @data.setter
    def data(self, other: torch.Tensor) -> None:
        if not isinstance(other, BlockTensor):
            if not isinstance(other, torch.Tensor) or other.shape != self.shape or other.dtype is not self.dtype:
                raise PlanError(
                    f"DistributedTensor: data is a tensor of the same shape and dtype: assigned={show(other)}, "
                    f"shape={shape_text(self)}, dtype={self.dtype}; to give a model's tensors other shapes, make them "
                    "plain before, joinsum.gather(model)"
                )
            other = DistributedTensor.stored_as(other.detach(), self.physical_type)
        torch.Tensor.data.__set__(self, other)  # type: ignore[attr-defined]
        self._stored, self._form = other._stored, None

    def full_tensor(self) -> torch.Tensor:
        """A copy of the unsharded tensor on every rank, in autograd; all ranks call.

        >>> import joinsum, torch
        >>> _ = joinsum.init(sites=3)
        >>> x = joinsum.DistributedTensor.of(torch.ones(5), parts=3).requires_grad_()
        >>> (x.full_tensor() * torch.arange(5.)).sum().backward()
        >>> x.grad
        DistributedTensor(f32[5]<3> on 3 (0))
        """
        if torch.is_grad_enabled() and self.requires_grad:
            full: torch.Tensor = _Gather.apply(self)  # type: ignore[no-untyped-call]
            return full
        return self.unsharded()

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        gradient = ", requires_grad=True" if self.requires_grad else ""
        state = "" if self._stored.alive else ", overwritten"
        return f"DistributedTensor({self.physical_type}{state}{gradient})"

    def __format__(self, spec: str) -> str:
        """That of the number, of a tensor without axes, which all ranks format; text without a format is `repr`."""
        return self.item().__format__(spec) if spec and self.dim() == 0 else object.__format__(self, spec)

    def numpy(self, *, force: bool = False) -> Any:
        """A copy as an array that refuses to be written, in a program of one process. Raises PlanError on process
        groups, where all ranks give `x.full_tensor().numpy()`, and RuntimeError as torch does of a tensor that requires
        a gradient, unless `force`.

        >>> import joinsum, torch
        >>> _ = joinsum.init(sites=2)
        >>> joinsum.DistributedTensor.of(torch.arange(4.), parts=2).numpy()
        array([0., 1., 2., 3.], dtype=float32)
        """
        array = self._in_this_process("numpy").requires_grad_(self.requires_grad).numpy(force=force)
        array.flags.writeable = False
        return array

    def tolist(self) -> Any:
        """The elements as nested lists, in a program of one process. Raises PlanError on process groups, where all
        ranks give `x.full_tensor().tolist()`."""
        return self._in_this_process("tolist").tolist()

    def _in_this_process(self, method: str) -> torch.Tensor:
        """The unsharded tensor, detached. Raises PlanError where other ranks store blocks."""
        if self.context.single_process:
            return self.unsharded()
        raise PlanError(
            f"DistributedTensor: no {method} where other ranks store blocks; on all ranks, give "
            f"x.full_tensor().{method}(), of the detached tensor: type={self.physical_type}"
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> DistributedTensor:
        if id(self) in memo:
            found: DistributedTensor = memo[id(self)]
            return found
        if not self.is_leaf:
            raise PlanError("DistributedTensor: only leaves of autograd are copied deeply; give x.detach()")
        with torch.no_grad():
            copy: DistributedTensor = self.detach().clone()  # type: ignore[assignment]
        copy.requires_grad_(self.requires_grad)
        if isinstance(self, torch.nn.Parameter):
            copy._is_param = True
        memo[id(self)] = copy
        return copy

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self.context.single_process:
            return self.unsharded().__reduce_ex__(protocol)  # type: ignore[no-untyped-call]
        raise PlanError(
            "DistributedTensor: not pickled where other ranks store blocks; on all ranks, save with "
            "joinsum.save_checkpoint or torch.distributed.checkpoint, or pickle joinsum.full_state_dict(model): "
            f"type={self.physical_type}"
        )

    def untyped_storage(self) -> Any:
        """Raises PlanError: the blocks have storages of their own."""
        raise PlanError(
            "DistributedTensor: no storage of its own, its blocks are on the sites; on all ranks, give "
            f"x.full_tensor(), or joinsum.full_state_dict(model) for code that saves tensors: type={self.physical_type}"
        )

    storage = untyped_storage

    def __coerce_same_metadata_as_tangent__(self, *_: Any) -> DistributedTensor:
        """A backward pass takes gradients in any layout."""
        return self

    # The protocol of torch.distributed.checkpoint for tensors in blocks.

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


for _name in (*local_fast_path.IN_PLACE, *local_fast_path.NEW):
    setattr(DistributedTensor, _name, local_fast_path.on_blocks(_name))


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: DistributedTensor) -> torch.Tensor:
        ctx.physical_type = x.physical_type
        return x.unsharded()

    @staticmethod
    def backward(ctx: Any, *arrived: torch.Tensor) -> DistributedTensor:
        return DistributedTensor.stored_as(arrived[0], ctx.physical_type)


def from_local_shards(shard: torch.Tensor) -> DistributedTensor:
    """The tensor that is sharded along its first axis, rank by rank, into shards of one shape. Shares the memory of
    `shard` and moves nothing; detached. Raises PlanError for a shard without elements."""
    current = context()
    if shard.numel() == 0:
        raise PlanError(f"DistributedTensor: a rank's shard has no elements: shape={list(shard.shape)}")
    shape = [current.sites * shard.shape[0], *shard.shape[1:]]
    type_ = sharded_type(shape, shard.dtype)
    own = shard.detach().resolve_conj().resolve_neg().contiguous()
    return DistributedTensor(
        StoredRelation(_C.place_blocks([own], type_, current.local_sites, current.store), current), shape
    )


def sharded_type(shape: Sequence[int], dtype: torch.dtype) -> _C.PhysicalType:
    """The layout of a tensor that is sharded along its first axis, site by site."""
    current = context()
    name = dtype_name("DistributedTensor", dtype)
    wanted = _C.RelationType.of_tensor(name, list(shape), [current.sites] + [1] * (len(shape) - 1))
    split = ", ".join("0" for _ in current.grid.axes)
    return _C.PhysicalType.placed(
        "DistributedTensor", wanted, current.grid, _C.Placement.parse(f"({split})", current.grid, wanted.frontier)
    )


def gathered(tensor: torch.Tensor) -> torch.Tensor:
    """The unsharded tensor, detached; a plain one itself."""
    return tensor.unsharded() if isinstance(tensor, DistributedTensor) else tensor.detach()


def replace_tensor(old: torch.Tensor, new: torch.Tensor) -> None:
    """Replaces `old` by `new` for all references to it (in modules, optimizers): the Python object, `requires_grad` and
    hooks stay the same, and so does whether it is a parameter. Its gradient is converted alike.

    Raises PlanError where a result in autograd still needs the old one.
    """
    grad = old.grad
    hooks, last_hooks = old._backward_hooks, old._post_accumulate_grad_hooks
    result = torch.nn.Parameter(new, requires_grad=old.requires_grad) if isinstance(old, torch.nn.Parameter) else new
    if grad is not None:
        full = gathered(grad)
        result.grad = (
            DistributedTensor.stored_as(full, new.physical_type)
            if isinstance(new, DistributedTensor) and full.layout is torch.strided
            else full
        )
    try:
        torch.utils.swap_tensors(old, result)  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        raise PlanError(
            f"model: a tensor is needed by a result that is still in autograd: shape={list(old.shape)}; before, run "
            "the backward pass of what the model has computed or drop it (del loss), and store no such "
            "result in an attribute of the model"
        ) from error
    if hooks:
        old._backward_hooks = hooks
    if last_hooks:
        old._post_accumulate_grad_hooks = last_hooks
