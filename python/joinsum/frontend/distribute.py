"""`joinsum.distribute`: a model whose parameters lie on the sites as its plan wants them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, TypeVar

import torch

from joinsum.arguments import show
from joinsum.errors import PlanError
from joinsum.frontend.backend import forward_and_backward, names_of_operators
from joinsum.frontend.distributed_tensor import DistributedTensor, gathered, replace_tensor
from joinsum.frontend.optimizer_state import place_states_at_steps
from joinsum.frontend.parts import BatchParts
from joinsum.frontend.program import Program
from joinsum.frontend.stand_ins import Captured, TracedFunction, module_tensors, tensor_names
from joinsum.frontend.torch_internals import both_passes

__all__ = ["captured_model", "check_not_distributed", "distribute", "gather"]

Model = TypeVar("Model", bound=torch.nn.Module)


class _InAutograd(Captured):
    """A model's graph in torch's autograd."""

    def __init__(
        self,
        gm: torch.fx.GraphModule,
        inputs: Sequence[Any],
        tensors: Sequence[Any],
        names: Mapping[int, str],
        replicate: Collection[str] = (),
    ) -> None:
        self.programs: list[Program] = []
        known = [names.get(id(x), f"input{i}") for i, x in enumerate(tensors)]
        state = [x if id(x) in names else None for x in tensors]
        self.state = state
        self._call = forward_and_backward(gm, inputs, known, state, self.programs, replicate)

    def run(self, actual: Sequence[Any]) -> Sequence[Any]:
        made: Sequence[Any] = self._call(*actual)
        return made


def captured_model(who: str, x: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]) -> _InAutograd:
    """The graphs of a model or a function, compiled or distributed or neither, for these arguments; nothing is
    computed."""
    if isinstance(x, torch.nn.Module) and isinstance(x.__dict__.get("forward"), _Forward):
        forward: _Forward = x.__dict__["forward"]
        return forward.graph_for(args, keywords)
    plain = inspect.unwrap(getattr(x, "_orig_mod", x))
    model = plain if isinstance(plain, torch.nn.Module) else torch.nn.Module()
    names = tensor_names(model)

    def call(*args: Any, **keywords: Any) -> Any:
        return plain(*args, **keywords)

    traced = TracedFunction(who, model, call, lambda gm, inputs, tensors: _InAutograd(gm, inputs, tensors, names))
    with both_passes():
        found = traced.graph_for(*args, **keywords)
    assert isinstance(found, _InAutograd)
    return found


class _Forward:
    """The forward method of a distributed model."""

    def __init__(self, model: torch.nn.Module, sharded: bool, replicate: Collection[str]) -> None:
        self._parts = BatchParts("distribute") if sharded else None
        self._model = model
        self._replicate = replicate
        original = type(model).forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            return original(model, *args, **kwargs)

        self._traced = TracedFunction("distribute", model, forward, self._capture)

    def _capture(self, gm: torch.fx.GraphModule, inputs: Sequence[Any], tensors: Sequence[Any]) -> _InAutograd:
        return _InAutograd(gm, inputs, tensors, self._names, self._replicate)

    @cached_property
    def _names(self) -> dict[int, str]:
        """Names of what the model keeps; a copied model has its tensors later than this."""
        return tensor_names(self._model)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Forward:
        """That of the copied model, which captures by itself."""
        copied = memo.get(id(self._model))
        if not isinstance(copied, torch.nn.Module):
            raise PlanError(
                "distribute: a distributed model's forward pass is copied with the model: copy.deepcopy(model)"
            )
        return _Forward(copied, self._parts is not None, self._replicate)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise PlanError(
            "distribute: a distributed model is not pickled, its blocks are on the sites; save its state_dict with "
            "joinsum.save_checkpoint or torch.distributed.checkpoint, or pickle it after joinsum.gather(model)"
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        _ = self._names  # before stand-ins take the tensors' places
        if self._parts is None:
            return self._traced(*args, **kwargs)
        batch, keywords = self._parts.joined((args, kwargs))
        return self._parts.own(self._traced(*batch, **keywords), (batch, keywords))

    def graph_for(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> _InAutograd:
        """The graph for sample inputs."""
        _ = self._names
        if self._parts is not None:
            args, kwargs = self._parts.joined((args, kwargs))
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
    """The model itself, with its parameters and buffers on the sites as the plan for such inputs wants them, and a
    forward pass that runs there. The user's own loop, `loss.backward()`, and optimizers go on as they are.

    sample_inputs     a tensor, or a tuple of the arguments, that the model is planned for; nothing is computed
    sample_keywords   keyword arguments of the call
    data              "whole": every rank gives the same inputs and gets the whole results. "sharded": each rank of a
                      process group gives its own part, all of one shape, and gets its part of results whose first axis
                      is the batch's; gradients are those of the mean of the ranks' losses, as in
                      DistributedDataParallel. Results that are not along the batch are of all of it, on every rank
    replicate         operators that joinsum has no rule for, as `"aten::linalg_inv_ex"`: each site runs them on whole
                      tensors

    Parameters become `joinsum.DistributedTensor`s of their full shape: the same Python objects, so that an optimizer
    may have been built before, and the same `requires_grad` and keys of `state_dict`. Their gradients lie as they do.
    An optimizer steps on each site's own blocks where what it does is elementwise; another raises PlanError, naming the
    operator. Inputs of other shapes, `no_grad`, `eval()` and autocast are planned when they first come.

    On a process group all ranks call with equal models and inputs. `joinsum.gather(model)` makes plain tensors again.
    Raises CaptureError, PlanError as `joinsum.compile`, and for a model that is distributed already.

        model = joinsum.distribute(model, batch)
        loss_function(model(batch), target).backward()
        optimizer.step()
    """
    if not isinstance(model, torch.nn.Module):
        raise PlanError(f"distribute: a model is a torch.nn.Module: got={show(model)}")
    check_not_distributed("distribute", model)
    if data not in ("whole", "sharded"):
        raise PlanError(f"distribute: inputs are whole or sharded: data={show(data)}")
    args = sample_inputs if isinstance(sample_inputs, tuple) else (sample_inputs,)
    forward = _Forward(model, data == "sharded", names_of_operators("distribute", replicate))
    captured = forward.graph_for(args, sample_keywords or {})
    wanted = _wanted_types(captured)
    plain = [x for x in module_tensors(model) if id(x) in wanted and not isinstance(x, DistributedTensor)]
    try:
        for tensor in plain:
            replace_tensor(tensor, DistributedTensor.place(tensor, wanted[id(tensor)]))
    except BaseException:
        for tensor in plain:
            if isinstance(tensor, DistributedTensor):
                replace_tensor(tensor, gathered(tensor))
        raise
    model.forward = forward
    place_states_at_steps()
    return model


def check_not_distributed(who: str, model: torch.nn.Module) -> None:
    """Raises PlanError for a model that is distributed, or a part of which is."""
    for name, module in model.named_modules():
        if isinstance(module.__dict__.get("forward"), _Forward):
            what = (
                f"a part of the model is distributed already: part={name}"
                if name
                else ("the model is distributed already")
            )
            raise PlanError(f"{who}: {what}; joinsum.gather(model, optimizer) undoes it")


def _wanted_types(captured: _InAutograd) -> dict[int, Any]:
    """Where the forward plan wants what the model keeps, by the tensors' identity."""
    runner = captured.programs[0].runner
    types = [] if runner is None else runner.input_types
    pairs = zip(captured.state, types, strict=False)
    return {id(x): type_ for x, type_ in pairs if isinstance(x, torch.Tensor) and type_ is not None}


def gather(model: Model, optimizer: torch.optim.Optimizer | None = None) -> Model:
    """The model itself, with plain whole tensors again, and its own forward pass; so is the optimizer's state. For
    `save_pretrained`, pickling, and whatever else reads tensors. All ranks of a process group call.

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
