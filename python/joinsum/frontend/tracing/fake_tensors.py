"""Traces functions on fake tensors, and runs the graphs on the real tensors, plain or distributed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from joinsum.base.errors import PlanError
from joinsum.base.trees import tree_map
from joinsum.distributed.distributed_tensor import DistributedTensor
from joinsum.frontend.tracing.errors import capturing
from joinsum.frontend.tracing.torch_internals import (
    FakeTensor,
    FakeTensors,
    graph_examples,
    placeholder_names,
    tracing_all,
    without_collections,
)

__all__ = ["Captured", "Slot", "Traced", "TracedFunction", "module_tensors", "tensor_names"]


class Slot:
    """Represents a result of a captured graph before the graph runs: its position."""

    def __init__(self, position: int) -> None:
        self.position = position


@dataclass(frozen=True)
class Traced:
    """A graph of Dynamo's.

    example_inputs   Dynamo's example for each placeholder
    tensors          the real tensor or number of each placeholder
    names            its name, for people
    """

    gm: torch.fx.GraphModule
    example_inputs: Sequence[Any]
    tensors: Sequence[Any]
    names: Sequence[str]


class Captured:
    """One graph of Dynamo's, ready to run."""

    def bind(self, structure: Any) -> None:
        """Called once before the graph first runs, with the function's result, in which a `Slot` stands for each of
        the graph's results."""

    def run(self, actual: Sequence[Any]) -> Sequence[Any]:
        """The graph's results for real tensors in the placeholders' order."""
        raise NotImplementedError


