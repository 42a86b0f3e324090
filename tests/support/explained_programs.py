"""Programs that tests of explanations explain."""

from __future__ import annotations

import torch

PROGRAM = """tra
input X: f32[24,18]<6,6>
input W1: f32[18,30]<6,6>
input W2: f32[30,12]<6,6>
output Y = aggregate[0, 2; add](join[1; 0; matmul](
    transform[relu](aggregate[0, 2; add](join[1; 0; matmul](X, W1))), W2))
"""
STEP = """tra
input W: f32[8,8]<2,2>
input G: f32[8,8]<2,2>
output V -> W = join[0, 1; 0, 1; sgd_update[$rate]](W, G)
"""
GATHER = "ia on 2\ninput X: f32[8]<2> (0)\noutput Y = broadcast(X)"


def tensors() -> dict[str, torch.Tensor]:
    """Inputs of PROGRAM."""
    generator = torch.Generator().manual_seed(3)
    shapes = {"X": (24, 18), "W1": (18, 30), "W2": (30, 12)}
    return {name: torch.randn(*shape, generator=generator) for name, shape in shapes.items()}
