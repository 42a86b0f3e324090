"""Margin losses of several labels: torch's composition of them, which traces use, also counts labels after the first -1
(seen in 2.13). Here they are composed as torch's kernels compute them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["compose_margins"]


def compose_margins(gm: torch.fx.GraphModule) -> None:
    """Replaces `torch.nn.functional.multilabel_margin_loss` in a graph of Dynamo's, in place."""
    nodes = gm.graph.find_nodes(op="call_function", target=functional.multilabel_margin_loss)
    for node in nodes:
        node.target = _multilabel_margin_loss
    if nodes:
        gm.recompile()


def _multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    if size_average is not None or reduce is not None:
        reduction = "none" if reduce is False else "sum" if size_average is False else "mean"
    scores, labels = (x if x.dim() == 2 else x[None] for x in (input, target))
    classes = scores.shape[1]
    counts = (labels == -1).cumsum(1) == 0  # before the first -1
    index = torch.where(counts, labels, 0)
    is_target = ((torch.arange(classes, device=labels.device) == index[..., None]) & counts[..., None]).any(1)
    margins = torch.relu(1 - scores.gather(1, index)[:, :, None] + scores[:, None, :])
    each = torch.where(counts[:, :, None] & ~is_target[:, None, :], margins, 0).sum((1, 2)) / classes
    if reduction == "none":
        return each.reshape(input.shape[:-1])
    return each.sum() if reduction == "sum" else each.mean()
