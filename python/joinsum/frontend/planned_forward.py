"""The forward pass of a model whose parameters are stored on the sites."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from joinsum.base.arguments import show
from joinsum.base.errors import PlanError
from joinsum.distributed.batch_shards import BatchShards
from joinsum.frontend.backend import ForwardAndBackward
from joinsum.frontend.generation import Generate
from joinsum.frontend.program import Program
from joinsum.frontend.save_pretrained import SavePretrained
from joinsum.frontend.tracing.fake_tensors import Captured, Traced, TracedFunction, tensor_names, tracing
from joinsum.frontend.tracing.names import argument_names
from joinsum.frontend.tracing.sizes import Sizes
from joinsum.frontend.tracing.torch_internals import both_passes

__all__ = [
    "GraphInAutograd",
    "PlannedForward",
    "captured_model",
    "check_model",
    "check_values",
    "planned_forward_of",
]


class GraphInAutograd(Captured):
    """A model's graph, compiled with its backward pass."""

    def __init__(
        self,
        traced: Traced,
        names: Mapping[int, str],
        replicate: Collection[str] = (),
        sharded: Collection[int] = (),
    ) -> None:
        """`names` are those of the model's parameters and buffers, by identity; results whose first extent is one of
        `sharded` stay distributed."""
        self.state = [x if id(x) in names else None for x in traced.tensors]
        self._compiled = ForwardAndBackward(
            traced.gm,
            traced.example_inputs,
            traced.names,
            self.state,
            replicate,
            moving=traced.caches,
            sharded=sharded,
            sparse=traced.sparse,
        )

    @property
    def programs(self) -> Sequence[Program]:
        """The programs of the forward and the backward pass."""
        return self._compiled.programs

    def choose(self, sizes: Sizes) -> None:
        self._compiled.choose(sizes)

    def keep_for_caches(self, results: Collection[int]) -> None:
        self._compiled.stay = frozenset(results)

    def run(self, actual: Sequence[Any]) -> Sequence[Any]:
        results: Sequence[Any] = self._compiled.call(*actual)
        return results


class PlannedForward:
    """The forward method of a model whose parameters are stored on the sites. In code that is being captured it is the
    model's own method.

    who           the public function that errors name
    distributed   whether `distribute` has stored the parameters, and not a training step
    """

    is_planned = True

    def __init__(
        self,
        who: str,
        model: torch.nn.Module,
        shards: BatchShards,
        replicate: Collection[str] = (),
        distributed: bool = False,
    ) -> None:
        self.distributed = distributed
        self.replaced = model.__dict__.get("forward")  # what was assigned to the model before, as accelerate does
        self._who = who
        self._shards = shards
        self._model = model
        self._replicate = replicate
        self._has_values = False
        self._original = model.forward
        functools.update_wrapper(self, self._original)  # whose signature users inspect
        self._traced = TracedFunction(who, model, self._original, self._capture, self._all_names)

    def _capture(self, traced: Traced) -> GraphInAutograd:
        return GraphInAutograd(traced, self._names, self._replicate, set(self._shards.extents))

    def _all_names(self, args: Sequence[Any], keywords: Mapping[str, Any]) -> dict[int, str]:
        return argument_names(self._original, args, keywords) | self._names

    @cached_property
    def _names(self) -> dict[int, str]:
        """Names of the model's parameters and buffers; not in `__init__`, because a copied model has no tensors yet."""
        return tensor_names(self._model)

    def __deepcopy__(self, memo: dict[int, Any]) -> PlannedForward:
        """The forward method of the copied model, with graphs of its own."""
        copied = memo.get(id(self._model))
        if not isinstance(copied, torch.nn.Module):
            raise PlanError(
                f"{self._who}: a distributed model's forward pass is copied only with the model: copy.deepcopy(model)"
            )
        if self.replaced is not None:
            copied.forward = copy.deepcopy(self.replaced, memo)
        return PlannedForward(self._who, copied, self._shards, self._replicate, self.distributed)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise PlanError(
            f"{self._who}: a distributed model cannot be pickled, its blocks are on the sites; save its state_dict "
            "with joinsum.save_checkpoint or torch.distributed.checkpoint, or pickle it after joinsum.gather(model)"
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            if not tracing.active:
                raise PlanError(
                    f"{self._who}: the model runs as plans already; call it without torch.compile around it"
                )
            return self._original(*args, **kwargs)
        if not self._has_values:
            check_values(self._who, self._names, self._model)  # before fake tensors replace the tensors
            self._has_values = True
        batch, keywords = self._shards.joined((args, kwargs))
        return self._shards.own(self._traced(*batch, **keywords))

    def graph_for(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> GraphInAutograd:
        """The graph for sample inputs."""
        _ = self._names
        args, kwargs = self._shards.joined((args, kwargs))
        with both_passes():
            found = self._traced.graph_for(*args, **kwargs)
        assert isinstance(found, GraphInAutograd)
        return found

    def install(self) -> None:
        """Makes this the model's forward method; a `save_pretrained` that it has then writes unsharded tensors, and a
        `generate` of transformers uses caches of full length."""
        self._model.forward = self
        if hasattr(type(self._model), SavePretrained.name):
            self._model.save_pretrained = SavePretrained(self._model)  # type: ignore[assignment]
        if hasattr(type(self._model), Generate.name) and hasattr(self._model, "generation_config"):
            self._model.generate = Generate(self._model)  # type: ignore[assignment]

    def remove(self) -> None:
        """Gives the model its own methods again."""
        if self.replaced is None:
            del self._model.forward
        else:
            self._model.forward = self.replaced
        for each in (SavePretrained, Generate):
            self._model.__dict__.pop(each.name, None)


def check_values(who: str, names: Mapping[int, str], model: torch.nn.Module) -> None:
    """Raises PlanError for parameters that have no values yet."""
    lacking = [names.get(id(x), "?") for x in model.parameters() if getattr(x, "lacking_values", ())]
    if lacking:
        raise PlanError(
            f"{who}: parameters have no values yet: first={lacking[0]}, count={len(lacking)}; load them "
            "(joinsum.load_safetensors, joinsum.load_checkpoint, load_state_dict), or build the model in "
            "joinsum.init_empty(), which knows their initial values"
        )


def check_model(who: str, model: object) -> None:
    """Raises PlanError for what is no model, and for one that cannot be planned as it is."""
    if not isinstance(model, torch.nn.Module):
        raise PlanError(f"{who}: a model is a torch.nn.Module: got={show(model)}")
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise PlanError(
                f"{who}: a module of TorchScript cannot be captured: module={name or 'the model'}; give the one that "
                "it was made from"
            )
        for own, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None and is_lazy(tensor):
                path = ".".join(filter(None, [name, own]))
                raise PlanError(
                    f"{who}: a lazy parameter or buffer has no shape yet: name={path}; call the model once first, and "
                    "make the optimizer then"
                )


def planned_forward_of(model: torch.nn.Module) -> PlannedForward | None:
    """The planned forward pass of a model, if it has one."""
    found = model.__dict__.get("forward")
    return found if isinstance(found, PlannedForward) else None


def captured_model(
    who: str, x: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]
) -> GraphInAutograd:
    """The graphs of a model or a function (plain, compiled or distributed) for these arguments, without a run."""
    forward = planned_forward_of(x) if isinstance(x, torch.nn.Module) else None
    if forward is not None:
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
        lambda graph: GraphInAutograd(graph, names),
        lambda args, keywords: argument_names(called, args, keywords) | names,
    )
    with both_passes():
        found = traced.graph_for(*args, **keywords)
    assert isinstance(found, GraphInAutograd)
    return found
