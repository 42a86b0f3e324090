"""State dictionaries with unsharded tensors, for code that reads or pickles them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Literal

import torch
from torch.nn.parameter import is_lazy

from joinsum.base.arguments import show
from joinsum.base.errors import PlanError
from joinsum.base.trees import tree_map
from joinsum.cluster.context import context
from joinsum.distributed.distributed_tensor import DistributedTensor

__all__ = ["full_state_dict"]


def full_state_dict(
    source: torch.nn.Module | torch.optim.Optimizer | Mapping[str, Any], *, ranks: Literal["all", "first"] = "all"
) -> dict[str, Any]:
    """The state of a model, an optimizer, or a state dictionary, with an unsharded copy of each tensor: for
    `torch.save`, `safetensors.torch.save_file` and other code that reads tensors. Names that share a tensor share its
    copy.

    ranks   which ranks of a process group get it: "all", or "first", where the others get an empty dictionary and hold
            one tensor at a time

    All ranks of a process group call. Raises PlanError for another source, TransportError where a rank calls something
    else. As torch.distributed.checkpoint.state_dict.get_model_state_dict with `full_state_dict`.

    >>> import joinsum, torch
    >>> _ = joinsum.init(sites=2)
    >>> model = joinsum.distribute(torch.nn.Linear(2, 1, bias=False), torch.ones(4, 2))
    >>> {name: x.shape for name, x in joinsum.full_state_dict(model).items()}
    {'weight': torch.Size([1, 2])}
    """
    if ranks not in ("all", "first"):
        raise PlanError(f"full_state_dict: all ranks get it, or the first: ranks={show(ranks)}")
    if isinstance(source, torch.nn.Module | torch.optim.Optimizer):
        state: Mapping[str, Any] = source.state_dict()
    elif isinstance(source, Mapping):
        state = source
    else:
        raise PlanError(f"full_state_dict: a model, an optimizer or a state dictionary has one: got={show(source)}")
    current = context()
    if not current.single_process:
        current.transport.agree("full_state_dict", f"ranks: {ranks}")
    receives = ranks == "all" or 0 in current.local_sites
    copies: dict[Hashable, torch.Tensor] = {}

    def full(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or is_lazy(x):  # a lazy parameter has no elements yet
            return x
        key = _memory(x)
        if key not in copies:
            copy = x.unsharded() if isinstance(x, DistributedTensor) else x.detach().clone()
            copies[key] = copy if receives else copy.new_empty(0)
        return copies[key]

    out: dict[str, Any] = tree_map(full, dict(state))
    return out if receives else {}


def _memory(x: torch.Tensor) -> Hashable:
    """Equal for two names of one tensor, which `state_dict` gives a tensor object each."""
    if isinstance(x, DistributedTensor):
        return id(x.stored)
    if type(x) not in (torch.Tensor, torch.nn.Parameter) or x.layout is not torch.strided or x.numel() == 0:
        return id(x)
    return x.data_ptr(), x.shape, x.stride(), x.dtype
