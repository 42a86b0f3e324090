"""Functions traced on stand-ins, and run on what these stand for: whole tensors or blocks on the sites."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from joinsum.errors import PlanError
from joinsum.frontend.distributed_tensor import DistributedTensor
from joinsum.frontend.errors import capturing
from joinsum.frontend.torch_internals import (
    FakeTensor,
    graph_examples,
    stand_ins,
    tracing_all,
    tree_map,
    without_collections,
)

__all__ = ["Captured", "Slot", "TracedFunction", "module_tensors", "tensor_names"]


class Slot:
    """Stands for a result of a captured graph: its position."""

    def __init__(self, position: int) -> None:
        self.position = position


class Captured:
    """One graph of Dynamo's, made ready to run."""

    def bind(self, structure: Any) -> None:
        """Told once, before it runs: the function's result, with a `Slot` for each of the graph's results."""

    def run(self, actual: Sequence[Any]) -> Sequence[Any]:
        """The graph's results for what its placeholders stand for."""
        raise NotImplementedError


class TracedFunction:
    """A function of tensors and of a model, which Dynamo sees with stand-ins in place of all tensors: nothing is
    computed to trace it, and parameters may lie in blocks. Dynamo's guards choose the graph at every call, so that
    whatever the function reads (a flag, autocast, train or eval) may change.

    who        opens messages
    function   what is traced; it reads `model` as it likes
    capture    makes a graph ready to run, of the graph, Dynamo's example inputs, and what each placeholder stands for
    """

    def __init__(
        self,
        who: str,
        model: torch.nn.Module,
        function: Callable[..., Any],
        capture: Callable[[torch.fx.GraphModule, Sequence[Any], Sequence[Any]], Captured],
    ) -> None:
        self._who = who
        self._model = model
        self._capture = capture
        self._stand_ins = stand_ins()
        # For a tensor's identity: the tensor, how it looks, and its stand-in.
        self._kept: dict[int, tuple[torch.Tensor, Any, torch.Tensor]] = {}
        self._used: dict[int, tuple[torch.Tensor, Any, torch.Tensor]] = {}
        # Stand-ins of batches, by their looks: those of all calls, and those that this call has not taken yet.
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
        """The function's result, or, of a graph that is new, its structure; and whether the graph ran."""
        self._dry, self._chosen, self._actual, self._used, self._free = dry, None, {}, {}, {}
        try:
            with capturing(self._who), tracing_all(), without_collections(), self._exchanged():
                fakes = tree_map(self._stand_in, (tuple(args), dict(kwargs)))
                before = _attributes(self._model)
                try:
                    result = self._compiled(*fakes[0], **fakes[1])
                except BaseException:
                    _restore(before)
                    raise
                new = self._bind(result)
                if new or dry:
                    _restore(before)  # nothing has run yet
                else:
                    self._keep_assigned(before)
            return tree_map(self._back, result), not (new or dry)
        finally:
            self._actual, self._kept = {}, self._used

    def _bind(self, structure: Any) -> bool:
        """Tells the chosen graph, if it is new, the function's result; whether it is."""
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
        captured = self._capture(gm, inputs, tensors)

        def run(*fakes: Any) -> Sequence[Any]:
            self._chosen = captured
            if self._dry or captured not in self._bound:
                return [Slot(i) for i in range(count)]
            return captured.run([self._back(x) for x in fakes])

        return run

    def _back(self, x: Any) -> Any:
        """What a stand-in stands for; other values as they are."""
        found = self._actual.get(id(x), x)
        if isinstance(found, FakeTensor):
            raise PlanError(
                f"{self._who}: a result is a tensor that joinsum did not compute: shape={list(found.shape)}"
            )
        return found

    def _stand_in(self, x: Any) -> Any:
        """A tensor's stand-in, for this call; for the same tensor the same one, as long as it looks the same."""
        if not isinstance(x, torch.Tensor):
            return x
        if isinstance(x, (UninitializedParameter, UninitializedBuffer)):
            raise PlanError(f"{self._who}: a parameter has no shape yet; call the model once before")
        kept = self._used.get(id(x)) or self._kept.get(id(x))
        if kept is not None and kept[0] is x and kept[1] == _looks(x):
            fake = self._used.setdefault(id(x), kept)[2]
        elif isinstance(x, (torch.nn.Parameter, DistributedTensor)) or x.dim() == 0:
            fake = self._stand_ins.of(x)
            self._used[id(x)] = x, _looks(x), fake
        else:
            fake = self._pooled(x)  # a batch, which nobody shall keep
        if fake.requires_grad != x.requires_grad:
            fake.requires_grad_(x.requires_grad)
        self._actual[id(fake)] = x
        return fake

    def _pooled(self, x: torch.Tensor) -> torch.Tensor:
        """A stand-in that no other tensor of this call has; the next call's of the same looks has it again."""
        looks = (_looks(x), x.stride())
        pool = self._pool.setdefault(looks, [])
        free = self._free.setdefault(looks, list(pool))
        if free:
            return free.pop()
        pool.append(self._stand_ins.of(x))
        return pool[-1]

    @contextmanager
    def _exchanged(self) -> Iterator[None]:
        """The model holds stand-ins."""
        places = _places(self._model)
        try:
            for tensors, name, tensor in places:
                tensors[name] = self._stand_in(tensor)
            yield
        finally:
            for tensors, name, tensor in places:
                held = tensors[name] if isinstance(tensors, list) else tensors.get(name)
                if held is not None and self._actual.get(id(held)) is tensor:
                    tensors[name] = tensor

    def _keep_assigned(self, before: _Attributes) -> None:
        """What the function has assigned to attributes of modules, in terms of real tensors."""
        for values, old in before:
            for name, value in list(values.items()):
                if name not in old or old[name] is not value:
                    values[name] = tree_map(self._back, value)


# For each dictionary that holds attributes of a module, itself and what it held.
_Attributes = list[tuple[dict[str, Any], dict[str, Any]]]


def _attributes(model: torch.nn.Module) -> _Attributes:
    """What modules hold: attributes, parameters, buffers."""
    held = [d for module in model.modules() for d in (module.__dict__, module._parameters, module._buffers)]
    return [(values, dict(values)) for values in held]


def _restore(before: _Attributes) -> None:
    """Makes modules hold what they held."""
    for values, old in before:
        if values.keys() != old.keys() or any(value is not old[name] for name, value in values.items()):
            values.clear()
            values.update(old)


def _looks(x: torch.Tensor) -> Any:
    """What a stand-in shows of its tensor: another look needs another stand-in."""
    return type(x), getattr(x, "_is_param", False), x.shape, x.dtype, x.device


def _places(model: torch.nn.Module) -> list[tuple[Any, Any, torch.Tensor]]:
    """Where the model's modules hold tensors: a dictionary or list, and the key or index. Recurrent layers lose their
    weak references."""
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
            # Which would tell that stand-ins are other weights; and torch swaps no tensor that has one.
            module._flat_weight_refs = [None] * len(weights)
            places += [(weights, i, weight) for i, weight in enumerate(weights) if weight is not None]
    return places


def module_tensors(model: torch.nn.Module) -> list[torch.Tensor]:
    """Parameters and buffers, shared ones once."""
    found = {id(x): x for x in (*model.parameters(), *model.buffers())}
    return list(found.values())


def tensor_names(model: torch.nn.Module) -> dict[int, str]:
    """The first name of each parameter and buffer, by identity; raises PlanError where two of them share memory, which
    a plan would store twice."""
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