class TracedFunction:
    """A function of tensors and of a model, traced by Dynamo with a fake tensor in place of each tensor.

    So tracing computes nothing, and parameters may be stored in blocks. Dynamo's guards choose the graph at every call;
    whatever the function reads (a flag, autocast, train or eval) may therefore change between calls.

    who        the public function that errors name
    function   the traced function; it may read `model`
    capture    prepares a graph for running
    names      for a call's arguments, the names of its tensors, those of the model included, by the tensors' identity;
               others have the names of the user's variables
    """

    def __init__(
        self,
        who: str,
        model: torch.nn.Module,
        function: Callable[..., Any],
        capture: Callable[[Traced], Captured],
        names: Callable[[Sequence[Any], Mapping[str, Any]], Mapping[int, str]],
    ) -> None:
        self._who = who
        self._model = model
        self._capture = capture
        self._names = names
        self._arguments: tuple[Sequence[Any], Mapping[str, Any]] = ((), {})
        self._fakes = FakeTensors()
        # For a tensor's identity: the tensor, its metadata, and its fake tensor.
        self._known: dict[int, tuple[torch.Tensor, Any, torch.Tensor]] = {}
        self._used: dict[int, tuple[torch.Tensor, Any, torch.Tensor]] = {}
        # Fake tensors of batches, by metadata: all of them, and those that this call has not used yet.
        self._pool: dict[Any, list[torch.Tensor]] = {}
        self._free: dict[Any, list[torch.Tensor]] = {}
        self._actual: dict[int, Any] = {}
        self._chosen: Captured | None = None
        self._dry = False
        self._bound: set[Captured] = set()
        self._compiled = torch.compile(function, backend=self._backend, fullgraph=True, dynamic=False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result for tensors, plain or distributed."""
        result, ran = self._call(args, kwargs, dry=False)
        if not ran:
            result, _ = self._call(args, kwargs, dry=False)
        return result

    def graph_for(self, *args: Any, **kwargs: Any) -> Captured:
        """The graph for these arguments; nothing is computed."""
        self._call(args, kwargs, dry=True)
        assert self._chosen is not None
        return self._chosen

    @property
    def chosen(self) -> Captured | None:
        """The graph of the last call."""
        return self._chosen

    def _call(self, args: Sequence[Any], kwargs: Mapping[str, Any], dry: bool) -> tuple[Any, bool]:
        """The function's result and True, or the structure of the result and False if the graph has not run because it
        is new or the call is a dry run."""
        self._dry, self._chosen, self._actual, self._used, self._free = dry, None, {}, {}, {}
        self._arguments = args, kwargs
        try:
            with capturing(self._who), tracing_all(), without_collections(), self._exchanged():
                fakes = tree_map(self._fake_of, (tuple(args), dict(kwargs)))
                before = _attributes(self._model)
                try:
                    result = self._compiled(*fakes[0], **fakes[1])
                except BaseException:
                    _restore(before)
                    raise
                new = self._bind(result)
                if new or dry:
                    _restore(before)  # the graph has not run yet
                else:
                    self._convert_assigned(before)
            return tree_map(self._back, result), not (new or dry)
        finally:
            self._actual, self._known, self._arguments = {}, self._used, ((), {})

    def _bind(self, structure: Any) -> bool:
        """Binds the chosen graph to the function's result if it is new; returns whether it is."""
        chosen = self._chosen
        if chosen is None:
            raise PlanError(f"{self._who}: the function has no operator on tensors")
        if chosen in self._bound:
            return False
        chosen.bind(structure)
        self._bound.add(chosen)
        return True

    def _backend(self, gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        tensors = [self._actual.get(id(x), x) for x in graph_examples(gm)]
        count = len(gm.graph.output_node().args[0])  # type: ignore[arg-type]
        known = self._names(*self._arguments)
        names = [known.get(id(x), name) for x, name in zip(tensors, placeholder_names(gm), strict=True)]
        captured = self._capture(Traced(gm, inputs, tensors, names))

        def run(*fakes: Any) -> Sequence[Any]:
            self._chosen = captured
            if self._dry or captured not in self._bound:
                return [Slot(i) for i in range(count)]
            return captured.run([self._back(x) for x in fakes])

        return run

    def _back(self, x: Any) -> Any:
        """The real tensor of a fake one; other values unchanged."""
        found = self._actual.get(id(x), x)
        if isinstance(found, FakeTensor):
            raise PlanError(
                f"{self._who}: a result is a tensor that joinsum did not compute: shape={list(found.shape)}"
            )
        return found

    def _fake_of(self, x: Any) -> Any:
        """A tensor's fake tensor in this call: the same one in every call while the tensor's metadata are the same."""
        if not isinstance(x, torch.Tensor):
            return x
        known = self._used.get(id(x))
        if known is not None and known[0] is x:
            return known[2]
        known = self._known.get(id(x))
        if known is not None and known[0] is x and known[1] == _metadata(x):
            fake = known[2]
            self._used[id(x)] = known
        elif isinstance(x, (UninitializedParameter, UninitializedBuffer)):
            raise PlanError(f"{self._who}: a parameter has no shape yet; call the model once before")
        elif isinstance(x, (torch.nn.Parameter, DistributedTensor)) or x.dim() == 0:
            fake = self._fakes.of(x)
            self._used[id(x)] = x, _metadata(x), fake
        else:
            fake = self._pooled(x)  # a batch, to which no reference may remain after the call
        if fake.requires_grad != x.requires_grad:
            fake.requires_grad_(x.requires_grad)
        self._actual[id(fake)] = x
        return fake

    def _pooled(self, x: torch.Tensor) -> torch.Tensor:
        """A fake tensor that no other tensor of this call uses; later calls reuse it for the same metadata."""
        metadata = (_metadata(x), x.stride())
        pool = self._pool.setdefault(metadata, [])
        free = self._free.setdefault(metadata, list(pool))
        if free:
            return free.pop()
        pool.append(self._fakes.of(x))
        return pool[-1]

    @contextmanager
    def _exchanged(self) -> Iterator[None]:
        """Replaces the model's tensors by fake ones."""
        places = _places(self._model)
        try:
            for tensors, name, tensor in places:
                tensors[name] = self._fake_of(tensor)
            yield
        finally:
            for tensors, name, tensor in places:
                held = tensors[name] if isinstance(tensors, list) else tensors.get(name)
                if held is not None and self._actual.get(id(held)) is tensor:
                    tensors[name] = tensor

    def _convert_assigned(self, before: _Attributes) -> None:
        """Replaces fake tensors by real ones in what the function has assigned to attributes of modules."""
        for values, old in before:
            for name, value in list(values.items()):
                if name not in old or old[name] is not value:
                    values[name] = tree_map(self._back, value)


# Each dictionary that holds attributes of a module, with a copy of its contents.
_Attributes = list[tuple[dict[str, Any], dict[str, Any]]]


def _attributes(model: torch.nn.Module) -> _Attributes:
    """The contents of all modules: attributes, parameters, buffers."""
    held = [d for module in model.modules() for d in (module.__dict__, module._parameters, module._buffers)]
    return [(values, dict(values)) for values in held]


def _restore(before: _Attributes) -> None:
    """Restores the contents of modules."""
    for values, old in before:
        if values.keys() != old.keys() or any(value is not old[name] for name, value in values.items()):
            values.clear()
            values.update(old)


def _metadata(x: torch.Tensor) -> Any:
    """The properties that a fake tensor shares with its real one."""
    return type(x), getattr(x, "_is_param", False), x.shape, x.dtype, x.device


def _places(model: torch.nn.Module) -> list[tuple[Any, Any, torch.Tensor]]:
    """Where the model's modules hold tensors: a dictionary or list, and the key or index. Clears the weak references of
    recurrent layers."""
    places: list[tuple[Any, Any, torch.Tensor]] = []
    modules, found = [model], {model}
    for module in modules:
        for tensors in (module._parameters, module._buffers):
            places += [(tensors, name, tensor) for name, tensor in tensors.items() if tensor is not None]
        for child in module._modules.values():
            if child is not None and child not in found:
                found.add(child)
                modules.append(child)
        if isinstance(module, torch.nn.RNNBase):
            weights = module._flat_weights
            # They would show that the weights have been replaced, and torch cannot swap a tensor that has one.
            module._flat_weight_refs = [None] * len(weights)
            places += [(weights, i, weight) for i, weight in enumerate(weights) if weight is not None]
    return places


def module_tensors(model: torch.nn.Module) -> list[torch.Tensor]:
    """Parameters and buffers, shared ones once."""
    found = {id(x): x for x in (*model.parameters(), *model.buffers())}
    return list(found.values())


def tensor_names(model: torch.nn.Module) -> dict[int, str]:
    """The first name of each parameter and buffer, by identity. Raises PlanError if two of them share memory, because a
    plan would store them separately."""
    names: dict[int, str] = {}
    memory: dict[int, str] = {}
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        names.setdefault(id(tensor), name)
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.numel() == 0 or tensor.is_meta:
            continue
        other = memory.setdefault(tensor.untyped_storage().data_ptr(), name)
        if other != name:
            raise PlanError(
                f"model: two tensors share memory: first={other}, second={name}; make them one parameter, as in "
                "b.weight = a.weight"
            )
    return names
