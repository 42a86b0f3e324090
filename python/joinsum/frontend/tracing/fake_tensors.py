"""Traces functions on fake tensors, and runs the graphs on the real tensors, plain or distributed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import repeat
from operator import is_not
from typing import Any

import torch
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from joinsum import _C
from joinsum.algebra.sources import is_sparse, sparse_array
from joinsum.base.arguments import show
from joinsum.base.errors import PlanError
from joinsum.base.identity import identical
from joinsum.base.trees import tree_leaves, tree_map
from joinsum.capture.captured_graph import SparseEntries
from joinsum.cluster.context import context
from joinsum.distributed.distributed_tensor import DistributedTensor
from joinsum.execution.balanced_plans import entry_sample
from joinsum.frontend.tracing.errors import capturing
from joinsum.frontend.tracing.hugging_face import prepare_models
from joinsum.frontend.tracing.key_value_caches import KeyValueCaches
from joinsum.frontend.tracing.module_contents import AttributeCopies, ModuleTensors
from joinsum.frontend.tracing.sizes import Sizes, Sources, results_of, sizes_in, sources_of
from joinsum.frontend.tracing.torch_internals import (
    FakeTensor,
    FakeTensors,
    graph_examples,
    placeholder_names,
    tracing_all,
    with_own_code,
    without_collections,
)
from joinsum.sparse import SparseTensor

__all__ = ["Captured", "Traced", "TracedFunction", "module_tensors", "plain_tensors", "tensor_names", "tracing"]


@dataclass
class _Tracing:
    """Whether a TracedFunction is called, so that Dynamo sees fake tensors in place of the model's."""

    active: bool = False


tracing = _Tracing()


@dataclass(frozen=True)
class Traced:
    """A graph of Dynamo's.

    example_inputs   Dynamo's example for each placeholder
    tensors          the real tensor or number of each placeholder
    names            its name, for people
    caches           positions of placeholders that are tensors of key-value caches. None where no caches are among the
                     arguments or results need gradients; otherwise `keep_for_caches` is called before the first run
    """

    gm: torch.fx.GraphModule
    example_inputs: Sequence[Any]
    tensors: Sequence[Any]
    names: Sequence[str]
    caches: frozenset[int] | None = None

    @property
    def sparse(self) -> dict[str, SparseEntries]:
        """What is known of the placeholders that are sparse tensors; in the graph they are dense ones."""
        pairs = zip(self.names, self.tensors, strict=True)
        return {name: _entries_of(x) for name, x in pairs if isinstance(x, torch.Tensor) and is_sparse(x)}


def _entries_of(x: torch.Tensor) -> SparseEntries:
    count = x.values().numel() if x.layout is not torch.sparse_coo else x._nnz()
    return SparseEntries(count, entry_sample(sparse_array("capture", x)) if context().sites > 1 else None)


