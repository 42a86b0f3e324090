"""Models that subnets cannot be cut from, because they are distributed in another way."""

from __future__ import annotations

from torch import nn

from joinsum.base.errors import PlanError
from joinsum.frontend.distribute import check_not_distributed

__all__ = ["refuse_distributed"]

# Modules and parameters of torch's ways to distribute a model, by the names of their classes: some of them are imported
# only where they are used.
_WRAPPERS = frozenset(("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel", "FSDPModule", "DTensor"))


def refuse_distributed(model: nn.Module) -> None:
    """Raises PlanError, by name, for a model or module in DistributedDataParallel or FSDP, or that joinsum has
    distributed, and for a parameter that is a DTensor: gradients and values are of other sites' neurons too."""
    if isinstance(model, nn.parallel.DistributedDataParallel):
        raise PlanError(
            "IST: the model is in DistributedDataParallel, which adds other neurons' gradients; give its .module"
        )
    check_not_distributed("IST", model)
    found = [(f"module={name or 'the model'}", type(x)) for name, x in model.named_modules()]
    found += [(f"parameter={name}", type(x)) for name, x in model.named_parameters()]
    for what, kind in found:
        wrapper = next((each.__name__ for each in kind.__mro__ if each.__name__ in _WRAPPERS), None)
        if wrapper is not None:
            raise PlanError(
                f"IST: a part of the model is distributed in another way: {what}, kind={wrapper}; give the plain module"
            )
