"""Attention layers whose heads are the neurons of a hidden layer.

A head is a block of rows in the projections of queries, keys and values, and a block of columns in the output
projection. Where several heads of queries share one of keys and values, the neuron is that group. A module that is not
torch's own is found by the names of its projections, and cut only where a trial shows that its forward pass follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from joinsum.ist.layers.attention_trial import differs_from_heads
from joinsum.ist.layers.modules import Member, Role, as_consumer, as_producer
from joinsum.ist.layers.multihead_attention import HeadsForward, multihead_members, refuses_heads

__all__ = ["AttentionHeads", "attention_heads", "forward_passes", "heads_of", "is_attention", "projects_heads"]

# The children of an attention module, as libraries and papers name them.
_SEPARATE = (
    *(("q_proj", "k_proj", "v_proj"), ("query", "key", "value"), ("q", "k", "v"), ("to_q", "to_k", "to_v")),
    *(("q_lin", "k_lin", "v_lin"), ("wq", "wk", "wv"), ("w_q", "w_k", "w_v"), ("Wq", "Wk", "Wv")),
    *(("W_q", "W_k", "W_v"), ("W_Q", "W_K", "W_V"), ("W_query", "W_key", "W_value"), ("queries", "keys", "values")),
    *(("q_linear", "k_linear", "v_linear"), ("linear_q", "linear_k", "linear_v")),
    *(("query_proj", "key_proj", "value_proj"), ("q_net", "k_net", "v_net")),
)
_PACKED = (
    *("qkv", "qkv_proj", "c_attn", "query_key_value", "in_proj", "Wqkv", "W_qkv", "wqkv", "to_qkv", "qkv_linear"),
    *("att_proj", "attn_qkv", "linear_qkv"),
)
_OUTPUTS = (
    *("o_proj", "out_proj", "c_proj", "proj", "dense", "wo", "to_out", "to_out.0", "out_lin", "out", "o", "w_o", "Wo"),
    *("W_o", "W_O", "output", "fc_out", "proj_out", "out_linear", "linear_out", "projection", "output_proj"),
)
# An output projection outside of the module, in BERT and its kin.
_OUTER_OUTPUT = "output.dense"

# Numbers of a module: heads, heads of keys and values, elements of a head.
_HEADS = (
    *("num_heads", "num_attention_heads", "n_heads", "n_head", "heads", "nhead", "num_query_heads", "num_q_heads"),
    *("n_local_heads", "nheads", "head_count", "h"),
)
_KEY_HEADS = ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "n_kv_head", "kv_heads", "n_local_kv_heads")
_SIZES = ("head_dim", "attention_head_size", "head_size", "d_head", "dim_head", "d_k", "key_value_proj_dim")
# Their products: those that count all heads' elements, and those that may also be the features of the input.
_WIDTHS = ("split_size", "all_head_size", "inner_dim", "kv_dim", "q_size", "kv_size", "q_dim", "attn_dim", "d_attn")
_FEATURES = (
    *("embed_dim", "hidden_size", "d_model", "dim", "n_embd", "embed_size", "emb_dim", "hidden_dim", "width"),
    *("model_dim", "dim_model", "channels", "in_channels", "features", "d_out"),
)


@dataclass(frozen=True)
class AttentionHeads:
    """The heads of an attention module.

    name        the module's
    neurons     heads, or groups of heads that share a key and a value
    producers   the projections of queries, keys and values
    output      the projection that reads the heads
    """

    name: str
    neurons: int
    producers: tuple[Member, ...]
    output: Member


def attention_heads(model: nn.Module, uncut: dict[str, str], device: torch.device) -> Iterator[AttentionHeads]:
    """The attention modules of a model that can be cut. Says in `uncut` why others are not."""
    tried: dict[object, Any] = {}
    for name, module in model.named_modules():
        output = _output_of(model, name)
        if output is None or (not isinstance(module, nn.MultiheadAttention) and _head_count(module) is None):
            continue
        found = heads_of(model, name, output, device, tried)
        if isinstance(found, str):
            uncut[name] = found
        else:
            uncut.pop(name, None)
            yield found


def is_attention(module: nn.Module) -> bool:
    """Whether the names of its projections, or its class, say that it is an attention module."""
    return isinstance(module, nn.MultiheadAttention) or _projections(module) is not None


def projects_heads(module: nn.Module, child: str) -> bool:
    """Whether a child of an attention module computes queries, keys or values of its heads."""
    return child in (_projections(module) or ()) and _head_count(module) is not None


def heads_of(
    model: nn.Module, name: str, output: str, device: torch.device, tried: dict[object, Any] | None = None
) -> AttentionHeads | str:
    """The heads of the module of this name, which the module named `output` reads, or why they cannot be cut.

    tried   what is known of modules of one kind, from earlier calls
    """
    module = model.get_submodule(name)
    if isinstance(module, nn.MultiheadAttention):
        reason = refuses_heads(module)
        producers, projection = multihead_members(name, module)
        if reason is None and output != projection.module:
            reason = f"its heads are read by {projection.module}"
        return AttentionHeads(name, module.num_heads, producers, projection) if reason is None else reason
    owner = _owner(name, output)
    if owner is None:
        return f"its output projection is neither in it nor beside it: module={output}"
    whole = model.get_submodule(owner)
    prefix = f"{owner}." if owner else ""
    inner, read = name.removeprefix(owner).removeprefix("."), output.removeprefix(prefix)
    tried = {} if tried is None else tried
    kind = inner, read, _kind(whole)
    if kind not in tried:
        tried[kind] = _tried(whole, inner, read, device)
    found = tried[kind]
    if isinstance(found, str):
        return found
    named = [
        replace(each, module=(prefix + each.module).removesuffix(".")) for each in (*found.producers, found.output)
    ]
    return AttentionHeads(name, found.neurons, tuple(named[:-1]), named[-1])


def forward_passes(model: nn.Module, names: Sequence[str]) -> list[HeadsForward]:
    """Forward passes of some heads for those of these modules whose own has all or none, until each is removed."""
    modules = [model.get_submodule(name) for name in names]
    return [HeadsForward(module) for module in modules if isinstance(module, nn.MultiheadAttention)]


# --- names and numbers ------------------------------------------------------------------------------------------------


def _owner(name: str, output: str) -> str | None:
    """The module whose forward pass has the heads and their output projection: the attention module, or its parent."""
    for owner in (name, name.rpartition(".")[0]):
        if not owner or output.startswith(f"{owner}."):
            return owner
    return None


def _output_of(model: nn.Module, name: str) -> str | None:
    """The name of an attention module's output projection, as far as names tell; None where it is no such module."""
    module = model.get_submodule(name)
    prefix = f"{name}." if name else ""
    if isinstance(module, nn.MultiheadAttention):
        return f"{prefix}out_proj"
    if _projections(module) is None:
        return None
    inside = [each for each in _OUTPUTS if _linear(module, each) is not None]
    if inside:
        return prefix + inside[0]
    parent = name.rpartition(".")[0]
    if name and _linear(model.get_submodule(parent), _OUTER_OUTPUT) is not None:
        return f"{parent}.{_OUTER_OUTPUT}" if parent else _OUTER_OUTPUT
    return None