class Captured:
    """One graph of Dynamo's, ready to run."""

    def choose(self, sizes: Sizes) -> None:
        """Prepares for a call of these sizes, which follows, or is only asked about."""
        raise NotImplementedError

    def keep_for_caches(self, results: Collection[int]) -> None:
        """Says, before the first call, which results only key-value caches get; they may stay distributed."""

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
    differentiates   whether the function computes gradients, those of tables dense
    """

    def __init__(
        self,
        who: str,
        model: torch.nn.Module,
        function: Callable[..., Any],
        capture: Callable[[Traced], Captured],
        names: Callable[[Sequence[Any], Mapping[str, Any]], Mapping[int, str]],
        differentiates: bool = False,
    ) -> None:
        self._who = who
        self._model = model
        self._differentiates = differentiates
        self._capture = capture
        self._names = names
        self._arguments: tuple[Sequence[Any], Mapping[str, Any]] = ((), {})
        self._fakes = FakeTensors()
        # For a tensor's identity: the tensor, its metadata, and its fake tensor.
        self._known: dict[int, tuple[torch.Tensor, Any, torch.Tensor]] = {}
        self._used: dict[int, tuple[torch.Tensor, Any, torch.Tensor]] = {}
        # The fake tensors of this call: of a tensor by its identity, and the tensor of one by that one's identity.
        self._fake: dict[int, torch.Tensor] = {}
        self._actual: dict[int, Any] = {}
        # Slices in this call's batch, each with its copy and that one's version.
        self._slices: list[tuple[torch.Tensor, torch.Tensor, int]] = []
        # Fake tensors of batches, by metadata: all of them, and those that this call has not used yet.
        self._pool: dict[Any, list[torch.Tensor]] = {}
        self._free: dict[Any, list[torch.Tensor]] = {}
        self._module_tensors: ModuleTensors | None = None
        self._faked: _Faked | None = None  # the model's tensors in the last call
        self._chosen: Captured | None = None
        self._dry = False
        self._caches = KeyValueCaches(())
        self._deferred: _DeferredRun | None = None
        # Identities of argument tensors that the function also reads elsewhere, where no fake tensor replaces them:
        # Dynamo sees these themselves, once.
        self.read_elsewhere: Collection[int] = frozenset()
        # Attributes of modules as they are before the function assigns some, which it does after its graph; and graphs
        # whose functions assign none. What a function does is the same in every call with one graph.
        self._before: AttributeCopies | None = None
        self._modules: list[torch.nn.Module] = []
        self._assigning_nothing: set[Captured] = set()
        self._function = function
        # By which of a call's tensors are sparse: Dynamo sees dense ones in their place.
        self._compiled: dict[tuple[int, ...], Callable[..., Any]] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result for tensors, plain or distributed."""
        return self._call(args, kwargs, dry=False)

    def graph_for(self, *args: Any, **kwargs: Any) -> Captured:
        """The graph for these arguments; nothing is computed."""
        with suppress(_NotRun):
            self._call(args, kwargs, dry=True)
        assert self._chosen is not None
        return self._chosen

    @property
    def chosen(self) -> Captured | None:
        """The graph of the last call."""
        return self._chosen

    def _call(self, args: Sequence[Any], kwargs: Mapping[str, Any], dry: bool) -> Any:
        """The function's result. Raises _NotRun in a dry run, when the graph is known."""
        self._dry, self._chosen, self._arguments = dry, None, (args, kwargs)
        self._fake, self._actual, self._used, self._free = {}, {}, {}, {}
        self._slices = []
        caches = self._caches = KeyValueCaches((args, kwargs))
        outer, tracing.active = tracing.active, True
        try:
            with (
                capturing(self._who, self._model),
                tracing_all(),
                without_collections(),
                self._exchanged() as self._modules,
            ):
                try:
                    fakes = self._fakes_in((tuple(args), dict(kwargs)))
                    caches.replace(self._fake_of_cached)
                    result = self._compiled_for_this_call()(*fakes[0], **fakes[1])
                    if self._deferred is not None:
                        self._run_deferred(self._deferred, result)
                    if self.chosen is None:
                        raise PlanError(f"{self._who}: the function has no operator on tensors")
                    caches.replace(self._back)
                except BaseException:
                    caches.restore()
                    if self._before is not None:
                        self._before.restore()
                    raise
                self._settle_assignments()
            for x, copied, version in self._slices:
                if copied._version != version:
                    x.copy_(copied)
            return tree_map(self._back, result)
        finally:
            tracing.active = outer
            self._known, self._arguments = self._used, ((), {})
            self._fake, self._actual, self._slices = {}, {}, []
            self._before, self._modules, self._deferred = None, [], None
            self._caches = KeyValueCaches(())

    def _compiled_for_this_call(self) -> Callable[..., Any]:
        sparse = tuple(i for i, x in enumerate(self._actual.values()) if x.layout is not torch.strided and is_sparse(x))
        if sparse not in self._compiled:
            own = with_own_code(self._function)
            self._compiled[sparse] = torch.compile(own, backend=self._backend, fullgraph=True)
        return self._compiled[sparse]

    def _settle_assignments(self) -> None:
        """Attributes that the function has assigned get real tensors."""
        if self._before is not None and not self._before.convert_assigned(lambda value: tree_map(self._back, value)):
            assert self._chosen is not None
            self._assigning_nothing.add(self._chosen)

    def _backend(self, gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        examples = graph_examples(gm)
        tensors = [self._actual.get(id(x), x) for x in examples]
        known = self._names(*self._arguments)
        names = [known.get(id(x), name) for x, name in zip(tensors, placeholder_names(gm), strict=True)]
        caches = None
        if self._caches and not torch.is_grad_enabled() and context().sites > 1:
            held = {id(x) for x in self._caches.tensors() if x.dim() > 1}
            caches = frozenset(i for i, x in enumerate(examples) if id(x) in held)
        captured, sources = self._capture(Traced(gm, inputs, tensors, names, caches)), sources_of(inputs)
        if caches is not None:
            return self._deferring(_DeferredGraph(gm, sources, captured))

        def run(*fakes: Any) -> Sequence[Any]:
            self._choose(captured, sizes_in(sources, fakes))
            if captured not in self._assigning_nothing:
                self._before = AttributeCopies(self._modules)
            return captured.run(self._actual_of(fakes))

        return run

    def _choose(self, captured: Captured, sizes: Sizes) -> None:
        self._chosen = captured
        captured.choose(sizes)
        if self._dry:
            raise _NotRun

    def _actual_of(self, fakes: Sequence[Any]) -> list[Any]:
        actual = list(map(self._actual.get, map(id, fakes)))
        return actual if _all_found(actual) else [self._back(x) for x in fakes]

    def _deferring(self, graph: _DeferredGraph) -> Callable[..., Any]:
        """Runs a graph after the function's code has returned, which gets fake results. Where these are then says
        which of them only caches get."""

        def run(*fakes: Any) -> Sequence[Any]:
            sizes = sizes_in(graph.sources, fakes)
            results = graph.fake_results(sizes)
            self._deferred = _DeferredRun(graph, fakes, sizes, results)
            if graph.captured not in self._assigning_nothing:
                self._before = AttributeCopies(self._modules)
            return results

        return run

    def _run_deferred(self, deferred: _DeferredRun, result: Any) -> None:
        """Makes the real results known."""
        graph = deferred.graph
        if not graph.has_run:
            cached, returned = set(map(id, self._caches.tensors())), set(map(id, tree_leaves(result)))
            into = [i for i, x in enumerate(deferred.results) if id(x) in cached - returned and x.dim() > 1]
            graph.captured.keep_for_caches(into)
            graph.has_run = True
        self._choose(graph.captured, deferred.sizes)
        found = graph.captured.run(self._actual_of(deferred.fakes))
        for fake, x in zip(deferred.results, found, strict=True):
            if isinstance(fake, torch.Tensor):
                self._actual[id(fake)] = x

    def _back(self, x: Any) -> Any:
        """The real tensor of a fake one; other values unchanged."""
        found = self._actual.get(id(x), x)
        if isinstance(found, FakeTensor):
            raise PlanError(
                f"{self._who}: a result is a tensor that joinsum did not compute: shape={list(found.shape)}"
            )
        return found

    def _fakes_in(self, tree: Any) -> Any:
        """The tree with fake tensors in place of tensors."""
        if type(tree) is list:
            found = list(map(self._fake.get, map(id, tree)))
            return found if _all_found(found) else [self._fakes_in(each) for each in tree]
        if type(tree) is tuple:
            return tuple([self._fakes_in(each) for each in tree])
        return tree_map(self._fake_of, tree)

    def _fake_of(self, x: Any) -> Any:
        """A tensor's fake tensor in this call: the same one in every call while the tensor's metadata are the same."""
        if isinstance(x, SparseTensor):
            raise PlanError(f'{self._who}: models take tensors of torch; give x.to_torch("coo"): got={show(x)}')
        if not isinstance(x, torch.Tensor):
            return x
        if id(x) in self._fake:
            return self._fake[id(x)]
        if id(x) in self.read_elsewhere:
            self._fake[id(x)], self._actual[id(x)] = x, x
            return x
        known = self._known.get(id(x))
        if known is not None and known[0] is x and known[1] == _metadata(x):
            fake = known[2]
            self._used[id(x)] = known
        elif isinstance(x, (UninitializedParameter, UninitializedBuffer)):
            raise PlanError(f"{self._who}: a parameter has no shape yet; call the model once before")
        elif is_sparse(x) and x.requires_grad:
            raise PlanError(
                f"{self._who}: a sparse tensor has no gradient in a plan; give it detached (joinsum.nn.SparseLinear "
                f"trains the values that a weight stores): shape={list(x.shape)}"
            )
        elif isinstance(x, (torch.nn.Parameter, DistributedTensor)) or x.dim() == 0 or is_sparse(x):
            fake = self._fakes.of(x)
            self._used[id(x)] = x, _metadata(x), fake
        elif _is_slice(x):
            # Of its own: strides of the tensor that it is a slice of would be part of the graph.
            copied = x.contiguous()
            self._slices.append((x, copied, copied._version))
            fake = self._fake[id(x)] = self._fake_of(copied)
            return fake
        else:
            fake = self._pooled(x)  # a batch, to which no reference may remain after the call
        if fake.requires_grad != x.requires_grad:
            fake.requires_grad_(x.requires_grad)
        self._fake[id(x)], self._actual[id(fake)] = fake, x
        return fake

    def _fake_of_cached(self, x: torch.Tensor) -> torch.Tensor:
        """The fake tensor of a tensor of a cache, which may be another one in each call; the tensor itself where it may
        be in autograd."""
        if torch.is_grad_enabled() and not isinstance(x, DistributedTensor):
            return x
        if x.dim() < 2 or _is_slice(x):
            found: torch.Tensor = self._fake_of(x)
            return found
        if id(x) not in self._fake:
            fake = self._fake[id(x)] = self._pooled(x, axes=3)
            self._actual[id(fake)] = x
        return self._fake[id(x)]

    def _pooled(self, x: torch.Tensor, axes: int | None = None) -> torch.Tensor:
        """A fake tensor that no other tensor of this call uses; later calls reuse it for the same metadata. Sizes of
        its first `axes` axes may change between calls; by default those of a batch."""
        metadata = (_metadata(x), x.stride(), axes)
        pool = self._pool.setdefault(metadata, [])
        if metadata not in self._free:
            self._free[metadata] = [fake for fake in pool if id(fake) not in self._actual]
        if self._free[metadata]:
            return self._free[metadata].pop()
        pool.append(self._fakes.of_batch(x, axes))
        return pool[-1]

    def _model_fakes(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """The fake tensors of the model's tensors, first in a call: at once if neither the tensors nor their metadata
        have changed since the last call."""
        said = _C.tensor_forms(tensors)
        known = self._faked
        if known is None or said != known.said or not identical(tensors, known.tensors):
            fakes = [self._fake_of(x) for x in tensors]
            known = self._faked = _Faked(tensors, said, fakes, dict(self._fake), dict(self._actual), dict(self._used))
        else:
            self._fake, self._actual, self._used = dict(known.fake), dict(known.actual), dict(known.used)
        return known.fakes

    @contextmanager
    def _exchanged(self) -> Iterator[list[torch.nn.Module]]:
        """Replaces the model's tensors by fake ones, and in a function that differentiates sparse gradients of tables,
        which torch does not trace, by dense ones; gives its modules."""
        held = self._module_tensors
        if held is None or not held.unchanged():
            prepare_models(self._model.modules())
            held = self._module_tensors = ModuleTensors(self._model)
        sparse = [table for table in held.tables if table.sparse] if self._differentiates else []
        try:
            for (tensors, name), fake in zip(held.places, self._model_fakes(held.tensors), strict=True):
                tensors[name] = fake
            for table in sparse:
                table.sparse = False
            yield held.modules
        finally:
            for table in sparse:
                table.sparse = True
            for (tensors, name), tensor in zip(held.places, held.tensors, strict=True):
                now = tensors[name] if isinstance(tensors, list) else tensors.get(name)
                if now is not None and self._actual.get(id(now)) is tensor:
                    tensors[name] = tensor


class _DeferredGraph:
    """A graph that runs after the function's code has returned."""

    def __init__(self, gm: torch.fx.GraphModule, sources: Sources, captured: Captured) -> None:
        self.sources, self.captured = sources, captured
        self.has_run = False
        self._gm = gm
        self._last: tuple[Sizes, list[Any]] | None = None

    def fake_results(self, sizes: Sizes) -> list[Any]:
        """Fake tensors of the results' shapes, and results that are numbers; the same ones while sizes are the same."""
        if self._last is None or self._last[0] != sizes:
            self._last = sizes, results_of(self._gm, sizes)
        return self._last[1]


@dataclass(frozen=True)
class _DeferredRun:
    """A call of a deferred graph: its arguments and results, which are fake, and its sizes."""

    graph: _DeferredGraph
    fakes: Sequence[Any]
    sizes: Sizes
    results: Sequence[Any]


class _NotRun(BaseException):
    """Ends a dry run at its graph, before anything is computed or assigned."""


@dataclass(frozen=True)
class _Faked:
    """The model's tensors in a call, their metadata and fake tensors, and the tables of TracedFunction for them."""

    tensors: list[torch.Tensor]
    said: Any
    fakes: list[torch.Tensor]
    fake: dict[int, torch.Tensor]
    actual: dict[int, Any]
    used: dict[int, tuple[torch.Tensor, Any, torch.Tensor]]


def _is_slice(x: torch.Tensor) -> bool:
    """Whether a tensor outside of autograd leaves out elements of the memory that it spans."""
    if x.requires_grad or x.is_contiguous() or x.layout is not torch.strided or x.numel() == 0:
        return False
    return 1 + sum((n - 1) * stride for n, stride in zip(x.shape, x.stride(), strict=True)) > x.numel()


def _all_found(values: list[Any]) -> bool:
    return all(map(is_not, values, repeat(None)))


def _metadata(x: torch.Tensor) -> Any:
    """The properties that a fake tensor shares with its real one."""
    return type(x), getattr(x, "_is_param", False), x.shape, x.dtype, x.device, x.layout


def module_tensors(model: torch.nn.Module) -> list[torch.Tensor]:
    """Parameters and buffers, shared ones once."""
    found = {id(x): x for x in (*model.parameters(), *model.buffers())}
    return list(found.values())


def plain_tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers that have memory in this process, by their first names."""
    found = {id(x): (name, x) for name, x in reversed((*model.named_parameters(), *model.named_buffers()))}
    return {name: x for name, x in reversed(found.values()) if _has_memory(x)}


def _has_memory(x: torch.Tensor) -> bool:
    if isinstance(x, UninitializedParameter | UninitializedBuffer | DistributedTensor) or is_sparse(x):
        return False
    return not x.is_meta and x.numel() > 0


def tensor_names(model: torch.nn.Module) -> dict[int, str]:
    """The first name of each parameter and buffer, by identity. Raises PlanError if two of them overlap in memory,
    because a plan would store them separately. They may be parts of one storage, as those of a recurrent layer on a
    GPU are."""
    names: dict[int, str] = {}
    stretches: list[tuple[int, int, str]] = []
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if id(tensor) in names:
            continue
        names[id(tensor)] = name
        plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and not is_sparse(tensor)
        if plain and tensor.numel() > 0 and not tensor.is_meta:
            stretches.append((*_stretch(tensor), name))
    reached, last = 0, ""
    for begin, end, name in sorted(stretches):
        if begin < reached:
            first, second = (each for each in names.values() if each in (last, name))
            raise PlanError(
                f"model: two tensors share memory: first={first}, second={second}; make them one parameter, as in "
                "b.weight = a.weight"
            )
        reached, last = end, name
    return names


def _stretch(tensor: torch.Tensor) -> tuple[int, int]:
    """The addresses from a tensor's first element to behind its last."""
    steps = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (steps + 1) * tensor.element_size()
