"""Graphs whose attention is by the operators that torch chooses on GPUs. torch's CPU build cannot choose them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import torch
from joinsum.frontend.tracing import torch_internals
from torch import Tensor, fx

__all__ = ["attention_of_gpus"]

_ATEN = torch.ops.aten


@contextmanager
def attention_of_gpus() -> Iterator[list[str]]:
    """Captured graphs call, in turns, the flash, the memory-efficient and the cuDNN operator; gives their names."""
    called: list[str] = []

    def attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """What torch's function does before it calls one of them."""
        assert dropout_p == 0
        if enable_gqa:
            key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
        mask = attn_mask
        if mask is not None and mask.dtype is torch.bool:
            mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, -torch.inf)
        if mask is not None:
            mask = mask.expand(*query.shape[:3], key.shape[2])
        names = ("flash", "efficient", "cudnn") if mask is None else ("efficient", "cudnn")
        name = names[len(called) % len(names)]
        called.append(name)
        options = [] if name == "flash" else [mask, True]
        operator = getattr(_ATEN, f"_scaled_dot_product_{name}_attention")
        result: Tensor = operator(query, key, value, *options, dropout_p, is_causal, scale=scale)[0]
        return result

    def replace(gm: fx.GraphModule) -> None:
        for node in gm.graph.find_nodes(op="call_function", target=torch.nn.functional.scaled_dot_product_attention):
            node.target = attention
        gm.recompile()

    with mock.patch.object(torch_internals, "_compose_attention", replace):
        yield called
