"""`joinsum.distribute`: stores a model's parameters on the sites in the layouts of its plan."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, TypeVar

import torch

from joinsum.base.arguments import show
from joinsum.base.errors import PlanError
from joinsum.distributed.batch_shards import BatchShards
from joinsum.distributed.distributed_tensor import DistributedTensor, gathered, replace_tensor
from joinsum.frontend.backend import ForwardAndBackward, names_of_operators
from joinsum.frontend.optimizer_state import place_states_at_steps
from joinsum.frontend.program import Program
from joinsum.frontend.tracing.fake_tensors import Captured, Traced, TracedFunction, module_tensors, tensor_names
from joinsum.frontend.tracing.names import argument_names
from joinsum.frontend.tracing.sizes import Sizes
from joinsum.frontend.tracing.torch_internals import both_passes

__all__ = ["captured_model", "check_not_distributed", "distribute", "gather"]

Model = TypeVar("Model", bound=torch.nn.Module)


class _InAutograd(Captured):
    """A model's graph, compiled with its backward pass."""

    def __init__(self, traced: Traced, names: Mapping[int, str], replicate: Collection[str] = ()) -> None:
        """`names` are those of the model's parameters and buffers, by identity."""
        self.state = [x if id(x) in names else None for x in traced.tensors]
        self._compiled = ForwardAndBackward(traced.gm, traced.example_inputs, traced.names, self.state, replicate)

    @property
    def programs(self) -> Sequence[Program]:
        """The programs of the forward and the backward pass."""
        return self._compiled.programs

    def choose(self, sizes: Sizes) -> None:
        self._compiled.choose(sizes)

    def run(self, actual: Sequence[Any]) -> Sequence[Any]:
        results: Sequence[Any] = self._compiled.call(*actual)
        return results


def captured_model(who: str, x: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]) -> _InAutograd:
    """The graphs of a model or a function (plain, compiled or distributed) for these arguments, without a run."""
    if isinstance(x, torch.nn.Module) and isinstance(x.__dict__.get("forward"), _Forward):
        forward: _Forward = x.__dict__["forward"]
        return forward.graph_for(args, keywords)
    plain = inspect.unwrap(getattr(x, "_orig_mod", x))
    model = plain if isinstance(plain, torch.nn.Module) else torch.nn.Module()
    names = tensor_names(model)

    def call(*args: Any, **keywords: Any) -> Any:
        return plain(*args, **keywords)

    called = plain.forward if isinstance(plain, torch.nn.Module) else plain
    traced = TracedFunction(
        who,
        model,
        call,
        lambda graph: _InAutograd(graph, names),
        lambda args, keywords: argument_names(called, args, keywords) | names,
    )
    with both_passes():
        found = traced.graph_for(*args, **keywords)
    assert isinstance(found, _InAutograd)
    return found


