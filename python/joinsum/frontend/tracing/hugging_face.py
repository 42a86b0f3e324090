"""What Hugging Face's models do in their first call, done before Dynamo traces them."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import torch

__all__ = ["prepare_models"]


def prepare_models(modules: Iterable[torch.nn.Module]) -> None:
    """Installs the hooks that record hidden states and attentions, which the first call of a model installs under a
    lock, and stops feature extractors from requiring gradients of waves, which only reentrant checkpointing needs.
    Dynamo traces neither. Results and gradients of parameters stay as they are."""
    library = sys.modules.get("transformers.modeling_utils")
    if library is None:
        return
    capturing = sys.modules.get("transformers.utils.output_capturing")
    for module in modules:
        if capturing is not None and isinstance(module, library.PreTrainedModel):
            capturing.maybe_install_capturing_hooks(module)
        if getattr(module, "_requires_grad", False) and type(module).__module__.startswith("transformers."):
            setattr(module, "_requires_grad", False)  # noqa: B010 - no tensor, as modules say of unknown attributes