def _projections(module: nn.Module) -> tuple[str, ...] | None:
    """The children that project queries, keys and values: three, or one for all."""
    for names in (*_SEPARATE, *((each,) for each in _PACKED)):
        if all(_linear(module, each) is not None for each in names):
            return names
    return None


def _linear(module: nn.Module, name: str) -> nn.Module | None:
    try:
        found = module.get_submodule(name)
    except AttributeError:
        return None
    return found if as_producer(found) is not None and as_consumer(found) is not None and _is_matrix(found) else None


def _is_matrix(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return isinstance(weight, torch.Tensor) and weight.dim() == 2


def _number(module: nn.Module, names: Sequence[str]) -> int | None:
    """The first of these numbers that the module has, or else its configuration."""
    for holder in (module, getattr(module, "config", None)):
        for name in names:
            value = getattr(holder, name, None)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return None


def _head_count(module: nn.Module) -> int | None:
    """The heads of queries."""
    own = [vars(module).get(name) for name in _HEADS]
    found = next((each for each in own if isinstance(each, int) and not isinstance(each, bool)), None)
    if found is not None:
        return found
    names, size = _projections(module), vars(module).get(next((n for n in _SIZES if n in vars(module)), ""))
    if names is not None and len(names) == 3 and isinstance(size, int) and size > 0:
        heads, rest = divmod(_rows(module, names[0]), size)
        return heads if not rest else None
    return _number(module, _HEADS)


def _rows(module: nn.Module, name: str) -> int:
    role = as_producer(module.get_submodule(name))
    assert role is not None
    return role.neurons


def _kind(module: nn.Module) -> tuple[object, ...]:
    """What modules have alike of which one trial tells for all: classes, shapes and numbers, but not their places in
    the model."""
    kinds = tuple((name, type(each)) for name, each in module.named_modules())
    shapes = tuple((name, tuple(x.shape)) for name, x in module.named_parameters())
    numbers = tuple(
        (name, key, value)
        for name, each in module.named_modules()
        for key, value in sorted(vars(each).items())
        if isinstance(value, (int, float, str)) and not key.startswith("layer_")
    )
    options = tuple(id(each.config) for each in module.modules() if hasattr(each, "config"))
    return kinds, shapes, numbers, options


# --- members ----------------------------------------------------------------------------------------------------------


def _tried(owner: nn.Module, inner: str, output: str, device: torch.device) -> AttentionHeads | str:
    """The heads of the attention module `inner` of `owner`, by names relative to it, or why they cannot be cut."""
    module = owner.get_submodule(inner)
    names, heads = _projections(module), _head_count(module)
    if names is None or heads is None:
        return "no projections of queries, keys and values or no number of heads is known by its name"
    neurons = _groups(module, names, heads)
    if neurons < 2:
        return "its heads share one key and value"
    projection = as_consumer(owner.get_submodule(output))
    if projection is None or projection.neurons % neurons:
        return f"the output projection does not read its heads: module={output}"
    prefix = f"{inner}." if inner else ""
    reads = as_consumer(module.get_submodule(names[0])), as_consumer(module.get_submodule(names[-1]))
    features = {role: each.neurons for role, each in zip(("query", "key"), reads, strict=True) if each is not None}
    read = Member(output, projection, projection.neurons // neurons)
    reasons = []
    for producers in _possible_members(module, inner, [prefix + each for each in names], owner, neurons):
        size = projection.neurons // heads
        reason = differs_from_heads(owner, producers, read, neurons, features, size, device)
        if reason is None:
            return AttentionHeads(inner, neurons, producers, read)
        reasons.append(reason)
    why = reasons[0] if reasons else "its projections have no equal block for each head"
    return f"its forward pass does not follow the heads of a subnet: kind={type(module).__name__}: {why}"


def _groups(module: nn.Module, names: Sequence[str], heads: int) -> int:
    """Heads of keys and values."""
    if len(names) == 3:
        rows = _rows(module, names[1])
        size, rest = divmod(_rows(module, names[0]), heads)
        return rows // size if size and not rest and not rows % size else heads
    found = _number(module, _KEY_HEADS)
    return heads if found is None else found


def _possible_members(
    module: nn.Module, inner: str, names: Sequence[str], owner: nn.Module, neurons: int
) -> Iterator[tuple[Member, ...]]:
    """The ways in which the projections may have blocks of heads and the module's numbers may count them: packed
    projections have all queries before all keys, or the three of a head together."""
    for numbers in _possible_numbers(module, neurons):
        for outer in (1,) if len(names) == 3 else (3, 1):
            members = [Member(inner, Role({}, (), 0, numbers=numbers))] if numbers else []
            for name in names:
                role = as_producer(owner.get_submodule(name))
                if role is not None and role.neurons % (outer * neurons) == 0:
                    members.append(Member(name, replace(role, outer=outer), role.neurons // (outer * neurons)))
            if len(members) == bool(numbers) + len(names):
                yield tuple(members)


def _possible_numbers(module: nn.Module, neurons: int) -> list[Mapping[str, int]]:
    """The numbers of the module that grow with heads: those that say so, and with them those that may."""
    own = {key: value for key, value in vars(module).items() if isinstance(value, int) and not isinstance(value, bool)}
    counts = {name: own[name] // neurons for name in (*_HEADS, *_KEY_HEADS, *_WIDTHS) if _divides(own, name, neurons)}
    more = {name: own[name] // neurons for name in _FEATURES if _divides(own, name, neurons)}
    return [counts, counts | more] if more else [counts]


def _divides(numbers: Mapping[str, int], name: str, neurons: int) -> bool:
    return numbers.get(name, 0) > 0 and numbers[name] % neurons == 0
