"""Layers whose training steps have closed forms, and what these are."""

from __future__ import annotations

import itertools

import joinsum
from torch import nn

BYTES = 4

# Rates that no measurement of the machine changes. Work costs so much that none is done twice to save bytes.
CLUSTER = joinsum.Cluster("described", 1e9, 1e9, 0.0)


def layers(*widths: int) -> nn.Sequential:
    parts: list[nn.Module] = []
    for i, (before, after) in enumerate(itertools.pairwise(widths)):
        parts += [nn.ReLU()] if i else []
        parts.append(nn.Linear(before, after, bias=False))
    return nn.Sequential(*parts)


def all_reduces(elements: int, sites: int) -> int:
    """Bytes that all-reduces of float32 send, whichever way the sites share them: 2 (s - 1) for each element."""
    return 2 * (sites - 1) * elements * BYTES
