"""`joinsum.distribute`: stores a model's parameters on the sites in the layouts of its plan."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal, TypeVar

import torch

from joinsum.algebra.sources import is_sparse
from joinsum.base.arguments import show
from joinsum.base.errors import PlanError
from joinsum.distributed.batch_shards import BatchShards
from joinsum.distributed.distributed_tensor import DistributedTensor, gathered, replace_tensor
from joinsum.distributed.first_values import take_first_rank_values
from joinsum.frontend.backend import names_of_operators
from joinsum.frontend.empty_models import place_parameter
from joinsum.frontend.optimizer_state import place_states_at_steps
from joinsum.frontend.planned_forward import GraphInAutograd, PlannedForward, check_model, planned_forward_of
from joinsum.frontend.tracing.computed_weights import computed_weights, detach_weights
from joinsum.frontend.tracing.fake_tensors import module_tensors, plain_tensors

__all__ = ["check_not_distributed", "distribute", "gather"]

Model = TypeVar("Model", bound=torch.nn.Module)


def distribute(
    model: Model,
    sample_inputs: object,
    sample_keywords: Mapping[str, Any] | None = None,
    *,
    data: Literal["whole", "sharded"] = "whole",
    replicate: Collection[str] = (),
) -> Model:
    """Stores the model's parameters and buffers on the sites, in the layouts of the plan for such inputs, and replaces
    its forward pass by one that runs there; returns the model. Training loops, `loss.backward()` and optimizers need
    no change.

    sample_inputs     a tensor, a tuple of positional arguments, or a dictionary of keyword arguments, for which the
                      model is planned; the model does not run
    sample_keywords   keyword arguments of the call besides
    data              "whole": every rank passes the same inputs and gets all results. "sharded": each rank of a process
                      group passes its own shard of the batch, of any length, and gets its shard of results whose
                      first axis is the batch's; gradients are those of the mean of the ranks' losses, as in
                      DistributedDataParallel. Results without a batch axis are of the full batch, on every rank
    replicate         operators that joinsum has no rule for, such as `"aten::special_bessel_j0"`: every site runs them
                      on unsharded tensors

    Parameters become `joinsum.DistributedTensor`s of their full shape. They stay the same Python objects, so an
    optimizer may be built before, with the same `requires_grad` and keys of `state_dict`; a gradient has its
    parameter's layout. An optimizer whose operators are elementwise updates each site's blocks; for another one its
    step raises PlanError, with the operator. Inputs of other shapes, `no_grad`, `eval()` and autocast are planned at
    their first call.

    On a process group all ranks call with equal inputs; where their parameters differ, all take rank 0's.
    `joinsum.gather(model)` restores plain tensors. Raises the errors of `joinsum.compile`, and
    PlanError for a model that is distributed already.

        model = joinsum.distribute(model, batch)
        loss_function(model(batch), target).backward()
        optimizer.step()
    """
    check_model("distribute", model)
    check_not_distributed("distribute", model)
    shards = BatchShards("distribute", data)
    args, keywords = _call_of(sample_inputs, sample_keywords)
    forward = PlannedForward("distribute", model, shards, names_of_operators("distribute", replicate), distributed=True)
    captured = forward.graph_for(args, keywords)
    wanted = _wanted_types(captured)
    wanted |= {id(x): None for x in module_tensors(model) if x.is_meta and id(x) not in wanted}
    placed = [x for x in module_tensors(model) if id(x) in wanted and not is_sparse(x)]
    plain = [x for x in placed if not isinstance(x, DistributedTensor)]
    take_first_rank_values("distribute", plain_tensors(model))
    detach_weights(computed_weights(model))
    try:
        for tensor in plain:
            place_parameter(tensor, wanted[id(tensor)])
    except BaseException:
        for tensor in plain:
            if isinstance(tensor, DistributedTensor):
                replace_tensor(tensor, gathered(tensor))
        raise
    forward.install()
    place_states_at_steps()
    return model


def _call_of(inputs: object, keywords: Mapping[str, Any] | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of a call with sample inputs."""
    if keywords is not None and not isinstance(keywords, Mapping):
        raise PlanError(
            "distribute: several sample inputs are a tuple, joinsum.distribute(model, (x, y)), and those by keyword a "
            f"dictionary: sample_keywords={show(keywords)}"
        )
    if isinstance(inputs, Mapping):
        return (), {**inputs, **(keywords or {})}
    return inputs if isinstance(inputs, tuple) else (inputs,), dict(keywords or {})


def check_not_distributed(who: str, model: torch.nn.Module) -> None:
    """Raises PlanError for a model that is distributed or has a distributed submodule."""
    for name, module in model.named_modules():
        forward = planned_forward_of(module)
        if forward is not None and forward.distributed:
            what = f"a submodule is distributed already: module={name}" if name else "the model is distributed already"
            raise PlanError(f"{who}: {what}; joinsum.gather(model, optimizer) undoes it")


def _wanted_types(captured: GraphInAutograd) -> dict[int, Any]:
    """The layouts of parameters and buffers in the forward plan, by the tensors' identity."""
    executable = captured.programs[0].executable
    types = [] if executable is None else executable.input_types
    pairs = zip(captured.state, types, strict=False)
    return {id(x): type_ for x, type_ in pairs if isinstance(x, torch.Tensor) and type_ is not None}


def gather(model: Model, optimizer: torch.optim.Optimizer | None = None) -> Model:
    """Restores plain tensors and the model's own forward pass, and plain tensors in the optimizer's state; returns the
    model. For pickling the model, and other code that reads its tensors. All ranks of a process group call.

    >>> import joinsum, torch
    >>> _ = joinsum.init(sites=2)
    >>> layer = torch.nn.Linear(2, 2)
    >>> type(joinsum.gather(layer).weight)
    <class 'torch.nn.parameter.Parameter'>
    """
    detach_weights(computed_weights(model))
    for tensor in module_tensors(model):
        if isinstance(tensor, DistributedTensor):
            replace_tensor(tensor, gathered(tensor))
    for layer in model.modules():
        if isinstance(layer, torch.nn.RNNBase):
            layer._init_flat_weights()  # with weak references again
        forward = planned_forward_of(layer)  # also of a copy inside of another model
        if forward is not None:
            forward.remove()
    if optimizer is not None:
        for state in optimizer.state.values():
            for name, value in state.items():
                if isinstance(value, DistributedTensor):
                    state[name] = gathered(value)
    return model