class _Forward:
    """The forward method of a distributed model."""

    def __init__(self, model: torch.nn.Module, shards: BatchShards, replicate: Collection[str]) -> None:
        self._shards = shards
        self._model = model
        self._replicate = replicate
        original = type(model).forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            return original(model, *args, **kwargs)

        self._traced = TracedFunction("distribute", model, forward, self._capture, self._all_names)

    def _capture(self, traced: Traced) -> _InAutograd:
        return _InAutograd(traced, self._names, self._replicate)

    def _all_names(self, args: Sequence[Any], keywords: Mapping[str, Any]) -> dict[int, str]:
        forward = functools.partial(type(self._model).forward, self._model)
        return argument_names(forward, args, keywords) | self._names

    @cached_property
    def _names(self) -> dict[int, str]:
        """Names of the model's parameters and buffers; not in `__init__`, because a copied model has no tensors yet."""
        return tensor_names(self._model)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Forward:
        """The forward method of the copied model, with graphs of its own."""
        copied = memo.get(id(self._model))
        if not isinstance(copied, torch.nn.Module):
            raise PlanError(
                "distribute: a distributed model's forward pass is copied only with the model: copy.deepcopy(model)"
            )
        return _Forward(copied, self._shards, self._replicate)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise PlanError(
            "distribute: a distributed model cannot be pickled, its blocks are on the sites; save its state_dict with "
            "joinsum.save_checkpoint or torch.distributed.checkpoint, or pickle it after joinsum.gather(model)"
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        _ = self._names  # must be found before fake tensors replace the tensors
        batch, keywords = self._shards.joined((args, kwargs))
        return self._shards.own(self._traced(*batch, **keywords), (batch, keywords))

    def graph_for(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> _InAutograd:
        """The graph for sample inputs."""
        _ = self._names
        args, kwargs = self._shards.joined((args, kwargs))
        with both_passes():
            found = self._traced.graph_for(*args, **kwargs)
        assert isinstance(found, _InAutograd)
        return found


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

    sample_inputs     a tensor, or a tuple of positional arguments, for which the model is planned; the model does not
                      run
    sample_keywords   keyword arguments of the call
    data              "whole": every rank passes the same inputs and gets all results. "sharded": each rank of a process
                      group passes its own shard of the batch, all of one shape, and gets its shard of results whose
                      first axis is the batch's; gradients are those of the mean of the ranks' losses, as in
                      DistributedDataParallel. Results without a batch axis are of the full batch, on every rank
    replicate         operators that joinsum has no rule for, such as `"aten::linalg_inv_ex"`: every site runs them on
                      unsharded tensors

    Parameters become `joinsum.DistributedTensor`s of their full shape. They stay the same Python objects, so an
    optimizer may be built before, with the same `requires_grad` and keys of `state_dict`; a gradient has its
    parameter's layout. An optimizer whose operators are elementwise updates each site's blocks; for another one its
    step raises PlanError, with the operator. Inputs of other shapes, `no_grad`, `eval()` and autocast are planned at
    their first call.

    On a process group all ranks call with equal models and inputs. `joinsum.gather(model)` restores plain tensors.
    Raises the errors of `joinsum.compile`, and PlanError for a model that is distributed already.

        model = joinsum.distribute(model, batch)
        loss_function(model(batch), target).backward()
        optimizer.step()
    """
    if not isinstance(model, torch.nn.Module):
        raise PlanError(f"distribute: a model is a torch.nn.Module: got={show(model)}")
    check_not_distributed("distribute", model)
    shards = BatchShards("distribute", data)
    args = sample_inputs if isinstance(sample_inputs, tuple) else (sample_inputs,)
    forward = _Forward(model, shards, names_of_operators("distribute", replicate))
    captured = forward.graph_for(args, sample_keywords or {})
    wanted = _wanted_types(captured)
    plain = [x for x in module_tensors(model) if id(x) in wanted and not isinstance(x, DistributedTensor)]
    try:
        for tensor in plain:
            replace_tensor(tensor, DistributedTensor.stored_as(tensor, wanted[id(tensor)]))
    except BaseException:
        for tensor in plain:
            if isinstance(tensor, DistributedTensor):
                replace_tensor(tensor, gathered(tensor))
        raise
    model.forward = forward
    place_states_at_steps()
    return model


def check_not_distributed(who: str, model: torch.nn.Module) -> None:
    """Raises PlanError for a model that is distributed or has a distributed submodule."""
    for name, module in model.named_modules():
        if isinstance(module.__dict__.get("forward"), _Forward):
            what = f"a submodule is distributed already: module={name}" if name else "the model is distributed already"
            raise PlanError(f"{who}: {what}; joinsum.gather(model, optimizer) undoes it")


def _wanted_types(captured: _InAutograd) -> dict[int, Any]:
    """The layouts of parameters and buffers in the forward plan, by the tensors' identity."""
    executable = captured.programs[0].executable
    types = [] if executable is None else executable.input_types
    pairs = zip(captured.state, types, strict=False)
    return {id(x): type_ for x, type_ in pairs if isinstance(x, torch.Tensor) and type_ is not None}


def gather(model: Model, optimizer: torch.optim.Optimizer | None = None) -> Model:
    """Restores plain tensors and the model's own forward pass, and plain tensors in the optimizer's state; returns the
    model. For `save_pretrained`, pickling, and other code that reads tensors. All ranks of a process group call.

    >>> import joinsum, torch
    >>> _ = joinsum.init(sites=2)
    >>> layer = torch.nn.Linear(2, 2)
    >>> type(joinsum.gather(layer).weight)
    <class 'torch.nn.parameter.Parameter'>
    """
    for tensor in module_tensors(model):
        if isinstance(tensor, DistributedTensor):
            replace_tensor(tensor, gathered(tensor))
    for layer in model.modules():
        if isinstance(layer, torch.nn.RNNBase):
            layer._init_flat_weights()  # with weak references again
    if isinstance(model.__dict__.get("forward"), _Forward):
        del model.forward
    if optimizer is not None:
        for state in optimizer.state.values():
            for name, value in state.items():
                if isinstance(value, DistributedTensor):
                    state[name] = gathered(value)
    return model
