"""The torch.fx graphs of a model and of those of its modules that torch.fx can follow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx, nn

from joinsum.ist.layers.modules import as_consumer, as_follower, as_producer

__all__ = ["asks_size", "graphs_of", "modules_read", "name_of"]

# What asks for a tensor's size or kind, and gives none of its elements.
_SIZES = frozenset(("size", "dim", "ndimension", "numel"))
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
            or any(role(module) is not None for role in known)
        )

    def call_module(self, module: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        try:
            return super().call_module(module, forward, args, kwargs)
        except _Untraceable:
            raise
        except Exception as error:  # any error of the module's own code that has met a proxy
            raise _Untraceable(type(module)) from error


@contextmanager
def _unchanged(model: nn.Module) -> Iterator[None]:
    """Undoes what tracing the forward pass writes into modules and buffers."""
    saved = [(module, dict(module.__dict__), dict(module._buffers)) for module in model.modules()]
    plain = [x for x in model.buffers() if type(x) is torch.Tensor and not x.is_meta]
    values = [x.detach().clone() for x in plain]
    try:
        yield
    finally:
        for module, attributes, buffers in saved:
            module.__dict__.clear()
            module.__dict__.update(attributes)
            module._buffers.clear()
            module._buffers.update(buffers)
        with torch.no_grad():
            for x, value in zip(plain, values, strict=True):
                x.copy_(value)


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
                with _unchanged(module):
                    graph = _Tracer(opaque).trace(module)
            except _Untraceable as error:
                opaque.add(error.kind)
            except Exception as error:  # of the model's own code, which has met a proxy
                first_line = next(iter(str(error).splitlines()), type(error).__name__)
                uncut[prefix or "the model"] = f"torch.fx cannot follow its forward pass: {first_line}"
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
