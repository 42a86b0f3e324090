"""The torch.fx graphs of a model and of those of its modules that torch.fx can follow."""

from __future__ import annotations

import inspect
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx, nn

from joinsum.ist.layers.modules import as_consumer, as_follower, as_producer, is_elementwise

__all__ = ["asks_size", "graphs_of", "is_number", "modules_read", "name_of", "random_states_kept"]

_NAMED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

# Whether a tensor of the model has one element, in a node's `meta`.
_NUMBER = "one element"

# What asks for a tensor's size or kind, and gives none of its elements.
_SIZES = frozenset(("size", "dim", "ndimension", "numel", "new_empty", "new_zeros", "new_ones", "new_full"))
_SIZE_ATTRIBUTES = frozenset(
    (
        *("shape", "ndim", "dtype", "device", "layout", "itemsize", "nbytes", "requires_grad", "is_leaf", "names"),
        *("is_cpu", "is_cuda", "is_meta", "is_sparse", "is_sparse_csr", "is_quantized", "is_nested", "is_mkldnn"),
    )
)


class _Untraceable(Exception):
    """A submodule whose forward pass torch.fx cannot follow."""

    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__(kind.__name__)
        self.kind = kind


class _Tracer(fx.Tracer):
    """Follows the model's own modules; those of the kinds `opaque` are single nodes."""

    def __init__(self, opaque: set[type[nn.Module]]) -> None:
        super().__init__()
        self._opaque = opaque

    def is_leaf_module(self, module: nn.Module, name: str) -> bool:
        known = (as_producer, as_consumer, as_follower)
        return (
            type(module) in self._opaque
            or super().is_leaf_module(module, name)
            or is_elementwise(module)
            or any(role(module) is not None for role in known)
        )

    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: Any = None
    ) -> tuple[Any, list[Any]]:
        return super().create_args_for_root(_with_named_arguments(root_fn), is_module, concrete_args)

    def call_module(self, module: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        if module not in (self.submodule_paths or {}):  # made in the forward pass, or in a list
            if any(True for _ in module.parameters()):
                kind = type(module).__name__
                raise NameError(f"it calls a module that has parameters and is no submodule: kind={kind}")
            return forward(*args, **kwargs)
        if not self.is_leaf_module(module, ""):
            inspect.signature(module.forward).bind(*args, **kwargs)  # else it is the caller that cannot be followed
        try:
            return super().call_module(module, forward, args, kwargs)
        except _Untraceable:
            raise
        except Exception as error:  # any error of the module's own code that has met a proxy
            raise _Untraceable(type(module)) from error


def _with_named_arguments(forward: Callable[..., Any]) -> Callable[..., Any]:
    """A function that passes only the arguments that have names, where a forward pass takes any number of others, as
    those of transformers and their wrappers do: torch.fx would pass a single one for all of these. One that has no
    names for its inputs, as that of a wrapper, stays as it is."""
    inner, outer = ([*inspect.signature(forward, follow_wrapped=of).parameters.values()] for of in (True, False))
    named = [each for each in inner if each.kind in _NAMED]
    takes_inputs = any(each.kind is each.VAR_POSITIONAL for each in inner)
    if takes_inputs or len(named) < 2 or all(each.kind in _NAMED for each in (*inner, *outer)):
        return forward
    passed = [f"{each.name}={each.name}" if each.kind is each.KEYWORD_ONLY else each.name for each in named]
    names = ", ".join(each.name for each in named)
    scope: dict[str, Any] = {"_forward": forward}
    exec(f"def passing({names}): return _forward({', '.join(passed)})", scope)
    passing: Callable[..., Any] = scope["passing"]
    return passing


@contextmanager
def _unchanged(model: nn.Module, training: bool) -> Iterator[None]:
    """Sets the modules to training or evaluation. Undoes that, and what tracing the forward pass writes into modules
    and buffers and draws from random generators."""
    saved = [(module, dict(module.__dict__), dict(module._buffers)) for module in model.modules()]
    plain = [x for x in model.buffers() if type(x) is torch.Tensor and not x.is_meta]
    values = [x.detach().clone() for x in plain]
    generators = [(x, x.get_state()) for _, own, _ in saved for x in own.values() if isinstance(x, torch.Generator)]
    try:
        for module, _, _ in saved:
            module.training = training
        with random_states_kept():
            yield
    finally:
        for generator, state in generators:
            generator.set_state(state)
        for module, attributes, buffers in saved:
            module.__dict__.clear()
            module.__dict__.update(attributes)
            module._buffers.clear()
            module._buffers.update(buffers)
        with torch.no_grad():
            for x, value in zip(plain, values, strict=True):
                x.copy_(value)


@contextmanager
def random_states_kept(device: torch.device | None = None) -> Iterator[None]:
    """Gives torch's, Python's and NumPy's random generators the states back that they had.

    device   that draws, although nothing has used its kind before
    """
    numpy: Any = sys.modules.get("numpy")
    used = torch.cuda.is_initialized() or (device is not None and device.type == "cuda")  # type: ignore[no-untyped-call]
    devices = range(torch.cuda.device_count()) if used else ()
    of_python, of_numpy = random.getstate(), None if numpy is None else numpy.random.get_state()
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(of_python)
        if numpy is not None:
            numpy.random.set_state(of_numpy)


def _seed() -> None:
    """Lets all ranks draw the same. Leaves generators of devices alone, as these may not have begun."""
    random.seed(0)
    torch.default_generator.manual_seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)


