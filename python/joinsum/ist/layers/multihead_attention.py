"""The forward pass of `nn.MultiheadAttention` with some of its heads. Torch's own takes the size of a head from that of
its input, so it has all heads or none.
"""

from __future__ import annotations

import types
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from joinsum.base.errors import PlanError
from joinsum.ist.layers.modules import Member, Role

__all__ = ["HeadsForward", "multihead_members", "refuses_heads"]


def refuses_heads(module: nn.MultiheadAttention) -> str | None:
    """Why the forward pass of this module cannot be that of some heads; None where it can."""
    if type(module).forward is not nn.MultiheadAttention.forward or "forward" in vars(module):
        return f"its class has a forward pass of its own: kind={type(module).__name__}"
    if module.num_heads < 2:
        return "it has one head"
    return None


def multihead_members(name: str, module: nn.MultiheadAttention) -> tuple[tuple[Member, ...], Member]:
    """The module's tensors that compute heads, by how their axes count them, and its output projection."""
    width, each = module.embed_dim, module.head_dim
    separate = dict.fromkeys(("q_proj_weight", "k_proj_weight", "v_proj_weight"), 0)
    roles = (
        Role({"in_proj_weight": 0, "in_proj_bias": 0}, (), 3 * width, outer=3, numbers={"num_heads": 1}),
        Role(separate, (), width),
        Role({"bias_k": 2, "bias_v": 2}, (), width),
    )
    producers = tuple(Member(name, role, each) for role in roles if role.numbers or _has(module, *role.axes))
    output = Role({"weight": 1}, ("in_features",), width)
    return producers, Member(f"{name}.out_proj" if name else "out_proj", output, each)


def _has(module: nn.Module, *tensors: str) -> bool:
    return any(getattr(module, each) is not None for each in tensors)


class HeadsForward:
    """Gives a module the forward pass of the heads that it has, until `remove`. It calls the output projection as a
    module, so that what multiplies its input is applied; with all heads it is torch's own."""

    def __init__(self, module: nn.MultiheadAttention) -> None:
        self._module = module
        module.forward = types.MethodType(_forward, module)  # type: ignore[method-assign]
        # Torch's transformer layers read the tensors of a module without hooks themselves.
        self._hook = module.register_forward_pre_hook(_nothing)

    def remove(self) -> None:
        """Gives the module its own forward pass back."""
        del self._module.forward
        self._hook.remove()


def _nothing(*_: object) -> None:
    return None


def _forward(
    self: nn.MultiheadAttention,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    key_padding_mask: torch.Tensor | None = None,
    need_weights: bool = True,
    attn_mask: torch.Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """As `nn.MultiheadAttention.forward`; the weights are those of this subnet's heads."""
    if self.num_heads * self.head_dim == self.embed_dim:
        masks = key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal
        return nn.MultiheadAttention.forward(self, query, key, value, *masks)
    if any(x.is_nested for x in (query, key, value)):
        raise PlanError("IST: nn.MultiheadAttention of a subnet takes no nested tensors; enable_nested_tensor=False")
    if attn_mask is not None and attn_mask.dim() == 3:
        raise PlanError(
            "IST: nn.MultiheadAttention of a subnet has some of the heads, so it takes no attn_mask of each head: "
            f"attn_mask={list(attn_mask.shape)}; pass one of two axes"
        )
    if is_causal and attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
    batched, leading = query.dim() == 3, self.batch_first
    if not batched:
        query, key, value = (x.unsqueeze(0) for x in (query, key, value))
    elif not leading:
        query, key, value = (x.transpose(0, 1) for x in (query, key, value))
    projected = _projected(self, query, key, value)
    heads = [x.view(*x.shape[:2], -1, self.head_dim).transpose(1, 2) for x in projected]
    hinted = is_causal and key_padding_mask is None and not need_weights and heads[1].shape[2] == key.shape[1]
    mask = None if hinted else _mask(heads[0], heads[1].shape[2], key_padding_mask, attn_mask)
    result, weights = _attend(self, heads, mask, need_weights, hinted)
    result = self.out_proj(result.transpose(1, 2).flatten(2))
    if weights is not None and average_attn_weights:
        weights = weights.mean(1)
    if not batched:
        return result.squeeze(0), None if weights is None else weights.squeeze(0)
    return result if leading else result.transpose(0, 1), weights


def _projected(self: nn.MultiheadAttention, *inputs: torch.Tensor) -> list[torch.Tensor]:
    """Queries, keys and values [batch, tokens, heads x size], with the tokens that the module adds."""
    packed: Any = self.in_proj_weight
    weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight) if packed is None else packed.chunk(3)
    biases = (None, None, None) if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
    found = [F.linear(x, weight, bias) for x, weight, bias in zip(inputs, weights, biases, strict=True)]
    for place, added in enumerate((self.bias_k, self.bias_v), 1):
        if added is not None:
            found[place] = torch.cat([found[place], added.expand(found[place].shape[0], 1, -1)], 1)
    if self.add_zero_attn:
        found[1:] = [F.pad(x, (0, 0, 0, 1)) for x in found[1:]]
    return found


def _mask(
    query: torch.Tensor, tokens: int, padding: torch.Tensor | None, mask: torch.Tensor | None
) -> torch.Tensor | None:
    """What is added to the scores [batch, heads, queries, tokens], of which the last tokens are the module's own."""
    added = None
    for each in (mask, None if padding is None else padding.reshape(query.shape[0], 1, 1, -1)):
        if each is None:
            continue
        if each.dtype == torch.bool:
            each = torch.zeros_like(each, dtype=query.dtype).masked_fill_(each, float("-inf"))
        padded = F.pad(each, (0, tokens - each.shape[-1])).to(query.dtype)
        added = padded if added is None else added + padded
    return added


def _attend(
    self: nn.MultiheadAttention, heads: list[torch.Tensor], mask: torch.Tensor | None, need_weights: bool, causal: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """What each head gives [batch, heads, queries, size], and the weights of its tokens if they are needed."""
    query, key, value = heads
    dropout = self.dropout if self.training else 0.0
    if not need_weights:
        return F.scaled_dot_product_attention(query, key, value, mask, dropout, is_causal=causal), None
    scores = query @ key.transpose(-2, -1) * self.head_dim**-0.5
    weights = F.dropout((scores if mask is None else scores + mask).softmax(-1), dropout)
    return weights @ value, weights
