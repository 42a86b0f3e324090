"""The factor of the loss in half precision, which a GradScaler of torch's adapts."""

from __future__ import annotations

import torch

__all__ = ["LossScale"]


class LossScale:
    """The scale of a `torch.amp.GradScaler`, whose state stays that of the scaler: users save and load it there."""

    def __init__(self, scaler: torch.amp.GradScaler) -> None:
        self._scaler = scaler
        self._tensor = torch.ones(())

    def tensor(self) -> torch.Tensor:
        """The scale, as a tensor of one element; the same one at every step."""
        return self._tensor.fill_(self._scaler.get_scale())

    def update(self, skipped: bool) -> None:
        """Adapts the scale after an update: it shrinks after one that was skipped, and grows after so many that were
        not. Source: torch's `_amp_update_scale_`."""
        state = self._scaler.state_dict()
        scale, good = state["scale"], state["_growth_tracker"] + 1
        if skipped:
            scale, good = scale * state["backoff_factor"], 0
        elif good == state["growth_interval"]:
            grown = float(torch.tensor(scale * state["growth_factor"]))
            scale, good = grown if grown < float("inf") else scale, 0
        self._scaler.load_state_dict({**state, "scale": scale, "_growth_tracker": good})