def _drawn() -> list[object]:
    """What tells whether something has drawn from random generators."""
    numpy: Any = sys.modules.get("numpy")
    return [random.getstate(), torch.get_rng_state().tolist(), numpy and str(numpy.random.get_state()[1:])]


def _trace(module: nn.Module, opaque: set[type[nn.Module]]) -> fx.Graph:
    """The graph in training, which may have more readers of neurons than evaluation has (an auxiliary head). Where
    training draws what it computes, such as layers that it leaves out, the graph in evaluation, which has all."""
    for training in (True, False):
        with _unchanged(module, training):
            _seed()
            before = _drawn()
            graph = _Tracer(opaque).trace(module)
            _mark_numbers(module, graph)
            draws = _drawn() != before
        if not draws:
            break
    return graph


def _mark_numbers(root: nn.Module, graph: fx.Graph) -> None:
    """Notes which tensors of the modules have one element, such as a learned factor. Those that the forward pass makes
    itself belong to the root only while it is traced."""
    for node in graph.nodes:
        if node.op == "get_attr":
            owner, _, name = str(node.target).rpartition(".")
            tensor = getattr(root.get_submodule(owner), name, None)
            node.meta[_NUMBER] = isinstance(tensor, torch.Tensor) and tensor.dim() < 2 and tensor.numel() == 1


def is_number(node: fx.Node) -> bool:
    """Whether it is a tensor of one element, or a type or device: no operand that has neurons."""
    if node.op == "get_attr":
        return bool(node.meta[_NUMBER])
    return node.op == "call_function" and name_of(node) == "getattr" and node.args[1] in ("dtype", "device", "layout")


def graphs_of(model: nn.Module, uncut: dict[str, str]) -> Iterator[tuple[str, fx.Graph]]:
    """The graph of the model, in which modules that cannot be traced are single nodes, and graphs of what these
    contain. Says in `uncut` why a module was not traced."""
    pending = [("", model)]
    opaque: set[type[nn.Module]] = set()
    while pending:
        prefix, module = pending.pop(0)
        children = [(f"{prefix}.{name}" if prefix else name, child) for name, child in module.named_children()]
        if isinstance(module, (nn.ModuleList, nn.ModuleDict)):
            pending += children
            continue
        if _Tracer(set()).is_leaf_module(module, prefix):
            continue
        graph = None
        while graph is None and type(module) not in opaque:
            try:
                graph = _trace(module, opaque)
            except Exception as error:  # of the model's own code, which has met a proxy
                if isinstance(error, _Untraceable) and error.kind not in opaque:
                    opaque.add(error.kind)
                    continue
                uncut[prefix or "the model"] = f"torch.fx cannot follow its forward pass: {_cause(error)}"
                break
        if graph is None:
            pending += children
            continue
        yield prefix, graph
        inner = [name for name, each in module.named_modules() if name and type(each) in opaque]
        outermost = [name for name in inner if not any(name.startswith(f"{other}.") for other in inner)]
        for name in outermost:
            submodule = module.get_submodule(name)
            path = f"{prefix}.{name}" if prefix else name
            pending += [(f"{path}.{each}", child) for each, child in submodule.named_children()]


def _cause(error: BaseException) -> str:
    """The first sentence of an error, and of one that stands for another one the other's."""
    error = error.__cause__ or error
    return next(iter(str(error).splitlines()), type(error).__name__).partition(". ")[0]


def modules_read(model: nn.Module, graphs: Sequence[tuple[str, fx.Graph]]) -> dict[str, str]:
    """The modules of which the forward pass reads a tensor beside calling them, and the tensor's name there."""
    tensors = dict((*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)))
    read: dict[int, str] = {}
    for prefix, graph in graphs:
        for node in graph.nodes:
            name = f"{prefix}.{node.target}" if prefix else str(node.target)
            if node.op == "get_attr" and name in tensors and not all(map(asks_size, node.users)):
                read[id(tensors[name])] = name
    found: dict[str, str] = {}
    for name, tensor in tensors.items():
        if id(tensor) in read:
            found.setdefault(name.rpartition(".")[0], read[id(tensor)])
    return found


def name_of(node: fx.Node) -> str:
    """The name of the function or method that a node calls."""
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))


def asks_size(node: fx.Node) -> bool:
    """Whether a node gives only the size or the kind of a tensor."""
    if node.op not in ("call_function", "call_method"):
        return False
    name = name_of(node)
    return name in _SIZES or (name == "getattr" and node.args[1] in _SIZE_ATTRIBUTES)
