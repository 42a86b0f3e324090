"""The optimizers whose updates can be part of a graph.

Whatever may change between steps, such as the learning rate, is a tensor of one element, so a schedule does not change
the graph.
"""

from __future__ import annotations

import functools
import inspect

import torch

from joinsum.base.errors import PlanError
from joinsum.frontend.training import other_updates as others
from joinsum.frontend.training.sgd_and_adam import ADAM, SGD
from joinsum.frontend.training.update import Update

__all__ = ["UPDATES", "update_of"]

UPDATES: dict[type[torch.optim.Optimizer], Update] = {
    torch.optim.SGD: SGD,
    torch.optim.Adam: ADAM,
    torch.optim.AdamW: ADAM,
    torch.optim.SparseAdam: others.SPARSE_ADAM,
    torch.optim.RMSprop: others.RMSPROP,
    torch.optim.Adagrad: others.ADAGRAD,
    torch.optim.Adadelta: others.ADADELTA,
    torch.optim.Adamax: others.ADAMAX,
    torch.optim.NAdam: others.NADAM,
    torch.optim.RAdam: others.RADAM,
    torch.optim.ASGD: others.ASGD,
    torch.optim.Rprop: others.RPROP,
    torch.optim.Adafactor: others.ADAFACTOR,
    torch.optim.Muon: others.MUON,
}

# What a subclass may not change, as it says what a step does.
_OF_A_STEP = ("step", "_init_group")


def update_of(optimizer: object) -> Update:
    """The update of an optimizer. Raises PlanError for an unsupported optimizer, and for one whose step does more."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise PlanError(f"train_step: an optimizer is a torch.optim.Optimizer: got={type(optimizer).__name__}")
    kind: type = type(optimizer)
    base = _base_of(kind)
    if base is None:
        known = [each.__name__ for each in UPDATES]
        raise PlanError(
            f"train_step: no such optimizer in a graph: optimizer={type(optimizer).__name__}, supported={known} and "
            "subclasses that change numbers alone; joinsum.distribute(model, sample_inputs) keeps your own loop and "
            "optimizer"
        )
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        raise PlanError(
            "train_step: the optimizer has hooks on its steps, which are no part of a graph: "
            f"optimizer={type(optimizer).__name__}; call what they do beside the step"
        )
    for group in optimizer.param_groups:
        if group.get("differentiable"):
            raise PlanError("train_step: a step is not differentiated: option=differentiable; leave it out")
    return UPDATES[base]


@functools.cache
def _base_of(kind: type) -> type[torch.optim.Optimizer] | None:
    """The class whose update is known: this one, or the one that it is derived from without a step of its own."""
    base = next((each for each in kind.__mro__ if each in UPDATES), None)
    if base is None or any(_function_of(kind, name) is not _function_of(base, name) for name in _OF_A_STEP):
        return None
    return base


def _function_of(kind: type, name: str) -> object:
    """A method; torch wraps `step` anew for each class."""
    method = getattr(kind, name, None)
    return None if method is None else inspect.unwrap(method)
