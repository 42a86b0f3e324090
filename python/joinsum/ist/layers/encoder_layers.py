"""torch's own transformer layers, whose hidden units are found without a graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from torch import nn

from joinsum.ist.layers.hidden_layers import HiddenLayer, Member
from joinsum.ist.layers.modules import as_consumer, as_producer, own_reason

__all__ = ["LastSum", "encoder_layers", "is_transformer", "layer_with_last_sum"]

_LAYERS = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
_STACKS = (nn.TransformerEncoder, nn.TransformerDecoder)


class LastSum(NamedTuple):
    """A layer whose residual sum is its result, and the elements of that along the last axis."""

    name: str
    width: int


def encoder_layers(model: nn.Module, scaled: bool | None, uncut: dict[str, str]) -> Iterator[tuple[str, HiddenLayer]]:
    """The transformer layers by name, and their hidden units, whose sums join a residual that is normed again. Says in
    `uncut` why some are not cut."""
    for name, module in model.named_modules():
        if _is_layer(module):
            first, second = (f"{name}.{each}" if name else each for each in ("linear1", "linear2"))
            own = own_reason(module.linear1) or own_reason(module.linear2)
            if own is not None:
                uncut[first] = own
                continue
            produced, consumed = as_producer(module.linear1), as_consumer(module.linear2)
            if produced is not None and consumed is not None:
                members = (Member(first, produced),), (), (Member(second, consumed),)
                yield name, HiddenLayer(first, produced.neurons, *members, scaled=scaled is not False)


def is_transformer(module: nn.Module) -> bool:
    """Whether it is a transformer layer, or a stack of them, that computes what torch's does."""
    return _is_layer(module) or any(
        isinstance(module, kind) and type(module).forward is kind.forward for kind in _STACKS
    )


def _is_layer(module: nn.Module) -> bool:
    """Whether it is a transformer layer that computes what torch's does. Of another that derives from it, the graph
    tells what can be cut."""
    own: Any = type(module)
    return any(
        isinstance(module, kind) and own.forward is kind.forward and own._ff_block is kind._ff_block for kind in _LAYERS
    )


def layer_with_last_sum(name: str, module: Any) -> LastSum | None:
    """Which layer's residual sum is the result of a transformer layer or a stack of them; None where that is normed."""
    if isinstance(module, _STACKS):
        if module.norm is not None or not module.layers:
            return None
        name, module = f"{name}.layers.{len(module.layers) - 1}", module.layers[-1]
    return LastSum(name, module.linear2.out_features) if _is_layer(module) and module.norm_first else None
